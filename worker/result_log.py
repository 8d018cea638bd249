"""Unanswered results on disk: one file that only grows, so that storing results is one `write`.

Each line is `+` and a result, or `-` and the id of a task whose result was answered. A file per result was measured
first: creating and unlinking it cost 2 to 4 ms of the event loop on a busy disk, for handlers that take microseconds.

Nothing is synced. What was written outlives a killed worker, which is what happens; it does not outlive a machine that
loses power, but then the lease runs out and the task is tried again, so nothing is wrong.
"""

import hashlib
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ValidationError

from core.wire import TaskResult

COMPACT_BYTES = 1 << 20
"""The file is emptied when it is longer than this and nothing in it is unanswered; when something is, it is rewritten
with only that, each time it has doubled."""


class Entry(NamedTuple):
    """A result, and its line in the file."""

    result: TaskResult
    line: bytes

    @classmethod
    def of(cls, result: TaskResult) -> Self:
        """Make the line; raises `pydantic_core.PydanticSerializationError` when no JSON can be made of the result."""
        return cls(result, b"+" + result.model_dump_json(by_alias=True).encode())


class ResultLog:
    """The file `results.log` of one worker, and the folder `refused` for what nobody can read."""

    def __init__(self, folder: Path, logger: logging.Logger) -> None:
        self._path = folder / "results.log"
        self._refused = folder / "refused"
        self._logger = logger
        self._refused.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._unanswered = {result.task_id: result for result in self._read()}
        self._descriptor = self._rewritten()
        self._size = os.fstat(self._descriptor).st_size
        self._rewrite_bytes = max(COMPACT_BYTES, 2 * self._size)

    def unanswered(self) -> tuple[TaskResult, ...]:
        """Return what an earlier life of this worker did not get answered, as found at the start."""
        return tuple(self._unanswered.values())

    def write(self, entries: Collection[Entry]) -> None:
        """Store results.

        Raises:
            OSError: they could not be stored as a whole; nothing of them is left in the file.
        """
        self._unanswered.update((entry.result.task_id, entry.result) for entry in entries)
        self._append(b"\n".join(entry.line for entry in entries))

    def forget(self, *task_ids: str) -> None:
        """Note that results were answered; when that cannot be written, they are sent once more after a restart."""
        for task_id in task_ids:
            self._unanswered.pop(task_id, None)
        if not self._unanswered and self._size > COMPACT_BYTES:
            self._cut(0)
            return
        try:
            self._append(b"\n".join(b"-" + task_id.encode() for task_id in task_ids))
            if self._size > self._rewrite_bytes:
                self._rewrite()
        except OSError:
            self._logger.exception("answers not stored", extra={"task_ids": task_ids})

    def _rewrite(self) -> None:
        """Go on in a new file that has only what is unanswered."""
        self._rewrite_bytes = 2 * self._size
        old, self._descriptor = self._descriptor, self._rewritten()
        os.close(old)
        self._size = os.fstat(self._descriptor).st_size
        self._rewrite_bytes = max(COMPACT_BYTES, 2 * self._size)

    def set_aside(self, result: TaskResult) -> None:
        """Move a result that no orchestrator reads out of the way, for a person to look at."""
        self._keep_refused(result.model_dump_json(by_alias=True).encode())
        self.forget(result.task_id)

    def _append(self, line: bytes) -> None:
        try:
            _write_whole(self._descriptor, line + b"\n")
        except OSError:
            self._cut(self._size)
            raise
        self._size += len(line) + 1

    def _cut(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def _read(self) -> list[TaskResult]:
        """Return the results without an answer, in their order; a line that a crash cut short is set aside."""
        found: dict[str, TaskResult] = {}
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            if line.startswith(b"-"):
                found.pop(line[1:].decode(errors="replace"), None)
                continue
            try:
                result = TaskResult.model_validate_json(line.removeprefix(b"+"))
            except ValidationError as exc:
                self._logger.error("stored result cannot be read", extra={"errors": exc.error_count()})
                self._keep_refused(line)
            else:
                found[result.task_id] = result
        return list(found.values())

    def _rewritten(self) -> int:
        """Replace the file by one with only the unanswered results, and open it."""
        temporary = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            for result in self._unanswered.values():
                _write_whole(descriptor, Entry.of(result).line + b"\n")
            os.rename(temporary, self._path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _keep_refused(self, content: bytes) -> None:
        name = hashlib.sha256(content).hexdigest()[:16]
        path = self._refused / f"{name}.json"
        path.touch(mode=0o600)
        path.write_bytes(content)


def _write_whole(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) != len(line):
        raise OSError("the disk took a part of the line only")
