"""What can go wrong for somebody at the terminal, how it is shown, and the exit code it gives."""

import os
from enum import IntEnum
from http import HTTPStatus
from typing import Any

from rich.table import Table

from cli.output import key_value_table, print_error, print_json, print_table
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


class JobNotCompleted(CliError):
    """A job ended, or stands still in supposed time, without having completed."""

    exit_code = ExitCode.PROCESSING_FAILED


KEY_VARIABLE = "GEODAG_API_KEY"
ERROR_ROWS = ("code", "field", "value", "message", "remediation", "next_actions", "key", "error_id")


def error_table(title: str, error: dict[str, Any]) -> Table:
    """Return a two-column table of what an `ErrorDetail` or problem document says."""
    said = {"message": error.get("detail")} | {key: value for key, value in error.items() if value is not None}
    rows = {key: said[key] for key in ERROR_ROWS if said.get(key) not in (None, "", [], ())}
    return key_value_table(title, rows, style="bold red")


def _may_be_of_role(refused: Refused) -> bool:
    """Return whether another key might have been let in; the gateway hides from a role that a route is there."""
    hidden = refused.status == HTTPStatus.NOT_FOUND and refused.problem.get("field") in {None, "path"}
    return hidden or refused.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


def _about_key(error: CliError) -> dict[str, Any]:
    """Return, for who is refused for his role, that a key of the environment was used for all of them."""
    if not isinstance(error, Refused) or not _may_be_of_role(error) or not os.environ.get(KEY_VARIABLE):
        return {}
    return {
        "key": f"{KEY_VARIABLE} of the environment, in place of the home's key of the role; unset it to use that one"
    }


def show_error(error: CliError, *, as_json: bool) -> int:
    """Print an error to stderr, readable or as JSON, and return the exit code."""
    if as_json:
        document = getattr(error, "problem", None) or getattr(error, "status", None) or {"detail": str(error)}
        print_json(document | _about_key(error), stderr=True)
    elif isinstance(error, Refused):
        print_table(error_table(f"Refused with HTTP {error.status}", error.problem | _about_key(error)), stderr=True)
    elif isinstance(error, NotDone):
        print_table(error_table("Not done", error.problem), stderr=True)
    elif isinstance(error, ProcessingFailed):
        print_error(str(error))
        for detail in error.status.get("errors") or []:
            print_table(error_table("Error", detail), stderr=True)
    else:
        print_error("Error: ", str(error))
    return int(error.exit_code)
