"""Consumes the inbox: each result is applied, superseded, or set aside as poison. One never blocks another."""

from typing import Any

from pydantic import ValidationError

from core.dag import batches, endings
from core.dag.child_jobs import waits_for_child
from core.dag.json_values import NotJson, as_stored
from core.dag.nodes import FanOutNode, TaskNode, WorkflowNode
from core.dag.run import Run
from core.dag.state import Disposition
from core.dag.tallies import parent_of
from core.errors import ErrorDetail
from core.models.engine import TaskResultRow
from core.statuses import JOB_FINAL, AttemptState, NodeStatus

APPLIED = "applied"
SUPERSEDED = "superseded"
POISON = "poison"


class Poison(Exception):
    """A result that nobody can use."""


def consume_results(run: Run) -> None:
    """Give every inbox row its disposition, in the order given."""
    for row in run.state.results:
        run.dispositions.append(_consume(run, row))


def _consume(run: Run, row: TaskResultRow) -> Disposition:
    if row.job_id != run.job.job_id or not _is_task(run, row.node_id):
        return Disposition(row.task_id, POISON, f"{row.node_id} is not a task of this job")
    fenced = _fence(run, row)
    if fenced is not None:
        return Disposition(row.task_id, SUPERSEDED, fenced)
    node = run.workflow.nodes.get(row.node_id)
    if isinstance(node, WorkflowNode) and (attempt := run.attempt_of(row.node_id)) is not None:
        run.end_attempt(attempt, AttemptState.REPORTED, "its child job has ended")
    try:
        _apply(run, row)
    except Poison as poison:
        detail = ErrorDetail(code="RESULT_INVALID", message=str(poison))
        endings.failed(run, row.node_id, detail)
        return Disposition(row.task_id, POISON, str(poison))
    return Disposition(row.task_id, APPLIED)


def _is_task(run: Run, node_id: str) -> bool:
    """Return whether a node has attempts: a task, a child job, or a child of a fan-out."""
    if isinstance(run.workflow.nodes.get(node_id), TaskNode | WorkflowNode):
        return node_id in run.nodes
    return isinstance(run.workflow.nodes.get(parent_of(node_id) or ""), FanOutNode)


def _fence(run: Run, row: TaskResultRow) -> str | None:
    """Return why a result does not count any more, None when it does."""
    node = run.find(row.node_id)
    if node is None:
        return f"{row.node_id} is not there any more"
    if run.job.status in JOB_FINAL:
        return f"the job is {run.job.status}"
    if node.task_id != row.task_id or node.attempt != row.attempt + 1:
        return f"the current attempt is {node.attempt - 1}"
    if node.status not in {NodeStatus.DISPATCHED, NodeStatus.RUNNING} and not waits_for_child(node):
        return f"the node is {node.status}"
    attempt = run.attempt_of(row.node_id)
    if attempt is not None and attempt.state in {AttemptState.EXPIRED, AttemptState.REVOKED}:
        return f"the attempt is {attempt.state}"
    return None


def _apply(run: Run, row: TaskResultRow) -> None:
    match row.status:
        case "completed":
            _complete(run, row)
        case "failed":
            endings.failed(run, row.node_id, _error(row), row.outcomes or ())
        case "released":
            endings.released(run, row.node_id, "released by its worker", row.outcomes or ())
        case _:
            raise Poison(f"the result has the status {row.status!r}")


def _complete(run: Run, row: TaskResultRow) -> None:
    if endings.is_batch(run, row.node_id):
        batches.end_attempt(run, row.node_id, row.outcomes or (), batches.UNSAID)
        return
    if row.output_ref is not None:
        _complete_with(run, row, None, row.output_ref)
        return
    if not isinstance(row.output, dict):
        raise Poison("the output is not a JSON object")
    try:
        output = as_stored(row.output, "output")
    except NotJson as error:
        raise Poison(error.detail.message) from error
    _complete_with(run, row, output, None)


def _complete_with(run: Run, row: TaskResultRow, output: dict[str, Any] | None, ref: dict[str, Any] | None) -> None:
    fields: dict[str, Any] = {"output": output, "output_ref": ref, "error": None}
    attempt = run.attempt_of(row.node_id) if row.node_id in run.children else None
    if attempt is not None:  # a claim does not write the rows of children
        fields["started_at"] = attempt.leased_at
    run.move(row.node_id, NodeStatus.COMPLETED, **fields)


def _error(row: TaskResultRow) -> ErrorDetail:
    try:
        return ErrorDetail.model_validate(row.error)
    except ValidationError as error:
        raise Poison(f"the error of a failed result cannot be read: {error.error_count()} problems") from error
