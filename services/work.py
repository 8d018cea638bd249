"""The engine's unit of work: one transaction whose statements travel together."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection, errors
from pydantic_core import PydanticSerializationError

from core.errors import GeodagError
from repositories.database import AsyncPool, translated
from repositories.piped import PipedConnection

Connection = AsyncConnection[Any]


class StaleWrite(GeodagError):
    """A row was not in the state that the decision had started from; the transaction rolls back."""

    code = "STALE_WRITE"


class Unwritable(GeodagError):
    """What was to be written is nothing that the database takes, and will not be the next time either."""

    code = "UNWRITABLE"


def begin_meanwhile(conn: Connection) -> None:
    """Let the server work on the statements so far while this process makes the next ones; worth it for large ones."""
    if isinstance(conn, PipedConnection) and conn.pipe is not None:
        conn.pipe.hurry()


def read_meanwhile(conn: Connection) -> None:
    """Let the answers so far be read while the server works on the statements that follow."""
    if isinstance(conn, PipedConnection) and conn.pipe is not None:
        conn.pipe.part()


def after_commit(conn: Connection, do: Callable[[], None]) -> None:
    """Do something once the transaction has committed; at once on a connection that does not tell when."""
    if isinstance(conn, PipedConnection) and conn.pipe is not None:
        conn.after_commit.append(do)
    else:
        do()


@asynccontextmanager
async def pipelined(pool: AsyncPool) -> AsyncIterator[Connection]:
    """Lend a connection inside one transaction whose statements travel together; the commit goes with the last ones.

    Raises:
        DatabaseUnavailable: As `repositories.database.transaction`.
        StaleWrite: A statement of `repositories.decisions` found a row in another state.
        Unwritable: A value cannot be stored.
    """
    try:
        with translated():
            async with pool.connection() as conn, conn.piped():
                yield conn
    except errors.DivisionByZero as error:
        raise StaleWrite("a row was not any more as it had been read") from error
    except (errors.DataError, PydanticSerializationError) as error:
        raise Unwritable(f"a value cannot be stored: {type(error).__name__}") from error
