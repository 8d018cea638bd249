"""What is wrong with a workflow is found when it loads; every problem of a file at once, each at its place."""

from typing import Any

import pytest

from core.dag.checks import check
from core.dag.lint import RUNS_ITSELF, examine
from core.dag.loader import load_workflow
from core.dag.problems import DefinitionError, Problem, Report
from core.dag.yaml_source import Source, write_yaml
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


def test_no_workflow_is_named_like_the_keys_that_all_share() -> None:
    """Its own key `a` would be `global:a`."""
    (problem,) = problems({"a": task(next=["end"])}, workflow_id="global")
    assert problem == ("workflow_id", "workflow_id cannot be 'global': so begin keys of slots that all workflows share")
    assert problems({"a": task(next=["end"])}, workflow_id="globals") == []


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
        (task(next=["end"], params={"j": "{{ inputs.x == null }}"}), "params.j", "; write none instead of null"),
        (
            task(next=["end"], params={"j": "{{ inputs.x | lenght }}"}),
            "params.j",
            "min, replace, reverse, round, sort,",
        ),
        (task(next=["end"], params={"j": "{{ inputs.x | lenght }}"}), "params.j", "; did you mean length?"),
        (
            task(next=["end"], when="{{ inputs.x | nope }}"),
            "when",
            "No filter named 'nope'; there are abs, capitalize,",
        ),
        (task(next=["end"], when="{{ inputs.x is noen }}"), "when", "named 'noen'; there are boolean, defined, eq,"),
        (task(next=["end"], when="{{ inputs.x is noen }}"), "when", "; did you mean none?"),
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
    assert "nxet is not a word of the language; did you mean next?" in messages


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
@pytest.mark.parametrize(
    ("template", "is_wrong"),
    [
        ("{{ %s.nope }}", True),
        ("{{ %s.nope | default(1) }}", False),
        ("{{ %s.nope if %s.nope is defined else 1 }}", False),
        ("{{ %s.nope if 'nope' in %s else 1 }}", False),
        ("{{ %s.nope if %s.other is defined else 1 }}", True),
    ],
)
def test_what_an_output_never_has_is_found_unless_its_author_has_seen_to_it(
    made_by: str, template: str, *, is_wrong: bool
) -> None:
    way = {} if made_by == "choice" else {"next": ["reader"]}
    nodes = {"a": {**MAKERS[made_by], **way}}
    nodes["reader"] = task(params={"v": template.replace("%s", "nodes.a.output")}, **TAIL)
    found = problems(nodes)
    assert [path for path, _ in found] == (["nodes.reader.params.v"] if is_wrong else [])
    assert all("nodes.a.output.nope is never there; the output of a has " in message for _, message in found[:1])


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
        ("type: string, minimum: 3", "inputs.x: minimum is a word for integer or number, and the type is string"),
        ("type: integer, min_length: 3", "min_length is a word for string, and the type is integer"),
        ("type: integer, maxLength: 3", "max_length is a word for string, and the type is integer"),
        ("type: [number, 'null'], pattern: a", "pattern is a word for string, and the type is number or null"),
        ("type: string, items: {type: string}", "items is a word for array, and the type is string"),
        ("type: object, unique_items: true", "unique_items is a word for array, and the type is object"),
        ("type: array, properties: {a: {}}", "properties is a word for object, and the type is array"),
        ("type: string, required: [a]", "a list of required names is for object, and the type is string"),
        ("type: integer, enum: [a, b]", 'enum is ["a","b"], and the type is integer, so no value fits'),
        ("type: array, items: {type: string, const: 3}", "const is [3], and the type is string, so no value fits"),
    ],
)
def test_an_input_that_no_value_fits_is_found(words: str, message: str) -> None:
    nodes = "nodes:\n  s: {type: start, next: e}\n  e: {type: end}\n"
    text = f"workflow_id: w\nversion: 1\ninputs:\n  x: {{{words}}}\n{nodes}"
    with pytest.raises(DefinitionError) as caught:
        load_workflow(text, "w.yaml")
    assert message in str(caught.value)
    assert [problem.line for problem in caught.value.problems] == [4]


@pytest.mark.parametrize(
    "words",
    [
        *("type: [string, 'null'], max_length: 3", "minimum: 3, max_length: 3", "type: [integer, string], minimum: 3"),
        *("type: string, required: true, enum: [a]", "type: number, enum: [1, 1.5]", "type: string, enum: [a, 3]"),
        *("type: object, required: [a]", "type: [array, object], items: {}, properties: {}"),
        *("type: integer, enum: [1.0, 2.0]", "type: integer, const: 3.0"),
    ],
)
def test_words_that_limit_some_values_of_the_type_are_taken(words: str) -> None:
    nodes = "nodes:\n  s: {type: start, next: e}\n  e: {type: end}\n"
    load_workflow(f"workflow_id: w\nversion: 1\ninputs:\n  x: {{{words}}}\n{nodes}", "w.yaml")


