"""Pages of long lists: how many, and behind which row the next page starts.

A cursor is the list's name and the sort key of the last row that was shown, as text that nobody needs to read; a list
that changes meanwhile shows no row twice and skips none that was there, and no other list takes its cursors.
"""

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from core.errors import ParameterInvalid
from core.texts import is_clean
from core.wording import readable

Row = TypeVar("Row")
Key = tuple[Any, ...]

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
_MAX_CURSOR: Final = 1000


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows, and the cursor of the next ones; None when there are no more."""

    rows: Sequence[Row]
    next_after: str | None


def make_cursor(name: str, key: Key) -> str:
    """Return the cursor of a list's sort key of texts, integers and times."""
    values = [name] + [value.isoformat() if isinstance(value, datetime) else value for value in key]
    return base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=").decode()


def read_cursor(name: str, text: str | None, *kinds: type) -> Key | None:
    """Return the sort key of a cursor of a list, None without one.

    Raises:
        ParameterInvalid: it is none of this list.
    """
    if text is None:
        return None
    try:
        padded = text[:_MAX_CURSOR].encode("ascii") + b"=" * (-len(text) % 4)
        of, *values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if of != name:
            raise ValueError("of another list")
        key = tuple(_value(value, kind) for value, kind in zip(values, kinds, strict=True))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise ParameterInvalid(
            "after is no cursor of this list",
            field="after",
            value=shown(text),
            remediation="Send next_after as it came.",
        ) from None
    return key


def read_limit(text: str | None) -> int:
    """Return how many rows a page may have.

    Raises:
        ParameterInvalid: it is no number from 1 to 500.
    """
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_LIMIT):
        raise ParameterInvalid(f"limit is {shown(text)!r}; expected 1 to {MAX_LIMIT}", field="limit", value=shown(text))
    return int(text)


def read_text(name: str, params: Mapping[str, str], max_length: int = 256) -> str | None:
    """Return a filter's text, None without one.

    Raises:
        ParameterInvalid: it is empty, too long, or holds what no stored text holds.
    """
    value = params.get(name)
    if value is not None and not (1 <= len(value) <= max_length and is_clean(value)):
        raise ParameterInvalid(
            f"{name}: expected 1 to {max_length} printable characters", field=name, value=shown(value)
        )
    return value


def read_one_of(name: str, params: Mapping[str, str], values: Collection[str]) -> str | None:
    """Return a filter's value out of a few, None without one; raises `ParameterInvalid`."""
    value = params.get(name)
    if value is not None and value not in values:
        raise ParameterInvalid(
            f"{name} is {shown(value)!r}; expected {', '.join(values)}", field=name, value=shown(value)
        )
    return value


def shown(value: str) -> str:
    """Return what an answer may repeat of a parameter."""
    return readable(value[:40])


def check_once(given: Sequence[str]) -> None:
    """Raise `ParameterInvalid` for a parameter that stands twice in a query: no call means two of one."""
    if twice := next((name for index, name in enumerate(given) if name in given[:index]), None):
        raise ParameterInvalid(f"{shown(twice)!r} stands twice in the query; give it once", field=shown(twice))


def check_names(params: Mapping[str, str], known: Sequence[str]) -> None:
    """Raise `ParameterInvalid` for a filter that a list does not have: ignoring it would answer another question."""
    if unknown := sorted(set(params) - set(known)):
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise ParameterInvalid(f"{shown(unknown[0])!r} is no parameter here; {there}", field=shown(unknown[0]))


def page(name: str, rows: Sequence[Row], limit: int, key: Any) -> Page[Row]:
    """Return a page of a list's rows, asked for with one more than `limit`; `key` gives a row's sort key."""
    shown = rows[:limit]
    return Page(shown, make_cursor(name, key(shown[-1])) if len(rows) > limit else None)


def _value(value: Any, kind: type) -> Any:
    if kind is datetime:
        found = datetime.fromisoformat(value)
        if found.tzinfo is None:
            raise ValueError("a time without its zone")
        return found
    if type(value) is not kind or "\0" in str(value):
        raise ValueError("another type")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("out of range")
    return value
