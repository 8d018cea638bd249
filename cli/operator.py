"""How operators' commands call: through the gateway's proxy, with the operator's own key."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from cli.commands.review import call
from cli.target import Target
from core.statuses import JobStatus

Json = dict[str, Any]
MOST_ROWS = 1000
"""That one answer has of jobs or events."""
OnlyStatus = Annotated[JobStatus | None, typer.Option(case_sensitive=False, help="Only jobs in this status.")]
OnlyWorkflow = Annotated[str | None, typer.Option(help="Only jobs of this workflow.")]
AtMost = Annotated[int, typer.Option(min=1, help="Jobs at most.")]
ReasonOption = Annotated[str | None, typer.Option(help="Kept with the order in the log of each job.")]


def operate(
    home: Path, method: str, path: str, body: Json | None = None, headers: Mapping[str, str] | None = None
) -> Json:
    """Return an orchestrator's answer to an operator; `path` begins behind /api/v1/ and is encoded."""
    said = None if body is None else {key: value for key, value in body.items() if value is not None}
    return call(Target.of(home), "operator", method, f"/api/proxy/orchestrator/api/v1/{path}", said, headers=headers)


def query_of(values: Mapping[str, object]) -> str:
    """Return a query without the question mark; what is None is not said."""
    return urlencode({name: value for name, value in values.items() if value is not None})


def pages(ask: Callable[[str], Json], path: str, name: str, facts: Mapping[str, object]) -> Iterator[Json]:
    """Yield the rows of a list from its answers, page by page, as far as they are wanted.

    Beside the build before, in an upgrade, an answer may be the only page of its list, which does not say so.

    Args:
        ask: Answers a path.
        path: Of the list.
        name: Of its rows in an answer.
        facts: Filters, and how many rows a page may have.
    """
    after: object = None
    while True:
        page = ask(f"{path}?{query_of({**facts, 'after': after})}")
        yield from page[name]
        if (after := page.get("next_after")) is None:
            return


def segment(text: str) -> str:
    """Return a name as one segment of a path."""
    return quote(text, safe="")
