"""Commands that wait for the next advance of their job, and what is read together with them: clock and switches."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict

from core.models.engine import Command
from repositories.documents import Pending, document, send


class Moment(BaseModel):
    """What the world around some jobs says at the moment of their evaluation."""

    model_config = ConfigDict(frozen=True)

    now: datetime
    pauses: frozenset[str]
    """Switches in force: `all`, `workflow:<id>`, `queue:<name>`."""
    commands: tuple[Command, ...]
    """Open ones of these jobs, oldest first."""


class CommandRepository:
    """SQL on `dag_commands`, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def moment(self, job_ids: Iterable[str]) -> Pending[Moment]:
        """Return clock, switches and open commands, read now: after the locks that the transaction took before."""
        return await send(
            self._conn,
            class_row(Moment),
            """
            SELECT dagapp.clock() AS now,
                ARRAY(SELECT substr(key, 7) FROM dagapp.dag_settings
                      WHERE starts_with(key, 'pause:') AND value = 'true'::jsonb) AS pauses,
                ARRAY(SELECT to_jsonb(c) FROM dagapp.dag_commands AS c
                      WHERE c.job_id = ANY(%s) AND c.processed_at IS NULL ORDER BY c.command_id) AS commands
            """,
            (list(job_ids),),
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

    async def outcome(self, command_id: int) -> str | None:
        """Return what became of a command, None while it is open."""
        async with self._conn.cursor(row_factory=scalar_row) as cursor:
            await cursor.execute("SELECT outcome FROM dagapp.dag_commands WHERE command_id = %s", (command_id,))
            found: str | None = await cursor.fetchone()
            return found
