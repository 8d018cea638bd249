"""What the database would refuse is refused before, by its path."""

from collections.abc import Callable
from typing import Any

import pytest

from core.dag.json_values import MAX_DEPTH, NotJson, as_stored, check_json
from core.errors import GeodagError
from handlers.json_values import to_json


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"v": value}
    return value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, float("nan")]}, "x.a[1]"),
        (float("-inf"), "x"),
        ({"s": ["\0"]}, "x.s[0]"),
        ("\udfff", "x"),
        ({"n": 2**4097}, "x.n"),
        ({"b": b""}, "x.b"),
        ({1: 2}, "x"),
        (nested(MAX_DEPTH + 1), "x" + ".v" * MAX_DEPTH),
    ],
)
def test_what_json_storage_refuses_is_named(value: Any, path: str) -> None:
    with pytest.raises(NotJson) as caught:
        check_json(value, "x")
    assert (caught.value.detail.code, caught.value.detail.field) == ("NOT_JSON", path)


@pytest.mark.parametrize("check", [check_json, to_json])
def test_whoever_goes_beyond_a_limit_is_told_which(check: Callable[[Any, str], Any]) -> None:
    for value, words in ((2**5000, "of 5001 bits, more than 4096"), (nested(101), "deeper than 100 levels")):
        with pytest.raises(GeodagError, match=words):
            check(value, "x")
    check([2**4096 - 1, nested(99)], "x")


@pytest.mark.parametrize("value", [None, True, "ü\U0001f600", 2**4000, -0.0, [], nested(MAX_DEPTH), (1, [2])])
def test_everything_else_passes(value: Any) -> None:
    check_json(value, "x")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (1e16, 10**16), (-1e17, -(10**17)), (1.2345678901234567e30, 1234567890123456700000000000000), (-0.0, 0.0),
        (9999999999999998.0, 9999999999999998.0), (1e-320, 1e-320), (2.0, 2.0), (True, True), ((1, 1e16), [1, 10**16]),
        ({"a": [{"ü": 1e16}]}, {"a": [{"ü": 10**16}]}),
    ],
)  # fmt: skip
def test_numbers_are_as_the_database_gives_them_back(value: Any, stored: Any) -> None:
    assert repr(as_stored(value, "x")) == repr(stored)


def test_what_comes_back_as_it_is_is_not_copied() -> None:
    value = {"a": [1, 2.5, "x", None, {"b": True}]}
    assert as_stored(value, "x") is value


@pytest.mark.parametrize("check", [check_json, to_json])
@pytest.mark.parametrize("innermost", [[], {}, ["é"], {"é": 1}])
def test_as_many_levels_are_taken_whatever_lies_innermost(check: Callable[[Any, str], Any], innermost: Any) -> None:
    value = innermost
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    check(value, "x")
    with pytest.raises(GeodagError, match="deeper than 100 levels"):
        check([value], "x")
