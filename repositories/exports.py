"""What versions know of their copies in the external zone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One version: what there is to export, and its copy."""

    asset_id: str
    version_ordinal: int
    revision: int
    blob_path: str | None
    blob_size_bytes: int | None
    is_tiled: bool
    """Its file is an overview of many; those are not exported."""
    external_blob_path: str | None
    adf_run_id: str | None


class ExportRepository:
    """SQL on the columns of `asset_versions` that tell of copies, in a transaction that holds the asset's lock."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def of(self, asset_id: str, ordinals: Sequence[int]) -> list[Export]:
        """Return these versions, lowest first."""
        async with self._conn.cursor(row_factory=class_row(Export)) as cursor:
            await cursor.execute(
                """
                SELECT asset_id, version_ordinal, revision, blob_path, blob_size_bytes,
                       tiles_path IS NOT NULL AS is_tiled, external_blob_path, adf_run_id
                FROM dagapp.asset_versions
                WHERE asset_id = %s AND version_ordinal = ANY(%s)
                ORDER BY version_ordinal
                """,
                (asset_id, list(ordinals)),
            )
            return await cursor.fetchall()

    async def remember(self, asset_id: str, ordinal: int, path: str, run_id: str) -> None:
        """Write where the copy lies and which run made it."""
        await self._store(asset_id, ordinal, path, run_id)

    async def forget(self, asset_id: str, ordinal: int) -> None:
        """Write that there is no copy: nobody is led to it from now on."""
        await self._store(asset_id, ordinal, None, None)

    async def _store(self, asset_id: str, ordinal: int, path: str | None, run_id: str | None) -> None:
        await self._conn.execute(
            """
            UPDATE dagapp.asset_versions
            SET external_blob_path = %s, adf_run_id = %s, updated_at = dagapp.clock()
            WHERE asset_id = %s AND version_ordinal = %s
            """,
            (path, run_id, asset_id, ordinal),
        )
