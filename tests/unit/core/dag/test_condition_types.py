"""What lint says of conditions whose kinds are known before any run; what a run would do decides what is right."""

from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from core.dag.branch_cover import uncovered
from core.dag.condition_syntax import ConditionFailed
from core.dag.condition_types import doubts
from core.dag.conditions import parse_condition
from core.dag.input_spec import InputSpec
from core.dag.lint import lint
from core.dag.nodes import ConditionalNode
from core.dag.problems import Report
from core.dag.templates import Expression, compile_text
from core.dag.yaml_source import Source
from tests.unit.core.dag.harness import reading, task, workflow_of

INPUTS = {
    "s": InputSpec(type="string", required=True),
    "n": InputSpec(type="integer", required=True),
    "b": InputSpec(type="boolean", required=True),
    "l": InputSpec(type="array", required=True),
    "o": InputSpec(type="object", required=True),
    "may": InputSpec(type="integer"),
    "any": InputSpec(),
    "mixed": InputSpec(type=("string", "integer"), required=True),
    "e": InputSpec(type="string", enum=("auto", "tiled"), required=True),
    "c": InputSpec(const=3, required=True),
}
S, N, B, MAY = "{{ inputs.s }}", "{{ inputs.n }}", "{{ inputs.b }}", "{{ inputs.may }}"
X = "{{ nodes.a.output.x }}"


def told(condition: str, field: str | None = None) -> list[str]:
    """Return the doubts about a condition."""
    program = None if field is None else compile_text(field)
    assert program is None or isinstance(program, Expression)
    return list(doubts(parse_condition(condition, field=field is not None).root, INPUTS, program))


@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        (f"{S} == 'x' or 'y'", "'y' is a text; write {{ inputs.s }} in ['x', 'y']"),
        (f"{S} == 'x' or 'y' or 'z'", "write {{ inputs.s }} in ['x', 'y', 'z']"),
        (f"{S} != 'x' and 'y'", "write {{ inputs.s }} not in ['x', 'y']"),
        (f"{N} > 1 and 5", "`and` takes true or false, and 5 is a number; write {{ inputs.n }} > 5"),
        (f"'x' or {B}", "'x' is a text; write a whole comparison"),
        ("not 'x'", "`not` takes true or false, and 'x' is a text"),
        ("not null", "`not` takes true or false, and null is null"),
        (f"not {S}", "compare it, as in {{ inputs.s }} != ''"),
        (f"{B} and {N}", "{{ inputs.n }} is a number; compare it, as in {{ inputs.n }} > 0"),
        (f"{B} and ({S} or {B})", "`or` takes true or false"),
        (f"{B} and {MAY}", "{{ inputs.may }} is a number or null; compare it"),
        (S, "it must be true or false, and {{ inputs.s }} is a text; compare it, as in {{ inputs.s }} != ''"),
        ("{{ inputs.l }}", "is a list; compare it, as in {{ inputs.l }} is not null"),
        ("{{ nodes.a.status }}", "{{ nodes.a.status }} is a text"),
        (f"{N} + 1", "{{ inputs.n }} + 1 is a number"),
        (f"{N} == 'x'", "{{ inputs.n }} is a number and 'x' is a text; write values of one type on both sides"),
        (f"{N} == '7'", "`==` never fits, since {{ inputs.n }} is a number and '7' is a text; write 7"),
        (f"{S} == 7", "write '7'"),
        (f"7 == {S}", "write '7'"),
        (f"{B} != 'true'", "{{ inputs.b }} is a boolean and 'true' is a text; write true"),
        (f"{MAY} == 'x'", "{{ inputs.may }} is a number or null"),
        ("{{ inputs.mixed }} == true", "{{ inputs.mixed }} is a number or a text and true is a boolean"),
        (f"{S} < 7", "`<` never fits"),
        (f"{N} >= null", "`>=` never fits"),
        (f"{B} > false", "`>` never fits"),
        ("{{ job.priority }} == 'high'", "{{ job.priority }} is a number"),
        (f"{S} in [1, 2]", "{{ inputs.s }} is a text and no item of [1, 2] is; write ['1', '2']"),
        (f"{N} not in ['1', '2']", "write [1, 2]"),
        (f"{N} in ['a']", "write items of that type"),
        (f"{N} in {S}", "`in` takes a value and a list, or a text and a text or mapping"),
        (f"{S} in {N}", "`in` takes a value and a list"),
        (f"{S} * 2 > 1", "`*` takes numbers, and {{ inputs.s }} is a text"),
        (f"-{S} == 1", "`-` takes numbers"),
        (
            "{{ inputs.e }} == 'tild'",
            '{{ inputs.e }} is never \'tild\'; its values are "auto", "tiled"; did you mean til',
        ),
        ("'x' != {{ inputs.e }}", "{{ inputs.e }} is never 'x'"),
        ("{{ inputs.e }} in ['auto', 'direct']", "{{ inputs.e }} is never 'direct'"),
        ("{{ inputs.c }} == 4", "{{ inputs.c }} is never 4"),
        ("{{ inputs.c }} == '3'", "write 3"),
        ("{{ inputs.e }} == 'AUTO'", "did you mean auto?"),
        (
            "{{ nodes.a.status }} == 'completed'",
            "{{ nodes.a.status }} is never 'completed'; its values are \"PENDING\"",
        ),
        ("'Canceled' != {{ nodes.a.status }}", "; did you mean CANCELLED?"),
        ("{{ nodes.a.status }} in ['FAILED', 'SUCCESS']", "{{ nodes.a.status }} is never 'SUCCESS'"),
    ],
)
def test_a_condition_that_cannot_do_what_it_says_is_told_with_what_to_write(condition: str, instead: str) -> None:
    (doubt,) = told(condition)
    assert instead in doubt


