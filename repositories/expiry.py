"""What of jobs and versions is past its time, and which files the database still names: the SQL of `geodag gc`.

Everything here runs as the owner, in transactions of its own over one connection in autocommit. Rows are locked as the
services lock them (job, then asset and its versions), and what was decided before a lock is decided again behind it.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row

from core.leftovers import Known, KnownVersion
from core.statuses import JOB_FINAL
from repositories import roles
from repositories.audit import AuditRepository, NewAuditEntry

Connection = AsyncConnection[Any]
ACTOR: Final = "retention"
_FINAL: Final = sorted(map(str, JOB_FINAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A version whose files may go."""

    asset_id: str
    version_ordinal: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that go together: those of one request with their children, or one job with its children."""

    name: str
    job_ids: Sequence[str] = field(default_factory=tuple)


@asynccontextmanager
async def as_owner(conn: Connection, *, dry_run: bool = False) -> AsyncIterator[Connection]:
    """Open a transaction with the rights of the owner; a dry run is rolled back."""
    async with conn.transaction(force_rollback=dry_run):
        await conn.execute("SET LOCAL lock_timeout = '2s'")
        await conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(roles.OWNER)))
        yield conn


class Expiry:
    """Reads and writes over one connection in autocommit of a role that may become the owner."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    async def spent_jobs(self, days: int) -> list[JobGroup]:
        """Return jobs that ended so long ago, with all that belongs to them; what is not over as a whole stays."""
        async with as_owner(self._conn) as conn, conn.cursor(row_factory=class_row(JobGroup)) as cursor:
            await cursor.execute(
                """
                WITH RECURSIVE over AS (
                    SELECT job_id, split_part(parent_task_id, '_', 1) AS parent,
                           status = ANY(%(final)s)
                           AND coalesce(completed_at, updated_at) < dagapp.clock() - make_interval(days => %(days)s)
                               AS spent
                    FROM dagapp.dag_jobs),
                tree AS (
                    SELECT coalesce(l.request_id, o.job_id) AS name, o.job_id,
                           o.spent AND coalesce(r.state IN ('completed', 'failed', 'cancelled'), true) AS spent
                    FROM over AS o
                    LEFT JOIN dagapp.platform_request_jobs AS l ON l.job_id = o.job_id
                    LEFT JOIN dagapp.platform_requests AS r ON r.request_id = l.request_id
                    WHERE o.parent IS NULL
                    UNION ALL
                    SELECT t.name, o.job_id, o.spent FROM tree AS t JOIN over AS o ON o.parent = t.job_id)
                SELECT name, array_agg(job_id ORDER BY job_id) AS job_ids
                FROM tree GROUP BY name HAVING bool_and(spent) ORDER BY name
                """,
                {"final": _FINAL, "days": days},
            )
            return await cursor.fetchall()

    async def remove_jobs(self, groups: Sequence[JobGroup], days: int) -> list[str]:
        """Remove groups of jobs with all their rows, and return the jobs that went; what somebody holds stays."""
        wanted = [job_id for group in groups for job_id in group.job_ids]
        async with as_owner(self._conn) as conn:
            cursor = await conn.execute(
                """
                SELECT job_id FROM dagapp.dag_jobs
                WHERE job_id = ANY(%s) AND status = ANY(%s)
                  AND coalesce(completed_at, updated_at) < dagapp.clock() - make_interval(days => %s)
                ORDER BY job_id FOR UPDATE SKIP LOCKED
                """,
                (wanted, _FINAL, days),
            )
            locked = {str(row[0]) for row in await cursor.fetchall()}
            going = [one for group in groups if locked.issuperset(group.job_ids) for one in group.job_ids]
            await conn.execute(
                """
                DELETE FROM dagapp.dag_task_results WHERE task_id = ANY(ARRAY(
                    SELECT task_id FROM dagapp.dag_attempts WHERE job_id = ANY(%s)))
                """,
                (going,),
            )
            await conn.execute("DELETE FROM dagapp.platform_request_jobs WHERE job_id = ANY(%s)", (going,))
            await conn.execute("DELETE FROM dagapp.dag_jobs WHERE job_id = ANY(%s)", (going,))
        return going

    async def spent_versions(self, days: int, asset_id: str | None = None) -> list[Spent]:
        """Return versions that were deleted so long ago, alone or with their asset, and that nobody works for."""
        async with as_owner(self._conn) as conn:
            return await _spent_versions(conn, days, asset_id)

    async def purge(self, asset_id: str, days: int) -> list[Spent]:
        """Give up what the spent versions of an asset were made of, under the asset's lock; their rows stay.

        A version of a deleted asset is deleted itself by this, so that the asset comes back empty.
        """
        async with as_owner(self._conn) as conn:
            cursor = await conn.execute(
                "SELECT FROM dagapp.geospatial_assets WHERE asset_id = %s FOR UPDATE SKIP LOCKED", (asset_id,)
            )
            if not cursor.rowcount:
                return []  # somebody decides about it right now
            cursor = await conn.execute(
                """
                SELECT version_ordinal FROM dagapp.asset_versions
                WHERE asset_id = %s ORDER BY version_ordinal FOR UPDATE SKIP LOCKED
                """,
                (asset_id,),
            )
            locked = {row[0] for row in await cursor.fetchall()}
            spent = [one for one in await _spent_versions(conn, days, asset_id) if one.version_ordinal in locked]
            ordinals = [one.version_ordinal for one in spent]
            await conn.execute(
                """
                UPDATE dagapp.asset_versions
                SET purged_at = dagapp.clock(), deleted_at = coalesce(deleted_at, dagapp.clock()),
                    deleted_by = coalesce(deleted_by, %s), blob_path = NULL, blob_size_bytes = NULL, tiles_path = NULL,
                    stac_item = NULL, render = NULL, report = NULL, updated_at = dagapp.clock()
                WHERE asset_id = %s AND version_ordinal = ANY(%s)
                """,
                (ACTOR, asset_id, ordinals),
            )
            await conn.execute(
                """
                UPDATE dagapp.geospatial_assets AS a
                SET latest_approved_version_ordinal = (
                    SELECT max(v.version_ordinal) FROM dagapp.asset_versions AS v
                    WHERE v.asset_id = a.asset_id AND v.approval_state = 'approved' AND v.deleted_at IS NULL)
                WHERE asset_id = %s AND %s
                """,
                (asset_id, bool(spent)),
            )
            for one in spent:
                await AuditRepository(conn).add(_purged(one))
        return spent

    async def known(self, asset_id: str, named: Collection[str], without: Collection[str] = ()) -> Known | None:
        """Return what the database says about the files of an asset; None when it knows neither asset nor jobs.

        Args:
            asset_id: Whose files.
            named: Jobs that folders of files are named after.
            without: Jobs that count as gone.
        """
        values = {"asset": asset_id, "named": list(named), "without": list(without), "final": _FINAL}
        async with as_owner(self._conn) as conn:
            cursor = await conn.execute(
                """
                SELECT version_ordinal, revision, purged_at IS NOT NULL,
                       array_remove(ARRAY[blob_path, tiles_path], NULL), tiles_path,
                       processing_state IN ('queued', 'processing')
                FROM dagapp.asset_versions WHERE asset_id = %(asset)s
                """,
                values,
            )
            versions = {
                ordinal: KnownVersion(revision=revision, purged=purged, paths=paths, tiles_path=tiles, busy=busy)
                for ordinal, revision, purged, paths, tiles, busy in await cursor.fetchall()
            }
            cursor = await conn.execute(
                """
                SELECT job_id, status <> ALL(%(final)s) FROM dagapp.dag_jobs
                WHERE job_id <> ALL(%(without)s) AND (job_id = ANY(%(named)s) OR job_id = ANY(ARRAY(
                    SELECT l.job_id FROM dagapp.platform_requests AS r
                    JOIN dagapp.platform_request_jobs AS l USING (request_id) WHERE r.asset_id = %(asset)s)))
                """,
                values,
            )
            jobs = {str(row[0]): bool(row[1]) for row in await cursor.fetchall()}
            if not versions and not jobs:
                return None
            cursor = await conn.execute(
                """
                SELECT DISTINCT found[1] FROM (
                    SELECT coalesce(output::text, '') || coalesce(outcomes::text, '') AS said
                    FROM dagapp.dag_node_states WHERE job_id = ANY(%(jobs)s)
                    UNION ALL SELECT state::text FROM dagapp.dag_checkpoints WHERE job_id = ANY(%(jobs)s)) AS s,
                    regexp_matches(said, %(pattern)s, 'g') AS found
                UNION SELECT task_id FROM dagapp.dag_node_states
                WHERE job_id = ANY(%(jobs)s) AND output_ref IS NOT NULL AND task_id IS NOT NULL
                """,
                {"jobs": list(jobs), "pattern": f'(?:silver|fetched)/{asset_id}/[0-9]+/r[0-9]+/([^/"]+)/'},
            )
            tasks = frozenset(str(row[0]) for row in await cursor.fetchall())
        return Known(versions=versions, jobs=frozenset(jobs), busy=any(jobs.values()), tasks=tasks)

    async def jobs_among(self, job_ids: Collection[str]) -> frozenset[str]:
        """Return those of some jobs that exist."""
        async with as_owner(self._conn) as conn:
            cursor = await conn.execute("SELECT job_id FROM dagapp.dag_jobs WHERE job_id = ANY(%s)", (list(job_ids),))
            return frozenset(str(row[0]) for row in await cursor.fetchall())

    async def sources(self, without: Collection[tuple[str, int]] = ()) -> frozenset[str]:
        """Return the names in bronze that requests and versions have for their sources, but for those of what is gone.

        Args:
            without: Versions, by asset and ordinal, that count as purged.
        """
        async with as_owner(self._conn) as conn:
            cursor = await conn.execute(
                """
                SELECT DISTINCT s.source->>'blob_name', s.source->'blob_names', v.asset_id, v.version_ordinal
                FROM dagapp.asset_versions AS v
                CROSS JOIN LATERAL (
                    SELECT v.source UNION ALL
                    SELECT r.body->'source' FROM dagapp.platform_requests AS r
                    WHERE r.asset_id = v.asset_id AND r.version_ordinal = v.version_ordinal) AS s (source)
                WHERE v.purged_at IS NULL
                """
            )
            named: set[str] = set()
            async for name, names, asset_id, ordinal in cursor:
                if (asset_id, ordinal) not in without:
                    named.update(([name] if name else []) + (names or []))
            return frozenset(named)

    async def now(self) -> Any:
        """Return the time of the one clock."""
        async with as_owner(self._conn) as conn:
            row = await (await conn.execute("SELECT dagapp.clock()")).fetchone()
            return row[0] if row else None


