"""Fan-outs: a list is expanded once, its children are made as the window moves, and settle in any order.

A fan-out stays RUNNING until its last item is settled. Its row counts; an evaluation sees only the children that
something happens to, so what a result costs does not depend on how many items there are.

    state  expanding   a large source is being stored as rows
           running     the window moves
           stopping    more items failed than are tolerated: nothing starts, what runs ends
           done
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from core.dag import children, slots
from core.dag.children import Nursery
from core.dag.chores import Unpacking
from core.dag.nodes import FanOutNode
from core.dag.rendering import Rendered, Shape
from core.dag.run import Run
from core.dag.tallies import child_id, tally_of, tolerated_items
from core.dag.templates import TemplateFailed
from core.dag.timers import child_timers
from core.dag.values import Ask, Needed, value_of
from core.errors import ErrorDetail
from core.models.engine import NodeState
from core.models.fan_out import FanOut
from core.payloads import PayloadRef
from core.statuses import NODE_FINAL, AttemptState, NodeStatus
from core.wording import a_kind

MAX_ITEMS = 1_000_000
MAX_NEW_CHILDREN = 256
"""Children that one evaluation makes at most."""
SHOWN_CHILDREN = 1000
INLINE_BYTES = 1 << 20
"""Sources up to this size are stored by the evaluation's own transaction."""
REFILL_SECONDS = 0.01


def go_on(run: Run, node_id: str, node: FanOutNode) -> None:
    """Expand a READY fan-out, unless something holds it."""
    if node.task.handler not in run.catalog:
        message = f"this build has no handler {node.task.handler}"
        run.fail_node(node_id, ErrorDetail(code="HANDLER_UNKNOWN", message=message, node_id=node_id))
        return
    if run.holds(node_id, _queue_of(run, node)) or run.overdue or not slots.admits_job(run, node_id):
        return
    try:
        source = _source(run, node_id, node)
    except TemplateFailed as error:
        run.fail_node(node_id, error.detail.model_copy(update={"node_id": node_id}))
        return
    _open(run, node_id, node, source)
    carry_on(run, node_id, node)


def _source(run: Run, node_id: str, node: FanOutNode) -> Rendered:
    """Return the list, or where it lies; a large list is stored in lines of 500 items."""
    ask = Ask(
        path=f"nodes.{node_id}.source",
        template=node.source,
        program=run.workflow.source_programs[node_id],
        shape=Shape.LINES,
        value_bytes=INLINE_BYTES,
    )
    try:
        source = value_of(run, ask)
    except TemplateFailed as error:
        if node.source in error.detail.message:
            raise
        raise TemplateFailed(
            f"source {node.source}: {error.detail.message}", code=error.detail.code, field=ask.path
        ) from error
    if source.value is not None or source.ref is None:
        if not isinstance(source.value, list):
            message = f"source {node.source} is {a_kind(source.value)}, not a list"
            raise TemplateFailed(message, code="FAN_OUT_SOURCE", field=ask.path)
        source = replace(source, ref=None, length=len(source.value))
    if (source.length or 0) > MAX_ITEMS:
        message = f"source {node.source} has {source.length} items; at most {MAX_ITEMS} are run"
        raise TemplateFailed(message, code="FAN_OUT_TOO_LARGE", field=ask.path)
    return source


