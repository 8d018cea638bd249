"""Consumes the inbox: each result is applied, superseded, or set aside as poison. One never blocks another."""

from typing import Any

from pydantic import ValidationError

from core.dag.child_jobs import waits_for_child
from core.dag.failures import fail_attempt, release_attempt
from core.dag.json_values import NotJson, check_json
from core.dag.nodes import TaskNode, WorkflowNode
from core.dag.run import Run
from core.dag.state import Disposition
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
    node = run.workflow.nodes.get(row.node_id)
    if row.job_id != run.job.job_id or not isinstance(node, TaskNode | WorkflowNode) or row.node_id not in run.nodes:
        return Disposition(row.task_id, POISON, f"{row.node_id} is not a task of this job")
    fenced = _fence(run, row)
    if fenced is not None:
        return Disposition(row.task_id, SUPERSEDED, fenced)
    if isinstance(node, WorkflowNode) and (attempt := run.attempt_of(row.node_id)) is not None:
        run.end_attempt(attempt, AttemptState.REPORTED, "its child job has ended")
    try:
        _apply(run, row)
    except Poison as poison:
        detail = ErrorDetail(code="RESULT_INVALID", message=str(poison))
        fail_attempt(run, row.node_id, detail)
        return Disposition(row.task_id, POISON, str(poison))
    return Disposition(row.task_id, APPLIED)


def _fence(run: Run, row: TaskResultRow) -> str | None:
    """Return why a result does not count any more, None when it does."""
    node = run.nodes[row.node_id]
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
            fail_attempt(run, row.node_id, _error(row))
        case "released":
            release_attempt(run, row.node_id, "released by its worker")
        case _:
            raise Poison(f"the result has the status {row.status!r}")


def _complete(run: Run, row: TaskResultRow) -> None:
    if row.output_ref is not None:
        _complete_with(run, row, None, row.output_ref)
        return
    if not isinstance(row.output, dict):
        raise Poison("the output is not a JSON object")
    try:
        check_json(row.output, "output")
    except NotJson as error:
        raise Poison(error.detail.message) from error
    _complete_with(run, row, row.output, None)


def _complete_with(run: Run, row: TaskResultRow, output: dict[str, Any] | None, ref: dict[str, Any] | None) -> None:
    run.move(row.node_id, NodeStatus.COMPLETED, output=output, output_ref=ref, error=None)


def _error(row: TaskResultRow) -> ErrorDetail:
    try:
        return ErrorDetail.model_validate(row.error)
    except ValidationError as error:
        raise Poison(f"the error of a failed result cannot be read: {error.error_count()} problems") from error
