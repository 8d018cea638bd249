"""`geodag job run`: starts a job of any workflow, as an operator, and waits for its end where that is asked for."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

from cli.commands.looking import reason_of
from cli.commands.submit import WAIT_SECONDS, WrongCommandLine, check_sendable, json_object, patiently_get
from cli.errors import JobNotCompleted
from cli.operator import Json, operate
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, print_text, print_warning, show
from cli.target import Target
from core.errors import ParameterInvalid
from core.json_keys import RepeatedKey, unique
from core.statuses import JOB_FINAL, JobStatus
from core.submission import idempotency_key

ENDED = ("job_id", "workflow_id", "workflow_version", "status", "run_no", "outputs", "outputs_ref", "error", "warnings")
STDIN = "-"


def run(
    workflow: Annotated[str, typer.Argument(help="Id of the workflow; `geodag workflow list` has them.")],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help='NAME=VALUE, many times; VALUE is JSON, else a text. The text 5: NAME="5" in quotes.'
        ),
    ] = None,
    inputs: Annotated[
        str | None, typer.Option(help="File with a JSON object of inputs, - for stdin; --input wins.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="Version of the workflow; else its default.")] = None,
    priority: Annotated[str | None, typer.Option(help="0 to 10, or interactive, routine, backfill.")] = None,
    again: Annotated[
        bool,
        typer.Option("--rerun", help="Start the job of a workflow that deduplicates anew when it was unsuccessful."),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="A text of yours: the same command again starts no second job."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit code 4 unless it completed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the job's id alone, for scripts.")] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Start a job of a workflow and show it; Ctrl-C ends the waiting, not the job."""
    if quiet and as_json:
        raise WrongCommandLine("--quiet and --json exclude each other: the one prints the id alone, the other all")
    body = {
        "workflow_id": workflow,
        "version": version,
        "inputs": (_object(inputs) if inputs is not None else {}) | _pairs(given or []),
        "priority": int(priority) if priority is not None and priority.isdecimal() else priority,
    }
    created = operate(home, "POST", "jobs" + ("?rerun=true" if again else ""), body, _headers(key))
    if not wait:
        picture = key_value_table("Started" if not created["existing"] else "Was there", created)
        _show(created, picture, quiet=quiet, as_json=as_json)
        return
    was_over = created["existing"] and created["status"] in JOB_FINAL
    job = asyncio.run(_ended(Target.of(home), created["job_id"]))
    facts = {name: job[name] for name in ENDED if job.get(name) not in (None, [])}
    picture = key_value_table("Was there" if was_over else "Ended", facts)
    _show({**job, "existing": created["existing"]}, picture, quiet=quiet, as_json=as_json)
    if was_over and not as_json and not quiet:
        why = "the workflow deduplicates, and this job" if key is None else "the key was used before, and its job"
        print_text(f"Nothing ran now: {why} had ended. {_way_to_run(job, key)}\n")
    if job["status"] != JobStatus.COMPLETED:
        raise JobNotCompleted(f"job {job['job_id']} ended as {job['status']}")


def _headers(key: str | None) -> dict[str, str]:
    """Return the header of an idempotency key. Raises `WrongCommandLine` for one that can be none."""
    try:
        return {} if idempotency_key(None, key) is None else {"Idempotency-Key": str(key)}
    except ParameterInvalid as error:
        raise WrongCommandLine(str(error)) from error


def _show(job: Json, picture: Table, *, quiet: bool, as_json: bool) -> None:
    """Print a job as `show` does, or its id alone."""
    if quiet:
        print_text(f"{job['job_id']}\n")
    else:
        show(job, picture, as_json=as_json)


def _way_to_run(job: Json, key: str | None) -> str:
    """Return how a job that has ended runs again."""
    if key is not None or job["status"] == JobStatus.COMPLETED:
        return f"`geodag job rerun {job['job_id']}` runs it again."
    return "--rerun starts it anew."


def _pairs(given: list[str]) -> Json:
    """Return inputs by name. Raises `WrongCommandLine` when one is given twice."""
    found: Json = {}
    for name, value in map(_pair, given):
        if name in found:
            raise WrongCommandLine(f"--input {name} is given twice; a list is one value: {name}='[1, 2]'")
        found[name] = value
    return found


def _pair(text: str) -> tuple[str, Any]:
    """Return name and value of an input; what is not JSON is a text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise WrongCommandLine(f"--input needs NAME=VALUE, found {text!r}")
    found = _value(name, value)
    check_sendable(name, "a name of --input")
    check_sendable(found, f"--input {name}")
    return name, found


def _value(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=_no_constant)
    except RepeatedKey as error:
        raise WrongCommandLine(f"--input {name}: {error}") from error
    except json.JSONDecodeError:
        return text
    except ValueError as error:
        raise WrongCommandLine(f"--input {name} has a number with too many digits") from error
    except RecursionError as error:
        raise WrongCommandLine(f"--input {name} is nested too deeply") from error


def _no_constant(word: str) -> Any:
    """Refuse NaN and Infinity, which Python takes for JSON."""
    raise json.JSONDecodeError("not JSON", word, 0)


def _object(source: str) -> Json:
    """Return the inputs of a file or of stdin."""
    try:
        text = sys.stdin.read() if source == STDIN else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongCommandLine(f"--inputs: {source} cannot be read: {error}") from error
    except ValueError as error:
        raise WrongCommandLine(f"--inputs is not JSON: {error}") from error
    return json_object(text, "--inputs", object_pairs_hook=unique)


async def _ended(target: Target, job_id: str) -> Json:
    """Return a job once it is final, saying meanwhile what it waits for; a platform that is away loses none."""
    url = f"{target.urls.gateway}/api/proxy/orchestrator/api/v1/jobs/{quote(job_id, safe='')}?wait={WAIT_SECONDS}"
    said: str | None = None
    async with target.client("operator") as client:
        while True:
            job = await patiently_get(client, url)
            if job["status"] in JOB_FINAL:
                return job
            reason = reason_of(job.get("waiting_for"))
            told = (
                f"{job_id} waits: {reason}" if reason else f"{job_id} is {job['status']}; `geodag job show` says more"
            )
            if told != said:
                print_warning(f"{job_id} {told}")
                said = told
