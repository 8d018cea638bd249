"""Attempts: conditional updates under the attempt's own lock, always taken in task id order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncConnection
from pydantic import Field

from core.models.engine import Attempt
from repositories.documents import Pending, document, row_of, send

_LOCK_TO_CLAIM: Final = """
SELECT a.task_id, a.job_id, a.node_id, a.attempt, a.dispatch_no, a.state, a.queue, a.handler, a.priority,
    a.params_digest, a.token_hash, a.timeout_seconds, a.queued_at, a.redispatch_at, a.claim_id,
    a.worker_id, a.leased_at, a.lease_expires_at, a.ended_at, a.progress, a.peak_rss_bytes, a.reason,
    a.heartbeat_timeout_seconds, a.child, a.outcomes, a.queue_expires_at, a.no_fit,
    EXISTS (SELECT FROM dagapp.dag_jobs AS j
    WHERE j.job_id = a.job_id AND (j.paused_at IS NOT NULL OR EXISTS (
        SELECT FROM dagapp.dag_settings AS s
        WHERE s.key = ANY(ARRAY['pause:all', 'pause:workflow:' || j.workflow_id, 'pause:queue:' || %s])
            AND s.value = 'true'::jsonb))
) AS paused
FROM dagapp.dag_attempts AS a WHERE a.task_id = ANY(%s) ORDER BY a.task_id FOR UPDATE OF a
"""
_TRY_TO_CLAIM: Final = f"{_LOCK_TO_CLAIM} SKIP LOCKED"


class Claimed(Attempt):
    """An attempt with what decides about a claim of it."""

    paused: bool = Field(description="Its job is paused: itself, or by the switch of all, its workflow or its queue.")


class AttemptRepository:
    """SQL on `dag_attempts`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def lock_of_jobs(
        self, job_ids: Iterable[str], task_ids: Iterable[str] = (), whole: Iterable[str] = (), *, look: bool = True
    ) -> Pending[Attempt]:
        """Lock and return the live attempts of these jobs, those with a result in the inbox, and these tasks.

        Of the children of fan-outs only those of which something is due: with `look` they are looked for, without it
        only when a timer of theirs has come. Of the jobs in `whole` all of them.
        """
        jobs = list(job_ids)
        return await send(
            self._conn,
            row_of(Attempt),
            """
            SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                token_hash, timeout_seconds, queued_at, redispatch_at, claim_id, worker_id, leased_at,
                lease_expires_at, ended_at, progress, peak_rss_bytes, reason, heartbeat_timeout_seconds, child,
                outcomes, queue_expires_at
            FROM dagapp.dag_attempts WHERE task_id = ANY(
                ARRAY(SELECT task_id FROM dagapp.dag_attempts
                      WHERE job_id = ANY(%(jobs)s) AND state IN ('queued', 'parked', 'leased') AND NOT child)
                || ARRAY(SELECT task_id FROM dagapp.dag_task_results WHERE job_id = ANY(%(jobs)s) AND NOT processed)
                || ARRAY(SELECT task_id FROM dagapp.dag_attempts
                         WHERE state IN ('queued', 'parked', 'leased') AND child
                            AND job_id = ANY(ARRAY(
                                SELECT job_id FROM dagapp.dag_fan_outs
                                WHERE job_id = ANY(%(jobs)s) AND state IN ('running', 'stopping')
                                    AND (%(look)s OR wake_at <= dagapp.clock() OR job_id = ANY(%(whole)s))))
                            AND (job_id = ANY(%(whole)s) OR state = 'parked'
                                OR (state = 'queued' AND (redispatch_at <= dagapp.clock()
                                    OR queue_expires_at <= dagapp.clock()))
                                OR (state = 'leased' AND (lease_expires_at <= dagapp.clock()
                                    OR leased_at + make_interval(secs => timeout_seconds) <= dagapp.clock()))))
                || %(tasks)s::varchar[])
            ORDER BY task_id FOR UPDATE
            """,
            {"jobs": jobs, "tasks": list(task_ids), "whole": list(whole), "look": look},
        )

    async def lock(self, task_ids: Iterable[str]) -> Pending[Attempt]:
        """Lock and return the attempts of these tasks."""
        return await send(
            self._conn,
            row_of(Attempt),
            """
            SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                token_hash, timeout_seconds, queued_at, redispatch_at, claim_id, worker_id, leased_at,
                lease_expires_at, ended_at, progress, peak_rss_bytes, reason, heartbeat_timeout_seconds, child,
                outcomes, queue_expires_at
            FROM dagapp.dag_attempts WHERE task_id = ANY(%s) ORDER BY task_id FOR UPDATE
            """,
            (list(task_ids),),
        )

    async def lock_to_claim(self, task_ids: Iterable[str], queue: str, *, wait: bool = True) -> Pending[Claimed]:
        """Lock and return the attempts of these tasks, delivered by this queue; their jobs are only looked at.

        Without `wait`, only those that nobody else holds.
        """
        return await send(
            self._conn,
            row_of(Claimed),
            (_LOCK_TO_CLAIM if wait else _TRY_TO_CLAIM),
            (queue, list(task_ids)),
        )

    async def renew(self, beats: Sequence[Mapping[str, Any]], lease_seconds: float) -> None:
        """Renew leases; `beats` are {task_id, progress, peak_rss_bytes, outcomes}, whose None keeps what was known.

        Outcomes of items come behind those that are known already.
        `lease_seconds` is for attempts without a length of their own.
        """
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a
            SET lease_expires_at = dagapp.clock()
                    + make_interval(secs => coalesce(a.heartbeat_timeout_seconds, %s)),
                progress = coalesce(u.progress, a.progress),
                peak_rss_bytes = greatest(u.peak_rss_bytes, a.peak_rss_bytes),
                outcomes = CASE WHEN u.outcomes IS NULL THEN a.outcomes
                    ELSE coalesce(a.outcomes, '[]'::jsonb) || u.outcomes END
            FROM jsonb_to_recordset(%s::jsonb)
                AS u(task_id text, progress jsonb, peak_rss_bytes bigint, outcomes jsonb)
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state IS NOT DISTINCT FROM 'leased'
            """,
            (lease_seconds, document(beats), [beat["task_id"] for beat in beats]),
        )

    async def park(self, task_ids: Iterable[str]) -> None:
        """Set queued attempts of a paused job aside; their messages are gone, a resume sends them again."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts SET state = 'parked', redispatch_at = NULL
            WHERE task_id = ANY(%s) AND state = 'queued'
            """,
            (list(task_ids),),
        )

    async def note_no_fit(self, lacking: Mapping[str, str]) -> None:
        """Note what queued attempts did not find with a worker: task id to what was lacking."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a SET no_fit = u.lacking
            FROM unnest(%s::text[], %s::text[]) AS u(task_id, lacking)
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state = 'queued'
            """,
            (list(lacking), list(lacking.values()), list(lacking)),
        )

    async def of_tasks(self, task_ids: Iterable[str]) -> list[Attempt]:
        """Return the attempts of these tasks, unlocked."""
        async with self._conn.cursor(row_factory=row_of(Attempt)) as cursor:
            await cursor.execute(
                """
                SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                    token_hash, timeout_seconds, queued_at, redispatch_at, claim_id, worker_id, leased_at,
                    lease_expires_at, ended_at, progress, peak_rss_bytes, reason, heartbeat_timeout_seconds, child,
                    no_fit
                FROM dagapp.dag_attempts WHERE task_id = ANY(%s)
                """,
                (list(task_ids),),
            )
            return await cursor.fetchall()

    async def counts(self, queue: str) -> dict[str, tuple[int, float]]:
        """Return how many attempts of a queue are `queued`, `leased`, and queued but `held` by a pause.

        With each number stands for how many seconds the oldest of them has been there since it was queued.
        """
        cursor = await self._conn.execute(
            """
            WITH switches AS MATERIALIZED (
                SELECT substr(key, 7) AS switch FROM dagapp.dag_settings
                WHERE starts_with(key, 'pause:') AND value = 'true'::jsonb)
            SELECT CASE WHEN a.state = 'queued' AND (j.paused_at IS NOT NULL OR EXISTS (
                    SELECT FROM switches WHERE switch = ANY(
                        ARRAY['all', 'workflow:' || j.workflow_id, 'queue:' || a.queue])))
                THEN 'held' ELSE a.state END AS kind, count(*),
                extract(epoch FROM dagapp.clock() - min(a.queued_at))::double precision
            FROM dagapp.dag_attempts AS a JOIN dagapp.dag_jobs AS j ON j.job_id = a.job_id
            WHERE a.queue = %s AND a.state IN ('queued', 'leased') GROUP BY kind
            """,
            (queue,),
        )
        return {row[0]: (row[1], row[2]) for row in await cursor.fetchall()}

    async def unclaimed_beyond(self, queue: str) -> int:
        """Return how many queued attempts of a queue have no message in the outbox: a broker has theirs."""
        cursor = await self._conn.execute(
            """
            SELECT (SELECT count(*) FROM dagapp.dag_attempts WHERE queue = %(queue)s AND state = 'queued')
                - (SELECT count(*) FROM dagqueue.messages WHERE queue = %(queue)s)
            """,
            {"queue": queue},
        )
        row = await cursor.fetchone()
        return 0 if row is None else max(0, int(row[0]))
