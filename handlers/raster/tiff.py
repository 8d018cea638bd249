"""Reads the directories of a TIFF without GDAL, so that a lying header is found before anything is allocated.

Layout: https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf (classic) and
http://bigtiff.org (64-bit offsets). Only header, directories and the tables of block offsets are read.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

MAX_DIRECTORIES: Final = 4096
MAX_ENTRIES: Final = 4096
MAX_TEXT_BYTES: Final = 16 * 1024 * 1024
UNCOMPRESSED: Final = 1

_REDUCED = 1
_MASK = 4
_TYPES: Final[Mapping[int, str]] = {
    1: "u1",
    2: "S1",
    3: "u2",
    4: "u4",
    5: "u8",
    6: "i1",
    7: "u1",
    8: "i2",
    9: "i4",
    10: "u8",
    11: "f4",
    12: "f8",
    13: "u4",
    16: "u8",
    17: "i8",
    18: "u8",
}

_WIDTH, _HEIGHT, _BITS, _COMPRESSION = 256, 257, 258, 259
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_COUNTS = 273, 277, 278, 279
_PLANAR, _TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _TILE_COUNTS = 284, 322, 323, 324, 325
_SUBFILE, _SAMPLE_FORMAT = 254, 339
_PIXEL_SCALE, _TIE_POINTS, _TRANSFORMATION, _GDAL_METADATA, _GDAL_NODATA = 33550, 33922, 34264, 42112, 42113
BLOCK_TABLES: Final = frozenset({_STRIP_OFFSETS, _STRIP_COUNTS, _TILE_OFFSETS, _TILE_COUNTS})
METADATA: Final = _GDAL_METADATA


class Reading(Protocol):
    """An open file."""

    def __enter__(self) -> "Reading": ...
    def __exit__(self, *raised: Any) -> None: ...
    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Go to a place; return where that is."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""


class Readable(Protocol):
    """A path, or what opens like one."""

    def open(self, mode: Literal["rb"], /) -> Reading:
        """Open for reading."""


class HeaderError(Exception):
    """The header contradicts itself or the length of the file; the text names what and where."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tag: element type, number of elements and where in the file they are."""

    dtype: np.dtype[np.generic]
    count: int
    position: int


@dataclass(frozen=True)
class Directory:
    """One image file directory; `index` counts from 1 as GDAL does in GTIFF_DIR names."""

    source: Readable
    index: int
    file_bytes: int
    entries: Mapping[int, Entry] = field(repr=False)

    def numbers(self, tag: int) -> NDArray[np.generic] | None:
        """Return the values of a tag, None when it is missing.

        Raises:
            HeaderError: the values lie outside the file.
        """
        entry = self.entries.get(tag)
        if entry is None:
            return None
        size = entry.count * entry.dtype.itemsize
        if entry.position + size > self.file_bytes:
            raise HeaderError(f"the values of tag {tag} lie beyond the end of the file ({self.file_bytes} bytes)")
        with self.source.open("rb") as file:
            file.seek(entry.position)
            return np.frombuffer(file.read(size), dtype=entry.dtype)

    def number(self, tag: int, default: int) -> int:
        """Return the first value of a tag, or the default when it is missing."""
        values = self.numbers(tag)
        return default if values is None or values.size == 0 else int(values[0])

    def text(self, tag: int) -> bytes:
        """Return the value of a text tag without its closing zero; empty when it is missing."""
        entry = self.entries.get(tag)
        if entry is None or entry.count > MAX_TEXT_BYTES:
            return b""
        values = self.numbers(tag)
        return b"" if values is None else values.tobytes().rstrip(b"\x00")

    @cached_property
    def width(self) -> int:
        """Columns."""
        return self.number(_WIDTH, 0)

    @cached_property
    def height(self) -> int:
        """Rows."""
        return self.number(_HEIGHT, 0)

    @cached_property
    def samples(self) -> int:
        """Bands."""
        return self.number(_SAMPLES, 1)

    @cached_property
    def bits(self) -> int:
        """Bits per sample of the widest band."""
        values = self.numbers(_BITS)
        return 1 if values is None or values.size == 0 else int(values.astype(np.int64).max())

    @cached_property
    def is_main(self) -> bool:
        """Whether this is an image of its own, neither an overview nor a mask."""
        return not self.number(_SUBFILE, 0) & (_REDUCED | _MASK)

    @cached_property
    def tiled(self) -> bool:
        """Whether blocks are tiles rather than strips."""
        return _TILE_OFFSETS in self.entries

    @cached_property
    def compression(self) -> int:
        """TIFF compression code; 1 is none."""
        return self.number(_COMPRESSION, UNCOMPRESSED)

    @cached_property
    def has_transform(self) -> bool:
        """Whether tags give a position to pixels (pixel scale with tie point, or a matrix)."""
        return _TRANSFORMATION in self.entries or {_PIXEL_SCALE, _TIE_POINTS} <= self.entries.keys()

    @cached_property
    def nodata_text(self) -> str | None:
        """The nodata value as written in the file, None when there is none."""
        if _GDAL_NODATA not in self.entries:
            return None
        return self.text(_GDAL_NODATA).split(b"\x00")[0].decode("ascii", "replace").strip()

    @cached_property
    def refers_to_other_files(self) -> bool:
        """Whether metadata would make GDAL open another file as overviews or mask."""
        return b"OVERVIEW_FILE" in self.text(_GDAL_METADATA).upper()

    @cached_property
    def has_mask_flags(self) -> bool:
        """Whether a file says of itself that it is the mask of another, as GDAL writes them."""
        return b"INTERNAL_MASK_FLAGS_" in self.text(_GDAL_METADATA)

    @cached_property
    def pixel_bytes(self) -> float:
        """Bytes of one pixel over all bands, fractions for less than eight bits."""
        return self.samples * self.bits / 8

    @cached_property
    def blocks(self) -> "BlockTable":
        """Where the strips or tiles of this directory are."""
        return BlockTable.of(self)


