"""How operators' commands call: through the gateway's proxy, with the operator's own key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from cli.commands.review import call
from cli.target import Target

Json = dict[str, Any]
ReasonOption = Annotated[str | None, typer.Option(help="Kept with the order in the log of each job.")]


def operate(home: Path, method: str, path: str, body: Json | None = None) -> Json:
    """Return an orchestrator's answer to an operator; `path` begins behind /api/v1/ and is encoded."""
    said = None if body is None else {key: value for key, value in body.items() if value is not None}
    return call(Target.of(home), "operator", method, f"/api/proxy/orchestrator/api/v1/{path}", said)


def query_of(values: Mapping[str, object]) -> str:
    """Return a query without the question mark; what is None is not said."""
    return urlencode({name: value for name, value in values.items() if value is not None})


def segment(text: str) -> str:
    """Return a name as one segment of a path."""
    return quote(text, safe="")
