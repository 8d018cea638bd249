"""What becomes of a batch when an attempt at it ends: each item by itself, the rest of them together.

An item that succeeded or failed for good is settled. The next attempt carries only items that are not: those whose
failure may pass use a retry of the batch, those that a lost worker left use a loss, a release uses nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from core.dag.failures import WORKER_LOST, Budget, budget_of, engine_error, in_time
from core.dag.json_values import NotJson, check_json
from core.dag.retry import delay_seconds
from core.dag.run import Run
from core.dag.tallies import COMPLETED, FAILED, pending_items
from core.errors import ErrorDetail
from core.models.engine import NodeState
from core.statuses import NodeStatus
from core.wire import ItemOutcome, TaskStatus

Outcome = dict[str, Any]
UNSAID = engine_error(WORKER_LOST, "the worker did not say what became of this item")


def end_attempt(run: Run, node_id: str, reported: Iterable[Any], left: ErrorDetail | None) -> None:
    """Settle the items of a batch after its attempt ended.

    Args:
        run: The evaluation.
        node_id: A child that is a batch.
        reported: What its worker said at the end; what it said in heartbeats lies in the attempt.
        left: What happened to the items of which nobody said anything; None when they were given back.
    """
    child = run.children[node_id]
    settled, failing, unsaid = _sorted(run, child, reported)
    if left is not None and budget_of(left) is not Budget.LOSSES:
        failing |= dict.fromkeys(unsaid, left)
        unsaid = ()
        settled += [_failed(index, error) for index, error in failing.items() if budget_of(error) is Budget.NONE]
        failing = {index: error for index, error in failing.items() if budget_of(error) is not Budget.NONE}
    policy = run.policy_of(node_id)
    delay = delay_seconds(policy, child.retries_used, child.task_id or node_id)
    if failing and (child.retries_used >= policy.max_retries or not in_time(child, policy, run.now, delay)):
        settled += [_failed(index, error) for index, error in failing.items()]
        failing = {}
    if left is not None and unsaid and (child.losses_used >= policy.max_losses or not in_time(child, policy, run.now)):
        settled += [_failed(index, left) for index in unsaid]
        unsaid = ()
    outcomes = sorted([*(child.outcomes or ()), *settled], key=lambda outcome: outcome["index"])
    if failing or unsaid:
        _wait(run, child, outcomes, failing, unsaid, left, delay)
    else:
        _finish(run, child, outcomes)


def _sorted(
    run: Run, child: NodeState, reported: Iterable[Any]
) -> tuple[list[Outcome], dict[int, ErrorDetail], tuple[int, ...]]:
    """Return the settled items, those that failed but may be tried again, and those of which nothing is known."""
    attempt = run.attempt_of(child.node_id)
    heard = _read((*((attempt.outcomes or ()) if attempt else ()), *reported))
    settled: list[Outcome] = []
    failing: dict[int, ErrorDetail] = {}
    unsaid: list[int] = []
    for index in pending_items(run.fan_outs[child.parent_node_id or ""], child):
        outcome = heard.get(index)
        error = None if outcome is None else _error_of(outcome)
        if outcome is None:
            unsaid.append(index)
        elif error is None:
            settled.append(_completed(outcome))
        elif budget_of(error) is Budget.NONE:
            settled.append(_failed(index, error))
        else:
            failing[index] = error
    return settled, failing, tuple(unsaid)


def _read(outcomes: Sequence[Any]) -> Mapping[int, ItemOutcome]:
    """Return the newest readable outcome by index; of others it is as if nothing had been said."""
    found: dict[int, ItemOutcome] = {}
    for one in outcomes:
        try:
            outcome = ItemOutcome.model_validate(one)
        except ValidationError:
            continue
        found[outcome.index] = outcome
    return found


def _error_of(outcome: ItemOutcome) -> ErrorDetail | None:
    if outcome.status is TaskStatus.FAILED:
        return outcome.error or ErrorDetail(code="RESULT_INVALID", message="the item failed without an error")
    if outcome.output_ref is not None:
        return None
    if outcome.output is None:
        return ErrorDetail(code="RESULT_INVALID", message="the output is not a JSON object")
    try:
        check_json(outcome.output, "output")
    except NotJson as error:
        return ErrorDetail(code="RESULT_INVALID", message=error.detail.message)
    return None


def _completed(outcome: ItemOutcome) -> Outcome:
    if outcome.output_ref is not None:
        return {"index": outcome.index, "status": COMPLETED, "output_ref": outcome.output_ref.model_dump()}
    return {"index": outcome.index, "status": COMPLETED, "output": outcome.output}


def _failed(index: int, error: ErrorDetail) -> Outcome:
    return {"index": index, "status": FAILED, "error": error.model_dump(mode="json", exclude_none=True)}


def _wait(
    run: Run,
    child: NodeState,
    outcomes: list[Outcome],
    failing: Mapping[int, ErrorDetail],
    unsaid: Sequence[int],
    left: ErrorDetail | None,
    delay: float,
) -> None:
    used = {
        "retries_used": child.retries_used + bool(failing),
        "losses_used": child.losses_used + bool(left is not None and unsaid),
    }
    not_before = run.now + timedelta(seconds=delay if failing else 0.0)
    kind = "backoff" if failing or left is not None else "released"
    error = next(iter(failing.values()), left)
    detail = child.error if error is None else error.model_dump(mode="json", exclude_none=True)
    run.move(
        child.node_id,
        NodeStatus.WAITING,
        "node_released" if kind == "released" else None,
        data={"items": len(failing) + len(unsaid), "code": error.code if error else None, **used},
        outcomes=outcomes,
        error=detail,
        not_before=not_before,
        waiting_for={"kind": kind, "detail": {"until": not_before.isoformat(), "code": error.code if error else None}},
        **used,
    )


def _finish(run: Run, child: NodeState, outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome["status"] == FAILED]
    if not failed:
        run.move(child.node_id, NodeStatus.COMPLETED, outcomes=outcomes, error=None)
        return
    error = failed[0]["error"]
    data = {"code": error["code"], "message": error["message"], "items": [one["index"] for one in failed]}
    run.move(child.node_id, NodeStatus.FAILED, data=data, outcomes=outcomes, error=error)
