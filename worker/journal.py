"""A file outside the platform in which every execution leaves a line: the witness of the chaos tests."""

import os
from pathlib import Path


class Journal:
    """Appends whole lines; several workers may share the file."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600) if path else None

    def write(self, line: str) -> None:
        """Append a line, in one write; does nothing without a file."""
        if self._descriptor is not None:
            os.write(self._descriptor, " ".join(line.split()).encode(errors="replace") + b"\n")
