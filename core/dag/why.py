"""Why a node does not go on: from its row, its attempt, and what is known of workers and pauses. Pure.

`dependency`, `queue`, `worker`, `no_fit` and, of a task in its queue, `paused` are found here; the others the evaluator
noted. docs/workflow-language.md says what each kind means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.dag.definition import Workflow
from core.models.engine import Attempt, Job, NodeState
from core.statuses import JOB_FINAL, NODE_FINAL, AttemptState, NodeStatus

Reason = dict[str, Any]

KINDS: Mapping[str, tuple[str, ...]] = {
    "dependency": ("open",),
    "queue": ("queue", "workers", "since"),
    "worker": ("queue",),
    "no_fit": ("queue", "reason"),
    "paused": ("switches",),
    "slot": ("key", "holder"),
    "backoff": ("until", "code"),
    "released": ("reason",),
    "gate": ("expires_at",),
    "child": ("job_id", "workflow_id", "version"),
    "payload": ("value", "reads"),
}
"""What `detail` has, by kind."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides beside the job itself."""

    pauses: frozenset[str]
    """Switches in force."""
    workers: Mapping[str, int]
    """Workers that were heard of lately, by queue."""


def waiting_for(
    workflow: Workflow,
    job: Job,
    nodes: Mapping[str, NodeState],
    attempts: Mapping[str, Attempt],
    around: Surroundings,
) -> dict[str, Reason | None]:
    """Return {kind, detail} for each vertex that waits, None for one that runs or has ended; `attempts` by node."""
    if job.status in JOB_FINAL:
        return dict.fromkeys(nodes)
    return {key: told(_reason(workflow, job, nodes, key, attempts.get(key), around)) for key in nodes}


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
    switches = ("all", f"workflow:{job.workflow_id}", f"queue:{attempt.queue}")
    held = "job" if job.paused_at is not None else next((one for one in switches if one in around.pauses), None)
    workers = around.workers.get(attempt.queue, 0)
    if held is not None and attempt.state in {AttemptState.QUEUED, AttemptState.PARKED}:
        return {"kind": "paused", "detail": held}
    if attempt.state is not AttemptState.QUEUED:
        return None
    if workers == 0:
        return {"kind": "worker", "detail": {"queue": attempt.queue}}
    if attempt.no_fit is not None:
        return {"kind": "no_fit", "detail": {"queue": attempt.queue, "reason": attempt.no_fit}}
    return {
        "kind": "queue",
        "detail": {"queue": attempt.queue, "workers": workers, "since": attempt.queued_at.isoformat()},
    }
