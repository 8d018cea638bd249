"""Jobs that nothing will ever move: none is known to come about, and each would be a defect of the engine.

Whoever ends an attempt moves its node, or puts a result into the inbox, in the same transaction. So one statement of
each kind, which sees one moment, finds none that is only on its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb


@dataclass(frozen=True, slots=True)
class Stalled:
    """A job, with what in it waits for something that will not come."""

    job_id: str
    detail: str
    slot_key: str | None = None
    """Of the slot that it waits for, where that is what it waits for."""


async def stalled(
    conn: AsyncConnection[Any], job_ids: Sequence[str] | None = None, owner_id: str | None = None
) -> Sequence[Stalled]:
    """Return all stalled jobs, or those among some or of one owner, with each node or child that is stuck.

    Such are tasks in flight whose attempt has ended, or is not there, and whose result is not in the inbox; nodes whose
    child job has ended likewise; jobs without anything live, timer, result, order, slot, gate or pause; and child jobs
    that wait, without an end, for a slot which jobs hold that wait for them.
    """
    found = [*await _stuck(conn, job_ids, owner_id), *await _held_above(conn, job_ids, owner_id)]
    return sorted(found, key=lambda one: (one.job_id, one.detail))


async def _held_above(
    conn: AsyncConnection[Any], job_ids: Sequence[str] | None, owner_id: str | None
) -> Sequence[Stalled]:
    """Return waits for slots of which no other holder than jobs above can give one back, and which nothing ends.

    An order that is stored for one of these jobs, or a time that one waits for, may end it.
    """
    async with conn.cursor(row_factory=class_row(Stalled)) as cursor:
        await cursor.execute(
            """
            WITH RECURSIVE above AS (
                SELECT s.job_id, s.slot_key, j.job_id AS above_id, j.parent_task_id, j.wake_at
                FROM dagapp.dag_slots AS s JOIN dagapp.dag_jobs AS j ON j.job_id = s.job_id
                WHERE s.granted_at IS NULL AND j.parent_task_id IS NOT NULL AND j.status IN ('PENDING', 'RUNNING')
                    AND (%(jobs)s::text[] IS NULL OR j.job_id = ANY(%(jobs)s))
                    AND (%(owner)s::text IS NULL OR j.owner_id = %(owner)s)
                UNION
                SELECT w.job_id, w.slot_key, p.job_id, p.parent_task_id, p.wake_at
                FROM above AS w JOIN dagapp.dag_attempts AS a ON a.task_id = w.parent_task_id
                JOIN dagapp.dag_jobs AS p ON p.job_id = a.job_id)
            SELECT w.job_id, 'it waits for a slot of ' || w.slot_key || ', which is held by '
                || string_agg(h.holder, ', ' ORDER BY h.holder) || ', waiting for it' AS detail, w.slot_key
            FROM above AS w JOIN dagapp.dag_limits AS l ON l.slot_key = w.slot_key
            LEFT JOIN dagapp.dag_slots AS h ON h.slot_key = w.slot_key AND h.holder = w.above_id
                AND h.granted_at IS NOT NULL AND w.above_id <> w.job_id
            GROUP BY w.job_id, w.slot_key, l.limit_count
            HAVING count(h.holder) > 0 AND count(h.holder) >= l.limit_count AND bool_and(w.wake_at IS NULL
                AND NOT EXISTS (SELECT FROM dagapp.dag_commands AS c
                    WHERE c.job_id = w.above_id AND c.processed_at IS NULL))
            """,
            {"jobs": None if job_ids is None else list(job_ids), "owner": owner_id},
        )
        return await cursor.fetchall()


async def _stuck(conn: AsyncConnection[Any], job_ids: Sequence[str] | None, owner_id: str | None) -> Sequence[Stalled]:
    async with conn.cursor(row_factory=class_row(Stalled)) as cursor:
        await cursor.execute(
            """
            WITH active AS MATERIALIZED (
                SELECT job_id, workflow_id, paused_at, wake_at FROM dagapp.dag_jobs
                WHERE status IN ('PENDING', 'RUNNING') AND (%(jobs)s::text[] IS NULL OR job_id = ANY(%(jobs)s))
                    AND (%(owner)s::text IS NULL OR owner_id = %(owner)s)),
            stuck AS (
                SELECT n.job_id, n.node_id || ' is ' || n.status || ', its attempt ' || n.task_id || ' is '
                    || coalesce(a.state, 'not there') || ', no result of it is in the inbox' AS detail
                FROM active AS j JOIN dagapp.dag_node_states AS n ON n.job_id = j.job_id
                LEFT JOIN dagapp.dag_attempts AS a ON a.task_id = n.task_id
                WHERE n.status IN ('DISPATCHED', 'RUNNING') AND n.task_id IS NOT NULL
                    AND (a.state IS NULL OR a.state NOT IN ('queued', 'parked', 'leased'))
                    AND NOT EXISTS (
                        SELECT FROM dagapp.dag_task_results AS r WHERE r.task_id = n.task_id AND NOT r.processed)
                UNION ALL
                SELECT n.job_id, n.node_id || ' waits for a child job that is over, no result of it is in the inbox'
                FROM active AS j JOIN dagapp.dag_node_states AS n ON n.job_id = j.job_id
                WHERE n.status = 'WAITING' AND n.waiting_for ->> 'kind' = 'child' AND n.parent_node_id IS NULL
                    AND NOT EXISTS (
                        SELECT FROM dagapp.dag_jobs AS c
                        WHERE c.parent_task_id = n.task_id AND c.status IN ('PENDING', 'RUNNING'))
                    AND NOT EXISTS (
                        SELECT FROM dagapp.dag_task_results AS r WHERE r.task_id = n.task_id AND NOT r.processed)
                UNION ALL
                SELECT j.job_id, 'it waits for nothing' FROM active AS j
                WHERE j.paused_at IS NULL AND j.wake_at IS NULL
                    AND NOT EXISTS (SELECT FROM dagapp.dag_settings WHERE starts_with(key, 'pause:')
                        AND value = 'true'::jsonb)
                    AND NOT EXISTS (SELECT FROM dagapp.dag_attempts AS a
                        WHERE a.job_id = j.job_id AND a.state IN ('queued', 'parked', 'leased'))
                    AND NOT EXISTS (SELECT FROM dagapp.dag_task_results AS r
                        WHERE r.job_id = j.job_id AND NOT r.processed)
                    AND NOT EXISTS (SELECT FROM dagapp.dag_commands AS c
                        WHERE c.job_id = j.job_id AND c.processed_at IS NULL)
                    AND NOT EXISTS (SELECT FROM dagapp.dag_slots AS s WHERE s.job_id = j.job_id
                        AND (s.granted_at IS NULL OR NOT s.noticed))
                    AND NOT EXISTS (SELECT FROM dagapp.dag_node_states AS n WHERE n.job_id = j.job_id
                        AND n.parent_node_id IS NULL AND n.waiting_for ->> 'kind' IN ('gate', 'paused')))
            SELECT job_id, detail FROM stuck
            """,
            {"jobs": None if job_ids is None else list(job_ids), "owner": owner_id},
        )
        return await cursor.fetchall()


async def note_held_above(conn: AsyncConnection[Any], job_id: str) -> None:
    """Tell a locked job which slots it waits for in vain; the build that made it did not, so it is refused them now."""
    if keys := [one.slot_key for one in await _held_above(conn, [job_id], None)]:
        await conn.execute(
            "UPDATE dagapp.dag_jobs SET slots_above = coalesce(slots_above, '[]') || %s WHERE job_id = %s",
            (Jsonb(keys), job_id),
        )


async def tell_again(conn: AsyncConnection[Any], job_id: str) -> None:
    """Put ends of child jobs that a locked job never heard of into its inbox again; without one the attempt is over."""
    await conn.execute(
        """
        WITH unheard AS MATERIALIZED (
            SELECT n.task_id FROM dagapp.dag_node_states AS n
            WHERE n.job_id = %(job)s AND n.status = 'WAITING' AND n.waiting_for ->> 'kind' = 'child'
                AND n.parent_node_id IS NULL
                AND NOT EXISTS (
                    SELECT FROM dagapp.dag_jobs AS c
                    WHERE c.parent_task_id = n.task_id AND c.status IN ('PENDING', 'RUNNING'))
                AND NOT EXISTS (
                    SELECT FROM dagapp.dag_task_results AS r WHERE r.task_id = n.task_id AND NOT r.processed)),
        told AS (
            UPDATE dagapp.dag_task_results SET processed = false, disposition = NULL
            WHERE task_id = ANY(ARRAY(SELECT task_id FROM unheard))
            RETURNING task_id)
        UPDATE dagapp.dag_attempts
        SET state = 'revoked', reason = 'nothing is known of its child job', ended_at = dagapp.clock()
        WHERE task_id = ANY(ARRAY(SELECT task_id FROM unheard EXCEPT SELECT task_id FROM told)) AND state = 'leased'
        """,
        {"job": job_id},
    )
