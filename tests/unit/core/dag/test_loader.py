import pytest

from core.dag.definition import Workflow
from core.dag.loader import load_workflow
from core.dag.nodes import JoinRule, TaskNode
from core.dag.problems import DefinitionError
from core.errors import WorkflowError

HEAD = "workflow_id: demo\nversion: 1\n"
GOOD = (
    HEAD
    + """\
inputs:
  message: {type: string, default: hello}
outputs:
  said: "{{ nodes.say.output }}"
nodes:
  start: {type: start, next: say}
  say:
    handler: echo
    params: {message: "{{ inputs.message }}"}
    next: end
  end: {type: end}
"""
)
RING = "  x: {handler: echo, depends_on: y}\n  y: {handler: echo, depends_on: x}\n"


def refused(text: str) -> DefinitionError:
    with pytest.raises(WorkflowError) as caught:
        load_workflow(text, "demo.yaml")
    assert isinstance(caught.value, DefinitionError)
    return caught.value


def test_a_good_file_loads_and_a_handler_implies_a_task() -> None:
    workflow = load_workflow(GOOD, "demo.yaml")
    assert isinstance(workflow.nodes["say"], TaskNode)
    assert workflow.graph.order == ("start", "say", "end")
    assert (workflow.priority, workflow.on_failure, workflow.deadline_seconds) == (5, "drain", None)


