"""Reads archives that strangers send: what is in them is listed and limited before one member leaves them.

Kinds: zip, tar, and tar compressed by gzip, bzip2 or xz. Nothing is ever written under a name of the archive.
"""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

MAX_MEMBERS: Final = 10_000
MAX_TOTAL_BYTES: Final = 50 * 1_000_000_000
MAX_RATIO: Final = 100
RATIO_FREE_BYTES: Final = 100 * 1_000_000
"""So much may come out of any archive, however small it is."""
HEAD_BYTES: Final = 4096
CHUNK_BYTES: Final = 1 << 20
MAX_ZIP_DIRECTORY_BYTES: Final = 16 << 20
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_BYTES: Final = 22
_ENCRYPTED: Final = 1
_PACKED: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)
_BROKEN: Final = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, ValueError,
    gzip.BadGzipFile,
)  # fmt: skip


class ArchiveError(Exception):
    """Base of what may be wrong with an archive; the text says what."""


class ArchiveBroken(ArchiveError):
    """It cannot be read to its end."""


class ArchiveUnsafe(ArchiveError):
    """It holds names or kinds of members that no honest archive of data has."""


class ArchiveTooLarge(ArchiveError):
    """More would come out of it than is allowed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One plain file of an archive."""

    name: str
    """With forward slashes."""
    size_bytes: int
    head: bytes
    """Its first bytes; empty for what is not data (see `is_junk`)."""

    @property
    def base(self) -> str:
        """Last part of the name."""
        return PurePosixPath(self.name).name


def is_archive(head: bytes) -> bool:
    """Return whether a file that begins so is one of the kinds that are read."""
    return (
        head.startswith((b"PK\x03\x04", _ZIP_END))
        or head[257:262] == b"ustar"
        or any(head.startswith(magic) for magic, _ in _PACKED)
    )


def is_junk(name: str) -> bool:
    """Return whether a member is what operating systems leave in archives."""
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or any(part.startswith(".") for part in parts) or parts[-1].lower() == "thumbs.db"


def list_members(path: Path) -> list[Member]:
    """Return the plain files of an archive, every one of them checked.

    Raises:
        ArchiveError: it is broken, unsafe or too large.
    """
    found: dict[str, Member] = {}
    total, limit = 0, allowed_bytes(path)
    for name, size, is_file, read in _entries(path):
        _check_name(name)
        total += size
        if total > limit:
            raise ArchiveTooLarge(f"its members have more than {limit} bytes together")
        if not is_file:
            continue
        if name in found:
            raise ArchiveUnsafe(f"it holds the name {name[:100]!r} twice")
        found[name] = Member(name, size, b"" if is_junk(name) else read(HEAD_BYTES))
    return list(found.values())


def extract(path: Path, wanted: dict[str, Path], on_bytes: Callable[[int], None]) -> None:
    """Write members to the paths they are mapped to, never more bytes than were declared.

    Raises:
        ArchiveError: one is missing, broken, or longer than it says.
    """
    missing = set(wanted)
    for name, size, is_file, read in _entries(path):
        if is_file and name in missing:
            missing.discard(name)
            _write(wanted[name], name, size, read, on_bytes)
        if not missing:
            return
    raise ArchiveBroken(f"it has no member {min(missing)[:100]!r}")


def allowed_bytes(path: Path) -> int:
    """Return how many bytes may come out of an archive."""
    return min(MAX_TOTAL_BYTES, max(RATIO_FREE_BYTES, MAX_RATIO * path.stat().st_size))


Entry = tuple[str, int, bool, Callable[[int], bytes]]
"""Name, declared bytes, whether it is a plain file, and a reader of its next bytes."""


def _write(target: Path, name: str, size: int, read: Callable[[int], bytes], on_bytes: Callable[[int], None]) -> None:
    done = 0
    with target.open("xb") as file:
        while chunk := read(CHUNK_BYTES):
            done += len(chunk)
            if done > size:
                raise ArchiveUnsafe(f"the member {name[:100]!r} is longer than the {size} bytes that it declares")
            file.write(chunk)
            on_bytes(len(chunk))
    if done < size:
        raise ArchiveBroken(f"the member {name[:100]!r} ends after {done} of {size} bytes")


