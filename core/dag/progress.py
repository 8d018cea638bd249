"""How far a job is, and how long it may still take by what earlier jobs of its workflow took. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from core.dag.definition import Workflow
from core.dag.holds import queue_of
from core.dag.nodes import GateNode, TaskNode, WorkflowNode
from core.dag.why import Reason
from core.handlers_catalog import CATALOG
from core.models.engine import Attempt, NodeState
from core.models.fan_out import FanOut
from core.statuses import NODE_FINAL, NodeStatus

_OPEN_ENDED: Final = frozenset({"worker", "no_fit", "dead_letter", "paused", "slot", "gate"})
"""Waits that end when others act, or never."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a job stands; a fan-out counts as one node, done as far as its items are."""

    fraction: float
    nodes_done: int
    nodes_total: int
    items_done: int
    items_total: int
    """Of the fan-outs that were expanded."""
    eta_seconds: float | None
    """None when something that is left was never done before, or nobody can tell: it is late already, it is a gate, a
    pause holds it, or it waits for what may never come."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What progress is measured by; everything by node."""

    nodes: Mapping[str, NodeState]
    attempts: Mapping[str, Attempt]
    fan_outs: Mapping[str, FanOut]
    medians: Mapping[str, float]
    """Seconds that a node took in earlier jobs, from when it was sent first: waiting included."""
    paused: bool
    """Whether the job, its workflow or everything is."""
    paused_queues: Collection[str]
    now: datetime
    reasons: Mapping[str, Reason | None] = field(default_factory=dict)
    """What each node waits for (`core.dag.why`)."""


def progress_of(workflow: Workflow, facts: Facts) -> Progress:
    """Return how far a job is that has not ended."""
    shares = {key: _share(facts, key) for key in workflow.graph.order if key in facts.nodes}
    items = facts.fan_outs.values()
    return Progress(
        fraction=round(sum(shares.values()) / len(shares), 4) if shares else 0.0,
        nodes_done=sum(facts.nodes[key].status in NODE_FINAL for key in shares),
        nodes_total=len(shares),
        items_done=sum(one.succeeded + one.failed + one.skipped for one in items),
        items_total=sum(one.item_count for one in items),
        eta_seconds=_eta(workflow, facts, shares),
    )


def _share(facts: Facts, node_id: str) -> float:
    """Return which part of a node is done, from 0 to 1."""
    node = facts.nodes[node_id]
    if node.status in NODE_FINAL:
        return 1.0
    if node.status is not NodeStatus.RUNNING:
        return 0.0
    fan_out = facts.fan_outs.get(node_id)
    if fan_out is not None:
        return (fan_out.succeeded + fan_out.failed + fan_out.skipped) / max(fan_out.item_count, 1)
    return _reported(facts.attempts.get(node_id), node)


def _reported(attempt: Attempt | None, node: NodeState) -> float:
    """Return what the handler says of itself: {current, total}."""
    if attempt is None or attempt.task_id != node.task_id:
        return 0.0
    current, total = ((attempt.progress or {}).get(name) for name in ("current", "total"))
    if not isinstance(current, int | float) or not isinstance(total, int | float) or total <= 0 or current <= 0:
        return 0.0
    return 1.0 if current >= total else current / total


def _eta(workflow: Workflow, facts: Facts, shares: Mapping[str, float]) -> float | None:
    """Return the seconds along the longest way that is left."""
    ends: dict[str, float] = {}
    for node_id in shares:
        left = _left(workflow, facts, node_id, shares[node_id])
        if left is None:
            return None
        before = max((ends.get(source, 0.0) for source in workflow.graph.incoming[node_id]), default=0.0)
        ends[node_id] = before + left
    return round(max(ends.values(), default=0.0), 1)


def _left(workflow: Workflow, facts: Facts, node_id: str, share: float) -> float | None:
    """Return how long a node still takes: by its own speed once it says how far it is, else by earlier jobs.

    None for one that should be over by those.
    """
    node, reason = facts.nodes[node_id], facts.reasons.get(node_id)
    if node.status in NODE_FINAL:
        return 0.0
    if isinstance(workflow.nodes[node_id], GateNode) or _is_held(workflow, facts, node_id) or _is_open_ended(reason):
        return None
    runs = node.status is NodeStatus.RUNNING
    began = node.started_at if runs else node.first_dispatched_at
    elapsed = 0.0 if began is None else (facts.now - began).total_seconds()
    if runs and 0 < share < 1 and elapsed > 0:
        return elapsed * (1 - share) / share
    usual = facts.medians.get(node_id)
    if usual is None:
        takes_time = workflow.nodes[node_id].type in {"task", "fan_out", "workflow"}
        return None if takes_time else 0.0
    return usual - elapsed if elapsed == 0 or elapsed < usual else None


def _is_open_ended(reason: Reason | None) -> bool:
    """Return whether nobody can tell when what a node waits for will come; a busy worker takes what comes next."""
    if reason is None or reason["kind"] != "children":
        return reason is not None and reason["kind"] in _OPEN_ENDED
    return _OPEN_ENDED.issuperset(reason["detail"]["waiting"])


def _is_held(workflow: Workflow, facts: Facts, node_id: str) -> bool:
    """Return whether a pause keeps a node from its end; a task at work goes on, and what is no work is never held."""
    node = workflow.nodes[node_id]
    if node_id not in workflow.works:
        return facts.paused and isinstance(node, WorkflowNode)
    if isinstance(node, TaskNode) and facts.nodes[node_id].status is NodeStatus.RUNNING:
        return False
    return facts.paused or queue_of(workflow, node_id, CATALOG) in facts.paused_queues
