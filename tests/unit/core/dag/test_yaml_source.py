import time
from typing import Any

import pytest

from core.dag.yaml_source import YamlProblem, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T10:00:00Z", "2026-01-31T10:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("012", 12),
        ("0o14", 12),
        ("0x1F", 31),
        ("-7", -7),
        ("9007199254740993", 9007199254740993),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'5'", "5"),
        ("<<", "<<"),
        ("=", "="),
        ("EPSG:4326", "EPSG:4326"),
    ],
)
def test_scalars_resolve_by_the_core_schema_of_yaml_1_2(text: str, value: Any) -> None:
    result = read_yaml(f"key: {text}").value["key"]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is there twice"),
        ("a: {b: 1,\n b: 2}\n", 2, "'b' is there twice"),
        ("a: 1\n5: x\n", 2, "not text"),
        ("a: 1\n? [x]\n: y\n", 2, "not text"),
        ("a: 1\nb: .nan\n", 2, "not a JSON number"),
        ("b: -.INF\n", 1, "not a JSON number"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "not allowed"),
        ("a: 1\nb: !custom x\n", 2, "not allowed"),
        ("a: 1\n b: 2\n", 2, "mapping values"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("a: *nowhere\n", 1, "undefined alias"),
        ("a: &a [*a]\n", 1, "nested"),
        ("a: &t {x: 1}\nb:\n  <<: *t\n", 3, "merge keys are not part of the language; write the keys out"),
        ("a: &t {x: 1}\nb: {<<: *t, y: 2}\n", 2, "merge keys are not part of the language"),
        ("", 1, "empty"),
        ("a: 1\nb: \x01\n", 2, "U+0001 is not allowed"),
        ("a: 1\nb: \udcff\n", 2, "0xff is not UTF-8"),
        (f"a: {'9' * 5000}", 1, "5000 digits is too large"),
        ("a: 1e999", 1, "1e999 is not a JSON number"),
    ],
)
def test_bad_yaml_is_an_error_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        read_yaml(text)
    assert words in caught.value.message
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "a:\n  source: {{ inputs.tiles }}\n",
            2,
            "source: a key is a mapping, not text: put the whole value with {{ … }} in",
        ),
        ("a:\n  source: {{ inputs.tiles }}\n", 2, 'in quotes, as in source: "{{ inputs.tiles }}"'),
        ("a: {source: {{ inputs.x | default([1]) }}}\n", 1, "{{ … }} in quotes"),
        ("a:\n- {{ x }}\n", 2, 'as in "{{ x }}"'),
        (
            "when: {{ inputs.n }} > 1\n",
            1,
            '(column 24): put the whole value with {{ … }} in quotes, as in "{{ inputs.n }}"',
        ),
        (
            "a:\n  b: 1\n   c: 2\n",
            3,
            "(column 5): the line is indented too far, or a text has a colon and needs quotes",
        ),
        (
            "a:\n  b: {}\n   c: 2\n",
            3,
            "(column 4): the line is indented otherwise than the block around it, which begins in column 3",
        ),
        (
            "a:\n   b: {}\n  c: 2\n",
            3,
            "in column 1; begin the keys of one mapping, and the items of one list, in one column",
        ),
        ("a: b: c\n", 1, "(column 5): the line is indented too far, or a text has a colon"),
        ("a:\n\tb: 1\n", 2, "indent by spaces, not by tabs"),
        ("a: {b: 1\nc: 2\n", 2, "the { of line 1 has no }, or a comma is missing in it"),
        ("a:\n  - [1, 2\nc: 2\n", 3, "the [ of line 2 has no ]"),
        ("a: 1\nb\nc: 2\n", 3, "a key has no colon behind it"),
        ("a: 'b\nc: 2\n", 3, "the quotes that begin in line 1 are not closed"),
    ],
)
def test_bad_yaml_is_told_with_what_people_do_wrong(text: str, line: int, words: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        read_yaml(text)
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.line == line


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(YamlProblem, match="too many values; at most 50,000 are allowed"):
        read_yaml("\n".join(lines))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(YamlProblem, match="nested"):
        read_yaml("[" * 800)
    with pytest.raises(YamlProblem, match="values nested deeper than 60 levels"):
        read_yaml("[" * 62 + "]" * 62)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: " + "x" * 20_000_000, "more than 1,048,576 characters"),
        ("a: [" + "1," * 500_000 + "]", "more than 50,000 keys and values"),
        ("".join(f"k{number}: 1\n" for number in range(80_000)), "more than 50,000 keys and values"),
    ],
)
def test_a_file_that_is_too_large_is_refused_before_it_is_read(text: str, words: str) -> None:
    started = time.perf_counter()
    with pytest.raises(YamlProblem, match=words):
        read_yaml(text)
    assert time.perf_counter() - started < 15


def test_what_is_wrong_in_a_long_line_is_told_at_once() -> None:
    started = time.perf_counter()
    with pytest.raises(YamlProblem, match="mapping values are not allowed"):
        read_yaml('x: "' + ": {{" * 60_000 + '": y')
    assert time.perf_counter() - started < 15


def test_every_value_knows_its_line() -> None:
    source = read_yaml("a: 1\nnodes:\n  x:\n    next: [b,\n      c]\n")
    assert source.line(("nodes", "x", "next")) == 4
    assert source.line(("nodes", "x", "next", 1)) == 5
    assert source.line(("nodes", "x", "no", "such")) == 3