@pytest.mark.parametrize(
    ("old", "new", "line", "node", "words"),
    [
        ("    next: end\n", "    nxet: end\n    next: end\n", 12, "say", "nxet is not a word"),
        ("    next: end\n", "    next: nowhere\n", 12, "say", "'nowhere', which is not a node"),
        ("    next: end\n", "    depends_on: [ghost]\n    next: end\n", 12, "say", "'ghost', which is not a node"),
        ("    next: end\n", "    depends_on: {any_of: [start], all_of: [start]}\n", 12, "say", "exactly"),
        ("    next: end\n", "    depends_on: {}\n    next: end\n", 12, "say", "exactly one"),
        ("    next: end\n", "    timeout_seconds: '5'\n    next: end\n", 12, "say", "timeout_seconds"),
        ("    next: end\n", "    timeout_seconds: 0\n    next: end\n", 12, "say", "timeout_seconds"),
        ("    next: end\n", "    queue_timeout_seconds: -1\n    next: end\n", 12, "say", "queue_timeout_seconds"),
        ("    next: end\n", "    best_effort: 1\n    next: end\n", 12, "say", "best_effort"),
        ("    next: end\n", "    queue: nowhere\n    next: end\n", 12, "say", "queue 'nowhere' is unknown"),
        ("    next: end\n", "    when: x\n    next: end\n", 12, "say", "x is not known; names stand inside"),
        ("    next: end\n", "    retry: {max_retries: -1}\n    next: end\n", 12, "say", "retry.max_retries"),
        ("    next: end\n", "    retry: {backoff: wild}\n    next: end\n", 12, "say", "retry.backoff"),
        ("    next: end\n", "    retry: {backoff: schedule}\n    next: end\n", 12, "say", "need each other"),
        ("    next: end\n", "    retry: {delays_seconds: [1]}\n    next: end\n", 12, "say", "need each other"),
        ("    next: end\n", "    retry: {max_attempts: 1, max_retries: 1}\n    next: end\n", 12, "say", "the same"),
        ("    next: end\n", "    retry: {jitter: 2}\n    next: end\n", 12, "say", "retry.jitter"),
        ("handler: echo", "handler: ehco", 10, "say", "handler 'ehco' is unknown"),
        ("    handler: echo\n", "    type: task\n", 9, "say", "handler is missing"),
        ("    handler: echo\n", "    type: fan_in\n", 9, "say", "exactly one fan_out among its direct sources"),
        ("    handler: echo\n", "    type: banana\n", 10, "say", "'banana' is not a node type"),
        ("    handler: echo\n    params: {", "    params: {", 9, "say", "neither a type nor a handler"),
        ("inputs.message }}", "inputs.mesage }}", 11, "say", "names no input; known are message"),
        ("inputs.message }}", "nodes.end.output.x }}", 11, "say", "node end is not upstream"),
        ("inputs.message }}", "nodes.say.output.x }}", 11, "say", "node say is not upstream"),
        ("inputs.message }}", "nodes.ghost.output.x }}", 11, "say", "'ghost' is not a node"),
        ("inputs.message }}", "nodes.start.result }}", 11, "say", "must say nodes.<id>.output"),
        ("inputs.message }}", "nodes[inputs.message].output }}", 11, "say", "must say nodes.<id>.output"),
        ("inputs.message }}", "env.SECRET }}", 11, "say", "'env' is not known"),
        ("inputs.message }}", "job.secret }}", 11, "say", "job.secret is not known"),
        ("inputs.message }}", "inputs.message", 11, "say", "is not a template"),
        ("inputs.message }}", "inputs.message | attr('x') }}", 11, "say", "No filter named 'attr'"),
        ("inputs.message }}", "inputs.message.upper() }}", 11, "say", "calls something"),
        ("inputs.message }}", "inputs.message }}{% raw %}x{% endraw %}{% if 1 %}{% endif %}", 11, "say", "statement"),
        ("nodes.say.output }}", "nodes.ghost.output }}", 6, None, "'ghost' is not a node"),
        ("version: 1", "version: one", 2, None, "version"),
        ("version: 1", "version: 1.5", 2, None, "version"),
        ("version: 1\n", "", 1, None, "version is missing"),
        ("version: 1", "version: 1\npriority: urgent", 3, None, "priority"),
        ("version: 1", "version: 1\npriority: 11", 3, None, "priority"),
        ("version: 1", "version: 1\ncolour: red", 3, None, "colour is not a word"),
        ("version: 1", "version: 1\non_failure: explode", 3, None, "on_failure"),
        ("version: 1", "version: 1\ndeadline_seconds: 0", 3, None, "deadline_seconds"),
        ("version: 1", "version: 1\ncurrent: yes", 3, None, "current"),
        ("version: 1", "version: 1\ndeduplicate: always", 3, None, "deduplicate"),
        ("version: 1", "version: 1\ndefaults: {retries: 1}", 3, None, "defaults.retries is not a word"),
        ("workflow_id: demo", "workflow_id: a__b", 1, None, "single underscores"),
        ("workflow_id: demo", f"workflow_id: {'a' * 49}", 1, None, "at most 48"),
        ("{type: string, default: hello}", "{type: string, default: 5}", 4, None, "must be string, got integer"),
        ("{type: string, default: hello}", "{type: text}", 4, None, "type 'text' is not one of"),
        ("{type: string, default: hello}", "{type: string, pattern: '['}", 4, None, "not a regular expression"),
        ("{type: string, default: hello}", "{pattern: '(?=a)b'}", 4, None, "without look-around"),
        ("{type: string, default: hello}", "{\n    pattern: '(a)\\1'}", 5, None, "inputs.message.pattern: "),
        ("{type: string, default: hello}", "{pattern: '(a{200}){51}'}", 4, None, "size of 10200, counts multiplied"),
        ("{type: string, default: hello}", "{\n    pattern: '\\w{5000}'}", 5, None, "say lengths by max_length"),
        ("{type: string, default: hello}", "{items: {pattern: '(?=a)b'}}", 4, None, "inputs.message.items.pattern: "),
        ("{type: string, default: hello}", "{type: string, format: uri}", 4, None, "format is not a word"),
        ("{type: string, default: hello}", "{default: a, required: true}", 4, None, "cannot have a default"),
        ("  end: {type: end}\n", "  end: {type: end}\n  begin: {type: start}\n", 7, None, "exactly one start"),
        ("  start: {type: start, next: say}\n", "", 7, None, "exactly one start"),
        ("  end: {type: end}\n", "  end: {handler: echo}\n", 7, None, "at least one end"),
        ("  end: {type: end}\n", "  end: {type: end, next: say}\n", 9, "say", "cannot follow the end node"),
        ("  end: {type: end}\n", "  end: {type: end}\n  lost: {handler: echo}\n", 14, "lost", "cannot be reached"),
        ("  end: {type: end}\n", f"  end: {{type: end}}\n{RING}", 14, "x", "cycle"),
        ("    next: end\n", "    next: [end, start]\n", 8, "start", "a start node cannot follow"),
        ("  end: {type: end}\n", "  2nd: {type: end}\n  end: {type: end}\n", 13, "2nd", "begin with a letter"),
        ("  end: {type: end}\n", "  end: end\n", 13, "end", ""),
    ],
)  # fmt: skip
def test_a_mistake_is_an_error_with_file_line_and_node(
    old: str, new: str, line: int, node: str | None, words: str
) -> None:
    assert old in GOOD
    error = refused(GOOD.replace(old, new, 1))
    assert words in error.detail.message
    assert (error.file, error.line, error.node) == ("demo.yaml", line, node)
    assert error.detail.message.startswith(f"demo.yaml:{line}: ")


