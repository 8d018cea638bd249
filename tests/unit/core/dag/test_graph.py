import itertools

import pytest

from core.dag.graph import Cycle, Edge, Verdict, build_graph, edge, verdict
from core.dag.nodes import JoinRule
from core.models.engine import NodeState
from core.statuses import NodeStatus, SkipReason
from tests.unit.core.dag.harness import chain, task, workflow_of

P, D, F, O = Edge.PASSED, Edge.DEAD, Edge.FAILED, Edge.OPEN  # noqa: E741
READY, SKIP, NOT_TAKEN, WAIT = Verdict.READY, Verdict.UPSTREAM_FAILED, Verdict.NOT_TAKEN, Verdict.WAIT

JOIN_TABLE = {
    # edges: (all_of, any_of, all_done)
    (P,): (READY, READY, READY),
    (D,): (NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
    (F,): (SKIP, SKIP, READY),
    (P, P): (READY, READY, READY),
    (P, D): (READY, READY, READY),
    (P, F): (SKIP, READY, READY),
    (D, D): (NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
    (D, F): (SKIP, SKIP, READY),
    (F, F): (SKIP, SKIP, READY),
    (P, P, P): (READY, READY, READY),
    (P, P, D): (READY, READY, READY),
    (P, P, F): (SKIP, READY, READY),
    (P, D, D): (READY, READY, READY),
    (P, D, F): (SKIP, READY, READY),
    (P, F, F): (SKIP, READY, READY),
    (D, D, D): (NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
    (D, D, F): (SKIP, SKIP, READY),
    (D, F, F): (SKIP, SKIP, READY),
    (F, F, F): (SKIP, SKIP, READY),
}
RULES = (JoinRule.ALL_OF, JoinRule.ANY_OF, JoinRule.ALL_DONE)


@pytest.mark.parametrize(
    "edges", [*itertools.product((P, D, F, O), repeat=2), *itertools.product((P, D, F, O), repeat=3)]
)
def test_the_join_table_holds_for_every_order_of_two_and_three_edges(edges: tuple[Edge, ...]) -> None:
    if O in edges:
        expected: tuple[Verdict, ...] = (WAIT, WAIT, WAIT)
    else:
        expected = JOIN_TABLE[tuple(sorted(edges, key=(P, D, F).index))]
    assert tuple(verdict(rule, edges) for rule in RULES) == expected


def test_a_node_without_incoming_edges_is_ready_under_every_rule() -> None:
    assert [verdict(rule, ()) for rule in RULES] == [READY, READY, READY]


@pytest.mark.parametrize(
    ("status", "reason", "strict", "best_effort"),
    [
        (NodeStatus.COMPLETED, None, P, P),
        (NodeStatus.FAILED, None, F, P),
        (NodeStatus.CANCELLED, None, F, F),
        (NodeStatus.SKIPPED, SkipReason.BYPASSED, P, P),
        (NodeStatus.SKIPPED, SkipReason.NOT_TAKEN, D, D),
        (NodeStatus.SKIPPED, SkipReason.UPSTREAM_FAILED, F, F),
        (NodeStatus.SKIPPED, None, F, F),
        *((status, None, O, O) for status in NodeStatus if status.value in "PENDING READY WAITING DISPATCHED RUNNING"),
    ],
)
def test_an_edge_settles_by_its_source(
    status: NodeStatus, reason: SkipReason | None, strict: Edge, best_effort: Edge
) -> None:
    nodes = workflow_of({"a": task(), "b": task(best_effort=True)}).nodes
    state = NodeState(job_id="job1", node_id="a", status=status, skip_reason=reason)
    assert edge(nodes["a"], state, "c") is strict
    assert edge(nodes["b"], state, "c") is best_effort


@pytest.mark.parametrize(
    ("taken", "target", "expected"),
    [(["a"], "a", P), (["a"], "b", D), (["a"], "beside", P), ([], "b", D), (None, "b", D), (None, "beside", P)],
)
def test_an_edge_from_a_conditional_settles_by_its_choice(taken: list[str] | None, target: str, expected: Edge) -> None:
    choice = {"type": "conditional", "condition": "true", "on_true": ["a"], "on_false": ["b"], "next": ["beside"]}
    nodes = workflow_of({"c": choice, "a": task(), "b": task(), "beside": task()}).nodes
    output = None if taken is None else {"taken": taken}
    state = NodeState(job_id="job1", node_id="c", status=NodeStatus.COMPLETED, output=output)
    assert edge(nodes["c"], state, target) is expected
    assert edge(nodes["c"], state.model_copy(update={"status": NodeStatus.WAITING}), target) is O
    skipped = {"status": NodeStatus.SKIPPED, "skip_reason": SkipReason.NOT_TAKEN}
    assert edge(nodes["c"], state.model_copy(update=skipped), target) is D


def test_next_and_depends_on_make_the_same_edges_once() -> None:
    nodes = workflow_of({"a": task(next=["b", "c"]), "b": task("a", next=["c"]), "c": task("b")}).nodes
    graph = build_graph(nodes)
    assert graph.incoming == {"a": (), "b": ("a",), "c": ("a", "b")}
    assert graph.outgoing == {"a": ("b", "c"), "b": ("c",), "c": ()}
    assert graph.order == ("a", "b", "c")
    assert graph.ancestors["c"] == {"a", "b"}
    assert graph.descendants(["a"]) == {"b", "c"}


def test_a_cycle_is_named() -> None:
    nodes = workflow_of({**chain("a", "b"), "c": task("b", next=["a"])}).nodes
    with pytest.raises(Cycle) as caught:
        build_graph(nodes)
    assert set(caught.value.ring) == {"a", "b", "c"}
    assert caught.value.ring[0] == caught.value.ring[-1]
