"""What is wrong with a value, in words of JSON: neither pydantic's sentences nor Python's names reach a caller."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic_core import ErrorDetails

_KINDS: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}
_BLANK: Final = r"\S"
_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any], Any], str]]] = {
    "missing": lambda _facts, _value: "is missing",
    "extra_forbidden": lambda _facts, _value: "unknown field",
    "string_type": lambda _facts, _value: "expected a string",
    "bool_type": lambda _facts, _value: "expected true or false",
    "int_type": lambda _facts, _value: "expected a whole number",
    "float_type": lambda _facts, _value: "expected a number",
    "list_type": lambda _facts, _value: "expected an array",
    "dict_type": lambda _facts, _value: "expected an object",
    "model_type": lambda _facts, _value: "expected an object",
    "literal_error": lambda facts, _value: f"expected {facts['expected']}",
    "greater_than_equal": lambda facts, _value: f"expected at least {facts['ge']}",
    "less_than_equal": lambda facts, _value: f"expected at most {facts['le']}",
    "string_too_short": lambda facts, value: f"expected at least {_many(facts['min_length'], value)}",
    "string_too_long": lambda facts, value: f"expected at most {_many(facts['max_length'], value)}",
    "too_short": lambda facts, value: f"expected at least {_many(facts['min_length'], value)}",
    "too_long": lambda facts, value: f"expected at most {_many(facts['max_length'], value)}",
    "string_pattern_mismatch": lambda facts, _value: (
        "expected more than blanks" if facts["pattern"] == _BLANK else f"expected the pattern {facts['pattern']}"
    ),
}


def json_kind(value: object) -> str:
    """Return what JSON calls a value."""
    return _KINDS.get(type(value), "value")


def complaint(problem: ErrorDetails) -> str:
    """Return what is wrong, without the field and the value; whatever has no words here keeps those it came with."""
    words = _WORDS.get(problem["type"])
    if words is None:
        return problem["msg"].removeprefix("Value error, ")
    return words(problem.get("ctx", {}), problem.get("input"))


def readable(text: str) -> str:
    """Return a text as an answer may repeat it: no lone surrogate, no null character."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _many(count: int, value: object) -> str:
    thing = "character" if isinstance(value, str) else "item"
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
