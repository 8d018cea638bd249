"""Connections for hot statements: the orchestrator's pool, and the one that a worker receives messages on.

The pool is as `database.async_pool`, without its cost on every checkout; and it lends what came back last, whose server
process has everything at hand, where psycopg's takes turns.

Planning costs more than running these statements, so they are prepared, and their plans do not depend on statistics
(`= ANY(keys)`, no sequential scans). Behind a transaction pooler a prepared statement may not be there any more: then
these are ordinary connections.
"""

import select
import sys
from collections import deque
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from repositories.database import (
    CHECKOUT_TIMEOUT_SECONDS,
    LIFETIME_SECONDS,
    RECONNECT_TIMEOUT_SECONDS,
    AsyncPool,
    Dsn,
    asked,
    async_pool,
    listen,
    make_conninfo,
    per_connection,
    translated,
)
from repositories.piped import PipedConnection

PREPARE_THRESHOLD = sys.maxsize
"""Only transactions that are piped prepare. If psycopg prepared too, it would deallocate all statements, theirs with
its own, after every rollback."""
OPTIONS = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"
"""Messages are read in the order of their index, from its start: a bitmap would read them all, to be sorted.

A scan that cannot be avoided seems so dear that the server would compile the plan, were it not told not to.
"""


class LastFirst(deque[PipedConnection]):
    """Idle connections of a pool."""

    def popleft(self) -> PipedConnection:
        """Take the one that came back last."""
        return self.pop()


class WarmPool(AsyncConnectionPool[PipedConnection]):
    """A pool that lends as few different connections as it can."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._pool = LastFirst()


async def queue_connection(dsn: Dsn, *, name: str, pooled: bool) -> AsyncConnection[Any]:
    """Open the autocommit connection of a receiver; `pooled` says that `dsn` leads to a transaction pooler.

    Nothing on it is ever rolled back, so psycopg may prepare.
    """
    if pooled:
        return await listen(dsn, name=name)
    base = await asked(dsn)
    with translated():
        return await AsyncConnection.connect(
            make_conninfo(base, name), autocommit=True, prepare_threshold=0, options=OPTIONS
        )


def engine_pool(dsn: Dsn, *, name: str, max_size: int, pooled: bool) -> AsyncPool:
    """Return a closed pool; `pooled` says that `dsn` leads to a transaction pooler."""
    if pooled:
        return async_pool(dsn, name=name, max_size=max_size)
    return WarmPool(
        per_connection(dsn, name),
        connection_class=PipedConnection,
        kwargs={"prepare_threshold": PREPARE_THRESHOLD, "options": OPTIONS},
        min_size=2,
        max_size=max_size,
        open=False,
        name=name,
        check=check_if_told,
        timeout=CHECKOUT_TIMEOUT_SECONDS,
        reconnect_timeout=RECONNECT_TIMEOUT_SECONDS,
        max_lifetime=LIFETIME_SECONDS,
    )


async def check_if_told(conn: AsyncConnection[Any]) -> None:
    """Ask the server only when something lies in the idle connection's socket, as it does after the server ended."""
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN)
    if poll.poll(0):
        await AsyncConnectionPool.check_connection(conn)
