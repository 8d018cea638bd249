"""What a handler is given and what it gives back.

Inline handlers are `async def handler(ctx: InlineContext, params) -> Outcome` and run in the worker's event loop;
subprocess handlers are `def handler(ctx: ProcessContext, params) -> Outcome` and run in a jailed process. `params` is
an instance of the `params` model of the handler's `HandlerSpec`. A handler fails by raising: `core.errors.DataError`
and the rest of that tree carry their own code and classification, see `handlers.failures` for everything else.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel

from core.errors import Finding, GeodagError
from core.ids import canonical_json
from core.payloads import LIMIT_BYTES, ValueTooLarge
from core.ports import BlobRef, ExportRun, ExternalExport
from core.sources import Fetched
from handlers.json_values import NotJson, to_json

Json = dict[str, Any]


class TaskCancelled(Exception):
    """A handler stopped because it was told to; a checkpoint it saved before is kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler produced."""

    output: Mapping[str, Any] | BaseModel
    """Must fit the handler's `output` model; the fields named in `files` are filled in by the worker."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Output field -> name of a plain file in `ProcessContext.out_dir`; the worker uploads it under
    `<params.output_prefix>/<task_id>/<name>` and puts the blob path into the output."""
    findings: tuple[Finding, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedState:
    """The checkpoint that the last attempt with equal params left."""

    phase: str
    state: Json


class Checkpoint:
    """Progress that the next attempt can go on from; saved with the next heartbeat or at a drain."""

    def __init__(self, saved: Mapping[str, Any] | None, save: Callable[[Json], None]) -> None:
        self._saved = saved
        self._save = save

    def save(self, phase: str, state: Json) -> None:
        """Keep `state` (JSON, replaced as a whole) for the next attempt.

        Raises:
            NotJson: it is none, or no mapping; names the path.
            ValueTooLarge: it is above 64 KiB; keep large state in files and their names here.
        """
        saved = to_json({"phase": phase, "state": state}, "checkpoint")
        if not isinstance(saved["state"], dict):
            raise NotJson("the state of a checkpoint is a mapping", field="checkpoint.state")
        size = len(canonical_json(saved).encode())
        if size > LIMIT_BYTES:
            raise ValueTooLarge(f"the checkpoint has {size} bytes; at most {LIMIT_BYTES} are kept", field="checkpoint")
        self._saved = saved
        self._save(dict(saved))

    def load(self) -> SavedState | None:
        """Return what was saved last, by this attempt or the one before."""
        return SavedState(self._saved["phase"], self._saved["state"]) if self._saved else None


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Which task a handler is running for."""

    task_id: str
    job_id: str
    node_id: str
    attempt: int


class OpenTransaction(Protocol):
    """Opens a transaction on the worker's pool whose first statement was `fence.hold` for this attempt."""

    def __call__(self) -> AbstractAsyncContextManager[Any]:
        """Return the context manager; it yields the connection and commits at its end."""


class Fetch(Protocol):
    """Copies what lies behind a URL to a new blob, through the guard, with the credential that the claim brought."""

    async def __call__(self, url: str, ref: BlobRef) -> Fetched:
        """Return what was copied; raises `DataError` or `TransientError`."""


async def no_fetch(url: str, ref: BlobRef) -> Fetched:
    """Stand for the client that only handlers with `fetches` get."""
    raise GeodagError("this handler fetches nothing: its specification lacks `fetches`")


class NoZone:
    """Stands for the external zone where a worker has none."""

    async def start(self, source: BlobRef, target: BlobRef, reference: str) -> str:
        """Refuse."""
        raise self._refusal()

    async def look(self, run_id: str) -> ExportRun:
        """Refuse."""
        raise self._refusal()

    async def size_bytes(self, target: BlobRef) -> int:
        """Refuse."""
        raise self._refusal()

    async def withdraw(self, folder: BlobRef) -> int:
        """Refuse."""
        raise self._refusal()

    def _refusal(self) -> GeodagError:
        return GeodagError("this worker has no external zone")


NO_ZONE: Final = NoZone()


@dataclass(slots=True)
class InlineContext:
    """What an inline handler sees of the worker."""

    task: TaskInfo
    params: Json
    """The raw params, as dispatched."""
    logger: logging.LoggerAdapter[logging.Logger]
    checkpoint: Checkpoint
    report: Callable[[Json], None]
    open_transaction: OpenTransaction
    write_journal: Callable[[str], None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    fetch: Fetch = no_fetch
    external: ExternalExport = NO_ZONE

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: a drain, a cancelled job, an attempt that was overtaken."""
        return self.stop.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise `TaskCancelled` when the handler should stop."""
        if self.stop.is_set():
            raise TaskCancelled

    async def sleep(self, seconds: float) -> None:
        """Wait, but raise `TaskCancelled` as soon as the handler should stop."""
        try:
            await asyncio.wait_for(self.stop.wait(), seconds)
        except TimeoutError:
            return
        raise TaskCancelled

    def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is; goes out with the next heartbeat."""
        self.report({"current": current, "total": total, "message": message})

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a database transaction that holds this attempt's fence, so that a loser of a race writes nothing.

        Raises:
            DatabaseUnavailable: the database cannot be reached.
        """
        return self.open_transaction()

    def journal(self, line: str) -> None:
        """Append a line to WORKER_JOURNAL_FILE, when there is one: a witness outside the platform."""
        self.write_journal(line)


class ProcessContext:
    """What a subprocess handler sees; everything it may write lies under `scratch`, which is always removed."""

    def __init__(
        self,
        task: TaskInfo,
        scratch: Path,
        *,
        checkpoint: Checkpoint,
        report: Callable[[Json], None],
        is_cancelled: Callable[[], bool],
        write_journal: Callable[[str], None] = lambda _line: None,
        logger: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.task = task
        self.scratch = scratch
        self.out_dir = scratch / "out"
        self.checkpoint = checkpoint
        self.logger = logger
        self._report = report
        self._is_cancelled = is_cancelled
        self._write_journal = write_journal

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop."""
        return self._is_cancelled()

    def raise_if_cancelled(self) -> None:
        """Raise `TaskCancelled` when the handler should stop."""
        if self.cancelled:
            raise TaskCancelled

    def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is; cheap enough to call for every block."""
        self._report({"current": current, "total": total, "message": message})

    def follow(self, message: str) -> Callable[[int, int], None]:
        """Return what a loop calls with its steps done and their total: it says so, and stops a cancelled task.

        Calling it raises `TaskCancelled` when the handler should stop.
        """

        def step(done: int, total: int) -> None:
            self.raise_if_cancelled()
            self.progress(done, total, message)

        return step

    def journal(self, line: str) -> None:
        """Append a line to WORKER_JOURNAL_FILE, when there is one: a witness outside the platform."""
        self._write_journal(line)
