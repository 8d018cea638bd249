from typing import Any

import pytest
from hypothesis import given

from core.dag.certainty import certain_at, certain_at_end
from core.dag.definition import Workflow
from core.dag.lint import examine, lint
from core.dag.nodes import GateNode
from core.dag.problems import Report
from core.dag.rehearsal import rehearse
from core.dag.scenario import GatePlay, Scenario, read_scenario
from core.dag.yaml_source import read_yaml, write_yaml
from core.statuses import JobStatus, NodeStatus
from tests.unit.core.dag.harness import task, workflow_of
from tests.unit.core.dag.laws import LAWS
from tests.unit.core.dag.worlds import workflows

TYPED: dict[str, Any] = {
    "text": {"type": "string"},
    "number": {"type": "number", "default": 1},
    "flag": {"type": "boolean"},
    "list": {"type": "array"},
    "chosen": {"enum": ["a", "b"]},
    "either": {"type": ["string", "integer"]},
    "any": {},
}


def advice(nodes: dict[str, Any], **fields: Any) -> list[str]:
    """Return what lint says, with the node in front."""
    report = Report("w.yaml", read_yaml(write_yaml({"nodes": nodes})))
    lint(workflow_of({"start": {"type": "start"}, **nodes}, **fields), report)
    return [f"{problem.node}: {problem.message}" for problem in report.problems]


def reader(*after: str, of: str = "nodes.a.output.n", join: str = "all_of", **fields: Any) -> dict[str, Any]:
    """Return a task that reads an output."""
    return task(*after, join=join, params={"got": f"{{{{ {of} }}}}"}, **fields)


MAY_LACK: dict[str, dict[str, Any]] = {
    "bypassed": {"a": task("start", when="{{ job.priority }} > 5"), "b": reader("a")},
    "failed under best_effort": {"a": task("start", best_effort=True), "b": reader("a")},
    "not taken": {
        "c": {"type": "conditional", "depends_on": {"all_of": ["start"]}, "condition": "true", "on_true": ["a"]},
        "a": task(),
        "b": reader("a", "start"),
    },
    "one of two ways": {
        "c": {
            "type": "conditional",
            "depends_on": {"all_of": ["start"]},
            "condition": "true",
            "on_true": ["a"],
            "on_false": ["x"],
        },
        "a": task(),
        "x": task(),
        "b": reader("a", "x"),
    },
    "any of two": {"a": task("start"), "x": task("start"), "b": reader("a", "x", join="any_of")},
    "done somehow": {"a": task("start"), "b": reader("a", join="all_done")},
    "before one that may be not taken": {
        "c": {"type": "conditional", "depends_on": {"all_of": ["start"]}, "condition": "true", "on_true": ["a"]},
        "a": task(next=["x"]),
        "x": task("start"),
        "b": reader("x"),
    },
}


@pytest.mark.parametrize("name", MAY_LACK)
def test_an_output_that_may_be_missing_must_be_read_with_care(name: str) -> None:
    (message,) = advice(MAY_LACK[name])
    assert message.startswith("b: node a may have no output here")
    assert "default(…), `is defined` or nodes.a.status" in message


@pytest.mark.parametrize("name", MAY_LACK)
@pytest.mark.parametrize(
    "of",
    [
        "nodes.a.output.n | default(1)",
        "nodes.a.output | default({})",
        "1 if nodes.a.output.n is defined else 2",
        "nodes.a.output.n if nodes.a.status == 'COMPLETED' else 2",
        "nodes.a.status",
    ],
)
def test_these_readers_take_care(name: str, of: str) -> None:
    assert advice({**MAY_LACK[name], "b": {**MAY_LACK[name]["b"], "params": {"got": f"{{{{ {of} }}}}"}}}) == []


