"""Virtual time, and one thing at a time: which coroutine goes on next is drawn from the seed.

Every coroutine belongs to a process and gives up its turn by `pause`: before each transaction, while it waits for time,
for an answer, or for nothing. Between two turns nothing else runs, so a history is a function of its seed.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Virtual time begins in the past of every real machine, so nothing that really happens looks late."""
STEP_SECONDS = 60.0
"""Real seconds after which a step counts as hanging."""
MAX_STEPS = 100_000
CURRENT: contextvars.ContextVar["Process"] = contextvars.ContextVar("current")
"""The process whose coroutine it is that runs."""
TICK_SECONDS = 0.02


class SimulationError(Exception):
    """The simulation itself cannot go on: a step hangs, or nothing can happen any more."""


@dataclass(eq=False)
class Process:
    """Coroutines that crash, pause and resume together."""

    name: str
    paused: bool = False
    cut_off_until: float = 0.0
    """Until then no call of it reaches anybody."""
    alive: bool = True
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class _Parked:
    process: Process
    ready_at: float
    event: "asyncio.Future[Any] | None"
    go: "asyncio.Future[None]"

    def is_ready(self, now: float) -> bool:
        return self.ready_at <= now or (self.event is not None and self.event.done())


class World:
    """The scheduler of one history."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.failures: list[BaseException] = []
        self._parked: list[_Parked] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._running = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def monotonic(self) -> float:
        """Return virtual seconds; production modules that read a monotonic clock get the world as their `time`."""
        return self.now

    @property
    def clock(self) -> datetime:
        """Return what the database's clock shows."""
        return START + timedelta(seconds=self.now)

    def at(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen between two steps, `seconds` from now."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def spawn(self, process: Process, work: Callable[[], Awaitable[Any]], name: str) -> None:
        """Start a coroutine of a process; it gets its first turn later."""

        async def body() -> None:
            CURRENT.set(process)
            try:
                await self.pause(process)
                await work()
            except asyncio.CancelledError:
                if process.alive:
                    raise
            except BaseException as error:  # noqa: BLE001 — a history with a failed coroutine is reported
                self.failures.append(error)
            finally:
                process.tasks.discard(task)
                self._leave()

        self._enter()
        task = asyncio.create_task(body(), name=f"{process.name} {name}")
        process.tasks.add(task)

    async def pause(self, process: Process, seconds: float = 0.0, event: "asyncio.Future[Any] | None" = None) -> None:
        """Give up the turn until `seconds` have passed or `event` is done; never returns to a dead process."""
        if not process.alive:
            raise asyncio.CancelledError
        go: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(_Parked(process, self.now + seconds, event, go))
        self._leave()
        await go

    def crash(self, process: Process) -> None:
        """End all coroutines of a process where they stand; to be called between two steps."""
        process.alive = False
        for parked in [one for one in self._parked if one.process is process]:
            self._parked.remove(parked)
            self._enter()
            parked.go.cancel()

    async def run(self, done: Callable[[], bool]) -> None:
        """Let things happen until it is done.

        Raises:
            SimulationError: It cannot be done any more.
        """
        while True:
            await self._settled()
            if self.failures or done():
                return
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise SimulationError(f"not over after {MAX_STEPS} steps, at {self.now:.0f} virtual seconds")
            self._step()

    def _step(self) -> None:
        self.now += self.chance.random() * TICK_SECONDS
        if self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
            return
        able = [parked for parked in self._parked if not parked.process.paused]
        ready = [parked for parked in able if parked.is_ready(self.now)]
        if not ready:
            times = [parked.ready_at for parked in able] + [event[0] for event in self._events[:1]]
            if not times:
                raise SimulationError(f"nothing can happen any more at {self.now:.0f} virtual seconds")
            self.now = max(self.now, min(times))
            return
        chosen = self.chance.choice(ready)
        self._parked.remove(chosen)
        self._enter()
        chosen.go.set_result(None)

    async def close(self) -> None:
        """End everything that still waits."""
        for process in {parked.process for parked in self._parked}:
            self.crash(process)
        await self._settled()

    def _enter(self) -> None:
        self._running += 1
        self._quiet.clear()

    def _leave(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._quiet.set()

    async def _settled(self) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                await self._quiet.wait()
        except TimeoutError:
            raise SimulationError(f"a step did not end within {STEP_SECONDS:g} real seconds") from None
