from typing import Any

import pytest

from core.dag.condition_syntax import ConditionFailed
from core.dag.conditions import parse_condition
from core.dag.templates import TemplateFailed
from tests.unit.core.dag.harness import reading

SCOPE: dict[str, Any] = {
    "inputs": {
        "size": 500,
        "ratio": 0.5,
        "name": "abc",
        "yes": True,
        "no": False,
        "nothing": None,
        "list": [1, "a", None, [2]],
        "map": {"items": 1},
        "}}": 7,
    },
    "nodes": {"a": {"status": "FAILED"}},
}


def holds(text: str, **field: Any) -> bool:
    """Parse and evaluate; `field` is the value of `condition_field`."""
    return parse_condition(text, field=bool(field)).holds(reading(SCOPE), **field)


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.size }} == 500",
        "{{ inputs.size }} == 500.0",
        "{{ inputs.size }} != 501",
        "{{ inputs.size }} >= 500",
        "{{ inputs.size }} <= 500",
        "{{ inputs.size }} > 499.9 and {{ inputs.size }} < 5e2 + 1",
        "{{ inputs.size }} / 1000 == {{ inputs.ratio }}",
        "{{ inputs.size }} // 200 * 200 + {{ inputs.size }} % 200 == {{ inputs.size }}",
        "-{{ inputs.size }} == -500",
        "--5 == 5",
        "2 + 3 * 4 == 14 and (2 + 3) * 4 == 20",
        "10 - 2 - 3 == 5",
        ".5 == {{ inputs.ratio }}",
        "{{ inputs.name }} == 'abc'",
        '{{ inputs.name }} < "abd"',
        "'it\\'s' == \"it's\"",
        "'\\\\' != '/'",
        "{{ inputs.yes }}",
        "not {{ inputs.no }}",
        "not not {{ inputs.yes }}",
        "not {{ inputs.size }} == 1",
        "true and not false or false",
        "false or false or true",
        "{{ inputs.nothing }} is null",
        "{{ inputs.name }} is not null",
        "{{ inputs.nothing }} == null and {{ inputs.size }} != null",
        "{{ inputs.nothing }} is null or {{ inputs.nothing }} > 5",
        "{{ inputs.name }} in ['x', 'abc']",
        "{{ inputs.name }} not in []",
        "'b' in {{ inputs.name }}",
        "'items' in {{ inputs.map }} and 'keys' not in {{ inputs.map }}",
        "1 in {{ inputs.list }} and true not in {{ inputs.list }}",
        "[2] in {{ inputs.list }}",
        "{{ inputs.list }} == [1, 'a', null, [2]]",
        "{{ inputs.list }} != [true, 'a', null, [2]]",
        "{{ inputs.map.items }} == 1",
        "{{ inputs['}}'] }} == 7",
        "{{ {'a': {'b': 1}}['a']['b'] }} == 1",
        "{{ inputs.name | upper }} == 'ABC'",
        "{{ inputs.nope | default(3) }} == 3",
        "{{ nodes.a.status }} == 'FAILED'",
        "{{nodes.a.status}}=='FAILED'and{{inputs.size}}>1",
        "{{ nodes.a.output is defined }} == false",
    ],
)
def test_these_hold(text: str) -> None:
    assert holds(text) is True
    assert holds(f"not ({text})") is False


