"""Turns at jobs: who comes later waits, but not for ever, and only for whom it concerns."""

import asyncio
from collections.abc import Collection

import pytest

from services.turns import Turns


class Callers:
    """Calls that note when they begin and end, and end when they are told to."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.seen: list[str] = []
        self.begun: dict[str, asyncio.Event] = {}
        self._may_end: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def _call(self, name: str, jobs: Collection[str]) -> None:
        async with self.turns.taken(jobs):
            self.seen.append(f"{name} begins")
            self.begun[name].set()
            await self._may_end[name].wait()
            self.seen.append(f"{name} ends")

    async def come(self, name: str, *jobs: str) -> asyncio.Task[None]:
        self._may_end[name], self.begun[name] = asyncio.Event(), asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._call(name, jobs))
        await _everybody_moves()
        return self._tasks[name]

    async def end(self, name: str) -> None:
        self._may_end[name].set()
        await self._tasks[name]
        await _everybody_moves()


async def _everybody_moves() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_about_one_job_follow_each_other_in_their_order() -> None:
    callers = Callers()
    for name in ("first", "second", "third"):
        await callers.come(name, "job")
    assert callers.seen == ["first begins"]
    for name in ("first", "second", "third"):
        await callers.end(name)
    assert callers.seen == [f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")]


async def test_calls_about_other_jobs_wait_for_nobody_and_one_job_in_common_is_enough_to_wait() -> None:
    callers = Callers()
    await callers.come("first", "a", "b")
    await callers.come("other", "c")
    await callers.come("none")
    await callers.come("both", "b", "c")
    assert callers.seen == ["first begins", "other begins", "none begins"]
    await callers.end("other")
    assert callers.seen[-1] == "other ends"
    await callers.end("first")
    assert callers.seen[-2:] == ["first ends", "both begins"]
    await callers.end("both")


async def test_a_call_that_gives_up_holds_nobody_and_nothing_is_kept() -> None:
    callers = Callers()
    await callers.come("first", "job")
    waiting = await callers.come("second", "job")
    await callers.come("third", "job")
    waiting.cancel()
    await _everybody_moves()
    assert callers.seen == ["first begins", "third begins"]  # the job's row lock is what keeps these two apart
    await callers.end("third")
    await callers.end("first")
    assert not any(vars(callers.turns).values())


async def test_nobody_waits_longer_than_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.turns.MOST_SECONDS", 0.01)
    callers = Callers()
    await callers.come("slow", "job")
    await callers.come("second", "job")
    await asyncio.wait_for(callers.begun["second"].wait(), 5)
    assert callers.seen == ["slow begins", "second begins"]
    await callers.end("second")
    await callers.end("slow")


async def test_whoever_comes_next_begins_before_the_caller_before_goes_on() -> None:
    turns, seen, may_end = Turns(), list[str](), asyncio.Event()

    async def call(name: str, job: str) -> None:
        async with turns.taken((job,)):
            seen.append(f"{name} begins")
            await may_end.wait()
        seen.append(f"{name} goes on")

    async with asyncio.TaskGroup() as calls:
        for name, job in (("first", "job"), ("second", "job"), ("other", "another")):
            calls.create_task(call(name, job))
        await _everybody_moves()
        may_end.set()
    assert seen[:3] == ["first begins", "other begins", "other goes on"]  # nobody waits for it
    assert seen.index("second begins") < seen.index("first goes on")
