"""`geodag gc`: what goes by the policy, in the order in which a crash does no harm; a dry run says what would go.

Rows first, then files: a row that names a file which is gone is what must never be. One run at a time.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from core.errors import Conflict
from core.leftovers import Folder
from core.ports import BlobRepository
from repositories import event_archive
from repositories.expiry import Expiry, JobGroup, Spent
from repositories.retention import Retention, RetentionSettings, Swept
from services.leftovers import Gone, Leftovers

GROUPS: Final = 200
"""Of jobs, in one transaction."""
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('geodag.gc', 0))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended('geodag.gc', 0))"


async def sweep(
    conn: AsyncConnection[Any], policy: RetentionSettings, blobs: BlobRepository, *, dry_run: bool
) -> list[Swept]:
    """Remove what is past its time, or say what would go.

    Args:
        conn: Of the deploy role, in autocommit, past any pooler.
        policy: What is kept for how long.
        blobs: The storage that belongs to the database.
        dry_run: Whether everything stays.

    Raises:
        Conflict: GC_RUNNING, another run has not ended.
        ArchiveFailed, StorageForeign: what had gone before is gone, nothing else.
    """
    if policy.retention_events_days and policy.retention_archive_events:
        event_archive.check_installed()
    row = await (await conn.execute(_LOCK)).fetchone()
    if row is None or not row[0]:
        raise Conflict("another gc runs", code="GC_RUNNING", remediation="Wait for its end.")
    try:
        return await _Sweep(conn, policy, blobs, dry_run=dry_run).run()
    finally:
        if not conn.broken:
            await conn.execute(_UNLOCK)


class _Sweep:
    def __init__(
        self, conn: AsyncConnection[Any], policy: RetentionSettings, blobs: BlobRepository, *, dry_run: bool
    ) -> None:
        self._policy = policy
        self._dry_run = dry_run
        self._rows = Retention(conn, policy, blobs, dry_run=dry_run)
        self._expiry = Expiry(conn)
        self._files = Leftovers(
            self._expiry,
            blobs,
            files_days=policy.retention_files_days,
            uploads_days=policy.retention_uploads_days,
        )

    async def run(self) -> list[Swept]:
        swept = await self._rows.rows()
        jobs, versions = await self._jobs(), await self._versions()
        swept += [Swept("jobs", len(jobs)), Swept("deleted_versions", len(versions))]
        gone = Gone(frozenset(jobs), frozenset((one.asset_id, one.version_ordinal) for one in versions))
        folders = await self._files.find(gone)
        swept += _counted(folders if self._dry_run else await self._files.remove(folders))
        return swept + await self._rows.months()

    async def _jobs(self) -> list[str]:
        days = self._policy.retention_jobs_days
        groups: Sequence[JobGroup] = await self._expiry.spent_jobs(days) if days else ()
        if self._dry_run:
            return [job_id for group in groups for job_id in group.job_ids]
        going: list[str] = []
        for start in range(0, len(groups), GROUPS):
            going += await self._expiry.remove_jobs(groups[start : start + GROUPS], days)
        return going

    async def _versions(self) -> list[Spent]:
        days = self._policy.retention_deleted_days
        spent = await self._expiry.spent_versions(days) if days else []
        if self._dry_run:
            return spent
        purged: list[Spent] = []
        for asset_id in dict.fromkeys(one.asset_id for one in spent):
            purged += await self._expiry.purge(asset_id, days)
        return purged


def _counted(folders: Sequence[Folder]) -> list[Swept]:
    files: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    for folder in folders:
        files[folder.kind] += folder.files
        sizes[folder.kind] += folder.size_bytes
    return [Swept(str(kind), files[kind], sizes[kind]) for kind in files]
