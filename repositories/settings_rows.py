"""Switches that every instance reads, for example `pause:all`."""

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb


class SettingRepository:
    """SQL on `dag_settings`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of those of the keys that are set."""
        cursor = await self._conn.execute(
            "SELECT key, value FROM dagapp.dag_settings WHERE key = ANY(%s)", (list(keys),)
        )
        return {row[0]: row[1] for row in await cursor.fetchall()}

    async def put(self, key: str, value: Any, updated_by: str) -> None:
        """Set one switch."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_settings (key, value, updated_by, updated_at)
            VALUES (%s, %s, %s, dagapp.clock())
            ON CONFLICT (key) DO UPDATE
            SET value = excluded.value, updated_by = excluded.updated_by, updated_at = excluded.updated_at
            """,
            (key, Jsonb(value), updated_by),
        )
