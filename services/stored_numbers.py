"""Numbers as `jsonb` gives them back, so that a digest made before storing still fits afterwards.

PostgreSQL keeps numbers as decimals: 1e22 comes back as the integer 10000000000000000000000 and -0.0 as 0.0. Both
mean the same in JSON; only their text, and with it a digest, would differ.
"""

from collections.abc import Mapping
from typing import Any


def as_stored(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object whose canonical text survives a round trip through `jsonb`."""
    return {key: _stored(value) for key, value in params.items()}


def _stored(value: Any) -> Any:
    match value:
        case float():
            return _stored_float(value)
        case Mapping():
            return as_stored(value)
        case list() | tuple():
            return [_stored(item) for item in value]
        case _:
            return value


def _stored_float(value: float) -> float | int:
    if value == 0:
        return 0.0
    return int(repr_exact(value)) if "e+" in repr(value) else value


def repr_exact(value: float) -> str:
    """Return the plain decimal digits of a large float's shortest text, as PostgreSQL writes it."""
    mantissa, _, exponent = repr(value).partition("e+")
    whole, _, fraction = mantissa.partition(".")
    return whole + fraction.ljust(int(exponent), "0")
