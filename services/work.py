"""The engine's unit of work: one transaction whose statements travel together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from repositories.database import AsyncPool, translated

Connection = AsyncConnection[Any]


@asynccontextmanager
async def pipelined(pool: AsyncPool) -> AsyncIterator[Connection]:
    """Lend a connection inside one transaction whose statements travel together; the commit goes with the last ones.

    Raises:
        DatabaseUnavailable: As `repositories.database.transaction`.
    """
    with translated():
        async with pool.connection() as conn, conn.piped():
            yield conn
