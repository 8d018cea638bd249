"""Everything that an engine transaction writes, in one statement: one round trip whatever the number of jobs.

Each part is a list of rows in a bound JSON document. What a transaction does not write is not in its statement: the few
combinations that come up are as many texts, each prepared once. Rows are addressed by `= ANY(keys)` beside the join to
the document, so that the plan never depends on statistics.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from psycopg import AsyncConnection
from pydantic import BaseModel

from repositories.documents import alike, document_of, rows_of, unless_stale
from repositories.events import NewEvent

Row = BaseModel | Mapping[str, Any]

_PARTS: Final[Mapping[str, str]] = {
    "jobs": """
written_jobs AS (
    UPDATE dagapp.dag_jobs AS j
    SET status = u.status, version = u.version, run_no = u.run_no, priority = u.priority, paused_at = u.paused_at,
        wake_at = u.wake_at, deadline_at = u.deadline_at, waiting_for = u.waiting_for, outputs = u.outputs,
        outputs_ref = u.outputs_ref, error = u.error, warnings = u.warnings,
        evaluation_failures = u.evaluation_failures, updated_at = u.updated_at,
        started_at = u.started_at, completed_at = u.completed_at, owner_id = u.owner_id, owner_epoch = u.owner_epoch
    FROM jsonb_populate_recordset(NULL::dagapp.dag_jobs, %(jobs)s::jsonb) AS u
    WHERE j.job_id = ANY(%(job_ids)s) AND j.job_id = u.job_id AND j.version = u.version - 1
    RETURNING j.job_id
)""",
    "nodes": """
written_nodes AS (
    UPDATE dagapp.dag_node_states AS n
    SET status = u.status, task_id = u.task_id, attempt = u.attempt, retries_used = u.retries_used,
        losses_used = u.losses_used, not_before = u.not_before, skip_reason = u.skip_reason,
        waiting_for = u.waiting_for, input_params = u.input_params, input_ref = u.input_ref,
        params_override = u.params_override, output = u.output, output_ref = u.output_ref,
        outcomes = u.outcomes, slot_key = u.slot_key, error = u.error, ready_at = u.ready_at,
        first_dispatched_at = u.first_dispatched_at,
        dispatched_at = u.dispatched_at, started_at = u.started_at, completed_at = u.completed_at
    FROM jsonb_to_recordset(%(nodes)s::jsonb) AS u(
        job_id text, node_id text, from_status text, status text, task_id text, attempt integer,
        retries_used integer, losses_used integer, not_before timestamptz, skip_reason text,
        waiting_for jsonb, input_params jsonb, input_ref jsonb, params_override jsonb, output jsonb,
        output_ref jsonb, outcomes jsonb, slot_key text, error jsonb, ready_at timestamptz,
        first_dispatched_at timestamptz, dispatched_at timestamptz, started_at timestamptz,
        completed_at timestamptz)
    WHERE n.job_id = ANY(%(node_job_ids)s) AND n.parent_node_id IS NULL AND n.node_id = ANY(%(node_ids)s)
        AND n.job_id = u.job_id AND n.node_id = u.node_id AND n.status = u.from_status
    RETURNING n.node_id
)""",
    "new_attempts": """
written_new_attempts AS (
    INSERT INTO dagapp.dag_attempts
        (task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
         token_hash, timeout_seconds, queued_at, redispatch_at, heartbeat_timeout_seconds, child,
         queue_expires_at, claim_id, worker_id, leased_at, lease_expires_at)
    SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority,
        params_digest, token_hash, timeout_seconds, queued_at, redispatch_at, heartbeat_timeout_seconds, child,
        queue_expires_at, claim_id, worker_id, leased_at, lease_expires_at
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::dagapp.dag_attempts, %(new_attempts)s::jsonb -> 'every'),
        %(new_attempts)s::jsonb -> 'each')
)""",
    "attempts": """
written_attempts AS (
    UPDATE dagapp.dag_attempts AS a
    SET state = u.state, ended_at = u.ended_at, reason = u.reason, redispatch_at = u.redispatch_at,
        dispatch_no = coalesce(u.dispatch_no, a.dispatch_no),
        token_hash = coalesce(u.token_hash, a.token_hash), priority = coalesce(u.priority, a.priority),
        peak_rss_bytes = greatest(u.peak_rss_bytes, a.peak_rss_bytes)
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::dagapp.dag_attempts, %(attempts)s::jsonb -> 'every'),
        %(attempts)s::jsonb -> 'each') AS u
    WHERE a.task_id = ANY(%(task_ids)s) AND a.task_id = u.task_id
        AND a.state IN ('queued', 'parked', 'leased')
)""",
    "new_results": """
written_new_results AS (
    INSERT INTO dagapp.dag_task_results
        (task_id, job_id, node_id, attempt, status, output, output_ref, outcomes, error, findings, metrics,
         worker_id, reported_at, processed, disposition)
    SELECT task_id, job_id, node_id, attempt, status, output, output_ref, outcomes, error, findings, metrics,
        worker_id, reported_at, processed, disposition
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::dagapp.dag_task_results, %(new_results)s::jsonb -> 'every'),
        %(new_results)s::jsonb -> 'each')
    ON CONFLICT (task_id) DO NOTHING
)""",
    "results": """
