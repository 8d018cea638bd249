"""What may be stored as JSON: PostgreSQL takes neither NaN nor the character U+0000."""

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from core.errors import GeodagError
from core.wording import shorten

MAX_INTEGER_BITS = 4096
"""Python refuses to write integers of more than 4,300 digits; nobody needs half of that."""

_LARGE = 1 << 63
_WHOLE = 1e16
"""From here on floats are written without a fraction, so jsonb has integers of them."""
MAX_PATH, MAX_NAME = 1000, 200
"""Characters of a path, and of one name in it, that an error repeats."""
MAX_DEPTH = 100
"""Lists and mappings in each other; readers of JSON give up between 200 and 1,000 levels."""


class NotJson(GeodagError):
    """A value cannot be stored as JSON."""

    code = "NOT_JSON"


def _not_json(path: str, problem: str) -> NotJson:
    path = shorten(path, MAX_PATH)
    return NotJson(f"{path} {problem}", field=path)


def is_number_of_json(value: Any) -> bool:
    """Return whether a result of arithmetic is a number that can be stored."""
    if isinstance(value, int):
        return value.bit_length() <= MAX_INTEGER_BITS
    return isinstance(value, float) and math.isfinite(value)


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value is JSON at a glance, as almost every one is; False says only that it needs a closer look.

    Plain are dicts with text keys, lists, ASCII text, integers of 64 bits, booleans, None, and floats that come back
    from the database as they are.
    """
    return _are_plain((value,), depth)


def _are_plain(values: Iterable[Any], depth: int) -> bool:
    """Return whether all of them are; one call for all that a list or a mapping holds, since calls are what costs."""
    for value in values:
        kind = type(value)
        if kind is str:
            if "\x00" in value or not value.isascii():
                return False
        elif kind is int:
            if not -_LARGE < value < _LARGE:
                return False
        elif kind is dict:
            if depth >= MAX_DEPTH or not (_are_names(value) and _are_plain(value.values(), depth + 1)):
                return False
        elif kind is list:
            if depth >= MAX_DEPTH or not _are_plain(value, depth + 1):
                return False
        elif not (value is None or kind is bool or (kind is float and _is_kept(value))):
            return False
    return True


def _is_kept(value: float) -> bool:
    return -_WHOLE < value < _WHOLE and (value != 0 or math.copysign(1, value) > 0)


def _are_names(keys: Iterable[Any]) -> bool:
    for key in keys:  # noqa: SIM110 - a generator would cost more than all that it does
        if type(key) is not str or "\x00" in key or not key.isascii():
            return False
    return True


def has_surrogate(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, which UTF-8 has no bytes for."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def check_json(value: Any, path: str, depth: int = 0) -> None:
    """Raise `NotJson` naming the path of the first thing in `value` that JSON storage refuses.

    Shape: dict with text keys, list, str, int, finite float, bool, None; anything else is refused by its type name.
    """
    as_stored(value, path, depth)


def as_stored(value: Any, path: str, depth: int = 0) -> Any:
    """Return a value as it comes back from the database, so that its first reader sees what every later one will.

    Whole floats from 1e16 on are integers there, and -0.0 is 0.0. Raises `NotJson` as `check_json`.
    """
    return value if is_plain(value, depth) else _stored(value, path, depth)


def _stored(value: Any, path: str, depth: int) -> Any:
    if depth >= MAX_DEPTH and isinstance(value, dict | list | tuple):
        raise NotJson(f"{shorten(path, 60)} is nested deeper than {MAX_DEPTH} levels", field=shorten(path, MAX_PATH))
    match value:
        case None | bool():
            return value
        case int():
            return _integer(value, path)
        case str():
            return _text(value, path)
        case float():
            return _number(value, path)
        case dict():
            return {_key(key, path): _stored(item, _below(path, key), depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_stored(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        case _:
            raise _not_json(path, f"is a {type(value).__name__}, which JSON does not have")


def _below(path: str, key: str) -> str:
    """Return the path of an item; of a long name only as much as tells it from others, for it is said again below."""
    return f"{path}.{shorten(key, MAX_NAME)}"


def _text(value: str, path: str) -> str:
    if "\x00" in value:
        raise _not_json(path, "contains the character U+0000")
    if has_surrogate(value):
        raise _not_json(path, "contains half of a surrogate pair")
    return value


def _integer(value: int, path: str) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise _not_json(path, f"is a whole number of {value.bit_length()} bits, more than {MAX_INTEGER_BITS}")
    return value


def _number(value: float, path: str) -> float | int:
    if not math.isfinite(value):
        raise _not_json(path, f"is {value}, which is not a JSON number")
    if abs(value) >= _WHOLE:
        return int(Decimal(repr(value)))  # by its digits, as the database reads it
    return value or 0.0


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise _not_json(path, f"has the key {key!r}, which is not text")
    return _text(key, f"a key of {path}")
