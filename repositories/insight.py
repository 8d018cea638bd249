"""What operators ask across everything: how much of what there is, what happened last, what belongs together."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString

from psycopg import AsyncConnection, sql
from psycopg.rows import class_row
from pydantic.dataclasses import dataclass as checked

from core.models.engine import JobEvent
from core.statuses import JobStatus


@checked(frozen=True, slots=True, kw_only=True)
class Count:
    """How many of one kind are in one state."""

    what: str
    name: str
    state: str
    count: int


@checked(frozen=True, slots=True, kw_only=True)
class LinkedJob:
    """A job with the request, asset and version it works for."""

    job_id: str
    workflow_id: str
    status: JobStatus
    sequence: int
    request_id: str
    platform_id: str
    asset_id: str
    version_ordinal: int
    revision: int
    created_at: datetime


class InsightRepository:
    """Reads across tables, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def counts(self, hours: int) -> list[Count]:
        """Return how many jobs of the last hours, open tasks, requests and reviews are in which state."""
        async with self._conn.cursor(row_factory=class_row(Count)) as cursor:
            await cursor.execute(
                """
                SELECT 'jobs' AS what, workflow_id AS name, status AS state, count(*) AS count
                FROM dagapp.dag_jobs WHERE created_at >= dagapp.clock() - make_interval(hours => %(hours)s)
                GROUP BY workflow_id, status
                UNION ALL
                SELECT 'tasks', queue, state, count(*) FROM dagapp.dag_attempts
                WHERE state IN ('queued', 'parked', 'leased') GROUP BY queue, state
                UNION ALL
                SELECT 'requests', platform_id, state, count(*) FROM dagapp.platform_requests
                WHERE created_at >= dagapp.clock() - make_interval(hours => %(hours)s) GROUP BY platform_id, state
                UNION ALL
                SELECT 'reviews', a.platform_id,
                       CASE WHEN v.review_due_at <= dagapp.clock() THEN 'overdue' ELSE 'pending' END, count(*)
                FROM dagapp.asset_versions AS v JOIN dagapp.geospatial_assets AS a USING (asset_id)
                WHERE v.approval_state = 'pending_review' AND v.processed_at IS NOT NULL AND v.deleted_at IS NULL
                  AND a.deleted_at IS NULL
                GROUP BY 2, 3
                ORDER BY 1, 2, 3
                """,
                {"hours": hours},
            )
            return await cursor.fetchall()

    async def recent_events(self, before_id: int | None, limit: int) -> list[JobEvent]:
        """Return the newest events of all jobs, the newest first."""
        condition: LiteralString = "true" if before_id is None else "event_id < %s"
        values: Sequence[int] = [limit] if before_id is None else [before_id, limit]
        async with self._conn.cursor(row_factory=class_row(JobEvent)) as cursor:
            await cursor.execute(
                sql.SQL(
                    "SELECT event_id, job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name,"
                    " created_at FROM dagapp.dag_job_events WHERE {} ORDER BY event_id DESC LIMIT %s"
                ).format(sql.SQL(condition)),
                values,
            )
            return await cursor.fetchall()

    async def linked(
        self, *, job_id: str | None, request_id: str | None, asset_id: str | None, ordinal: int | None, limit: int
    ) -> list[LinkedJob]:
        """Return jobs by what they work for, the newest first."""
        wanted: dict[LiteralString, str | int | None] = {
            "l.job_id = %s": job_id,
            "r.request_id = %s": request_id,
            "r.asset_id = %s": asset_id,
            "r.version_ordinal = %s": ordinal,
        }
        given = {condition: value for condition, value in wanted.items() if value is not None}
        async with self._conn.cursor(row_factory=class_row(LinkedJob)) as cursor:
            await cursor.execute(
                sql.SQL(
                    "SELECT j.job_id, j.workflow_id, j.status, l.sequence, r.request_id, r.platform_id, r.asset_id,"
                    " r.version_ordinal, r.revision, j.created_at FROM dagapp.platform_request_jobs AS l"
                    " JOIN dagapp.platform_requests AS r USING (request_id) JOIN dagapp.dag_jobs AS j USING (job_id)"
                    " WHERE {} ORDER BY j.created_at DESC, l.sequence DESC LIMIT %s"
                ).format(sql.SQL(" AND ").join(map(sql.SQL, given))),
                [*given.values(), limit],
            )
            return await cursor.fetchall()