@pytest.mark.parametrize("name", [name for name in MAY_LACK if name != "bypassed"])
@pytest.mark.parametrize(
    ("when", "is_guard"),
    [
        ("{{ nodes.a.output is defined }}", True),
        ("{{ nodes.a.output.n is defined }}", True),
        ("{{ nodes.a.status }} == 'COMPLETED'", True),
        ("'COMPLETED' == {{ nodes.a.status }}", True),
        ("{{ nodes.a.status == 'COMPLETED' }}", True),
        ("{{ nodes.a.status }} in ['COMPLETED']", True),
        ("({{ job.priority }} > 5 and {{ nodes.a.status }} == 'COMPLETED') and {{ job.run_no }} == 1", True),
        ("not {{ nodes.a.output is undefined }}", True),
        ("{{ nodes.a.output.n | default(0) }} > 1", True),
        ("{{ nodes.a.output is undefined }}", False),
        ("{{ nodes.a.output.n | default(2) }} > 1", False),
        ("{{ nodes.a.status }} != 'SKIPPED'", False),
        ("{{ nodes.a.status }} in ['COMPLETED', 'FAILED']", False),
        ("{{ nodes.a.output is defined }} or {{ job.priority }} > 5", False),
        ("not ({{ nodes.a.status }} == 'COMPLETED' and {{ job.priority }} > 5)", False),
        ("{{ nodes.start.status }} == 'COMPLETED'", False),
        ("{{ job.priority }} > 5", False),
    ],
)
def test_what_a_node_reads_is_there_when_its_own_when_says_so(name: str, when: str, is_guard: bool) -> None:
    nodes = {**MAY_LACK[name], "b": {**MAY_LACK[name]["b"], "when": when}}
    assert len(advice(nodes)) == (0 if is_guard else 1)


def test_the_guard_of_a_node_counts_for_all_that_completed_before_the_node_it_names() -> None:
    guard = "{{ nodes.x.status }} == 'COMPLETED'"
    nodes = {"a": task("start"), "x": task("a"), "b": reader("x", join="all_done", when=guard)}
    assert advice(nodes) == []
    assert len(advice({**nodes, "x": task("a", join="all_done")})) == 1


def test_the_guard_of_a_node_counts_in_all_its_other_places() -> None:
    guard = {"when": "{{ nodes.a.output is defined }}"}
    before = {"a": task("start", best_effort=True)}
    after = {"depends_on": {"all_of": ["a"]}}
    each = {"handler": "echo", "params": {"n": "{{ nodes.a.output.n }}"}}
    fan = {"type": "fan_out", "source": "{{ nodes.a.output.items }}", "task": each, **after}
    assert len(advice({**before, "f": fan})) == 2
    assert advice({**before, "f": {**fan, **guard}}) == []
    slot = {"concurrency": {"key": "{{ nodes.a.output.n }}", "limit": 1}}
    assert len(advice({**before, "b": task("a", **slot)})) == 1
    assert advice({**before, "b": task("a", **slot, **guard)}) == []
    choice = {"type": "conditional", "condition": "{{ nodes.a.output.n }} > 1", "on_true": ["b"], **after}
    (message,) = advice({**before, "c": {**choice, **guard}, "b": task()})
    assert "may choose nothing" in message


CERTAIN: dict[str, dict[str, Any]] = {
    "right before": {"a": task("start"), "b": reader("a")},
    "far before": {"a": task("start"), "x": task("a"), "y": task("x", best_effort=True), "b": reader("y")},
    "on the same way": {
        "c": {"type": "conditional", "depends_on": {"all_of": ["start"]}, "condition": "true", "on_true": ["a"]},
        "a": task(),
        "b": reader("a"),
    },
    "before the choice": {
        "a": task("start"),
        "c": {
            "type": "conditional",
            "depends_on": {"all_of": ["a"]},
            "condition": "{{ nodes.a.output.n }} > 1",
            "on_true": ["x"],
            "on_false": ["y"],
        },
        "x": task(),
        "y": task(),
        "b": reader("x", "y", join="any_of"),
    },
    "on a way that leads to all_of beside a certain one": {
        "a": task("start"),
        "c": {"type": "conditional", "depends_on": {"all_of": ["start"]}, "condition": "true", "on_true": ["x"]},
        "x": task(),
        "b": reader("x", "a"),
    },
    "before both of any_of": {"a": task("start"), "x": task("a"), "y": task("a"), "b": reader("x", "y", join="any_of")},
}


