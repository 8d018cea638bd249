"""The only door of inline handlers to the database: a short transaction under their attempt's fence."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from repositories import fence
from repositories.database import AsyncPool, transaction


def fenced(pool: AsyncPool) -> Callable[[str, str], AbstractAsyncContextManager[AsyncConnection[Any]]]:
    """Return a function (task_id, token) -> transaction that commits only while the attempt is leased.

    The transaction raises `FenceLost` when the attempt is not, and `DatabaseUnavailable` without a database.
    """

    @asynccontextmanager
    async def open_transaction(task_id: str, token: str) -> AsyncIterator[AsyncConnection[Any]]:
        async with transaction(pool) as conn:
            await fence.hold(conn, task_id, token)
            yield conn

    return open_transaction
