"""Jobs that nothing will ever move: none is known to come about, and each would be a defect of the engine.

Whoever ends an attempt moves its node, or puts a result into the inbox, in the same transaction. So one statement,
which sees one moment, finds none that is only on its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row


@dataclass(frozen=True, slots=True)
class Stalled:
    """A job, with what in it waits for something that will not come."""

    job_id: str
    detail: str


async def stalled(
    conn: AsyncConnection[Any], job_ids: Sequence[str] | None = None, owner_id: str | None = None
) -> Sequence[Stalled]:
    """Return all stalled jobs, or those among some or of one owner, with each node or child that is stuck.

    Such are tasks in flight whose attempt has ended, or is not there, and whose result is not in the inbox; nodes whose
    child job has ended likewise; and jobs without anything live, timer, result, order, slot, gate or pause.
    """
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
            SELECT job_id, detail FROM stuck ORDER BY job_id, detail
            """,
            {"jobs": None if job_ids is None else list(job_ids), "owner": owner_id},
        )
        return await cursor.fetchall()


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
