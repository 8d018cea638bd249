"""Pause switches, rows of `dag_settings`, and the jobs that they hold.

A switch is only read by evaluations, so whoever turns one wakes the jobs it is about: a held job has no timer.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, Field

SET, LIFTED = "paused", "resumed"
"""What the audit calls it."""


class Switch(BaseModel):
    """One pause switch, in force or lifted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    switch: str = Field(description="`all`, `workflow:<id>` or `queue:<name>`.")
    paused: bool
    updated_by: str
    updated_at: datetime
    reason: str | None = Field(default=None, description="Why it was turned last, as the audit has it.")


class PauseRepository:
    """SQL on the switches, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def all(self) -> Sequence[Switch]:
        """Return every switch that was ever turned, by name."""
        async with self._conn.cursor(row_factory=class_row(Switch)) as cursor:
            await cursor.execute(
                """
                SELECT substr(key, 7) AS switch, value = 'true'::jsonb AS paused, updated_by, updated_at, a.reason
                FROM dagapp.dag_settings
                LEFT JOIN LATERAL (
                    SELECT reason FROM dagapp.asset_audit
                    WHERE action = ANY(%s) AND after ->> 'switch' = substr(key, 7)
                    ORDER BY audit_id DESC LIMIT 1) AS a ON true
                WHERE starts_with(key, 'pause:') ORDER BY key
                """,
                ([SET, LIFTED],),
            )
            return await cursor.fetchall()

    async def was_turned(self, switch: str) -> bool:
        """Return whether a switch was ever set."""
        cursor = await self._conn.execute("SELECT FROM dagapp.dag_settings WHERE key = %s", (f"pause:{switch}",))
        return await cursor.fetchone() is not None

    async def turn(self, switch: str, paused: bool, actor: str) -> bool:
        """Turn a switch and return whether that changed it; a lifted one stays as a record of who lifted it."""
        cursor = await self._conn.execute(
            """
            INSERT INTO dagapp.dag_settings AS s (key, value, updated_by, updated_at)
            SELECT %(key)s, %(value)s, %(actor)s, dagapp.clock()
            WHERE %(value)s = 'true'::jsonb OR EXISTS (SELECT FROM dagapp.dag_settings WHERE key = %(key)s)
            ON CONFLICT (key) DO UPDATE
            SET value = excluded.value, updated_by = excluded.updated_by, updated_at = excluded.updated_at
            WHERE s.value <> excluded.value
            RETURNING key
            """,
            {"key": f"pause:{switch}", "value": Jsonb(paused), "actor": actor},
        )
        return bool(await cursor.fetchall())

    async def active_jobs(self, workflow_id: str | None) -> list[str]:
        """Return the jobs that have not ended, of one workflow or of all."""
        cursor = await self._conn.execute(
            """
            SELECT job_id FROM dagapp.dag_jobs
            WHERE status IN ('PENDING', 'RUNNING') AND (%(workflow)s::text IS NULL OR workflow_id = %(workflow)s)
            """,
            {"workflow": workflow_id},
        )
        return [row[0] for row in await cursor.fetchall()]

    async def wake(self, job_ids: Iterable[str]) -> list[str]:
        """Let those of the jobs that nobody holds be evaluated at once and return them; wakes their owners."""
        cursor = await self._conn.execute(
            """
            WITH woken AS (
                UPDATE dagapp.dag_jobs SET wake_at = dagapp.clock()
                WHERE job_id = ANY(ARRAY(
                    SELECT job_id FROM dagapp.dag_jobs
                    WHERE job_id = ANY(%s) AND status IN ('PENDING', 'RUNNING')
                    ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED))
                RETURNING job_id, owner_id
            ),
            told AS (
                SELECT pg_notify(channel, '')
                FROM (SELECT DISTINCT coalesce('dag_owner_' || owner_id, 'dag_unowned') AS channel FROM woken) AS c
            )
            SELECT job_id FROM woken WHERE (SELECT count(*) FROM told) >= 0
            """,
            (list(job_ids),),
        )
        return [row[0] for row in await cursor.fetchall()]

    async def log(self, job_ids: Iterable[str], event: str, data: dict[str, Any], queue: str | None) -> None:
        """Write an event of a switch into the logs of jobs; of a queue's switch, where something waits in the queue."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_job_events (job_id, event_type, event_status, event_data, created_at)
            SELECT j.job_id, %(event)s, j.status, %(data)s, dagapp.clock() FROM dagapp.dag_jobs AS j
            WHERE j.job_id = ANY(%(jobs)s) AND (%(queue)s::text IS NULL
                OR EXISTS (
                    SELECT FROM dagapp.dag_attempts AS a WHERE a.job_id = j.job_id AND a.queue = %(queue)s
                        AND a.state IN ('queued', 'parked') AND NOT a.child)
                OR EXISTS (
                    SELECT FROM dagapp.dag_attempts AS a WHERE a.job_id = j.job_id AND a.queue = %(queue)s
                        AND a.state IN ('queued', 'parked') AND a.child))
            """,
            {"event": event, "data": Jsonb(data), "jobs": list(job_ids), "queue": queue},
        )

    async def held_for_nothing(self, limit: int) -> list[str]:
        """Return jobs that say a switch holds them which does not, or have parked tasks that nothing holds.

        Children are asked for by themselves, as their index is.
        """
        cursor = await self._conn.execute(
            """
            WITH switches AS MATERIALIZED (
                SELECT substr(key, 7) AS switch FROM dagapp.dag_settings
                WHERE starts_with(key, 'pause:') AND value = 'true'::jsonb),
            parked AS MATERIALIZED (
                SELECT job_id, queue FROM dagapp.dag_attempts WHERE state = 'parked' AND NOT child
                UNION ALL
                SELECT job_id, queue FROM dagapp.dag_attempts WHERE state = 'parked' AND child)
            SELECT job_id FROM dagapp.dag_jobs AS j
            WHERE status IN ('PENDING', 'RUNNING') AND waiting_for ->> 'kind' = 'paused' AND EXISTS (
                SELECT FROM jsonb_array_elements_text(waiting_for -> 'detail') AS noted(switch)
                WHERE noted.switch <> 'job' AND noted.switch NOT IN (SELECT switch FROM switches))
            UNION
            SELECT a.job_id FROM parked AS a JOIN dagapp.dag_jobs AS j ON j.job_id = a.job_id
            WHERE j.job_id = ANY(ARRAY(SELECT job_id FROM parked)) AND j.status IN ('PENDING', 'RUNNING')
                AND j.paused_at IS NULL AND (j.wake_at IS NULL OR j.wake_at > dagapp.clock())
                AND NOT EXISTS (SELECT FROM switches WHERE switch = ANY(
                    ARRAY['all', 'workflow:' || j.workflow_id, 'queue:' || a.queue]))
            LIMIT %s
            """,
            (limit,),
        )
        return [row[0] for row in await cursor.fetchall()]
