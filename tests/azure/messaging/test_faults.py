"""Whatever goes wrong at whichever step between outbox, broker and worker: every task runs to one result.

A worker is driven over the real adapter: received, claimed, run when granted, completed. Each hook of the peer strikes
at each step of the protocol at which it makes sense, before and after the peer did what was asked.
"""

import asyncio
from collections import Counter
from typing import Literal

import pytest

from core.statuses import JobStatus
from core.wire import ClaimOutcome
from messaging.servicebus import QueueUnavailable
from messaging.servicebus_tasks import ServiceBusTaskReceiver
from repositories.database import AsyncPool
from tests.peers.servicebus.faults import POSSIBLE, Action, Fault, Step
from tests.peers.servicebus.peer import Peer
from tests.support.engine import Engine, HandWorker
from tests.support.queues import QUEUE
from tests.support.service_bus import BusSide

JOBS = 3
WHEN: tuple[Literal["before", "after"], ...] = ("before", "after")
WORKED = frozenset({Step.PUT_TOKEN, Step.ATTACH, Step.TRANSFER_IN, Step.TRANSFER_OUT, Step.DISPOSITION, Step.RENEW})
CASES = [(step, action, when) for step in Step if step in WORKED for action in sorted(POSSIBLE[step]) for when in WHEN]
LOCK_SECONDS = 1.5
"""So that what is lost comes again soon; a quarter of what Service Bus grants at least."""


class Carousel:
    """One worker over the real adapter that renews, claims, runs and completes whatever comes."""

    def __init__(self, engine: Engine, receiver: ServiceBusTaskReceiver) -> None:
        self._worker = HandWorker(engine)
        self._receiver = receiver
        self.runs: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    async def turn(self) -> None:
        """Deal with what is there."""
        for delivery in await self._receiver.receive(10, 0.5):
            assert delivery.message is not None
            try:
                await self._receiver.renew([delivery])
                (answer,) = await self._worker.claim(delivery.message)
                if answer.outcome is ClaimOutcome.GRANTED:
                    self.runs[delivery.message.task_id] += 1
                    await self._worker.complete(delivery.message)
                else:
                    self.refused[answer.outcome] += 1
                await self._receiver.complete([delivery])
            except QueueUnavailable:
                continue


async def all_ended(engine: Engine, jobs: list[str]) -> bool:
    return all([(await engine.job(job)).status is JobStatus.COMPLETED for job in jobs])


@pytest.mark.parametrize(("step", "action", "when"), CASES, ids=lambda value: str(value))
async def test_nothing_is_lost_and_nothing_done_twice(
    side: BusSide, pool: AsyncPool, peer: Peer, step: Step, action: Action, when: Literal["before", "after"]
) -> None:
    engine = Engine(pool)
    jobs = [await engine.create("echo_test") for _ in range(JOBS)]
    peer.faults.add(Fault(step, action, queue=QUEUE, when=when, seconds=0.3))
    receiver = side.receiver(lock_seconds=LOCK_SECONDS)
    worker = Carousel(engine, receiver)
    side.start_relay()
    async with asyncio.timeout(60):
        while not await all_ended(engine, jobs):
            await worker.turn()
    assert [fault.step for fault, _ in peer.faults.struck] == [step]
    assert sorted(worker.runs.values()) == [1] * JOBS
    (row,) = await engine.query(
        "SELECT count(*) AS results, count(DISTINCT task_id) AS tasks FROM dagapp.dag_task_results"
        " WHERE disposition = 'applied'"
    )
    assert row == {"results": JOBS, "tasks": JOBS}
