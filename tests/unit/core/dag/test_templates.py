import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dag.json_values import as_stored
from core.dag.template_checks import MAX_NESTING
from core.dag.templates import TemplateFailed, compile_text, compile_value, lookups_of, render
from tests.unit.core.dag.laws import LAWS

SCOPE: dict[str, Any] = {
    "inputs": {
        "n": 5,
        "text": "5",
        "flag": True,
        "none": None,
        "float": 1.5,
        "list": [1, 2, 3],
        "map": {"items": [7], "keys": 1, "get": "g", "__class__": "c", "a b": 2, "pop": {"values": 3}},
        "evil": "{{ inputs.n }}{% if 1 %}",
    },
    "nodes": {"done": {"status": "COMPLETED", "output": {"x": {"y": 1}}}, "skipped": {"status": "SKIPPED"}},
    "job": {"job_id": "job1"},
}


def value_of(text: str) -> Any:
    return render(compile_value(text), SCOPE, "params.x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ inputs.n }}", 5),
        ("  {{ inputs.n }}  ", 5),
        ("{{- inputs.n -}}", 5),
        ("{{ inputs.text }}", "5"),
        ("{{ inputs.flag }}", True),
        ("{{ inputs.none }}", None),
        ("{{ inputs.float }}", 1.5),
        ("{{ inputs.list }}", [1, 2, 3]),
        ("{{ inputs['list'][1] }}", 2),
        ("{{ inputs.list[-1] }}", 3),
        ("{{ inputs.map['a b'] }}", 2),
        ("{{ inputs.n + 1 }}", 6),
        ("{{ inputs.n > 3 and not inputs.none }}", True),
        ("{{ 'big' if inputs.n > 3 else 'small' }}", "big"),
        ("{{ [inputs.n, {'k': inputs.text}] }}", [5, {"k": "5"}]),
        ("{{ 2 in inputs.list }}", True),
        ("{{ inputs.text | int + 1 }}", 6),
        ("{{ inputs.list | sum }}", 6),
        ("{{ inputs.list | first }}", 1),
        ("{{ [] | first | default('none') }}", "none"),
        ("{{ inputs.list[5:] | last | default(inputs.n) }}", 5),
        ("{{ ([] | min) is defined }}", False),
        ("{{ inputs.list | join('-') }}", "1-2-3"),
        ("{{ inputs.map | keys | length }}", 6),
        ("n is {{ inputs.n }}!", "n is 5!"),
        ("{{ inputs.n }}{{ inputs.text }}", "55"),
        ("{{ inputs.flag }} {{ inputs.none }} {{ inputs.list }}", "true null [1,2,3]"),
        ("{{ inputs.n ~ inputs.flag ~ 'x' }}", "5truex"),
        ("no template } here {", "no template } here {"),
        ("{# note #}text", "text"),
        ("", ""),
    ],
)
def test_a_lone_expression_keeps_its_type_and_text_is_text(text: str, expected: Any) -> None:
    result = value_of(text)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("key", "expected"), [("items", [7]), ("keys", 1), ("get", "g"), ("__class__", "c"), ("pop.values", 3)]
)
def test_keys_that_python_gives_a_meaning_are_only_keys(key: str, expected: Any) -> None:
    assert value_of(f"{{{{ inputs.map.{key} }}}}") == expected


def test_data_is_never_rendered_again() -> None:
    assert value_of("{{ inputs.evil }}") == SCOPE["inputs"]["evil"]
    assert value_of("<{{ inputs.evil }}>") == f"<{SCOPE['inputs']['evil']}>"