@pytest.mark.parametrize("name", CERTAIN)
def test_an_output_that_is_always_there_may_be_read_plainly(name: str) -> None:
    assert advice(CERTAIN[name]) == []


def test_one_of_two_ways_may_be_read_in_place_of_the_other() -> None:
    of = "nodes.a.output.n | default(nodes.x.output.n)"
    for join in ("any_of", "all_of"):
        nodes = {**MAY_LACK["one of two ways"], "b": reader("a", "x", of=of, join=join)}
        assert advice(nodes) == []
    assert len(advice({**nodes, "b": reader("a", "x", of=of, join="all_done")})) == 1
    assert len(advice({**nodes, "b": reader("a", "x", "c", of=of, join="any_of")})) == 1
    assert len(advice({**nodes, "a": task(best_effort=True)})) == 1


def test_one_of_two_ways_may_be_read_in_place_of_the_other_behind_their_join_and_in_outputs() -> None:
    of = "{{ nodes.a.output.n | default(nodes.x.output.n) }}"
    for join in ("any_of", "all_of"):
        nodes = {**MAY_LACK["one of two ways"], "b": {**task(), "depends_on": {join: ["a", "x"]}}}
        assert advice(nodes, outputs={"n": of}) == []
        behind = {"z": {**task("b"), "params": {"n": of}}}
        assert advice({**nodes, **behind}) == []
    assert len(advice({**nodes, "b": {**nodes["b"], "best_effort": True}}, outputs={"n": of})) == 1
    assert len(advice({**nodes, "a": task(best_effort=True)}, outputs={"n": of})) == 1
    assert len(advice(nodes, outputs={"n": "{{ nodes.x.output.n }}"})) == 1
    assert (
        len(advice({**nodes, "c": {**nodes["c"], "on_false": []}, "x": task("start", when="true")}, outputs={"n": of}))
        == 1
    )


def test_a_join_is_certain_when_every_choice_leads_to_it_and_not_when_one_does_not() -> None:
    branches = [{"condition": "true", "next": ["a"]}, {"condition": "false", "next": ["x"]}, {"default": True}]
    nodes = {
        "start": {"type": "start"},
        "c": {"type": "conditional", "depends_on": {"all_of": ["start"]}, "branches": branches},
        "a": task(),
        "x": task(),
        "b": task("a", "x", join="any_of"),
    }
    branches[2]["next"] = ["b"]
    assert certain_at_end(workflow_of(nodes)) == {"start", "c", "b"}
    branches[2]["next"] = ["d"]
    assert certain_at_end(workflow_of({**nodes, "d": task()})) == {"start", "c"}


def test_outputs_of_the_job_are_read_when_it_completed() -> None:
    nodes = {"a": task("start"), "b": task("start", best_effort=True), "c": task("a", when="true")}
    outputs = {key: f"{{{{ nodes.{key}.output.n }}}}" for key in nodes}
    assert [message.split(" may")[0] for message in advice(nodes, outputs=outputs)] == [
        "None: node b",
        "None: node c",
    ]
    workflow = workflow_of({"start": {"type": "start"}, **nodes})
    assert certain_at_end(workflow) == {"start", "a"}
    assert certain_at(workflow)["c"] == {"start", "a"}


def test_conditions_are_read_with_the_same_care() -> None:
    nodes = {"a": task("start", best_effort=True), "b": task("a", when="{{ nodes.a.output.n }} > 1")}
    assert len(advice(nodes)) == 1
    nodes["b"] = task("a", when="{{ nodes.a.status }} == 'COMPLETED' and {{ nodes.a.output.n }} > 1")
    assert advice(nodes) == []


