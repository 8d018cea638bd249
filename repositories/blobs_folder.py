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
import unicodedata
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from core.errors import Conflict, DataError, ParameterInvalid, StorageUnavailable
from core.ports import BlobFolder, BlobInfo, BlobRef

CONTAINERS = frozenset({"bronze", "silver", "external"})
MAX_NAME_CHARACTERS = 1024
_TEMPORARY = ".uploading-"
_PART_BYTES = 1 << 18
T = TypeVar("T")


def check_name(ref: BlobRef) -> BlobRef:
    """Return `ref`, or refuse it with the rules of ingest-rules (names and titles).

    Raises:
        ParameterInvalid: on field `blob_name`.
    """
    if ref.container not in CONTAINERS:
        raise _invalid(str(ref), f"container must be one of {', '.join(sorted(CONTAINERS))}")
    if complaint := _complaint(ref.name):
        raise _invalid(str(ref), complaint)
    return ref


def _complaint(name: str) -> str | None:
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        return f"name must have 1 to {MAX_NAME_CHARACTERS} characters"
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in name):
        return "name must not contain control characters or lone surrogates"
    if unicodedata.normalize("NFC", name) != name:
        return "name must be in Unicode form NFC"
    if "\\" in name or name.endswith("."):
        return "name must not contain a backslash or end with a dot"
    if any(segment in ("", ".", "..") or segment.startswith(_TEMPORARY) for segment in name.split("/")):
        return "name must not have an empty, reserved, '.' or '..' segment"
    return None


def _invalid(value: str, complaint: str) -> ParameterInvalid:
    shown = value.encode(errors="backslashreplace").decode().replace("\x00", "\\0")
    return ParameterInvalid(f"blob {shown!r}: {complaint}", field="blob_name", value=shown)


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

    async def stream(self, ref: BlobRef) -> AsyncIterator[bytes]:
        """Yield a blob's bytes in order, a part at a time."""
        reader = await self._thread(lambda: self._existing(ref).open("rb"), ref)
        with reader:
            while part := await self._thread(lambda: reader.read(_PART_BYTES), ref):
                yield part

    async def folders(self, container: str, prefix: str) -> Sequence[BlobFolder]:
        """Return the folders directly under a prefix; what appears or goes meanwhile may be in it or not."""
        ref = check_name(BlobRef(container, prefix.rstrip("/")))
        return await self._thread(lambda: self._subfolders(ref), ref)

    async def delete_prefix(self, container: str, prefix: str) -> int:
        """Delete every blob whose name starts with `prefix`, which ends at a folder, and the folder."""
        ref = check_name(BlobRef(container, prefix.rstrip("/")))
        return await self._thread(lambda: self._delete_tree(ref), ref)

    def local_path(self, ref: BlobRef) -> Path | None:
        """Return where the blob lies, or would lie."""
        return self._path(ref)

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
                raise _invalid(str(ref), "this storage takes at most 255 bytes a segment") from exc
            raise StorageUnavailable(f"blob storage failed for {ref}: {exc.strerror}", value=str(ref)) from exc

    def _path(self, ref: BlobRef) -> Path:
        """Return the file of `ref` after making sure that no link leads elsewhere."""
        check_name(ref)
        path = self._root / ref.container / ref.name
        if path.resolve() != path:
            raise _invalid(str(ref), "a link stands on its way")
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


class _PendingFile:
    """A temporary file beside its blob, which becomes the blob at `commit`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise FileExistsError(path)
        self._path = path
        self._temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
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
