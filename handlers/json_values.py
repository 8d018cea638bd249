"""Turns what a handler returned into plain JSON, or says where it is not."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from core.dag.json_values import MAX_DEPTH, MAX_INTEGER_BITS, is_plain
from core.errors import GeodagError
from core.wording import readable


class NotJson(GeodagError):
    """A handler returned something that JSON, or PostgreSQL's jsonb, cannot hold."""

    code = "OUTPUT_INVALID"


def to_json(value: Any, path: str = "output", depth: int = 0) -> Any:
    """Return `value` as dicts, lists, text, numbers, booleans and None; numpy scalars become numbers.

    Raises:
        NotJson: NaN, infinity, U+0000, a lone surrogate, a key that is no text, an integer of more than 4,096 bits,
            more than 100 levels, or any other type; names the path.
    """
    if depth >= MAX_DEPTH and isinstance(value, BaseModel | Mapping | list | tuple):
        raise NotJson(f"{path} is nested deeper than {MAX_DEPTH} levels", field=path)
    match value:
        case None | bool():
            return value
        case str():
            return _text(value, path)
        case int():
            return _integer(int(value), path)
        case float():
            return _finite(float(value), path)
        case BaseModel():
            dumped = value.model_dump(by_alias=True)
            return dumped if is_plain(dumped, depth) else to_json(dumped, path, depth)
        case Mapping():
            return {_key(key, path): to_json(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        case _:
            return _scalar(value, path)


def _text(value: str, path: str) -> str:
    if "\x00" in value:
        raise NotJson(f"{path} contains U+0000, which the database cannot store", field=path)
    if not value.isascii() and readable(value) != value:
        raise NotJson(f"{path} contains a lone surrogate, which is not Unicode text", field=path)
    return str(value)


def _integer(value: int, path: str) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise NotJson(f"{path} is an integer of {value.bit_length()} bits, more than {MAX_INTEGER_BITS}", field=path)
    return value


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise NotJson(f"{path} is {value}, which JSON has no word for", field=path)
    return value


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise NotJson(f"{path} has a key of type {type(key).__name__}; JSON keys are text", field=path)
    return _text(key, f"{path}.{readable(key)} (a key)")


def _scalar(value: Any, path: str) -> Any:
    """Unwrap a numpy scalar (known by `dtype` and `item`, so that numpy is not imported here)."""
    if getattr(value, "shape", None) == () and hasattr(value, "dtype"):
        plain = value.item()
        if isinstance(plain, bool | int | float | str):
            return to_json(plain, path)
    raise NotJson(f"{path} is a {type(value).__name__}, which is not JSON", field=path)
