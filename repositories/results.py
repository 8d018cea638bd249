"""The inbox of what workers reported."""

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import AsyncConnection

from core.dag.state import Disposition
from core.models.engine import TaskResultRow
from repositories.documents import Pending, document, model_row, send


class ResultRepository:
    """SQL on `dag_task_results`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def insert(self, results: Sequence[TaskResultRow]) -> None:
        """Store results; one that is there already stays as it is."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_task_results
                (task_id, job_id, node_id, attempt, status, output, error, findings, metrics, worker_id, reported_at,
                 processed, disposition)
            SELECT task_id, job_id, node_id, attempt, status, output, error, findings, metrics, worker_id, reported_at,
                processed, disposition
            FROM jsonb_populate_recordset(NULL::dagapp.dag_task_results, %s::jsonb)
            ON CONFLICT (task_id) DO NOTHING
            """,
            (document(results),),
        )

    async def inbox(self, job_ids: Iterable[str], limit: int) -> Pending[TaskResultRow]:
        """Return unprocessed results of these jobs, oldest first."""
        return await send(
            self._conn,
            model_row(TaskResultRow),
            """
            SELECT * FROM dagapp.dag_task_results WHERE job_id = ANY(%s) AND NOT processed
            ORDER BY reported_at, task_id LIMIT %s
            """,
            (list(job_ids), limit),
        )

    async def settle(self, dispositions: Sequence[Disposition]) -> None:
        """Mark results as processed, each with what became of it."""
        rows = [{"task_id": one.task_id, "disposition": one.disposition} for one in dispositions]
        await self._conn.execute(
            """
            UPDATE dagapp.dag_task_results AS r SET processed = true, disposition = u.disposition
            FROM jsonb_to_recordset(%s::jsonb) AS u(task_id text, disposition text)
            WHERE r.task_id = ANY(%s) AND r.task_id = u.task_id AND NOT r.processed
            """,
            (document(rows), [one.task_id for one in dispositions]),
        )
