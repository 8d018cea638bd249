"""Runtime state of the nodes of jobs."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

from core.models.engine import NodeState
from repositories.documents import Pending, row_of, send


class NodeRepository:
    """SQL on `dag_node_states`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def get(self, job_id: str, node_id: str) -> NodeState | None:
        """Return one node, or child of a fan-out; None when there is none."""
        async with self._conn.cursor(row_factory=row_of(NodeState)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                    waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                    first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                    slot_key
                FROM dagapp.dag_node_states WHERE job_id = %s AND node_id = %s
                """,
                (job_id, node_id),
            )
            return await cursor.fetchone()

    async def of_jobs(self, job_ids: Iterable[str]) -> Pending[NodeState]:
        """Return the vertices of these jobs, without the children of fan-outs."""
        return await send(
            self._conn,
            row_of(NodeState),
            """
            SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                slot_key
            FROM dagapp.dag_node_states WHERE job_id = ANY(%s) AND parent_node_id IS NULL
            """,
            (list(job_ids),),
        )
