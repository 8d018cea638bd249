"""What somebody orders for a job, written into a run: `core.dag.evaluator` goes on from there in the same evaluation.

An order finds the state that everything before it left, and is refused by a `Conflict` that tells that state; then it
changed nothing. Only `retry` and `rerun` (`core.dag.reopening`) touch a job that has ended.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.dag import gates, reopening
from core.dag.complaints import full_complaint, short_value
from core.dag.gates import GateDecision
from core.dag.inputs import Priority, resolve_priority
from core.dag.nodes import FanOutNode, WorkflowNode
from core.dag.run import Run
from core.dag.state import ChildOrder, CommandDone, Event
from core.dag.tallies import MAX_MESSAGE
from core.errors import CallerError, Conflict, ErrorDetail, NotFound, ParameterInvalid
from core.models.engine import Command, NodeState
from core.statuses import JOB_FINAL, NODE_FINAL, JobStatus
from core.wording import offered, shorten

APPLIED = "applied"
DIRECT = 0
"""Number of a command that is obeyed at once and was never stored."""
UNKNOWN = "COMMAND_UNKNOWN"


class Kind(StrEnum):
    """What can be ordered."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    PRIORITY = "priority"
    RETRY = "retry"
    RERUN = "rerun"
    SKIP = "skip"
    GATE = "gate"
    WINDOW = "window"


REOPENING = frozenset({Kind.RETRY, Kind.RERUN})
"""Orders that may start a job anew that has ended."""


