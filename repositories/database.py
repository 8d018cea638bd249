"""Connections to PostgreSQL: pools that survive its restarts, and one meaning for "it is not there now".

`prepare_threshold=None` keeps everything usable behind a transaction pooler. Pools check a connection before they lend
it and give up on a reconnect after seconds, so that the next caller starts a fresh attempt instead of waiting out a
backoff that grew while the server was away.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection, conninfo, errors
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from core.errors import DatabaseUnavailable, GeodagError
from repositories.piped import PipedConnection

AsyncPool = AsyncConnectionPool[PipedConnection]
SyncPool = ConnectionPool[Connection[Any]]

CONNECTION_PARAMETERS: Final = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
RECONNECT_TIMEOUT_SECONDS: Final = 3.0
CHECKOUT_TIMEOUT_SECONDS: Final = 10.0
LIFETIME_SECONDS: Final = 1800.0
"""After which a pooled connection is replaced."""

_TRY_AGAIN: Final = (
    PoolTimeout,
    PoolClosed,
    TooManyRequests,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.TooManyConnections,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)
"""Errors of pool and server that say nothing against the statement."""
_CLASSES: Final = frozenset({"08", "53", "57"})
"""Lost connection, insufficient resources, operator intervention (shutdown, starting up)."""


Dsn = str | Callable[[], str]
"""A connection string, or what returns one for each connection, as passwords that expire need; it may block."""


def make_conninfo(base: str, application_name: str) -> str:
    """Return a connection string with keepalives, timeouts and the name that `pg_stat_activity` shows."""
    return conninfo.make_conninfo(base, application_name=application_name[:63], **CONNECTION_PARAMETERS)


def text_of(dsn: Dsn) -> str:
    """Return the connection string of now."""
    return dsn if isinstance(dsn, str) else dsn()


async def asked(dsn: Dsn) -> str:
    """Return the connection string of now, without holding up the event loop."""
    return dsn if isinstance(dsn, str) else await asyncio.to_thread(dsn)


def per_connection(dsn: Dsn, name: str) -> str | Callable[[], Awaitable[str]]:
    """Return what an asynchronous pool takes: text, or a function that it awaits before each connect."""
    if isinstance(dsn, str):
        return make_conninfo(dsn, name)

    async def ask() -> str:
        return make_conninfo(await asked(dsn), name)

    return ask


def async_pool(
    dsn: Dsn, *, name: str, min_size: int = 2, max_size: int = 10, max_lifetime_seconds: float = LIFETIME_SECONDS
) -> AsyncPool:
    """Return a closed pool; `async with` opens it without waiting, so a process may start before its database."""
    return AsyncConnectionPool(
        per_connection(dsn, name),
        connection_class=PipedConnection,
        kwargs={"prepare_threshold": None},
        min_size=min_size,
        max_size=max_size,
        open=False,
        name=name,
        check=AsyncConnectionPool.check_connection,
        timeout=CHECKOUT_TIMEOUT_SECONDS,
        reconnect_timeout=RECONNECT_TIMEOUT_SECONDS,
        max_lifetime=max_lifetime_seconds,
    )


def sync_pool(dsn: Dsn, *, name: str, min_size: int = 1, max_size: int = 4) -> SyncPool:
    """Return a closed pool for threads, as serving's tile endpoints are; autocommit, for single reads."""
    return ConnectionPool(
        make_conninfo(dsn, name) if isinstance(dsn, str) else lambda: make_conninfo(dsn(), name),
        kwargs={"prepare_threshold": None, "autocommit": True},
        min_size=min_size,
        max_size=max_size,
        open=False,
        name=name,
        check=ConnectionPool.check_connection,
        timeout=CHECKOUT_TIMEOUT_SECONDS,
        reconnect_timeout=RECONNECT_TIMEOUT_SECONDS,
    )


@asynccontextmanager
async def transaction(pool: AsyncPool, timeout_seconds: float | None = None) -> AsyncIterator[AsyncConnection[Any]]:
    """Lend a connection inside one transaction: commit at the end, roll back on an error.

    Raises:
        DatabaseUnavailable: No connection, it broke, or the server asks to try again; nothing is known to be
            committed then, except when the connection broke during the commit itself.
    """
    with translated():
        async with pool.connection(timeout_seconds) as conn, conn.transaction():
            yield conn


@asynccontextmanager
async def snapshot(pool: AsyncPool) -> AsyncIterator[AsyncConnection[Any]]:
    """Lend a connection that only reads and whose statements all see one moment; raises what `transaction` raises."""
    async with transaction(pool) as conn:
        await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield conn


@asynccontextmanager
async def undone_unless_whole(conn: AsyncConnection[Any]) -> AsyncIterator[None]:
    """Take back what was written inside when it ends with an error of ours; the transaction goes on.

    Statements, because psycopg's own nested transactions do not work while it pipelines.
    """
    await conn.execute("SAVEPOINT whole")
    try:
        yield
    except GeodagError:
        await conn.execute("ROLLBACK TO SAVEPOINT whole")
        raise
    await conn.execute("RELEASE SAVEPOINT whole")


@contextmanager
def read(pool: SyncPool, timeout_seconds: float | None = None) -> Iterator[Connection[Any]]:
    """Lend an autocommit connection for reads to a thread; raises `DatabaseUnavailable` as `transaction` does."""
    with translated(), pool.connection(timeout_seconds) as conn:
        yield conn


async def listen(dsn: Dsn, *, name: str) -> AsyncConnection[Any]:
    """Open the autocommit connection of a listener, which goes past any pooler."""
    base = await asked(dsn)
    with translated():
        return await AsyncConnection.connect(make_conninfo(base, name), autocommit=True, prepare_threshold=None)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what may go away by itself into `DatabaseUnavailable`; every other error passes as it is."""
    try:
        yield
    except psycopg.Error as error:
        if not is_unavailable(error):
            raise
        raise DatabaseUnavailable(f"the database is not available: {type(error).__name__}") from error


def is_unavailable(error: BaseException) -> bool:
    """Return whether trying again later can help, as after a restart, a lost connection or a lock timeout."""
    if isinstance(error, _TRY_AGAIN):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate[:2] in _CLASSES


def lost_to_a_lock(error: DatabaseUnavailable) -> bool:
    """Return whether the database is there, but somebody held a row for too long."""
    return isinstance(error.__cause__, errors.LockNotAvailable | errors.DeadlockDetected)
