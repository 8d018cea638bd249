"""Evaluates one locked job, isolated from every other: an exception counts against its own job only."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from core.dag.child_jobs import CHILD_QUEUE
from core.dag.definition import Workflow
from core.dag.evaluator import advance
from core.dag.event_log import EventLog
from core.dag.orders import DIRECT, refused
from core.dag.slot_wishes import NO_CHANGES, SlotChanges
from core.dag.state import AttemptEnd, ChildOrder, CommandDone, Decision, Disposition, Event, JobState
from core.dag.tallies import closed
from core.errors import ErrorDetail, WorkflowError
from core.models.engine import Attempt, Job, NodeState
from core.statuses import ATTEMPT_FINAL, JOB_FINAL, NODE_FINAL, AttemptState, JobStatus, NodeStatus

log = logging.getLogger(__name__)

MAX_EVALUATION_FAILURES = 5
MIN_PAUSE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Step:
    """One job before and what becomes of it; `job` is the row to write, None when nothing changes."""

    state: JobState
    decision: Decision
    job: Job | None
    born: tuple["Step", ...] = ()
    """First steps of the child jobs that it starts."""

    @property
    def ended(self) -> bool:
        """Return whether this step brought the job to a final status, also one that it had left in the same step."""
        if self.job is None or self.job.status not in JOB_FINAL:
            return False
        return self.reopened or self.state.job.status not in JOB_FINAL

    @property
    def reopened(self) -> bool:
        """Return whether this step began another run of a job that had ended."""
        begun = self.job is not None and self.job.run_no > self.state.job.run_no
        return begun and self.state.job.status in JOB_FINAL


def ended_jobs(steps: Iterable[Step]) -> Iterator[Job]:
    """Yield the jobs that these steps ended, as they are written."""
    return (step.job for step in steps if step.ended and step.job is not None)


def evaluate(workflow: Workflow | None, state: JobState, now: datetime, unwritable: Exception | None = None) -> Step:
    """Return what to write for one job; never raises, a job that fails five times in a row becomes FAILED.

    With `unwritable`, the error of the last decision's write, that is what is written.
    """
    job = state.job
    try:
        if unwritable is not None:
            raise unwritable
        if workflow is None:
            raise WorkflowError(f"the definition {job.definition_hash} of job {job.job_id} cannot be read")
        decision = advance(workflow, state, now)
        failures = 0
    except Exception as error:
        log.exception("evaluation failed", extra={"job_id": job.job_id, "failures": job.evaluation_failures + 1})
        failures = job.evaluation_failures + 1
        decision = _failed_evaluation(state, now, failures, error)
    return Step(state, decision, _row(state, decision, now, failures))


def _row(state: JobState, decision: Decision, now: datetime, failures: int) -> Job | None:
    """Return the job's row after the decision, one version up; None when the decision changes nothing."""
    job = decision.job or state.job
    wake_at = None if job.status in JOB_FINAL else _after(now, decision.wake_at)
    changed = job is not state.job or wake_at != state.job.wake_at or failures != state.job.evaluation_failures
    if not changed and not _touches_rows(decision):
        return None
    return job.model_copy(
        update={
            "version": state.job.version + 1,
            "wake_at": wake_at,
            "evaluation_failures": failures,
            "updated_at": now,
        }
    )


def _after(now: datetime, wake_at: datetime | None) -> datetime | None:
    """Return the next timer, never in the past: a timer that stays due must not keep the loop spinning."""
    return None if wake_at is None else max(wake_at, now + MIN_PAUSE) if wake_at <= now else wake_at


def _touches_rows(decision: Decision) -> bool:
    return bool(
        decision.nodes
        or decision.dispatches
        or decision.redispatches
        or decision.attempts_ended
        or decision.dispositions
        or decision.events
        or decision.slots != NO_CHANGES
        or decision.commands_done
        or decision.child_orders
        or decision.fan_outs
        or decision.children
        or decision.new_children
    )


