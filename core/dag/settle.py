"""Moves the graph as far as it goes without the outside: edges, readiness, and what each type of node does then."""

from collections.abc import Iterable
from typing import assert_never

from core.dag import branching, child_jobs, fan_in, fan_out, gates, slots, tasks
from core.dag.condition_syntax import ConditionFailed
from core.dag.graph import Verdict, edge, rule_of, verdict
from core.dag.nodes import (
    ConditionalNode,
    EndNode,
    FanInNode,
    FanOutNode,
    GateNode,
    StartNode,
    TaskNode,
    WorkflowNode,
)
from core.dag.run import Run
from core.dag.templates import TemplateFailed
from core.dag.values import Needed
from core.statuses import NODE_FINAL, NodeStatus, SkipReason

_MOVABLE = frozenset(NodeStatus) - NODE_FINAL - {NodeStatus.DISPATCHED}


def settle(run: Run) -> None:
    """Settle every node that can be, to a fixed point.

    One pass in topological order is complete, since a node depends only on nodes before it; a failure under
    `on_failure: cancel` reaches back, so it asks for another pass.
    """
    while True:
        run.wishes.job_asks = False  # who asked in the last pass may have been cancelled since
        for node_id in run.workflow.graph.order:
            if run.nodes[node_id].status in _MOVABLE:
                _step(run, node_id)
        if run.workflow.on_failure != "cancel" or not _cancel_after_failure(run):
            return


def _step(run: Run, node_id: str) -> None:
    """Let one node go as far as it can; one that needs a value made elsewhere stays where it is."""
    try:
        _move_on(run, node_id)
    except Needed as needed:
        run.need(needed.rendering, node_id)
        slots.keep(run, node_id)


def _move_on(run: Run, node_id: str) -> None:
    if run.nodes[node_id].status is NodeStatus.PENDING:
        _settle_pending(run, node_id)
    if run.nodes[node_id].status is NodeStatus.WAITING:
        _wake(run, node_id)
    match run.nodes[node_id].status:
        case NodeStatus.READY:
            _go(run, node_id)
        case NodeStatus.RUNNING:
            _carry_on(run, node_id)


def _settle_pending(run: Run, node_id: str) -> None:
    nodes = run.workflow.nodes
    sources = run.workflow.graph.incoming[node_id]
    if not _all_final(run, sources):
        return
    edges = [edge(nodes[source], run.nodes[source], node_id) for source in sources]
    match verdict(rule_of(nodes[node_id]), edges):
        case Verdict.WAIT:
            return
        case Verdict.READY:
            _make_ready(run, node_id)
        case Verdict.NOT_TAKEN:
            _skip(run, node_id, SkipReason.NOT_TAKEN)
        case Verdict.UPSTREAM_FAILED:
            _skip(run, node_id, SkipReason.UPSTREAM_FAILED)
        case _ as never:
            assert_never(never)


def _all_final(run: Run, node_ids: Iterable[str]) -> bool:
    """Return whether all of these nodes have ended for this run."""
    nodes = run.nodes
    for node_id in node_ids:  # noqa: SIM110 - asked of every node that waits, with every step of a job
        if nodes[node_id].status not in NODE_FINAL:
            return False
    return True


def _make_ready(run: Run, node_id: str) -> None:
    """Ask `when`, while the node is still PENDING: it may need a value that is made elsewhere."""
    try:
        bypassed = branching.is_bypassed(run, node_id)
    except (ConditionFailed, TemplateFailed) as error:
        run.move(node_id, NodeStatus.READY, ready_at=run.now)
        branching.fail(run, node_id, error.detail)
        return
    if bypassed:
        _skip(run, node_id, SkipReason.BYPASSED)
    else:
        run.move(node_id, NodeStatus.READY, ready_at=run.now)


def _skip(run: Run, node_id: str, reason: SkipReason) -> None:
    run.move(node_id, NodeStatus.SKIPPED, data={"reason": reason.value}, skip_reason=reason)


def _wake(run: Run, node_id: str) -> None:
    """Let a WAITING node go on when what it waits for is there; types that wait for more than time have their case."""
    if isinstance(run.workflow.nodes[node_id], GateNode):
        gates.wake(run, node_id)
        return
    if child_jobs.waits_for_child(run.nodes[node_id]):
        return
    if slots.waits_for_slot(run.nodes[node_id]):
        tasks.wake(run, node_id)
        return
    not_before = run.nodes[node_id].not_before
    if not_before is None or not_before <= run.now:
        run.move(node_id, NodeStatus.READY, ready_at=run.now, not_before=None)


def _go(run: Run, node_id: str) -> None:
    """Let a READY node go on; each type has its module."""
    node = run.workflow.nodes[node_id]
    match node:
        case StartNode() | EndNode():
            run.move(node_id, NodeStatus.COMPLETED, output={})
        case TaskNode():
            tasks.go_on(run, node_id, node)
        case ConditionalNode():
            branching.go_on(run, node_id, node)
        case GateNode():
            gates.go_on(run, node_id, node)
        case WorkflowNode():
            child_jobs.go_on(run, node_id, node)
        case FanOutNode():
            fan_out.go_on(run, node_id, node)
        case FanInNode():
            fan_in.go_on(run, node_id, node)
        case _ as never:
            assert_never(never)


def _carry_on(run: Run, node_id: str) -> None:
    """Let a RUNNING node go on that runs here and not on a worker."""
    node = run.workflow.nodes[node_id]
    if isinstance(node, FanOutNode):
        fan_out.carry_on(run, node_id, node)
    elif isinstance(node, FanInNode):
        fan_in.go_on(run, node_id, node)


def _cancel_after_failure(run: Run) -> bool:
    """Cancel what is unfinished after a failure, except `all_done` joins and what follows them, ended joins too.

    A failure that was there before has done so already: what is unfinished beside it was started anew since. One
    that an order took away and that came again is a new one.
    """
    before = run.state.nodes
    if all(before[key].status is NodeStatus.FAILED and key not in run.reset for key in run.failed()):
        return False
    spared = run.workflow.spared
    victims = [node_id for node_id in run.unfinished() if node_id not in spared]
    for node_id in victims:
        run.cancel_node(node_id, "another node failed")
    return bool(victims)
