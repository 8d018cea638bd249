"""One dedicated autocommit connection that listens, proves that it hears, and comes back by itself.

After every (re)connect it listens first and only then reports every channel once, so that whatever was notified while
nobody listened is found by the poll that follows. A notification to itself proves that nothing (a transaction pooler,
a dead TCP peer) swallows notifications; while that proof is missing, `hears` is False and the owner polls instead.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql

from core.errors import DatabaseUnavailable

log = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
"""Opens a new autocommit connection that belongs to the caller."""

SELF_TEST_TIMEOUT_SECONDS = 2.0
SELF_TEST_INTERVAL_SECONDS = 15.0
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)
CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable, OSError, TimeoutError)


class Listener:
    """Calls `on_wake(channel)` for every notification, and for every channel after each (re)connect."""

    def __init__(
        self,
        connect: Connect,
        channels: Sequence[str],
        on_wake: Callable[[str], None],
        *,
        self_test_interval_seconds: float = SELF_TEST_INTERVAL_SECONDS,
    ) -> None:
        self._connect = connect
        self._channels = tuple(channels)
        self._on_wake = on_wake
        self._interval = self_test_interval_seconds
        self._test_channel = f"dag_selftest_{secrets.token_hex(8)}"
        self._task: asyncio.Task[None] | None = None
        self.hears = asyncio.Event()
        """Set while a self-test has come back on the present connection."""

    def start(self) -> None:
        """Begin to listen in the background."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="listener")

    async def close(self) -> None:
        """Stop and disconnect."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen_once()
            except Exception as error:
                failures = failures + 1 if not self.hears.is_set() else 0
                known = isinstance(error, CONNECTION_ERRORS)
                log.warning("listener lost", extra={"error": type(error).__name__}, exc_info=not known)
            self.hears.clear()
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])

    async def _listen_once(self) -> None:
        """Listen on one connection until it breaks; always leaves by an exception."""
        connection = await self._connect()
        try:
            for channel in (*self._channels, self._test_channel):
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            for channel in self._channels:
                self._on_wake(channel)
            while True:
                await self._prove(connection)
                await self._hear(connection, self._interval)
        finally:
            await connection.close()

    async def _prove(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SELECT pg_notify(%s, '')", (self._test_channel,))
        async with asyncio.timeout(SELF_TEST_TIMEOUT_SECONDS):
            while not await self._hear(connection, None, stop_after=1):
                pass
        self.hears.set()

    async def _hear(
        self, connection: psycopg.AsyncConnection[Any], seconds: float | None, stop_after: int | None = None
    ) -> bool:
        """Pass notifications on; return whether the self-test was among them.

        The generator is always run to its end: what arrived in one packet would be lost by leaving it early.
        """
        proved = False
        async for notification in connection.notifies(timeout=seconds, stop_after=stop_after):
            if notification.channel == self._test_channel:
                proved = True
            else:
                self._on_wake(notification.channel)
        return proved
