"""Folders that belong to one worker process at a time."""

import fcntl
import os
import re
import shutil
from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\Z")


class FolderTaken(Exception):
    """Another live process uses the folder."""


def own_folder(folder: Path) -> int:
    """Create `folder` and lock it for the life of this process; return the descriptor that holds the lock.

    The kernel drops the lock with the process, also on kill -9; subprocesses do not inherit it.

    Raises:
        FolderTaken: another process holds it, for example a stopped one that may still wake up.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise FolderTaken(f"{folder} is in use by another worker process") from exc
    return descriptor


def file_name(task_id: str) -> str:
    """Return `task_id` as a file name.

    Raises:
        ValueError: it could leave its folder.
    """
    if not _SAFE.match(task_id):
        raise ValueError(f"task id {task_id!r} is no file name")
    return task_id


def remove_leftovers(scratch: Path) -> int:
    """Remove what the tasks of an earlier life left in the scratch folder."""
    found = [path for path in scratch.iterdir() if path.name != ".lock"]
    for path in found:
        remove(path)
    return len(found)


def remove(path: Path) -> None:
    """Remove a file or a folder and all below it; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=_make_writable_and_retry)
    else:
        path.unlink(missing_ok=True)


def _make_writable_and_retry(function: object, path: str, info: object) -> None:
    """A handler may have taken rights away from its own folders."""
    parent = Path(path).parent
    os.chmod(parent, 0o700)
    if Path(path).is_dir() and not Path(path).is_symlink():
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)
