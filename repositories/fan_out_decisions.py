"""Everything that an engine transaction writes about fan-outs and their children.

A part of `repositories.decisions` that only jobs with fan-outs need; its rows travel in the same way.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from psycopg import AsyncConnection

from repositories.documents import alike, rows_of, unless_stale

Row = Mapping[str, Any]

_PARTS: Final[Mapping[str, str]] = {
    "opened": """
written_opened AS (
    INSERT INTO dagapp.dag_fan_outs
        (job_id, node_id, state, item_count, child_count, batch_size, max_concurrency, tolerated,
         next_child, active, succeeded, failed, skipped, failures, wake_at, created_at, completed_at,
         first_attempt)
    SELECT job_id, node_id, state, item_count, child_count, batch_size, max_concurrency, tolerated,
        next_child, active, succeeded, failed, skipped, failures, wake_at, created_at, completed_at,
        first_attempt
    FROM jsonb_populate_recordset(NULL::dagapp.dag_fan_outs, %(opened)s::jsonb)
)""",
    "fan_outs": """
written_fan_outs AS (
    UPDATE dagapp.dag_fan_outs AS f
    SET state = u.state, max_concurrency = u.max_concurrency, next_child = u.next_child, active = u.active,
        succeeded = u.succeeded, failed = u.failed, skipped = u.skipped,
        failures = coalesce(u.failures, f.failures), wake_at = u.wake_at, completed_at = u.completed_at
    FROM jsonb_to_recordset(%(fan_outs)s::jsonb) AS u(
        job_id text, node_id text, state text, max_concurrency integer, next_child integer, active integer,
        succeeded integer, failed integer, skipped integer, failures jsonb, wake_at timestamptz,
        completed_at timestamptz)
    WHERE f.job_id = ANY(%(fan_out_jobs)s) AND f.job_id = u.job_id AND f.node_id = u.node_id
)""",
    "items": """
written_items AS (
    INSERT INTO dagapp.dag_fan_out_items (job_id, node_id, chunk_no, items)
    SELECT job_id, node_id, chunk_no, items
    FROM jsonb_to_recordset(%(items)s::jsonb) AS i(job_id text, node_id text, chunk_no integer, items jsonb)
)""",
    "created": """
written_created AS (
    INSERT INTO dagapp.dag_node_states
        (job_id, node_id, status, task_id, attempt, input_params, input_ref, error, parent_node_id,
         fan_out_index, first_dispatched_at, dispatched_at, completed_at, outcomes, slot_key, waiting_for)
    SELECT job_id, node_id, status, task_id, attempt, input_params, input_ref, error, parent_node_id,
        fan_out_index, first_dispatched_at, dispatched_at, completed_at, outcomes, slot_key, waiting_for
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::dagapp.dag_node_states, %(created)s::jsonb -> 'every'),
        %(created)s::jsonb -> 'each')
)""",
    "changed": """
written_changed AS (
    UPDATE dagapp.dag_node_states AS n
    SET status = u.status, task_id = u.task_id, attempt = u.attempt, retries_used = u.retries_used,
        losses_used = u.losses_used, not_before = u.not_before, waiting_for = u.waiting_for,
        output = u.output, output_ref = u.output_ref, outcomes = u.outcomes, error = u.error,
        ready_at = u.ready_at, first_dispatched_at = u.first_dispatched_at,
        dispatched_at = u.dispatched_at, started_at = u.started_at, completed_at = u.completed_at
    FROM jsonb_populate_recordset(
        jsonb_populate_record(NULL::dagapp.dag_node_states, %(changed)s::jsonb -> 'every'),
        %(changed)s::jsonb -> 'each') AS u
    WHERE n.ctid = ANY(ARRAY(
            SELECT found.ctid
            FROM unnest(%(job_ids)s::text[], %(node_ids)s::text[], %(statuses)s::text[]) AS w(job_id, node_id, status)
            CROSS JOIN LATERAL (
                SELECT c.ctid, c.status FROM dagapp.dag_node_states AS c
                WHERE c.job_id = w.job_id AND c.node_id = w.node_id LIMIT 1) AS found
            WHERE found.status = w.status))
        AND n.job_id = u.job_id AND n.node_id = u.node_id
    RETURNING n.node_id
)""",
}
"""What each part of `FanOutDecisionRepository.write` says; apart from it for its length.

Children are found by their whole key, one after the other, and updated where they lie, which nobody changes while the
job is held: with `= ANY` on both columns the planner reads every child of the job.
"""


@lru_cache
def _statement(parts: tuple[str, ...]) -> str:
    """Return the statement that writes these parts."""
    found = "(SELECT count(*) FROM written_changed) = cardinality(%(node_ids)s::text[])"
    checks = [found] if "changed" in parts else []
    return f"WITH {','.join(_PARTS[part] for part in parts)}\n{unless_stale(checks)}"


class FanOutDecisionRepository:
    """SQL on fan-outs and children, in the caller's transaction, which holds the locks of what it updates."""

    def __init__(self, conn: AsyncConnection[Any]) -> None:
        self._conn = conn

    async def write(
        self,
        *,
        opened: Sequence[Row] = (),
        fan_outs: Sequence[Row] = (),
        items: Sequence[Row] = (),
        created: Sequence[Row] = (),
        changed: Sequence[Row] = (),
    ) -> None:
        """Write rows; raises `errors.DivisionByZero` when a changed child was not as it had been read.

        Args:
            opened: Whole rows of fan-outs that begin.
            fan_outs: Rows of those that run; without `failures` these stay as they are.
            items: {job_id, node_id, chunk_no, items} to store.
            created: New children.
            changed: Children with `from_status`, the status they were read in.
        """
        parts: dict[str, Sequence[object] | Mapping[str, object]] = {
            "opened": opened,
            "fan_outs": fan_outs,
            "items": items,
            "created": alike(created),
            "changed": alike(changed),
        }
        said = tuple(part for part, rows in parts.items() if rows)
        if not said:
            return
        values: dict[str, Any] = {part: rows_of(parts[part]) for part in said}
        if fan_outs:
            values["fan_out_jobs"] = list({row["job_id"] for row in fan_outs})
        if changed:
            values |= {
                "job_ids": [row["job_id"] for row in changed],
                "node_ids": [row["node_id"] for row in changed],
                "statuses": [str(row["from_status"]) for row in changed],
            }
        await self._conn.execute(_statement(said), values)
