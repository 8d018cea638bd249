"""Takes away what nodes left behind that start anew: children, fan-outs, checkpoints. The job's row is locked."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection


class ResetRepository:
    """SQL on what belongs to nodes, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def child_attempts(self, job_id: str) -> dict[str, int]:
        """Return the highest attempt number that any child used, by fan-out."""
        cursor = await self._conn.execute(
            """
            SELECT parent_node_id, max(attempt) FROM dagapp.dag_node_states
            WHERE job_id = %s AND parent_node_id IS NOT NULL GROUP BY parent_node_id
            """,
            (job_id,),
        )
        return {row[0]: row[1] - 1 for row in await cursor.fetchall()}

    async def start_anew(self, job_id: str, node_ids: Iterable[str]) -> list[str]:
        """Delete all that belongs to these nodes and return the tasks of children that were revoked.

        Whoever stores items of a fan-out holds its row. It is waited for by a statement of its own, as the one that
        deletes sees only what was there when it began.
        """
        nodes = list(node_ids)
        await self._conn.execute(
            "SELECT FROM dagapp.dag_fan_outs WHERE job_id = %s AND node_id = ANY(%s) ORDER BY node_id FOR UPDATE",
            (job_id, nodes),
        )
        revoked = await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts
            SET state = 'revoked', reason = 'the node starts anew', ended_at = dagapp.clock(), redispatch_at = NULL
            WHERE job_id = %s AND state IN ('queued', 'parked', 'leased') AND child AND node_id = ANY(ARRAY(
                SELECT node_id FROM dagapp.dag_node_states WHERE job_id = %s AND parent_node_id = ANY(%s)))
            RETURNING task_id
            """,
            (job_id, job_id, nodes),
        )
        await self._conn.execute(
            """
            WITH children AS (
                DELETE FROM dagapp.dag_node_states WHERE job_id = %(job)s AND parent_node_id = ANY(%(nodes)s)
                RETURNING node_id
            ),
            items AS (
                DELETE FROM dagapp.dag_fan_out_items WHERE job_id = %(job)s AND node_id = ANY(%(nodes)s)
            ),
            fan_outs AS (
                DELETE FROM dagapp.dag_fan_outs WHERE job_id = %(job)s AND node_id = ANY(%(nodes)s)
            )
            DELETE FROM dagapp.dag_checkpoints
            WHERE job_id = %(job)s AND node_id = ANY(%(nodes)s || ARRAY(SELECT node_id::text FROM children))
            """,
            {"job": job_id, "nodes": nodes},
        )
        return [row[0] for row in await revoked.fetchall()]
