"""Why a node does not go on: from its row, its attempt, and what is known of workers and pauses. Pure.

`dependency`, `queue`, `worker`, `no_fit`, `dead_letter`, `children` and, of a task in its queue, `paused` are found
here; the others the evaluator noted. docs/workflow-language.md says what each kind means.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from core.dag.definition import Workflow
from core.dag.holds import holding, queue_of
from core.handlers_catalog import CATALOG
from core.ids import message_id
from core.models.engine import Attempt, Job, NodeState
from core.statuses import JOB_FINAL, NODE_FINAL, AttemptState, NodeStatus

Reason = dict[str, Any]

KINDS: Mapping[str, tuple[str, ...]] = {
    "dependency": ("open",),
    "queue": ("queue", "workers", "since"),
    "worker": ("queue",),
    "no_fit": ("queue", "reason"),
    "dead_letter": ("dead_letter_id", "classification", "until"),
    "paused": ("switches",),
    "slot": ("key", "holder"),
    "backoff": ("until", "code"),
    "released": ("reason",),
    "gate": ("expires_at",),
    "child": ("job_id", "workflow_id", "version"),
    "children": ("waiting",),
    "payload": ("value", "reads"),
}
"""What `detail` has, by kind."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that became a dead letter and was not sent again."""

    message_id: str
    dead_letter_id: int
    classification: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides beside the job itself."""

    pauses: frozenset[str]
    """Switches in force."""
    workers: Mapping[str, int]
    """Workers that were heard of lately, by queue."""
    lost: Mapping[str, Lost] = field(default_factory=dict)
    """What became dead letters of the newest messages of the tasks in question, by message id."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Some children of one fan-out that have not ended and are alike."""

    node_id: str
    """Of the fan-out."""
    state: str
    """Of their attempts; of children without one what they wait for: slot, backoff or released."""
    queue: str | None
    no_fit: bool
    lost: bool
    """Their newest messages became dead letters."""
    count: int


@dataclass(frozen=True, slots=True)
class Children:
    """What the children of a fan-out that were made and have not ended are at."""

    running: int
    waiting: Mapping[str, int]
    """How many by the kind of what they wait for."""


def children_of(job: Job, groups: Iterable[Alike], around: Surroundings) -> dict[str, Children]:
    """Return what the children of each fan-out are at."""
    counts: dict[str, Counter[str | None]] = {}
    for one in groups:
        kind = _kind(job, one.state, one.queue, one.no_fit, one.lost, around) if one.queue else one.state
        counts.setdefault(one.node_id, Counter())[kind] += one.count
    return {
        node_id: Children(kinds[None], {kind: kinds[kind] for kind in sorted(filter(None, kinds))})
        for node_id, kinds in counts.items()
    }


def waiting_for(
    workflow: Workflow,
    job: Job,
    nodes: Mapping[str, NodeState],
    attempts: Mapping[str, Attempt],
    around: Surroundings,
    children: Mapping[str, Children] = MappingProxyType({}),
) -> dict[str, Reason | None]:
    """Return {kind, detail} for each node that waits, None for one that runs or has ended; the other facts by node."""
    if job.status in JOB_FINAL:
        return dict.fromkeys(nodes)
    found = {key: _reason(workflow, job, nodes, key, attempts.get(key), around) for key in nodes}
    for key, crowd in children.items():
        if key in nodes and found[key] is None and not crowd.running and crowd.waiting:
            found[key] = {"kind": "children", "detail": {"waiting": crowd.waiting}}
    return {key: _with_all_switches(told(reason), workflow, job, nodes[key], around) for key, reason in found.items()}


def told(noted: Mapping[str, Any] | None) -> Reason | None:
    """Return in the shape of `KINDS` what a row of a job or of a node says; what only the evaluator needs is left out.

    Rows keep the older shape, which builds before this one read and write: one switch as a text, those of a job as a
    list, and with `released` its reason or a time.
    """
    if noted is None:
        return None
    kind, detail = noted["kind"], noted.get("detail")
    if kind == "paused" and isinstance(detail, Mapping) and "switch" in detail:
        detail = {"switches": [detail["switch"]]}
    elif kind == "paused" and not isinstance(detail, Mapping):
        detail = {"switches": detail if isinstance(detail, list) else [detail]}
    elif kind == "released" and isinstance(detail, str):
        detail = {"reason": detail}
    elif kind == "slot":
        detail = {"holder": "job", **(detail or {})}
    known = detail or {}
    return {"kind": kind, "detail": {name: known.get(name) for name in KINDS.get(kind, known)}}


def _reason(
    workflow: Workflow,
    job: Job,
    nodes: Mapping[str, NodeState],
    node_id: str,
    attempt: Attempt | None,
    around: Surroundings,
) -> Reason | None:
    node = nodes[node_id]
    if node.status in NODE_FINAL:
        return None
    if node.status is NodeStatus.PENDING:  # its `when` may wait for a value
        return node.waiting_for or _dependency(workflow, nodes, node_id)
    if node.status is not NodeStatus.DISPATCHED:
        return node.waiting_for
    if attempt is None or attempt.task_id != node.task_id:
        return node.waiting_for
    return _in_queue(job, attempt, around)


def _dependency(workflow: Workflow, nodes: Mapping[str, NodeState], node_id: str) -> Reason:
    sources = workflow.graph.incoming.get(node_id, ())
    unsettled = [source for source in sources if source in nodes and nodes[source].status not in NODE_FINAL]
    return {"kind": "dependency", "detail": {"open": unsettled}}


def _in_queue(job: Job, attempt: Attempt, around: Surroundings) -> Reason | None:
    queue, letter = attempt.queue, around.lost.get(message_id(attempt.task_id, attempt.dispatch_no))
    match kind := _kind(job, attempt.state, queue, attempt.no_fit is not None, letter is not None, around):
        case None:
            return None
        case "paused":
            return {"kind": kind, "detail": list(holding(job, around.pauses, queue))}
        case "dead_letter":
            until = attempt.redispatch_at and attempt.redispatch_at.isoformat()
            return {"kind": kind, "detail": {**asdict(letter), "until": until} if letter else None}
        case "no_fit":
            return {"kind": kind, "detail": {"queue": queue, "reason": attempt.no_fit}}
    since = attempt.queued_at.isoformat()
    return {"kind": kind, "detail": {"queue": queue, "workers": around.workers.get(queue, 0), "since": since}}


def _kind(job: Job, state: str, queue: str, no_fit: bool, lost: bool, around: Surroundings) -> str | None:
    """Return what an attempt in this state waits for; None for one that runs, or is over."""
    if state not in {AttemptState.QUEUED, AttemptState.PARKED}:
        return None
    if holding(job, around.pauses, queue):
        return "paused"
    if lost:
        return "dead_letter"
    if not around.workers.get(queue, 0):
        return "worker"
    return "no_fit" if no_fit else "queue"


def _with_all_switches(
    reason: Reason | None, workflow: Workflow, job: Job, node: NodeState, around: Surroundings
) -> Reason | None:
    """Return why a node waits with all that holds it: its row has what held it first."""
    if reason is None or reason["kind"] != "paused":
        return reason
    queue = queue_of(workflow, node.parent_node_id or node.node_id, CATALOG)
    every = dict.fromkeys([*holding(job, around.pauses, queue), *reason["detail"]["switches"]])
    return {**reason, "detail": {"switches": list(every)}}
