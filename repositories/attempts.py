"""Attempts: conditional updates under the attempt's own lock, always taken in task id order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import AsyncConnection

from core.dag.state import AttemptEnd
from core.models.engine import Attempt
from repositories.documents import Pending, document, model_row, send


class AttemptRepository:
    """SQL on `dag_attempts`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def insert(self, attempts: Sequence[Attempt]) -> None:
        """Store new attempts."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_attempts
                (task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                 token_hash, timeout_seconds, queued_at, redispatch_at)
            SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                token_hash, timeout_seconds, queued_at, redispatch_at
            FROM jsonb_populate_recordset(NULL::dagapp.dag_attempts, %s::jsonb)
            """,
            (document(attempts),),
        )

    async def lock_of_jobs(self, job_ids: Iterable[str], task_ids: Iterable[str] = ()) -> Pending[Attempt]:
        """Lock and return the live attempts of these jobs, those with a result in the inbox, and these tasks."""
        jobs = list(job_ids)
        return await send(
            self._conn,
            model_row(Attempt),
            """
            SELECT * FROM dagapp.dag_attempts WHERE task_id = ANY(
                ARRAY(SELECT task_id FROM dagapp.dag_attempts
                      WHERE job_id = ANY(%s) AND state IN ('queued', 'parked', 'leased'))
                || ARRAY(SELECT task_id FROM dagapp.dag_task_results WHERE job_id = ANY(%s) AND NOT processed)
                || %s::varchar[])
            ORDER BY task_id FOR UPDATE
            """,
            (jobs, jobs, list(task_ids)),
        )

    async def lock(self, task_ids: Iterable[str]) -> Pending[Attempt]:
        """Lock and return the attempts of these tasks."""
        return await send(
            self._conn,
            model_row(Attempt),
            "SELECT * FROM dagapp.dag_attempts WHERE task_id = ANY(%s) ORDER BY task_id FOR UPDATE",
            (list(task_ids),),
        )

    async def lease(self, claims: Mapping[str, str], worker_id: str, lease_seconds: float) -> None:
        """Lease locked, queued attempts to a worker; `claims` maps task id to claim id."""
        rows = [{"task_id": task_id, "claim_id": claim_id} for task_id, claim_id in claims.items()]
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a
            SET state = 'leased', claim_id = u.claim_id, worker_id = %s, leased_at = dagapp.clock(),
                lease_expires_at = dagapp.clock() + make_interval(secs => %s), redispatch_at = NULL
            FROM jsonb_to_recordset(%s::jsonb) AS u(task_id text, claim_id text)
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state = 'queued'
            """,
            (worker_id, lease_seconds, document(rows), list(claims)),
        )

    async def renew(self, beats: Sequence[Mapping[str, Any]], lease_seconds: float) -> None:
        """Renew leases; `beats` are {task_id, progress, peak_rss_bytes}, whose None keeps what was known."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a
            SET lease_expires_at = dagapp.clock() + make_interval(secs => %s),
                progress = coalesce(u.progress, a.progress),
                peak_rss_bytes = greatest(u.peak_rss_bytes, a.peak_rss_bytes)
            FROM jsonb_to_recordset(%s::jsonb) AS u(task_id text, progress jsonb, peak_rss_bytes bigint)
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state = 'leased'
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

    async def report(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """End leased attempts by their results; `reports` are {task_id, state, peak_rss_bytes}."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a
            SET state = u.state, ended_at = dagapp.clock(), lease_expires_at = NULL,
                peak_rss_bytes = greatest(u.peak_rss_bytes, a.peak_rss_bytes)
            FROM jsonb_to_recordset(%s::jsonb) AS u(task_id text, state text, peak_rss_bytes bigint)
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state = 'leased'
            """,
            (document(reports), [report["task_id"] for report in reports]),
        )

    async def end(self, ends: Sequence[AttemptEnd]) -> None:
        """Expire or revoke live attempts."""
        rows = [{"task_id": end.task_id, "state": end.state, "reason": end.reason} for end in ends]
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a
            SET state = u.state, reason = u.reason, ended_at = dagapp.clock(), redispatch_at = NULL
            FROM jsonb_to_recordset(%s::jsonb) AS u(task_id text, state text, reason text)
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state IN ('queued', 'parked', 'leased')
            """,
            (document(rows), [end.task_id for end in ends]),
        )

    async def redispatch(self, attempts: Sequence[Attempt]) -> None:
        """Write the next dispatch of queued or parked attempts: number, token hash and next time."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts AS a
            SET state = 'queued', dispatch_no = u.dispatch_no, token_hash = u.token_hash,
                redispatch_at = u.redispatch_at
            FROM jsonb_populate_recordset(NULL::dagapp.dag_attempts, %s::jsonb) AS u
            WHERE a.task_id = ANY(%s) AND a.task_id = u.task_id AND a.state IN ('queued', 'parked')
            """,
            (document(attempts), [attempt.task_id for attempt in attempts]),
        )

    async def counts(self, queue: str) -> dict[str, int]:
        """Return how many attempts of a queue are queued and leased: what workers scale on."""
        cursor = await self._conn.execute(
            """
            SELECT state, count(*) FROM dagapp.dag_attempts
            WHERE queue = %s AND state IN ('queued', 'leased') GROUP BY state
            """,
            (queue,),
        )
        return {row[0]: row[1] for row in await cursor.fetchall()}
