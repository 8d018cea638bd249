"""What is wrong with a value, in words of JSON: neither pydantic's sentences nor Python's names reach a caller."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
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
_EXAMPLES: Final[Mapping[str, object]] = {
    **{kind.__name__: kind() for kind in (bool, int, float, str, list, tuple, dict)},
    "NoneType": None,
}
_PYTHON_TYPE: Final = re.compile(f"'({'|'.join(_EXAMPLES)})'")
_BLANK: Final = r"\S"
_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any], Any], str]]] = {
    "missing": lambda _facts, _value: "is missing",
    "extra_forbidden": lambda _facts, _value: "unknown field",
    "string_type": lambda _facts, _value: "expected a string",
    "bool_type": lambda _facts, _value: "expected true or false",
    "int_type": lambda _facts, _value: "expected a whole number",
    "int_parsing_size": lambda _facts, _value: "a whole number with too many digits",
    "finite_number": lambda _facts, _value: "expected a number that a 64-bit float can hold",
    "float_type": lambda _facts, _value: "expected a number",
    "list_type": lambda _facts, _value: "expected an array",
    "tuple_type": lambda _facts, _value: "expected an array",
    "dict_type": lambda _facts, _value: "expected an object",
    "model_type": lambda _facts, _value: "expected an object",
    "int_from_float": lambda _facts, _value: "expected a whole number",
    "literal_error": lambda facts, _value: f"expected {facts['expected']}",
    "enum": lambda facts, _value: f"expected {facts['expected']}",
    "greater_than": lambda facts, _value: f"expected more than {facts['gt']:g}",
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


def a_kind(value: object) -> str:
    """Return what the workflow language calls a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
        case _:
            return "a value"


def shorten(text: str, length: int = 200) -> str:
    """Return a text, cut when it is long."""
    return text if len(text) <= length else f"{text[:length]}…"


def without_python(error: Exception) -> str:
    """Return what Python says of a wrong type, in words of the workflow language."""
    text = str(error)
    return _PYTHON_TYPE.sub(lambda found: a_kind(_EXAMPLES[found[1]]), text) if isinstance(error, TypeError) else text


def complaint(problem: ErrorDetails) -> str:
    """Return what is wrong, without the field and the value; whatever has no words here keeps those it came with."""
    words = _WORDS.get(problem["type"])
    if words is None:
        return problem["msg"].removeprefix("Value error, ")
    return words(problem.get("ctx", {}), problem.get("input"))


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a question that names the closest known word, to be put behind a message; empty when none is close.

    Close is also a word that only says more: `timeout_seconds` for `timeout`.
    """
    words = list(known)
    longer = [one for one in words if one.startswith(f"{word}_")]
    close = longer[:1] or get_close_matches(str(word)[:100], words, n=1, cutoff=0.65)
    return f"; did you mean {close[0]}?" if close else ""


def offered(word: object, known: Iterable[str], nothing: str = "none") -> str:
    """Return the known words in their order for a message about another one, with the question which it was to be."""
    words = list(known)
    return f"{', '.join(words) or nothing}{did_you_mean(word, words)}"


def readable(text: str) -> str:
    """Return a text as an answer may repeat it: no lone surrogate, no null character."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def storable(value: Any) -> Any:
    """Return a value of JSON with only what can be stored: texts are `readable`, NaN and infinity are texts."""
    match value:
        case str():
            return readable(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {readable(str(key)): storable(item) for key, item in value.items()}
        case list() | tuple():
            return [storable(item) for item in value]
        case _:
            return value


def _many(count: int, value: object) -> str:
    thing = "character" if isinstance(value, str) else "item"
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
