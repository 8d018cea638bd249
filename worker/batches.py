"""A batch of a fan-out: the handler runs once per item, one after the other, inside one task.

Each item has its own time, its own scratch folder and its own outcome; a failure of one does not touch the next. What
is done goes out with heartbeats, so that a death costs only the item that the worker was at. Items have no checkpoints.
"""

import asyncio
from collections.abc import Awaitable, Callable

from core.errors import ErrorDetail, Finding
from core.payloads import LIMIT_BYTES
from core.wire import ItemOutcome, Json, TaskMessage, TaskResult, TaskStatus
from handlers.failures import INTERNAL
from worker.tasks import RunningTask

MIN_INLINE_BYTES = 1024
RunOne = Callable[[RunningTask], Awaitable[TaskResult | None]]
"""Runs a task to its result; None when the handler stopped because it was told to."""


async def run_batch(task: RunningTask, message: TaskMessage, run_one: RunOne) -> TaskResult | None:
    """Run the items of a batch that are wanted; None when it was told to stop before the last one.

    Args:
        task: The batch.
        message: Its message, with the params of the items in it.
        run_one: Runs a single item as a task of its own.
    """
    clock = asyncio.get_running_loop().time
    began, wanted = clock(), message.items or ()
    params = _params_by_index(message.params)
    findings: list[Finding] = []
    for done, index in enumerate(wanted):
        task.progress = {"current": done, "total": len(wanted), "message": None}
        if task.stop.is_set():
            return None
        if index not in params:
            task.ended(_unknown(index))
            continue
        result = await run_one(_item_of(task, message, index, params[index], clock()))
        if result is None:
            return None
        findings += result.findings
        task.peak_rss_bytes = max(task.peak_rss_bytes or 0, result.peak_rss_bytes or 0) or None
        task.ended(_outcome(index, result))
    return TaskResult(
        task_id=task.task_id,
        token=message.token,
        status=TaskStatus.COMPLETED,
        outcomes=tuple(task.outcomes),
        findings=tuple(findings),
        metrics={"run_seconds": round(clock() - began, 6), "items": len(wanted)},
        peak_rss_bytes=task.peak_rss_bytes,
    )


def _params_by_index(params: Json) -> dict[int, Json]:
    items = params.get("items")
    return {one["index"]: one["params"] for one in items} if isinstance(items, list) else {}


def _item_of(task: RunningTask, message: TaskMessage, index: int, params: Json, now: float) -> RunningTask:
    """Return one item as a task: it ends with its own time, and stops when the batch has to."""
    count = len(message.items or ()) or 1
    seconds = message.timeout_seconds / count
    single = message.model_copy(update={"params": params, "items": None, "timeout_seconds": seconds})
    return RunningTask(
        single,
        task.spec,
        now + seconds,
        place=f"{task.place}/{index}",
        inline_bytes=max(LIMIT_BYTES // count, MIN_INLINE_BYTES),
        stop=task.stop,
    )


def _outcome(index: int, result: TaskResult) -> ItemOutcome:
    return ItemOutcome(
        index=index, status=result.status, output=result.output, output_ref=result.output_ref, error=result.error
    )


def _unknown(index: int) -> ItemOutcome:
    error = ErrorDetail(code=INTERNAL, message=f"the message has no params for item {index}")
    return ItemOutcome(index=index, status=TaskStatus.FAILED, error=error)