@pytest.mark.parametrize(
    ("handler", "param", "value", "wrong"),
    [
        ("sleep", "seconds", "{{ inputs.text }}", "params.seconds takes a number, and inputs.text is a text"),
        ("sleep", "seconds", "{{ inputs.flag }}", "params.seconds takes a number, and inputs.flag is a boolean"),
        ("sleep", "seconds", "{{ inputs.chosen }}", "params.seconds takes a number, and inputs.chosen is a text"),
        ("sleep", "seconds", "{{ job.job_id }}", "params.seconds takes a number, and job.job_id is a text"),
        ("sleep", "seconds", "{{ inputs.number }}", None),
        ("sleep", "seconds", "{{ inputs.text | float }}", None),
        ("sleep", "seconds", "{{ inputs.any }}", None),
        ("sleep", "seconds", "{{ inputs.either }}", None),
        ("fail", "transient", "{{ inputs.text }}", "params.transient takes a boolean, and inputs.text is a text"),
        ("fail", "transient", "{{ inputs.flag }}", None),
        ("fail", "code", "{{ inputs.number }}", "params.code takes a text, and inputs.number is a number"),
        ("fail", "code", "{{ inputs.text }}", None),
        ("fail", "code", "E{{ inputs.number }}", None),
        ("raster.validate", "expected_size_bytes", "{{ inputs.text }}", "expected_size_bytes takes a number, and"),
        (
            "raster.validate",
            "options",
            "{{ inputs.text }}",
            "params.options takes a mapping, and inputs.text is a text",
        ),
        ("echo", "whatever", "{{ inputs.text }}", None),
    ],
)
def test_a_param_that_can_never_be_what_its_handler_takes_is_pointed_at(
    handler: str, param: str, value: str, wrong: str | None
) -> None:
    work = {"handler": handler, "params": {param: value}}
    found = advice({"a": task("start", **work)}, inputs=TYPED)
    fan = {"type": "fan_out", "depends_on": {"all_of": ["start"]}, "task": work}
    below = advice({"a": {**fan, "source": "{{ inputs.list }}"}}, inputs=TYPED)
    assert len(found) == len(below) == (0 if wrong is None else 1)
    assert all(str(wrong) in message for message in found + below)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("inputs.text", "source takes a list, and inputs.text is a text"),
        ("inputs.either", "source takes a list, and inputs.either is a number or a text"),
        ("inputs.list", None),
        ("inputs.any", None),
        ("inputs.text | split(',')", None),
    ],
)
def test_a_source_that_can_never_be_a_list_is_pointed_at(source: str, wrong: str | None) -> None:
    fan = {"type": "fan_out", "depends_on": {"all_of": ["start"]}, "task": {"handler": "echo"}}
    found = advice({"a": {**fan, "source": f"{{{{ {source} }}}}"}}, inputs=TYPED)
    assert found == ([] if wrong is None else [f"a: {wrong}"])


def test_a_conditional_that_may_choose_nothing_is_pointed_at() -> None:
    choice = {"type": "conditional", "depends_on": {"all_of": ["start"]}, "condition": "true", "on_true": ["a"]}
    for word, value in (("when", "true"), ("best_effort", True)):
        (message,) = advice({"c": {**choice, word: value}, "a": task()})
        assert message == f"c: a conditional with {word} may choose nothing; then all its ways run"
    assert advice({"c": choice, "a": task()}) == []


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "on",
        "null",
        "~",
        "0o17",
        "0x1f",
        "1_000",
        "12:30",
        "2026-01-01",
        "1e3",
        ".5",
        "=",
        "<<",
        "",
        " a ",
        "a: b",
    ],
)
def test_written_yaml_reads_as_the_same_value(value: str) -> None:
    document = {"text": value, value or "key": [value, 1, 1.5, True, None, {"deep": value}]}
    assert read_yaml(write_yaml(document)).value == document


