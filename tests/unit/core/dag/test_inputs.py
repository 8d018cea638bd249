import json
import random
import time
from typing import Any

import pytest

from core.dag.definition import Workflow
from core.dag.inputs import resolve_inputs, resolve_priority
from core.dag.json_values import as_stored
from core.dag.patterns import MAX_STEPS, size_of
from core.errors import CallerError, ParameterInvalid, ParameterMissing
from core.ids import canonical_json
from tests.unit.core.dag.harness import chain, workflow_of


def resolve(spec: dict[str, Any], *given: Any) -> Any:
    """Resolve the one input `x`."""
    workflow = workflow_of(chain("a"), inputs={"x": spec})
    return resolve_inputs(workflow, {"x": given[0]} if given else {})["x"]


def test_defaults_are_applied_and_the_rest_is_null() -> None:
    workflow = workflow_of(
        chain("a"), inputs={"a": {"type": "string", "default": "d"}, "b": {"type": "integer"}, "c": {"required": True}}
    )
    assert resolve_inputs(workflow, {"c": 1}) == {"a": "d", "b": None, "c": 1}


def test_null_counts_as_left_out() -> None:
    assert resolve({"type": "string", "default": "d"}, None) == "d"
    assert resolve({"type": ["string", "null"], "default": "d"}, None) is None
    with pytest.raises(ParameterMissing):
        resolve({"type": "string", "required": True}, None)


def test_a_missing_required_input_is_named() -> None:
    with pytest.raises(ParameterMissing) as caught:
        resolve({"type": "string", "required": True, "description": "Give a name."})
    assert caught.value.detail.field == "inputs.x"
    assert caught.value.detail.remediation == "Give a name."


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(ParameterInvalid) as caught:
        resolve_inputs(workflow_of(chain("a"), inputs={"x": {}}), {"y": 1})
    assert caught.value.detail.field == "inputs.y"


