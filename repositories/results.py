"""The inbox of what workers reported."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

from core.models.engine import TaskResultRow
from repositories.documents import Pending, row_of, send


class ResultRepository:
    """SQL on `dag_task_results`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def inbox(self, job_ids: Iterable[str], limit: int) -> Pending[TaskResultRow]:
        """Return unprocessed results of these jobs, oldest first."""
        return await send(
            self._conn,
            row_of(TaskResultRow),
            """
            SELECT task_id, job_id, node_id, attempt, status, output, output_ref, outcomes, error, findings, metrics,
                worker_id, reported_at, processed, disposition
            FROM dagapp.dag_task_results WHERE job_id = ANY(%s) AND NOT processed
            ORDER BY reported_at, task_id LIMIT %s
            """,
            (list(job_ids), limit),
        )
