"""What can go wrong for somebody at the terminal, how it is shown, and the exit code it gives."""

import json
import sys
from enum import IntEnum
from typing import Any

from rich.console import Console
from rich.table import Table

from core.errors import GeodagError


class ExitCode(IntEnum):
    """2 is Typer's own, for a wrong command line."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    PROCESSING_FAILED = 4


class CliError(Exception):
    """Root of the command's own errors."""

    exit_code = ExitCode.REFUSED


class Unreachable(CliError):
    """Nothing answers at an address, or no stack runs in a home."""

    exit_code = ExitCode.UNREACHABLE


class Refused(CliError):
    """The platform answered with problem details."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or f"HTTP {status}")
        self.status = status
        self.problem = problem
        if status >= 500:
            self.exit_code = ExitCode.UNREACHABLE


class NotDone(CliError):
    """What a command does by itself, beside the platform, was refused or failed."""

    def __init__(self, error: GeodagError) -> None:
        super().__init__(str(error))
        self.problem = error.detail.model_dump(mode="json", exclude_none=True)


class ProcessingFailed(CliError):
    """A request was accepted but its processing failed or was cancelled."""

    exit_code = ExitCode.PROCESSING_FAILED

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(f"request {status.get('request_id')} ended as {status.get('state')}")
        self.status = status


ERROR_ROWS = ("code", "field", "value", "message", "remediation", "next_actions", "error_id")


def error_table(title: str, error: dict[str, Any]) -> Table:
    """Return a two-column table of what an `ErrorDetail` or problem document says."""
    table = Table(title=title, title_style="bold red", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    shown = {"message": error.get("detail")} | {key: value for key, value in error.items() if value is not None}
    for key in ERROR_ROWS:
        value = shown.get(key)
        if value not in (None, "", [], ()):
            table.add_row(key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return table


def show_error(error: CliError, *, as_json: bool) -> int:
    """Print an error to stderr, readable or as JSON, and return the exit code."""
    console = Console(stderr=True)
    if as_json:
        document = getattr(error, "problem", None) or getattr(error, "status", None) or {"detail": str(error)}
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
    elif isinstance(error, Refused):
        console.print(error_table(f"Refused with HTTP {error.status}", error.problem))
    elif isinstance(error, NotDone):
        console.print(error_table("Not done", error.problem))
    elif isinstance(error, ProcessingFailed):
        console.print(f"[bold red]{error}[/]")
        for detail in error.status.get("errors") or []:
            console.print(error_table("Error", detail))
    else:
        console.print(f"[bold red]Error:[/] {error}", highlight=False)
    return int(error.exit_code)
