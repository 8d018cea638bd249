"""Decides how a job ends: by its nodes, its deadline, or because nothing can happen any more."""

from collections.abc import Iterable, Sequence
from typing import Any

from core.dag.definition import Workflow
from core.dag.rendering import Rendered
from core.dag.run import Run
from core.dag.templates import TemplateFailed
from core.dag.values import Ask, Needed, value_of
from core.dag.why import told
from core.errors import ErrorDetail
from core.models.engine import NodeState
from core.statuses import JobStatus, NodeStatus

_ACTIVE = frozenset({NodeStatus.READY, NodeStatus.WAITING, NodeStatus.DISPATCHED, NodeStatus.RUNNING})

MOST_NAMED = 5
"""Nodes that an error lists."""
OUTPUTS_BYTES = 1 << 20
"""Outputs up to this size are also handed on as a value, to whoever stores them with the end of the job."""


def conclude(run: Run) -> None:
    """End the job when it is over."""
    unfinished = run.unfinished()
    if not unfinished:
        _finish(run)
    elif run.overdue:
        abort(run, _late(run, unfinished))
    elif _is_stalled(run, unfinished):
        message = f"nothing can happen any more; unfinished are {', '.join(unfinished)}"
        abort(run, ErrorDetail(code="STALLED", message=message))


def _late(run: Run, unfinished: Sequence[str]) -> ErrorDetail:
    """Return the error of a job whose time is over: what it was at."""
    active = [node_id for node_id in unfinished if run.nodes[node_id].status in _ACTIVE] or unfinished
    shown = ", ".join(_state_of(run.nodes[node_id]) for node_id in active[:MOST_NAMED])
    more = f" and {len(active) - MOST_NAMED} more" if len(active) > MOST_NAMED else ""
    limit = f"{run.workflow.deadline_seconds or 0:.15g}"
    return ErrorDetail(
        code="JOB_DEADLINE",
        message=f"the job was not done within its {limit} seconds; open were {shown}{more}",
        field="deadline_seconds",
        node_id=active[0],
        remediation="See what held these up, then retry the job; or give its workflow more time.",
    )


def _state_of(node: NodeState) -> str:
    noted = told(node.waiting_for)
    reason = f" for {noted['kind']}" if noted else ""
    return f"{node.node_id} ({node.status.value}{reason})"


def _is_stalled(run: Run, unfinished: Iterable[str]) -> bool:
    """Return whether nobody will ever move one of these nodes."""
    if run.job.paused_at is not None or run.needs:
        return False
    return not any(run.nodes[node_id].status in _ACTIVE for node_id in unfinished)


def _finish(run: Run) -> None:
    """Every node is final: FAILED by a node that counts, else COMPLETED with outputs and warnings.

    What was cancelled in an earlier run and was not started anew has not been done: the job is CANCELLED again.
    """
    failed = sorted(run.failed(), key=lambda key: run.nodes[key].completed_at or run.now)
    if failed:
        fail_job(run, _root_cause(run, failed[0]))
        return
    if undone := [key for key in run.workflow.graph.order if run.nodes[key].status is NodeStatus.CANCELLED]:
        reason = f"{', '.join(undone)} cancelled before and not started anew"
        run.move_job(JobStatus.CANCELLED, data={"actor": "engine", "reason": reason})
        return
    try:
        _complete(run, value_of(run, _outputs_of(run.workflow)))
    except TemplateFailed as error:
        message = f"the declared outputs have no value: {error.detail.message}"
        fail_job(run, error.detail.model_copy(update={"message": message}))
    except Needed as needed:
        run.need(needed.rendering)


def _outputs_of(workflow: Workflow) -> Ask:
    return Ask("outputs", workflow.outputs, workflow.outputs_program, value_bytes=OUTPUTS_BYTES)


def _complete(run: Run, outputs: Rendered) -> None:
    warnings = _warnings(run)
    run.outputs = outputs.value
    stored = {"outputs": outputs.value} if outputs.ref is None else {"outputs_ref": outputs.ref.model_dump()}
    run.move_job(JobStatus.COMPLETED, **stored, warnings=warnings, data={"warnings": len(warnings)})


def _root_cause(run: Run, node_id: str) -> ErrorDetail:
    """Return the error of the node that failed first, which names the node and its attempts."""
    error = run.nodes[node_id].error or {"code": "INTERNAL", "message": f"node {node_id} failed without an error"}
    return ErrorDetail.model_validate(error).model_copy(update={"node_id": node_id})


def _warnings(run: Run) -> list[Any]:
    """Return the failures that do not fail the job."""
    return [
        _root_cause(run, node_id).model_dump(mode="json", exclude_none=True)
        for node_id in run.all_failed()
        if run.workflow.nodes[node_id].best_effort
    ]


def abort(run: Run, error: ErrorDetail) -> None:
    """End the job as FAILED although nodes of it could go on."""
    run.cancel_unfinished(error.code.lower())
    fail_job(run, error)


def fail_job(run: Run, error: ErrorDetail) -> None:
    """End the job as FAILED with its root cause."""
    data = {"code": error.code, "message": error.message, "node_id": error.node_id}
    detail = error.model_dump(mode="json", exclude_none=True)
    run.move_job(JobStatus.FAILED, error=detail, warnings=_warnings(run), data=data)
