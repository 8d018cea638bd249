"""Concurrency slots: who holds a key, who waits for it, and how many may hold it.

Whoever requests, frees or grants first locks the rows of `dag_limits` of all its keys, in their order, once in a
transaction and after every other lock: so nothing is granted beyond a limit, and nobody waits in a circle. A grant to
another job is only written down: the job's owner is woken and acts on it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, scalar_row
from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from repositories.documents import Pending, document, send

ONLY_LOCK = -1
"""Stands for a limit that is locked and stays as it is."""


@checked(frozen=True, slots=True)
class LimitView:
    """One key as operators see it."""

    slot_key: str
    limit: int
    set_by: str | None
    held: int
    waiting: int
    asked: int | None
    """What the newest request asked for; None of a key that nobody has asked for a slot of yet."""


@checked(frozen=True, slots=True)
class SlotView:
    """Who holds a slot, or waits for it."""

    job_id: str
    node_id: Annotated[str | None, Field(description="Null of the slot of a whole job.")]
    workflow_id: str
    priority: int
    requested_at: datetime
    granted_at: Annotated[datetime | None, Field(description="Null of who waits.")]


class SlotRepository:
    """SQL on `dag_limits` and `dag_slots`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def notice(self, holders: Sequence[str]) -> None:
        """Note that these grants were acted on."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_slots SET noticed = true
            WHERE holder = ANY(%s) AND granted_at IS NOT NULL AND NOT noticed
            """,
            (list(holders),),
        )

    async def change(
        self,
        requests: Sequence[Mapping[str, Any]],
        freed: Sequence[str] = (),
        *,
        dropped: Sequence[str] = (),
        priorities: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Free holders, add requests, grant what is free and wake the owners of the jobs that got something.

        Args:
            requests: {slot_key, limit_count, holder, job_id, node_id, priority}; one that is there already stays.
            freed: Holders that hold and wait for nothing any more; not among the requests.
            dropped: Jobs that wait for nothing any more; what they hold they keep.
            priorities: {job_id, priority} of jobs whose place in the line changes.
        """
        await self._lock(requests, freed, [*dropped, *(one["job_id"] for one in priorities)])
        if requests:
            await self._request(requests)
        if priorities:
            await self._change_priorities(priorities)
        await self._grant([request["slot_key"] for request in requests], freed, dropped)

    async def _lock(
        self, requests: Sequence[Mapping[str, Any]], freed: Sequence[str] = (), jobs: Sequence[str] = ()
    ) -> None:
        """Lock the limits of these keys in order; a limit that nobody set is what the newest request asks for.

        ON CONFLICT locks the row also when it changes nothing.
        """
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_limits AS l (slot_key, limit_count, asked_count)
            SELECT wanted.slot_key, max(wanted.limit_count), max(wanted.limit_count) FROM (
                SELECT slot_key, limit_count
                FROM jsonb_to_recordset(%(requests)s::jsonb) AS r(slot_key text, limit_count integer)
                UNION ALL
                SELECT slot_key, %(only_lock)s FROM dagapp.dag_limits
                WHERE slot_key = ANY(
                    ARRAY(SELECT slot_key FROM dagapp.dag_slots WHERE holder = ANY(%(freed)s))
                    || ARRAY(SELECT slot_key FROM dagapp.dag_slots
                             WHERE job_id = ANY(%(jobs)s) AND granted_at IS NULL))
            ) AS wanted
            GROUP BY wanted.slot_key ORDER BY wanted.slot_key
            ON CONFLICT (slot_key) DO UPDATE SET
                limit_count = CASE WHEN l.set_by IS NULL THEN excluded.limit_count ELSE l.limit_count END,
                asked_count = excluded.limit_count, updated_at = dagapp.clock()
            WHERE excluded.limit_count <> %(only_lock)s
                AND (l.asked_count IS DISTINCT FROM excluded.limit_count
                    OR (l.set_by IS NULL AND l.limit_count <> excluded.limit_count))
            """,
            {"requests": document(requests), "freed": list(freed), "jobs": list(jobs), "only_lock": ONLY_LOCK},
        )

    async def _request(self, requests: Sequence[Mapping[str, Any]]) -> None:
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_slots (slot_key, holder, job_id, node_id, priority, requested_at)
            SELECT slot_key, holder, job_id, node_id, priority, dagapp.clock()
            FROM jsonb_to_recordset(%s::jsonb)
                AS r(slot_key text, holder text, job_id text, node_id text, priority smallint)
            ON CONFLICT (slot_key, holder) DO NOTHING
            """,
            (document(requests),),
        )

    async def _change_priorities(self, priorities: Sequence[Mapping[str, Any]]) -> None:
        await self._conn.execute(
            """
            UPDATE dagapp.dag_slots AS s SET priority = u.priority
            FROM jsonb_to_recordset(%s::jsonb) AS u(job_id text, priority smallint)
            WHERE s.job_id = ANY(%s) AND s.job_id = u.job_id AND s.granted_at IS NULL
            """,
            (document(priorities), [one["job_id"] for one in priorities]),
        )

    async def _grant(self, keys: Sequence[str], freed: Sequence[str] = (), dropped: Sequence[str] = ()) -> None:
        """Delete what was freed and grant what is free, by priority, then age; the limits are locked.

        The statement still sees what it deletes, so it leaves those rows out by name.
        """
        await self._conn.execute(
            """
            WITH freed AS (
                DELETE FROM dagapp.dag_slots
                WHERE holder = ANY(%(freed)s) OR (job_id = ANY(%(dropped)s) AND granted_at IS NULL)
                RETURNING slot_key
            ),
            chosen AS (
                SELECT l.slot_key, next.holder
                FROM dagapp.dag_limits AS l
                CROSS JOIN LATERAL (
                    SELECT w.holder FROM dagapp.dag_slots AS w
                    WHERE w.slot_key = l.slot_key AND w.granted_at IS NULL AND w.holder <> ALL(%(freed)s)
                        AND w.job_id <> ALL(%(dropped)s)
                    ORDER BY w.priority DESC, w.requested_at, w.holder
                    LIMIT greatest(0, l.limit_count - (
                        SELECT count(*) FROM dagapp.dag_slots AS h
                        WHERE h.slot_key = l.slot_key AND h.granted_at IS NOT NULL AND h.holder <> ALL(%(freed)s)))
                ) AS next
                WHERE l.slot_key = ANY(%(keys)s || ARRAY(SELECT slot_key FROM freed))
            ),
            granted AS (
                UPDATE dagapp.dag_slots AS s SET granted_at = dagapp.clock()
                FROM chosen
                WHERE s.slot_key = chosen.slot_key AND s.holder = chosen.holder
                RETURNING s.job_id
            ),
            owners AS (
                SELECT DISTINCT owner_id FROM dagapp.dag_jobs WHERE job_id = ANY(ARRAY(SELECT job_id FROM granted))
            )
            SELECT pg_notify(coalesce('dag_owner_' || owner_id, 'dag_unowned'), '') FROM owners
            """,
            {"keys": list(keys), "freed": list(freed), "dropped": list(dropped)},
        )

    async def stale(self, limit: int) -> Pending[str]:
        """Return holders that hold for nobody: their attempt is over and its lease time has passed, or their job is.

        The attempt of a cancelled task may still be working until its worker says that it stopped, which frees the
        slot at once, or until its lease would have run out.
        """
        return await send(
            self._conn,
            scalar_row,
            """
            SELECT s.holder
            FROM dagapp.dag_slots AS s
            JOIN dagapp.dag_jobs AS j ON j.job_id = s.job_id
            LEFT JOIN dagapp.dag_node_states AS n ON n.job_id = s.job_id AND n.node_id = s.node_id
            LEFT JOIN dagapp.dag_attempts AS a ON a.task_id = s.holder
            WHERE s.granted_at IS NOT NULL AND CASE
                WHEN a.task_id IS NULL THEN j.status NOT IN ('PENDING', 'RUNNING')
                    OR (s.node_id IS NOT NULL AND n.node_id IS NULL)
                    OR n.status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')
                WHEN a.state IN ('queued', 'parked', 'leased') THEN false
                ELSE a.state IN ('reported', 'released') OR coalesce(a.lease_expires_at <= dagapp.clock(), true)
            END
            LIMIT %s
            """,
            (limit,),
        )

    async def lock_keys_of(self, holders: Sequence[str]) -> None:
        """Lock the limits of what these hold, before looking again."""
        await self._lock((), holders)

    async def lock_limit(self, slot_key: str) -> tuple[int, str | None] | None:
        """Lock one key and return its limit and who set it; None when there is no such key."""
        cursor = await self._conn.execute(
            "SELECT limit_count, set_by FROM dagapp.dag_limits WHERE slot_key = %s FOR UPDATE", (slot_key,)
        )
        row = await cursor.fetchone()
        return None if row is None else (row[0], row[1])

    async def set_limit(self, slot_key: str, limit: int, set_by: str) -> None:
        """Set a limit by hand, which outlives what workflows say, and grant what it makes room for."""
        await self._conn.execute(
            """
            INSERT INTO dagapp.dag_limits (slot_key, limit_count, set_by) VALUES (%s, %s, %s)
            ON CONFLICT (slot_key) DO UPDATE
            SET limit_count = excluded.limit_count, set_by = excluded.set_by, updated_at = dagapp.clock()
            """,
            (slot_key, limit, set_by),
        )
        await self._grant([slot_key])

    async def unset_limit(self, slot_key: str) -> None:
        """Let the limit be what the newest request asked for, and grant what that makes room for."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_limits
            SET set_by = NULL, limit_count = coalesce(asked_count, limit_count), updated_at = dagapp.clock()
            WHERE slot_key = %s
            """,
            (slot_key,),
        )
        await self._grant([slot_key])

    async def forget(self, after_seconds: float, limit: int) -> None:
        """Forget keys that nobody holds, waits for or has set, and of which nothing changed for so long.

        Keys may come from data, so there is no end of them; whoever asks for one again makes it anew. What others have
        locked is left alone: they may be about to ask.
        """
        cursor = await self._conn.execute(
            """
            SELECT slot_key FROM dagapp.dag_limits AS l
            WHERE set_by IS NULL AND updated_at <= dagapp.clock() - make_interval(secs => %s::float8)
                AND NOT EXISTS (SELECT FROM dagapp.dag_slots AS s WHERE s.slot_key = l.slot_key)
            LIMIT %s FOR UPDATE SKIP LOCKED
            """,
            (after_seconds, limit),
        )
        if keys := [row[0] for row in await cursor.fetchall()]:
            await self._conn.execute(
                """
                DELETE FROM dagapp.dag_limits AS l WHERE slot_key = ANY(%s)
                    AND NOT EXISTS (SELECT FROM dagapp.dag_slots AS s WHERE s.slot_key = l.slot_key)
                """,
                (keys,),
            )

    async def limits(self) -> Sequence[LimitView]:
        """Return all keys with how many hold and wait."""
        async with self._conn.cursor(row_factory=class_row(LimitView)) as cursor:
            await cursor.execute(
                """
                SELECT l.slot_key, l.limit_count AS limit, l.set_by, l.asked_count AS asked,
                    count(s.granted_at) AS held, count(s.holder) - count(s.granted_at) AS waiting
                FROM dagapp.dag_limits AS l LEFT JOIN dagapp.dag_slots AS s USING (slot_key)
                GROUP BY l.slot_key ORDER BY l.slot_key
                """
            )
            return await cursor.fetchall()

    async def limit_of(self, slot_key: str) -> LimitView | None:
        """Return one key with how many hold and wait."""
        async with self._conn.cursor(row_factory=class_row(LimitView)) as cursor:
            await cursor.execute(
                """
                SELECT l.slot_key, l.limit_count AS limit, l.set_by, l.asked_count AS asked,
                    count(s.granted_at) AS held, count(s.holder) - count(s.granted_at) AS waiting
                FROM dagapp.dag_limits AS l LEFT JOIN dagapp.dag_slots AS s USING (slot_key)
                WHERE l.slot_key = %s GROUP BY l.slot_key
                """,
                (slot_key,),
            )
            return await cursor.fetchone()

    async def holders(self, slot_key: str, limit: int) -> Sequence[SlotView]:
        """Return who holds a key, the oldest first."""
        async with self._conn.cursor(row_factory=class_row(SlotView)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, node_id,
                    (SELECT j.workflow_id FROM dagapp.dag_jobs AS j WHERE j.job_id = s.job_id) AS workflow_id,
                    priority, requested_at, granted_at
                FROM dagapp.dag_slots AS s WHERE slot_key = %s AND granted_at IS NOT NULL
                ORDER BY granted_at, holder LIMIT %s
                """,
                (slot_key, limit),
            )
            return await cursor.fetchall()

    async def line(self, slot_key: str, limit: int) -> Sequence[SlotView]:
        """Return who waits for a key, in the order in which `_grant` grants."""
        async with self._conn.cursor(row_factory=class_row(SlotView)) as cursor:
            await cursor.execute(
                """
                SELECT job_id, node_id,
                    (SELECT j.workflow_id FROM dagapp.dag_jobs AS j WHERE j.job_id = s.job_id) AS workflow_id,
                    priority, requested_at, granted_at
                FROM dagapp.dag_slots AS s WHERE slot_key = %s AND granted_at IS NULL
                ORDER BY priority DESC, requested_at, holder LIMIT %s
                """,
                (slot_key, limit),
            )
            return await cursor.fetchall()
