"""What statements really do with tables: recorded as the engine sends them, run again under EXPLAIN."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from psycopg import AsyncConnection, sql
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

from repositories.engine_pool import OPTIONS
from repositories.piped import PipedCursor

Recorded = dict[str, Any]
"""Statements with their newest values."""


def recording(statements: Recorded) -> type[PipedCursor]:
    """Return a cursor that keeps each statement with its newest values."""

    class Recording(PipedCursor):
        async def execute(self, query: Any, params: Any = None, **more: Any) -> Any:
            if isinstance(query, str) and ("dagapp." in query or "dagqueue." in query):
                statements[query] = params
            return await super().execute(query, params, **more)

    return Recording


def repeatable(query: str) -> str:
    """Return a statement without what it can do or find only once: rows as they had been read, attempts to insert."""
    once = query.replace("SELECT 1 / (CASE WHEN", "SELECT (CASE WHEN")
    inserted = "%(new_attempts)s::jsonb -> 'each')"
    return once.replace(inserted, f"{inserted} ON CONFLICT DO NOTHING")


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of a plan, and how many rows or index entries it visited."""

    table: str
    kind: str
    visited: float


class Session:
    """A session like those of the engine's pool: a statement keeps the plan that it got at first."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn
        self._names: dict[tuple[bytes, tuple[int, ...]], sql.Identifier] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, dsn: str) -> AsyncIterator[Self]:
        """Yield a session."""
        async with await AsyncConnection.connect(dsn, options=OPTIONS, prepare_threshold=None) as conn:
            yield cls(conn)

    async def scans(self, query: str, values: Any) -> list[Scan]:
        """Run a statement, roll it back, and return the scans of its plan."""
        asked = PostgresQuery(Transformer(self._conn))
        asked.convert(re.sub(r"%(\(\w+\))?s", r"%\1t", repeatable(query)), values)
        name = await self._prepared(asked)
        arguments = sql.SQL("({})").format(sql.SQL(", ").join(_literals(asked))) if asked.params else sql.SQL("")
        explain = sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) EXECUTE {}{}").format(name, arguments)
        try:
            (plans,) = await (await self._conn.execute(explain)).fetchone() or ([],)
        finally:
            await self._conn.rollback()
        return list(_scans(plans[0]["Plan"], None))

    async def _prepared(self, asked: PostgresQuery) -> sql.Identifier:
        key = (asked.query, tuple(asked.types))
        if key not in self._names:
            self._names[key] = name = sql.Identifier(f"asked_{len(self._names)}")
            types = ", ".join([await self._type_name(oid) for oid in asked.types])
            prepare = sql.SQL("PREPARE {}{} AS ").format(name, sql.SQL(f"({types})" if types else ""))  # type: ignore[arg-type]
            await self._conn.execute(prepare.as_bytes(self._conn) + asked.query)
        return self._names[key]

    async def _type_name(self, oid: int) -> str:
        if oid == 0:
            return "unknown"
        cursor = await self._conn.execute("SELECT format_type(%s, NULL)", (oid,))
        (name,) = await cursor.fetchone() or ("",)
        return str(name)


def _literals(asked: PostgresQuery) -> Iterator[sql.Composable]:
    for value in asked.params or ():
        yield sql.SQL("NULL") if value is None else sql.Literal(bytes(value).decode())


def _scans(plan: Mapping[str, Any], table: str | None) -> Iterator[Scan]:
    """Yield every scan below a plan's node; that of a bitmap's index counts for the table it belongs to."""
    table = plan.get("Relation Name", table)
    if table is not None and "Scan" in plan["Node Type"]:
        removed = plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
        yield Scan(table, plan["Node Type"], (plan["Actual Rows"] + removed) * max(plan["Actual Loops"], 1))
    for child in plan.get("Plans", ()):
        yield from _scans(child, table if plan["Node Type"].startswith("Bitmap") else None)