written_results AS (
    UPDATE dagapp.dag_task_results AS r SET processed = u.processed, disposition = u.disposition
    FROM jsonb_populate_recordset(NULL::dagapp.dag_task_results, %(results)s::jsonb) AS u
    WHERE r.task_id = ANY(%(result_ids)s) AND r.task_id = u.task_id
)""",
    "events": """
written_events AS (
    INSERT INTO dagapp.dag_job_events
        (job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name, created_at)
    SELECT job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name, created_at
    FROM jsonb_populate_recordset(NULL::dagapp.dag_job_events, %(events)s::jsonb)
)""",
}
"""What each part of `DecisionRepository.update` says; apart from it for its length."""
_WRITTEN_OF_JOBS: Final = tuple(dict.fromkeys(re.findall(r"\bu\.(\w+)", _PARTS["jobs"])))
"""Columns that an update of a job reads: its inputs, which may be the most of it, never change."""
_CHECKS: Final[Mapping[str, str]] = {
    "jobs": "(SELECT count(*) FROM written_jobs) = %(jobs_count)s",
    "nodes": "(SELECT count(*) FROM written_nodes) = %(nodes_count)s",
}
"""What holds when rows were as they had been read."""


@lru_cache
def _statement(parts: tuple[str, ...]) -> str:
    """Return the statement that writes these parts."""
    found = unless_stale([check for part, check in _CHECKS.items() if part in parts])
    told = ", (SELECT count(pg_notify(channel, '')) FROM unnest(%(channels)s::text[]) AS channel)"
    written = ",".join(_PARTS[part] for part in parts if part in _PARTS)
    return f"WITH {written}\n{found}{told if 'channels' in parts else ''}" if written else f"{found}{told}"


class DecisionRepository:
    """SQL on the engine's tables, in the caller's transaction, which holds the locks of what it updates."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def create(
        self, *, jobs: Sequence[Row], nodes: Sequence[Row], attempts: Sequence[Row], events: Sequence[NewEvent]
    ) -> None:
        """Store new jobs with their nodes, first attempts and events."""
        await self._conn.execute(
            """
            WITH doc AS MATERIALIZED (SELECT %s::jsonb AS d),
            new_jobs AS (
                INSERT INTO dagapp.dag_jobs
                    (job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                     owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                     submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                     completed_at, input_refs, depth, waiting_for, slots_above)
                SELECT job_id, workflow_id, workflow_version, definition_hash, status, input_params, run_no, version,
                    owner_id, owner_epoch, priority, paused_at, wake_at, deadline_at, parent_task_id, correlation_id,
                    submitted_by, outputs, error, warnings, evaluation_failures, created_at, updated_at, started_at,
                    completed_at, input_refs, depth, waiting_for, slots_above
                FROM doc, jsonb_populate_recordset(
                    jsonb_populate_record(NULL::dagapp.dag_jobs, d #> '{jobs,every}'), d #> '{jobs,each}')
            ),
            new_nodes AS (
                INSERT INTO dagapp.dag_node_states
                    (job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                     waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index,
                     ready_at, first_dispatched_at, dispatched_at, started_at, completed_at, slot_key)
                SELECT job_id, node_id, status, task_id, attempt, retries_used, losses_used, not_before, skip_reason,
                    waiting_for, input_params, params_override, output, error, parent_node_id, fan_out_index,
                    ready_at, first_dispatched_at, dispatched_at, started_at, completed_at, slot_key
                FROM doc, jsonb_populate_recordset(NULL::dagapp.dag_node_states, d -> 'nodes')
            ),
            new_attempts AS (
                INSERT INTO dagapp.dag_attempts
                    (task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority, params_digest,
                     token_hash, timeout_seconds, queued_at, redispatch_at, heartbeat_timeout_seconds, child,
                     queue_expires_at, claim_id, worker_id, leased_at, lease_expires_at)
                SELECT task_id, job_id, node_id, attempt, dispatch_no, state, queue, handler, priority,
                    params_digest, token_hash, timeout_seconds, queued_at, redispatch_at,
                    heartbeat_timeout_seconds, child, queue_expires_at, claim_id, worker_id, leased_at,
                    lease_expires_at
                FROM doc, jsonb_populate_recordset(
                    jsonb_populate_record(NULL::dagapp.dag_attempts, d #> '{attempts,every}'), d #> '{attempts,each}')
            )
            INSERT INTO dagapp.dag_job_events
                (job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name, created_at)
            SELECT job_id, node_id, task_id, event_type, event_status, event_data, checkpoint_name, created_at
            FROM doc, jsonb_populate_recordset(NULL::dagapp.dag_job_events, d -> 'events')
            """,
            (document_of(jobs=alike(jobs), nodes=nodes, attempts=alike(attempts), events=events),),
        )

    async def update(
        self,
        *,
        jobs: Sequence[Row] = (),
        nodes: Sequence[Row] = (),
        new_attempts: Sequence[Row] = (),
        attempts: Sequence[Row] = (),
        new_results: Sequence[Row] = (),
        results: Sequence[Row] = (),
        events: Sequence[NewEvent] = (),
        channels: Sequence[str] = (),
    ) -> None:
        """Write decisions about locked jobs, results, ends of attempts and events, and notify.

        Raises `errors.DivisionByZero`, at the latest with the commit, when a job or a node was not as it had been read.

        Args:
            jobs: Rows one version above what is stored.
            nodes: Rows of vertices with `from_status`, the status they were read in; children are written elsewhere.
            new_attempts: Rows to insert.
            attempts: {task_id, state, …}: live attempts that end or are sent again.
            new_results: Inbox rows to insert; one that is there already stays as it is.
            results: {task_id, processed, disposition} of inbox rows of locked jobs that are settled now.
            events: In their order.
            channels: Whom to wake when the transaction commits.
        """
        parts: dict[str, Sequence[object] | Mapping[str, object]] = {
            "jobs": [_written(row) for row in jobs],
            "nodes": nodes,
            "new_attempts": alike(new_attempts),
            "attempts": alike(attempts),
            "new_results": alike(new_results),
            "results": results,
            "events": events,
            "channels": channels,
        }
        said = tuple(part for part, rows in parts.items() if rows)
        if not said:
            return
        values: dict[str, Any] = {part: rows_of(parts[part]) for part in said if part in _PARTS}
        if jobs:
            values |= {"jobs_count": len(jobs), "job_ids": [_value(row, "job_id") for row in jobs]}
        if nodes:
            values |= {
                "nodes_count": len(nodes),
                "node_job_ids": list({_value(row, "job_id") for row in nodes}),
                "node_ids": list({_value(row, "node_id") for row in nodes}),
            }
        if attempts:
            values["task_ids"] = [_value(row, "task_id") for row in attempts]
        if results:
            values["result_ids"] = [_value(row, "task_id") for row in results]
        if channels:
            values["channels"] = sorted(set(channels))
        await self._conn.execute(_statement(said), values)

    async def start(
        self, claims: Sequence[Mapping[str, Any]], worker_id: str, lease_seconds: float, events: Sequence[NewEvent]
    ) -> None:
        """Lease locked, queued attempts and let their nodes run; `claims` are {task_id, job_id, node_id, claim_id}.

        Children of fan-outs come without `node_id`: their rows are not written, their attempt says that they run.
        `lease_seconds` is for attempts without a length of their own.
        IS NOT DISTINCT FROM keeps the planner from reading all queued attempts when statistics are stale.
        """
        await self._conn.execute(
            """
            WITH doc AS MATERIALIZED (SELECT %(document)s::jsonb AS d, dagapp.clock() AS now),
            leased AS (
                UPDATE dagapp.dag_attempts AS a
                SET state = 'leased', claim_id = u.claim_id, worker_id = %(worker)s, leased_at = doc.now,
                    lease_expires_at = doc.now
                        + make_interval(secs => coalesce(a.heartbeat_timeout_seconds, %(lease)s)),
                    redispatch_at = NULL
                FROM doc, jsonb_to_recordset(d -> 'claims') AS u(task_id text, claim_id text)
                WHERE a.task_id = ANY(%(task_ids)s) AND a.task_id = u.task_id
                    AND a.state IS NOT DISTINCT FROM 'queued'
            ),
            running AS (
                UPDATE dagapp.dag_node_states AS n SET status = 'RUNNING', started_at = doc.now, waiting_for = NULL
                FROM doc
                WHERE n.job_id = ANY(%(job_ids)s) AND n.parent_node_id IS NULL AND n.node_id = ANY(%(node_ids)s)
                    AND n.task_id = ANY(%(task_ids)s) AND n.status = 'DISPATCHED'
            )
            INSERT INTO dagapp.dag_job_events
                (job_id, node_id, task_id, event_type, event_status, event_data, created_at)
            SELECT job_id, node_id, task_id, event_type, event_status, event_data, doc.now
            FROM doc, jsonb_populate_recordset(NULL::dagapp.dag_job_events, d -> 'events')
            """,
            {
                "document": document_of(claims=claims, events=events),
                "worker": worker_id,
                "lease": lease_seconds,
                "task_ids": [row["task_id"] for row in claims],
                "job_ids": list({row["job_id"] for row in claims if row["node_id"]}),
                "node_ids": list({row["node_id"] for row in claims if row["node_id"]}),
            },
        )


def _written(job: Row) -> Mapping[str, Any]:
    values = job.__dict__ if isinstance(job, BaseModel) else job
    return {name: value for name in _WRITTEN_OF_JOBS if (value := values.get(name)) is not None}


def _value(row: Row, name: str) -> str:
    value = row[name] if isinstance(row, Mapping) else getattr(row, name)
    return str(value)
