"""Two callers of the database, each stopped before its transactions begin and before they commit, in a given order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import psycopg

from repositories.database import AsyncPool
from repositories.piped import PipedConnection

GLANCE_SECONDS = 0.003


class Caller:
    """One of them: it goes on only when it is told to."""

    def __init__(self, pool: AsyncPool) -> None:
        self.pool = cast(AsyncPool, _SteppedPool(pool, self))
        self.pid: int | None = None
        """Of the server's process that works for it."""
        self._parked = asyncio.Event()
        self._go = asyncio.Event()
        self._work: asyncio.Future[Any] | None = None

    def start(self, work: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        """Begin; the first stop is before the first transaction."""
        self._work = asyncio.ensure_future(work())
        return self._work

    @property
    def over(self) -> bool:
        """Return whether there is nothing left to do."""
        return self._work is not None and self._work.done()

    async def stop(self) -> None:
        """Wait here until told to go on."""
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
            await asyncio.sleep(GLANCE_SECONDS)
            if self.pid is not None:
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
        async with self._pool.connection(timeout) as lent:
            connection = cast(PipedConnection, lent)
            self._caller.pid = connection.info.backend_pid
            whole = connection.piped

            @asynccontextmanager
            async def piped() -> AsyncIterator[None]:
                async with whole():
                    yield
                    if connection.pipe is not None:
                        await connection.pipe.answers()
                    await self._caller.stop()

            connection.piped = piped  # type: ignore[method-assign]
            try:
                yield connection
            finally:
                del connection.piped
                self._caller.pid = None