@pytest.mark.parametrize(
    ("node", "suggestion"),
    [
        (task(next=["edn"]), "end"),
        (choice(on_false=["way"]), None),
        (task("strat", next=["end"]), "start"),
        (task(next=["end"], handler="ehco"), "echo"),
        (task(next=["end"], queue="container-task"), "container-tasks"),
        (task(next=["end"], handler="sleep", params={"seconds": 1, "secnds": 1}), "seconds"),
        (task(next=["end"], when="{{ inputs.lst }} == []"), "list"),
        (task(next=["end"], when="{{ input.x }} == 'a'"), "inputs"),
        (task(next=["end"], params={"v": "{{ nodes.strt.status }}"}), "start"),
        (task(next=["end"], params={"v": "{{ nodes.start.ouput }}"}), "output"),
        (task(next=["end"], params={"v": "{{ job.jobid }}"}), "job_id"),
        (task(next=["end"], params={"v": "{{ job.colour }}"}), None),
    ],
)
def test_a_name_that_is_close_to_a_known_one_gets_a_suggestion(node: dict[str, Any], suggestion: str | None) -> None:
    ((_, what),) = problems({"n": node})
    assert what.partition("; did you mean ")[2] == (f"{suggestion}?" if suggestion else "")


def test_a_workflow_that_runs_itself_is_refused_alone_and_one_that_may_gets_advice() -> None:
    node: dict[str, Any] = {"type": "workflow", "workflow_id": "w", "next": ["end"]}
    assert problems({"n": node | {"version": 1}}) == [
        ("nodes.n.workflow_id", "workflow w cannot contain itself; name another one, or another version")
    ]
    assert problems({"n": node}) == problems({"n": node | {"version": 2}}) == []
    nodes = ["s: {type: start, next: n}", "n: {type: workflow, workflow_id: w, next: e}", "e: {type: end}"]
    text = "\n  ".join(["workflow_id: w\nversion: 1\nnodes:", *nodes])
    workflow, advice = examine(text, "w.yaml")
    assert workflow is not None
    assert [(one.line, one.message) for one in advice] == [(5, RUNS_ITSELF)]


WHOLE = """\
workflow_id: w
version: 1
{top}
nodes:
  s: {{type: start, next: a, {start}}}
  a: {{handler: echo, next: c, {task}}}
  c: {{type: conditional, branches: [{{condition: "true", next: f, {branch}}}, {{default: true, next: f}}]}}
  f: {{type: fan_out, source: "{{{{ inputs.x }}}}", task: {{handler: echo, {work}}}, next: g, {fan_out}}}
  g: {{type: gate, next: k, {gate}}}
  k: {{type: workflow, workflow_id: other, next: e, {child}}}
  e: {{type: end}}
"""


@pytest.mark.parametrize(
    ("place", "words", "suggestion"),
    [
        ("top", "on_failur: cancel", "on_failure"),
        ("top", "defaults: {timeout_second: 1}", "timeout_seconds"),
        ("top", "defaults: {retry: {max_retrie: 1}}", "max_retries"),
        ("top", "concurrency: {key: a, limit: 1, limits: 1}", "limit"),
        ("top", "inputs: {x: {requird: true}}", "required"),
        ("top", "inputs: {x: {items: {maxLenght: 1}}}", "max_length"),
        ("top", "inputs: {x: {properties: {y: {defalt: 1}}}}", "default"),
        ("start", "descripton: a", "description"),
        ("task", "best_efort: true", "best_effort"),
        ("task", "retry: {max_attempt: 1}", "max_attempts"),
        ("task", "concurrency: {key: a, limit: 1, ky: 1}", "key"),
        ("task", "colour: red", ""),
        ("branch", "defalt: true", "default"),
        ("work", "param: {}", "params"),
        ("work", "retry: {jiter: 0}", "jitter"),
        ("fan_out", "batch_sise: 2", "batch_size"),
        ("fan_out", "tolerate: {count: 1, percnt: 1}", "percent"),
        ("gate", "expires_after: 3", "expires_after_seconds"),
        ("task", "timeout: 3", "timeout_seconds"),
        ("work", "queue_timeout: 3", "queue_timeout_seconds"),
        ("child", "input: {}", "inputs"),
    ],
)
def test_a_word_that_is_close_to_one_of_its_place_gets_a_suggestion(place: str, words: str, suggestion: str) -> None:
    parts = dict.fromkeys(("top", "start", "task", "branch", "work", "fan_out", "gate", "child"), "")
    text = WHOLE.format(**{**parts, "top": "inputs: {x: {}}", place: words})
    messages = [one.message for one in refused(text).problems if "is not a word of the language" in one.message]
    assert [message.partition("; did you mean ")[2].rstrip("?") for message in messages] == [suggestion]


