"""`geodag job`: look at jobs and order something, for one job, one of its nodes, or all that a filter means."""

import json
from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from cli.commands.submit import WrongCommandLine
from cli.operator import MOST_ROWS, Json, ReasonOption, operate, pages, segment
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import counted, key_value_table, none_matches, print_text, row_table, show
from core.statuses import JobStatus, NodeStatus

app = typer.Typer(no_args_is_help=True, help="Start jobs, look at them and tell them what to do, as an operator.")

LIST_COLUMNS = ("job_id", "workflow_id", "status", "priority", "waiting for", "created_at", "completed_at")
NODE_COLUMNS = ("node_id", "status", "attempt", "waits for", "items", "error or reason")
FILTER_WORDS = {
    "workflow_id": "workflow", "older_than_seconds": "older-than", "correlation_id": "request", "error_code": "error",
}  # fmt: skip
"""Options of a filter, where the API has another name."""
OUTCOME_COLUMNS = ("job_id", "workflow_id", "status", "outcome", "code")
SHOWN = (
    "job_id", "workflow_id", "status", "run_no", "priority", "paused_at", "progress", "waiting_for", "cancelled",
    "error", "warnings", "outputs", "created_at", "started_at", "completed_at",
)  # fmt: skip

JobArgument = Annotated[str, typer.Argument(help="The job's id.")]
OneOrMany = Annotated[str | None, typer.Argument(help="The job's id; left out, all that the filter means.")]
NodeArgument = Annotated[str, typer.Argument(help="The node's id.")]
WorkflowFilter = Annotated[str | None, typer.Option("--workflow", help="Filter: jobs of this workflow.")]
StatusFilter = Annotated[
    JobStatus | None, typer.Option("--status", case_sensitive=False, help="Filter: in this status.")
]
AgeFilter = Annotated[float | None, typer.Option("--older-than", min=0, help="Filter: created before so many seconds.")]
RequestFilter = Annotated[str | None, typer.Option("--request", help="Filter: jobs that work for this request.")]
ErrorFilter = Annotated[str | None, typer.Option("--error", help="Filter: failed with this code.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")]
LimitOption = Annotated[int, typer.Option(min=1, max=1000, help="Jobs at once.")]


class GateWord(StrEnum):
    """What is decided about a gate."""

    APPROVED = "approved"
    REJECTED = "rejected"


