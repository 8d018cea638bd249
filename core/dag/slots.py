"""Concurrency slots: what a job, or an attempt, has to hold before its work may begin.

The evaluator asks for slots and gives them back; the database grants them (`repositories.slots`), under the lock of
the key's limit, and the job hears of it in a later evaluation. The holder of a job's slot is the job's id. The holder
of a node's slot is the task id of the attempt: from WAITING for it until that attempt is over; of an attempt that was
cancelled or overran while its worker may still be at it, until its lease would have run out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from core.dag import gates
from core.dag.nodes import GLOBAL, Concurrency
from core.dag.run import Run
from core.dag.slot_wishes import SlotChanges, SlotRequest
from core.dag.templates import TemplateFailed
from core.dag.values import Ask, Needed, value_of
from core.errors import ErrorDetail
from core.ids import task_id
from core.models.engine import NodeState
from core.statuses import JOB_FINAL, AttemptState, NodeStatus

SLOT_KEY_INVALID = "SLOT_KEY_INVALID"
MAX_KEY = 256
_AT_WORK = frozenset({NodeStatus.DISPATCHED, NodeStatus.RUNNING})


def key_of(run: Run, concurrency: Concurrency, path: str, extra: Mapping[str, Any] | None = None) -> str:
    """Return the key that a template means. Only what its author wrote can make it global, never a value in it.

    Raises:
        TemplateFailed: it has no value, or none that can be a key.
        Needed: it reads something large.
    """
    program = run.workflow.key_programs[concurrency.key]
    value = value_of(run, Ask(f"{path}.key", concurrency.key, program, extra=extra or {})).value
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not 0 < len(text) <= MAX_KEY:
        message = f"{path}.key must be a text of 1 to {MAX_KEY} characters, or an integer; it is {str(value)[:80]!r}"
        raise TemplateFailed(message, code=SLOT_KEY_INVALID, field=f"{path}.key")
    key = text if concurrency.key.startswith(GLOBAL) else f"{run.job.workflow_id}:{text}"
    if key in held_for_children(run):
        raise TemplateFailed.of(_waits_for_itself(run, key, path))
    return key


def _waits_for_itself(run: Run, key: str, path: str) -> ErrorDetail:
    holder = "the job itself holds" if key == run.wishes.job_key else "a job holds that waits for this one"
    message = f"{path}.key is {key!r}, whose slot {holder}: it would wait for itself"
    return ErrorDetail(code=SLOT_KEY_INVALID, message=message, field=f"{path}.key")


def held_for_children(run: Run) -> tuple[str, ...]:
    """Return the keys of the slots that the job holds, and the jobs that wait for it, while a child job of it runs."""
    own = () if run.wishes.job_key is None else (run.wishes.job_key,)
    return (*(run.job.slots_above or ()), *own)


def begin(run: Run) -> ErrorDetail | None:
    """Find out which slot the job needs; return what is wrong with its key, which fails the job."""
    if run.workflow.concurrency is None:
        return None
    row = run.state.slots.get(run.job.job_id)
    if row is not None:
        if row.granted_at is None and row.slot_key in (run.job.slots_above or ()):
            return _waits_for_itself(run, row.slot_key, "concurrency")
        run.wishes.job_key = row.slot_key
        return None
    try:
        run.wishes.job_key = key_of(run, run.workflow.concurrency, "concurrency")
    except TemplateFailed as error:
        return error.detail
    except Needed as needed:
        run.need(needed.rendering)
    return None


def admits_job(run: Run, node_id: str) -> bool:
    """Return whether the job may work; if not, the node waits where it is and the job asks for its slot."""
    if run.workflow.concurrency is None or _is_granted(run, run.job.job_id):
        return True
    run.wishes.job_asks = True
    run.wait_for(node_id, "slot", {"key": run.wishes.job_key, "holder": "job"})
    return False


def admits(run: Run, node_id: str) -> bool:
    """Return whether a READY task may be sent; if not, it waits for the slot of its job, or WAITING for its own.

    Raises:
        TemplateFailed, Needed: As `key_of`.
    """
    if not admits_job(run, node_id):
        return False
    work, node = run.workflow.works[node_id], run.nodes[node_id]
    if work.concurrency is None or has_slot(run, node):
        return True
    key = node.slot_key or key_of(run, work.concurrency, f"nodes.{node_id}.concurrency")
    line_up(run, node_id, key)
    return False


def line_up(run: Run, node_id: str, key: str, params_digest: str | None = None) -> None:
    """Let a node wait for a slot for its next attempt."""
    request(run, run.node(node_id), key)
    waits = waiting(key, params_digest)
    run.move(node_id, NodeStatus.WAITING, "slot_requested", slot_key=key, not_before=None, waiting_for=waits)


def waiting(key: str, params_digest: str | None = None) -> dict[str, Any]:
    """Return what a node waits for; with the digest of large params that were made for it already."""
    detail = {"key": key, "holder": "attempt", "params_digest": params_digest}
    return {"kind": "slot", "detail": {name: value for name, value in detail.items() if value is not None}}


def request(run: Run, node: NodeState, key: str) -> None:
    """Ask for a slot for the next attempt of a node, or of a child of a fan-out."""
    concurrency, holder = run.workflow.works[node.parent_node_id or node.node_id].concurrency, _next_holder(node)
    if concurrency is not None:
        run.wishes.requests[holder] = SlotRequest(key, concurrency.limit, holder, node.node_id, run.job.priority)


def kept_digest(node: NodeState) -> str | None:
    """Return the digest of large params that were made before the node began to wait."""
    detail = (node.waiting_for or {}).get("detail")
    return detail.get("params_digest") if isinstance(detail, dict) else None


def waits_for_slot(node: NodeState) -> bool:
    """Return whether a node waits for a slot of its own."""
    return node.status is NodeStatus.WAITING and (node.waiting_for or {}).get("kind") == "slot"


def in_vain(run: Run, node: NodeState) -> ErrorDetail | None:
    """Return what is wrong with a wait in a line: a build that did not know of slots above may have begun it."""
    key = node.slot_key
    if key is None or key not in (run.job.slots_above or ()) or not waits_for_slot(node) or has_slot(run, node):
        return None
    path = f"nodes.{node.parent_node_id}.task" if node.parent_node_id else f"nodes.{node.node_id}"
    detail = _waits_for_itself(run, key, f"{path}.concurrency")
    return detail.model_copy(update={"node_id": node.node_id})


def wake(run: Run, node_id: str, queue: str | None) -> None:
    """Let a node go on whose slot is granted; one that a pause holds leaves the line, so that it takes no turn."""
    if has_slot(run, run.nodes[node_id]) or run.held_by(queue) is not None:
        run.move(node_id, NodeStatus.READY, ready_at=run.now)


def keep(run: Run, node_id: str) -> None:
    """Let a READY node that holds its slot keep it while a value is made for it."""
    node = run.nodes[node_id]
    if node.status is NodeStatus.READY and node.waiting_for is not None and has_slot(run, node):
        run.wait_for(node_id, node.waiting_for["kind"], {**node.waiting_for["detail"], "slot": "held"})


def conclude(run: Run) -> None:
    """Ask for what is wanted and give back what is not, by what changed since the evaluation began."""
    if not run.workflow.uses_slots and not run.state.slots:
        return
    before, after = dict(_held(run, run.state.nodes, run.state.children)), dict(_held(run, run.nodes, run.children))
    run.wishes.requests = {holder: one for holder, one in run.wishes.requests.items() if holder in after}
    noticed: list[str] = []
    given_back = {holder for holder in before if holder not in after and not _may_still_work(run, before[holder])}
    for holder, slot in run.state.slots.items():
        if slot.node_id is None or slot.granted_at is None or slot.noticed:
            continue
        if holder in after and not waits_for_slot(after[holder]):
            noticed.append(holder)
        elif holder not in after and holder not in before:
            given_back.add(holder)
    _conclude_job(run, given_back, noticed)
    run.wishes.changes = SlotChanges(
        requests=tuple(run.wishes.requests.values()),
        freed=tuple(sorted(given_back)),
        noticed=tuple(noticed),
        dropped=run.workflow.uses_slots and run.job.status in JOB_FINAL and run.state.job.status not in JOB_FINAL,
    )


def _conclude_job(run: Run, given_back: set[str], noticed: list[str]) -> None:
    """Ask for, keep or give back the slot of the job itself: nothing holds one while only a human can go on."""
    holder, row = run.job.job_id, run.state.slots.get(run.job.job_id)
    over, asks = run.job.status in JOB_FINAL, run.wishes.job_asks and run.job.status not in JOB_FINAL
    granted = _is_granted(run, holder)
    if row is not None and (over or (gates.only_gates_wait(run) if granted else not asks)):
        given_back.add(holder)
    elif row is not None and granted and not row.noticed:
        noticed.append(holder)
    elif row is None and asks and run.wishes.job_key and run.workflow.concurrency is not None:
        limit = run.workflow.concurrency.limit
        run.wishes.requests[holder] = SlotRequest(run.wishes.job_key, limit, holder, None, run.job.priority)
    reason = {"kind": "slot", "detail": {"key": run.wishes.job_key}} if asks else None
    if reason != run.job.waiting_for and (reason or (run.job.waiting_for or {}).get("kind") == "slot"):
        run.set_job(waiting_for=reason)


def _is_granted(run: Run, holder: str) -> bool:
    row = run.state.slots.get(holder)
    return row is not None and row.granted_at is not None


def has_slot(run: Run, node: NodeState) -> bool:
    """Return whether the next attempt of a node has its slot already."""
    if _is_granted(run, _next_holder(node)):
        return True
    before = run.state.nodes.get(node.node_id) or run.state.children.get(node.node_id)
    return before is not None and before.attempt == node.attempt and _keeps_one(before)


def _keeps_one(node: NodeState) -> bool:
    """Return whether a READY node kept the slot that it got, see `keep`."""
    detail = (node.waiting_for or {}).get("detail")
    return node.status is NodeStatus.READY and isinstance(detail, dict) and detail.get("slot") == "held"


def _next_holder(node: NodeState) -> str:
    return task_id(node.job_id, node.node_id, node.attempt)


def _held(
    run: Run, nodes: Mapping[str, NodeState], children: Mapping[str, NodeState]
) -> Iterator[tuple[str, NodeState]]:
    """Yield who holds or waits for a slot of a node, by holder."""
    for node_id in run.workflow.slotted:
        if node_id in nodes and (holder := _holder(nodes[node_id])) is not None:
            yield holder, nodes[node_id]
    for child in children.values():
        if child.parent_node_id in run.workflow.slotted and (holder := _holder(child)) is not None:
            yield holder, child


def _holder(node: NodeState) -> str | None:
    if waits_for_slot(node) or _keeps_one(node):
        return _next_holder(node)
    return node.task_id if node.status in _AT_WORK else None


def _may_still_work(run: Run, node: NodeState) -> bool:
    """Return whether a worker may not know yet that its attempt was ended here: it is over with its lease."""
    attempt = run.state.attempts.get(node.node_id)
    if attempt is None or attempt.task_id != node.task_id or attempt.task_id not in run.attempts_ended:
        return False
    lease = attempt.lease_expires_at
    return attempt.state is AttemptState.LEASED and lease is not None and lease > run.now
