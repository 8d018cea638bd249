from typing import Any

import pytest

from core.statuses import JobStatus
from tests.unit.core.dag.harness import World, task, workflow_of

FIELD = "{{ nodes.a.output.size }}"


def routed(route: dict[str, Any], *after: str, **fields: Any) -> World:
    """Return start -> a -> route -> the nodes `after` -> join -> end, with task `a` still out."""
    nodes: dict[str, Any] = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(next=["route"]),
        "route": {"type": "conditional", **route},
        **{node_id: task() for node_id in after},
        "join": {"type": "end", "depends_on": {"any_of": list(after)}},
    }
    return World(workflow_of(nodes, **fields))


def small_or_large(condition: str = f"{FIELD} > 100") -> World:
    """Return a world with a condition and two ways."""
    return routed({"condition": condition, "on_true": ["large"], "on_false": ["small"]}, "large", "small")


@pytest.mark.parametrize(("size", "taken", "other"), [(101, "large", "small"), (100, "small", "large")])
def test_a_condition_takes_one_way_and_the_other_is_skipped(size: int, taken: str, other: str) -> None:
    world = small_or_large()
    world.complete("a", output={"size": size})
    assert world.node("route").output == {"taken": [taken], "condition": f"{FIELD} > 100", "value": size == 101}
    assert world.statuses()[taken] == "DISPATCHED"
    assert (world.statuses()[other], world.node(other).skip_reason) == ("SKIPPED", "not_taken")
    world.complete(taken)
    assert world.statuses()["join"] == "COMPLETED"
    assert world.job.status is JobStatus.COMPLETED


BRANCHES = {
    "condition_field": FIELD,
    "branches": [
        {"default": True, "next": ["rest"]},
        {"condition": "< 100", "next": ["low"]},
        {"condition": ">= 100 and < 500", "next": ["mid", "extra"]},
        {"condition": ">= 400", "next": ["high"]},
    ],
}


@pytest.mark.parametrize(
    ("size", "taken", "condition"),
    [
        (99, {"low"}, "< 100"),
        (100, {"mid", "extra"}, ">= 100 and < 500"),
        (450, {"mid", "extra"}, ">= 100 and < 500"),
        (500, {"high"}, ">= 400"),
    ],
)
def test_the_first_branch_that_holds_is_taken(size: int, taken: set[str], condition: str) -> None:
    world = routed(BRANCHES, "low", "mid", "extra", "high", "rest")
    world.complete("a", output={"size": size})
    assert {key for key, status in world.statuses().items() if status == "DISPATCHED"} == taken
    assert world.node("route").output == {"taken": sorted(taken, reverse=True), "condition": condition, "value": size}


def test_the_default_is_taken_when_no_branch_holds_wherever_it_stands() -> None:
    route = {"condition_field": FIELD, "branches": [*BRANCHES["branches"][:2], {"condition": "== 7", "next": ["high"]}]}
    world = routed(route, "rest", "low", "high")
    world.complete("a", output={"size": 100})
    assert world.node("route").output == {"taken": ["rest"], "condition": None, "value": 100}


def test_branches_may_have_whole_conditions() -> None:
    branches = [{"condition": f"{FIELD} in ['x', 'y']", "next": ["low"]}, {"default": True, "next": ["rest"]}]
    world = routed({"branches": branches}, "low", "rest")
    world.complete("a", output={"size": "y"})
    assert world.node("route").output == {"taken": ["low"], "condition": f"{FIELD} in ['x', 'y']", "value": None}


def test_without_a_branch_and_a_default_the_node_fails_and_never_hangs() -> None:
    route = {"condition_field": FIELD, "branches": [{"condition": "< 100", "next": ["low"]}]}
    world = routed(route, "low")
    world.complete("a", output={"size": 100})
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["field"]) == ("NO_BRANCH", "nodes.route.branches")
    assert world.job.error["node_id"] == "route"
    assert "condition_field is 100" in world.job.error["message"]
    assert world.node("low").skip_reason == "upstream_failed"


def test_a_condition_that_is_false_may_have_nowhere_to_go() -> None:
    world = routed({"condition": f"{FIELD} > 100", "on_true": ["large"]}, "large")
    world.complete("a", output={"size": 1})
    assert world.node("route").output == {"taken": [], "condition": f"{FIELD} > 100", "value": False}
    assert world.statuses()["large"] == world.statuses()["join"] == "SKIPPED"
    assert world.job.status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        ({"size": "big"}, "CONDITION_ERROR", '{{ nodes.a.output.size }} = "big"'),
        ({}, "TEMPLATE_ERROR", "nodes.a.output.size is not there"),
        ({"size": None}, "CONDITION_ERROR", "null and a number 100"),
    ],
)
def test_a_condition_without_an_answer_fails_the_node(output: dict[str, Any], code: str, message: str) -> None:
    world = small_or_large()
    world.complete("a", output=output)
    assert world.job.status is JobStatus.FAILED
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["node_id"]) == (code, "route")
    assert message in world.job.error["message"]
    assert FIELD in world.job.error["message"]
    assert world.event_types().count("node_failed") == 1


