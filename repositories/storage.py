"""What the versions of each platform take."""

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformStorage:
    """What one platform's versions take."""

    platform_id: str
    versions: int
    published_bytes: int
    other_bytes: int
    """Of versions that are pending, rejected, revoked or superseded."""
    deleted_bytes: int
    external_copies: int


async def storage(conn: Connection) -> list[PlatformStorage]:
    """Return what the versions of each platform take, the largest first; raw files of bronze are not counted."""
    async with conn.cursor(row_factory=class_row(PlatformStorage)) as cursor:
        await cursor.execute(
            """
            SELECT platform_id, count(*)::integer AS versions,
                   coalesce(sum(bytes) FILTER (WHERE NOT gone AND approval_state = 'approved'), 0)::bigint
                       AS published_bytes,
                   coalesce(sum(bytes) FILTER (WHERE NOT gone AND approval_state <> 'approved'), 0)::bigint
                       AS other_bytes,
                   coalesce(sum(bytes) FILTER (WHERE gone), 0)::bigint AS deleted_bytes,
                   (count(*) FILTER (WHERE external_blob_path IS NOT NULL))::integer AS external_copies
            FROM (SELECT a.platform_id, v.approval_state, v.external_blob_path,
                         coalesce(v.blob_size_bytes, 0) AS bytes,
                         v.deleted_at IS NOT NULL OR a.deleted_at IS NOT NULL AS gone
                  FROM dagapp.asset_versions AS v JOIN dagapp.geospatial_assets AS a USING (asset_id)) AS one
            GROUP BY platform_id ORDER BY sum(bytes) DESC, platform_id
            """
        )
        return await cursor.fetchall()
