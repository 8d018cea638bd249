"""Everything that happens because time passed: leases, timeouts, sending again; and when to look next."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from core.dag import endings
from core.dag.child_jobs import CHILD_LOST, waits_for_child
from core.dag.failures import QUEUE_TIMEOUT, TASK_TIMEOUT, WORKER_LOST, engine_error
from core.dag.nodes import Work
from core.dag.retry import redispatch_after_seconds
from core.dag.run import Run
from core.models.engine import Attempt, NodeState
from core.statuses import ATTEMPT_FINAL, JOB_FINAL, AttemptState, NodeStatus

RECHECK_SECONDS = 5.0
"""How soon to look again at a lease that ran out while nobody could renew it, and at a value that nobody made yet."""


def watch_attempts(run: Run) -> None:
    """Act on the attempts that are out, after the inbox was consumed."""
    _watch_children(run)
    for node_id, work, _ in (*run.tasks_in_flight(), *run.children_in_flight()):
        attempt = run.attempt_of(node_id)
        if attempt is None:
            endings.failed(run, node_id, engine_error(WORKER_LOST, "the attempt of this task is not there any more"))
            continue
        match attempt.state:
            case AttemptState.LEASED:
                _watch_leased(run, attempt)
            case AttemptState.QUEUED:
                _watch_queued(run, work, attempt)
            case AttemptState.PARKED:
                if not run.holds(node_id, attempt.queue) and not run.overdue:
                    run.send_again(attempt)
            case AttemptState.REVOKED:
                endings.released(run, node_id, attempt.reason or "the attempt was revoked")
            case AttemptState.EXPIRED:
                endings.failed(run, node_id, engine_error(WORKER_LOST, attempt.reason or "the attempt expired"))
            case AttemptState.REPORTED | AttemptState.RELEASED:
                pass  # its result, with what was done of a batch, is in the inbox of a later evaluation


def _watch_children(run: Run) -> None:
    """Fail what waits for a child job that nothing is known of any more."""
    for node_id, state in tuple(run.nodes.items()):
        if waits_for_child(state):
            attempt = run.attempt_of(node_id)
            if attempt is None or attempt.state in ATTEMPT_FINAL:
                message = "the attempt that the child job works for is not there any more"
                endings.failed(run, node_id, engine_error(CHILD_LOST, message))


def _watch_leased(run: Run, attempt: Attempt) -> None:
    """End an attempt that ran too long or whose worker went silent, whichever came first.

    Neither counts while nobody could renew: a task that ended in an outage could not say so.
    """
    if not run.state.may_expire_leases:
        return
    runs_out, lease_ends = _run_ends(attempt), attempt.lease_expires_at
    if runs_out is not None and runs_out <= run.now and (lease_ends is None or runs_out <= lease_ends):
        _expire(run, attempt, TASK_TIMEOUT, f"ran longer than {attempt.timeout_seconds:g} seconds")
    elif lease_ends is not None and lease_ends <= run.now:
        _expire(run, attempt, WORKER_LOST, f"worker {attempt.worker_id} did not renew its lease")


def _watch_queued(run: Run, work: Work, attempt: Attempt) -> None:
    if run.holds(attempt.node_id, attempt.queue) or run.overdue:
        return
    gives_up = _queue_ends(run, work, run.node(attempt.node_id))
    if gives_up is not None and gives_up <= run.now:
        _expire(run, attempt, QUEUE_TIMEOUT, f"no worker took it from {attempt.queue} in time")
    elif (attempt.redispatch_at is not None and attempt.redispatch_at <= run.now) or _has_old_priority(run, attempt):
        run.send_again(attempt)


def _has_old_priority(run: Run, attempt: Attempt) -> bool:
    """Return whether the job's priority changed since a task was sent; those of a fan-out stay where they are."""
    return attempt.priority != run.job.priority and not attempt.child


def _expire(run: Run, attempt: Attempt, code: str, message: str) -> None:
    run.end_attempt(attempt, AttemptState.EXPIRED, code.lower())
    endings.failed(run, attempt.node_id, engine_error(code, message))


def _run_ends(attempt: Attempt) -> datetime | None:
    return attempt.leased_at + timedelta(seconds=attempt.timeout_seconds) if attempt.leased_at else None


def _queue_ends(run: Run, work: Work, state: NodeState) -> datetime | None:
    """Return when a queued attempt is given up; sending it again does not start the time anew."""
    seconds = work.queue_timeout_seconds or run.workflow.defaults.queue_timeout_seconds
    return None if seconds is None or state.dispatched_at is None else state.dispatched_at + timedelta(seconds=seconds)


def next_wake(run: Run) -> datetime | None:
    """Return the job's next timer; None when only a result or a command can move it."""
    return None if run.job.status in JOB_FINAL else min(_timers(run), default=None)


def _timers(run: Run) -> Iterator[datetime]:
    if run.job.deadline_at is not None:
        yield run.job.deadline_at
    if run.needs or run.chores:
        yield run.now + timedelta(seconds=RECHECK_SECONDS)
    for state in run.nodes.values():
        if state.status is NodeStatus.WAITING and state.not_before is not None:
            yield state.not_before
    for node_id, work, state in run.tasks_in_flight():
        yield from _attempt_timers(run, node_id, work, state)
    for fan_out in run.fan_outs.values():
        if fan_out.wake_at is not None:
            yield fan_out.wake_at


def child_timers(run: Run, child: NodeState) -> Iterator[datetime]:
    """Yield the times at which something is to be done about a child, if nothing happens before."""
    if child.status is NodeStatus.WAITING:
        if child.not_before is not None and child.not_before > run.now:
            yield child.not_before
    else:
        yield from _attempt_timers(run, child.node_id, run.workflow.works[child.parent_node_id or ""], child)


def _attempt_timers(run: Run, node_id: str, work: Work, state: NodeState) -> Iterator[datetime]:
    attempt = run.attempt_of(node_id)
    if attempt is None or attempt.state is AttemptState.QUEUED or attempt.task_id in run.redispatches:
        if not run.overdue and run.held_by(None if attempt is None else attempt.queue) is None:
            yield _redispatch_at(run, attempt)
            gives_up = _queue_ends(run, work, state)
            if gives_up is not None:
                yield gives_up
    elif attempt.state is AttemptState.LEASED:
        for timer in (_run_ends(attempt), attempt.lease_expires_at):
            if timer is not None:
                recheck = run.now + timedelta(seconds=RECHECK_SECONDS)
                yield timer if run.state.may_expire_leases else max(timer, recheck)


def _redispatch_at(run: Run, attempt: Attempt | None) -> datetime:
    """Return when a queued attempt is sent again, for one that is sent now too."""
    if attempt is None:
        return run.now + timedelta(seconds=redispatch_after_seconds(1))
    if attempt.task_id in run.redispatches or attempt.redispatch_at is None:
        return run.now + timedelta(seconds=redispatch_after_seconds(attempt.dispatch_no + 1))
    return attempt.redispatch_at