@pytest.mark.parametrize(
    ("route", "place"),
    [
        ({"condition": f"{FIELD} > 100", "on_true": ["low"]}, "condition"),
        ({"branches": [{"condition": f"{FIELD} == 'x'"}, {"condition": f"{FIELD} > 1"}]}, "branches[1].condition"),
        ({"condition_field": FIELD, "branches": [{"condition": "> 1"}]}, "branches[0].condition"),
    ],
)
def test_an_error_names_the_condition_that_has_no_answer(route: dict[str, Any], place: str) -> None:
    for branch in route.get("branches", ()):
        branch["next"] = ["low"]
    world = routed(route, "low")
    world.complete("a", output={"size": "big"})
    assert (world.job.error or {})["field"] == f"nodes.route.{place}"


def test_edges_beside_the_choice_always_pass() -> None:
    route = {"condition": f"{FIELD} > 100", "on_true": ["large"], "on_false": ["small"], "next": ["both"]}
    nodes: dict[str, Any] = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(next=["route"]),
        "route": {"type": "conditional", **route},
        **{node_id: task() for node_id in ("large", "small", "both")},
        "after": task("route"),
        "chosen": task("route"),
    }
    nodes["route"]["on_false"] = ["small", "chosen"]
    world = World(workflow_of(nodes))
    world.complete("a", output={"size": 500})
    assert {key for key, status in world.statuses().items() if status == "DISPATCHED"} == {"large", "both", "after"}
    assert world.node("chosen").skip_reason == "not_taken"


def test_a_large_or_nested_value_of_the_field_is_not_kept_in_the_output() -> None:
    for value in ("x" * 5000, ["x"], {"x": 1}):
        world = routed({"condition_field": FIELD, "branches": [{"default": True, "next": ["low"]}]}, "low")
        world.complete("a", output={"size": value})
        assert world.node("route").output == {"taken": ["low"], "condition": None, "value": None}


def when(condition: str, inputs: dict[str, Any] | None = None, **fields: Any) -> World:
    """Return start -> a (with a `when`) -> b."""
    nodes = {
        "start": {"type": "start", "next": ["a"]},
        "a": task("start", when=condition, **fields),
        "b": task("a"),
    }
    return World(workflow_of(nodes, inputs={"go": {}}), inputs or {"go": True})


def test_a_node_whose_when_holds_runs() -> None:
    assert when("{{ inputs.go }}").statuses()["a"] == "DISPATCHED"


def test_a_node_whose_when_does_not_hold_is_bypassed_and_what_follows_runs() -> None:
    world = when("not {{ inputs.go }}")
    assert world.statuses() == {"start": "COMPLETED", "a": "SKIPPED", "b": "DISPATCHED"}
    assert world.node("a").skip_reason == "bypassed"
    assert "node_ready" not in [event.event_type for event in world.events if event.node_id == "a"]


def test_a_when_without_an_answer_fails_the_node() -> None:
    world = when("{{ inputs.go }} > 5")
    assert world.statuses() == {"start": "COMPLETED", "a": "FAILED", "b": "SKIPPED"}
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["field"]) == ("CONDITION_ERROR", "nodes.a.when")
    assert "{{ inputs.go }} = true" in world.job.error["message"]
    assert when("{{ inputs.go }} > 5", best_effort=True).statuses()["b"] == "DISPATCHED"


def test_when_is_asked_once_and_not_again_before_a_retry() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a", "b"]},
        "a": task("start", when="{{ nodes.start.status }} == 'COMPLETED' and {{ inputs.go }}", retry={"jitter": 0}),
        "b": task("start"),
    }
    world = World(workflow_of(nodes, inputs={"go": {"default": True}}))
    world.fail("a", "transient")
    world.set_job(input_params={"go": False})
    world.wake()
    assert world.statuses()["a"] == "DISPATCHED"


def test_when_of_a_node_that_is_not_reached_is_not_asked() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(),
        "b": task("a", when="{{ nodes.a.output.missing }} > 5"),
    }
    world = World(workflow_of(nodes))
    world.fail("a")
    assert world.node("b").skip_reason == "upstream_failed"


def test_a_conditional_with_a_when_is_bypassed_like_any_other_node() -> None:
    route = {"condition": "true", "on_true": ["large"], "on_false": ["small"], "when": "false"}
    world = routed(route, "large", "small")
    world.complete("a")
    assert (world.statuses()["large"], world.statuses()["small"]) == ("DISPATCHED", "DISPATCHED")


@pytest.mark.parametrize(("size", "taken"), [(101, "large"), (100, "small")])
def test_what_next_names_follows_whatever_is_chosen(size: int, taken: str) -> None:
    ways = {"condition": f"{FIELD} > 100", "on_true": ["large"], "on_false": ["small"], "next": ["always"]}
    world = routed(ways, "large", "small", "always")
    assert world.statuses()["always"] == "PENDING"
    world.complete("a", output={"size": size})
    statuses = world.statuses()
    assert {node_id for node_id in ("large", "small", "always") if statuses[node_id] == "DISPATCHED"} == {
        taken,
        "always",
    }
