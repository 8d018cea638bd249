"""Large params and outputs of tasks: fetched before the handler starts, stored before its result is reported.

While the storage is away the worker tries again for as long as the task may run: work that is done is not lost for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic_core import to_json

from core.errors import Classification, ErrorDetail, GeodagError, StorageUnavailable
from core.ids import digest
from core.payloads import PayloadRef, decode, encode, job_prefix, task_prefix
from core.wire import Json, TaskMessage
from handlers.failures import INTERNAL
from repositories.payloads import PayloadStore
from worker.backoff import Backoff
from worker.tasks import RunningTask

DIFFERENT_MESSAGE = ErrorDetail(
    code=INTERNAL,
    message="the queue delivered other params or another handler than were dispatched",
    classification=Classification.TRANSIENT,
)
"""Transient: the next dispatch writes a new message."""
T = TypeVar("T")


class OtherParams(GeodagError):
    """The params are not those of which the orchestrator knows the digest."""

    def __init__(self) -> None:
        super().__init__(DIFFERENT_MESSAGE.message)
        self.detail = DIFFERENT_MESSAGE


class TaskValues:
    """The blobs behind the references of messages and results; nothing here ends before the task's time is over."""

    def __init__(self, store: PayloadStore, logger: logging.Logger) -> None:
        self._store = store
        self._logger = logger

    async def message_of(self, task: RunningTask) -> TaskMessage:
        """Return the task's message with its params in it.

        Raises:
            PayloadLost: they are missing or damaged.
            OtherParams: they are not what was dispatched.
        """
        message, ref = task.message, task.message.params_ref
        if ref is None:
            return message
        if not ref.blob.startswith(job_prefix(message.job_id)):
            raise OtherParams
        data = await self._patiently(task, lambda: self._store.get(ref))
        params = await asyncio.to_thread(decode, ref, data)
        if not isinstance(params, dict) or await asyncio.to_thread(digest, params) != task.params_digest:
            raise OtherParams
        return message.model_copy(update={"params": params, "params_ref": None})

    def large(self, task: RunningTask, output: Json) -> bytes | None:
        """Return the JSON of an output above the limit; None for one that travels in the result itself.

        Raises:
            ValueTooLarge: it is larger than any value may be.
        """
        text = to_json(output)
        if 2 * len(text) <= task.inline_bytes and b"NaN" not in text and b"Infinity" not in text:
            return None  # the canonical JSON spells floats a little longer, at twice the cost; it refuses those two
        data = encode(output, "output")
        return data if len(data) > task.inline_bytes else None

    async def keep(self, task: RunningTask, data: bytes) -> PayloadRef:
        """Store what is large and return where."""
        prefix = task_prefix(task.message.job_id, task.task_id)
        return await self._patiently(task, lambda: self._store.put(prefix, data))

    async def _patiently(self, task: RunningTask, work: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff()
        while True:
            try:
                return await work()
            except StorageUnavailable as error:
                delay = backoff.next_seconds()
                if asyncio.get_running_loop().time() + delay > task.deadline:
                    raise
                extra = {"task_id": task.task_id, "reason": str(error), "retry_seconds": delay}
                self._logger.warning("storage away", extra=extra)
                await asyncio.sleep(delay)
