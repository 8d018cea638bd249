"""Cases of group D that the language decides: what a file, a template or an output of that kind leads to."""

from typing import Any

import pytest

from core.dag.inputs import resolve_inputs
from core.dag.loader import load_workflow
from core.dag.problems import DefinitionError
from core.errors import ParameterInvalid
from core.statuses import JobStatus
from tests.unit.core.dag.harness import World, one_task, task, workflow_of

HEAD = "workflow_id: cases\nversion: 1\n"


def refused(text: str) -> str:
    """Load and return why not."""
    with pytest.raises(DefinitionError) as caught:
        load_workflow(text, "cases.yaml")
    return str(caught.value)


def one_node(params: str) -> str:
    """Return a file with one task."""
    return f"""{HEAD}inputs: {{collection: {{type: string}}}}
nodes:
  start: {{type: start, next: a}}
  a: {{handler: echo, params: {params}, next: end}}
  end: {{type: end}}
"""


@pytest.mark.parametrize("join", ["all_of", "any_of"])
@pytest.mark.parametrize(("answer", "taken", "other"), [("yes", "a", "b"), ("no", "b", "a")])
def test_d17_a_join_of_two_ways_runs_once_whichever_is_taken(join: str, answer: str, taken: str, other: str) -> None:
    nodes = {
        "start": {"type": "start", "next": ["if"]},
        "if": {"type": "conditional", "condition": "{{ inputs.x }} == 'yes'", "on_true": ["a"], "on_false": ["b"]},
        "a": task(),
        "b": task(),
        "join": task("a", "b", join=join),
        "end": {"type": "end", "depends_on": {"all_of": ["join"]}},
    }
    world = World(workflow_of(nodes, inputs={"x": {}}), {"x": answer})
    assert world.node(other).skip_reason == "not_taken"
    world.complete(taken)
    world.complete("join")
    assert world.job.status is JobStatus.COMPLETED
    assert [dispatch.node_id for decision in world.decisions for dispatch in decision.dispatches] == [taken, "join"]


def test_d17_when_every_way_is_skipped_the_join_is_skipped_and_the_job_completes() -> None:
    nodes = {
        "start": {"type": "start", "next": ["if"]},
        "if": {"type": "conditional", "condition": "false", "on_true": ["a", "b"]},
        "a": task(),
        "b": task(),
        "join": task("a", "b"),
    }
    world = World(workflow_of(nodes))
    assert world.node("join").skip_reason == "not_taken"
    assert world.job.status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ('{x: "{{ inputs.colection }}"}', "inputs.colection names no input; known are collection"),
        ('{x: "{{ params.colection }}"}', "'params' is not known here; what is known are inputs, job, nodes"),
        ('{x: {deep: ["a {{ inputs.colection.x }}"]}}', "inputs.colection.x names no input"),
        ('{x: "{{ nodes.b.output }}"}', "'b' is not a node"),
        ('{x: "{{ colection }}"}', "'colection' is not known here"),
    ],
)
def test_d21_a_misspelt_name_is_refused_before_anything_starts(params: str, path: str) -> None:
    message = refused(one_node(params))
    assert path in message
    assert message.startswith("cases.yaml:6: node a: ")


def test_d21_an_output_that_is_not_there_fails_the_node_and_no_braces_reach_a_task() -> None:
    nodes = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(),
        "b": task("a", params={"x": "{{ nodes.a.output.colection }}"}),
    }
    world = World(workflow_of(nodes))
    world.complete("a", output={"collection": "c"})
    assert world.job.error is not None
    assert (world.job.error["code"], world.job.error["field"]) == ("TEMPLATE_ERROR", "nodes.a.output.colection")
    assert len(world.decisions[-1].dispatches) == 0


VALUES = ["007", "5", 5, "true", True, None, "123_123", "[1,2]", "{'a': 1}", 1.0, 10**30, "null", "", " x ", [1, "1"]]


@pytest.mark.parametrize("value", VALUES)
def test_d23_a_value_keeps_its_type_through_a_lone_template(value: Any) -> None:
    nodes = {
        "start": {"type": "start", "next": ["a"]},
        "a": task(params={"x": "{{ inputs.x }}", "t": "n-{{ inputs.x }}"}),
        "b": task("a", params={"x": "{{ nodes.a.output.x }}"}),
    }
    world = World(workflow_of(nodes, inputs={"x": {}}), {"x": value})
    params = world.node("a").input_params or {}
    assert (params["x"], type(params["x"])) == (value, type(value))
    assert isinstance(params["t"], str)
    world.complete("a", output={"x": value})
    handed_on = (world.node("b").input_params or {})["x"]
    assert (handed_on, type(handed_on)) == (value, type(value))


@pytest.mark.parametrize(
    ("spelt", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("2026-01-01", "2026-01-01"),
        ("12:30", "12:30"),
        ("'5'", "5"),
        ("5", 5),
        ("~", None),
    ],
)
def test_d23_words_of_a_file_mean_what_yaml_1_2_says(spelt: str, value: Any) -> None:
    workflow = load_workflow(one_node(f"{{x: {spelt}}}"), "cases.yaml")
    assert workflow.works["a"].params == {"x": value}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("integer", "5"), ("integer", True), ("string", 7), ("boolean", "true"), ("number", "1.5"), ("array", "[1]")],
)
def test_d23_types_of_inputs_are_checked_and_never_guessed(kind: str, value: Any) -> None:
    with pytest.raises(ParameterInvalid, match=f"inputs.x must be {kind}"):
        resolve_inputs(workflow_of({"start": {"type": "start"}}, inputs={"x": {"type": kind}}), {"x": value})


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ({"mean": float("nan")}, "output.mean"),
        ({"stats": [{"max": float("inf")}]}, "output.stats[0].max"),
        ({"name": "a\x00b"}, "output.name"),
        ({"\x00": 1}, "a key of output"),
    ],
)
def test_d25_an_output_that_cannot_be_stored_fails_naming_its_path(output: dict[str, Any], path: str) -> None:
    world = one_task()
    world.complete("a", output=output)
    assert world.job.error is not None
    assert world.job.error["code"] == "RESULT_INVALID"
    assert path in world.job.error["message"]


def test_d25_large_integers_stay_exact() -> None:
    world = one_task()
    world.complete("a", output={"n": 2**53 + 1})
    assert world.node("a").output == {"n": 9007199254740993}


@pytest.mark.parametrize("join", ["all_of", "any_of", "all_done"])
def test_d13_a_fan_out_over_nothing_succeeds_and_its_join_runs_with_all_its_other_inputs(join: str) -> None:
    nodes = {
        "start": {"type": "start", "next": ["many", "other"]},
        "many": {"type": "fan_out", "source": "{{ inputs.items }}", "task": {"handler": "echo"}, "next": ["gather"]},
        "gather": {"type": "fan_in"},
        "other": task(),
        "join": task("gather", "other", join=join, params={"got": "{{ nodes.gather.output.results }}"}),
    }
    world = World(workflow_of(nodes, inputs={"items": {"type": "array"}}), {"items": []})
    assert (world.statuses()["many"], world.statuses()["gather"]) == ("COMPLETED", "COMPLETED")
    world.complete("other")
    assert world.node("join").input_params == {"got": []}
    world.complete("join")
    assert world.job.status is JobStatus.COMPLETED
