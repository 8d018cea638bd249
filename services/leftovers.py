"""Removes files that nobody owns any more, after the rows that named them: `geodag gc`.

Rows go first, in transactions of their own, so that no row ever names a file that is gone; what a crash leaves between
the two is a file without a row, which the next run finds. What is to go is looked up a second time right before it
goes, so that whoever came meanwhile is seen.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from core.errors import DataError, GeodagError
from core.leftovers import NOTES, Folder, Kind, Known, folder_of, joined, named_tasks, ownerless
from core.ports import BlobRepository
from repositories.expiry import Expiry
from repositories.tile_lists import read_tiles

VALUES_DAYS: Final = 1
"""As the hourly upkeep: inputs are stored before their job is created."""
CHUNK: Final = 500


class StorageForeign(GeodagError):
    """Most assets in the storage are unknown to the database, so one of them is another platform's."""

    code = "STORAGE_FOREIGN"


@dataclass(frozen=True, slots=True)
class Gone:
    """What counts as gone already, in a dry run."""

    jobs: frozenset[str] = frozenset()
    versions: frozenset[tuple[str, int]] = frozenset()


NOTHING: Final = Gone()


@dataclass(slots=True)
class _Found:
    """What lies in the storage."""

    assets: dict[str, list[Folder]] = field(default_factory=lambda: defaultdict(list))
    uploads: list[Folder] = field(default_factory=list)
    values: list[Folder] = field(default_factory=list)


class Leftovers:
    """Finds and removes them; any number of runs at once do no harm."""

    def __init__(self, expiry: Expiry, blobs: BlobRepository, *, files_days: int, uploads_days: int) -> None:
        self._expiry = expiry
        self._blobs = blobs
        self._files_days = files_days
        self._uploads_days = uploads_days

    async def find(self, gone: Gone = NOTHING) -> list[Folder]:
        """Return the folders that may go, in the order in which they have to.

        Raises:
            StorageForeign: the database does not fit the storage; nothing should be removed.
        """
        found, now = await self._look(), await self._expiry.now()
        going: list[Folder] = []
        unknown = 0
        for asset_id, folders in sorted(found.assets.items()):
            known = await self._known(asset_id, folders, gone)
            unknown += known is None
            if self._files_days:
                going += ownerless(folders, known, now - timedelta(days=self._files_days))
        if unknown * 2 > len(found.assets):
            raise StorageForeign(
                f"{unknown} of {len(found.assets)} assets in the storage are unknown to the database",
                value=unknown,
                remediation="Check that POSTGRES_DB and the storage belong together; nothing was removed.",
            )
        return going + await self._uploads(found.uploads, gone, now) + await self._values(found.values, gone, now)

    async def remove(self, going: Sequence[Folder]) -> list[Folder]:
        """Remove folders that were found, unless somebody has come to own them, and return those that went."""
        removed: list[Folder] = []
        by_asset: dict[str, list[Folder]] = defaultdict(list)
        for one in going:
            by_asset[one.asset_id].append(one)
        for asset_id, folders in by_asset.items():
            parts = self._of_asset(asset_id, folders) if asset_id else self._of_nobody(folders)
            async for folder in parts:
                await self._blobs.delete_prefix(folder.container, folder.prefix)
                removed.append(folder)
        return removed

    async def _of_asset(self, asset_id: str, folders: Sequence[Folder]) -> AsyncIterator[Folder]:
        """Yield an asset's folders that may still go; its notes first, and then whatever nobody took by them."""
        for notes in (True, False):
            known, now = await self._known(asset_id, folders, NOTHING), await self._expiry.now()
            for folder in ownerless(folders, known, now - timedelta(days=self._files_days)):
                if (folder.task_id == NOTES) is notes:
                    yield folder

    async def _of_nobody(self, folders: Sequence[Folder]) -> AsyncIterator[Folder]:
        """Yield uploads and values that may still go."""
        for start in range(0, len(folders), CHUNK):
            part, now = folders[start : start + CHUNK], await self._expiry.now()
            for folder in await self._uploads(part, NOTHING, now) + await self._values(part, NOTHING, now):
                yield folder

    async def _look(self) -> _Found:
        found = _Found()
        for zone in ("silver", "bronze"):
            last: Folder | None = None
            async for entry in self._blobs.entries(zone):
                one = folder_of(zone, entry)
                if one is not None and last is not None and one.prefix == last.prefix:
                    last = joined(last, one)
                    continue
                _keep(found, last)
                last = one
            _keep(found, last)
        return found

    async def _known(self, asset_id: str, folders: Sequence[Folder], gone: Gone) -> Known | None:
        named = {one.job_id for one in folders if one.job_id}
        known = await self._expiry.known(asset_id, named, gone.jobs)
        if known is None:
            return None
        versions = {
            ordinal: replace(version, purged=True) if (asset_id, ordinal) in gone.versions else version
            for ordinal, version in known.versions.items()
        }
        listed: Mapping[int, Collection[str]] = {
            ordinal: await self._listed(version.tiles_path, folders)
            for ordinal, version in versions.items()
            if version.tiles_path is not None and not version.purged
        }
        return replace(known, versions=versions, listed=listed)

    async def _listed(self, tiles_path: str, folders: Sequence[Folder]) -> Collection[str]:
        """Return the tasks whose files a list of tiles names; of a list that cannot be read, all of them."""
        try:
            return named_tasks(tile["blob_path"] for tile in await read_tiles(self._blobs, tiles_path))
        except DataError:
            return frozenset(one.task_id for one in folders)

    async def _uploads(self, folders: Sequence[Folder], gone: Gone, now: datetime) -> list[Folder]:
        """Return uploads that nobody submitted, or that what was submitted of them is gone."""
        before = now - timedelta(days=self._uploads_days)
        old = [one for one in folders if one.kind is Kind.UPLOAD and one.modified_at < before and self._uploads_days]
        if not old:
            return []
        sources = await self._expiry.sources(gone.versions)
        used = {name[: name.rindex("/") + 1] for name in sources if "/" in name}
        return [one for one in old if one.prefix not in used]

    async def _values(self, folders: Sequence[Folder], gone: Gone, now: datetime) -> list[Folder]:
        """Return stored values whose job is gone."""
        before = now - timedelta(days=VALUES_DAYS)
        old = [one for one in folders if one.kind is Kind.VALUES and one.modified_at < before]
        going: list[Folder] = []
        for start in range(0, len(old), CHUNK):
            part = old[start : start + CHUNK]
            alive = await self._expiry.jobs_among({one.job_id for one in part}) - gone.jobs
            going += [one for one in part if one.job_id not in alive]
        return going


def _keep(found: _Found, folder: Folder | None) -> None:
    if folder is None:
        return
    match folder.kind:
        case Kind.OUTPUTS:
            found.assets[folder.asset_id].append(folder)
        case Kind.UPLOAD:
            found.uploads.append(folder)
        case Kind.VALUES:
            found.values.append(folder)
