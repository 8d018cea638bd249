"""What operators look at of the children of fan-outs: of up to a million, those that live and a page at a time."""

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.dag.why import Alike
from core.models.engine import NodeState
from core.statuses import NodeStatus
from repositories.documents import row_of

MOST_COUNTED: Final = 20_000
"""Live children of a job, of each kind, that are counted at most: two of the largest windows."""


class ChildRepository:
    """SQL on the children of fan-outs, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def live(self, job_id: str) -> Sequence[Alike]:
        """Count the children of a job that have an attempt out, or wait for a time or for a slot."""
        async with self._conn.cursor(row_factory=class_row(Alike)) as cursor:
            await cursor.execute(
                """
                SELECT split_part(c.node_id, '__', 1) AS node_id, c.state, c.queue, c.no_fit, c.lost,
                    count(*)::int AS count
                FROM (
                    (SELECT node_id, state, queue, no_fit IS NOT NULL AS no_fit, (
                        SELECT count(*) > 0 FROM dagapp.dag_dead_letters AS d
                        WHERE d.message_id = a.task_id || '.' || a.dispatch_no
                            AND d.resolution IS DISTINCT FROM 'replayed') AS lost
                     FROM dagapp.dag_attempts AS a
                     WHERE job_id = %(job)s AND state IN ('queued', 'parked', 'leased') AND child LIMIT %(most)s)
                    UNION ALL
                    (SELECT node_id, coalesce(waiting_for ->> 'kind', 'backoff'), NULL, false, false
                     FROM dagapp.dag_node_states
                     WHERE job_id = %(job)s AND parent_node_id IS NOT NULL AND not_before IS NOT NULL LIMIT %(most)s)
                    UNION ALL
                    (SELECT node_id, 'slot', NULL, false, false FROM dagapp.dag_slots
                     WHERE job_id = %(job)s AND granted_at IS NULL AND node_id IS NOT NULL
                        AND split_part(node_id, '__', 2) <> '' LIMIT %(most)s)
                ) AS c
                GROUP BY 1, 2, 3, 4, 5
                """,
                {"job": job_id, "most": MOST_COUNTED},
            )
            return await cursor.fetchall()

    async def between(
        self, job_id: str, node_id: str, after: int, last: int, status: NodeStatus | None, limit: int
    ) -> Sequence[NodeState]:
        """Return children of a fan-out in order, those behind one number up to another, in one status or in any.

        A child that a worker has is RUNNING here; its row stays DISPATCHED.
        """
        async with self._conn.cursor(row_factory=row_of(NodeState)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                    waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                    first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                    slot_key
                FROM dagapp.dag_node_states AS n
                WHERE job_id = %s AND parent_node_id = %s AND fan_out_index > %s AND fan_out_index <= %s
                    AND (%s::text IS NULL OR %s = CASE WHEN status = 'DISPATCHED' AND 'leased' = (
                        SELECT a.state FROM dagapp.dag_attempts AS a WHERE a.task_id = n.task_id)
                        THEN 'RUNNING' ELSE status END)
                ORDER BY fan_out_index LIMIT %s
                """,
                (job_id, node_id, after, last, status, status, limit),
            )
            return await cursor.fetchall()
