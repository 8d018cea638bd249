"""Answers to batches of submits by their idempotency key, in the caller's transaction."""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb
from pydantic.dataclasses import dataclass as checked

Json = dict[str, Any]


@checked(frozen=True, slots=True)
class StoredBatch:
    """What a key was used for, and the results that are settled, by index."""

    body_hash: str
    results: Json


class SubmitBatchRepository:
    """SQL on `submit_batches`."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def claim(self, platform_id: str, key: str, body_hash: str) -> StoredBatch:
        """Bind a key to a body unless it is bound already, and return what it is bound to."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.submit_batches (platform_id, idempotency_key, body_hash) VALUES (%s, %s, %s)
            ON CONFLICT DO NOTHING
            """,
            (platform_id, key, body_hash),
        )
        async with self._conn.cursor(row_factory=class_row(StoredBatch)) as cursor:
            await cursor.execute(
                """
                SELECT body_hash, results FROM dagapp.submit_batches WHERE platform_id = %s AND idempotency_key = %s
                """,
                (platform_id, key),
            )
            return (await cursor.fetchall())[0]

    async def settle(self, platform_id: str, key: str, results: Mapping[str, Json]) -> Json:
        """Add results by index and return all; those that were settled before stay."""
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(
                """
                UPDATE dagapp.submit_batches SET results = %s || results
                WHERE platform_id = %s AND idempotency_key = %s
                RETURNING results
                """,
                (Jsonb(dict(results)), platform_id, key),
            )
            return dict((await cursor.fetchall())[0])
