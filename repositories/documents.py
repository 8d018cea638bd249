"""Rows out of and into PostgreSQL.

Many rows go in as one bound value, a JSON document that SQL reads back with `jsonb_to_recordset`: one statement writes
any number of rows, JSON null becomes SQL NULL, integers stay exact.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, LiteralString, Protocol, TypeVar

from psycopg import AsyncConnection, AsyncCursor, pq
from psycopg.abc import Transformer
from pydantic import BaseModel
from pydantic_core import to_json

from core.models.table import Table, reader_of
from repositories.piped import PipedConnection

Row = TypeVar("Row")
TableRow = TypeVar("TableRow", bound=Table)
RowFactory = Callable[[AsyncCursor[Any]], Callable[[Sequence[Any]], Row]]


def document_of(**parts: Sequence[object] | Mapping[str, object]) -> str:
    """Return named lists of rows as the text of one JSON object, without empty parts and NULL fields of models."""
    return to_json({name: rows for name, rows in parts.items() if rows}, exclude_none=True).decode()


def rows_of(rows: Sequence[object] | Mapping[str, object]) -> str:
    """Return rows, plain or `alike`, as the text of one JSON value, without NULL fields of models."""
    return to_json(rows, exclude_none=True).decode()


def unless_stale(checks: Sequence[str]) -> str:
    """Return the SELECT that ends a statement: it divides by zero when a row was not as it had been read.

    So the statement fails by itself, and nobody has to look at its answer before the commit, which can travel with it.
    """
    return f"SELECT 1 / (CASE WHEN {' AND '.join(checks) or 'true'} THEN 1 ELSE 0 END)"


def alike(rows: Sequence[BaseModel | Mapping[str, Any]]) -> Mapping[str, object]:
    """Return rows as {every: what all of them say, each: [what one says besides]}, without NULL; empty for none.

    A thousand children differ in little: the server reads such rows in a third of the time. `every` is the base record
    of `jsonb_populate_recordset`.
    """
    if not rows:
        return {}
    if len(rows) == 1:
        return {"every": {}, "each": rows}
    first, *others = [row.__dict__ if isinstance(row, BaseModel) else row for row in rows]
    every = {
        name: value
        for name, value in first.items()
        if value is not None and all(_is_same(other.get(name), value) for other in others)
    }
    each = [
        {name: value for name, value in row.items() if value is not None and name not in every}
        for row in (first, *others)
    ]
    return {"every": every, "each": each}


def _is_same(value: object, other: object) -> bool:
    """Return whether two values are one in JSON: 1, 1.0 and true are equal and three, also within what holds them."""
    if value is other:
        return True
    if type(value) is not type(other) or value != other:
        return False
    return not isinstance(value, dict | list | tuple | float) or value in ({}, [], ())


def document(rows: Sequence[object]) -> str:
    """Return rows as the text of one JSON array."""
    return to_json(rows).decode()


class TableRows(Generic[TableRow]):
    """Makes rows of a table, which need no check: most of what an engine transaction reads."""

    def __init__(self, table: type[TableRow]) -> None:
        self._table = table
        self._readers: dict[str, tuple[int, Callable[[Sequence[Any]], TableRow]]] = {}
        """With the number of columns, by statement: the same text gives the same ones as long as nobody adds any."""

    def __call__(self, cursor: AsyncCursor[Any]) -> Callable[[Sequence[Any]], TableRow]:
        """Return what makes rows of what a cursor reads."""
        return reader_of(self._table, [column.name for column in cursor.description or ()])

    def of_result(self, statement: str, result: pq.abc.PGresult, transformer: Transformer) -> list[TableRow]:
        """Return the rows of a result."""
        count, reader = self._readers.get(statement, (-1, None))
        if reader is None or count != result.nfields:
            reader = reader_of(self._table, [(result.fname(i) or b"").decode() for i in range(result.nfields)])
            self._readers[statement] = result.nfields, reader
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, reader)


@lru_cache
def row_of(table: type[TableRow]) -> TableRows[TableRow]:
    """Return what makes rows of a table."""
    return TableRows(table)


class ShapedRows(Generic[Row]):
    """Makes rows of the columns of one statement, in their order."""

    def __init__(self, make: Callable[[Sequence[Any]], Row]) -> None:
        self._make = make

    def __call__(self, cursor: AsyncCursor[Any]) -> Callable[[Sequence[Any]], Row]:
        """Return what makes rows of what a cursor reads."""
        return self._make

    def of_result(self, statement: str, result: pq.abc.PGresult, transformer: Transformer) -> list[Row]:
        """Return the rows of a result."""
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, self._make)


class Rows(Protocol[Row]):
    """What a statement that was sent will bring."""

    async def fetchall(self) -> list[Row]:
        """Wait for all rows."""


class Pending(Generic[Row]):
    """Rows of a statement that was sent; in pipeline mode several sent together cost one round trip."""

    def __init__(self, source: Rows[Row]) -> None:
        self._source = source

    async def rows(self) -> list[Row]:
        """Wait for the rows."""
        return await self._source.fetchall()


async def send(
    conn: AsyncConnection[Any], factory: RowFactory[Row], statement: LiteralString, values: Any = None
) -> Pending[Row]:
    """Send a statement without waiting for its rows, when the connection is in pipeline mode."""
    pipe = conn.plain_pipe if isinstance(conn, PipedConnection) else None
    if pipe is not None and isinstance(factory, TableRows | ShapedRows):
        return Pending(pipe.ask(statement, values, partial(factory.of_result, statement)))
    cursor = conn.cursor(row_factory=factory)
    await cursor.execute(statement, values)
    return Pending(cursor)
