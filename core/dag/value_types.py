"""Advice on values by their kinds: a whole `{{ … }}` that can never be what its place takes."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from core.dag.condition_types import ANY, KINDS_OF_TYPES, LIST, NULL, Kinds, kinds_of
from core.dag.definition import Workflow
from core.dag.nodes import FanOutNode, TaskNode
from core.dag.places import Place
from core.dag.templates import Expression, TemplateFailed, compile_value
from core.handlers_catalog import CATALOG


def misfit(workflow: Workflow, place: Place) -> str | None:
    """Return what is wrong with a source or a param that has only one kind of values, and the wrong one."""
    match place.path, workflow.nodes.get(place.node_id or ""):
        case (_, _, "source"), FanOutNode():
            taken = frozenset({LIST})
        case (_, _, "params", str() as name), TaskNode() as task:
            taken = _taken(task.handler, name)
        case (_, _, "task", "params", str() as name), FanOutNode() as fan_out:
            taken = _taken(fan_out.task.handler, name)
        case _:
            return None
    expression = _expression(place.value)
    kinds = kinds_of(expression, workflow.inputs) - {NULL}
    if expression is None or not kinds or not kinds.isdisjoint(taken):
        return None
    word = ".".join(map(str, place.path[2:]))
    return f"{word} takes {_either(taken - {NULL})}, and {expression.lookups[0]} is {_either(kinds)}"


def _expression(value: Any) -> Expression | None:
    try:
        program = compile_value(value)
    except TemplateFailed:
        return None
    return program if isinstance(program, Expression) else None


def _either(kinds: Kinds) -> str:
    return " or ".join(sorted(kinds))


@cache
def _taken(handler: str, name: str) -> Kinds:
    """Return the kinds that a param takes; handlers change no value to another kind."""
    if handler not in CATALOG:
        return ANY
    schema = CATALOG[handler].params.model_json_schema()
    return _kinds_of_schema(schema.get("properties", {}).get(name, {}), schema.get("$defs", {}))


def _kinds_of_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Kinds:
    match schema:
        case {"$ref": str() as ref}:
            return _kinds_of_schema(definitions.get(ref.rpartition("/")[2], {}), definitions)
        case {"anyOf": list() as ways} | {"oneOf": list() as ways}:
            return frozenset[str]().union(*(_kinds_of_schema(way, definitions) for way in ways))
        case {"type": str() as name}:
            return frozenset({KINDS_OF_TYPES[name]})
        case _:
            return ANY