@pytest.mark.parametrize(
    ("condition", "field", "instead"),
    [
        ("100", N, "it must be true or false, and 100 is a number; write == 100"),
        ("== 'a' or 'b'", S, "write in ['a', 'b']"),
        ("== 1", S, "condition_field is a text and 1 is a number; write '1'"),
        ("in [1, 2]", S, "condition_field is a text and no item of [1, 2] is"),
        ("== 'c'", "{{ inputs.e }}", "condition_field is never 'c'"),
        ("== 'done'", "{{ nodes.a.status }}", "condition_field is never 'done'"),
    ],
)
def test_comparisons_without_a_left_side_are_told_in_their_own_spelling(
    condition: str, field: str, instead: str
) -> None:
    (doubt,) = told(condition, field)
    assert instead in doubt


def test_long_conditions_are_told_in_short() -> None:
    (doubt,) = told(f"{S} == '{'a' * 5000}' or '{'b' * 4000}'")
    assert len(doubt) < 500
    assert len(told(" or ".join(f"{S} == {number}" for number in range(99)))) == 99


@pytest.mark.parametrize(
    "condition",
    [
        *(f"{S} == 'x' or {S} == 'y'", f"{N} > 1 and not {B}", f"not not {B}", "true", B, f"{B} or false"),
        *(f"{MAY} is null or {MAY} > 5", f"{MAY} == null", f"{MAY} > 5", f"{N} == 1.5", f"{N} == null"),
        *("{{ inputs.any }}", "{{ inputs.any }} == 1 or {{ inputs.any }} == 'x'", "{{ inputs.mixed }} == 'x'"),
        *("{{ nodes.a.output.x }}", "{{ nodes.a.output.x }} == 1 and {{ nodes.a.output.x }} == 'x'"),
        *("{{ inputs.s | length }} > 3", "{{ inputs.n | string }} == '3'", "{{ inputs.may | default(false) }}"),
        *(f"{S} in ['a', 1]", f"{N} in {{{{ inputs.l }}}}", f"{S} in {S}", f"{S} in {{{{ inputs.o }}}}", f"{S} in []"),
        *("{{ inputs.l }} == []", "{{ inputs.o.deep }} == 1", "{{ inputs.e }} == 'auto'", "{{ inputs.c }} == 3.0"),
        *(
            "{{ nodes.a.status }} in ['RUNNING', 'COMPLETED']",
            "{{ nodes.a.output.status }} == 'x'",
            "{{ job.correlation_id }} == 'x'",
        ),
    ],
)
def test_what_may_be_right_for_some_values_is_not_told(condition: str) -> None:
    assert told(condition) == []


SIDES = [S, N, B, MAY, "'x'", "'7'", "7", "true", "null", "['x']", "[7]"]


@pytest.mark.parametrize("sign", ["==", "!=", "<", ">=", "in", "not in", "+"])
def test_a_doubt_means_that_no_values_have_an_answer_or_that_nothing_is_ever_in_the_list(sign: str) -> None:
    useless: set[bool] = {sign == "not in"} if sign.endswith("in") else set()
    for left, right in product(SIDES, SIDES):
        condition = f"{left} {sign} {right}{' > 1' if sign == '+' else ''}"
        if told(condition):
            assert _answers(condition) <= useless, condition


def _answers(condition: str) -> set[bool]:
    """Return the answers for all values; those for an input that was not given are no matter of kinds."""
    parsed, found = parse_condition(condition), set()
    for s, n, b, may in product(("", "x", "7"), (0, 1, 7), (True, False), (1, 7)):
        with suppress(ConditionFailed):
            found.add(parsed.holds(reading({"inputs": {"s": s, "n": n, "b": b, "may": may}})))
    return found


def conditional(*conditions: str, field: str | None = None, default: bool = False) -> ConditionalNode:
    """Return a conditional with these branches."""
    branches: list[dict[str, Any]] = [{"condition": one, "next": ("x",)} for one in conditions]
    branches += [{"default": True, "next": ("x",)}] if default else []
    said = {} if field is None else {"condition_field": field}
    return ConditionalNode.model_validate({"type": "conditional", "branches": tuple(branches), **said}, strict=False)


