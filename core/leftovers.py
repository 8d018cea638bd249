"""Which files nobody owns any more: names tell which attempt wrote them, the database who still refers to them.

Files of attempts lie under `silver/{asset}/{ordinal}/r{revision}/{task id}/`, copies of sources under
`bronze/fetched/…` alike, uploads under `bronze/uploads/{platform}/{id}/`, large values under `silver/payloads/{job}/`.
What has another name is never touched. A folder goes only when it is old and nothing refers to it: no version, no
result of a job that is known and could be started anew, and when no job works for the asset.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from core.ids import split_task_id
from core.payloads import PREFIX
from core.ports import BlobEntry

FETCHED: Final = "fetched/"
UPLOADS: Final = "uploads/"
NOTES: Final = "notes"
"""Folder of what attempts noted about files that an equal task may take again (`worker.reuse`)."""
_ASSET: Final = re.compile(r"((?:fetched/)?([0-9a-f]{32})/([0-9]+)/r([0-9]+)/([^/]+)/)[^/]")
_UPLOAD: Final = re.compile(r"(uploads/[^/]+/[0-9a-f]{32}/)[^/]")
_PAYLOAD: Final = re.compile(rf"({re.escape(PREFIX)}([^/]+)/)[^/]")


class Kind(StrEnum):
    """What a folder holds."""

    OUTPUTS = "files_of_attempts"
    UPLOAD = "uploads"
    VALUES = "stored_values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Blobs that come and go together."""

    kind: Kind
    container: str
    prefix: str
    """Ends with a slash."""
    files: int
    size_bytes: int
    modified_at: datetime
    """Of the newest."""
    asset_id: str = ""
    ordinal: int = 0
    revision: int = 0
    task_id: str = ""
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownVersion:
    """What the database says of a version's files."""

    revision: int
    purged: bool = False
    busy: bool = False
    """True: its newest revision is being made."""
    paths: Sequence[str] = ()
    """container/name of every file that it names."""
    tiles_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the database says of an asset's files."""

    versions: Mapping[int, KnownVersion]
    jobs: frozenset[str] = frozenset()
    """That worked for it, of those that still have rows."""
    busy: bool = False
    """True: one of them is not over."""
    tasks: frozenset[str] = frozenset()
    """Whose files are named by what these jobs brought forth."""
    listed: Mapping[int, Collection[str]] = field(default_factory=dict)
    """Tasks whose files a version's list of tiles names, by ordinal."""


def folder_of(container: str, entry: BlobEntry) -> Folder | None:
    """Return the folder that a blob belongs to, None when its name is none of ours."""
    if found := _ASSET.match(entry.name):
        prefix, asset_id, ordinal, revision, task_id = found.groups()
        task = split_task_id(task_id)
        if container != ("bronze" if prefix.startswith(FETCHED) else "silver") or (task is None and task_id != NOTES):
            return None
        return replace(
            _folder(Kind.OUTPUTS, container, prefix, entry),
            asset_id=asset_id,
            ordinal=int(ordinal),
            revision=int(revision),
            task_id=task_id,
            job_id="" if task is None else task[0],
        )
    if container == "bronze" and (found := _UPLOAD.match(entry.name)):
        return _folder(Kind.UPLOAD, container, found[1], entry)
    if container == "silver" and (found := _PAYLOAD.match(entry.name)):
        return replace(_folder(Kind.VALUES, container, found[1], entry), job_id=found[2])
    return None


def _folder(kind: Kind, container: str, prefix: str, entry: BlobEntry) -> Folder:
    return Folder(
        kind=kind,
        container=container,
        prefix=prefix,
        files=1,
        size_bytes=entry.size_bytes,
        modified_at=entry.modified_at,
    )


def joined(one: Folder, more: Folder) -> Folder:
    """Return two parts of the same folder as one."""
    return replace(
        one,
        files=one.files + more.files,
        size_bytes=one.size_bytes + more.size_bytes,
        modified_at=max(one.modified_at, more.modified_at),
    )


def named_tasks(paths: Iterable[str], container: str = "silver") -> frozenset[str]:
    """Return the tasks that wrote some files, which are named `container/name`."""
    names = (path.removeprefix(f"{container}/") for path in paths)
    return frozenset(found[5] for name in names if (found := _ASSET.match(name)))


def ownerless(folders: Sequence[Folder], known: Known | None, before: datetime) -> list[Folder]:
    """Return those folders of one asset's files that may go.

    Args:
        folders: All of the asset's.
        known: What the database says, None when it knows no such asset.
        before: What was written later stays, whoever it belongs to.
    """
    old = [one for one in folders if one.modified_at < before]
    if known is None:
        return old
    if known.busy or any(version.busy for version in known.versions.values()):
        return []
    going = [one for one in old if one.task_id != NOTES and not _is_owned(one, known)]
    # Notes go first and with the first file: what they say of it is wrong then, and nobody may take it meanwhile.
    touched = {(one.ordinal, one.revision) for one in going if one.container == "silver"}
    notes = [
        one
        for one in folders
        if one.task_id == NOTES and ((one.ordinal, one.revision) in touched or (one in old and not known.jobs))
    ]
    return notes + going


def _is_owned(folder: Folder, known: Known) -> bool:
    version = known.versions.get(folder.ordinal)
    if version is not None and version.purged:
        return False
    if folder.task_id in known.tasks:
        return True
    if version is None or folder.revision != version.revision:
        return False
    if folder.container == "bronze":
        # Who copied the source of what is live, is not known any more when the job has no rows.
        return folder.job_id not in known.jobs
    return folder.task_id in named_tasks(version.paths) or folder.task_id in known.listed.get(folder.ordinal, ())
