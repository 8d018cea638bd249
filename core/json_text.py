"""JSON text as values: what every reader of stored JSON uses."""

import json
from typing import Any, NoReturn

from pydantic_core import from_json


def read_json(data: str | bytes) -> Any:
    """Return the value of JSON text; what the quick reader does not take is left to the standard one.

    That is what is nested deeper than it goes, half of a surrogate pair, and what is no JSON at all.

    Raises:
        ValueError: It is no JSON; NaN and Infinity are none.
        RecursionError: It is nested deeper than the standard reader goes.
    """
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        return json.loads(data, parse_constant=refuse_constant)


def refuse_constant(name: str) -> NoReturn:
    """Raise `ValueError` for NaN and Infinity, as `parse_constant` of `json`, which takes them otherwise."""
    raise ValueError(f"{name} is not JSON")
