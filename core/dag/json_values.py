"""What may be stored as JSON: PostgreSQL takes neither NaN nor the character U+0000."""

import math
from collections.abc import Iterable
from typing import Any

from core.errors import GeodagError
from core.wording import shorten

MAX_INTEGER_BITS = 4096
"""Python refuses to write integers of more than 4,300 digits; nobody needs half of that."""

_LARGE = 1 << 63
MAX_DEPTH = 100
"""Lists and mappings in each other; readers of JSON give up between 200 and 1,000 levels."""


class NotJson(GeodagError):
    """A value cannot be stored as JSON."""

    code = "NOT_JSON"


def is_number_of_json(value: Any) -> bool:
    """Return whether a result of arithmetic is a number that can be stored."""
    if isinstance(value, int):
        return value.bit_length() <= MAX_INTEGER_BITS
    return isinstance(value, float) and math.isfinite(value)


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value is JSON at a glance, as almost every one is; False says only that it needs a closer look.

    Plain are dicts with text keys, lists, ASCII text, integers of 64 bits, finite floats, booleans and None.
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
        elif not (value is None or kind is bool or (kind is float and math.isfinite(value))):
            return False
    return True


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
    if not is_plain(value, depth):
        _look_closer(value, path, depth)


def _look_closer(value: Any, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise NotJson(f"{shorten(path, 60)} is nested deeper than {MAX_DEPTH} levels", field=path)
    match value:
        case None | bool():
            return
        case int():
            _check_integer(value, path)
        case str():
            _check_text(value, path)
        case float():
            _check_float(value, path)
        case dict():
            for key, item in value.items():
                _check_key(key, path)
                _look_closer(item, f"{path}.{key}", depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                _look_closer(item, f"{path}[{index}]", depth + 1)
        case _:
            raise NotJson(f"{path} is a {type(value).__name__}, which JSON does not have", field=path)


def _check_text(value: str, path: str) -> None:
    if "\x00" in value:
        raise NotJson(f"{path} contains the character U+0000", field=path)
    if has_surrogate(value):
        raise NotJson(f"{path} contains half of a surrogate pair", field=path)


def _check_integer(value: int, path: str) -> None:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise NotJson(
            f"{path} is a whole number of {value.bit_length()} bits, more than {MAX_INTEGER_BITS}", field=path
        )


def _check_float(value: float, path: str) -> None:
    if not math.isfinite(value):
        raise NotJson(f"{path} is {value}, which is not a JSON number", field=path)


def _check_key(key: Any, path: str) -> None:
    if not isinstance(key, str):
        raise NotJson(f"{path} has the key {key!r}, which is not text", field=path)
    _check_text(key, f"a key of {path}")
