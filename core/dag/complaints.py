"""Complaints of models with the value that was found, short and without what a URL may keep secret."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from core.dag.conditions import shown
from core.wording import complaint, readable, shorten

OF_NAMES: Final = frozenset({"missing", "extra_forbidden"})
"""Kinds of problems that are about a name, whatever its value is."""
MAX_TEXT: Final = 200


def full_complaint(problem: ErrorDetails) -> str:
    """Return what is wrong and what was found; the latter not where a name or the whole of a mapping is wrong."""
    found = problem["input"]
    if problem["type"] in OF_NAMES or (problem["type"] == "value_error" and isinstance(found, Mapping)):
        return complaint(problem)
    return readable(f"{complaint(problem)}, got {shown(_without_query(found))}")


def first_causes(problems: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out lists that Pydantic calls too short because it dropped what is wrong in them."""
    places = [problem["loc"] for problem in problems]

    def follows(problem: ErrorDetails) -> bool:
        place = problem["loc"]
        return problem["type"] == "too_short" and any(
            len(other) > len(place) and other[: len(place)] == place for other in places
        )

    return [problem for problem in problems if not follows(problem)]


def short_value(value: Any) -> Any:
    """Return a value as an error may carry it: itself when it is short and plain, else the beginning of its JSON."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return readable(_without_query(value)[:MAX_TEXT])
    return readable(shorten(shown(_without_query(value)), MAX_TEXT))


def _without_query(value: Any) -> Any:
    """Cut URLs, also inside of a value, where their query begins, in which signatures and keys stand."""
    match value:
        case str() if "://" in value and "?" in value:
            return f"{value.partition('?')[0]}?…"
        case list() | tuple():
            return [_without_query(item) for item in value]
        case Mapping():
            return {_without_query(key): _without_query(item) for key, item in value.items()}
        case _:
            return value
