"""Sealed credentials of jobs' sources, in the caller's transaction."""

from collections.abc import Iterable

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.business import RequestSecret


class RequestSecretRepository:
    """SQL on `request_secrets`."""

    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    async def keep(self, job_id: str, sealed: str) -> None:
        """Store a job's credential."""
        await self._conn.execute(
            "INSERT INTO dagapp.request_secrets (job_id, sealed) VALUES (%s, %s)", (job_id, sealed)
        )

    async def of_jobs(self, job_ids: Iterable[str]) -> dict[str, str]:
        """Return what is kept, sealed, by job."""
        async with self._conn.cursor(row_factory=class_row(RequestSecret)) as cursor:
            await cursor.execute(
                "SELECT job_id, sealed, created_at FROM dagapp.request_secrets WHERE job_id = ANY(%s)", (list(job_ids),)
            )
            return {row.job_id: row.sealed for row in await cursor.fetchall()}

    async def forget(self, job_id: str) -> None:
        """Remove a job's credential."""
        await self._conn.execute("DELETE FROM dagapp.request_secrets WHERE job_id = %s", (job_id,))
