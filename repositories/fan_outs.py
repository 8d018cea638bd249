"""Fan-outs: their rows, their items, and those of their children that something happens to.

The job's row is locked by whoever writes. No statement here reads all children of a fan-out but `finished`, which is
asked once, when a small one may end, and `in_flight`, which is asked when one has lost its attempt.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection
from psycopg.rows import class_row
from pydantic import BaseModel
from pydantic.dataclasses import dataclass as checked

from core.models.engine import Attempt, NodeState
from core.models.fan_out import FanOut
from repositories.documents import Pending, ShapedRows, document_of, row_of, send

CHUNK_ITEMS = 500
"""Items in one row of `dag_fan_out_items`, as its model says."""
Row = BaseModel | Mapping[str, Any]


@checked(frozen=True, slots=True)
class Items:
    """Consecutive items of a fan-out; a request comes back in parts, one for each row that holds some."""

    job_id: str
    node_id: str
    chunk_no: int
    items: list[Any]


@checked(frozen=True, slots=True)
class Timer:
    """When the next child of a fan-out has something to do that is not due yet."""

    job_id: str
    node_id: str
    at: datetime | None


@checked(frozen=True, slots=True)
class Stored:
    """How many items of a fan-out are stored."""

    job_id: str
    node_id: str
    items: int


class Outputs(NamedTuple):
    """What a child put out; `output` is JSON text. Of these there are as many as a fan-out has children."""

    number: int
    status: str
    output: str | None
    output_ref: dict[str, Any] | None
    outcomes: list[Any] | None


_OUTPUTS: Final = ShapedRows(Outputs._make)


class FanOutRepository:
    """SQL on fan-outs and their children, in the caller's transaction."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def of_jobs(self, job_ids: Iterable[str]) -> Pending[FanOut]:
        """Return the rows of all fan-outs of these jobs."""
        return await send(
            self._conn,
            row_of(FanOut),
            """
            SELECT job_id, node_id, state, item_count, child_count, batch_size, max_concurrency, tolerated, next_child,
                active, succeeded, failed, skipped, failures, wake_at, created_at, completed_at, first_attempt
            FROM dagapp.dag_fan_outs WHERE job_id = ANY(%s)
            """,
            (list(job_ids),),
        )

    async def children(self, keys: Iterable[tuple[str, str]]) -> Pending[NodeState]:
        """Return children by job and node id, each looked up by its whole key: a job may have a million."""
        wanted = list(keys)
        return await send(
            self._conn,
            row_of(NodeState),
            """
            SELECT n.job_id, n.node_id, n.status, n.task_id, n.attempt, n.retries_used, n.losses_used, n.not_before,
                n.skip_reason, n.waiting_for, n.input_params, n.params_override, n.output, n.error, n.parent_node_id,
                n.fan_out_index, n.ready_at, n.first_dispatched_at, n.dispatched_at, n.started_at, n.completed_at,
                n.input_ref, n.output_ref, n.outcomes, n.slot_key
            FROM unnest(%s::text[], %s::text[]) AS w(job_id, node_id)
            CROSS JOIN LATERAL (
                SELECT * FROM dagapp.dag_node_states AS c
                WHERE c.job_id = w.job_id AND c.node_id = w.node_id LIMIT 1) AS n
            """,
            ([job for job, _ in wanted], [node for _, node in wanted]),
        )

    async def waiting(self, job_ids: Iterable[str], until: datetime | None) -> Pending[NodeState]:
        """Return the children of these jobs that wait for a time not after `until`, or for any."""
        return await send(
            self._conn,
            row_of(NodeState),
            """
            SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                slot_key
            FROM dagapp.dag_node_states
            WHERE job_id = ANY(%s) AND parent_node_id IS NOT NULL AND not_before IS NOT NULL
                AND not_before <= coalesce(%s::timestamptz, 'infinity')
            """,
            (list(job_ids), until),
        )

    async def lined_up(self, job_ids: Iterable[str]) -> Pending[NodeState]:
        """Return the children of these jobs that wait for a slot, or gave theirs back for a pause."""
        return await send(
            self._conn,
            row_of(NodeState),
            """
            SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                slot_key
            FROM dagapp.dag_node_states
            WHERE job_id = ANY(%s) AND parent_node_id IS NOT NULL AND slot_key IS NOT NULL
                AND status = 'WAITING' AND not_before IS NULL
            """,
            (list(job_ids),),
        )

    async def in_flight(self, job_ids: Iterable[str]) -> Pending[NodeState]:
        """Return the children of these jobs that have an attempt out; every child of theirs is looked at."""
        return await send(
            self._conn,
            row_of(NodeState),
            """
            SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                slot_key
            FROM dagapp.dag_node_states
            WHERE job_id = ANY(%s) AND parent_node_id IS NOT NULL AND status IN ('DISPATCHED', 'RUNNING')
            """,
            (list(job_ids),),
        )

    async def last_attempts(self, job_ids: Iterable[str], until: datetime | None) -> Pending[Attempt]:
        """Return the attempts after which those children wait; they have ended, so nobody changes them."""
        return await send(
            self._conn,
            row_of(Attempt),
            """
            SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                token_hash, timeout_seconds, queued_at, redispatch_at, claim_id, worker_id, leased_at,
                lease_expires_at, ended_at, progress, peak_rss_bytes, reason, heartbeat_timeout_seconds, child,
                outcomes, queue_expires_at
            FROM dagapp.dag_attempts WHERE task_id = ANY(ARRAY(
                SELECT task_id FROM dagapp.dag_node_states
                WHERE job_id = ANY(%s) AND parent_node_id IS NOT NULL AND not_before IS NOT NULL
                    AND not_before <= coalesce(%s::timestamptz, 'infinity')))
            """,
            (list(job_ids), until),
        )

    async def finished(self, job_id: str, node_id: str, max_bytes: int) -> Pending[NodeState]:
        """Return the children of a fan-out that have ended, none when what they put out is larger together."""
        return await send(
            self._conn,
            row_of(NodeState),
            """
            SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index, ready_at,
                first_dispatched_at, dispatched_at, started_at, completed_at, input_ref, output_ref, outcomes,
                slot_key
            FROM dagapp.dag_node_states
            WHERE job_id = %(job)s AND parent_node_id = %(node)s
                AND status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED') AND (
                SELECT coalesce(sum(coalesce(pg_column_size(output), 0) + coalesce(pg_column_size(outcomes), 0)), 0)
                FROM dagapp.dag_node_states WHERE job_id = %(job)s AND parent_node_id = %(node)s) <= %(bytes)s
            """,
            {"job": job_id, "node": node_id, "bytes": max_bytes},
        )

    async def outputs(self, job_id: str, node_id: str, after: int, limit: int) -> Pending[Outputs]:
        """Return what children behind a number put out, in order."""
        return await send(
            self._conn,
            _OUTPUTS,
            """
            SELECT fan_out_index, status, output::text, output_ref, outcomes
            FROM dagapp.dag_node_states WHERE job_id = %s AND parent_node_id = %s AND fan_out_index > %s
            ORDER BY fan_out_index LIMIT %s
            """,
            (job_id, node_id, after, limit),
        )

    async def next_timers(self, keys: Iterable[tuple[str, str]], now: datetime, read: Iterable[str]) -> Pending[Timer]:
        """Return the next timer of each fan-out among what an evaluation does not see.

        That is: of its live attempts but for those that were read, and of its children that wait beyond `now`. An
        attempt whose time has come since those were read counts too, or nobody would ever look at it.
        """
        wanted = list(keys)
        return await send(
            self._conn,
            class_row(Timer),
            """
            SELECT w.job_id, w.node_id, least(
                (SELECT min(CASE a.state
                    WHEN 'queued' THEN least(a.redispatch_at, a.queue_expires_at)
                    WHEN 'leased' THEN least(
                        a.lease_expires_at, a.leased_at + make_interval(secs => a.timeout_seconds))
                    END)
                 FROM dagapp.dag_attempts AS a
                 WHERE a.job_id = w.job_id AND a.state IN ('queued', 'parked', 'leased') AND a.child
                    AND split_part(a.node_id, '__', 1) = w.node_id
                    AND NOT EXISTS (SELECT FROM unnest(%(read)s::text[]) AS r(task_id) WHERE r.task_id = a.task_id)),
                (SELECT min(n.not_before) FROM dagapp.dag_node_states AS n
                 WHERE n.job_id = w.job_id AND n.parent_node_id IS NOT NULL AND n.not_before > %(now)s
                    AND split_part(n.node_id, '__', 1) = w.node_id)) AS at
            FROM unnest(%(jobs)s::text[], %(nodes)s::text[]) AS w(job_id, node_id)
            """,
            {
                "jobs": [job for job, _ in wanted],
                "nodes": [node for _, node in wanted],
                "now": now,
                "read": list(read),
            },
        )

    async def items(self, wanted: Iterable[tuple[str, str, int, int]]) -> Pending[Items]:
        """Return items by (job, node, first index, count), in parts in their order."""
        rows = [
            {"job_id": job, "node_id": node, "first": first, "beyond": first + count}
            for job, node, first, count in wanted
        ]
        return await send(
            self._conn,
            class_row(Items),
            """
            SELECT i.job_id, i.node_id, i.chunk_no, jsonb_path_query_array(
                i.items, '$[$first to $last]', jsonb_build_object(
                    'first', greatest(w.first - i.chunk_no * %(size)s, 0),
                    'last', least(w.beyond - i.chunk_no * %(size)s, %(size)s) - 1)) AS items
            FROM jsonb_to_recordset(%(document)s::jsonb -> 'wanted')
                AS w(job_id text, node_id text, first integer, beyond integer)
            CROSS JOIN LATERAL (
                SELECT f.job_id, f.node_id, f.chunk_no, f.items FROM dagapp.dag_fan_out_items AS f
                WHERE f.job_id = w.job_id AND f.node_id = w.node_id AND f.chunk_no = ANY(ARRAY(
                    SELECT generate_series(w.first / %(size)s, (w.beyond - 1) / %(size)s)))) AS i
            ORDER BY i.job_id, i.node_id, i.chunk_no
            """,
            {"document": document_of(wanted=rows), "size": CHUNK_ITEMS},
        )

    async def stored(self, keys: Iterable[tuple[str, str]]) -> Pending[Stored]:
        """Return how many items of each fan-out are stored."""
        wanted = list(keys)
        return await send(
            self._conn,
            class_row(Stored),
            """
            SELECT w.job_id, w.node_id, coalesce(sum(jsonb_array_length(i.items)), 0)::int AS items
            FROM unnest(%s::text[], %s::text[]) AS w(job_id, node_id)
            LEFT JOIN dagapp.dag_fan_out_items AS i ON i.job_id = w.job_id AND i.node_id = w.node_id
            GROUP BY w.job_id, w.node_id
            """,
            ([job for job, _ in wanted], [node for _, node in wanted]),
        )

    async def store_lines(self, job_id: str, node_id: str, run_no: int, first_chunk: int, lines: Sequence[str]) -> bool:
        """Store lists of items as rows, again without harm; False when the fan-out does not expand any more."""
        cursor = await self._conn.execute(
            """
            WITH wanted AS (
                SELECT f.job_id, f.node_id FROM dagapp.dag_fan_outs AS f
                JOIN dagapp.dag_jobs AS j ON j.job_id = f.job_id
                WHERE f.job_id = %(job)s AND f.node_id = %(node)s AND f.state = 'expanding' AND j.run_no = %(run)s
                FOR SHARE OF f
            ),
            stored AS (
                INSERT INTO dagapp.dag_fan_out_items (job_id, node_id, chunk_no, items)
                SELECT w.job_id, w.node_id, %(first)s + l.number - 1, l.line::jsonb
                FROM wanted AS w CROSS JOIN unnest(%(lines)s::text[]) WITH ORDINALITY AS l(line, number)
                ON CONFLICT (job_id, node_id, chunk_no) DO NOTHING
            )
            SELECT count(*) FROM wanted
            """,
            {"job": job_id, "node": node_id, "run": run_no, "first": first_chunk, "lines": list(lines)},
        )
        row = await cursor.fetchone()
        return row is not None and row[0] > 0
