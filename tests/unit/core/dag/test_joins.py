"""Every join of two and of three edges, whatever made the edges what they are."""

import itertools
from typing import Any

import pytest

from core.dag.graph import Edge, Verdict
from tests.unit.core.dag.harness import World, task, workflow_of
from tests.unit.core.dag.test_graph import JOIN_TABLE, RULES

KINDS = {
    "done": Edge.PASSED,
    "forgiven": Edge.PASSED,
    "bypassed": Edge.PASSED,
    "taken": Edge.PASSED,
    "default": Edge.PASSED,
    "other": Edge.DEAD,
    "behind": Edge.DEAD,
    "failed": Edge.FAILED,
    "misfit": Edge.FAILED,
    "after": Edge.FAILED,
}
"""Nodes whose edges stand as they say: of tasks, `when`, conditionals, what follows them, and errors in conditions."""

ENDS = {
    Verdict.READY: ("DISPATCHED", None),
    Verdict.NOT_TAKEN: ("SKIPPED", "not_taken"),
    Verdict.UPSTREAM_FAILED: ("SKIPPED", "upstream_failed"),
}


def sources(copy: int, joins: dict[str, list[str]]) -> dict[str, Any]:
    """Return one node of every kind; conditionals name the joins that they are a source of."""
    name = {kind: f"{kind}{copy}" for kind in KINDS}
    follows = {kind: [join for join, after in joins.items() if node_id in after] for kind, node_id in name.items()}
    spare = f"spare{copy}"
    return {
        name["done"]: task("start"),
        name["forgiven"]: task("start", best_effort=True),
        name["bypassed"]: task("start", when="false"),
        name["taken"]: {"type": "conditional", "condition": "true", "on_true": follows["taken"]},
        name["default"]: {
            "type": "conditional",
            "branches": [{"condition": "false", "next": [spare]}, {"default": True, "next": follows["default"]}],
        },
        name["other"]: {
            "type": "conditional",
            "condition": "false",
            "on_true": [*follows["other"], name["behind"]],
            "on_false": [spare],
        },
        spare: {"type": "end"},
        name["behind"]: task(),
        name["failed"]: task("start"),
        name["misfit"]: task("start", when="1 == 'a'"),
        name["after"]: task(name["misfit"]),
    }


@pytest.mark.parametrize("rule", RULES)
def test_every_join_of_two_and_three_sources_of_every_kind_ends_by_the_table(rule: str) -> None:
    joins = {
        f"j{number}": [f"{kind}{copy}" for copy, kind in enumerate(kinds)]
        for number, kinds in enumerate(
            [*itertools.product(KINDS, repeat=2), *itertools.combinations_with_replacement(KINDS, 3)]
        )
    }
    nodes: dict[str, Any] = {"start": {"type": "start"}}
    for copy in range(3):
        nodes |= sources(copy, joins)
    nodes |= {join: task(*after, join=rule) for join, after in joins.items()}
    world = World(workflow_of(nodes))
    for copy in range(3):
        world.complete(f"done{copy}")
        world.fail(f"forgiven{copy}")
        world.fail(f"failed{copy}")
    for join, after in joins.items():
        edges = sorted((KINDS[node_id[:-1]] for node_id in after), key=(Edge.PASSED, Edge.DEAD, Edge.FAILED).index)
        verdict = JOIN_TABLE[tuple(edges)][RULES.index(rule)]
        assert (world.statuses()[join], world.node(join).skip_reason) == ENDS[verdict], after
