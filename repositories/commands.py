"""Commands that wait for the next advance of their job, and what is read together with them.

That is the clock, and what few jobs have: switches in force, fan-outs and slots. One statement asks for all of it and
brings documents, so that what is not there costs nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import AsyncConnection
from psycopg.rows import scalar_row
from psycopg.types.json import Jsonb

from core.models.engine import Command, Slot
from core.models.fan_out import FanOut
from repositories.documents import Pending, ShapedRows, document, send


@dataclass(frozen=True, slots=True)
class Moment:
    """What the world around some jobs says at the moment of their evaluation; all of it as of one snapshot."""

    now: datetime
    pauses: frozenset[str]
    """Switches in force: `all`, `workflow:<id>`, `queue:<name>`."""
    commands: Sequence[Command]
    """Open ones of these jobs, oldest first."""
    fan_outs: Sequence[FanOut]
    slots: Sequence[Slot]
    """What jobs themselves hold or wait for, and grants to their tasks that they have not acted on yet."""

    @classmethod
    def of_columns(cls, columns: Sequence[Any]) -> "Moment":
        """Return the row of the statement below; most jobs have nothing of all this."""
        now, pauses, commands, fan_outs, slots = columns
        return cls(
            now,
            frozenset(pauses or ()),
            [Command.of_document(one) for one in commands or ()],
            [FanOut.of_document(one) for one in fan_outs or ()],
            [Slot.of_document(one) for one in slots or ()],
        )


_MOMENT: Final = ShapedRows(Moment.of_columns)


class CommandRepository:
    """SQL on `dag_commands`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def moment(self, job_ids: Iterable[str]) -> Pending[Moment]:
        """Return clock, switches, commands, fan-outs and slots: after the locks that the transaction took before."""
        return await send(
            self._conn,
            _MOMENT,
            """
            SELECT dagapp.clock(),
                (SELECT jsonb_agg(substr(key, 7)) FROM dagapp.dag_settings
                 WHERE starts_with(key, 'pause:') AND value = 'true'::jsonb),
                (SELECT jsonb_agg(to_jsonb(c) ORDER BY c.command_id) FROM (
                    SELECT command_id, job_id, kind, args, actor, reason, created_at, processed_at, outcome
                    FROM dagapp.dag_commands WHERE job_id = ANY(%(jobs)s) AND processed_at IS NULL) AS c),
                (SELECT jsonb_agg(to_jsonb(f)) FROM (
                    SELECT job_id, node_id, state, item_count, child_count, batch_size, max_concurrency, tolerated,
                        next_child, active, succeeded, failed, skipped, failures, wake_at, created_at, completed_at,
                        first_attempt
                    FROM dagapp.dag_fan_outs WHERE job_id = ANY(%(jobs)s)) AS f),
                (SELECT jsonb_agg(to_jsonb(s)) FROM (
                    SELECT slot_key, holder, job_id, node_id, priority, requested_at, granted_at, noticed
                    FROM dagapp.dag_slots WHERE holder = ANY(%(jobs)s)
                    UNION ALL
                    SELECT slot_key, holder, job_id, node_id, priority, requested_at, granted_at, noticed
                    FROM dagapp.dag_slots
                    WHERE job_id = ANY(%(jobs)s) AND granted_at IS NOT NULL AND NOT noticed
                        AND node_id IS NOT NULL) AS s)
            """,
            {"jobs": list(job_ids)},
        )

    async def put(self, job_id: str, kind: str, args: Mapping[str, Any], actor: str, reason: str | None) -> int:
        """Store a command for the next advance of a job and return its number."""
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute(
                """
                INSERT INTO dagapp.dag_commands (job_id, kind, args, actor, reason)
                VALUES (%s, %s, %s, %s, %s) RETURNING command_id
                """,
                (job_id, kind, Jsonb(dict(args)), actor, reason),
            )
            return int(await cursor.fetchone() or 0)

    async def hand_down(self, orders: Sequence[Mapping[str, Any]]) -> None:
        """Store commands, {job_id, kind, args, actor, reason}, of jobs that have not ended, and wake their owners."""
        await self._conn.execute(
            """
            WITH stored AS (
                INSERT INTO dagapp.dag_commands (job_id, kind, args, actor, reason)
                SELECT o.job_id, o.kind, o.args, o.actor, o.reason
                FROM jsonb_to_recordset(%s::jsonb)
                    AS o(job_id text, kind text, args jsonb, actor text, reason text)
                WHERE EXISTS (SELECT FROM dagapp.dag_jobs AS j
                              WHERE j.job_id = o.job_id AND j.status IN ('PENDING', 'RUNNING'))
                RETURNING job_id
            )
            SELECT pg_notify(channel, '') FROM (
                SELECT DISTINCT coalesce('dag_owner_' || j.owner_id, 'dag_unowned') AS channel
                FROM dagapp.dag_jobs AS j WHERE j.job_id = ANY(ARRAY(SELECT job_id FROM stored))) AS channels
            """,
            (document(orders),),
        )

    async def settle(self, outcomes: Sequence[Mapping[str, Any]], now: datetime) -> None:
        """Record what became of commands: {command_id, outcome}."""
        await self._conn.execute(
            """
            UPDATE dagapp.dag_commands AS c SET processed_at = %s, outcome = u.outcome
            FROM jsonb_to_recordset(%s::jsonb) AS u(command_id bigint, outcome text)
            WHERE c.command_id = ANY(%s) AND c.command_id = u.command_id
            """,
            (now, document(outcomes), [one["command_id"] for one in outcomes]),
        )

    async def outcomes(self, command_ids: Iterable[int]) -> Mapping[int, str]:
        """Return what became of those of the commands that are not open any more."""
        cursor = await self._conn.execute(
            """
            SELECT command_id, outcome FROM dagapp.dag_commands
            WHERE command_id = ANY(%s) AND processed_at IS NOT NULL
            """,
            (list(command_ids),),
        )
        return {row[0]: row[1] for row in await cursor.fetchall()}
