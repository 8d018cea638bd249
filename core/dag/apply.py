"""Writes a decision into a state, as a service writes it into tables. Pure; tests and the simulation use it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from core.dag import child_jobs
from core.dag.retry import redispatch_after_seconds
from core.dag.state import AttemptEnd, Decision, Dispatch, JobState
from core.ids import digest, task_id
from core.models.engine import Attempt, NodeState, Slot
from core.models.fan_out import FanOut
from core.statuses import AttemptState


def apply(state: JobState, decision: Decision, now: datetime) -> JobState:
    """Return the state after the decision is written and its inbox rows are processed."""
    job = decision.job or state.job
    consumed = {item.task_id for item in decision.dispositions}
    obeyed = {done.command_id for done in decision.commands_done}
    return JobState(
        job=job.model_copy(update={"version": state.job.version + 1, "updated_at": now}),
        nodes={**state.nodes, **{node.node_id: node for node in decision.nodes}},
        attempts=_attempts(state, decision, now),
        results=tuple(row for row in state.results if row.task_id not in consumed),
        may_expire_leases=state.may_expire_leases,
        workflows=state.workflows,
        slots=_slots(state, decision, now),
        pauses=state.pauses,
        commands=tuple(one for one in state.commands if one.command_id not in obeyed),
        children=_children(state, decision),
        fan_outs=_fan_outs(state, decision),
        next_items=_next_items(state, decision),
    )


def _children(state: JobState, decision: Decision) -> dict[str, NodeState]:
    kept = {key: child for key, child in state.children.items() if child.parent_node_id not in decision.reset}
    return {**kept, **{child.node_id: child for child in (*decision.children, *decision.new_children)}}


def _fan_outs(state: JobState, decision: Decision) -> dict[str, FanOut]:
    kept = {key: row for key, row in state.fan_outs.items() if key not in decision.reset}
    return {**kept, **{row.node_id: row for row in decision.fan_outs}}


def _next_items(state: JobState, decision: Decision) -> dict[str, Sequence[Any]]:
    """Return all items that no child was made of yet."""
    rows = _fan_outs(state, decision)
    fresh = {one.node_id: one.items for one in decision.expansions}
    left: dict[str, Sequence[Any]] = {}
    for node_id, rest in {**state.next_items, **fresh}.items():
        if node_id not in rows:
            continue
        known = None if node_id in fresh else state.fan_outs.get(node_id)
        used = (rows[node_id].next_child - (known.next_child if known else 0)) * rows[node_id].batch_size
        left[node_id] = rest[used:]
    return left


def _slots(state: JobState, decision: Decision, now: datetime) -> dict[str, Slot]:
    """Return the slots after the decision; nothing is granted here."""
    if decision.slots.dropped:
        return {}
    slots = {holder: slot for holder, slot in state.slots.items() if holder not in decision.slots.freed}
    for holder in decision.slots.noticed:
        slots[holder] = slots[holder].model_copy(update={"noticed": True})
    for one in decision.slots.requests:
        row = Slot(slot_key=one.key, holder=one.holder, job_id=state.job.job_id, requested_at=now)
        slots[one.holder] = row.model_copy(update={"node_id": one.node_id, "priority": one.priority})
    return slots


def _attempts(state: JobState, decision: Decision, now: datetime) -> dict[str, Attempt]:
    attempts = dict(state.attempts)
    ends = {end.task_id: end for end in decision.attempts_ended}
    for node_id, attempt in state.attempts.items():
        if attempt.task_id in ends:
            attempts[node_id] = _ended(attempt, ends[attempt.task_id], now)
        elif attempt.task_id in decision.redispatches:
            attempts[node_id] = _sent_again(attempt, (decision.job or state.job).priority, now)
    for start in decision.child_jobs:
        attempts[start.node_id] = child_jobs.new_attempt(state.job, start, now)
    for dispatch in decision.dispatches:
        attempts[dispatch.node_id] = new_attempt(state.job.job_id, dispatch, now)
    return attempts


def new_attempt(job_id: str, dispatch: Dispatch, now: datetime, token_hash: str = "") -> Attempt:
    """Return the row of a dispatch."""
    queue_seconds = dispatch.queue_timeout_seconds
    return Attempt.of_row(
        {
            "task_id": task_id(job_id, dispatch.node_id, dispatch.attempt),
            "job_id": job_id,
            "node_id": dispatch.node_id,
            "attempt": dispatch.attempt,
            "queue": dispatch.queue,
            "handler": dispatch.handler,
            "priority": dispatch.priority,
            "params_digest": dispatch.params_digest or digest(dispatch.params),
            "token_hash": token_hash,
            "timeout_seconds": float(dispatch.timeout_seconds),
            "heartbeat_timeout_seconds": dispatch.heartbeat_timeout_seconds,
            "child": dispatch.child,
            "queued_at": now,
            "redispatch_at": now + timedelta(seconds=redispatch_after_seconds(1)),
            "queue_expires_at": None if queue_seconds is None else now + timedelta(seconds=queue_seconds),
        }
    )


def _ended(attempt: Attempt, end: AttemptEnd, now: datetime) -> Attempt:
    return attempt.model_copy(update={"state": end.state, "reason": end.reason, "ended_at": now})


def _sent_again(attempt: Attempt, priority: int, now: datetime) -> Attempt:
    number = attempt.dispatch_no + 1
    later = now + timedelta(seconds=redispatch_after_seconds(number))
    sent = {"state": AttemptState.QUEUED, "dispatch_no": number, "redispatch_at": later, "priority": priority}
    return attempt.model_copy(update=sent)
