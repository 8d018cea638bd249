"""Blobs as files: one folder per zone below a root. The embedded default of `BlobRepository`.

A name appears by `os.link` of a complete, synced temporary file, so readers see all of a blob or nothing and nothing
is ever overwritten. Links inside the root are refused: a blob is a plain file below its zone.
"""

import asyncio
import errno
import hashlib
import os
import shutil
import stat as stat_module
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

from core.errors import Conflict, DataError, ParameterInvalid, StorageUnavailable
from core.ports import BlobEntry, BlobFolder, BlobInfo, BlobRef, GdalSource
from repositories.blob_names import TEMPORARY, check_name, invalid, located

_PART_BYTES = 1 << 18
_ENTRIES = 1000
T = TypeVar("T")


class FolderBlobRepository:
    """`BlobRepository` over folders; all file work happens in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    async def stat(self, ref: BlobRef) -> BlobInfo:
        """Return size and ETag; the ETag changes whenever size or modification time do."""
        return await self._thread(lambda: self._info(ref), ref)

    async def stage(self, ref: BlobRef, scratch: Path) -> Path:
        """Return the blob's own file: it is local already."""
        return await self._thread(lambda: self._existing(ref), ref)

    async def upload(self, source: Path, ref: BlobRef) -> BlobInfo:
        """Store a copy of `source`; a copy, because whoever wrote it may still hold it open."""

        def copy() -> BlobInfo:
            pending = _PendingFile(self._path(ref))
            try:
                with source.open("rb") as reader:
                    shutil.copyfileobj(reader, pending.file, 1 << 20)
                pending.commit()
            finally:
                pending.discard()
            return self._info(ref)

        return await self._thread(copy, ref)

    async def write_stream(self, ref: BlobRef, chunks: AsyncIterator[bytes], max_bytes: int) -> BlobInfo:
        """Store a stream under a new name.

        Raises:
            ParameterInvalid: on field `size` when the stream is longer than `max_bytes`; nothing is left behind.
            Conflict: BLOB_EXISTS.
        """
        pending = await self._thread(lambda: _PendingFile(self._path(ref)), ref)
        try:
            await self._copy_chunks(pending.file, chunks, max_bytes, ref)
            await self._thread(pending.commit, ref)
        finally:
            pending.discard()
        return await self.stat(ref)

    async def create(self, ref: BlobRef, data: bytes) -> BlobInfo:
        """Store bytes under a new name."""

        def write() -> BlobInfo:
            pending = _PendingFile(self._path(ref))
            try:
                pending.file.write(data)
                pending.commit()
            finally:
                pending.discard()
            return self._info(ref)

        return await self._thread(write, ref)

    async def read(self, ref: BlobRef, max_bytes: int) -> bytes:
        """Return a blob's bytes, at most the first `max_bytes` of them."""

        def read() -> bytes:
            with self._existing(ref).open("rb") as reader:
                return reader.read(max_bytes)

        return await self._thread(read, ref)

    async def stream(self, ref: BlobRef, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield a blob's bytes in order, a part at a time."""
        reader = await self._thread(lambda: self._existing(ref).open("rb"), ref)
        left = sys.maxsize if length is None else length
        with reader:
            await self._thread(lambda: reader.seek(start), ref)
            while part := await self._thread(partial(reader.read, min(_PART_BYTES, left)), ref):
                left -= len(part)
                yield part

    async def folders(self, container: str, prefix: str) -> Sequence[BlobFolder]:
        """Return the folders directly under a prefix; what appears or goes meanwhile may be in it or not."""
        ref = check_name(BlobRef(container, prefix.rstrip("/")))
        return await self._thread(lambda: self._subfolders(ref), ref)

    async def entries(self, container: str) -> AsyncIterator[BlobEntry]:
        """Yield every blob of a zone, folder by folder; files that are not blobs yet are left out."""
        zone = self._root / container
        found = _files(zone)
        while part := await asyncio.to_thread(lambda: list(islice(found, _ENTRIES))):
            for path, size_bytes, modified in part:
                name = path.relative_to(zone).as_posix()
                yield BlobEntry(name, size_bytes, datetime.fromtimestamp(modified, UTC))

    async def delete_prefix(self, container: str, prefix: str) -> int:
        """Delete every blob whose name starts with `prefix`, which ends at a folder, and the folder."""
        ref = check_name(BlobRef(container, prefix.rstrip("/")))
        return await self._thread(lambda: self._delete_tree(ref), ref)

    async def copy(self, source: BlobRef, target: BlobRef) -> BlobInfo:
        """Store a copy of a blob under a new name."""
        return await self.upload(await self.stage(source, self._root), target)

    async def gdal_source(self, ref: BlobRef) -> GdalSource:
        """Return the blob's own file."""
        return GdalSource(str(await self.stage(ref, self._root)))

    def local_path(self, ref: BlobRef) -> Path | None:
        """Return where the blob lies, or would lie."""
        return self._path(ref)

    def locate(self, path: str) -> BlobRef:
        """Return the blob that a path names: `container/name`."""
        return located(path)

    async def probe(self) -> None:
        """Raise `StorageUnavailable` unless the folder is there."""
        if not await asyncio.to_thread(self._root.is_dir):
            raise StorageUnavailable("the blob storage is not there")

    async def close(self) -> None:
        """Nothing is open."""

    async def _copy_chunks(self, target: BinaryIO, chunks: AsyncIterator[bytes], limit: int, ref: BlobRef) -> None:
        written = 0
        async for chunk in chunks:
            written += len(chunk)
            if written > limit:
                raise ParameterInvalid(f"the upload is longer than {limit} bytes", field="size", value=written)
            await self._thread(lambda part=chunk: target.write(part), ref)  # type: ignore[misc]

    async def _thread(self, work: Callable[[], T], ref: BlobRef) -> T:
        try:
            return await asyncio.to_thread(work)
        except FileExistsError as exc:
            raise Conflict(f"blob {ref} exists and is never overwritten", code="BLOB_EXISTS", value=str(ref)) from exc
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as exc:
            raise DataError(f"there is no blob {ref}", code="FILE_NOT_FOUND", field="file", value=str(ref)) from exc
        except OSError as exc:
            if exc.errno == errno.ENAMETOOLONG:
                raise invalid(str(ref), "this storage takes at most 255 bytes a segment") from exc
            raise StorageUnavailable(f"blob storage failed for {ref}: {exc.strerror}", value=str(ref)) from exc

    def _path(self, ref: BlobRef) -> Path:
        """Return the file of `ref` after making sure that no link leads elsewhere."""
        check_name(ref)
        path = self._root / ref.container / ref.name
        if path.resolve() != path:
            raise invalid(str(ref), "a link stands on its way")
        return path

    def _existing(self, ref: BlobRef) -> Path:
        path = self._path(ref)
        if not stat_module.S_ISREG(path.lstat().st_mode):
            raise FileNotFoundError(path)
        return path

    def _info(self, ref: BlobRef) -> BlobInfo:
        found = self._existing(ref).stat()
        etag = hashlib.sha256(f"{found.st_size}:{found.st_mtime_ns}".encode()).hexdigest()[:32]
        return BlobInfo(ref, found.st_size, etag)

    def _subfolders(self, ref: BlobRef) -> list[BlobFolder]:
        path, found = self._path(ref), []
        for entry in os.scandir(path) if path.is_dir() else ():
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    modified = datetime.fromtimestamp(entry.stat(follow_symlinks=False).st_mtime, UTC)
                    found.append(BlobFolder(f"{ref.name}/{entry.name}/", modified))
        return sorted(found, key=lambda folder: folder.prefix)

    def _delete_tree(self, ref: BlobRef) -> int:
        path = self._path(ref)
        if path.is_file():
            path.unlink()
            return 1
        files = [found for found in path.rglob("*") if not found.is_dir()]
        shutil.rmtree(path, ignore_errors=False) if path.is_dir() else None
        return len(files)


def _files(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Yield path, size and time of every blob below a folder, whatever goes meanwhile."""
    with suppress(FileNotFoundError):
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            elif not entry.name.startswith(TEMPORARY) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield Path(entry.path), found.st_size, found.st_mtime


class _PendingFile:
    """A temporary file beside its blob, which becomes the blob at `commit`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise FileExistsError(path)
        self._path = path
        self._temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
        self.file: BinaryIO = self._temporary.open("xb")

    def commit(self) -> None:
        """Make the blob appear; raises `FileExistsError` when another one got its name first."""
        self.file.flush()
        os.fsync(self.file.fileno())
        os.link(self._temporary, self._path)
        _sync_folder(self._path.parent)

    def discard(self) -> None:
        """Remove the temporary name; the blob, once committed, stays."""
        self.file.close()
        self._temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