def _failed_evaluation(state: JobState, now: datetime, failures: int, error: Exception) -> Decision:
    data = {"failures": failures, "error": type(error).__name__}
    event = Event("evaluation_failed", str(state.job.status), data=data)
    if state.job.status in JOB_FINAL:
        late = tuple(Disposition(result.task_id, "superseded", "the job has ended") for result in state.results)
        return Decision(dispositions=late, events=(event, *_refused(state)), commands_done=_not_obeyed(state))
    if failures < MAX_EVALUATION_FAILURES:
        return Decision(events=(event,), wake_at=now + timedelta(seconds=2.0**failures))
    abandoned = _abandoned(state, now, error)
    if abandoned.needs_children:
        return abandoned
    ended = Event("job_failed", str(JobStatus.FAILED))
    return replace(abandoned, events=(event, *abandoned.events, *_refused(state), ended))


def _not_obeyed(state: JobState) -> tuple[CommandDone, ...]:
    return tuple(CommandDone(command.command_id, "INTERNAL") for command in state.commands)


def _refused(state: JobState) -> tuple[Event, ...]:
    error = ErrorDetail(code="INTERNAL", message="the job could not be evaluated")
    stored = [command for command in state.commands if command.command_id != DIRECT]
    return tuple(refused(command, state.job.status, error) for command in stored)


def _abandoned(state: JobState, now: datetime, error: Exception) -> Decision:
    """Return the end of a job that cannot be evaluated: everything open is cancelled, live attempts are revoked."""
    message = f"the job could not be evaluated {MAX_EVALUATION_FAILURES} times in a row: {type(error).__name__}"
    detail = ErrorDetail(code="INTERNAL", message=message)
    error_row = detail.model_dump(mode="json")
    ended = {"status": JobStatus.FAILED, "error": error_row, "completed_at": now, "waiting_for": None}
    cancelled = {"status": NodeStatus.CANCELLED, "completed_at": now, "waiting_for": None, "not_before": None}
    nodes = [node for node in state.nodes.values() if node.status not in NODE_FINAL]
    children = [child for child in state.children.values() if child.status not in NODE_FINAL]
    if len(children) < sum(row.active for row in state.fan_outs.values()):
        return Decision(needs_children=True)
    open_attempts = [attempt for attempt in state.attempts.values() if attempt.state not in ATTEMPT_FINAL]
    reason = "the job failed"
    return Decision(
        job=state.job.model_copy(update=ended),
        events=_taken_back(nodes, children, open_attempts, reason),
        nodes=tuple(node.model_copy(update=cancelled) for node in nodes),
        children=tuple(child.model_copy(update=cancelled) for child in children),
        fan_outs=tuple(closed(row, now) for row in state.fan_outs.values() if row.state != "done"),
        attempts_ended=tuple(AttemptEnd(one.task_id, AttemptState.REVOKED, reason) for one in open_attempts),
        child_orders=tuple(
            ChildOrder(one.task_id, "cancel", {}, "engine", reason) for one in open_attempts if one.queue == CHILD_QUEUE
        ),
        dispositions=tuple(Disposition(result.task_id, "poison", message) for result in state.results),
        commands_done=_not_obeyed(state),
        slots=SlotChanges(freed=tuple(state.slots), dropped=True),
    )


def _taken_back(
    nodes: Iterable[NodeState], children: Iterable[NodeState], attempts: Iterable[Attempt], reason: str
) -> tuple[Event, ...]:
    """Return the events of what is cancelled and revoked, as `core.dag.run` would log them."""
    log, revoked, cancelled = EventLog(), AttemptState.REVOKED.value, NodeStatus.CANCELLED.value
    for one in attempts:
        parent, _, number = one.node_id.rpartition("__")
        if one.child:
            log.add_child("attempts_revoked", revoked, parent, int(number))
        else:
            log.append(Event("attempt_revoked", revoked, one.node_id, one.task_id, {"reason": reason}))
    for child in children:
        log.add_child("children_cancelled", cancelled, child.parent_node_id or "", child.fan_out_index or 0)
    for node in nodes:
        log.append(Event("node_cancelled", cancelled, node.node_id, node.task_id, {"reason": reason}))
    return log.events()
