"""`geodag job`: order something for one job, for one of its nodes, or for all that a filter means."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.looking import JobArgument, NodeArgument
from cli.commands.submit import WrongCommandLine, json_object
from cli.operator import Json, ReasonOption, operate, segment
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import counted, key_value_table, none_matches, print_text, row_table, show
from core.dag.definition import PRIORITY_NAMES
from core.statuses import JobStatus

app = typer.Typer(no_args_is_help=True, help="Start jobs, look at them and tell them what to do, as an operator.")

FILTER_WORDS = {
    "workflow_id": "workflow", "older_than_seconds": "older-than", "correlation_id": "request", "error_code": "error",
}  # fmt: skip
"""Options of a filter, where the API has another name."""
MOST_URGENT = 10
OUTCOME_COLUMNS = ("job_id", "workflow_id", "status", "outcome", "code")

OneOrMany = Annotated[str | None, typer.Argument(help="The job's id; left out, all that the filter means.")]
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
    """Change how urgent a job is: the value first, then the job."""
    _check_priority(value)
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
    wanted = _by_outcome(workflow, status, older_than, request, error)
    _order(home, "retry", job, wanted, {}, reason, limit, dry_run, as_json)


@app.command()
def rerun(
    job: OneOrMany = None,
    node: Annotated[str | None, typer.Argument(help="From this node on; from the start when left out.")] = None,
    workflow: WorkflowFilter = None, status: StatusFilter = None, older_than: AgeFilter = None,
    request: RequestFilter = None, error: ErrorFilter = None,
    params: Annotated[str | None, typer.Option(help="JSON object put over the node's params; {} takes it off.")] = None,
    run_no: Annotated[
        int | None, typer.Option(min=1, help="Only while the job is still in this run, as `job show` says.")
    ] = None,
    only_unsuccessful: Annotated[bool, typer.Option(help="Only jobs that failed or were cancelled.")] = False,
    dry_run: DryRunOption = False, limit: LimitOption = 100, reason: ReasonOption = None,
    home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Run a job again from its start, or from one of its nodes on."""
    wanted = _by_outcome(workflow, status, older_than, request, error)
    found = {
        "params": None if params is None else json_object(params, "--params"),
        "run_no": run_no,
        "only_unsuccessful": only_unsuccessful or None,
    }
    args = {name: value for name, value in found.items() if value is not None}
    if job is None or node is None or wanted:
        _order(home, "rerun", job, wanted, args, reason, limit, dry_run, as_json)
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
    args = {"decision": decision.value, "data": None if data is None else json_object(data, "--data")}
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


def _check_priority(value: str) -> None:
    """Refuse what is no priority, as it is when the job comes first. Raises `WrongCommandLine`."""
    if value not in PRIORITY_NAMES and not (value.isdecimal() and int(value) <= MOST_URGENT):
        names = ", ".join(PRIORITY_NAMES)
        raise WrongCommandLine(
            f"the value comes first, 0 to {MOST_URGENT} or one of {names}, then the job; found {value!r} as the value"
        )


def _by_outcome(
    workflow: str | None, status: JobStatus | None, older_than: float | None, request: str | None, error: str | None
) -> Json:
    """Return the filter of orders that start jobs anew."""
    return _filter(
        workflow=workflow, status=status, older_than_seconds=older_than, correlation_id=request, error_code=error
    )


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