def test_a_handlers_own_params_are_checked_by_name() -> None:
    text = GOOD.replace("handler: echo", "handler: sleep")
    assert "handler sleep has no param 'message'; it has seconds" in str(refused(text))
    assert "needs the param 'seconds'" in str(refused(text))


def test_all_mistakes_of_a_file_are_reported_in_the_order_of_its_lines() -> None:
    text = GOOD.replace("handler: echo", "handler: ehco").replace("next: end", "next: nowhere")
    error = refused(text)
    assert [problem.line for problem in error.problems] == [10, 12]


@pytest.mark.parametrize(
    "text", ["- a\n", "just text\n", "5\n", "nodes: 5\n", HEAD + "nodes: []\n", HEAD + "nodes: {}\n"]
)
def test_a_file_of_another_shape_is_an_error(text: str) -> None:
    assert refused(text).file == "demo.yaml"


def test_a_broken_yaml_file_names_its_line() -> None:
    error = refused(GOOD + "nodes: {}\n")
    assert (error.line, error.node) == (14, None)
    assert "'nodes' is there twice" in error.detail.message


@pytest.mark.parametrize(
    ("spelling", "rule", "sources"),
    [
        ("[a, b]", JoinRule.ALL_OF, ("a", "b")),
        ("a", JoinRule.ALL_OF, ("a",)),
        ("{all_of: [a, b]}", JoinRule.ALL_OF, ("a", "b")),
        ("{any_of: [a, b]}", JoinRule.ANY_OF, ("a", "b")),
        ("{all_done: b}", JoinRule.ALL_DONE, ("b",)),
    ],
)
def test_every_spelling_of_depends_on_means_one_rule(spelling: str, rule: JoinRule, sources: tuple[str, ...]) -> None:
    text = f"""{HEAD}nodes:
  start: {{type: start, next: [a, b]}}
  a: {{handler: echo}}
  b: {{handler: echo}}
  c: {{handler: echo, depends_on: {spelling}, next: end}}
  end: {{type: end}}
"""
    join = load_workflow(text, "demo.yaml").nodes["c"].depends_on
    assert join is not None
    assert (join.rule, join.sources) == (rule, sources)


@pytest.mark.parametrize(
    ("name", "number"), [("interactive", 8), ("routine", 5), ("backfill", 1), ("0", 0), ("10", 10)]
)
def test_priorities_have_names(name: str, number: int) -> None:
    assert load_workflow(GOOD.replace("version: 1", f"version: 1\npriority: {name}"), "demo.yaml").priority == number


def test_the_spellings_of_the_specification_mean_the_same() -> None:
    canonical = GOOD.replace("    next: end\n", "    retry: {max_retries: 5}\n    next: end\n")
    other = (
        GOOD.replace("    next: end\n", "    type: task\n    retry: {max_attempts: 5}\n    next: [end]\n")
        .replace("next: say", "next: [say]")
        .replace("version: 1", 'version: "1.0"')
    )
    assert load_workflow(other, "a").definition_hash == load_workflow(canonical, "b").definition_hash


