"""Sends results until they are answered; each lies on disk from before its first sending until its answer.

A result is written with `rename` but without `fsync`: that outlives a killed worker, which is what happens. It does not
outlive a machine that loses power, but then the lease runs out and the task is tried again, so nothing is wrong; an
fsync would cost several milliseconds for every task of a few microseconds.
"""

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from core.wire import Beat, ResultAnswer, ResultRequest, TaskResult, WorkerIdentity
from worker.backoff import Backoff
from worker.client import CallbackClient, NoAnswer, Refused
from worker.state_dir import file_name

MAX_BATCH = 100
_POISON_STATUSES = frozenset({400, 413, 422})


class ResultStore:
    """Unanswered results as files `{task_id}.json` in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._refused = folder.parent / "refused"
        for each in (self._folder, self._refused):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, result: TaskResult) -> None:
        """Store a result; a reader sees all of it or nothing."""
        temporary = self._folder / f".{file_name(result.task_id)}.tmp"
        temporary.touch(mode=0o600)
        temporary.write_text(result.model_dump_json(by_alias=True))
        os.rename(temporary, self._path(result.task_id))

    def forget(self, task_id: str) -> None:
        """Remove an answered result."""
        self._path(task_id).unlink(missing_ok=True)

    def set_aside(self, task_id: str) -> None:
        """Move a result that no orchestrator reads out of the way, for a person to look at."""
        with suppress(FileNotFoundError):
            os.rename(self._path(task_id), self._refused / f"{file_name(task_id)}.json")

    def leftovers(self, logger: logging.Logger) -> list[TaskResult]:
        """Return what an earlier life of this worker did not get answered."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(TaskResult.model_validate_json(path.read_bytes()))
            except ValidationError:
                logger.exception("stored result cannot be read", extra={"path": str(path)})
                os.rename(path, self._refused / path.name)
        return found

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{file_name(task_id)}.json"


class Reporter:
    """Reports finished tasks in batches: whatever ended while a call was under way goes out with the next."""

    def __init__(
        self, store: ResultStore, client: CallbackClient, worker: WorkerIdentity, logger: logging.Logger
    ) -> None:
        self._store = store
        self._client = client
        self._worker = worker
        self._logger = logger
        self._pending: dict[str, TaskResult] = {}
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        for result in store.leftovers(logger):
            self._enqueue(result)

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, result: TaskResult) -> None:
        """Store a result and send it soon; on a full disk it is only in memory, which is still better than lost."""
        try:
            self._store.write(result)
        except OSError:
            self._logger.exception("result not stored", extra={"task_id": result.task_id})
        self._enqueue(result)

    def beats(self) -> tuple[Beat, ...]:
        """Return signs of life for unanswered results: their leases must last until they are answered."""
        return tuple(Beat(task_id=result.task_id, token=result.token) for result in self._pending.values())

    async def drained(self) -> None:
        """Wait until every result is answered."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send for ever."""
        backoff = Backoff()
        while True:
            await self._wake.wait()
            try:
                await self._send(tuple(self._pending.values())[:MAX_BATCH])
                backoff.reset()
            except (NoAnswer, Refused) as exc:
                delay = backoff.next_seconds()
                self._logger.warning(
                    "results not answered", extra={"reason": str(exc), "retry_seconds": delay, "count": len(self)}
                )
                await asyncio.sleep(delay)

    async def _send(self, batch: tuple[TaskResult, ...]) -> None:
        """Send a batch; one that is refused for its content is halved until the culprit stands alone."""
        if not batch:
            return
        try:
            answer = await self._client.results(ResultRequest(worker=self._worker, results=batch))
        except Refused as exc:
            if exc.status not in _POISON_STATUSES:
                raise
            await self._send_halves(batch, exc)
            return
        for each in answer.answers:
            self._settle(each)

    async def _send_halves(self, batch: tuple[TaskResult, ...], refusal: Refused) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
            return
        task_id = batch[0].task_id
        self._logger.error("result refused", extra={"task_id": task_id, "reason": str(refusal)})
        self._store.set_aside(task_id)
        self._remove(task_id)

    def _settle(self, answer: ResultAnswer) -> None:
        if answer.task_id not in self._pending:
            return
        self._logger.debug("result answered", extra={"task_id": answer.task_id, "disposition": str(answer.disposition)})
        self._store.forget(answer.task_id)
        self._remove(answer.task_id)

    def _enqueue(self, result: TaskResult) -> None:
        self._pending[result.task_id] = result
        self._wake.set()
        self._empty.clear()

    def _remove(self, task_id: str) -> None:
        del self._pending[task_id]
        if not self._pending:
            self._wake.clear()
            self._empty.set()
