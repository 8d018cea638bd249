"""What rows of the contract are made of: routes, parameters, kinds of operations."""

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from core.b2b import MAX_QUERY_TEXT
from core.openapi import Operation, Parameter
from core.paging import DEFAULT_LIMIT, MAX_LIMIT

Json = dict[str, Any]
ASSET: Final = "api/assets/{asset_id}"
VERSION: Final = f"{ASSET}/versions/{{ordinal:int}}"
PARTNERS: Final = "submitters of the platform"
OWNERS: Final = "submitters of the platform, admins"
READERS: Final = "whoever may know of it"
REVIEWERS: Final = "reviewers, admins"
ADMINS: Final = "admins"
OPERATORS: Final = "operators"
ANYBODY: Final = "anybody"


@dataclass(frozen=True, slots=True)
class Route:
    """Where an operation is served: a method and a route template of Azure Functions."""

    method: str
    template: str
    operation: Operation


def text(name: str, description: str = "", **schema: Any) -> Parameter:
    """Return a parameter of text."""
    return Parameter(name, {"type": "string", "minLength": 1, "maxLength": 256, **schema}, description)


def choice(name: str, *values: str) -> Parameter:
    """Return a parameter of a few values."""
    return Parameter(name, {"type": "string", "enum": list(values)})


def whole(name: str, least: int, most: int, default: int | None = None) -> Parameter:
    """Return a parameter of whole numbers."""
    schema: Json = {"type": "integer", "minimum": least, "maximum": most}
    return Parameter(name, schema if default is None else schema | {"default": default})


AFTER: Final = Parameter("after", {"type": "string"}, "`next_after` of the page before.")
PAGE: Final = (whole("limit", 1, MAX_LIMIT, DEFAULT_LIMIT), AFTER)
IDEMPOTENCY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$"},
    "The same key and body get the same answer; another body is 409.",
    place="header",
)
REASON: Final = text("reason", "Kept in the audit; a longer one goes in the body.", maxLength=MAX_QUERY_TEXT)
WAIT: Final = Parameter("wait", {"type": "integer", "minimum": 0, "maximum": 60, "default": 0}, "Seconds to wait.")
PLATFORM: Final = text("platform_id")
TIMES: Final = tuple(Parameter(name, {"type": "string", "format": "date-time"}) for name in ("since", "until"))


def read(summary: str, tag: str, who: str, answer: type[BaseModel] | None = None, *query: Parameter) -> Operation:
    """Return a question with a document of the caller's own."""
    return Operation(summary, tag, who, answer, parameters=query, conditional=True)


def proxied(summary: str, tag: str, *query: Parameter) -> Operation:
    """Return a question of an operator that an orchestrator answers."""
    return Operation(summary, tag, OPERATORS, parameters=query)


def order(
    summary: str, who: str, body: type[BaseModel], answer: type[BaseModel], *, needed: bool = False, tag: str = "assets"
) -> Operation:
    """Return an order about something that exists; without `needed` it may come without a body."""
    return Operation(summary, tag, who, answer, body=body, body_required=needed)
