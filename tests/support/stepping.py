"""Two callers of the database, each stopped before its transactions begin and before they commit, in a given order.

A transaction of several statements sees what others commit between them (READ COMMITTED), so a caller may also be
stopped after each of its statements.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Self, cast

import psycopg

from repositories.database import AsyncPool
from repositories.piped import Pipe, PipedConnection, PipedCursor

GLANCE_SECONDS = 0.003


class Stops(Enum):
    """Where a caller is stopped."""

    NOWHERE = "nowhere"
    COMMITS = "before each transaction and before its commit"
    STATEMENTS = "before each transaction and after each statement"


class Caller:
    """One of them: it goes on only when it is told to."""

    def __init__(self, pool: AsyncPool, stops: Stops = Stops.COMMITS) -> None:
        self.pool = cast(AsyncPool, _SteppedPool(pool, self))
        self.stops = stops
        self.pid: int | None = None
        """Of the server's process that works for it."""
        self._parked = asyncio.Event()
        self._go = asyncio.Event()
        self._work: asyncio.Future[Any] | None = None

    def start(self, work: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        """Begin; the first stop is before the first transaction."""
        self._work = asyncio.ensure_future(work())
        self._work.add_done_callback(lambda _: self._parked.set())
        return self._work

    @property
    def over(self) -> bool:
        """Return whether there is nothing left to do."""
        return self._work is not None and self._work.done()

    async def stop(self) -> None:
        """Wait here until told to go on."""
        if self.stops is Stops.NOWHERE:
            return
        self._parked.set()
        await self._go.wait()
        self._go.clear()

    async def step(self, observer: psycopg.AsyncConnection[Any]) -> bool:
        """Go on to the next stop; False when it cannot, because it waits for somebody's lock."""
        if not await self.settled(observer):
            return False
        self._parked.clear()
        self._go.set()
        return await self.settled(observer)

    async def settled(self, observer: psycopg.AsyncConnection[Any]) -> bool:
        """Wait until it stands at a stop or is over; False when it waits for a lock."""
        while not (self.over or self._parked.is_set()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._parked.wait(), GLANCE_SECONDS)
            if self.pid is not None and not self._parked.is_set():
                cursor = await observer.execute("SELECT pg_blocking_pids(%s) <> '{}'", (self.pid,))
                if await cursor.fetchone() == (True,):
                    return False
        return True


async def interleave(order: Sequence[int], callers: Sequence[Caller], observer: psycopg.AsyncConnection[Any]) -> int:
    """Let two callers go on step by step; who waits for a lock is passed over. Return how often that was so."""
    waits = 0
    rest = [*order, *([0, 1] * 50)]
    for chosen in rest:
        if all(caller.over for caller in callers):
            return waits
        for caller in (callers[chosen], callers[1 - chosen]):
            if not caller.over and await caller.step(observer):
                break
            waits += not caller.over
    raise AssertionError("they do not come to an end")


class _SteppedPool:
    """Lends connections of a real pool."""

    def __init__(self, pool: AsyncPool, caller: Caller) -> None:
        self._pool = pool
        self._caller = caller

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[PipedConnection]:  # noqa: ASYNC109 — psycopg's name
        """Lend a connection for one transaction, with a stop before it and one before its commit."""
        await self._caller.stop()
        async with self._pool.connection(timeout) as connection:
            self._caller.pid = connection.info.backend_pid
            whole = connection.piped

            @asynccontextmanager
            async def piped() -> AsyncIterator[None]:
                connection.cursor_factory = PipedCursor
                async with whole():
                    if connection.pipe is not None and self._caller.stops is Stops.STATEMENTS:
                        await connection.pipe.answers()
                        connection.pipe = _SteppedPipe(connection, self._caller)
                    yield
                    if connection.pipe is not None and self._caller.stops is Stops.COMMITS:
                        await connection.pipe.answers()
                        await self._caller.stop()

            connection.piped = piped  # type: ignore[method-assign]
            if self._caller.stops is Stops.STATEMENTS:
                connection.cursor_factory = _stepped_cursor(self._caller)
            try:
                yield connection
            finally:
                del connection.piped
                connection.cursor_factory = PipedCursor
                self._caller.pid = None


class _SteppedPipe(Pipe):
    """Sends each statement by itself and stops when it has been answered."""

    def __init__(self, connection: PipedConnection, caller: Caller) -> None:
        super().__init__(connection)
        self._caller = caller
        self._unsent: deque[tuple[Any, ...]] = deque()

    def send(self, *statement: Any) -> None:
        """Keep a statement until somebody asks for answers."""
        self._unsent.append(statement)

    def part(self) -> None:
        """Each statement is a part of its own."""

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Send what is there one by one, and read what else is to come."""
        await self.answers()
        await super().until(is_there)

    async def answers(self) -> None:
        """Send what is there one by one."""
        while self._unsent:
            super().send(*self._unsent.popleft())
            await super().answers()
            await self._caller.stop()
        await super().answers()

    async def commit(self) -> None:
        """Send what is there one by one, then commit."""
        await self.answers()
        await super().commit()


def _stepped_cursor(caller: Caller) -> type[PipedCursor]:
    """Return cursors, for transactions that are not piped, that stop after each statement."""

    class SteppedCursor(PipedCursor):
        async def execute(self, *statement: Any, **how: Any) -> Self:
            await super().execute(*statement, **how)
            await caller.stop()
            return self

    return SteppedCursor
