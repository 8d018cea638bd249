"""Rows out of and into PostgreSQL.

Many rows go in as one bound value, a JSON document that SQL reads back with `jsonb_to_recordset`: one statement writes
any number of rows, JSON null becomes SQL NULL, integers stay exact.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, LiteralString, TypeVar

from psycopg import AsyncConnection, AsyncCursor
from pydantic_core import to_json

from core.models.table import Table

Row = TypeVar("Row")
TableRow = TypeVar("TableRow", bound=Table)
RowFactory = Callable[[AsyncCursor[Any]], Callable[[Sequence[Any]], Row]]


def document_of(**parts: Sequence[object]) -> str:
    """Return named lists of rows as the text of one JSON object, without empty parts and NULL fields of models."""
    return to_json({name: rows for name, rows in parts.items() if rows}, exclude_none=True).decode()


def document(rows: Sequence[object]) -> str:
    """Return rows as the text of one JSON array."""
    return to_json(rows).decode()


def row_of(table: type[TableRow]) -> RowFactory[TableRow]:
    """Return what makes rows of a table, which need no check: most of what an engine transaction reads."""

    def factory(cursor: AsyncCursor[Any]) -> Callable[[Sequence[Any]], TableRow]:
        names = [column.name for column in cursor.description or ()]
        return lambda values: table.of_row(dict(zip(names, values, strict=True)))

    return factory


class Pending(Generic[Row]):
    """Rows of a statement that was sent; in pipeline mode several sent together cost one round trip."""

    def __init__(self, cursor: AsyncCursor[Row]) -> None:
        self._cursor = cursor

    async def rows(self) -> list[Row]:
        """Wait for the rows."""
        return await self._cursor.fetchall()


async def send(
    conn: AsyncConnection[Any], factory: RowFactory[Row], statement: LiteralString, values: Any = None
) -> Pending[Row]:
    """Send a statement without waiting for its rows, when the connection is in pipeline mode."""
    cursor = conn.cursor(row_factory=factory)
    await cursor.execute(statement, values)
    return Pending(cursor)
