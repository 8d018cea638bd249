"""Tasks: params are rendered and checked, then an attempt is sent."""

from core.dag import slots
from core.dag.nodes import TaskNode
from core.dag.rendering import params_problem
from core.dag.run import Prepared, Run
from core.dag.state import Dispatch
from core.dag.templates import TemplateFailed
from core.dag.values import Ask, value_of
from core.errors import ErrorDetail
from core.handlers_catalog import HandlerSpec
from core.ids import canonical_json, digest, task_id
from core.statuses import NodeStatus


def go_on(run: Run, node_id: str, node: TaskNode) -> None:
    """Prepare a READY task for dispatch, unless something holds it."""
    if not run.overdue and node_id not in run.prepared and not run.holds(node_id, run.queue_of(node_id)):
        _prepare(run, node_id, node)


def wake(run: Run, node_id: str) -> None:
    """Let a task go on that waits for its slot, when it has it; fail one that waits in vain."""
    if problem := slots.in_vain(run, run.nodes[node_id]):
        run.fail_node(node_id, problem)
        return
    slots.wake(run, node_id, run.queue_of(node_id))


def _prepare(run: Run, node_id: str, node: TaskNode) -> None:
    """Render and check the params; what is wrong with them is final, the same would happen again."""
    spec = run.catalog.get(node.handler)
    if spec is None:
        message = f"this build has no handler {node.handler}"
        run.fail_node(node_id, ErrorDetail(code="HANDLER_UNKNOWN", message=message, node_id=node_id))
        return
    try:
        if slots.admits(run, node_id):
            run.prepared[node_id] = _prepared(run, node_id, node, spec)
    except TemplateFailed as error:
        run.fail_node(node_id, error.detail.model_copy(update={"node_id": node_id}))


def _prepared(run: Run, node_id: str, node: TaskNode, spec: HandlerSpec) -> Prepared:
    ask = Ask(
        path=f"nodes.{node_id}.params",
        template=node.params,
        program=run.workflow.params_programs[node_id],
        override=run.nodes[node_id].params_override or {},
        handler=spec.name,
    )
    answer = value_of(run, ask)
    if answer.ref is not None:
        return Prepared(spec, {}, answer.ref, answer.digest)
    text = canonical_json(answer.value)
    if problem := params_problem(spec, text.encode()):
        raise TemplateFailed.of(problem)
    return Prepared(spec, answer.value, digest=digest(answer.value, text))


def dispatch(run: Run) -> None:
    """Send out every prepared task; the first one starts the job, as a fan-out does."""
    for node_id, prepared in run.prepared.items():
        _dispatch(run, node_id, prepared)
    if run.prepared:
        run.start_job()


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
        params_ref=prepared.ref,
        params_digest=prepared.digest,
        timeout_seconds=node.timeout_seconds or defaults.timeout_seconds or spec.timeout_seconds,
        priority=run.job.priority,
        heartbeat_timeout_seconds=node.heartbeat_timeout_seconds or defaults.heartbeat_timeout_seconds,
        queue_timeout_seconds=node.queue_timeout_seconds or defaults.queue_timeout_seconds,
    )
    run.move(
        node_id,
        NodeStatus.DISPATCHED,
        data={"queue": queue, "handler": spec.name, "attempt": state.attempt},
        task_id=task_id(run.job.job_id, node_id, state.attempt),
        attempt=state.attempt + 1,
        input_params=prepared.params if prepared.ref is None else None,
        input_ref=None if prepared.ref is None else prepared.ref.model_dump(),
        first_dispatched_at=state.first_dispatched_at or run.now,
        dispatched_at=run.now,
        started_at=None,
    )