@pytest.mark.parametrize("params", [{"x": "${{ inputs.text }}"}, {"x": {"y": ["a", "${{inputs.text}}"]}}])
def test_the_dollar_of_other_languages_is_advised_against(params: dict[str, Any]) -> None:
    (said,) = advice({"a": task("start", params=params)}, inputs=TYPED)
    assert "the $ before {{ stays in the text" in said


@pytest.mark.parametrize("bracket", ["${inputs.text}", "<% inputs.text %>", "<%= inputs.text %>", "[[ inputs.text ]]"])
def test_brackets_of_other_languages_are_advised_against(bracket: str) -> None:
    (said,) = advice({"a": task("start", params={"x": [f"a {bracket} b {{{{ inputs.text }}}}"]})}, inputs=TYPED)
    assert "stays in the text as it is: templates are written {{ … }}" in said
    assert bracket[:2] in said


@pytest.mark.parametrize(
    "text",
    [
        "$ {{ inputs.text }}",
        "{{ inputs.text }}$",
        "${x}",
        "{{ '$' }}{{ inputs.text }}",
        "{{ '[[inputs' }}",
        "[[1]]",
        "<%x%>",
    ],
)
def test_a_dollar_that_is_meant_is_left_alone(text: str) -> None:
    assert advice({"a": task("start", params={"x": text})}, inputs=TYPED) == []


def test_the_same_words_on_one_line_are_said_once() -> None:
    text = """workflow_id: w
version: 1
nodes:
  start: {type: start, next: [a]}
  a: {handler: echo, best_effort: true, next: [b]}
  b: {handler: echo, params: {x: "{{ nodes.a.output }}", y: "{{ nodes.a.output }}"}, next: [c]}
  c:
    handler: echo
    params:
      x: "{{ nodes.a.output.echoed_params }}"
      y: "{{ nodes.a.output.echoed_params }}"
    next: [end]
  end: {type: end}
"""
    assert [(one.line, one.node) for one in examine(text, "w.yaml")[1]] == [(6, "b"), (10, "c"), (11, "c")]


IDLE = "a: default(…) never stands in for inputs.text, which is null when it was left out"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ inputs.text | default('d') }}", [IDLE]),
        ("x {{ inputs['text'] | d('d') | upper }}", [IDLE]),
        ("{{ inputs.text | default('d', true) }}", []),
        ("{{ inputs.text | default(default_value='d', boolean=true) }}", []),
        ("{{ 'd' if inputs.text is none else inputs.text }}", []),
        ("{{ inputs.list[0] | default(inputs.text) }}", []),
        ("{{ inputs.text is defined }}", []),
    ],
)
def test_a_default_that_never_stands_in_for_an_input_is_told(text: str, said: list[str]) -> None:
    found = advice({"a": task("start", params={"x": text})}, inputs=TYPED)
    assert [line.partition(":")[0] + ":" + line.partition(":")[2].partition(":")[0] for line in found] == said


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"type": "string", "default": "e"}, 'is "e" when it was left out, as the input declares'),
        ({"type": "boolean", "default": False}, "is false when it was left out, as the input declares"),
        ({"type": "string", "required": True}, "is always given, since it is required"),
    ],
)
def test_an_input_that_is_never_null_is_not_said_to_be_null(spec: dict[str, Any], why: str) -> None:
    nodes = {"a": task("start", params={"x": "{{ inputs.text | default('d') }}"})}
    assert advice(nodes, inputs={"text": spec}) == [
        f"a: default(…) never stands in for inputs.text, which {why}: leave default(…) out"
    ]


def test_a_default_in_a_condition_never_stands_in_for_an_input_either() -> None:
    (said,) = advice({"a": task("start", when="{{ inputs.text | default('d') }} == 'd'")}, inputs=TYPED)
    assert said.startswith(IDLE)


def test_an_input_that_was_left_out_is_null_and_what_lint_offers_stands_in_for_it() -> None:
    nodes = {"start": {"type": "start", "next": ["a"]}, "a": task()}
    outputs = {
        "kept": "{{ inputs.text | default('d') }}",
        "written": "{{ 'd' if inputs.text is none else inputs.text }}",
        "argued": "{{ inputs.text | default('d', true) }}",
    }
    result = rehearse(workflow_of(nodes, inputs=TYPED, outputs=outputs), Scenario())
    assert result.job.outputs == {"kept": None, "written": "d", "argued": "d"}


