"""Statements and values as the server takes them, for what the engine sends most: constant texts, plain values.

What comes out means what psycopg makes of the same, with the same types, so a statement has one prepared form whoever
made it ready; a test compares.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from psycopg import errors
from psycopg._queries import _query2pg_nocache
from psycopg.adapt import PyFormat

Encoded = tuple[bytes | None, int]
"""A value as text, and the type that it is declared as."""
Ready = tuple[bytes, list[bytes | None] | None, tuple[int, ...], None]
"""Text, values, their types, and no formats: every value is text."""

_UNKNOWN: Final = 0
_BOOL: Final = 16
_FLOAT8: Final = 701
_INTEGERS: Final = ((1 << 15, 21), (1 << 31, 23), (1 << 63, 20))
"""Each type with the first number beyond it."""
_MOST_STATEMENTS: Final = 1000


def prepared(statement: object, values: Sequence[Any] | Mapping[str, Any] | None) -> Ready | None:
    """Return what to send; None when psycopg has to say it: other kinds of statement and value, and every mistake."""
    if type(statement) is not str:
        return None
    if values is None:
        return statement.encode(), None, (), None
    text, names, count = _shape(statement)
    if (ordered := _ordered(values, names)) is None or len(ordered) != count:
        return None
    params: list[bytes | None] = []
    types: list[int] = []
    for value in ordered:
        encode = _ENCODERS.get(type(value))
        encoded = None if encode is None else encode(value)
        if encoded is None:
            return None
        params.append(encoded[0])
        types.append(encoded[1])
    return text, params, tuple(types), None


@lru_cache(maxsize=_MOST_STATEMENTS)
def _shape(statement: str) -> tuple[bytes, tuple[str, ...] | None, int]:
    """Return a statement with numbered places, the names of these when they have some, and how many there are.

    A count that no values have stands for places that ask for a format of their own.
    """
    text, formats, names, _ = _query2pg_nocache(statement.encode(), "utf-8")
    count = len(formats) if all(one is PyFormat.AUTO for one in formats) else -1
    return text, None if names is None else tuple(names), count


def _ordered(values: Sequence[Any] | Mapping[str, Any], names: tuple[str, ...] | None) -> Sequence[Any] | None:
    if isinstance(values, tuple | list):
        return values if names is None else None
    if names is None or not isinstance(values, dict):
        return None
    return [values[name] for name in names] if values.keys() >= set(names) else None


def _text(value: str) -> Encoded:
    encoded = value.encode()
    if b"\0" in encoded:
        raise errors.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return encoded, _UNKNOWN


def _integer(value: int) -> Encoded | None:
    beyond = value + 1 if value >= 0 else -value
    kind = next((kind for limit, kind in _INTEGERS if beyond <= limit), None)
    return None if kind is None else (b"%d" % value, kind)


def _texts(values: list[Any]) -> Encoded | None:
    if not values:
        return b"{}", _UNKNOWN
    if any(type(value) is not str for value in values):
        return None
    joined = '","'.join(values)
    if "\\" in joined or joined.count('"') != 2 * (len(values) - 1):
        joined = '","'.join(value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return _text(f'{{"{joined}"}}')


_ENCODERS: Final[Mapping[type, Callable[[Any], Encoded | None]]] = {
    str: _text,
    int: _integer,
    list: _texts,
    bool: lambda value: (b"t" if value else b"f", _BOOL),
    float: lambda value: (repr(value).encode(), _FLOAT8),
    type(None): lambda _: (None, _UNKNOWN),
}
