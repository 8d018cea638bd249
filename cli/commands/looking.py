"""`geodag job list`, `show`, `node` and `children`: what is to be seen of jobs, their nodes and items of fan-outs."""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Group

from cli.operator import MOST_ROWS, AtMost, Json, OnlyStatus, OnlyWorkflow, operate, pages, segment
from cli.options import DEFAULT_HOME, HomeOption, JsonOption
from cli.output import key_value_table, none_matches, print_json, print_text, row_table, show, words_of
from core.statuses import JobStatus, NodeStatus

LIST_COLUMNS = ("job_id", "workflow_id", "status", "priority", "waiting for", "created_at", "completed_at")
NODE_COLUMNS = ("node_id", "status", "attempt", "waits for", "items", "error or reason")
CHILD_COLUMNS = ("node_id", "status", "attempt", "waits for", "error or reason")
MOST_CHILDREN = 200
"""That one answer has of children."""
SHOWN = (
    "job_id", "workflow_id", "status", "run_no", "parent_task_id", "priority", "paused_at", "progress", "waiting_for",
    "cancelled", "error", "warnings", "outputs", "created_at", "started_at", "completed_at",
)  # fmt: skip
SHOWN_OF_NODE = (
    "node_id", "status", "attempt", "waiting_for", "skip_reason", "fan_out", "child_job_id", "running", "error",
    "input_params", "input_ref", "output", "output_ref", "ready_at", "started_at", "completed_at",
)  # fmt: skip
JobArgument = Annotated[str, typer.Argument(help="The job's id.")]
NodeArgument = Annotated[str, typer.Argument(help="The node's id.")]


def list_jobs(
    status: OnlyStatus = None,
    workflow: OnlyWorkflow = None,
    limit: AtMost = 20,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the newest jobs."""
    facts = {"limit": min(limit, MOST_ROWS), "status": status, "workflow_id": workflow}
    jobs = list(islice(pages(lambda path: operate(home, "GET", path), "jobs", "jobs", facts), limit))
    rows = [{**row, "waiting for": reason_of(row.get("waiting_for"))} for row in jobs]
    if not rows and not as_json:
        print_text(none_matches({"workflow": workflow, "status": status}))
        return
    show(jobs, row_table("Jobs", LIST_COLUMNS, rows), as_json=as_json)


def show_job(
    job: JobArgument,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Print its outputs alone, as JSON, however large they are.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show a job, why each of its nodes waits and why it failed."""
    if outputs:
        print_json(operate(home, "GET", f"jobs/{segment(job)}/outputs"))
        return
    found = operate(home, "GET", f"jobs/{segment(job)}")
    nodes = operate(home, "GET", f"jobs/{segment(job)}/nodes")["nodes"]
    rows = [
        {
            **node,
            "waits for": reason_of(node.get("waiting_for")),
            "items": _items(node.get("fan_out")),
            "error or reason": _ending(node, found),
        }
        for node in nodes
    ]
    facts = {name: found[name] for name in SHOWN if found.get(name) not in (None, [])}
    if stored := found.get("outputs_ref"):
        facts["outputs"] = f"{stored['size_bytes']} bytes; geodag job show {job} --outputs"
    if cancelled := found.get("cancelled"):
        facts["cancelled"] = f"by {cancelled['by']} at {cancelled['at']}: {cancelled['reason'] or 'no reason given'}"
    if failed := _failed_fan_out(found, nodes):
        facts["its items"] = f"geodag job children {job} {failed} --status FAILED"
    picture = Group(key_value_table(f"Job {job}", facts), row_table("Nodes", NODE_COLUMNS, rows))
    show({**found, "nodes": nodes}, picture, as_json=as_json)


def show_node(
    job: JobArgument,
    node: NodeArgument,
    output: Annotated[
        bool, typer.Option("--output", help="Print its output alone, as JSON, however large it is.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Show one node, or one item of a fan-out (NODE__0): params, output, error with the attempts before."""
    path = f"jobs/{segment(job)}/nodes/{segment(node)}"
    if output:
        print_json(operate(home, "GET", f"{path}/output"))
        return
    found = operate(home, "GET", path)
    facts = {name: found[name] for name in SHOWN_OF_NODE if found.get(name) not in (None, [], {})}
    show(found, key_value_table(f"Node {node} of job {job}", facts), as_json=as_json)


def list_children(
    job: JobArgument,
    node: NodeArgument,
    status: Annotated[NodeStatus | None, typer.Option(case_sensitive=False, help="Only those in this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Children at most.")] = 50,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """List the children that a fan-out has made, in their order; `geodag job node` shows one whole."""
    path = f"jobs/{segment(job)}/nodes/{segment(node)}/children"
    facts = {"limit": min(limit, MOST_CHILDREN), "status": status}
    found = list(islice(pages(lambda asked: operate(home, "GET", asked), path, "nodes", facts), limit))
    rows = [
        {**one, "waits for": reason_of(one.get("waiting_for")), "error or reason": _why(one) or one.get("skip_reason")}
        for one in found
    ]
    show(found, row_table(f"Children of {node}", CHILD_COLUMNS, rows), as_json=as_json)


def _failed_fan_out(job: Mapping[str, Any], nodes: list[Json]) -> str | None:
    """Return the fan-out that a job failed of; what was tried before has each of its items, not the job's error.

    One that was only late, when the deadline of the job came, has none that failed.
    """
    failed = (job.get("error") or {}).get("node_id")
    return next(
        (failed for one in nodes if one["node_id"] == failed and (one.get("fan_out") or {}).get("failed")), None
    )


def reason_of(waiting_for: Mapping[str, Any] | None) -> str | None:
    """Return why something waits as one line."""
    if not waiting_for:
        return None
    said = {name: words_of(value) for name, value in waiting_for["detail"].items() if value is not None}
    return " ".join([waiting_for["kind"], *(f"{name}={value}" for name, value in said.items())])


def _why(node: Mapping[str, Any]) -> str | None:
    error = node.get("error")
    return f"{error['code']}: {error['message']}" if error else None


def _ending(node: Mapping[str, Any], job: Mapping[str, Any]) -> str | None:
    """Return the error of a node, also that of an attempt before, or why it was skipped or cancelled."""
    if node["status"] != NodeStatus.CANCELLED:
        return _why(node) or node.get("skip_reason")
    return "; before that ".join(filter(None, (_cancelled(node, job), _why(node))))


def _cancelled(node: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """Say with what a node was cancelled, as far as times tell: one of an earlier run may have been with anything."""
    if node.get("completed_at") == job.get("completed_at"):
        return "cancelled with the job" if job["status"] == JobStatus.CANCELLED else "cancelled as the job failed"
    return "cancelled: another node failed" if job.get("run_no", 1) == 1 else "cancelled earlier, see geodag events"


def _items(fan_out: Mapping[str, Any] | None) -> str | None:
    """Return how many items of a fan-out are done, how many ended undone, and what its open tasks are at, as one line.

    While items are left, the window too, which the build before does not tell.
    """
    if fan_out is None:
        return None
    done, undone = fan_out["succeeded"] + fan_out["failed"], fan_out["skipped"]
    window = {"max_concurrency": fan_out.get("max_concurrency")} if done + undone < fan_out["items"] else {}
    counts = {"undone": undone, **window, "running": fan_out["running"], **fan_out["waiting"]}
    said = {name: count for name, count in counts.items() if count}
    return " ".join([f"{done}/{fan_out['items']}", *([words_of(said)] if said else [])])
