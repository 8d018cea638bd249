"""Boots of orchestrator instances and their signs of life."""

from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.engine import Orchestrator

BEAT: LiteralString = """
    INSERT INTO dagapp.dag_orchestrators (owner_id, host, pid, build_id, state) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (owner_id) DO UPDATE SET state = excluded.state, heartbeat_at = dagapp.clock()
    """
"""Run by the heartbeat's own thread over its own synchronous connection."""


class OrchestratorRepository:
    """SQL on `dag_orchestrators`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def dead(self, own_id: str, threshold_seconds: float) -> Sequence[str]:
        """Return owners, other than oneself, that stopped or were silent for longer than the threshold."""
        cursor = await self._conn.execute(
            """
            SELECT owner_id FROM dagapp.dag_orchestrators
            WHERE owner_id <> %s
                AND (state = 'stopped' OR heartbeat_at < dagapp.clock() - make_interval(secs => %s))
            """,
            (own_id, threshold_seconds),
        )
        return [row[0] for row in await cursor.fetchall()]

    async def end_silent_transactions(self, silent_seconds: float) -> int:
        """End this role's sessions of this database that hold a transaction open for a client that says nothing.

        A client that is stopped after a part of its statements left waits without being "idle in transaction", so none
        of the server's own time-outs frees the rows that it has locked.
        """
        cursor = await self._conn.execute(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE usename = current_user AND datname = current_database() AND pid <> pg_backend_pid()
                AND xact_start IS NOT NULL AND wait_event = 'ClientRead'
                AND state_change < dagapp.clock() - make_interval(secs => %s)
            """,
            (silent_seconds,),
        )
        return len(await cursor.fetchall())

    async def set_state(self, owner_id: str, state: str) -> None:
        """Record that an instance drains or has stopped."""
        await self._conn.execute(
            "UPDATE dagapp.dag_orchestrators SET state = %s WHERE owner_id = %s", (state, owner_id)
        )

    async def forget_dead(self, silent_seconds: float) -> None:
        """Remove boots that were silent for long and own no active job."""
        await self._conn.execute(
            """
            DELETE FROM dagapp.dag_orchestrators AS o
            WHERE o.heartbeat_at < dagapp.clock() - make_interval(secs => %s) AND NOT EXISTS (
                SELECT FROM dagapp.dag_jobs AS j
                WHERE j.owner_id = o.owner_id AND j.status IN ('PENDING', 'RUNNING'))
            """,
            (silent_seconds,),
        )

    async def all(self) -> Sequence[Orchestrator]:
        """Return every known boot, newest first."""
        async with self._conn.cursor(row_factory=class_row(Orchestrator)) as cursor:
            await cursor.execute(
                """
                SELECT owner_id, host, pid, build_id, state, started_at, heartbeat_at FROM dagapp.dag_orchestrators
                ORDER BY started_at DESC LIMIT 100
                """
            )
            return await cursor.fetchall()
