"""Any two of the things that happen to one attempt, in every order of their locks and commits, on the real server.

Whatever the order is, nobody deadlocks, nothing is granted or counted twice, and the job comes to its one end.
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg import AsyncConnection

from core.errors import Conflict
from core.statuses import ATTEMPT_FINAL, JOB_FINAL
from core.wire import ClaimAnswer, Release, ResultAnswer, TaskMessage
from tests.support.databases import Database
from tests.support.engine import Engine, HandWorker, beats_of
from tests.support.stepping import Caller, interleave

ORDERS = ((0, 1, 0, 1), (0, 1, 1, 0), (1, 0, 0, 1), (1, 0, 1, 0))
"""Who takes the next step; the first step of each leads up to its commit."""
ROUNDS = 6


@dataclass(frozen=True)
class Scene:
    """An attempt, and somebody who does something to it."""

    worker: HandWorker
    job_id: str
    message: TaskMessage

    @property
    def engine(self) -> Engine:
        return self.worker.engine


Act = Callable[[Scene], Awaitable[Any]]


async def claim(scene: Scene) -> Any:
    return await scene.worker.claim(scene.message)


async def advance(scene: Scene) -> Any:
    return await scene.engine.advance(scene.job_id)


async def cancel(scene: Scene) -> Any:
    return await scene.engine.order(scene.job_id, "cancel")


async def pause(scene: Scene) -> Any:
    return await scene.engine.order(scene.job_id, "pause")


async def beat(scene: Scene) -> Any:
    return await scene.worker.beat(*beats_of([scene.message]))


async def complete(scene: Scene) -> Any:
    return await scene.worker.complete(scene.message)


async def release(scene: Scene) -> Any:
    return await scene.worker.report(Release(task_id=scene.message.task_id, token=scene.message.token))


QUEUED: Mapping[str, Act] = {"claim": claim, "send again": advance, "cancel": cancel, "pause": pause}
LEASED: Mapping[str, Act] = {
    "beat": beat,
    "result": complete,
    "release": release,
    "expiry": advance,
    "cancel": cancel,
}


async def play(
    engine: Engine, observer: AsyncConnection[Any], acts: Mapping[str, Act], *, leased: bool
) -> Counter[str]:
    """Play every pair of acts in every order; return how the jobs ended."""
    ends: Counter[str] = Counter()
    waits = 0
    pairs = itertools.combinations_with_replacement(acts, 2)
    for first, second, order in [
        (*pair, order) for pair in pairs for order in ORDERS[: 2 if pair[0] == pair[1] else 4]
    ]:
        job_id = await engine.create("echo_test")
        message = await engine.message(job_id)
        if leased:
            await HandWorker(engine).claim(message)
            await engine.lapse(message.task_id)
        else:
            await engine.query("UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock()")
        callers = [Caller(engine.pool), Caller(engine.pool)]
        scenes = [
            Scene(HandWorker(Engine(one.pool, engine.catalogue), f"worker-{number}"), job_id, message)
            for number, one in enumerate(callers)
        ]
        calls = [
            one.start(lambda act=acts[name], scene=scene: act(scene))
            for one, name, scene in zip(callers, (first, second), scenes, strict=True)
        ]
        waits += await interleave(order, callers, observer)
        story = f"{first} and {second} in the order {order}"
        answers = [answer for call in calls for answer in answers_of(call)]
        ends[await end_of(engine, job_id, answers, story)] += 1
    assert waits > ROUNDS
    return ends


def answers_of(call: Any) -> Sequence[Any]:
    """Return what a caller was told; only a conflict may be raised."""
    error = call.exception()
    assert error is None or isinstance(error, Conflict), error
    answer = None if error else call.result()
    return answer if isinstance(answer, list) else [answer]


async def end_of(engine: Engine, job_id: str, answers: Sequence[Any], story: str) -> str:
    """Bring a job to its end and say what it is, when nothing of it is doubled or left over."""
    granted = [one.task_id for one in answers if isinstance(one, ClaimAnswer) and one.outcome == "granted"]
    applied = [one.task_id for one in answers if isinstance(one, ResultAnswer) and one.disposition == "applied"]
    assert len(granted) == len(set(granted)), story
    assert len(applied) == len(set(applied)), story
    worker = HandWorker(engine)
    for _ in range(ROUNDS):
        job = await engine.job(job_id)
        if job.status in JOB_FINAL:
            break
        if job.paused_at is not None:
            await engine.order(job_id, "resume")
        await engine.advance(job_id)
        for message in await engine.messages(job_id):
            (claimed,) = await worker.claim(message)
            if claimed.outcome == "granted":
                await worker.complete(message)
        for row in await engine.query("SELECT task_id FROM dagapp.dag_attempts WHERE state = 'leased'"):
            await engine.lapse(row["task_id"])
    events = Counter(await engine.events(job_id))
    assert sum(events[f"job_{end}"] for end in ("completed", "cancelled", "failed")) == 1, (story, events)
    states = await engine.query("SELECT state FROM dagapp.dag_attempts WHERE job_id = %s", job_id)
    assert {row["state"] for row in states} <= ATTEMPT_FINAL, story
    results = await engine.query("SELECT processed FROM dagapp.dag_task_results WHERE job_id = %s", job_id)
    assert all(row["processed"] for row in results), story
    return job.status.value


@pytest.mark.parametrize(("acts", "leased"), [(QUEUED, False), (LEASED, True)], ids=["queued", "leased"])
async def test_any_two_acts_on_an_attempt_in_any_order_leave_one_end(
    engine: Engine, database: Database, acts: Mapping[str, Act], leased: bool
) -> None:
    async with await AsyncConnection.connect(database.admin, autocommit=True) as observer:
        ends = await play(engine, observer, acts, leased=leased)
    assert set(ends) == {"COMPLETED", "CANCELLED"}
