"""Copies to the external zone: made here, or by a Data Factory (`repositories.data_factory`)."""

from typing import Final

from core.ports import BlobRef, BlobRepository, ExportRun, ExportState

MAX_BYTES: Final = 5 << 40
"""No blob is larger than what Azure stores in one."""


class ExternalZone:
    """What every way of exporting has in common: looking at copies and taking them back."""

    def __init__(self, blobs: BlobRepository) -> None:
        self._blobs = blobs

    async def size_bytes(self, target: BlobRef) -> int:
        """Return the size of a copy; raises `DataError` FILE_NOT_FOUND when there is none."""
        return (await self._blobs.stat(target)).size_bytes

    async def withdraw(self, folder: BlobRef) -> int:
        """Delete a folder of copies and return how many blobs went; idempotent."""
        return await self._blobs.delete_prefix(folder.container, f"{folder.name}/")


class CopyExport(ExternalZone):
    """`ExternalExport` that copies between zones by itself; a run is over when it has begun."""

    async def start(self, source: BlobRef, target: BlobRef, reference: str) -> str:
        """Copy the file; a copy is there as a whole or not at all.

        Raises:
            DataError: FILE_NOT_FOUND.
            Conflict: BLOB_EXISTS.
            StorageUnavailable: Try again.
        """
        await self._blobs.write_stream(target, self._blobs.stream(source), MAX_BYTES)
        return f"copy-{reference}"

    async def look(self, run_id: str) -> ExportRun:
        """Return that it went well: `start` returned."""
        return ExportRun(run_id, ExportState.SUCCEEDED)