def test_a_word_of_an_input_that_is_named_as_a_word_is_named_whole() -> None:
    parts = dict.fromkeys(("start", "task", "branch", "work", "fan_out", "gate", "child"), "")
    problems = refused(WHOLE.format(**parts, top="inputs: {x: {}, type: {str: 1}, required: {bool: 1}}")).problems
    found = [one.message for one in problems if "is not a word of the language" in one.message]
    assert [message.partition(" ")[0] for message in found] == ["inputs.type.str", "inputs.required.bool"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "priority: high",
            'priority: expected 0 to 10 or one of interactive (8), routine (5), backfill (1), got "high"',
        ),
        ("priority: 11", "priority: expected 0 to 10 or one of interactive (8), routine (5), backfill (1), got 11"),
        ("deadline_seconds: soon", 'deadline_seconds: expected a number, got "soon"'),
        ("deadline_seconds: 0", "deadline_seconds: expected more than 0, got 0"),
        ("on_failure: explode", "on_failure: expected 'drain' or 'cancel', got \"explode\""),
        ("current: [1,\n  2]", "current: expected true or false, got [1,2]"),
        ("inputs: [a]", 'inputs: expected an object, got ["a"]'),
        ("inputs: {x: {min_items: -1}}", "inputs.x.min_items: expected at least 0, got -1"),
        ("defaults: {retry: {backoff: wild}}", "expected 'fixed', 'exponential' or 'schedule', got \"wild\""),
        (f"description: [{'a' * 500}]", f'description: expected a string, got ["{"a" * 78}…'),
    ],
)
def test_a_value_of_the_wrong_shape_is_shown_in_short(words: str, message: str) -> None:
    nodes = "nodes:\n  s: {type: start, next: e}\n  e: {type: end}\n"
    assert refused(f"workflow_id: w\nversion: 1\n{words}\n{nodes}").problems[0].message.endswith(message)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("concurrency", "key, limit"),
        ("defaults", "timeout_seconds, queue_timeout_seconds, heartbeat_timeout_seconds, retry"),
        ("defaults.retry", "max_retries, max_losses, "),
        ("defaults.retry", ", max_attempts"),
        ("inputs.x", "type, required, default, "),
        ("nodes.f.tolerate", "percent, count"),
        ("nodes.f.depends_on", "all_of, any_of, all_done"),
        ("nodes.f.task", "handler, "),
        ("nodes.f.task.concurrency", "key, limit"),
        ("nodes.f.task.retry", "max_retries, max_losses, "),
        ("nodes.c.branches.0", "condition, default, next"),
    ],
)
def test_where_a_mapping_is_needed_its_words_are_told(place: str, words: str) -> None:
    task: dict[str, Any] = {"handler": "echo"}
    document: dict[str, Any] = {
        "workflow_id": "w",
        "version": 1,
        "nodes": {
            "s": {"type": "start", "next": ["f"]},
            "f": {"type": "fan_out", "source": "{{ inputs.x }}", "task": task, "next": ["c"]},
            "c": {"type": "conditional", "branches": [{"default": True, "next": ["e"]}]},
            "e": {"type": "end"},
        },
    }
    *around, last = place.split(".")
    inner: Any = document
    for step in around:
        inner = inner[int(step)] if isinstance(inner, list) else inner.setdefault(step, {})
    inner[int(last) if isinstance(inner, list) else last] = 5
    where = place.removeprefix("nodes.f.").removeprefix("nodes.c.")
    (message,) = (one.message for one in refused(write_yaml(document)).problems if one.message.startswith(f"{where}:"))
    told = message.removeprefix(f"{where}: expected an object, got 5; its words are ")
    assert told != message
    assert words in told


def test_a_file_without_nodes_says_so() -> None:
    assert [one.message for one in refused("workflow_id: w\nversion: 1\n").problems] == ["nodes is missing"]


@pytest.mark.parametrize("seen", ["item", "index"])
def test_the_key_of_a_batch_sees_no_item_and_the_problem_says_why(seen: str) -> None:
    text = """\
workflow_id: w
version: 1
nodes:
  start: {type: start, next: f}
  f:
    type: fan_out
    source: "{{ [1, 2] }}"
    batch_size: SIZE
    task: {handler: echo, concurrency: {key: "k{{ SEEN }}", limit: 1}}
    next: g
  g: {type: fan_in, next: end}
  end: {type: end}
"""
    said = text.replace("SEEN", seen)
    (problem,) = refused(said.replace("SIZE", "2")).problems
    assert f"with batch_size: 1 each {seen} can have its own" in problem.message
    assert load_workflow(said.replace("SIZE", "1"), "w.yaml").works["f"].concurrency is not None


def test_a_task_cannot_wait_for_the_slot_that_its_own_job_holds() -> None:
    text = """\
workflow_id: w
version: 1
concurrency: {key: roads, limit: 2}
nodes:
  start: {type: start, next: a}
  a: {type: task, handler: echo, concurrency: {key: KEY, limit: 2}, next: end}
  end: {type: end}
"""
    (problem,) = refused(text.replace("KEY", "roads")).problems
    assert "would wait for itself" in problem.message
    assert load_workflow(text.replace("KEY", "rivers"), "w.yaml").uses_slots
