"""The registry of platforms, and how much each asks for."""

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row, scalar_row

from core import quotas
from core.models.business import Platform


class PlatformRepository:
    """SQL on `platforms` and `platform_usage`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def get(self, platform_id: str) -> Platform | None:
        """Return a platform, active or not."""
        return next(iter(await self._read(sql.SQL("WHERE platform_id = %s"), platform_id)), None)

    async def lock(self, platform_id: str) -> Platform | None:
        """Return a platform that nobody else changes until the transaction ends."""
        return next(iter(await self._read(sql.SQL("WHERE platform_id = %s FOR NO KEY UPDATE"), platform_id)), None)

    async def all(self) -> list[Platform]:
        """Return every platform, active or not."""
        return await self._read(sql.SQL("ORDER BY platform_id"))

    async def _read(self, which: sql.SQL, *values: str) -> list[Platform]:
        async with self._conn.cursor(row_factory=class_row(Platform)) as cursor:
            await cursor.execute(
                sql.SQL(
                    "SELECT platform_id, display_name, required_refs, optional_refs, version_ref, allowed_sources,"
                    " allowed_workflows, collection_prefix, is_active, created_at, webhook_url, review_days,"
                    " requests_per_minute, request_burst, max_open_requests FROM dagapp.platforms {}"
                ).format(which),
                values,
            )
            return await cursor.fetchall()

    async def store(self, platform: Platform) -> None:
        """Write what may be changed of a locked platform."""
        await self._conn.execute(
            """
            UPDATE dagapp.platforms
            SET is_active = %s, review_days = %s, requests_per_minute = %s, request_burst = %s, max_open_requests = %s
            WHERE platform_id = %s
            """,
            (
                platform.is_active,
                platform.review_days,
                platform.requests_per_minute,
                platform.request_burst,
                platform.max_open_requests,
                platform.platform_id,
            ),
        )

    async def take_call(self, platform: Platform, calls: int = 1) -> float | None:
        """Count calls of a platform; return None when they fit its rate, else the seconds until they would.

        Calls of one platform pass one at a time, for as long as the transaction lasts: keep it short.
        """
        values = {
            "platform": platform.platform_id,
            "cost": calls * quotas.seconds_per_call(platform),
            "burst": max(platform.request_burst, calls) * quotas.seconds_per_call(platform),
        }
        cursor = await self._conn.execute(
            """
            INSERT INTO dagapp.platform_usage AS u (platform_id, busy_until)
            VALUES (%(platform)s, dagapp.clock() + make_interval(secs => %(cost)s))
            ON CONFLICT (platform_id) DO UPDATE
            SET busy_until = greatest(u.busy_until, dagapp.clock()) + make_interval(secs => %(cost)s)
            WHERE greatest(u.busy_until, dagapp.clock()) + make_interval(secs => %(cost)s)
                  <= dagapp.clock() + make_interval(secs => %(burst)s)
            RETURNING platform_id
            """,
            values,
        )
        if await cursor.fetchone() is not None:
            return None
        async with self._conn.cursor(row_factory=scalar_row) as found:
            await found.execute(
                """
                SELECT extract(epoch FROM busy_until - dagapp.clock())::float8 + %(cost)s - %(burst)s
                FROM dagapp.platform_usage
                WHERE platform_id = %(platform)s
                """,
                values,
            )
            wait: float | None = await found.fetchone()
        return max(0.0, wait or 0.0)

    async def forget_usage(self, platform_id: str) -> None:
        """Let a platform begin anew; what it did at an old rate says nothing under a new one."""
        await self._conn.execute(
            "UPDATE dagapp.platform_usage SET busy_until = dagapp.clock() WHERE platform_id = %s", (platform_id,)
        )

    async def open_requests(self, platform_id: str) -> int:
        """Return how many requests of a platform are under way."""
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(
                "SELECT count(*) FROM dagapp.platform_requests WHERE platform_id = %s AND state = 'queued'",
                (platform_id,),
            )
            found: int | None = await cursor.fetchone()
            return found or 0