class Arguments(BaseModel):
    """Base of what an order says beside its kind: unknown words are errors, nothing is coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoArguments(Arguments):
    """Of orders that say nothing more."""


class PriorityArguments(Arguments):
    """Of `priority`."""

    priority: Priority = Field(description="0 to 10, or interactive, routine, backfill.")


class NodeArguments(Arguments):
    """Of `skip`."""

    node_id: str


class RerunArguments(Arguments):
    """Of `rerun`."""

    node_id: str | None = Field(default=None, description="From this node on; from the start when it is left out.")
    params: dict[str, Any] | None = Field(
        default=None,
        description="Values, never templates, put over the node's own params from now on; {} takes earlier ones off.",
    )
    only_unsuccessful: bool = Field(
        default=False, description="Only a job that failed or was cancelled; another is refused with `JOB_NOT_FAILED`."
    )
    run_no: int | None = Field(
        default=None,
        description="Only a job that is still in this run, as its `run_no` says: whoever repeats a call starts it anew "
        "once. Another is refused with `JOB_CHANGED`.",
    )


class GateArguments(Arguments):
    """Of `gate`."""

    node_id: str
    decision: Literal["approved", "rejected"]
    data: dict[str, Any] = Field(default_factory=dict, description="For the nodes that follow: `nodes.ID.output.data`.")


class WindowArguments(Arguments):
    """Of `window`."""

    node_id: str
    max_concurrency: Annotated[int, Field(ge=1, le=10_000, description="Tasks that are out at a time.")]


OF_EVERY_ORDER: Final = ("reason", "dry_run")
"""What an order may say besides, whatever its kind."""


def _parse(model: type[Arguments], args: Mapping[str, Any]) -> Arguments:
    """Return what an order says. Raises `ParameterInvalid`."""
    try:
        return model.model_validate(args)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
        field = ".".join(map(str, first["loc"])) or None
        message = f"{field or 'the arguments'}: {full_complaint(first)}"
        if first["type"] == "extra_forbidden":
            words = [*model.model_fields, *OF_EVERY_ORDER]
            message += f"; known are {offered(first['loc'][-1], words)}"
        value = None if first["type"] == "missing" else short_value(first["input"])
        raise ParameterInvalid(message, field=field, value=value) from error


def check_order(kind: str, args: Mapping[str, Any]) -> None:
    """Refuse an order that no job could obey. Raises `ParameterInvalid`."""
    model, _ = _known(kind)
    wanted = _parse(model, args)
    if isinstance(wanted, PriorityArguments):
        resolve_priority(wanted.priority, 0)


def _known(kind: str) -> tuple[type[Arguments], Callable[[Run, Command, Any], None]]:
    if kind not in _ORDERS:
        known = offered(kind, sorted(_ORDERS))
        raise ParameterInvalid(f"there is no command {kind!r}; known are {known}", code=UNKNOWN, field="kind")
    return _ORDERS[kind]


def consume_commands(run: Run) -> None:
    """Obey every command of the state in its order; one that is refused changes nothing.

    Whoever gave a stored one may have his answer already, so its refusal is an event.
    """
    for command in run.state.commands:
        try:
            obey(run, command)
        except CallerError as error:
            run.commands_done.append(CommandDone(command.command_id, error.detail.code, error))
            if command.command_id != DIRECT:
                run.log.append(refused(command, run.job.status, error.detail))
        else:
            run.commands_done.append(CommandDone(command.command_id, APPLIED))


def refused(command: Command, status: JobStatus, error: ErrorDetail) -> Event:
    """Return the event of a stored command that its job, in this status, refuses."""
    data = {"kind": command.kind, "code": error.code, "message": shorten(error.message, MAX_MESSAGE), **_by(command)}
    return Event("command_refused", status.value, data=data)


def obey(run: Run, command: Command) -> None:
    """Write what a command orders.

    Raises:
        Conflict: the state does not allow it; `value` is the state that won.
        NotFound, ParameterInvalid: it names a node or says something that the job does not have.
    """
    model, execute = _known(command.kind)
    earlier = len(run.child_orders)
    execute(run, command, _parse(model, command.args))
    run.child_orders[earlier:] = [_in_the_name_of(command, one) for one in run.child_orders[earlier:]]


def _in_the_name_of(command: Command, order: ChildOrder) -> ChildOrder:
    """Return what a command orders a child job: whoever gave it did that, for his reason if he said one."""
    return replace(order, actor=command.actor, reason=command.reason or order.reason)


def _cancel(run: Run, command: Command, _: NoArguments) -> None:
    check_active(run)
    run.cancel_unfinished("the job was cancelled")
    run.move_job(JobStatus.CANCELLED, data=_by(command))


def _pause(run: Run, command: Command, _: NoArguments) -> None:
    check_active(run)
    if run.job.paused_at is None:
        run.set_job(paused_at=run.now)
        run.note("job_paused", **_by(command))
    _hand_down(run, command)


def _resume(run: Run, command: Command, _: NoArguments) -> None:
    check_active(run)
    if run.job.paused_at is not None:
        run.set_job(paused_at=None)
        run.note("job_resumed", **_by(command))
    _hand_down(run, command)


def _change_priority(run: Run, command: Command, wanted: PriorityArguments) -> None:
    """Change what counts from now on; `core.dag.timers` sends the tasks that wait in a queue again with it."""
    priority = resolve_priority(wanted.priority, run.job.priority)
    check_active(run)
    if priority != run.job.priority:
        run.note("job_priority_changed", **_by(command), before=run.job.priority, after=priority)
        run.set_job(priority=priority)
    _hand_down(run, command)


def _hand_down(run: Run, command: Command) -> None:
    """Let the child jobs that run for this one do the same."""
    for node_id, state in run.nodes.items():
        is_parent = isinstance(run.workflow.nodes.get(node_id), WorkflowNode) and state.status not in NODE_FINAL
        if is_parent and state.task_id is not None:
            order = ChildOrder(state.task_id, command.kind, command.args, command.actor, command.reason)
            run.child_orders.append(order)


def _retry(run: Run, command: Command, _: NoArguments) -> None:
    reopening.retry_failed(run, _by(command))


def _rerun(run: Run, command: Command, wanted: RerunArguments) -> None:
    status: JobStatus = run.job.status
    if wanted.only_unsuccessful and status not in {JobStatus.FAILED, JobStatus.CANCELLED}:
        raise Conflict(f"the job is {status}, neither failed nor cancelled", code="JOB_NOT_FAILED", value=status.value)
    if wanted.run_no not in {None, run.job.run_no}:
        raise Conflict(
            f"the job is {status} in its run {run.job.run_no}, not in run {wanted.run_no}",
            code="JOB_CHANGED",
            field="run_no",
            value=run.job.run_no,
            remediation="Look at the job first: its `run_no` counts how often it was started.",
        )
    node_id = wanted.node_id or run.workflow.graph.order[0]
    node_of(run, node_id)
    reopening.rerun(run, node_id, wanted.params, _by(command))


def _skip(run: Run, command: Command, wanted: NodeArguments) -> None:
    node = node_of(run, wanted.node_id)
    check_active(run, _way_to_skip(run, node))
    _check_unfinished(node)
    run.bypass_node(node.node_id, _by(command))


def _way_to_skip(run: Run, node: NodeState) -> str | None:
    """Return how a node of a job that was unsuccessful is passed over before it runs once more."""
    if not reopening.is_unsuccessful(node):
        return None
    return (
        f"Hold its workflow meanwhile: `geodag pause --workflow {run.job.workflow_id}`, `geodag job retry "
        f"{run.job.job_id}`, `geodag job skip {run.job.job_id} {node.node_id}`, "
        f"`geodag resume --workflow {run.job.workflow_id}`."
    )


def _decide_gate(run: Run, command: Command, wanted: GateArguments) -> None:
    gates.decide(run, wanted.node_id, GateDecision(wanted.decision, command.actor, command.reason or "", wanted.data))


def _change_window(run: Run, command: Command, wanted: WindowArguments) -> None:
    node = node_of(run, wanted.node_id)
    if not isinstance(run.workflow.nodes[node.node_id], FanOutNode):
        raise ParameterInvalid(f"{node.node_id} is not a fan_out", field="node_id", value=node.node_id)
    check_active(run)
    _check_unfinished(node)
    fan_out = run.fan_outs.get(node.node_id)
    if fan_out is None:
        raise Conflict(f"{node.node_id} has not begun", code="NODE_NOT_STARTED", value=node.status.value)
    if fan_out.max_concurrency != wanted.max_concurrency:
        changed = {"before": fan_out.max_concurrency, "after": wanted.max_concurrency}
        run.note("window_changed", node_id=node.node_id, **changed, **_by(command))
        run.fan_outs[node.node_id] = fan_out.model_copy(update={"max_concurrency": wanted.max_concurrency})


def node_of(run: Run, node_id: str) -> NodeState:
    """Return a vertex that an order names. Raises `NotFound`."""
    node = run.nodes.get(node_id)
    if node is None or node_id not in run.workflow.nodes:
        _refuse_item(run, node_id)
        known = ", ".join(run.workflow.nodes)
        raise NotFound(f"the job has no node {node_id!r}; it has {known}", field="node_id", value=node_id)
    return node


def _refuse_item(run: Run, node_id: str) -> None:
    """Say what is meant where an order names an item of a fan-out. Raises `NotFound`."""
    fan_out, separator, _ = node_id.partition("__")
    if separator and isinstance(run.workflow.nodes.get(fan_out), FanOutNode):
        raise NotFound(
            f"{node_id} is an item of the fan-out {fan_out}; items cannot be ordered singly",
            field="node_id",
            value=node_id,
            remediation=f"Order it for {fan_out}, which means all of its items.",
        )


def check_active(run: Run, remediation: str | None = None) -> None:
    """Raise `Conflict` JOB_FINAL with the state that won, unless the job goes on."""
    status = run.job.status
    if status in JOB_FINAL:
        message = f"the job is {status} already"
        raise Conflict(message, code="JOB_FINAL", value=status.value, remediation=remediation)


def _check_unfinished(node: NodeState) -> None:
    if node.status in NODE_FINAL:
        raise Conflict(f"{node.node_id} is {node.status} already", code="NODE_FINAL", value=node.status.value)


def _by(command: Command) -> dict[str, Any]:
    return {"actor": command.actor, "reason": command.reason or ""}


_ORDERS: Mapping[str, tuple[type[Arguments], Callable[[Run, Command, Any], None]]] = {
    Kind.CANCEL: (NoArguments, _cancel),
    Kind.PAUSE: (NoArguments, _pause),
    Kind.RESUME: (NoArguments, _resume),
    Kind.PRIORITY: (PriorityArguments, _change_priority),
    Kind.RETRY: (NoArguments, _retry),
    Kind.RERUN: (RerunArguments, _rerun),
    Kind.SKIP: (NodeArguments, _skip),
    Kind.GATE: (GateArguments, _decide_gate),
    Kind.WINDOW: (WindowArguments, _change_window),
}
"""What each kind says, and what obeys it."""
