"""Folders for private clusters."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_to_others(kind: str) -> Iterator[Path]:
    """Lend a folder that PostgreSQL's unprivileged account may enter, unlike pytest's own; it is removed."""
    folder = Path(tempfile.mkdtemp(prefix=f"geodag-{kind}-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
