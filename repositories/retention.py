"""What is kept for how long, and rows that go: run by the deploy role, which owns the tables; orchestrators may not.

Each kind goes in a transaction of its own, and a dry run counts without deleting. The log of events goes by whole
months, because deleting rows of it would leave holes and dead tuples; a month is archived first. Jobs, versions and
their files are `services.retention`'s.
"""

import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection, sql
from pydantic import Field

from core.ports import BlobRepository
from repositories import event_archive
from repositories.event_archive import ArchiveFailed
from repositories.expiry import as_owner
from repositories.settings import ProcessSettings

Connection = AsyncConnection[Any]


class RetentionSettings(ProcessSettings):
    """Days after which things go; 0 keeps them for ever."""

    retention_events_days: int = Field(400, ge=0, description="Whole months of the event log.")
    retention_archive_events: bool = Field(
        True, description="Puts a month into the silver zone as a Parquet file before it is dropped."
    )
    retention_jobs_days: int = Field(180, ge=0, description="Jobs that are over, with all that belongs to them.")
    retention_deleted_days: int = Field(
        90, ge=0, description="Files and documents of versions and assets that were deleted; until then both come back."
    )
    retention_files_days: int = Field(
        7, ge=0, description="Files of attempts to which nothing refers; more than the longest task takes."
    )
    retention_uploads_days: int = Field(30, ge=0, description="Uploads that nobody submitted.")
    retention_deliveries_days: int = Field(90, ge=0, description="Webhooks that were delivered or given up.")
    retention_dead_letters_days: int = Field(90, ge=0, description="Letters that somebody resolved.")
    retention_batches_days: int = Field(30, ge=0, description="Answers to batches of submits, by idempotency key.")
    retention_results_days: int = Field(30, ge=0, description="Results that came too late and were never applied.")


@dataclass(frozen=True, slots=True)
class Swept:
    """What went of one kind, or would."""

    kind: str
    rows: int
    """Rows of the database, or files."""
    size_bytes: int = 0
    """In the storage; of a month of events in the database."""
    detail: str = ""


class Retention:
    """Sweeps the rows of a database over one connection in autocommit."""

    def __init__(self, conn: Connection, policy: RetentionSettings, blobs: BlobRepository, *, dry_run: bool) -> None:
        self._conn = conn
        self._policy = policy
        self._blobs = blobs
        self._dry_run = dry_run

    async def rows(self) -> list[Swept]:
        """Remove single rows that are past their time, one kind after the other.

        Raises:
            psycopg.errors.LockNotAvailable: somebody holds a table for long; try again.
        """
        policy = self._policy
        kinds: tuple[tuple[str, int, Callable[[int], Awaitable[int]]], ...] = (
            ("webhook_deliveries", policy.retention_deliveries_days, self._deliveries),
            ("dead_letters", policy.retention_dead_letters_days, self._dead_letters),
            ("submit_batches", policy.retention_batches_days, self._batches),
            ("superseded_results", policy.retention_results_days, self._results),
        )
        return [Swept(kind, await self._in_turn(days, remove)) for kind, days, remove in kinds if days]

    async def _in_turn(self, days: int, remove: Callable[[int], Awaitable[int]]) -> int:
        async with as_owner(self._conn, dry_run=self._dry_run):
            return await remove(days)

    async def _deliveries(self, days: int) -> int:
        cursor = await self._conn.execute(
            """
            DELETE FROM dagapp.webhook_deliveries
            WHERE state <> 'pending' AND created_at < dagapp.clock() - make_interval(days => %s)
            """,
            (days,),
        )
        return cursor.rowcount

    async def _dead_letters(self, days: int) -> int:
        cursor = await self._conn.execute(
            "DELETE FROM dagapp.dag_dead_letters WHERE resolved_at < dagapp.clock() - make_interval(days => %s)",
            (days,),
        )
        return cursor.rowcount

    async def _batches(self, days: int) -> int:
        cursor = await self._conn.execute(
            "DELETE FROM dagapp.submit_batches WHERE created_at < dagapp.clock() - make_interval(days => %s)", (days,)
        )
        return cursor.rowcount

    async def _results(self, days: int) -> int:
        cursor = await self._conn.execute(
            """
            DELETE FROM dagapp.dag_task_results
            WHERE processed AND disposition = 'superseded'
              AND reported_at < dagapp.clock() - make_interval(days => %s)
            """,
            (days,),
        )
        return cursor.rowcount

    async def months(self) -> list[Swept]:
        """Drop whole months of events, each once it is archived.

        Raises:
            ArchiveFailed: nothing of that month is lost.
        """
        days = self._policy.retention_events_days
        if not days:
            return []
        async with as_owner(self._conn) as conn:
            cursor = await conn.execute(
                """
                SELECT c.relname, pg_total_relation_size(c.oid)
                FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                WHERE i.inhparent = 'dagapp.dag_job_events'::regclass AND c.relname ~ '^dag_job_events_[0-9]{6}$'
                  AND to_date(right(c.relname, 6), 'YYYYMM') + make_interval(months => 1)
                      <= dagapp.clock() - make_interval(days => %s)
                ORDER BY c.relname
                """,
                (days,),
            )
            found = [(str(row[0]), int(row[1])) for row in await cursor.fetchall()]
        return [await self._month(table, size_bytes) for table, size_bytes in found]

    async def _month(self, table: str, size_bytes: int) -> Swept:
        detail, archived = "", None
        if self._policy.retention_archive_events:
            detail = str(event_archive.place(table))
            archived = None if self._dry_run else await self._archived(table)
        async with as_owner(self._conn) as conn:
            partition = sql.Identifier("dagapp", table)
            if not self._dry_run:
                await conn.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(partition))
            query = sql.SQL("SELECT count(*), coalesce(max(event_id), 0) FROM {}").format(partition)
            rows, last = await (await conn.execute(query)).fetchone() or (0, 0)
            if archived is not None and (rows, last) != (archived.rows, archived.last_event_id):
                raise ArchiveFailed(f"{table} changed after it was archived; it was not dropped", value=table)
            if not self._dry_run:
                await conn.execute(sql.SQL("DROP TABLE {}").format(partition))
        return Swept(table, int(rows), size_bytes, detail)

    async def _archived(self, table: str) -> event_archive.Contents:
        """Write a month here, put it where it belongs and read it back, before a lock is taken."""
        with tempfile.TemporaryDirectory(prefix="geodag-archive-") as folder:
            path = Path(folder) / f"{table}.parquet"
            async with as_owner(self._conn) as conn:
                found = await event_archive.write(conn, table, path)
            return await event_archive.put(self._blobs, table, path, found)