@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        ({"type": "string"}, ["", "5", "é"], [5, True, ["a"], {}, 1.5, "a\x00b", "\ud800"]),
        ({"type": "integer"}, [0, -1, 2**53 + 1], ["5", True, 5.0, 5.5, float("inf")]),
        ({"type": "number"}, [0, 1.5, -2, 10**400, -(10**1200)], ["5", False, float("nan"), float("inf")]),
        ({"type": "boolean"}, [True, False], [0, 1, "true", "yes"]),
        ({"type": "array"}, [[], [1, "a"]], ["[]", {}, "abc"]),
        ({"type": "object"}, [{}, {"items": 1}], [[], "{}", [["a", 1]]]),
        ({"type": ["string", "integer"]}, ["a", 1], [1.5, True, []]),
        ({}, [1, "a", [], {}, True], [float("nan")]),
        ({"enum": ["a", 1]}, ["a", 1, 1.0], ["b", True, 2]),
        ({"const": 1}, [1], [2, True]),
        ({"type": "string", "pattern": "^[a-z]+$"}, ["abc"], ["ABC", "abc\n", ""]),
        ({"type": "string", "pattern": "b"}, ["abc"], ["xyz"]),
        ({"type": "string", "pattern": "^a$|^b\\$$"}, ["a", "b$"], ["a\n", "b"]),
        ({"type": "string", "min_length": 2, "max_length": 3}, ["ab", "abc"], ["a", "abcd"]),
        ({"type": "number", "minimum": 0, "maximum": 1}, [0, 0.5, 1], [-0.1, 1.1]),
        ({"type": "number", "exclusive_minimum": 0, "exclusive_maximum": 1}, [0.5], [0, 1]),
        ({"type": "integer", "multiple_of": 256}, [0, 512], [100]),
        ({"type": "array", "items": {"type": "object"}}, [[{}], []], [[1], [{}, "a"]]),
        ({"type": "array", "min_items": 1, "max_items": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
        ({"const": 2}, [2, 2.0], [True, "2"]),
        ({"type": "number", "multiple_of": 0.1}, [0.3, 0.7, 1, -0.3, 0, 1e22], [0.35, 1e-9]),
        ({"type": "number", "multiple_of": 0.5}, [10**400], [1.25]),
        ({"type": "number", "maximum": 1e300}, [1.0], [10**400]),
        ({"type": "array", "items": {"type": ["number", "null"]}}, [[None, 10**400]], [["1"], [True]]),
        ({"type": "number", "multiple_of": 1e-300}, [1e300, 3e-300], [1.5e-300]),
        ({"type": "array", "unique_items": True}, [[1, 2], [1, True]], [[1, 1], [{"a": 1}, {"a": 1}], [[1], [1.0]]]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, [{"a": 1}, {"b": "x"}], [{"a": "1"}]),
        ({"type": "object", "properties": {"a": {"required": True}}}, [{"a": 1}], [{}]),
        ({"type": "object", "required": ["a"]}, [{"a": 1}], [{}, {"b": 1}]),
        ({"type": "object", "properties": {"a": {}}, "additional_properties": False}, [{"a": 1}], [{"b": 1}]),
    ],
)
def test_types_and_words_are_checked_and_never_coerced(spec: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        resolved, stored = resolve(spec, value), as_stored(value, "x")
        assert resolved == stored
        assert type(resolved) is type(stored)
    for value in bad:
        with pytest.raises(ParameterInvalid) as caught:
            resolve(spec, value)
        assert str(caught.value.detail.field).startswith("inputs.x"), value
        assert "inputs.x" in caught.value.detail.message


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b$", "(?:a?){30}a{30}!"])
def test_no_pattern_takes_long_over_a_text(pattern: str) -> None:
    workflow = workflow_of(chain("a"), inputs={"x": {"type": "string", "pattern": pattern}})
    started = time.process_time()
    with pytest.raises(ParameterInvalid):
        resolve_inputs(workflow, {"x": "a" * 10_000 + "?"})
    assert time.process_time() - started < 2


SLOW = "(?:[01]*1[01]{1000}){5}x"


@pytest.mark.parametrize("texts", [1, 9])
@pytest.mark.parametrize("fits", [True, False])
def test_a_pattern_with_large_counts_is_tried_on_less_text(texts: int, fits: bool) -> None:
    """On one megabyte this one took half a minute."""
    inner = {"type": "array", "items": {"type": "string", "pattern": SLOW}}
    characters = MAX_STEPS // size_of(SLOW) if fits else 1_000_000
    bits = "".join(random.Random(5).choices("01", k=characters // texts))
    started = time.process_time()
    with pytest.raises(ParameterInvalid) as caught:
        resolve({"type": "object", "properties": {"a": inner}}, {"a": [bits] * texts})
    assert time.process_time() - started < 3
    assert ("has too much text" in str(caught.value)) is not fits


def test_a_simple_pattern_is_tried_on_whatever_fits_into_a_call() -> None:
    spec = {"type": "array", "items": {"type": "string", "pattern": "^[a-z0-9/_-]+\\.tif$", "max_length": 255}}
    assert len(resolve(spec, ["tiles/10/" + "x" * 40 + ".tif"] * 100_000)) == 100_000
    assert resolve({"type": "string", "pattern": "^POLYGON"}, "POLYGON" + "(0 0)" * 800_000)


def test_what_is_longer_than_its_max_length_is_told_that() -> None:
    with pytest.raises(ParameterInvalid, match="must have at most 5 characters"):
        resolve({"pattern": SLOW, "max_length": 5}, "0" * 10_000_000)


def test_the_place_inside_a_value_is_named() -> None:
    spec = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    with pytest.raises(CallerError) as caught:
        resolve(spec, [{"n": 1}, {"n": "2"}])
    assert caught.value.detail.message == "inputs.x[1].n must be integer, got string"


@pytest.mark.parametrize(
    ("spec", "value", "place", "shown"),
    [
        ({"type": "array", "items": {"type": "string"}}, ["a", 5], "[1]", 5),
        ({"type": "array", "items": {"type": "string"}}, ["a", {"b": None}], "[1]", '{"b":null}'),
        ({"type": "object", "properties": {"n": {"maximum": 3}}}, {"n": 4}, ".n", 4),
        ({"type": "object", "properties": {"n": {}}, "additional_properties": False}, {"m": [True]}, ".m", "[true]"),
        ({"type": "object", "required": ["n"]}, {"m": 1}, ".n", None),
        ({"type": "string"}, ["a", None], "", '["a",null]'),
        ({"type": "array", "max_items": 1}, ["a", False], "", '["a",false]'),
        ({"type": "string", "max_length": 3}, "abcd", "", "abcd"),
    ],
)
def test_the_value_of_an_error_is_what_is_wrong_itself_in_json(
    spec: dict[str, Any], value: Any, place: str, shown: Any
) -> None:
    with pytest.raises(ParameterInvalid) as caught:
        resolve(spec, value)
    assert (caught.value.detail.field, caught.value.detail.value) == (f"inputs.x{place}", shown)


def test_an_error_does_not_repeat_a_long_value() -> None:
    with pytest.raises(ParameterInvalid) as caught:
        resolve({"type": "string", "max_length": 10}, "a" * 100_000)
    assert len(json.dumps(caught.value.detail.model_dump(mode="json"))) < 1000


def test_priorities_are_numbers_or_names() -> None:
    assert [resolve_priority(value, 5) for value in (None, 0, 10, "interactive", "backfill")] == [5, 0, 10, 8, 1]
    for bad in ("urgent", 11, -1, True):
        with pytest.raises(ParameterInvalid):
            resolve_priority(bad, 5)


@pytest.mark.parametrize("bound", [2**53 + 1, -(2**53) - 1, 10**400, -(10**1200), 10**22 + 1, 5, 0, -3])
def test_a_whole_bound_is_exact_however_large(bound: int) -> None:
    for word, step, more in (("minimum", -1, "at least"), ("maximum", 1, "at most")):
        assert resolve({"type": "integer", word: bound}, bound) == bound
        with pytest.raises(ParameterInvalid, match=f"must be {more} {bound}$"):
            resolve({"type": "integer", word: bound}, bound + step)
    for word, step, more in (("exclusive_minimum", 1, "more than"), ("exclusive_maximum", -1, "less than")):
        assert resolve({"type": "integer", word: bound}, bound + step) == bound + step
        with pytest.raises(ParameterInvalid, match=f"must be {more} {bound}$"):
            resolve({"type": "integer", word: bound}, bound)


@pytest.mark.parametrize("step", [2**53 + 1, 10**400, 3])
def test_a_whole_step_is_exact_however_large(step: int) -> None:
    spec = {"type": "number", "multiple_of": step}
    assert resolve(spec, 7 * step) == 7 * step
    for value in (7 * step + 1, 0.5):
        with pytest.raises(ParameterInvalid, match=f"must be a multiple of {step}$"):
            resolve(spec, value)


@pytest.mark.parametrize("word", ["minimum", "maximum", "exclusive_minimum", "exclusive_maximum", "multiple_of"])
@pytest.mark.parametrize("bound", [10**400, 2**53 + 1, 4, 0.5])
def test_a_file_with_any_bound_can_be_stored_and_read_again(word: str, bound: float) -> None:
    workflow = workflow_of(chain("a"), inputs={"x": {"type": "number", word: bound}})
    stored = Workflow.model_validate_json(canonical_json(workflow.to_json()))
    assert getattr(stored.inputs["x"], word) == bound
    assert stored.definition_hash == workflow.definition_hash


def test_a_bound_is_known_by_its_value_and_not_by_its_spelling() -> None:
    hashes = {
        workflow_of(chain("a"), inputs={"x": {"type": "number", "minimum": bound}}).definition_hash
        for bound in (4, 4.0)
    }
    assert len(hashes) == 1


def test_everything_that_is_wrong_with_inputs_is_told_at_once() -> None:
    workflow = workflow_of(chain("a"), inputs={"n": {"type": "integer"}, "must": {"required": True}, "ok": {}})
    with pytest.raises(ParameterInvalid) as caught:
        resolve_inputs(workflow, {"n": "x", "zz": 1, "ok": 2})
    detail = caught.value.detail
    assert (detail.field, str(caught.value)[:9]) == ("inputs.zz", "inputs.zz")
    assert "; also: inputs.n must be integer, got string; inputs.must is required" in detail.message
    with pytest.raises(ParameterInvalid) as caught:
        resolve_inputs(workflow, {f"x{number}": 1 for number in range(10)})
    assert caught.value.detail.message.endswith("(and 6 more)")
    began = time.process_time()
    with pytest.raises(ParameterInvalid, match=r"inputs\.x0 "):
        resolve_inputs(workflow, {f"x{number}": 1 for number in range(100_000)})
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("spec", "value"),
    [({"type": "integer"}, 1e17), ({"type": "number", "minimum": 10**23}, 1e23), ({"enum": [10**23]}, 1e23)],
)
def test_an_input_is_judged_as_it_is_stored(spec: dict[str, Any], value: float) -> None:
    assert repr(resolve(spec, value)) == repr(as_stored(value, "x"))
