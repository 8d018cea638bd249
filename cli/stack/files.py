"""Small files of the local stack, written so that a reader sees all of one or the one before."""

import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import IO, Any

PRIVATE = 0o600
READABLE = 0o644


def write_json(path: Path, value: Any, mode: int = READABLE) -> None:
    """Replace a file atomically; its mode is set before it has content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "w") as file:
            json.dump(value, file, indent=2, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any | None:
    """Return the content of a JSON file, or None when there is none or it cannot be read as JSON."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def lock(path: Path) -> IO[bytes] | None:
    """Return a file that this process has locked until it closes it or ends; None when another has."""
    handle = path.open("ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle
