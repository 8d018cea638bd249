"""What creates jobs, as use cases see it."""

from collections.abc import Mapping
from typing import Any, Protocol

from psycopg import AsyncConnection


class JobCreator(Protocol):
    """Creates a job in the caller's transaction; its first task leaves when that commits."""

    async def create_job(
        self,
        conn: AsyncConnection[Any],
        *,
        workflow_id: str,
        inputs: Mapping[str, Any],
        priority: int,
        correlation_id: str | None,
        submitted_by: str,
    ) -> str:
        """Return the job's id."""
