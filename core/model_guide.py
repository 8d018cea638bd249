"""What a model's fields are, in words for whoever writes or reads its JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter

Json = Mapping[str, Any]
Mode = Literal["validation", "serialization"]
_BOUNDS: Final = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


@dataclass(frozen=True, slots=True)
class FieldLine:
    """One field of an object."""

    name: str
    type: str
    default: str
    """`required`, else JSON; empty where nothing is said."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Guide:
    """An object's fields, and whether it takes others too."""

    name: str
    summary: str
    fields: tuple[FieldLine, ...]
    others: bool


def guides_of(model: Any, mode: Mode = "validation") -> tuple[Guide, ...]:
    """Return a model or dataclass and, behind it, the objects that its fields name."""
    schema = TypeAdapter(model).json_schema(mode=mode)
    inner, title = schema.get("$defs", {}), getattr(model, "__name__", "")
    own = schema if "$ref" not in schema else inner[title]
    others = sorted((name, one) for name, one in inner.items() if "properties" in one and name != title)
    return tuple(_guide(name, one, inner) for name, one in [(title, own), *others])


def _guide(name: str, schema: Json, inner: Json) -> Guide:
    required = schema.get("required", ())
    fields = tuple(_line(key, one, key in required, inner) for key, one in schema.get("properties", {}).items())
    summary = str(schema.get("description", "")).partition("\n")[0]
    return Guide(name, summary, fields, others=schema.get("additionalProperties") is True)


def _line(name: str, schema: Json, required: bool, inner: Json) -> FieldLine:
    default = "required" if required else json.dumps(schema["default"]) if "default" in schema else ""
    if "$ref" in schema and isinstance(schema.get("default"), dict):
        default = ""  # The object's own fields say theirs.
    return FieldLine(name, type_of(schema, inner), default, " ".join(str(schema.get("description") or "").split()))


def type_of(schema: Json, inner: Json) -> str:
    """Return a type in words: `list of string`, `integer ≥ 0`, `one of "a", "b"`, the name of an object."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return name if "properties" in inner[name] else type_of(inner[name], inner)
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one, inner) for one in schema.get("anyOf") or schema["oneOf"]))
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(json.dumps(one) for one in schema.get("enum") or [schema["const"]])
    return " ".join([_plain(schema, inner), *_bounds(schema)])


def _plain(schema: Json, inner: Json) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        items = type_of(schema.get("items") or {}, inner)
        return "list" if items == "any" else f"list of {items}"
    if schema.get("format") == "date-time":
        return "time"
    return str(kind)


def _bounds(schema: Json) -> Iterator[str]:
    said = [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]
    if said:
        yield ", ".join(said)