@LAWS
@given(st.text() | st.sampled_from(["{{ 7 * 7 }}", "{% for x in y %}", "{{", "}}", "{# #}", "{{ inputs }}"]))
def test_whatever_an_input_holds_arrives_as_it_is(text: str) -> None:
    scope = {"inputs": {"x": text}}
    assert compile_text("{{ inputs.x }}").evaluate(scope) == text
    assert compile_text("a{{ inputs.x }}b").evaluate(scope) == f"a{text}b"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{{ inputs.nope }}", "inputs.nope"),
        ("{{ inputs.nope.deep.er }}", "inputs.nope.deep.er"),
        ("{{ inputs.list[3] }}", "inputs.list[3]"),
        ("{{ inputs.list.length }}", "inputs.list.length"),
        ("{{ inputs.text.upper }}", "inputs.text.upper"),
        ("{{ inputs.text.__class__.__mro__ }}", "inputs.text.__class__.__mro__"),
        ("{{ inputs.none.x }}", "inputs.none.x"),
        ("{{ nodes.done.output.z }}", "nodes.done.output.z"),
        ("{{ nodes.done.output.x.y.z }}", "nodes.done.output.x.y.z"),
        ("{{ nodes.skipped.output }}", "nodes.skipped.output"),
        ("{{ nodes.skipped.output.a.b }}", "nodes.skipped.output.a.b"),
        ("text {{ nodes.skipped.output.a }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a or 1 }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a == 1 }}", "nodes.skipped.output.a"),
        ("{{ 1 in nodes.skipped.output.a }}", "nodes.skipped.output.a"),
        ("{{ [1, nodes.skipped.output.a] }}", "nodes.skipped.output.a"),
        ("{{ {'k': [nodes.skipped.output.a]} }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a | string }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a | length }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a | join }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a is none }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a is mapping }}", "nodes.skipped.output.a"),
        ("{{ 1 if nodes.skipped.output.a else 2 }}", "nodes.skipped.output.a"),
        ("{{ nodes.skipped.output.a | default(inputs.nope) }}", "inputs.nope"),
        ("{{ nodes.skipped.output.a | default(1) + inputs.nope }}", "inputs.nope"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_its_path(text: str, path: str) -> None:
    with pytest.raises(TemplateFailed) as caught:
        value_of(text)
    assert caught.value.detail.field == path
    assert f"{path} is not there" in caught.value.detail.message


def test_the_error_says_why_a_node_has_no_output() -> None:
    with pytest.raises(TemplateFailed, match="node skipped is SKIPPED"):
        value_of("{{ nodes.skipped.output.a }}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ nodes.skipped.output.a.b.c | default('d') }}", "d"),
        ("{{ nodes.skipped.output | default([]) }}", []),
        ("{{ nodes.done.output.x.y | default(9) }}", 1),
        ("{{ nodes.skipped.output.a is defined }}", False),
        ("{{ nodes.skipped.output.a is not defined }}", True),
        ("{{ nodes.done.output.x is defined }}", True),
        ("{{ nodes.skipped.status }}", "SKIPPED"),
        ("{{ nodes.skipped.output.a | default(nodes.done.output.x.y) }}", 1),
        ("{{ inputs.none | default(1) }}", None),
        ("{{ inputs.none | default(1, true) }}", 1),
    ],
)
def test_default_defined_and_status_accept_what_is_not_there(text: str, expected: Any) -> None:
    assert value_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.text * 1000000000 }}",
        "{{ 'a' * inputs.n }}",
        "{{ inputs.list * 3 }}",
        "{{ 9 ** 99 ** 99 }}",
        "{{ inputs.n ** (9 ** 9) }}",
        "{{ '%999999999d' % inputs.n }}",
        "{{ 1 / 0 }}",
        "{{ inputs.text + 1 }}",
        "{{ inputs.text | int('x') }}",
        "{{ 'x' | int }}",
        "{{ inputs.map | float }}",
        "{{ [] | first }}",
        "{{ [] | max }}",
        "{{ [[] | last] }}",
        "{{ inputs.n | length }}",
        "{{ inputs.text | sum }}",
        "{{ 1.5 * 1e308 * 10 }}",
        "{{ inputs.list | sort | max > 'a' }}",
        "{{ {1: 2} }}",
        "{{ '\\u0000' }}",
    ],
)
def test_an_expression_without_a_good_value_is_an_error(text: str) -> None:
    with pytest.raises(TemplateFailed):
        value_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{",
        "{{ }}",
        "{{ inputs. }}",
        "{{ inputs.n }",
        "{% set x = 1 %}",
        "{% for x in inputs.list %}{{ x }}{% endfor %}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{{ range(3) }}",
        "{{ inputs.text.upper() }}",
        "{{ self.x() }}",
        "{{ lipsum() }}",
        "{{ inputs.list | map('upper') }}",
        "{{ inputs.text | attr('__class__') }}",
        "{{ inputs.text | format(1) }}",
        "{{ inputs.text is callable }}",
        "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
        "{{ 1 }}" * 20_000,
    ],
)
def test_what_the_sandbox_does_not_have_is_refused_when_compiled(text: str) -> None:
    with pytest.raises(TemplateFailed):
        compile_text(text)


