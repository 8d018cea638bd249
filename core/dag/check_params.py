"""What a handler's own model finds wrong with params before there is any run: what no value of a template mends."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from core.dag.complaints import OF_NAMES, full_complaint
from core.dag.templates import is_constant
from core.dag.yaml_source import Path
from core.handlers_catalog import HandlerSpec
from core.ids import canonical_json


def wrong_params(spec: HandlerSpec, params: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield where a constant part of params cannot be right, and why; their own names are somebody else's matter."""
    try:
        spec.params.model_validate_json(canonical_json(params))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            path, of_names = item["loc"], item["type"] in OF_NAMES
            if len(path) == 1 and of_names:
                continue
            if _is_certain(params, path, of_names=of_names):
                yield path, f"params.{'.'.join(map(str, path))} of {spec.name}: {full_complaint(item)}"


def _is_certain(params: Mapping[str, Any], path: Path, *, of_names: bool) -> bool:
    """Return whether what a complaint is about has no template in it.

    Which keys a mapping has is certain whatever their values are. Where a path leaves the params it names one of
    several types: what is wrong with one is certain only when nothing in the value can decide for another.
    """
    value: Any = params
    for number, key in enumerate(path, start=1):
        if of_names and number == len(path) and isinstance(value, dict):
            return True
        if not (key in value if isinstance(value, dict) else isinstance(value, list) and isinstance(key, int)):
            break
        value = value[key]
    return is_constant(value)
