"""Turns what decisions say about fan-outs into rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.models.engine import NodeState
from core.models.fan_out import FanOut
from repositories.fan_out_decisions import FanOutDecisionRepository
from repositories.fan_outs import CHUNK_ITEMS
from services.evaluation import Step
from services.work import Connection, begin_meanwhile

Row = dict[str, Any]

_CREATED = (
    "job_id", "node_id", "status", "task_id", "attempt", "input_params", "input_ref", "error", "parent_node_id",
    "fan_out_index", "first_dispatched_at", "dispatched_at", "completed_at", "outcomes",
    "slot_key", "waiting_for",
)  # fmt: skip
_CHANGED = (
    "job_id", "node_id", "status", "task_id", "attempt", "retries_used", "losses_used", "not_before", "waiting_for",
    "output", "output_ref", "outcomes", "error", "ready_at", "first_dispatched_at", "dispatched_at", "started_at",
    "completed_at",
)  # fmt: skip
_RUNNING = (
    "job_id", "node_id", "state", "max_concurrency", "next_child", "active", "succeeded", "failed", "skipped",
    "wake_at", "completed_at",
)  # fmt: skip


async def write_fan_outs(conn: Connection, steps: Sequence[Step]) -> None:
    """Send everything that decisions say about fan-outs and children; nothing when they say nothing.

    That may be thousands of rows: the server writes them while the rest of the transaction is made ready.
    """
    steps = [step for step in steps if _says_something(step)]
    if not steps:
        return
    rows = [(row, _known(step, row)) for step in steps for row in step.decision.fan_outs]
    repository = FanOutDecisionRepository(conn)
    await repository.write(
        opened=[row.__dict__ for row, known in rows if known is None],
        fan_outs=[_running(row, known) for row, known in rows if known is not None],
        items=list(_items(steps)),
        changed=[_changed(step, child) for step in steps for child in step.decision.children],
    )
    begin_meanwhile(conn)
    await repository.write(created=[_given(child, _CREATED) for step in steps for child in step.decision.new_children])
    begin_meanwhile(conn)


def concern_fan_outs(steps: Iterable[Step]) -> bool:
    """Return whether `write_fan_outs` has anything to write."""
    return any(_says_something(step) for step in steps)


def _says_something(step: Step) -> bool:
    decision = step.decision
    return bool(decision.fan_outs or decision.children or decision.new_children)


def _known(step: Step, row: FanOut) -> FanOut | None:
    """Return the row as it is stored; None for one that begins, maybe anew."""
    return None if row.node_id in step.decision.reset else step.state.fan_outs.get(row.node_id)


def _running(row: FanOut, known: FanOut) -> Row:
    failures = {} if row.failures is known.failures else {"failures": row.failures}
    return {**_given(row, _RUNNING), **failures}


def _items(steps: Iterable[Step]) -> Iterable[Row]:
    for step in steps:
        for expansion in step.decision.expansions:
            for first in range(0, len(expansion.items), CHUNK_ITEMS):
                chunk = {"chunk_no": first // CHUNK_ITEMS, "items": expansion.items[first : first + CHUNK_ITEMS]}
                yield {"job_id": step.state.job.job_id, "node_id": expansion.node_id, **chunk}


def _changed(step: Step, child: NodeState) -> Row:
    return {**_given(child, _CHANGED), "from_status": step.state.children[child.node_id].status}


def _given(row: NodeState | FanOut, columns: Iterable[str]) -> Row:
    """Return columns without those that are NULL, which a document need not say."""
    values: Mapping[str, Any] = row.__dict__
    return {name: values[name] for name in columns if values[name] is not None}
