"""Starts granted tasks, watches them end, and stops those that were revoked."""

import asyncio
import logging
import math

from core.handlers_catalog import HandlerSpec
from core.ids import digest
from core.wire import ClaimAnswer, TaskMessage, TaskResult, TaskStatus
from worker.executor import Executor
from worker.reporter import Reporter
from worker.tasks import RunningTask, Slots, TaskTable
from worker.values import DIFFERENT_MESSAGE


class Supervisor:
    """Owns the running tasks."""

    def __init__(
        self, executor: Executor, reporter: Reporter, table: TaskTable, slots: Slots, logger: logging.Logger
    ) -> None:
        self._executor = executor
        self._reporter = reporter
        self._table = table
        self._slots = slots
        self._logger = logger
        self.stopped: list[RunningTask] = []
        """Revoked tasks that have ended since, of which nobody was told yet."""

    def start(self, message: TaskMessage, spec: HandlerSpec, answer: ClaimAnswer, slot: str) -> RunningTask:
        """Start a task whose slot is taken already; the slot is given back when it ends."""
        deadline = asyncio.get_running_loop().time() + message.timeout_seconds
        task = RunningTask(
            message,
            spec,
            deadline,
            slot,
            lease_seconds=answer.lease_seconds or math.inf,
            params_digest=answer.params_digest,
            checkpoint=answer.checkpoint,
            credential=answer.credential,
            notice=self._table.notice,
        )
        self._table.add(task)
        task.job = asyncio.create_task(self._supervise(task), name=message.task_id)
        return task

    def begin(self, message: TaskMessage, spec: HandlerSpec, answer: ClaimAnswer, slot: str) -> None:
        """Start a granted task, unless its message is not what the orchestrator dispatched."""
        if answer.handler not in (None, message.handler) or not _has_digest(message, answer.params_digest):
            ids = {"task_id": message.task_id, "job_id": message.job_id, "handler": message.handler}
            self._logger.error("message differs from what was dispatched", extra=ids)
            self.refuse(message, slot)
            return
        self.start(message, spec, answer, slot)

    def refuse(self, message: TaskMessage, slot: str) -> None:
        """Fail a granted task without starting it, and give its slot back: its message was not what was dispatched."""
        failed = TaskResult(
            task_id=message.task_id, token=message.token, status=TaskStatus.FAILED, error=DIFFERENT_MESSAGE
        )
        self._slots.give(slot)
        self._reporter.add(failed)

    def revoke(self, task_id: str, reason: str) -> None:
        """Stop a task whose attempt is no longer ours: its process is terminated, and killed when it does not end."""
        task = self._table.get(task_id)
        if task is None or task.revoked:
            return
        self._logger.info("task revoked", extra={"task_id": task_id, "reason": reason})
        task.revoked = True
        task.stop.set()
        if task.job is not None:
            task.job.cancel()

    def ask_all_to_stop(self) -> None:
        """Tell every handler that it should end."""
        for task in self._table:
            task.stop.set()

    async def wait_ended(self, seconds: float) -> None:
        """Wait for running tasks to end, at most so long."""
        jobs = [task.job for task in self._table if task.job is not None]
        if jobs:
            await asyncio.wait(jobs, timeout=seconds)

    def kill_all(self) -> tuple[RunningTask, ...]:
        """Cancel what is still running and return it."""
        left = tuple(task for task in self._table if not task.revoked)
        for task in self._table:
            if task.job is not None:
                task.job.cancel()
        return left

    async def _supervise(self, task: RunningTask) -> None:
        try:
            result = await self._executor.execute(task)
            if result is not None and not task.revoked:
                self._reporter.add(result)
                self._table.remove(task)
        except asyncio.CancelledError:
            self._logger.info("task stopped", extra={"task_id": task.task_id, "revoked": task.revoked})
        except Exception:
            # The lease runs out and the task is tried again: nothing else is known about it here.
            self._logger.exception("task could not be supervised", extra={"task_id": task.task_id})
        finally:
            self._slots.give(task.slot)
            if not self._keeps_lease(task):
                self._table.remove(task)
            if task.revoked:
                self.stopped.append(task)
                self._table.notice()

    def _keeps_lease(self, task: RunningTask) -> bool:
        """Whether the drain still has to give the task's lease back."""
        return task.stop.is_set() and not task.revoked


def _has_digest(message: TaskMessage, params_digest: str | None) -> bool:
    """Return whether the params are those that were dispatched; those behind a reference are looked at when fetched."""
    return params_digest is None or message.params_ref is not None or digest(message.params) == params_digest