def _open(run: Run, node_id: str, node: FanOutNode, source: Rendered) -> None:
    """Start the row of a fan-out; its first children come right after."""
    state, count = run.nodes[node_id], source.length or 0
    fan_out = FanOut(
        job_id=run.job.job_id,
        node_id=node_id,
        state="running" if source.ref is None else "expanding",
        item_count=count,
        child_count=-(-count // node.batch_size),
        batch_size=node.batch_size,
        max_concurrency=node.max_concurrency,
        tolerated=tolerated_items(node.tolerate, count),
        created_at=run.now,
        first_attempt=state.attempt,
    )
    run.start_job()
    run.family.open(fan_out, source.value if source.ref is None else None)
    run.move(
        node_id,
        NodeStatus.RUNNING,
        data={"items": count, "tasks": fan_out.child_count},
        attempt=state.attempt + 1,
        started_at=run.now,
        input_ref=None if source.ref is None else source.ref.model_dump(),
    )


def carry_on(run: Run, node_id: str, node: FanOutNode) -> None:
    """Do everything that a RUNNING fan-out can do now."""
    if run.fan_outs[node_id].state == "expanding" and not _is_unpacked(run, node_id):
        return
    fan_out = run.family.count(node_id)
    queue = _queue_of(run, node)
    if fan_out.state == "running" and run.holds(node_id, queue):
        for child in run.family.live(node_id):
            children.hold(run, child.node_id, run.held_by(queue) or "")
    elif fan_out.state == "running" and not run.overdue:
        _wake(run, node_id)
        _fill(run, node_id, node)
        _raise_attempt(run, node_id)
        fan_out = run.family.count(node_id)
    if fan_out.failed > fan_out.tolerated:
        _stop(run, node_id)
        fan_out = run.family.count(node_id)
    if fan_out.active == 0 and (fan_out.state == "stopping" or fan_out.next_child == fan_out.child_count):
        _end(run, node_id)


def resume(run: Run) -> None:
    """Begin the time in the queue anew of what waited in it while a pause held the fan-out.

    Children that gave their slots back meanwhile have to be seen to line up again.
    """
    for node_id in run.fan_outs:
        node = run.workflow.nodes[node_id]
        if not isinstance(node, FanOutNode) or not _is_resumed(run, node_id, node):
            continue
        if node.task.concurrency is not None:
            run.incomplete = run.incomplete or not run.family.all_live_seen(node_id)
        if node.task.queue_timeout_seconds or run.workflow.defaults.queue_timeout_seconds:
            run.incomplete = run.incomplete or not run.family.all_live_seen(node_id)
            for child in run.family.live(node_id):
                if child.status is NodeStatus.DISPATCHED:
                    run.family.put(child.model_copy(update={"dispatched_at": run.now}))


def _is_resumed(run: Run, node_id: str, node: FanOutNode) -> bool:
    """Return whether a pause held a fan-out when it was looked at last, and holds it no more."""
    before = run.state.nodes[node_id]
    was_held = before.status is NodeStatus.RUNNING and (before.waiting_for or {}).get("kind") == "paused"
    return was_held and run.held_by(_queue_of(run, node)) is None


def _queue_of(run: Run, node: FanOutNode) -> str:
    return node.task.queue or run.catalog[node.task.handler].queue


def _is_unpacked(run: Run, node_id: str) -> bool:
    """Go on to `running` when all items are stored; until then ask for it."""
    fan_out = run.fan_outs[node_id]
    if run.state.stored_items.get(node_id, 0) < fan_out.item_count:
        ref = PayloadRef.model_validate(run.nodes[node_id].input_ref)
        unpacking = Unpacking(run.job.job_id, node_id, run.job.run_no, ref)
        answer = run.state.rendered.get(unpacking.key)
        if answer is not None and answer.error is not None:
            run.family.close(node_id, run.now)
            run.fail_node(node_id, answer.error.model_copy(update={"node_id": node_id}))
        else:
            run.add_chore(unpacking)
        return False
    run.family.change(node_id, state="running")
    return True


def _raise_attempt(run: Run, node_id: str) -> None:
    """Keep the fan-out's own number above those of its children: after a rerun they go on from there."""
    highest = max((child.attempt for child in run.family.of(node_id)), default=0)
    if highest > run.nodes[node_id].attempt:
        run.nodes[node_id] = run.nodes[node_id].model_copy(update={"attempt": highest})


def _wake(run: Run, node_id: str) -> None:
    """Send the next attempts of children whose backoff is over or whose slot is granted."""
    for child in tuple(run.family.of(node_id)):
        if child.status is NodeStatus.WAITING:
            children.wake(run, child.node_id)


def _fill(run: Run, node_id: str, node: FanOutNode) -> None:
    """Make children while there is room and there are items; stop at the first failure too many."""
    fan_out = run.family.count(node_id)
    nursery = Nursery(run, node_id, node.task, run.catalog[node.task.handler])
    start, items = run.family.items_of(node_id)
    number, room, failed = fan_out.next_child, fan_out.max_concurrency - fan_out.active, fan_out.failed
    last = min(fan_out.child_count, number + MAX_NEW_CHILDREN)
    while number < last and room > 0 and failed <= fan_out.tolerated:
        batch = _batch(fan_out, number, start, items)
        if not batch:
            break
        try:
            child = nursery.make(fan_out, number, batch)
        except Needed as needed:
            run.need(needed.rendering)
            break
        number += 1
        room -= child.status not in NODE_FINAL
        failed += tally_of(fan_out, child).failed
    run.family.change(node_id, next_child=number)


def _batch(fan_out: FanOut, number: int, start: int, items: Sequence[Any]) -> Sequence[Any]:
    """Return the items of one child, or none when not all of them are here."""
    first = number * fan_out.batch_size
    size = min(fan_out.batch_size, fan_out.item_count - first)
    batch = items[first - start : first - start + size]
    return batch if len(batch) == size else ()


def _stop(run: Run, node_id: str) -> None:
    """Let nothing start any more: what runs ends, what waits or lies in a queue is cancelled."""
    if run.fan_outs[node_id].state == "running":
        if not run.family.all_live_seen(node_id):
            run.incomplete = True
            return
        run.family.change(node_id, state="stopping")
    run.wait_for_nothing(node_id)
    for child in run.family.live(node_id):
        if not _is_running(run, child):
            run.cancel_node(child.node_id, "more items failed than are tolerated")


def _is_running(run: Run, child: NodeState) -> bool:
    attempt = run.attempt_of(child.node_id)
    idle = attempt is None or attempt.state in {AttemptState.QUEUED, AttemptState.PARKED}
    return child.status is not NodeStatus.WAITING and not idle and child.node_id not in run.dispatches


def _end(run: Run, node_id: str) -> None:
    fan_out = run.family.close(node_id, run.now)
    shown = min(fan_out.next_child, SHOWN_CHILDREN)
    output: dict[str, Any] = {
        "fan_out_count": fan_out.item_count,
        "succeeded": fan_out.succeeded,
        "failed": fan_out.failed,
        "skipped": fan_out.skipped,
        "failures": fan_out.failures,
        "child_node_ids": [child_id(node_id, number) for number in range(shown)],
    }
    if fan_out.failed <= fan_out.tolerated:
        run.move(node_id, NodeStatus.COMPLETED, output=output)
        return
    first: dict[str, Any] = fan_out.failures[0]
    message = f"{fan_out.failed} of {fan_out.item_count} items failed, {fan_out.tolerated} are tolerated"
    error = ErrorDetail(
        code="FAN_OUT_FAILED",
        message=f"{message}; item {first['index']}: {first['error']['message']}",
        value=first,
        node_id=node_id,
    )
    run.fail_node(node_id, error, output=output)


def set_timers(run: Run) -> None:
    """Note in each row when one of its children has a timer, so that nobody has to look at all of them."""
    for node_id, fan_out in tuple(run.fan_outs.items()):
        if fan_out.state in {"running", "stopping"}:
            run.family.change(node_id, wake_at=_wake_at(run, node_id, fan_out))


def _wake_at(run: Run, node_id: str, fan_out: FanOut) -> datetime | None:
    """Return a time not later than the next timer of any child.

    Timers that came due during a pause are not among those that are known: after it, all are looked for.
    """
    known = run.state.fan_outs.get(node_id)
    others = known.wake_at if known else None
    if others is not None and others <= run.now:
        others = run.state.child_timers.get(node_id)
    looked_at: dict[str, NodeState] = {}
    for child in run.family.live(node_id):
        looked_at["sent now" if child.node_id in run.dispatches else child.node_id] = child  # those have equal timers
    timers = [timer for child in looked_at.values() for timer in child_timers(run, child)]
    if others is not None:
        timers.append(others)
    node = run.workflow.nodes[node_id]
    if isinstance(node, FanOutNode) and (_may_fill(run, node, fan_out) or _is_resumed(run, node_id, node)):
        timers.append(run.now + timedelta(seconds=REFILL_SECONDS))
    return min(timers, default=None)


def _may_fill(run: Run, node: FanOutNode, fan_out: FanOut) -> bool:
    """Return whether there is room left that this evaluation had no items for, or not the time."""
    if fan_out.state != "running" or run.needs or run.overdue:
        return False
    if run.held_by(_queue_of(run, node)) is not None:
        return False
    return fan_out.active < fan_out.max_concurrency and fan_out.next_child < fan_out.child_count
