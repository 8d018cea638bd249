"""What earlier jobs tell about later ones."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

JOBS = 20
"""Completed jobs of a workflow that are looked at, the newest."""


class HistoryRepository:
    """SQL on finished jobs, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def median_seconds(self, workflow_id: str, node_ids: Iterable[str]) -> dict[str, float]:
        """Return how long nodes took, in the middle of the newest completed jobs of a workflow; waiting included."""
        cursor = await self._conn.execute(
            """
            SELECT node_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY greatest(
                extract(epoch FROM completed_at - coalesce(first_dispatched_at, started_at, ready_at)), 0))::float8
            FROM dagapp.dag_node_states
            WHERE job_id = ANY(ARRAY(
                    SELECT job_id FROM dagapp.dag_jobs WHERE workflow_id = %s AND status = 'COMPLETED'
                    ORDER BY completed_at DESC LIMIT %s))
                AND node_id = ANY(%s) AND status = 'COMPLETED'
            GROUP BY node_id
            """,
            (workflow_id, JOBS, list(node_ids)),
        )
        return {row[0]: row[1] for row in await cursor.fetchall() if row[1] is not None}