@pytest.mark.parametrize("name", ["cycler", "dict", "joiner", "lipsum", "namespace", "range", "self", "env", "true_"])
def test_nothing_is_global(name: str) -> None:
    with pytest.raises(TemplateFailed):
        value_of(f"{{{{ {name} }}}}")


def test_templates_deep_in_a_value_are_rendered_and_the_rest_is_kept() -> None:
    value = {"a": [1, "{{ inputs.n }}", {"b": "x{{ inputs.n }}"}], "c": None, "d": 2.5}
    assert render(compile_value(value), SCOPE, "params") == {"a": [1, 5, {"b": "x5"}], "c": None, "d": 2.5}


def test_rendering_does_not_change_what_it_read() -> None:
    program = compile_value({"l": "{{ inputs.list | reverse }}", "s": "{{ inputs.list | sort }}"})
    assert render(program, SCOPE, "p") == {"l": [3, 2, 1], "s": [1, 2, 3]}
    assert SCOPE["inputs"]["list"] == [1, 2, 3]


def test_lookups_are_known_before_anything_is_rendered() -> None:
    program = compile_value({"a": "{{ inputs.x + nodes.b.output['c d'][0] | default(job.z) }}"})
    found = {(str(lookup), lookup.guarded) for lookup, _ in lookups_of(program)}
    assert found == {("inputs.x", False), ("nodes.b.output.c d[0]", True), ("job.z", False)}


NOT_JSON = ["{{ 'nan' | float }}", "{{ '-inf' | float }}", "{{ inputs.float * 1e308 * 10 }}", "{{ (-8) ** 0.5 }}"]


@pytest.mark.parametrize("text", [*NOT_JSON, "{{ [1, 'nan' | float] }}", "{{ 10 ** 1000 * 10 ** 1000 }}"])
@pytest.mark.parametrize("around", ["", "text before it "])
def test_a_number_that_json_does_not_have_fails_naming_its_template(text: str, around: str) -> None:
    with pytest.raises(
        TemplateFailed, match=rf"^({re.escape(around + text)} cannot be evaluated|params\.x|text before it )"
    ):
        value_of(around + text)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("1e999", "a number that is too large"),
        ("inputs.text | int(7)", "int has none"),
        ("inputs.text | trim('x')", "trim has none"),
        ("inputs.list | sort(reverse=true)", "sort has none"),
        ("inputs.text | replace('b')", r"replace\(old, new\)"),
        ("inputs.text | split", r"split\(separator\)"),
        ("inputs.n | default(1, true, 3)", r"default\(\[default_value\], \[boolean\]\)"),
        ("inputs.list | join(*inputs.list)", "spreads arguments"),
        ("inputs.list | join(**inputs.map)", "spreads arguments"),
    ],
)
def test_what_can_never_have_a_value_is_refused_before_anything_starts(expression: str, words: str) -> None:
    with pytest.raises(TemplateFailed, match=words):
        compile_text(f"{{{{ {expression} }}}}")


def test_filters_take_their_arguments_by_place_and_by_name() -> None:
    assert value_of("{{ inputs.text | replace(old='5', new='6') }}{{ inputs.list | join }}") == "6123"
    assert value_of("{{ inputs.none | default(default_value=2, boolean=true) }}") == 2


NESTED: dict[str, Callable[[int], str]] = {
    "sum": lambda levels: "+".join(["1"] * levels),
    "product": lambda levels: "*".join(["1"] * levels),
    "and": lambda levels: " and ".join(["true"] * levels),
    "not": lambda levels: "not " * (levels - 1) + "true",
    "sign": lambda levels: "-" * (levels - 1) + "1",
    "filters": lambda levels: "1" + "|abs" * (levels - 1),
    "defaults": lambda levels: "1" + "|default(2)" * (levels - 1),
    "lists": lambda levels: "[" * (levels - 1) + "1" + "]" * (levels - 1),
    "choices": lambda levels: "1 if false else (" * (levels - 1) + "2" + ")" * (levels - 1),
    "positions": lambda levels: "[0]" + "[0]" * (levels - 2),
    "brackets": lambda levels: "(1 + " * (levels - 1) + "1" + ")" * (levels - 1),
}


