"""Boots of worker processes, one row each, written by their heartbeats."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from core.models.engine import Worker
from core.wire import WorkerIdentity


class WorkerRepository:
    """SQL on `dag_workers`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def beat(self, worker: WorkerIdentity, free: Mapping[str, Any]) -> None:
        """Record a sign of life with what is free."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_workers (worker_id, queue, host, pid, build_id, state, free)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (worker_id) DO UPDATE
            SET state = excluded.state, free = excluded.free, heartbeat_at = dagapp.clock()
            """,
            (worker.worker_id, worker.queue, worker.host, worker.pid, worker.build_id, worker.state, Jsonb(free)),
        )

    async def forget_dead(self, silent_seconds: float) -> None:
        """Remove boots that were silent for long; one that comes back is recorded anew."""
        await self._conn.execute(
            "DELETE FROM dagapp.dag_workers WHERE heartbeat_at < dagapp.clock() - make_interval(secs => %s)",
            (silent_seconds,),
        )

    async def recent(self, seen_within_seconds: float) -> Sequence[Worker]:
        """Return workers seen lately that have not said goodbye, by queue."""
        async with self._conn.cursor(row_factory=class_row(Worker)) as cursor:
            await cursor.execute(
                """
                SELECT worker_id, queue, host, pid, build_id, state, free, started_at, heartbeat_at
                FROM dagapp.dag_workers
                WHERE heartbeat_at > dagapp.clock() - make_interval(secs => %s) AND state <> 'stopped'
                ORDER BY queue, worker_id
                """,
                (seen_within_seconds,),
            )
            return await cursor.fetchall()