def test_a_run_time_beyond_the_deadline_is_told_where_it_is_written() -> None:
    fan_out = {"type": "fan_out", "source": "{{ inputs.list }}", "task": {"handler": "echo", "timeout_seconds": 61}}
    fan_out |= {"depends_on": {"all_of": ["start"]}}
    nodes = {"a": task("start", timeout_seconds=100), "b": task("start", timeout_seconds=60), "m": fan_out}
    ends = "of deadline_seconds, which ends the job before"
    assert advice(nodes, inputs=TYPED, deadline_seconds=60, defaults={"timeout_seconds": 70}) == [
        f"None: timeout_seconds 70 is more than the 60 {ends}",
        f"a: timeout_seconds 100 is more than the 60 {ends}",
        f"m: timeout_seconds 61 is more than the 60 {ends}",
    ]
    assert advice(nodes, inputs=TYPED) == []


@LAWS
@given(workflows())
def test_what_is_certain_has_completed_in_every_rehearsal_that_completes(workflow: Workflow) -> None:
    gates = {key: GatePlay() for key, node in workflow.nodes.items() if isinstance(node, GateNode)}
    result = rehearse(workflow, Scenario(gates=gates))
    completed = {key for key, node in result.nodes.items() if node.status is NodeStatus.COMPLETED}
    assert result.job.status is JobStatus.COMPLETED
    assert certain_at_end(workflow) <= completed
    certain = certain_at(workflow)
    assert all(certain[key] <= completed for key in completed)


LATE = "max_elapsed_seconds 3 are over before the first retry, 4 s after the failure or later"
CUT = "initial_delay_seconds 600 is cut to the 300 of max_delay_seconds; say a larger max_delay_seconds too"


@pytest.mark.parametrize(
    ("retry", "said"),
    [
        ({"initial_delay_seconds": 600}, [CUT]),
        ({"initial_delay_seconds": 600, "max_retries": 0}, []),
        ({"initial_delay_seconds": 600, "max_delay_seconds": 600}, []),
        ({"backoff": "schedule", "delays_seconds": [600], "initial_delay_seconds": 600}, []),
        ({"max_elapsed_seconds": 3}, [LATE]),
        ({"max_elapsed_seconds": 5}, []),
        ({"max_elapsed_seconds": 3, "backoff": "schedule", "delays_seconds": [4], "jitter": 0}, [LATE]),
        ({"max_elapsed_seconds": 3, "initial_delay_seconds": 0}, []),
    ],
)
def test_retries_that_contradict_themselves_are_told_where_they_are_written(
    retry: dict[str, Any], said: list[str]
) -> None:
    fan_out = {"type": "fan_out", "source": "{{ inputs.l }}", "task": {"handler": "echo", "retry": retry}}
    fan_out |= {"depends_on": {"all_of": ["start"]}}
    own = advice({"a": task("start", retry=retry), "b": task("start"), "m": fan_out}, inputs={"l": {"type": "array"}})
    assert [line.partition(": nothing but")[0] for line in own] == [f"{node}: {one}" for node in "am" for one in said]
    common = advice({"a": task("start"), "b": task("start")}, defaults={"retry": retry})
    assert [line.partition(": nothing but")[0] for line in common] == [f"None: {one}" for one in said]


def test_the_time_that_advice_is_about_keeps_an_error_from_being_retried() -> None:
    nodes = {"start": {"type": "start", "next": ["a"]}, "a": task(retry={"max_elapsed_seconds": 3})}
    busy = read_scenario('{"tasks": {"a": {"error": {"classification": "transient"}}}}', "s.json")
    result = rehearse(workflow_of(nodes), busy)
    assert [one.event for one in result.timeline].count("node_started") == 1
