"""What a failed attempt costs, and whether the node gets another one."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from core.dag.retry import RetryPolicy, delay_seconds
from core.dag.run import Run
from core.dag.tallies import MAX_MESSAGE
from core.errors import AttemptFailure, Classification, ErrorDetail
from core.models.engine import NodeState
from core.statuses import NodeStatus
from core.wording import shorten

WORKER_LOST = "WORKER_LOST"
TASK_TIMEOUT = "TASK_TIMEOUT"
QUEUE_TIMEOUT = "QUEUE_TIMEOUT"
HISTORY_LENGTH = 20


class Budget(StrEnum):
    """Which budget a failure is charged to."""

    NONE = "none"
    """Final at once: the same would happen again."""
    RETRIES = "retries"
    LOSSES = "losses"


def budget_of(error: ErrorDetail) -> Budget:
    """Return what pays for another attempt after this error."""
    if error.code == WORKER_LOST:
        return Budget.LOSSES
    if error.code in {TASK_TIMEOUT, QUEUE_TIMEOUT} or error.classification is not Classification.PERMANENT:
        return Budget.RETRIES
    return Budget.NONE


def engine_error(code: str, message: str) -> ErrorDetail:
    """Return an error that the engine itself found."""
    permanent = budget_of(ErrorDetail(code=code, message=message)) is Budget.NONE
    classification = Classification.PERMANENT if permanent else Classification.TRANSIENT
    return ErrorDetail(code=code, message=message, classification=classification)


def fail_attempt(run: Run, node_id: str, error: ErrorDetail) -> None:
    """Charge a failure of the current attempt: the node waits for the next one, or fails."""
    node, policy = run.node(node_id), run.policy_of(node_id)
    detail = _with_history(node, error, run.now)
    match budget_of(error):
        case Budget.NONE:
            run.fail_node(node_id, detail)
        case Budget.RETRIES:
            delay = delay_seconds(policy, node.retries_used, node.task_id or node_id)
            allowed = node.retries_used < policy.max_retries
            _again_or_fail(run, node_id, detail, delay if allowed else None, retries_used=node.retries_used + 1)
        case Budget.LOSSES:
            allowed = node.losses_used < policy.max_losses
            _again_or_fail(run, node_id, detail, 0.0 if allowed else None, losses_used=node.losses_used + 1)
        case _ as never:
            assert_never(never)


def _again_or_fail(run: Run, node_id: str, error: ErrorDetail, delay: float | None, **used: int) -> None:
    """Wait for another attempt; fail when there is no budget (`delay` None) or no time for it."""
    node, policy = run.node(node_id), run.policy_of(node_id)
    if delay is None or not in_time(node, policy, run.now, delay):
        run.fail_node(node_id, error)
        return
    not_before = run.now + timedelta(seconds=delay)
    run.move(
        node_id,
        NodeStatus.WAITING,
        data={"code": error.code, "message": error.message, "delay_seconds": round(delay, 3), **used},
        error=error.model_dump(mode="json", exclude_none=True),
        not_before=not_before,
        waiting_for={"kind": "backoff", "detail": {"until": not_before.isoformat(), "code": error.code}},
        **used,
    )


def in_time(node: NodeState, policy: RetryPolicy, now: datetime, delay: float = 0.0) -> bool:
    """Return whether another attempt after `delay` seconds begins within the time that retries may take."""
    if policy.max_elapsed_seconds is None or node.first_dispatched_at is None:
        return True
    return now + timedelta(seconds=delay) < node.first_dispatched_at + timedelta(seconds=policy.max_elapsed_seconds)


def release_attempt(run: Run, node_id: str, reason: str) -> None:
    """Give a node back that its worker released: it costs no budget and waits for nothing."""
    run.move(
        node_id,
        NodeStatus.WAITING,
        "node_released",
        data={"reason": reason},
        not_before=run.now,
        waiting_for={"kind": "released", "detail": reason},
    )


def _with_history(node: NodeState, error: ErrorDetail, now: datetime) -> ErrorDetail:
    """Add this failure to those that the node has seen; only the newest are kept."""
    earlier = ErrorDetail.model_validate(node.error).attempts if node.error else ()
    message = shorten(error.message, MAX_MESSAGE)
    failure = AttemptFailure(attempt=max(node.attempt - 1, 0), code=error.code, message=message, at=now)
    history = (*earlier, failure)[-HISTORY_LENGTH:]
    return error.model_copy(update={"node_id": node.node_id, "attempts": history})