@dataclass(frozen=True)
class BlockTable:
    """Offsets and sizes of strips or tiles; with separate planes, one grid after the other."""

    width: int
    """Columns of a block."""
    height: int
    """Rows of a block."""
    across: int
    down: int
    planes: int
    offsets: NDArray[np.uint64] = field(repr=False)
    byte_counts: NDArray[np.uint64] = field(repr=False)
    """Empty when the file does not say."""

    @classmethod
    def of(cls, page: Directory) -> "BlockTable":
        """Read and check the table of a directory.

        Raises:
            HeaderError: sizes are zero, or the tables are missing or too short.
        """
        if page.tiled:
            width, height = page.number(_TILE_WIDTH, 0), page.number(_TILE_LENGTH, 0)
        else:
            width, height = page.width, min(page.number(_ROWS_PER_STRIP, page.height), page.height)
        if min(width, height, page.width, page.height, page.samples) < 1:
            raise HeaderError(f"directory {page.index} declares an image or block without size")
        across, down = -(-page.width // width), -(-page.height // height)
        planes = page.samples if page.number(_PLANAR, 1) == 2 else 1
        offsets = page.numbers(_TILE_OFFSETS if page.tiled else _STRIP_OFFSETS)
        counts = page.numbers(_TILE_COUNTS if page.tiled else _STRIP_COUNTS)
        expected = across * down * planes
        if offsets is None or offsets.size < expected:
            found = 0 if offsets is None else offsets.size
            raise HeaderError(f"the header declares {expected} blocks but lists {found}")
        known = np.empty(0, np.uint64) if counts is None or counts.size < expected else counts[:expected]
        return cls(width, height, across, down, planes, offsets[:expected].astype(np.uint64), known.astype(np.uint64))

    def decoded_bytes(self, page: Directory) -> int:
        """Return the size of one block in memory."""
        return int(self.width * self.height * (page.pixel_bytes / self.planes))

    def check_extent(self, page: Directory) -> None:
        """Compare every block with the length of the file.

        Raises:
            HeaderError: a block begins or ends beyond the end; names the first.
        """
        ends = self.offsets.copy()
        if self.byte_counts.size:
            counts = self.byte_counts
            if page.compression == UNCOMPRESSED:
                counts = np.minimum(counts, self._needed_bytes(page))
            ends = self.offsets + np.where(self.offsets > 0, counts, 0).astype(np.uint64)
        beyond = np.flatnonzero((ends > page.file_bytes) | (ends < self.offsets) | (self.offsets > page.file_bytes))
        if beyond.size:
            first = int(beyond[0])
            raise HeaderError(
                f"block {first} of {self.offsets.size} should end at byte {int(ends[first])}, "
                f"the file has {page.file_bytes}: it was cut off"
            )

    def _needed_bytes(self, page: Directory) -> NDArray[np.uint64]:
        """Return how many bytes of each uncompressed block hold rows of the image."""
        row_bytes = self.width * (page.pixel_bytes / self.planes)
        rows = np.full(self.down, self.height, np.float64)
        if not page.tiled:
            rows[-1] = page.height - (self.down - 1) * self.height
        per_grid = np.repeat(np.ceil(rows * row_bytes).astype(np.uint64), self.across)
        return np.tile(per_grid, self.planes)

    @cached_property
    def sparse(self) -> NDArray[np.bool_]:
        """Which cells of the grid (down, across) have no block in any plane: they hold only nodata or zero."""
        if not self.byte_counts.size:
            return np.zeros((self.down, self.across), np.bool_)
        missing: NDArray[np.bool_] = (self.offsets == 0) & (self.byte_counts == 0)
        return np.asarray(missing.reshape(self.planes, self.down, self.across).all(axis=0), np.bool_)


def read_directories(source: Readable) -> list[Directory]:
    """Return the chain of directories of a TIFF, in file order.

    Raises:
        HeaderError: the chain is broken, endless or empty.
    """
    with source.open("rb") as file:
        file_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        return list(_chain(source, file, file_bytes))


def _chain(source: Readable, file: Reading, file_bytes: int) -> Iterator[Directory]:
    head = file.read(16)
    order = "<" if head[:2] == b"II" else ">"
    big = len(head) == 16 and struct.unpack(order + "H", head[2:4])[0] == 43
    if len(head) < (16 if big else 8):
        raise HeaderError("the file ends inside the TIFF header")
    offset = struct.unpack(order + "Q", head[8:16])[0] if big else struct.unpack(order + "I", head[4:8])[0]
    seen: set[int] = set()
    while offset:
        if offset in seen or len(seen) >= MAX_DIRECTORIES:
            raise HeaderError(f"the chain of directories is endless or longer than {MAX_DIRECTORIES}")
        seen.add(offset)
        entries, next_offset = _read_directory(file, offset, order, big=big, file_bytes=file_bytes)
        yield Directory(source, len(seen), file_bytes, entries)
        offset = next_offset
    if not seen:
        raise HeaderError("the file has no directory")


def _read_directory(
    file: Reading, offset: int, order: str, *, big: bool, file_bytes: int
) -> tuple[dict[int, Entry], int]:
    count_format, entry_size, next_format = ("Q", 20, "Q") if big else ("H", 12, "I")
    file.seek(offset)
    head = file.read(struct.calcsize("=" + count_format))
    if len(head) < struct.calcsize("=" + count_format):
        raise HeaderError(f"a directory should be at byte {offset}, the file has {file_bytes}: it was cut off")
    count = struct.unpack(order + count_format, head)[0]
    size = count * entry_size + struct.calcsize("=" + next_format)
    body = file.read(size) if count <= MAX_ENTRIES else b""
    if len(body) < size:
        raise HeaderError(f"the directory at byte {offset} declares {count} entries and does not fit into the file")
    first = offset + len(head)
    entries = dict(_entries(body, count, first, order, big=big))
    return entries, struct.unpack(order + next_format, body[-struct.calcsize("=" + next_format) :])[0]


def _entries(body: bytes, count: int, first: int, order: str, *, big: bool) -> Iterator[tuple[int, Entry]]:
    size, number, inline = (20, "Q", 8) if big else (12, "I", 4)
    for index in range(count):
        at = index * size
        tag, kind = struct.unpack_from(order + "HH", body, at)
        elements = struct.unpack_from(order + number, body, at + 4)[0]
        if kind not in _TYPES:
            continue
        dtype = np.dtype(order + _TYPES[kind])
        value_at = at + size - inline
        fits = elements * dtype.itemsize <= inline
        position = first + value_at if fits else struct.unpack_from(order + number, body, value_at)[0]
        yield tag, Entry(dtype, elements, position)