@pytest.mark.parametrize("kind", NESTED)
def test_a_template_is_refused_for_its_depth_and_never_breaks_the_loader(kind: str) -> None:
    compile_text(f"{{{{ {NESTED[kind](MAX_NESTING)} }}}}")
    for levels in (MAX_NESTING + 1, 300, 3000):
        with pytest.raises(TemplateFailed, match=r"nested (too deeply|deeper than)"):
            compile_text(f"{{{{ {NESTED[kind](levels)} }}}}")


@pytest.mark.parametrize("text", ["\n", "x\n", "\n x \n\n", "  x\n  y  \n", "\tx "])
def test_the_space_around_templates_in_a_longer_text_is_kept(text: str) -> None:
    assert value_of(f"n: {{{{ inputs.n }}}},{text}") == f"n: 5,{text}"
    assert value_of(f"{text}n: {{{{ inputs.n }}}}") == f"{text}n: 5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ inputs.l[inputs.n] }}", "has no value: [7] is not there"),
        ("{{ inputs.l[inputs.n] + 1 }}", "has no value: [7] is not there"),
        ("{{ inputs.m[inputs.k] }}", "has no value: key is not there"),
        ("{{ inputs.gone * 2 }}", "has no value: inputs.gone is not there"),
        ("{{ inputs.n + 'a' }}", "+ does not take a number and a text"),
        ("{{ inputs.n * inputs.k }}", "* takes numbers, got a number and a text"),
        ("{{ inputs.l | int }}", "int cannot be made from a list"),
        ("{{ inputs.m | first }}", "a list is needed, got a mapping"),
        ("{{ inputs.n < inputs.k }}", "'<' not supported between instances of a number and a text"),
        ("{{ none | round }}", "round takes a number, got null"),
    ],
)
def test_a_failure_is_told_in_words_of_the_language(text: str, said: str) -> None:
    scope = {"inputs": {"l": [1, 2], "n": 7, "m": {}, "k": "key"}}
    with pytest.raises(TemplateFailed) as caught:
        compile_value(text).evaluate(scope)
    assert said in caught.value.detail.message


@pytest.mark.parametrize(
    "text", ["{{ inputs.m[inputs.k] }}", "{{ inputs.m[inputs.k] + 1 }}", "{{ 2 ** inputs.n }}", "{{ inputs.k | int }}"]
)
def test_a_failure_stays_short_however_long_the_values_are(text: str) -> None:
    scope = {"inputs": {"n": 10**4000, "m": {"a": 1}, "k": "k" * 60_000}}
    with pytest.raises(TemplateFailed) as caught:
        compile_value(text).evaluate(scope)
    assert len(caught.value.detail.message) < 500


def test_plus_still_joins_texts_and_lists() -> None:
    assert compile_value("{{ 'a' + 'b' }}").evaluate({}) == "ab"
    assert compile_value("{{ [1] + [2] }}").evaluate({}) == [1, 2]


@pytest.mark.parametrize("value", [5, -5, 10**300, -(10**1200), 1.5, 1e308])
@pytest.mark.parametrize("digits", [-1, -2, -400, -1300, -(10**1000), 3, 10**9])
def test_rounding_costs_nothing_however_many_digits_are_asked_for(value: float, digits: int) -> None:
    program = compile_value("{{ inputs.value | round(inputs.digits) }}")
    rounded = program.evaluate({"inputs": {"value": value, "digits": digits}})
    assert rounded == (round(value, max(digits, -2000)) if digits < 400 else value)


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.long | replace('a', inputs.long) }}",
        "{{ inputs.long | replace('', inputs.long) }}",
        "{{ inputs.many | join(inputs.long) }}",
        "{{ inputs.long | split('a') | join(inputs.long) }}",
        "{{ inputs.many ~ (inputs.many | join(inputs.long)) }}",
        "text {{ inputs.long | replace('a', inputs.long) | length }}",
        "{{ [inputs.long] | join | replace('aa', inputs.long) is defined }}",
    ],
)
def test_no_text_grows_as_the_product_of_two(text: str) -> None:
    scope = {"inputs": {"long": "a" * 60_000, "many": list(range(10_000))}}
    tracemalloc.start()
    try:
        with pytest.raises(TemplateFailed, match="characters"):
            compile_value(text).evaluate(scope)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_long_texts_are_replaced_and_joined_up_to_the_limit() -> None:
    scope = {"inputs": {"long": "ab" * 1_000_000, "many": ["x" * 100] * 20_000}}
    assert len(compile_value("{{ inputs.long | replace('b', 'cccccc') }}").evaluate(scope)) == 7_000_000
    assert len(compile_value("{{ inputs.long | replace('ab', '') }}").evaluate(scope)) == 0
    assert len(compile_value("{{ inputs.many | join(', ') }}").evaluate(scope)) == 20_000 * 102 - 2


