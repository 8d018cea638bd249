"""What is wrong with a workflow is found when it loads; every problem of a file at once, each at its place."""

from typing import Any

import pytest

from core.dag.checks import check
from core.dag.loader import load_workflow
from core.dag.problems import DefinitionError, Problem, Report
from core.dag.yaml_source import Source
from core.handlers_catalog import CATALOG, KNOWN_QUEUES
from tests.unit.core.dag.harness import task, workflow_of

INPUTS = {"x": {"type": "string"}, "list": {"type": "array"}}


class Places(Report):
    """Keeps the path of each problem in place of its file."""

    def add(self, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append(Problem(".".join(map(str, path)), 0, None, message))


def problems(nodes: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
    """Return (path, message) of everything that is wrong with a workflow between a start and an end."""
    frame = {"start": {"type": "start", "next": [next(iter(nodes))]}, **nodes, "end": {"type": "end"}}
    report = Places("w.yaml", Source({}))
    check(workflow_of(frame, inputs=INPUTS, **fields), CATALOG, KNOWN_QUEUES, report)
    return [(problem.file, problem.message) for problem in report.problems]


def fan_out(**fields: Any) -> dict[str, Any]:
    """Return a fan-out over an input."""
    return {"type": "fan_out", "source": "{{ inputs.list }}", "task": {"handler": "echo"}, "next": ["end"], **fields}


def choice(**fields: Any) -> dict[str, Any]:
    """Return a conditional with two ways to the end."""
    return {"type": "conditional", "condition": "{{ inputs.x }} == 'a'", "on_true": ["end"], **fields}


BY_FIELD: dict[str, Any] = {"type": "conditional", "condition_field": "{{ inputs.x }}"}


@pytest.mark.parametrize(
    ("node", "path", "message"),
    [
        (task(next=["end"], when="{{ inputs.y }} > 1"), "when", "inputs.y names no input"),
        (task(next=["end"], when="{{ inputs.x }} >"), "when", "a value is expected, not the end"),
        (task(next=["end"], when="> 1"), "when", "> has nothing on its left"),
        (task(next=["end"], when="{{ item }} == 1"), "when", "'item' is not known here"),
        (choice(condition="{{ nodes.end.output.n }} > 1"), "condition", "node end is not upstream"),
        (choice(condition="{{ nodes.start.output.n }} > 1"), "condition", "the output of start has nothing in it"),
        (task(next=["end"], params={"v": {"{{ inputs.x }}": 1}}), "params.v", "{{ inputs.x }} is a name"),
        (choice(condition="{{ inputs.x }} = 'a'"), "condition", "'=' is not known"),
        (choice(on_false=["nope"]), "on_false", "on_false names 'nope', which is not a node"),
        (choice(on_true=["nope"]), "on_true", "on_true names 'nope', which is not a node"),
        (choice(next=["end"]), "next", "next names 'end', which is among the choices already"),
        (
            BY_FIELD | {"branches": [{"default": True, "next": ["end"]}, {"condition": "== 'a'", "next": ["nope"]}]},
            "branches.1.next",
            "branches names 'nope'",
        ),
        (
            BY_FIELD | {"branches": [{"condition": "100", "next": ["end"]}, {"condition": "=< 5", "next": ["end"]}]},
            "branches.1.condition",
            "'=' is not known",
        ),
        (
            BY_FIELD | {"condition_field": "x", "branches": [{"default": True, "next": ["end"]}]},
            "condition_field",
            "x is not one {{ … }}",
        ),
        (
            BY_FIELD | {"condition_field": "{{ inputs.y }}", "branches": [{"default": True, "next": ["end"]}]},
            "condition_field",
            "inputs.y names no input",
        ),
        (
            {"type": "conditional", "branches": [{"condition": "< 5", "next": ["end"]}]},
            "branches.0.condition",
            "only branches with a condition_field may leave it out",
        ),
        (fan_out(source="{{ inputs.nope }}"), "source", "inputs.nope names no input"),
        (fan_out(source="[1, 2]"), "source", "[1, 2] is not one {{ … }}"),
        (fan_out(source="a {{ inputs.list }}"), "source", "is not one {{ … }}"),
        (fan_out(source="{{ item }}"), "source", "'item' is not known here"),
        (fan_out(task={"handler": "nope"}), "task.handler", "handler 'nope' is unknown"),
        (fan_out(task={"handler": "echo", "queue": "q"}), "task.queue", "queue 'q' is unknown"),
        (fan_out(task={"handler": "sleep"}), "task.params", "needs the param 'seconds'"),
        (fan_out(task={"handler": "sleep", "params": {"seconds": 1, "s": 2}}), "task.params.s", "no param 's'"),
        (fan_out(task={"handler": "echo", "params": {"i": "{{ itme }}"}}), "task.params.i", "'itme' is not known here"),
        (
            fan_out(task={"handler": "echo", "concurrency": {"key": "{{ inputs.y }}", "limit": 1}}),
            "task.concurrency.key",
            "inputs.y names no input",
        ),
        (fan_out(task={"handler": "echo", "retry": {"backoff": "schedule"}}), "task.retry", "need each other"),
        (task(next=["end"], params={"i": "{{ index }}"}), "params.i", "'index' is not known here"),
        (
            task(next=["end"], concurrency={"key": "{{ inputs.y }}", "limit": 1}),
            "concurrency.key",
            "inputs.y names no input",
        ),
        (
            {"type": "workflow", "workflow_id": "w2", "inputs": {"a": ["{{ inputs.y }}"]}, "next": ["end"]},
            "inputs.a",
            "inputs.y names no input",
        ),
        (
            {"type": "workflow", "workflow_id": "w2", "retry": {"delays_seconds": [1]}, "next": ["end"]},
            "retry",
            "need each other",
        ),
        ({"type": "fan_in", "next": ["end"]}, "", "exactly one fan_out among its direct sources, has none"),
        (task(next=["end"], params={"j": "{{ job.nope }}"}), "params.j", "job.nope is not known"),
        (task(next=["end"], params={"j": "{{ nodes.n.output }}"}), "params.j", "node n is not upstream"),
        (task(next=["end"], params={"j": "{{ nodes.start }}"}), "params.j", "must say nodes.<id>.output"),
        (task(next=["end"], params={"j": "{{ env.HOME }}"}), "params.j", "'env' is not known here"),
    ],
)
def test_a_mistake_in_a_node_is_found_at_its_place(node: dict[str, Any], path: str, message: str) -> None:
    ((where, what),) = problems({"n": node})
    assert where == f"nodes.n.{path}".removesuffix(".")
    assert message in what


@pytest.mark.parametrize(
    "node",
    [
        fan_out(
            task={"handler": "echo", "params": {"a": "{{ item.key }}", "b": "{{ index + 1 }}", "c": "{{ inputs.x }}"}}
        ),
        fan_out(task={"handler": "echo", "concurrency": {"key": "k-{{ item }}", "limit": 1}}),
        choice(when="{{ job.priority }} > 5 and {{ nodes.start.status }} == 'COMPLETED'"),
        BY_FIELD | {"branches": [{"condition": "in ['a', 'b']", "next": ["end"]}, {"default": True, "next": ["end"]}]},
        {"type": "gate", "next": ["end"]},
    ],
)
def test_these_have_no_problem(node: dict[str, Any]) -> None:
    assert problems({"n": node}) == []


def test_the_key_of_a_jobs_slot_sees_inputs_and_the_job_only() -> None:
    key = {"key": "{{ inputs.x }}-{{ job.priority }}-{{ nodes.n.output.a }}", "limit": 1}
    ((where, what),) = problems({"n": task(next=["end"])}, concurrency=key)
    assert where == "concurrency.key"
    assert "'nodes' is not known here; what is known are inputs, job" in what


def test_a_fan_in_takes_its_fan_out_from_among_several_sources() -> None:
    nodes = {"a": task(next=["join"]), "f": fan_out(next=["join"]), "join": {"type": "fan_in", "next": ["end"]}}
    nodes["a"]["next"] = ["f", "join"]
    assert problems(nodes) == []
    nodes["g"] = fan_out(next=["join"], depends_on={"all_of": ["a"]})
    ((where, what),) = problems(nodes)
    assert where == "nodes.join"
    assert what.endswith("has f, g")


D19 = """\
workflow_id: d19
version: 1
nodes:
  start: {type: start, next: [a, d, e]}
  a: {handler: echo, next: b}
  b: {handler: echo, next: c}
  c: {handler: echo, next: a}
  d: {handler: echo, next: [d, end]}
  e: {handler: echo, depends_on: [nope], next: end}
  end: {type: end}
"""


def refused(text: str) -> DefinitionError:
    """Load and return why not."""
    with pytest.raises(DefinitionError) as caught:
        load_workflow(text, "w.yaml")
    return caught.value


def test_a_ring_a_node_after_itself_and_an_unknown_name_are_all_listed() -> None:
    error = refused(D19)
    assert [(problem.line, problem.node) for problem in error.problems][1:] == [(8, "d"), (9, "e")]
    ring, itself, unknown = (problem.message for problem in error.problems)
    assert set(ring.removeprefix("these nodes form a cycle: ").split(" -> ")) == set("abc")
    assert itself == "these nodes form a cycle: d -> d"
    assert unknown == "depends_on names 'nope', which is not a node"


def test_the_order_of_the_nodes_in_the_file_makes_no_difference() -> None:
    lines = D19.splitlines(keepends=True)
    turned = refused("".join([*lines[:3], *reversed(lines[3:])]))
    assert {problem.node for problem in turned.problems} >= {"d", "e"}
    assert len(turned.problems) == 3


def test_words_that_do_not_exist_do_not_hide_what_else_is_wrong() -> None:
    text = D19.replace("next: b}", "nxet: b, next: b}").replace("version: 1", "version: 1\ncolour: red")
    messages = [problem.message for problem in refused(text).problems]
    assert len(messages) == 5
    assert "colour is not a word of the language" in messages
    assert "nxet is not a word of the language" in messages


def test_two_defaults_are_refused() -> None:
    text = """\
workflow_id: w
version: 1
inputs: {x: {type: integer}}
nodes:
  start: {type: start, next: r}
  r:
    type: conditional
    condition_field: "{{ inputs.x }}"
    branches: [{default: true, next: end}, {default: true, next: end}]
  end: {type: end}
"""
    error = refused(text)
    assert (error.node, error.line) == ("r", 6)
    assert "only one branch can be the default" in str(error)


def test_templates_are_checked_also_when_the_graph_is_broken() -> None:
    text = D19.replace("b: {handler: echo,", 'b: {handler: echo, params: {x: "{{ inputs.nope }}"},')
    assert any("inputs.nope names no input" in problem.message for problem in refused(text).problems)


TAIL = {"next": ["end"]}
MAKERS: dict[str, dict[str, Any]] = {
    "task": task(handler="sleep", params={"seconds": 1}),
    "echo": task(),
    "gate": {"type": "gate"},
    "choice": {"type": "conditional", "condition": "1 == 1", "on_true": ["reader"]},
    "fan_out": fan_out(),
}


@pytest.mark.parametrize("made_by", sorted(MAKERS))
@pytest.mark.parametrize(("template", "is_wrong"), [("{{ %s.nope }}", True), ("{{ %s.nope | default(1) }}", False)])
def test_what_an_output_never_has_is_found_unless_its_author_has_seen_to_it(
    made_by: str, template: str, *, is_wrong: bool
) -> None:
    way = {} if made_by == "choice" else {"next": ["reader"]}
    nodes = {"a": {**MAKERS[made_by], **way}}
    nodes["reader"] = task(params={"v": template % "nodes.a.output"}, **TAIL)
    found = problems(nodes)
    assert [path for path, _ in found] == (["nodes.reader.params.v"] if is_wrong else [])
    assert all("nodes.a.output.nope is never there; the output of a has " in message for _, message in found)


def test_what_only_a_run_can_tell_is_not_refused() -> None:
    any_output = task(handler="fail")
    nodes = {"a": {**any_output, "next": ["reader"]}}
    nodes["reader"] = task(params={"v": "{{ nodes.a.output.anything }}"}, **TAIL)
    assert problems(nodes) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("minimum: 5, maximum: 2", "minimum 5 is more than maximum 2"),
        ("min_length: 3, max_length: 2", "min_length 3 is more than max_length 2"),
        ("min_items: 1, max_items: 0", "min_items 1 is more than max_items 0"),
        ("enum: []", "enum has no values"),
        ("items: {minimum: 1, maximum: 0}", "minimum 1 is more than maximum 0"),
    ],
)
def test_an_input_that_no_value_fits_is_found(words: str, message: str) -> None:
    nodes = "nodes:\n  s: {type: start, next: e}\n  e: {type: end}\n"
    text = f"workflow_id: w\nversion: 1\ninputs:\n  x: {{{words}}}\n{nodes}"
    with pytest.raises(DefinitionError) as caught:
        load_workflow(text, "w.yaml")
    assert message in str(caught.value)
    assert [problem.line for problem in caught.value.problems] == [4]
