"""Newest saved state of each node's work."""

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.engine import Checkpoint
from repositories.documents import Pending, document, send


class CheckpointRepository:
    """SQL on `dag_checkpoints`, in the caller's transaction, which holds the attempt's lock for a save."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def save(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Store checkpoints in place of those before."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_checkpoints (job_id, node_id, params_digest, phase, state, saved_by, saved_at)
            SELECT job_id, node_id, params_digest, phase, state, saved_by, saved_at
            FROM jsonb_populate_recordset(NULL::dagapp.dag_checkpoints, %s::jsonb)
            ORDER BY job_id, node_id
            ON CONFLICT (job_id, node_id) DO UPDATE
            SET params_digest = excluded.params_digest, phase = excluded.phase, state = excluded.state,
                saved_by = excluded.saved_by, saved_at = excluded.saved_at
            """,
            (document(checkpoints),),
        )

    async def of_nodes(self, job_ids: Iterable[str], node_ids: Iterable[str]) -> Pending[Checkpoint]:
        """Return checkpoints of these jobs and nodes; the caller picks the pairs it means."""
        return await send(
            self._conn,
            class_row(Checkpoint),
            """
            SELECT job_id, node_id, params_digest, phase, state, saved_by, saved_at
            FROM dagapp.dag_checkpoints WHERE job_id = ANY(%s) AND node_id = ANY(%s)
            """,
            (list(job_ids), list(node_ids)),
        )
