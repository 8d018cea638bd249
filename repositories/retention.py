"""What is kept for how long, and what goes: run by the deploy role, which owns the tables; orchestrators may not.

Nothing that a version, a running job or an open letter needs is touched. Each kind goes in a transaction of its own,
and a dry run counts without deleting. The log of events goes by whole months, because deleting rows of it would leave
holes and dead tuples; a month is written to a file first where one is named.
"""

import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row
from pydantic import BaseModel, ConfigDict, Field

from core.errors import GeodagError
from repositories import roles

Connection = AsyncConnection[Any]
LOCK_TIMEOUT: Final[LiteralString] = "SET LOCAL lock_timeout = '2s'"


class Policy(BaseModel):
    """Days after which things go; 0 keeps them for ever."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events_days: int = Field(400, ge=0, description="Whole months of the event log.")
    deliveries_days: int = Field(90, ge=0, description="Webhooks that were delivered or given up.")
    dead_letters_days: int = Field(90, ge=0, description="Letters that somebody resolved.")
    batches_days: int = Field(30, ge=0, description="Answers to batches of submits, by idempotency key.")
    results_days: int = Field(30, ge=0, description="Results that came too late and were never applied.")


@dataclass(frozen=True, slots=True)
class Swept:
    """What went of one kind, or would."""

    kind: str
    rows: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformStorage:
    """What one platform's versions take."""

    platform_id: str
    versions: int
    published_bytes: int
    other_bytes: int
    """Of versions that are pending, rejected, revoked or superseded."""
    deleted_bytes: int
    external_copies: int


class ArchiveFailed(GeodagError):
    """A month of events was not written as a whole, so it was not dropped."""

    code = "ARCHIVE_FAILED"


class Retention:
    """Sweeps a database over one connection in autocommit."""

    def __init__(self, conn: Connection, policy: Policy, *, dry_run: bool, archive: Path | None = None) -> None:
        self._conn = conn
        self._policy = policy
        self._dry_run = dry_run
        self._archive = archive

    async def sweep(self) -> list[Swept]:
        """Remove what is past its time, one kind after the other.

        Raises:
            ArchiveFailed: nothing of that month is lost.
            psycopg.errors.LockNotAvailable: somebody holds a table for long; try again.
        """
        policy = self._policy
        kinds: tuple[tuple[str, int, Callable[[int], Awaitable[int]]], ...] = (
            ("webhook_deliveries", policy.deliveries_days, self._deliveries),
            ("dead_letters", policy.dead_letters_days, self._dead_letters),
            ("submit_batches", policy.batches_days, self._batches),
            ("superseded_results", policy.results_days, self._results),
        )
        done = [Swept(kind, await self._in_turn(days, remove)) for kind, days, remove in kinds if days]
        return done + (await self._months(policy.events_days) if policy.events_days else [])

    async def _in_turn(self, days: int, remove: Callable[[int], Awaitable[int]]) -> int:
        async with self._conn.transaction(force_rollback=self._dry_run):
            await self._become_owner()
            return await remove(days)

    async def _become_owner(self) -> None:
        await self._conn.execute(LOCK_TIMEOUT)
        await self._conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(roles.OWNER)))

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

    async def _months(self, days: int) -> list[Swept]:
        cursor = await self._conn.execute(
            """
            SELECT c.relname
            FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'dagapp.dag_job_events'::regclass AND c.relname ~ '^dag_job_events_[0-9]{6}$'
              AND to_date(right(c.relname, 6), 'YYYYMM') + make_interval(months => 1)
                  <= dagapp.clock() - make_interval(days => %s)
            ORDER BY c.relname
            """,
            (days,),
        )
        return [await self._month(str(row[0])) for row in await cursor.fetchall()]

    async def _month(self, table: str) -> Swept:
        partition = sql.Identifier("dagapp", table)
        async with self._conn.transaction(force_rollback=self._dry_run):
            await self._become_owner()
            await self._conn.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(partition))
            cursor = await self._conn.execute(sql.SQL("SELECT count(*) FROM {}").format(partition))
            row = await cursor.fetchone()
            rows = int(row[0]) if row else 0
            detail = ""
            if not self._dry_run:
                detail = await self._write(table, rows)
                await self._conn.execute(sql.SQL("DROP TABLE {}").format(partition))
            return Swept(table, rows, detail)

    async def _write(self, table: str, rows: int) -> str:
        """Write a month as CSV and count its lines before anything is dropped."""
        if self._archive is None:
            return ""
        path, lines = self._archive / f"{table}.csv.gz", 0
        query = sql.SQL("COPY (SELECT row_to_json(e) FROM {} AS e ORDER BY event_id) TO STDOUT (FORMAT csv)")
        async with self._conn.cursor() as cursor:
            with gzip.open(path, "wb") as file:
                async with cursor.copy(query.format(sql.Identifier("dagapp", table))) as copy:
                    async for part in copy:
                        file.write(part)
        with gzip.open(path, "rb") as file:
            lines = sum(1 for _ in file)
        if lines != rows:
            raise ArchiveFailed(f"{path} has {lines} of {rows} events of {table}", value=str(path))
        return str(path)


async def storage(conn: Connection) -> list[PlatformStorage]:
    """Return what the versions of each platform take, the largest first; raw files of bronze are not counted."""
    async with conn.transaction():
        await conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(roles.OWNER)))
        async with conn.cursor(row_factory=class_row(PlatformStorage)) as cursor:
            await cursor.execute(
                """
                SELECT platform_id, count(*)::integer AS versions,
                       coalesce(sum(bytes) FILTER (WHERE NOT gone AND approval_state = 'approved'), 0)::bigint
                           AS published_bytes,
                       coalesce(sum(bytes) FILTER (WHERE NOT gone AND approval_state <> 'approved'), 0)::bigint
                           AS other_bytes,
                       coalesce(sum(bytes) FILTER (WHERE gone), 0)::bigint AS deleted_bytes,
                       (count(*) FILTER (WHERE external_blob_path IS NOT NULL))::integer AS external_copies
                FROM (SELECT a.platform_id, v.approval_state, v.external_blob_path,
                             coalesce(v.blob_size_bytes, 0) AS bytes,
                             v.deleted_at IS NOT NULL OR a.deleted_at IS NOT NULL AS gone
                      FROM dagapp.asset_versions AS v JOIN dagapp.geospatial_assets AS a USING (asset_id)) AS one
                GROUP BY platform_id ORDER BY sum(bytes) DESC, platform_id
                """
            )
            return await cursor.fetchall()
