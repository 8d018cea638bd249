"""Tasks: params are rendered and checked, then an attempt is sent."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from core.dag.nodes import TaskNode
from core.dag.run import Prepared, Run
from core.dag.scope import scope_of
from core.dag.state import Dispatch
from core.dag.templates import TemplateFailed, render
from core.errors import ErrorDetail
from core.handlers_catalog import HandlerSpec
from core.ids import canonical_json, task_id
from core.statuses import JobStatus, NodeStatus


def go_on(run: Run, node_id: str, node: TaskNode) -> None:
    """Prepare a READY task for dispatch, unless something holds it."""
    if run.job.paused_at is not None:
        run.wait_for(node_id, "paused")
    elif not run.overdue and node_id not in run.prepared:
        _prepare(run, node_id, node)


def _prepare(run: Run, node_id: str, node: TaskNode) -> None:
    """Render and check the params; what is wrong with them is final, the same would happen again."""
    spec = run.catalog.get(node.handler)
    if spec is None:
        message = f"this build has no handler {node.handler}"
        run.fail_node(node_id, ErrorDetail(code="HANDLER_UNKNOWN", message=message, node_id=node_id))
        return
    try:
        params = _params(run, node_id)
    except TemplateFailed as error:
        run.fail_node(node_id, error.detail.model_copy(update={"node_id": node_id}))
        return
    problem = _param_problem(spec, params)
    if problem is None:
        run.prepared[node_id] = Prepared(spec, params)
    else:
        run.fail_node(node_id, problem.model_copy(update={"node_id": node_id}))


def _params(run: Run, node_id: str) -> dict[str, Any]:
    params: dict[str, Any] = render(run.workflow.params_programs[node_id], scope_of(run), f"nodes.{node_id}.params")
    return {**params, **(run.nodes[node_id].params_override or {})}


def _param_problem(spec: HandlerSpec, params: Mapping[str, Any]) -> ErrorDetail | None:
    """Return what the handler's own model finds wrong, as JSON: a list is a list, a number may lack its fraction."""
    try:
        spec.params.model_validate_json(canonical_json(params))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(("params", *map(str, first["loc"])))
        message = f"{field} of {spec.name}: {first['msg']}"
        return ErrorDetail(code="PARAMETER_INVALID", message=message, field=field, user_fixable=True)
    return None


def dispatch(run: Run) -> None:
    """Send out every prepared task; the first one starts the job."""
    for node_id, prepared in run.prepared.items():
        _dispatch(run, node_id, prepared)
    if run.prepared and run.job.status is JobStatus.PENDING:
        run.move_job(JobStatus.RUNNING)


def _dispatch(run: Run, node_id: str, prepared: Prepared) -> None:
    node, state = run.workflow.nodes[node_id], run.nodes[node_id]
    if not isinstance(node, TaskNode):
        raise TypeError(f"{node_id} is not a task")
    defaults, spec = run.workflow.defaults, prepared.spec
    queue = node.queue or spec.queue
    run.dispatches[node_id] = Dispatch(
        node_id=node_id,
        attempt=state.attempt,
        queue=queue,
        handler=spec.name,
        params=prepared.params,
        timeout_seconds=node.timeout_seconds or defaults.timeout_seconds or spec.timeout_seconds,
        priority=run.job.priority,
        heartbeat_timeout_seconds=node.heartbeat_timeout_seconds or defaults.heartbeat_timeout_seconds,
    )
    run.move(
        node_id,
        NodeStatus.DISPATCHED,
        data={"queue": queue, "handler": spec.name, "attempt": state.attempt},
        task_id=task_id(run.job.job_id, node_id, state.attempt),
        attempt=state.attempt + 1,
        input_params=prepared.params,
        first_dispatched_at=state.first_dispatched_at or run.now,
        dispatched_at=run.now,
        started_at=None,
        waiting_for=None,
    )
