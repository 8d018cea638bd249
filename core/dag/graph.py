"""The shape of a workflow and the one rule by which edges settle. No statuses are written here.

A settled edge is
    PASSED   its source COMPLETED, or FAILED under `best_effort`, or was SKIPPED as `bypassed`;
    DEAD     a conditional chose otherwise, or its source was SKIPPED as `not_taken`;
    FAILED   its source FAILED, was CANCELLED, or was SKIPPED as `upstream_failed`.

When all incoming edges of a node are settled: all dead -> skipped `not_taken`; otherwise by its rule
    all_of   any failed -> skipped `upstream_failed`, else ready;
    any_of   any passed -> ready, else skipped `upstream_failed`;
    all_done ready.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import assert_never

from core.dag.nodes import ConditionalNode, JoinRule, Node
from core.errors import WorkflowError
from core.models.engine import NodeState
from core.statuses import NodeStatus, SkipReason


class Edge(StrEnum):
    """How one edge stands."""

    OPEN = "open"
    PASSED = "passed"
    DEAD = "dead"
    FAILED = "failed"


class Verdict(StrEnum):
    """What becomes of a node, given its incoming edges."""

    WAIT = "wait"
    READY = "ready"
    NOT_TAKEN = "not_taken"
    UPSTREAM_FAILED = "upstream_failed"


class Cycle(WorkflowError):
    """The edges of a workflow form a ring; `ring` names it, first node repeated at the end."""

    def __init__(self, ring: Sequence[str]) -> None:
        super().__init__(f"these nodes form a cycle: {' -> '.join(ring)}", value=list(ring))
        self.ring = tuple(ring)


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything about the shape that evaluation needs, computed once per definition."""

    order: tuple[str, ...]
    """Every node after all its sources."""
    incoming: Mapping[str, tuple[str, ...]]
    outgoing: Mapping[str, tuple[str, ...]]
    ancestors: Mapping[str, frozenset[str]]

    def descendants(self, roots: Iterable[str]) -> frozenset[str]:
        """Return every node that is reachable from `roots`, without the roots themselves unless a path leads there."""
        found: set[str] = set()
        stack = [target for root in roots for target in self.outgoing[root]]
        while stack:
            node_id = stack.pop()
            if node_id not in found:
                found.add(node_id)
                stack.extend(self.outgoing[node_id])
        return frozenset(found)


def edges_of(nodes: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """Return the sources of every node, from `next` and `depends_on` alike, without duplicates.

    Names that are no nodes are left out; the loader lets none pass.
    """
    incoming: dict[str, dict[str, None]] = {node_id: {} for node_id in nodes}
    for source, node in nodes.items():
        for target in node.targets():
            if target in incoming:
                incoming[target][source] = None
    for target, node in nodes.items():
        for source in node.depends_on.sources if node.depends_on else ():
            if source in incoming:
                incoming[target][source] = None
    return {node_id: tuple(sources) for node_id, sources in incoming.items()}


def build_graph(nodes: Mapping[str, Node]) -> Graph:
    """Compute the shape. Raises `Cycle`."""
    incoming = edges_of(nodes)
    order = _order(incoming)
    outgoing: dict[str, list[str]] = {node_id: [] for node_id in nodes}
    ancestors: dict[str, frozenset[str]] = {}
    for node_id in order:
        sources = incoming[node_id]
        ancestors[node_id] = frozenset(sources).union(*(ancestors[source] for source in sources))
        for source in sources:
            outgoing[source].append(node_id)
    return Graph(order, incoming, {key: tuple(targets) for key, targets in outgoing.items()}, ancestors)


def cycles_of(nodes: Mapping[str, Node]) -> Iterator[Cycle]:
    """Yield a cycle, then what is left when one edge of it is taken away, and so on."""
    incoming = {node_id: list(sources) for node_id, sources in edges_of(nodes).items()}
    while True:
        try:
            _order(incoming)
            return
        except Cycle as cycle:
            yield cycle
            source, target = cycle.ring[:2]
            incoming[target].remove(source)


def _order(incoming: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    try:
        return tuple(TopologicalSorter(incoming).static_order())
    except CycleError as error:
        raise Cycle(error.args[1]) from error


def edge(source: Node, state: NodeState, target: str) -> Edge:
    """Return how the edge from a source, which stands as `state` says, to `target` stands."""
    match state.status:
        case NodeStatus.COMPLETED:
            return Edge.PASSED if _is_taken(source, state, target) else Edge.DEAD
        case NodeStatus.FAILED:
            return Edge.PASSED if source.best_effort else Edge.FAILED
        case NodeStatus.CANCELLED:
            return Edge.FAILED
        case NodeStatus.SKIPPED:
            return _skipped_edge(state.skip_reason)
        case NodeStatus.PENDING | NodeStatus.READY | NodeStatus.WAITING | NodeStatus.DISPATCHED | NodeStatus.RUNNING:
            return Edge.OPEN
        case _ as never:
            assert_never(never)


def _is_taken(source: Node, state: NodeState, target: str) -> bool:
    """Return whether a completed source leads to `target`; only conditionals choose, and only among their choices."""
    if not isinstance(source, ConditionalNode) or target not in source.choices():
        return True
    return target in (state.output or {}).get("taken", ())


def _skipped_edge(reason: SkipReason | None) -> Edge:
    match reason:
        case SkipReason.NOT_TAKEN:
            return Edge.DEAD
        case SkipReason.BYPASSED:
            return Edge.PASSED
        case SkipReason.UPSTREAM_FAILED | None:
            return Edge.FAILED
        case _ as never:
            assert_never(never)


def verdict(rule: JoinRule, edges: Sequence[Edge]) -> Verdict:
    """Return what becomes of a node; a node without incoming edges is ready."""
    if Edge.OPEN in edges:
        return Verdict.WAIT
    if edges and all(edge is Edge.DEAD for edge in edges):
        return Verdict.NOT_TAKEN
    match rule:
        case JoinRule.ALL_OF:
            return Verdict.UPSTREAM_FAILED if Edge.FAILED in edges else Verdict.READY
        case JoinRule.ANY_OF:
            return Verdict.READY if Edge.PASSED in edges or not edges else Verdict.UPSTREAM_FAILED
        case JoinRule.ALL_DONE:
            return Verdict.READY
        case _ as never:
            assert_never(never)


def rule_of(node: Node) -> JoinRule:
    """Return the rule for a node's incoming edges."""
    return node.depends_on.rule if node.depends_on else JoinRule.ALL_OF
