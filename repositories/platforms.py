"""The registry of platforms."""

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.business import Platform


class PlatformRepository:
    """Reads `dagapp.platforms` on the connection it is given."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def get(self, platform_id: str) -> Platform | None:
        """Return a platform, active or not."""
        async with self._conn.cursor(row_factory=class_row(Platform)) as cursor:
            await cursor.execute(
                """
                SELECT platform_id, display_name, required_refs, optional_refs, version_ref, allowed_sources,
                       allowed_workflows, collection_prefix, is_active, created_at, webhook_url, review_days
                FROM dagapp.platforms
                WHERE platform_id = %s
                """,
                (platform_id,),
            )
            return await cursor.fetchone()
