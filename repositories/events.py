"""The append-only log of every transition."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from psycopg import AsyncConnection
from psycopg.rows import class_row

from core.models.engine import JobEvent
from repositories.documents import document


class NewEvent(TypedDict):
    """An event about to be written: most of what the engine writes, so nothing but the row."""

    job_id: str
    node_id: NotRequired[str | None]
    task_id: NotRequired[str | None]
    event_type: str
    event_status: NotRequired[str | None]
    event_data: Mapping[str, Any]
    checkpoint_name: NotRequired[str]
    created_at: NotRequired[datetime | None]
    """The clock of the transaction; now when missing."""


class EventRepository:
    """SQL on `dag_job_events`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def append(self, events: Sequence[NewEvent]) -> None:
        """Write events in their order."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_job_events
                (job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name, created_at)
            SELECT job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name,
                coalesce(created_at, dagapp.clock())
            FROM jsonb_to_recordset(%s::jsonb) AS e(
                job_id text, node_id text, task_id text, event_type text, event_status text, event_data jsonb,
                checkpoint_name text, created_at timestamptz)
            """,
            (document(events),),
        )

    async def prepare_months(self, months_ahead: int) -> None:
        """Create the partitions of this month and of the coming ones that are not there yet."""
        await self._conn.execute("SELECT dagapp.ensure_event_partitions(%s)", (months_ahead,))

    async def cancel_of(self, job_id: str, since: datetime) -> JobEvent | None:
        """Return the newest cancel of a job; `since` keeps months out in which it was not."""
        async with self._conn.cursor(row_factory=class_row(JobEvent)) as cursor:
            await cursor.execute(
                """
                SELECT event_id, job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name,
                    created_at
                FROM dagapp.dag_job_events WHERE job_id = %s AND event_type = 'job_cancelled' AND created_at >= %s
                ORDER BY event_id DESC LIMIT 1
                """,
                (job_id, since),
            )
            return await cursor.fetchone()

    async def of_job(self, job_id: str, after: int, limit: int) -> Sequence[JobEvent]:
        """Return events of one job with ids above `after`, oldest first."""
        async with self._conn.cursor(row_factory=class_row(JobEvent)) as cursor:
            await cursor.execute(
                """
                SELECT event_id, job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name,
                    created_at
                FROM dagapp.dag_job_events WHERE job_id = %s AND event_id > %s ORDER BY event_id LIMIT %s
                """,
                (job_id, after, limit),
            )
            return await cursor.fetchall()
