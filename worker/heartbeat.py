"""Renews all leases of a worker with one call, and learns what to stop."""

import asyncio
import logging
import math
from collections.abc import Callable

from core.wire import Beat, Capacity, HeartbeatRequest, Release, ReleaseRequest, WorkerIdentity
from worker.client import CallbackClient, NoAnswer, Refused
from worker.reporter import Reporter
from worker.supervisor import Supervisor
from worker.tasks import RunningTask, TaskTable

BEATS_A_LEASE = 3
_SHORTEST_PAUSE_SECONDS = 0.1
_CHECKPOINT_SECONDS = 0.2
"""A checkpoint goes out so soon after the beat before, and that a revoked task has stopped."""
_RETRY_SECONDS = 1.0
_OVERTIME_SECONDS = 15.0
"""A task that runs so long after its limit cannot be stopped; its lease is left to run out."""


class Heartbeat:
    """Beats at a fixed pace, also when nothing runs: the orchestrators count workers by it."""

    def __init__(
        self,
        worker: Callable[[], WorkerIdentity],
        capacity: Callable[[], Capacity],
        client: CallbackClient,
        table: TaskTable,
        reporter: Reporter,
        supervisor: Supervisor,
        logger: logging.Logger,
        interval_seconds: float,
    ) -> None:
        self._worker = worker
        self._capacity = capacity
        self._client = client
        self._table = table
        self._reporter = reporter
        self._supervisor = supervisor
        self._logger = logger
        self._interval = interval_seconds
        self._answered = False

    async def run(self) -> None:
        """Beat for ever; after a failure try again sooner."""
        while True:
            pause = self._interval
            try:
                await self.beat()
                self._answered = True
            except (NoAnswer, Refused) as exc:
                self._answered = False
                pause = min(_RETRY_SECONDS, self._interval)
                self._logger.warning("heartbeat not answered", extra={"reason": str(exc), "retry_seconds": pause})
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """Pause, but so that every lease can be renewed at least twice, also of a task that starts meanwhile.

        While nobody answers, checkpoints wait as everything does.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        while (left := began + min(seconds, self._pace(), self._patience()) - clock()) > 0:
            await self._table.wait_noticed(left, left * BEATS_A_LEASE)

    def _patience(self) -> float:
        in_a_hurry = self._table.has_unsent or bool(self._supervisor.stopped)
        return _CHECKPOINT_SECONDS if in_a_hurry and self._answered else math.inf

    def _pace(self) -> float:
        return max(self._table.shortest_lease_seconds / BEATS_A_LEASE, _SHORTEST_PAUSE_SECONDS)

    async def beat(self) -> None:
        """Send one heartbeat and obey the answer."""
        sent = [(task, task.unsent_checkpoint, task.beat()) for task in self._table if self._moves(task)]
        answer = await self._client.heartbeats(
            HeartbeatRequest(
                worker=self._worker(), free=self._capacity(), beats=self._all_beats([beat for _, _, beat in sent])
            )
        )
        for task, checkpoint, beat in sent:
            task.sent(beat, checkpoint)
        for revocation in answer.revoked:
            self._supervisor.revoke(revocation.task_id, revocation.reason)
        await self._say_stopped()

    async def _say_stopped(self) -> None:
        """Say of revoked tasks that they are over: their slots need not wait until their leases would have run out."""
        if told := tuple(self._supervisor.stopped):
            releases = tuple(Release(task_id=task.task_id, token=task.message.token) for task in told)
            await self._client.releases(ReleaseRequest(worker=self._worker(), releases=releases))
            self._supervisor.stopped = [task for task in self._supervisor.stopped if task not in told]

    def _all_beats(self, running: list[Beat]) -> tuple[Beat, ...]:
        """Return beats of running tasks, and of finished ones whose result nobody has taken yet."""
        return (*running, *self._reporter.beats())

    def _moves(self, task: RunningTask) -> bool:
        return asyncio.get_running_loop().time() <= task.deadline + _OVERTIME_SECONDS
