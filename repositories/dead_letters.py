"""Dead letters: taken over from the queue's own table into one that operators see."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from pydantic import BaseModel, ConfigDict

from core.dag.why import Lost
from core.models.engine import DeadLetter, TaskResultRow
from repositories.documents import document


class Arrived(BaseModel):
    """A message as a worker set it aside."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message_id: str
    queue: str
    task_id: str
    body: Any
    reason: str
    delivery_count: int
    dead_lettered_at: datetime


class DeadLetterRepository:
    """SQL on both tables, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def take(self, limit: int) -> Sequence[Arrived]:
        """Remove letters from the queue's table and return them, those that nobody else takes, oldest first."""
        async with self._conn.cursor(row_factory=class_row(Arrived)) as cursor:
            await cursor.execute(
                """
                DELETE FROM dagqueue.dead_letters WHERE dead_letter_id = ANY(ARRAY(
                    SELECT dead_letter_id FROM dagqueue.dead_letters ORDER BY dead_letter_id LIMIT %s
                    FOR UPDATE SKIP LOCKED))
                RETURNING message_id, queue, task_id, body, reason, delivery_count, dead_lettered_at
                """,
                (limit,),
            )
            return await cursor.fetchall()

    async def store(self, letters: Sequence[Mapping[str, Any]]) -> Sequence[int]:
        """Store letters, columns of `dag_dead_letters` by their names, and return their ids in the same order."""
        cursor = await self._conn.execute(
            """
            INSERT INTO dagapp.dag_dead_letters
                (message_id, queue, task_id, job_id, body, reason, classification, delivery_count, dead_at)
            SELECT message_id, queue, task_id, job_id, coalesce(body, 'null'::jsonb), reason, classification,
                delivery_count, dead_at
            FROM ROWS FROM (jsonb_to_recordset(%s::jsonb) AS (
                message_id text, queue text, task_id text, job_id text, body jsonb, reason text, classification text,
                delivery_count integer, dead_at timestamptz)) WITH ORDINALITY AS l
            ORDER BY ordinality
            RETURNING dead_letter_id
            """,
            (document(letters),),
        )
        return [row[0] for row in await cursor.fetchall()]

    async def bring(self, letter: Mapping[str, Any]) -> None:
        """Put a letter of a broker into the queue's table, once for each time that it was set aside.

        `letter` is {message_id, queue, task_id, body, reason, delivery_count, enqueued_at}.
        """
        await self._conn.execute(
            """
            INSERT INTO dagqueue.dead_letters (message_id, queue, task_id, body, reason, delivery_count, enqueued_at)
            SELECT l.message_id, l.queue, l.task_id, coalesce(l.body, 'null'::jsonb), l.reason, l.delivery_count,
                l.enqueued_at
            FROM jsonb_to_recordset(%s::jsonb) AS l(
                message_id text, queue text, task_id text, body jsonb, reason text, delivery_count integer,
                enqueued_at timestamptz)
            WHERE NOT EXISTS (
                    SELECT FROM dagqueue.dead_letters AS w
                    WHERE w.queue = l.queue AND w.message_id = l.message_id AND w.reason = l.reason)
                AND NOT EXISTS (
                    SELECT FROM dagapp.dag_dead_letters AS d
                    WHERE d.resolved_at IS NULL AND d.queue = l.queue AND d.message_id = l.message_id
                        AND d.reason = l.reason)
            """,
            (document([letter]),),
        )

    async def put_failures(self, results: Sequence[TaskResultRow]) -> None:
        """Put results into the inboxes of jobs; one that is there already stays as it is."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_task_results (task_id, job_id, node_id, attempt, status, error, reported_at)
            SELECT task_id, job_id, node_id, attempt, status, error, reported_at
            FROM jsonb_populate_recordset(NULL::dagapp.dag_task_results, %s::jsonb)
            ON CONFLICT (task_id) DO NOTHING
            """,
            (document(results),),
        )

    async def newest(self, *, only_open: bool, before: int | None, limit: int) -> Sequence[DeadLetter]:
        """Return letters, newest first, with ids below `before`."""
        async with self._conn.cursor(row_factory=class_row(DeadLetter)) as cursor:
            await cursor.execute(
                """
                SELECT dead_letter_id, message_id, queue, task_id, job_id, body, reason, classification,
                    delivery_count, dead_at, resolved_at, resolution, resolved_by
                FROM dagapp.dag_dead_letters
                WHERE (NOT %(open)s OR resolved_at IS NULL)
                    AND (%(before)s::bigint IS NULL OR dead_letter_id < %(before)s)
                ORDER BY dead_letter_id DESC LIMIT %(limit)s
                """,
                {"open": only_open, "before": before, "limit": limit},
            )
            return await cursor.fetchall()

    async def lost(self, message_ids: Sequence[str]) -> Sequence[Lost]:
        """Return which of these messages became letters and were not sent again; of each at most the newest letter."""
        async with self._conn.cursor(row_factory=class_row(Lost)) as cursor:
            await cursor.execute(
                """
                SELECT DISTINCT ON (message_id) message_id, dead_letter_id, classification
                FROM dagapp.dag_dead_letters WHERE message_id = ANY(%s) AND resolution IS DISTINCT FROM 'replayed'
                ORDER BY message_id, dead_letter_id DESC
                """,
                (list(message_ids),),
            )
            return await cursor.fetchall()

    async def lock(self, dead_letter_id: int) -> DeadLetter | None:
        """Lock and return one letter."""
        async with self._conn.cursor(row_factory=class_row(DeadLetter)) as cursor:
            await cursor.execute(
                """
                SELECT dead_letter_id, message_id, queue, task_id, job_id, body, reason, classification,
                    delivery_count, dead_at, resolved_at, resolution, resolved_by
                FROM dagapp.dag_dead_letters WHERE dead_letter_id = %s FOR UPDATE
                """,
                (dead_letter_id,),
            )
            return await cursor.fetchone()

    async def resolve(self, dead_letter_id: int, resolution: str, actor: str) -> None:
        """Record what became of a letter, and by whom."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_dead_letters
            SET resolved_at = dagapp.clock(), resolution = %s, resolved_by = %s WHERE dead_letter_id = %s
            """,
            (resolution, actor, dead_letter_id),
        )

    async def send_again(self, task_id: str) -> bool:
        """Let a task that waits for a worker be due to be sent again, and return whether it waits for one.

        The caller has locked its job, which is to be advanced at once; so is the fan-out of a child.
        """
        await self._conn.execute(
            """
            UPDATE dagapp.dag_fan_outs AS f SET wake_at = least(f.wake_at, dagapp.clock())
            FROM dagapp.dag_attempts AS a JOIN dagapp.dag_node_states AS n
                ON n.job_id = a.job_id AND n.node_id = a.node_id
            WHERE a.task_id = %s AND a.child AND f.job_id = a.job_id AND f.node_id = n.parent_node_id
            """,
            (task_id,),
        )
        cursor = await self._conn.execute(
            """
            UPDATE dagapp.dag_attempts SET redispatch_at = dagapp.clock()
            WHERE task_id = %s AND state = 'queued' RETURNING task_id
            """,
            (task_id,),
        )
        return bool(await cursor.fetchall())
