"""Counts the items of a fan-out from what changed about its children; never from all of them.

A child is one item, or a batch of them when its row has `outcomes`: one entry per item that is settled, in any order,
    {index, status: completed, output | output_ref}   or   {index, status: failed, error}.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from core.dag.nodes import Tolerate
from core.models.engine import NodeState
from core.models.fan_out import FanOut
from core.payloads import PayloadRef
from core.statuses import NODE_FINAL, NodeStatus

COMPLETED = "completed"
FAILED = "failed"
MAX_FAILURES = 100
"""Failures that are kept; the others are only counted."""
MAX_MESSAGE = 1000

Move = tuple[NodeState | None, NodeState]
"""A child as it was counted last (None: it is new), and as it is now."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many items of a child, or of several, ended how."""

    succeeded: int = 0
    failed: int = 0
    skipped: int = 0


NO_ITEMS = Tally()
ONE_ITEM: Mapping[NodeStatus, Tally] = {
    NodeStatus.COMPLETED: Tally(succeeded=1),
    NodeStatus.FAILED: Tally(failed=1),
    NodeStatus.CANCELLED: Tally(skipped=1),
    NodeStatus.SKIPPED: Tally(skipped=1),
}


def child_id(node_id: str, number: int) -> str:
    """Return the id of one child of a fan-out; no other node id has two underscores in a row."""
    return f"{node_id}__{number}"


def parent_of(node_id: str) -> str | None:
    """Return the fan-out that a child's id names, None when it is no child's id."""
    parent, marks, number = node_id.rpartition("__")
    return parent if marks and parent and number.isascii() and number.isdecimal() else None


def items_of(fan_out: FanOut, number: int) -> range:
    """Return the indexes of the items of one child."""
    first = number * fan_out.batch_size
    return range(first, min(first + fan_out.batch_size, fan_out.item_count))


def pending_items(fan_out: FanOut, child: NodeState) -> tuple[int, ...]:
    """Return the indexes of the items of a batch that are not settled."""
    settled = {outcome["index"] for outcome in child.outcomes or ()}
    return tuple(index for index in items_of(fan_out, child.fan_out_index or 0) if index not in settled)


def tolerated_items(tolerate: Tolerate, item_count: int) -> int:
    """Return how many items may fail; a percentage is rounded down."""
    if tolerate.count is not None:
        return min(tolerate.count, item_count)
    return int(item_count * Decimal(repr(tolerate.percent or 0.0)) / 100)


def outputs_of(child: NodeState) -> Iterator[tuple[dict[str, Any] | None, PayloadRef | None]]:
    """Yield the output of each item of a child that succeeded, in item order, or where a large one lies."""
    if child.outcomes is not None:
        for outcome in child.outcomes:
            if outcome["status"] == COMPLETED:
                yield outcome.get("output"), _ref(outcome.get("output_ref"))
    elif child.status is NodeStatus.COMPLETED:
        yield child.output, _ref(child.output_ref)


def _ref(stored: Mapping[str, Any] | None) -> PayloadRef | None:
    return None if stored is None else PayloadRef.model_validate(stored)


def account(fan_out: FanOut, moves: Iterable[Move]) -> FanOut:
    """Return the row with what changed counted; the order of the changes makes no difference."""
    active, succeeded, failed, skipped = fan_out.active, fan_out.succeeded, fan_out.failed, fan_out.skipped
    failures: list[dict[str, Any]] = []
    for before, after in moves:
        active += _is_live(after) - _is_live(before)
        old, new = tally_of(fan_out, before), tally_of(fan_out, after)
        if new == old:
            continue
        succeeded += new.succeeded - old.succeeded
        skipped += new.skipped - old.skipped
        if new.failed != old.failed:
            failed += new.failed - old.failed
            failures += _failures_since(before, after)
    room = MAX_FAILURES - len(fan_out.failures)
    newest = sorted(failures, key=lambda failure: failure["index"])[: max(room, 0)]
    counts: dict[str, Any] = {"active": active, "succeeded": succeeded, "failed": failed, "skipped": skipped}
    if newest:
        counts["failures"] = [*fan_out.failures, *newest]
    return fan_out.model_copy(update=counts)


def closed(fan_out: FanOut, now: datetime) -> FanOut:
    """Return the row of a fan-out that is over: what did not end was skipped, failures are in item order.

    They are sorted here and not as they come, so that a result costs the same however many there are.
    """
    skipped = fan_out.item_count - fan_out.succeeded - fan_out.failed
    ended: dict[str, Any] = {"state": "done", "active": 0, "skipped": skipped, "wake_at": None, "completed_at": now}
    in_order = sorted(fan_out.failures, key=lambda failure: failure["index"])
    if in_order != fan_out.failures:
        ended["failures"] = in_order
    return fan_out.model_copy(update=ended)


def _is_live(child: NodeState | None) -> bool:
    return child is not None and child.status not in NODE_FINAL


def tally_of(fan_out: FanOut, child: NodeState | None) -> Tally:
    """Return how many items of a child have ended how."""
    if child is None:
        return NO_ITEMS
    if child.outcomes is not None:
        return _tally_of_batch(fan_out, child, child.outcomes)
    return ONE_ITEM.get(child.status, NO_ITEMS)


def _tally_of_batch(fan_out: FanOut, child: NodeState, outcomes: list[Any]) -> Tally:
    failed = sum(1 for outcome in outcomes if outcome["status"] == FAILED)
    rest = len(items_of(fan_out, child.fan_out_index or 0)) - len(outcomes) if child.status in NODE_FINAL else 0
    return Tally(len(outcomes) - failed, failed, rest)


def _failures_since(before: NodeState | None, after: NodeState) -> list[dict[str, Any]]:
    if after.outcomes is None:
        return [_failure(after.fan_out_index or 0, after.error or {})]
    known = {outcome["index"] for outcome in before.outcomes or ()} if before is not None else frozenset()
    return [
        _failure(outcome["index"], outcome["error"])
        for outcome in after.outcomes
        if outcome["status"] == FAILED and outcome["index"] not in known
    ]


def _failure(index: int, error: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: error[name] for name in ("code", "field", "classification") if error.get(name) is not None}
    return {"index": index, "error": {**kept, "message": str(error.get("message", ""))[:MAX_MESSAGE]}}