@app.command("list")
def list_jobs(
    status: Annotated[JobStatus | None, typer.Option(case_sensitive=False, help="Only jobs in this status.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only jobs of this workflow.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Jobs at most.")] = 20,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the newest jobs."""
    facts = {"limit": min(limit, MOST_ROWS), "status": status, "workflow_id": workflow}
    jobs = list(islice(pages(lambda path: operate(home, "GET", path), "jobs", "jobs", facts), limit))
    rows = [{**row, "waiting for": _reason(row.get("waiting_for"))} for row in jobs]
    if not rows and not as_json:
        print_text(none_matches({"workflow": workflow, "status": status}))
        return
    show(jobs, row_table("Jobs", LIST_COLUMNS, rows), as_json=as_json)


@app.command("show")
def show_job(job: JobArgument, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Show a job, why each of its nodes waits and why it failed."""
    found = operate(home, "GET", f"jobs/{segment(job)}")
    nodes = operate(home, "GET", f"jobs/{segment(job)}/nodes")["nodes"]
    rows = [
        {
            **node,
            "waits for": _reason(node.get("waiting_for")),
            "items": _items(node.get("fan_out")),
            "error or reason": _ending(node, found),
        }
        for node in nodes
    ]
    facts = {name: found[name] for name in SHOWN if found.get(name) not in (None, [])}
    if cancelled := found.get("cancelled"):
        facts["cancelled"] = f"by {cancelled['by']} at {cancelled['at']}: {cancelled['reason'] or 'no reason given'}"
    picture = Group(key_value_table(f"Job {job}", facts), row_table("Nodes", NODE_COLUMNS, rows))
    show({**found, "nodes": nodes}, picture, as_json=as_json)


def _reason(waiting_for: Mapping[str, Any] | None) -> str | None:
    """Return why something waits as one line."""
    if not waiting_for:
        return None
    said = {name: _words(value) for name, value in waiting_for["detail"].items() if value is not None}
    return " ".join([waiting_for["kind"], *(f"{name}={value}" for name, value in said.items())])


def _ending(node: Mapping[str, Any], job: Mapping[str, Any]) -> str | None:
    """Return the error of a node, also that of an attempt before, or why it was skipped or cancelled."""
    if error := node.get("error"):
        return f"{error['code']}: {error['message']}"
    if node["status"] != NodeStatus.CANCELLED:
        return node.get("skip_reason")
    if node.get("completed_at") != job.get("completed_at"):
        return "cancelled: another node failed"
    return "cancelled with the job" if job["status"] == JobStatus.CANCELLED else "cancelled as the job failed"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{one}" for name, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _items(fan_out: Mapping[str, Any] | None) -> str | None:
    """Return how many items of a fan-out are done, how many ended undone, and what its open tasks are at, as one line.

    While items are left, the window too.
    """
    if fan_out is None:
        return None
    done, undone = fan_out["succeeded"] + fan_out["failed"], fan_out["skipped"]
    window = {"max_concurrency": fan_out["max_concurrency"]} if done + undone < fan_out["items"] else {}
    counts = {"undone": undone, **window, "running": fan_out["running"], **fan_out["waiting"]}
    said = {name: count for name, count in counts.items() if count}
    return " ".join([f"{done}/{fan_out['items']}", *([_words(said)] if said else [])])


@app.command()
def cancel(
    job: OneOrMany = None, workflow: WorkflowFilter = None, status: StatusFilter = None, older_than: AgeFilter = None,
    request: RequestFilter = None, dry_run: DryRunOption = False, limit: LimitOption = 100, reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Cancel a job at once, with its child jobs; workers stop what they are at."""
    wanted = _filter(workflow=workflow, status=status, older_than_seconds=older_than, correlation_id=request)
    _order(home, "cancel", job, wanted, {}, reason, limit, dry_run, as_json)


@app.command()
def pause(
    job: OneOrMany = None, workflow: WorkflowFilter = None, older_than: AgeFilter = None, request: RequestFilter = None,
    dry_run: DryRunOption = False, limit: LimitOption = 100, reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Let a job start nothing new; what runs finishes."""
    wanted = _filter(workflow=workflow, older_than_seconds=older_than, correlation_id=request)
    _order(home, "pause", job, wanted, {}, reason, limit, dry_run, as_json)


@app.command()
def resume(
    job: OneOrMany = None, workflow: WorkflowFilter = None, older_than: AgeFilter = None, request: RequestFilter = None,
    dry_run: DryRunOption = False, limit: LimitOption = 100, reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Let a paused job go on."""
    wanted = _filter(workflow=workflow, older_than_seconds=older_than, correlation_id=request)
    _order(home, "resume", job, wanted, {}, reason, limit, dry_run, as_json)


@app.command()
def priority(
    value: Annotated[str, typer.Argument(help="0 to 10, or interactive, routine, backfill.")],
    job: OneOrMany = None, workflow: WorkflowFilter = None, older_than: AgeFilter = None, request: RequestFilter = None,
    dry_run: DryRunOption = False, limit: LimitOption = 100, reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Change how urgent a job is."""
    wanted = _filter(workflow=workflow, older_than_seconds=older_than, correlation_id=request)
    args = {"priority": int(value) if value.isdecimal() else value}
    _order(home, "priority", job, wanted, args, reason, limit, dry_run, as_json)


@app.command()
def retry(
    job: OneOrMany = None, workflow: WorkflowFilter = None, status: StatusFilter = None, older_than: AgeFilter = None,
    request: RequestFilter = None, error: ErrorFilter = None, dry_run: DryRunOption = False, limit: LimitOption = 100,
    reason: ReasonOption = None, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Start the failed nodes of a job anew, with all that follows."""
    wanted = _filter(
        workflow=workflow, status=status, older_than_seconds=older_than, correlation_id=request, error_code=error
    )
    _order(home, "retry", job, wanted, {}, reason, limit, dry_run, as_json)


@app.command()
def rerun(
    job: JobArgument,
    node: Annotated[str | None, typer.Argument(help="From this node on; from the start when left out.")] = None,
    params: Annotated[str | None, typer.Option(help="JSON object put over the node's params; {} takes it off.")] = None,
    run_no: Annotated[
        int | None, typer.Option(min=1, help="Only while the job is still in this run, as `job show` says.")
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Run a job again from one of its nodes on."""
    args = {"params": _object(params, "--params"), "run_no": run_no}
    if node is None:
        _order(home, "rerun", job, {}, args, reason, 1, dry_run, as_json)
    else:
        _order_node(home, job, node, "rerun", args, reason, dry_run, as_json)


@app.command()
def skip(
    job: JobArgument,
    node: NodeArgument,
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Pass a node over; what follows it goes on."""
    _order_node(home, job, node, "skip", {}, reason, dry_run, as_json)


@app.command()
def gate(
    job: JobArgument,
    node: NodeArgument,
    decision: GateWord,
    data: Annotated[str | None, typer.Option(help="JSON object for the nodes that follow.")] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Decide a gate; the first decision wins."""
    args = {"decision": decision.value, "data": _object(data, "--data")}
    _order_node(home, job, node, "gate", args, reason, dry_run, as_json)


@app.command()
def window(
    job: JobArgument,
    node: NodeArgument,
    tasks: Annotated[int, typer.Argument(min=1, max=10_000, help="Tasks that are out at a time.")],
    dry_run: DryRunOption = False,
    reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Change the window of a fan-out while it runs."""
    _order_node(home, job, node, "window", {"max_concurrency": tasks}, reason, dry_run, as_json)


def _filter(*, workflow: str | None, **said: Any) -> Json:
    found = {"workflow_id": workflow, **said}
    return {name: value for name, value in found.items() if value is not None}


def _order(
    home: Path, kind: str, job: str | None, wanted: Json, args: Json, reason: str | None, limit: int,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Order something for one job, or for all that the filter means."""
    if job is not None:
        if wanted:
            raise WrongCommandLine("give either a job or a filter")
        _order_one(home, f"jobs/{segment(job)}/{kind}", args, reason, dry_run, as_json)
        return
    if not wanted:
        raise WrongCommandLine("give a job, or say by a filter which jobs are meant")
    body = {"filter": wanted, "args": args, "reason": reason, "limit": limit, "dry_run": dry_run}
    answer = operate(home, "POST", f"commands/{kind}", body)
    if not answer["jobs"] and not as_json:
        print_text(none_matches({FILTER_WORDS.get(name, name): value for name, value in wanted.items()}))
        return
    title = f"{kind}: {counted(len(answer['jobs']), 'job')}" + (", more are meant" if answer["more"] else "")
    show(answer, row_table(title, OUTCOME_COLUMNS, answer["jobs"]), as_json=as_json)


def _order_node(
    home: Path, job: str, node: str, kind: str, args: Json, reason: str | None, dry_run: bool, as_json: bool
) -> None:
    _order_one(home, f"jobs/{segment(job)}/nodes/{segment(node)}/{kind}", args, reason, dry_run, as_json)


def _order_one(home: Path, path: str, args: Json, reason: str | None, dry_run: bool, as_json: bool) -> None:
    answer = operate(home, "POST", path, {**args, "reason": reason, "dry_run": dry_run or None})
    job = answer["job"]
    facts = {"command": answer["command"], "state": answer["state"]}
    facts |= {
        name: job[name] for name in ("job_id", "status", "run_no", "priority", "paused_at") if job[name] is not None
    }
    if node := answer.get("node"):
        facts |= {"node_id": node["node_id"], "node": node["status"]}
        if fan_out := node.get("fan_out"):
            facts["max_concurrency"] = fan_out["max_concurrency"]
    show(answer, key_value_table("Ordered", facts), as_json=as_json)


def _object(text: str | None, option: str) -> Json | None:
    """Return a JSON object from the command line."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise WrongCommandLine(f"{option} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise WrongCommandLine(f"{option} is not a JSON object")
    return value