def _check_name(name: str) -> None:
    parts = name.split("/")
    drive = len(parts[0]) == 2 and parts[0][1] == ":"
    if name.startswith("/") or ".." in parts or drive or "\x00" in name:
        raise ArchiveUnsafe(f"it holds the name {name[:100]!r}, which leads out of it")


def _entries(path: Path) -> Iterator[Entry]:
    """Yield every member in the archive's order; a reader is good until the next one is asked for."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(0)
        members = _zip(path, file) if head.startswith((b"PK\x03\x04", _ZIP_END)) else _tar(path, file, head)
        for count, entry in enumerate(_guarded(members), 1):
            if count > MAX_MEMBERS:
                raise ArchiveTooLarge(f"it has more than {MAX_MEMBERS} members")
            yield entry


def _guarded(members: Iterator[Entry]) -> Iterator[Entry]:
    """Yield members with every fault of the libraries turned into ours."""
    while True:
        with _honest():
            try:
                name, size, is_file, read = next(members)
            except StopIteration:
                return
        yield name, size, is_file, _guarded_read(read)


def _guarded_read(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def guarded(size: int) -> bytes:
        with _honest():
            return read(size)

    return guarded


@contextmanager
def _honest() -> Iterator[None]:
    try:
        yield
    except ArchiveError:
        raise
    except _BROKEN as exc:
        raise ArchiveBroken("it is damaged, or packed in a way that is not read") from exc
    except RuntimeError as exc:  # what zipfile raises for a member with a password
        raise ArchiveBroken("a member needs a password") from exc


def _zip(path: Path, file: IO[bytes]) -> Iterator[Entry]:
    _check_zip_directory(path, file)
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            name = info.filename.replace("\\", "/")
            if stat.S_ISLNK(mode):
                raise ArchiveUnsafe(f"{name[:100]!r} is a link")
            if info.is_dir() or info.file_size == 0:
                yield name, 0, not name.endswith("/"), lambda _size: b""
                continue
            with archive.open(info) as member:
                yield name, info.file_size, True, member.read


def _check_zip_directory(path: Path, file: IO[bytes]) -> None:
    """Refuse a directory that would need much memory before anything reads it whole."""
    size = path.stat().st_size
    file.seek(max(0, size - _ZIP_END_BYTES - (1 << 16)))
    tail = file.read()
    at = tail.rfind(_ZIP_END)
    file.seek(0)
    directory = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    members = int.from_bytes(tail[at + 10 : at + 12], "little") if at >= 0 else 0
    if members > MAX_MEMBERS or directory > MAX_ZIP_DIRECTORY_BYTES:
        raise ArchiveTooLarge(f"it declares more than {MAX_MEMBERS} members")


def _tar(path: Path, file: IO[bytes], head: bytes) -> Iterator[Entry]:
    packed = next((opener for magic, opener in _PACKED if head.startswith(magic)), None)
    stream = _Limited(packed(file, "rb") if packed else file, allowed_bytes(path))
    with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
        for info in archive:
            name = info.name
            if info.issym() or info.islnk():
                raise ArchiveUnsafe(f"{name[:100]!r} is a link")
            if not info.isdir() and (not info.isreg() or info.issparse()):
                raise ArchiveUnsafe(f"{name[:100]!r} is no plain file")
            member = archive.extractfile(info) if info.isreg() else None
            yield name, info.size, info.isreg(), member.read if member else (lambda _size: b"")


class _Limited:
    """A stream that ends in an error after so many bytes: what is packed tells nothing about its length."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream, self._left = stream, limit + CHUNK_BYTES

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        chunk = self._stream.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise ArchiveTooLarge("more comes out of it than is allowed for its size")
        return chunk
