"""Worlds with a fan-out in them, and one that shows an evaluation only what a service would load."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from core.dag.aggregate import aggregated
from core.dag.apply import apply
from core.dag.chores import Chore, Gathering
from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.rendering import Rendered
from core.dag.state import Decision, JobState
from core.dag.tallies import outputs_of
from core.models.engine import Attempt, NodeState, Slot
from core.statuses import NODE_FINAL, AttemptState, NodeStatus
from tests.unit.core.dag.harness import FIXED, World, workflow_of

ITEMS = {"items": {"type": "array", "default": []}}
TRANSIENT = {"code": "T", "message": "m", "classification": "transient"}
PERMANENT = {"code": "E", "message": "m"}


def workflow_with(fan_out: Mapping[str, Any], join: Mapping[str, Any] | None = None, **fields: Any) -> Workflow:
    """Return start, fan-out `many` over `inputs.items`, fan_in `join`, end."""
    task = {"handler": "echo", "params": {"v": "{{ item }}", "n": "{{ index }}"}, "retry": {**FIXED, "max_retries": 1}}
    node = {"type": "fan_out", "source": "{{ inputs.items }}", "next": ["join"], **fan_out}
    node["task"] = {**task, **fan_out.get("task", {})}
    nodes = {
        "start": {"type": "start", "next": ["many"]},
        "many": node,
        "join": {"type": "fan_in", "next": ["end"], **(join or {})},
        "end": {"type": "end"},
    }
    return workflow_of(nodes, **{"inputs": ITEMS, **fields})


def fanned(items: Sequence[Any], world: type[World] = World, **fan_out: Any) -> World:
    """Return a world whose fan-out has these items."""
    return world(workflow_with(fan_out), {"items": list(items)})


def outcome(index: int, error: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a worker says of one item of a batch."""
    if error is not None:
        return {"index": index, "status": "failed", "error": dict(error)}
    return {"index": index, "status": "completed", "output": {"i": index}}


class PartialWorld(World):
    """Shows an evaluation only the children that something happens to, as the loader does; all of them when asked."""

    def advance(self) -> Decision:
        seen = self._seen()
        decision = advance(self.workflow, seen, self.now)
        if decision.needs_children:
            seen = self.state
            decision = advance(self.workflow, seen, self.now)
            assert not decision.needs_children
        self.state = apply(self.state, decision, self.now)
        self.events.extend(decision.events)
        self.decisions.append(decision)
        for chore in decision.chores:
            self._gather(chore)
        return decision

    def _gather(self, chore: Chore) -> None:
        """Aggregate all children, as the orchestrator does beside its evaluations, and evaluate with the answer."""
        assert isinstance(chore, Gathering)
        children = [one for one in self.state.children.values() if one.parent_node_id == chore.fan_out.node_id]
        children.sort(key=lambda one: one.fan_out_index or 0)
        outputs = [output or {} for one in children for output, _ in outputs_of(one)]
        value = json.loads(aggregated(chore.aggregation, chore.fan_out, outputs))
        self.state = replace(self.state, rendered={chore.key: Rendered(value=value)})
        self.advance()

    def _seen(self) -> JobState:
        state = self.state
        results = {row.node_id for row in state.results}
        slots = {key: slot for key, slot in state.slots.items() if slot.node_id is None or _is_fresh(slot)}
        granted = {slot.node_id for slot in slots.values()}
        touched = {
            key: child
            for key, child in state.children.items()
            if key in results or key in granted or self._is_due(child)
        }
        attempts = {key: attempt for key, attempt in state.attempts.items() if key in state.nodes or key in touched}
        timers = {}
        for node_id, fan_out in state.fan_outs.items():
            if fan_out.wake_at is not None and fan_out.wake_at <= self.now:
                others = [c for key, c in state.children.items() if key not in touched and c.parent_node_id == node_id]
                found = [timer for child in others for timer in self._timers(child)]
                timers.update({node_id: min(found)} if found else {})
        return replace(state, children=touched, attempts=attempts, child_timers=timers, slots=slots)

    def _is_due(self, child: NodeState) -> bool:
        parked = self.state.attempts.get(child.node_id)
        if parked is not None and parked.state is AttemptState.PARKED and child.status not in NODE_FINAL:
            return True
        return any(timer <= self.now for timer in self._timers(child))

    def _timers(self, child: NodeState) -> list[datetime]:
        if child.status in NODE_FINAL:
            return []
        if child.status is NodeStatus.WAITING:
            return [child.not_before] if child.not_before else []
        return [timer for timer in timers_of(self.state.attempts[child.node_id]) if timer is not None]


def _is_fresh(slot: Slot) -> bool:
    return slot.granted_at is not None and not slot.noticed


def timers_of(attempt: Attempt) -> tuple[datetime | None, ...]:
    """Return when something has to be done about an attempt, if nothing happens before."""
    match attempt.state:
        case AttemptState.QUEUED:
            return attempt.redispatch_at, attempt.queue_expires_at
        case AttemptState.LEASED if attempt.leased_at is not None:
            return attempt.lease_expires_at, attempt.leased_at + timedelta(seconds=attempt.timeout_seconds)
        case _:
            return ()
