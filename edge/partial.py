"""A file of which only some ranges are here: who reads beyond them is told which bytes are missing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Literal


class Missing(Exception):
    """Bytes `start` to `end` (exclusive) were asked for and are not here."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(f"bytes {start} to {end} are not here")
        self.start = start
        self.end = end


class PartialFile:
    """A sparse file as long as the whole; what is not here reads as zeros for everybody but `open`."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._held: list[tuple[int, int]] = []
        with path.open("xb") as file:
            file.truncate(size_bytes)

    def add(self, start: int, data: bytes) -> None:
        """Write bytes that came."""
        with self.path.open("r+b") as file:
            file.seek(start)
            file.write(data)
        self._held = _merged([*self._held, (start, start + len(data))])

    def missing(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the first gap within a range, up to its end; None when all of it is here."""
        for low, high in self._held:
            if low <= start < high:
                start = high
        return (start, end) if start < end else None

    @property
    def is_whole(self) -> bool:
        """Whether every byte is here."""
        return self.missing(0, self.size_bytes) is None

    def open(self, mode: Literal["rb"]) -> "PartialReader":
        """Open for reading; reading what is not here raises `Missing`."""
        return PartialReader(self, self.path.open(mode))


class PartialReader:
    """Reads a partial file."""

    def __init__(self, source: PartialFile, file: BinaryIO) -> None:
        self._source = source
        self._file = file

    def __enter__(self) -> "PartialReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return where that is."""
        return self._file.seek(offset, whence)

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes.

        Raises:
            Missing: some of them are not here.
        """
        start = self._file.tell()
        end = min(start + size, self._source.size_bytes)
        gap = self._source.missing(start, end)
        if gap is not None:
            raise Missing(*gap)
        return self._file.read(max(0, end - start))


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


Walk = Callable[[PartialFile], bool]
"""Reads all that a header is; returns False when no part of a file will do. Raises `Missing` for what it needs."""
