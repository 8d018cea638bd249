"""The filters and tests that templates may use; nothing else exists for them.

Taken from Jinja2 where its meaning is exact; those that hide a failure (`int`, `float`, `first`, …) are strict here.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from jinja2 import StrictUndefined, Undefined
from jinja2 import filters as builtin
from jinja2 import tests as builtin_tests

from core.dag.json_values import is_number_of_json
from core.ids import canonical_json
from core.wording import a_kind

MAX_MADE: Final = 32 * 1024 * 1024
"""Characters of a text that a filter makes."""
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


class Missing(StrictUndefined):
    """A value that is not there; `Expression` finds out the whole path when it matters."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        return f"{self._undefined_name} is not there"


def _int(value: Any) -> int:
    return int(_readable(value, "int", _INTEGER))


def _float(value: Any) -> float:
    number = float(_readable(value, "float", _NUMBER))
    if not is_number_of_json(number):
        raise ValueError(f"float cannot be made from {str(value)[:80]!r}: it is too large")
    return number


def _readable(value: Any, kind: str, spelling: re.Pattern[str]) -> int | float | str:
    """Return a number or its text; Python would also read "1_000", "nan" and the digits of all scripts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{kind} cannot be made from {a_kind(value)}")
    if isinstance(value, str) and not spelling.fullmatch(value.strip()):
        raise ValueError(f"{kind} cannot be made from {value[:80]!r}")
    return value


def _text(value: Any) -> str:
    if isinstance(value, Undefined):
        return str(value)
    return value if isinstance(value, str) else canonical_json(value)


def _on_text(method: Callable[[str], str]) -> Callable[[Any], str]:
    def apply(value: Any) -> str:
        return method(_text(value))

    return apply


def _replace(value: Any, old: str, new: str) -> str:
    text = _text(value)
    _check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _join(value: Any, separator: str = "") -> str:
    texts = [_text(item) for item in _items(value)]
    _check_length(sum(map(len, texts)) + len(separator) * (len(texts) - 1))
    return separator.join(texts)


def _check_length(length: int) -> None:
    """Refuse to make a text whose length is a product: two inputs of 64 KiB would become 4 GiB."""
    if length > MAX_MADE:
        raise ValueError(f"a text of {length} characters would come out, at most {MAX_MADE} are made")


def _split(value: Any, separator: str) -> list[str]:
    return _text(value).split(separator)


def _items(value: Any) -> list[Any]:
    if isinstance(value, Undefined):
        return list(value)
    if not isinstance(value, list | tuple):
        raise TypeError(f"a list is needed, got {a_kind(value)}")
    return list(value)


def _length(value: Any) -> int:
    if isinstance(value, str | list | tuple | Mapping | Undefined):
        return len(value)
    raise TypeError(f"{a_kind(value)} has no length")


def _of_some(pick: Callable[[list[Any]], Any], what: str) -> Callable[[Any], Any]:
    """Return a filter that picks one item of a list; of an empty one there is none, which `default` may answer."""

    def apply(value: Any) -> Any:
        items = _items(value)
        return pick(items) if items else Missing(name=f"the {what} item of an empty list")

    return apply


def _round(value: Any, digits: int = 0) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"round takes a number, got {a_kind(value)}")
    if isinstance(value, int) and -digits > value.bit_length():
        return 0  # as Python says, which makes a power of ten of all these digits first
    return round(value, digits) if digits else round(value)


def _sum(value: Any) -> Any:
    total = sum(_items(value))
    if not is_number_of_json(total):
        raise ValueError("the sum is no number that JSON has")
    return total


def _abs(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"abs takes a number, got {a_kind(value)}")
    return abs(value)


def _keys(value: Any) -> list[str]:
    if isinstance(value, Undefined):
        return list(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"keys takes a mapping, got {a_kind(value)}")
    return sorted(value)


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "default": builtin.do_default,
    "d": builtin.do_default,
    "int": _int,
    "float": _float,
    "string": _text,
    "tojson": canonical_json,
    "lower": _on_text(str.lower),
    "upper": _on_text(str.upper),
    "title": _on_text(str.title),
    "capitalize": _on_text(str.capitalize),
    "trim": _on_text(str.strip),
    "replace": _replace,
    "join": _join,
    "split": _split,
    "length": _length,
    "count": _length,
    "first": _of_some(lambda items: items[0], "first"),
    "last": _of_some(lambda items: items[-1], "last"),
    "min": _of_some(min, "smallest"),
    "max": _of_some(max, "largest"),
    "sum": _sum,
    "sort": lambda value: sorted(_items(value)),
    "reverse": lambda value: _items(value)[::-1],
    "keys": _keys,
    "round": _round,
    "abs": _abs,
}

_STRICT_TESTS = (
    *("none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "in"),
    *("eq", "==", "ne", "!=", "lt", "<", "le", "<=", "gt", ">", "ge", ">="),
)


def _builtin(name: str) -> Callable[..., Any]:
    return cast(Callable[..., Any], builtin_tests.TESTS[name])


def _strict(test: Callable[..., Any]) -> Callable[..., Any]:
    def check(value: Any, *args: Any) -> Any:
        if isinstance(value, Undefined):
            bool(value)
        return test(value, *args)

    return check


TESTS: Final[Mapping[str, Callable[..., Any]]] = {
    "defined": _builtin("defined"),
    "undefined": _builtin("undefined"),
    **{name: _strict(_builtin(name)) for name in _STRICT_TESTS},
}
