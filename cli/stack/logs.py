"""Reads the log files of a stack as they grow, and keeps them from growing for ever."""

import shutil
from collections.abc import Iterator
from pathlib import Path

ROTATE_BYTES = 20 * 1024 * 1024
READ_BYTES = 256 * 1024


class LogTail:
    """Follows several log files from where they end now."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files
        self._offsets = {name: _size(path) for name, path in files.items()}
        self._rests = dict.fromkeys(files, b"")

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (part, line) for every whole line written since the last call."""
        for name, path in self._files.items():
            for line in self._new_lines(name, path):
                yield name, line.decode(errors="replace")

    def _new_lines(self, name: str, path: Path) -> list[bytes]:
        size = _size(path)
        if size < self._offsets[name]:
            self._offsets[name], self._rests[name] = 0, b""
        if size == self._offsets[name]:
            return []
        with path.open("rb") as file:
            file.seek(self._offsets[name])
            data = file.read(READ_BYTES)
        self._offsets[name] += len(data)
        *whole, self._rests[name] = (self._rests[name] + data).split(b"\n")
        return whole


def rotate(path: Path, limit_bytes: int = ROTATE_BYTES) -> bool:
    """Copy a large log beside itself and empty it; writers append, so they go on in the emptied file."""
    if _size(path) <= limit_bytes:
        return False
    shutil.copyfile(path, path.with_suffix(".log.1"))
    with path.open("r+b") as file:
        file.truncate(0)
    return True


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last lines of a log, none when it does not exist."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, _size(path) - READ_BYTES))
        return file.read().decode(errors="replace").splitlines()[-count:]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
