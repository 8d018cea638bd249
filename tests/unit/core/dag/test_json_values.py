"""What the database would refuse is refused before, by its path."""

from collections.abc import Callable
from typing import Any

import pytest

from core.dag.json_values import MAX_DEPTH, NotJson, check_json
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
        (nested(MAX_DEPTH + 1), "x" + ".v" * (MAX_DEPTH + 1)),
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
