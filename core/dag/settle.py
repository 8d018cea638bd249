"""Moves the graph as far as it goes without the outside: edges, readiness, params, dispatch."""

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from pydantic import ValidationError

from core.dag.graph import Verdict, edge, rule_of, verdict
from core.dag.nodes import (
    ConditionalNode,
    EndNode,
    FanInNode,
    FanOutNode,
    GateNode,
    JoinRule,
    StartNode,
    TaskNode,
    WorkflowNode,
)
from core.dag.run import Prepared, Run
from core.dag.state import Dispatch
from core.dag.templates import TemplateFailed, render
from core.errors import ErrorDetail
from core.handlers_catalog import HandlerSpec
from core.ids import canonical_json, task_id
from core.models.engine import NodeState
from core.statuses import JobStatus, NodeStatus, SkipReason


def settle(run: Run) -> None:
    """Settle every node that can be, to a fixed point.

    One pass in topological order is complete, since a node depends only on nodes before it; a failure under
    `on_failure: cancel` reaches back, so it asks for another pass.
    """
    while True:
        for node_id in run.workflow.graph.order:
            _step(run, node_id)
        if run.workflow.on_failure != "cancel" or not _cancel_after_failure(run):
            return


def _step(run: Run, node_id: str) -> None:
    if run.nodes[node_id].status is NodeStatus.PENDING:
        _settle_pending(run, node_id)
    if run.nodes[node_id].status is NodeStatus.WAITING:
        _wake(run, node_id)
    if run.nodes[node_id].status is NodeStatus.READY:
        _go(run, node_id)


def _settle_pending(run: Run, node_id: str) -> None:
    nodes = run.workflow.nodes
    edges = [
        edge(nodes[source], run.nodes[source].status, run.nodes[source].skip_reason)
        for source in run.workflow.graph.incoming[node_id]
    ]
    match verdict(rule_of(nodes[node_id]), edges):
        case Verdict.WAIT:
            return
        case Verdict.READY:
            run.move(node_id, NodeStatus.READY, ready_at=run.now, waiting_for=None)
        case Verdict.NOT_TAKEN:
            _skip(run, node_id, SkipReason.NOT_TAKEN)
        case Verdict.UPSTREAM_FAILED:
            _skip(run, node_id, SkipReason.UPSTREAM_FAILED)
        case _ as never:
            assert_never(never)


def _skip(run: Run, node_id: str, reason: SkipReason) -> None:
    run.move(node_id, NodeStatus.SKIPPED, data={"reason": reason.value}, skip_reason=reason)


def _wake(run: Run, node_id: str) -> None:
    not_before = run.nodes[node_id].not_before
    if not_before is None or not_before <= run.now:
        run.move(node_id, NodeStatus.READY, ready_at=run.now, not_before=None, waiting_for=None)


def _go(run: Run, node_id: str) -> None:
    node = run.workflow.nodes[node_id]
    match node:
        case StartNode() | EndNode():
            run.move(node_id, NodeStatus.COMPLETED, output={})
        case TaskNode():
            if run.job.paused_at is not None:
                run.wait_for(node_id, "paused")
            elif not run.overdue and node_id not in run.prepared:
                _prepare(run, node_id, node)
        case ConditionalNode() | FanOutNode() | FanInNode() | GateNode() | WorkflowNode():
            raise TypeError(f"the loader lets no {node.type} pass yet")
        case _ as never:
            assert_never(never)


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


class _NodeViews(Mapping[str, Mapping[str, Any]]):
    """What templates see of nodes: the status, and the output of those that completed."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes

    def __getitem__(self, node_id: str) -> Mapping[str, Any]:
        node = self._nodes[node_id]
        if node.status is NodeStatus.COMPLETED:
            return {"status": node.status.value, "output": node.output if node.output is not None else {}}
        return {"status": node.status.value}

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def scope_of(run: Run) -> dict[str, Any]:
    """Return what templates of this job may look up."""
    job = run.job
    facts = {
        "job_id": job.job_id,
        "workflow_id": job.workflow_id,
        "workflow_version": job.workflow_version,
        "run_no": job.run_no,
        "priority": job.priority,
        "correlation_id": job.correlation_id,
        "created_at": job.created_at.isoformat(),
    }
    return {"inputs": job.input_params, "nodes": _NodeViews(run.nodes), "job": facts}


def _cancel_after_failure(run: Run) -> bool:
    """Cancel what is unfinished after a failure, except `all_done` joins and what follows them."""
    if next(run.failed(), None) is None:
        return False
    unfinished = run.unfinished()
    joins = [key for key in unfinished if rule_of(run.workflow.nodes[key]) is JoinRule.ALL_DONE]
    kept = run.workflow.graph.descendants(joins).union(joins)
    victims = [node_id for node_id in unfinished if node_id not in kept]
    for node_id in victims:
        run.cancel_node(node_id, "another node failed")
    return bool(victims)


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