@pytest.mark.parametrize(
    ("text", "field", "answer"),
    [
        ("< 100", 99, True),
        ("< 100", 100, False),
        (">= 100 and < 500", 100, True),
        (">= 100 and < 500", 500, False),
        ("< 0 or > 10", 11, True),
        ("not < 100", 100, True),
        ("== 'raster'", "raster", True),
        ("in ['a', 'b']", "b", True),
        ("not in ['a', 'b']", "b", False),
        ("is null", None, True),
        ("is not null and > 5", 6, True),
        ("(> 5)", 6, True),
        ("> 5 and {{ inputs.yes }}", 6, True),
        ("> {{ inputs.size }} - 1", 500, True),
    ],
)
def test_a_comparison_without_a_left_side_takes_the_field(text: str, field: Any, answer: bool) -> None:
    assert holds(text, field=field) is answer


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a value is expected, not the end"),
        ("   ", "a value is expected"),
        ("< 100", "< has nothing on its left; only branches with a condition_field"),
        ("is null", "is has nothing on its left"),
        ("{{ inputs.size }} >", "a value is expected, not the end"),
        ("{{ inputs.size }} = 5", "at character 19, '=' is not known here; write == instead of ="),
        ("{{ inputs.size }} === 5", "'=' is not known here; write == instead of ==="),
        ("{{ inputs.size }}==={{ inputs.size }}", "'=' is not known here; write == instead of ==="),
        ("{{ inputs.size }} !== 5", "'=' is not known here; write != instead of !=="),
        ("{{ inputs.yes }} || true", "'|' is not known here; write or instead of ||"),
        ("${{ inputs.yes }}", "at character 1, '$' is not known here; write {{ … }} without the $"),
        ("{{ inputs.size }} > ${size}", "'$' is not known here; write {{ … }} without the $"),
        ("!{{ inputs.yes }}", "at character 1, '!' is not known here; write not instead of !"),
        ("{{ inputs.yes }} ==!{{ inputs.yes }}", "'!' is not known here; write not instead of !"),
        ("{{ inputs.yes }} AND true", "AND is one thing too many; write and instead of AND"),
        ("{{ inputs.size }} && true", "'&' is not known here; write and instead of &&"),
        ("{{ inputs.size }} <> 5", "'<' is not known here; write != instead of <>"),
        ("{{ inputs.size }} => 5", "'=' is not known here; write >= instead of =>"),
        ("{{ inputs.size }} == 5 5", "5 is one thing too many"),
        ("1 < 2 < 3", "comparisons cannot be chained"),
        ("1 is null is null", "comparisons cannot be chained"),
        ("(1 == 1", ") is expected, not the end"),
        ("[1, 2", ", is expected, not the end"),
        ("1 is 2", "null is expected, not 2"),
        ("1 not 2", "in is expected, not 2"),
        ("nodes.a.output.x > 5", "nodes.a.output.x is not known; names stand inside {{ … }}, texts in quotes"),
        ("{{ inputs.name }} == abc", "abc is not known; names stand inside {{ … }}"),
        ("{{ inputs.size }} == None", "None is not known; write null instead of None"),
        ("{{ inputs.size }} == none", "none is not known; write null instead of none"),
        ("{{ inputs.yes }} == True", "True is not known; write true instead of True"),
        ("[False]", "False is not known; write false instead of False"),
        ("{{ inputs.name }} is None", "null is expected, not None"),
        ("'{{ inputs.name }}' == 'abc'", "stands in quotes; it is a value of its own type"),
        ("{{ inputs.name == 'x'", "a {{ has no }}"),
        ("{{ }} == 1", "{{ }}"),
        ("{{ inputs.x( }} == 1", "is not a template"),
        ("{{ inputs.x() }} == 1", "calls something"),
        ("5px > 1", "'5' is not known"),
        ("1e999 > 1", "1e999 is too large a number"),
        ("9" * 2000 + " > 1", "too many digits"),
        ("'unclosed", "is not known here"),
        ("٣ > 1", "is not known here"),
        ("(" * 60 + "true" + ")" * 60, "nested too deeply"),
        ("[" * 60 + "]" * 60 + " == 1", "nested too deeply"),
        ("not " * 300 + "true", "it has 301 operators, more than 200"),
        ("true" + " " * 20_000, "longer than 10000"),
    ],
)
def test_what_is_not_a_condition_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConditionFailed) as caught:
        parse_condition(text)
    assert problem in str(caught.value)
    assert caught.value.detail.code == "CONDITION_ERROR"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ inputs.name }} > 5", '> takes two numbers or two texts, got a text "abc" and a number 5'),
        ("{{ inputs.name }} == 5", '== takes two values of one type, got a text "abc" and a number 5'),
        ("{{ inputs.yes }} == 1", "== takes two values of one type, got a boolean true and a number 1"),
        ("{{ inputs.yes }} != 'true'", "!= takes two values of one type"),
        ("{{ inputs.nothing }} > 5", "> takes two numbers or two texts, got null and a number 5"),
        ("{{ inputs.nothing }} in [1]", "in takes a value and a list, or a text and a text or mapping, got null in"),
        ("5 in {{ inputs.name }}", "in takes a value and a list"),
        ("1 in {{ inputs.nothing }}", "got a number 1 in null"),
        ("{{ inputs.yes }} < true", "< takes two numbers or two texts"),
        ("[1] < [2]", "< takes two numbers or two texts, got a list [1] and a list [2]"),
        ("{{ inputs.size }}", "true or false is needed, got a number 500"),
        ("{{ inputs.name }} and true", "true or false is needed"),
        ("not {{ inputs.nothing }}", "true or false is needed, got null"),
        ("{{ inputs.name }} + 'd' == 'abcd'", "+ takes numbers, got a text"),
        ("-{{ inputs.yes }} == -1", "- takes numbers, got a boolean true"),
        ("{{ inputs.size }} / 0 > 1", "500 / 0: division by zero"),
        ("{{ inputs.size }} // 0 > 1", "500 // 0"),
        ("{{ inputs.size }} % 0 > 1", "500 % 0"),
        ("1.5 * 1e308 * 10 > 1", "the result of * is too large"),
        ("9" * 900 + "*" + "9" * 900 + " > 1", "the result of * is too large"),
        ("9" * 900 + " / 3 > 1", "too large"),
    ],
)
def test_types_that_do_not_fit_are_errors_that_name_condition_and_values(text: str, problem: str) -> None:
    condition = parse_condition(text)
    with pytest.raises(ConditionFailed) as caught:
        condition.holds(reading(SCOPE))
    assert problem in str(caught.value)
    assert str(caught.value).startswith(text[:100])
    for operand in condition.operands:
        assert f"{operand.text} = " in str(caught.value)


def test_an_operand_without_a_value_names_its_path() -> None:
    with pytest.raises(TemplateFailed) as caught:
        holds("{{ nodes.a.output.size }} > 5")
    assert caught.value.detail.field == "nodes.a.output.size"
    assert "{{ nodes.a.output.size }} > 5 has no answer" in str(caught.value)
    assert "node a is FAILED" in str(caught.value)


def test_the_field_is_named_when_it_does_not_fit() -> None:
    with pytest.raises(ConditionFailed, match=r'condition_field = "x"'):
        holds("< 100", field="x")


def test_what_decides_nothing_any_more_is_not_read() -> None:
    assert holds("true or {{ inputs.nope }} > 5")
    assert not holds("false and {{ inputs.nope }} > 5")


def test_values_are_data_and_never_part_of_the_condition() -> None:
    condition = parse_condition("{{ inputs.x }} == 'a'")
    assert not condition.holds(reading({"inputs": {"x": "a' or 'a' == 'a"}}))
    assert not condition.holds(reading({"inputs": {"x": "{{ inputs.y }}", "y": "a"}}))


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ConditionFailed) as caught:
        parse_condition("{{ inputs.x }} > 5").holds(reading({"inputs": {"x": "y" * 100_000}}))
    assert len(str(caught.value)) < 1000
