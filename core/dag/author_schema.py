"""The JSON Schema for editors: the models of the language, with every spelling that the loader accepts."""

import re
from collections.abc import Callable
from typing import Any, Final

from core.dag.definition import ID_PATTERN, PRIORITY_NAMES, Workflow
from core.handlers_catalog import CATALOG, KNOWN_QUEUES

Schema = dict[str, Any]

_NAME: Final[Schema] = {"type": "string", "pattern": ID_PATTERN}
_NAMES: Final[Schema] = {"type": "array", "items": _NAME}
_LISTS: Final = ("next", "on_true", "on_false", "all_of", "any_of", "all_done")
_VERSION_TEXT: Final[Schema] = {"type": "string", "pattern": r"^[0-9]{1,9}(\.0+)?$"}


def author_schema() -> Schema:
    """Return the schema of a workflow file."""
    schema = Workflow.model_json_schema()
    definitions: dict[str, Schema] = schema.pop("$defs")
    properties = schema["properties"]
    _change(properties, "version", lambda value: _either(value, _VERSION_TEXT))
    _change(properties, "priority", lambda value: _either(value, {"enum": sorted(PRIORITY_NAMES)}))
    properties["workflow_id"] |= _NAME
    for group in ("nodes", "inputs"):
        properties[group]["propertyNames"] = {"pattern": ID_PATTERN}
    properties["nodes"]["additionalProperties"].pop("discriminator")
    for definition in definitions.values():
        _loosen(definition.get("properties", {}))
    definitions["TaskNode"]["required"].remove("type")
    definitions["WorkflowNode"]["properties"].pop("definition_hash")
    _loosen_input(definitions["InputSpec"]["properties"])
    retry = definitions["RetrySpec"]["properties"]
    retry["max_attempts"] = {**retry["max_retries"], "description": "Another name of max_retries."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "$defs": definitions}


def _loosen(properties: Schema) -> None:
    """Allow the other spellings of edges, and offer the names of handlers and queues."""
    for word in _LISTS:
        _change(properties, word, lambda value: _either(_NAME, value))
    _change(properties, "depends_on", lambda value: _either(_NAME, _NAMES, value))
    _change(properties, "handler", lambda value: {**value, "examples": sorted(CATALOG)})
    _change(properties, "queue", lambda value: {**value, "examples": sorted(KNOWN_QUEUES)})


def _loosen_input(properties: Schema) -> None:
    """Allow words as JSON Schema spells them."""
    for word, value in tuple(properties.items()):
        properties[re.sub(r"_([a-z])", lambda match: match[1].upper(), word)] = value


def _change(properties: Schema, word: str, change: Callable[[Any], Any]) -> None:
    if word in properties:
        properties[word] = change(properties[word])


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}