def test_json_schema_words_may_be_spelt_as_json_schema_spells_them() -> None:
    text = GOOD.replace("default: hello}", "default: hello, maxLength: 5, minLength: 1}")
    spec = load_workflow(text, "demo.yaml").inputs["message"]
    assert (spec.min_length, spec.max_length) == (1, 5)


def test_json_schema_words_may_be_spelt_so_inside_too() -> None:
    more = "  l: {type: array, items: {type: object, additionalProperties: false, properties: {aB: {minLength: 1}}}}\n"
    inside = load_workflow(GOOD.replace("outputs:\n", f"{more}outputs:\n"), "demo.yaml").inputs["l"].items
    assert inside is not None
    assert (inside.additional_properties, inside.properties["aB"].min_length) == (False, 1)


def test_max_attempts_counts_retries_wherever_retries_stand() -> None:
    text = GOOD.replace("nodes:\n", "defaults: {retry: {max_attempts: 4}}\nnodes:\n", 1)
    assert load_workflow(text, "demo.yaml").retry_policies["say"].max_retries == 4


def test_a_definition_survives_its_json_form() -> None:
    workflow = load_workflow(GOOD, "demo.yaml")
    again = Workflow.from_json(workflow.to_json())
    assert again == workflow
    assert again.definition_hash == workflow.definition_hash
    assert again.to_json() == workflow.to_json()


def test_the_hash_sees_content_and_not_layout() -> None:
    workflow = load_workflow(GOOD, "demo.yaml")
    assert load_workflow("# note\n" + GOOD, "other.yaml").definition_hash == workflow.definition_hash
    changed = GOOD.replace("default: hello", "default: hallo")
    assert load_workflow(changed, "demo.yaml").definition_hash != workflow.definition_hash


def test_templates_in_unusual_places_are_read_too() -> None:
    text = GOOD.replace('{message: "{{ inputs.message }}"}', '{list: [1, {deep: "{{ inputs.nope }}"}]}')
    assert "inputs.nope names no input" in str(refused(text))


MANY_MISTAKES = """workflow_id: 9x
version: one
priority: 99
on_failure: explode
defaults: {retry: {jitter: 7}, timeout_seconds: -1}
inputs:
  n: {type: integer, minimum: low, default: abc}
foo: 1
nodes:
  start: {type: start, next: [a, nowhere]}
  a: {handler: ehco, next: b, timeout_seconds: -3, retry: {delays_seconds: [x, y], backoff: weird}}
  b: {type: conditional, condition: "1 +", on_true: c__d}
  c__d: {handler: echo, best_effort: maybe, colour: red, next: f}
  f: {type: fan_in, aggregation: avg, next: end}
  g:
    handler: echo
    params: {v: "{{ nodes.ghost.output }}"}
  end: {type: end}
"""


def test_a_value_of_the_wrong_type_hides_no_other_mistake() -> None:
    problems = refused(MANY_MISTAKES).problems
    assert [problem.line for problem in problems if problem.node is None] == [1, 2, 3, 4, 5, 5, 7, 7, 8]
    found = {
        node: [one.message for one in problems if one.node == node] for node in ("start", "a", "b", "c__d", "f", "g")
    }
    assert {node: len(messages) for node, messages in found.items()} == {
        "start": 1, "a": 5, "b": 1, "c__d": 3, "f": 2, "g": 1
    }  # fmt: skip
    assert "'ghost' is not a node" in found["g"][0]


@pytest.mark.parametrize(
    "left_out", ["retry: {backoff: fixed, jitter: 7}", "tolerate: {count: 1, percent: 1}", "batch_size: 0"]
)
def test_what_is_left_out_for_its_own_mistake_makes_no_others(left_out: str) -> None:
    many = f"{{type: fan_out, source: '{{{{ [] }}}}', task: {{handler: echo}}, next: end, {left_out}}}"
    if left_out.startswith("retry"):
        many = f"{{handler: echo, next: end, {left_out}}}"
    (problem,) = refused(
        f"workflow_id: w\nversion: 1\nnodes:\n  start: {{type: start, next: a}}\n  a: {many}\n  end: {{type: end}}\n"
    ).problems
    assert (problem.line, problem.node) == (5, "a")