@pytest.mark.parametrize(
    "text", ["1_000", "\u0663", "\uff15", "1_0.5", "nan", "inf", "-Infinity", "1e400", "", ".", "0x1"]
)
@pytest.mark.parametrize("kind", ["int", "float"])
def test_only_what_reads_as_a_number_becomes_one(text: str, kind: str) -> None:
    with pytest.raises(TemplateFailed, match=f"{kind} "):
        compile_value(f"{{{{ (inputs.x | {kind}) > 3 }}}}").evaluate({"inputs": {"x": text}})


@pytest.mark.parametrize(
    ("expression", "value"),
    [("' 007 ' | int", 7), ("'-5' | int", -5), ("'+5' | int", 5), ("7.9 | int", 7), ("'1.5e3' | float", 1500.0),
     ("'.5' | float", 0.5), ("'5.' | float", 5.0), ("' -5' | float", -5.0), ("5 | float", 5.0)],
)  # fmt: skip
def test_a_text_that_reads_as_a_number_becomes_it(expression: str, value: float) -> None:
    found = value_of(f"{{{{ {expression} }}}}")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "expression",
    [
        "inputs.x * 10 > inputs.x",
        "inputs.x * 10 - inputs.x * 10 == 0",
        "inputs.x + inputs.x < 5",
        "(inputs.list | sum) > 5",
        "inputs.n * inputs.n > 5",
        "(inputs.n ** 1.0) > 5",
        "((-8) ** 0.5) == 5",
        "(inputs.n * 1.5) > 5",
        "inputs.n * inputs.n * 0 == 0",
    ],
)
def test_nothing_is_decided_by_a_number_that_json_does_not_have(expression: str) -> None:
    scope = {"inputs": {"x": 1.7e308, "list": [1.7e308, 1.7e308], "n": 10**1000}}
    with pytest.raises(TemplateFailed, match="cannot be evaluated"):
        compile_value(f"{{{{ {expression} }}}}").evaluate(scope)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ (inputs.n, 2) }}", [5, 2]),
        ("{{ () }}", []),
        ("{{ [(1, 2), {'k': (3,)}] }}", [[1, 2], {"k": [3]}]),
        ("{{ (1, 2) == [1, 2] }}", True),
        ("{{ (1, 2) + [3] }}", [1, 2, 3]),
        ("{{ inputs.n in (4, 5) }}", True),
        ("of {{ (1, 2) }}", "of [1,2]"),
    ],
)
def test_a_list_in_round_brackets_is_a_list(text: str, expected: Any) -> None:
    found = value_of(text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{{ inputs.a && inputs.b }}", "; write and instead of &&"),
        ("{{ inputs.a || inputs.b }}", "; write or instead of ||"),
        ("{{ !inputs.b }}", "; write not instead of !"),
        ("{{ inputs.a = 3 }}", "; write == instead of ="),
        ("{{ inputs.a === 3 }}", "; write == instead of ==="),
        ("{{ inputs.a <> 3 }}", "; write != instead of <>"),
        ("{{ inputs.a ?? 3 }}", "; write | default(…) instead of ??"),
        ("{{ inputs.a ? 1 : 2 }}", "; write … if … else … instead of ?"),
        ("{{ '&&' ~ inputs.a) }}", "unexpected ')'"),
        ("{{ inputs.a | round(method='floor' }}", "expected ')'"),
        ("{{ inputs.a == 3) and inputs.b != 2 }}", "unexpected ')'"),
    ],
)
def test_signs_of_other_languages_are_told_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(TemplateFailed) as caught:
        compile_text(text)
    assert str(caught.value).endswith(told)


@pytest.mark.parametrize("text", ["{{ inputs.n == 1e23 }}", "{{ [1e23, -0.0] == [inputs.n, 0.0] }}"])
def test_a_number_in_a_template_is_the_one_that_a_value_of_the_same_text_is(text: str) -> None:
    assert compile_value(text).evaluate({"inputs": {"n": as_stored(1e23, "n")}}) is True