async def _spent_versions(conn: Connection, days: int, asset_id: str | None) -> list[Spent]:
    async with conn.cursor(row_factory=class_row(Spent)) as cursor:
        await cursor.execute(
            """
            SELECT v.asset_id, v.version_ordinal, coalesce(v.blob_size_bytes, 0) AS size_bytes
            FROM dagapp.asset_versions AS v JOIN dagapp.geospatial_assets AS a USING (asset_id)
            WHERE v.purged_at IS NULL AND v.external_blob_path IS NULL
              AND v.processing_state NOT IN ('queued', 'processing')
              AND (v.deleted_at < dagapp.clock() - make_interval(days => %(days)s)
                   OR a.deleted_at < dagapp.clock() - make_interval(days => %(days)s))
              AND (%(asset)s::text IS NULL OR v.asset_id = %(asset)s)
              AND NOT EXISTS (
                  SELECT FROM dagapp.platform_requests AS r JOIN dagapp.platform_request_jobs AS l USING (request_id)
                  JOIN dagapp.dag_jobs AS j USING (job_id)
                  WHERE r.asset_id = v.asset_id AND r.version_ordinal = v.version_ordinal
                    AND j.status <> ALL(%(final)s))
            ORDER BY v.asset_id, v.version_ordinal
            """,
            {"days": days, "asset": asset_id, "final": _FINAL},
        )
        return await cursor.fetchall()


def _purged(one: Spent) -> NewAuditEntry:
    return NewAuditEntry(
        asset_id=one.asset_id,
        version_ordinal=one.version_ordinal,
        action="purged",
        actor=ACTOR,
        actor_role="system",
        before={"blob_size_bytes": one.size_bytes},
        after={"purged": True},
    )