@pytest.mark.parametrize(
    ("node", "example"),
    [
        (conditional("== 'a'", "== 'b'", field=S), {S: "a or another"}),
        (conditional("== 'auto'", field="{{ inputs.e }}"), {"{{ inputs.e }}": "tiled"}),
        (conditional("== true", field=B), {B: False}),
        (conditional("< 100", "> 100", field=N), {N: 100}),
        (conditional("< 100", ">= 102", field=N), {N: 100}),
        (conditional("< 100", ">= 100 and < 500", field="{{ nodes.a.output.x }}"), {"{{ nodes.a.output.x }}": 500}),
        (conditional("== 1", field=MAY), {MAY: 0}),
        (conditional(f"{B}"), {B: False}),
        (conditional(f"{B} and {N} > 1", f"not {B}"), {B: True, N: 1}),
        (conditional("> 5", f"{N} < 5", "{{inputs.n}} < 3", field=N), {N: 5}),
        (conditional("== 0", "== 1", field=X), {X: 2}),
        (conditional("< 0", "> 0", field=X), {X: 0}),
        (conditional("< 0.5", "> 0.5", field=X), {X: 0.5}),
        (
            conditional("== 'COMPLETED'", "== 'FAILED'", field="{{ nodes.a.status }}"),
            {"{{ nodes.a.status }}": "CANCELLED"},
        ),
        (conditional("false"), {}),
    ],
)
def test_a_value_without_a_branch_is_found(node: ConditionalNode, example: dict[str, Any]) -> None:
    assert uncovered(node, INPUTS) == example


@pytest.mark.parametrize(
    "node",
    [
        conditional("== 'a'", field=S, default=True),
        conditional(f"< {10**400}", f">= {10**400}", field=N),
        conditional(f"{N}{' + 1' * 199} > 1", f"{N}{' + 1' * 199} <= 1"),
        conditional("== 'a'", "!= 'a'", field=S),
        conditional("== 'auto'", "== 'tiled'", field="{{ inputs.e }}"),
        conditional("in ['tiled', 'auto']", field="{{ inputs.e }}"),
        conditional("== true", "== false", field=B),
        conditional("< 100", ">= 100", field=N),
        conditional("< 100", ">= 100", field="{{ nodes.a.output.x }}"),
        conditional("== true", "== false", field="{{ nodes.a.output.x }}"),
        conditional(f"{B}", f"not {B}"),
        conditional(f"{B} and {N} > 1", f"not {B}", f"{N} <= 1"),
        conditional("== 1", "true", field=MAY),
        conditional("<= 100", "> 100", field=MAY),
        conditional(f"{N} > 5", "{{inputs.n}} <= 5"),
        conditional("> 5", f"{N} <= 5", field=N),
        conditional("> 5", f"{N} <= 5", field="{{inputs.n}}"),
        conditional(f"{N} > 5", "{{ inputs.n + 1 }} <= 6"),
        conditional("{{ inputs.l | length }} == 0", "{{ inputs.l | length }} > 0"),
        conditional("== 0", "> 0", field=X),
        conditional("== 0", "== 1", ">= 2", field=X),
        conditional("<= 3", ">= 4", field=X),
        conditional("in [0, 1, 2, 3, 4, 5]", "in [6, 7, 8, 9, 10]", field="{{ job.priority }}"),
        conditional("== 'COMPLETED'", "in ['FAILED', 'SKIPPED', 'CANCELLED']", field="{{ nodes.a.status }}"),
    ],
)
def test_branches_for_every_value_need_no_default(node: ConditionalNode) -> None:
    assert uncovered(node, INPUTS) is None


def test_advice_names_the_place_the_condition_and_what_to_write() -> None:
    route = {
        "type": "conditional",
        "condition_field": "{{ inputs.k }}",
        "branches": [{"condition": "== 'a'", "next": ["x"]}, {"condition": "== 'b' or 'c'", "next": ["x"]}],
    }
    nodes = {
        "start": {"type": "start", "next": ["a", "route"]},
        "a": task(when="{{ inputs.k }}"),
        "route": route,
        "x": task(),
    }
    report = Report("w.yaml", Source({}))
    lint(workflow_of(nodes, inputs={"k": {"type": "string", "enum": ["a", "b", "c"], "required": True}}), report)
    assert [(one.node, one.message) for one in report.problems] == [
        (
            "a",
            (
                "nodes.a.when is {{ inputs.k }}: it must be true or false, and {{ inputs.k }} is a text; "
                "compare it, as in {{ inputs.k }} != ''"
            ),
        ),
        (
            "route",
            (
                "nodes.route.branches[1].condition is == 'b' or 'c': `or` takes true or false, and 'c' is a text; "
                "write in ['b', 'c']"
            ),
        ),
    ]
    route["branches"] = [{"condition": "== 'a'", "next": ["x"]}, {"condition": "== 'b'", "next": ["x"]}]
    report = Report("w.yaml", Source({}))
    lint(workflow_of({**nodes, "a": task()}, inputs={"k": {"type": "string"}}), report)
    (problem,) = report.problems
    assert problem.message == (
        'nodes.route.branches has no default, and when no branch holds, as for {{ inputs.k }} = "a or another", '
        "the node fails with NO_BRANCH; add a branch with default: true"
    )
