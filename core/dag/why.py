"""Why a node does not go on: from its row, its attempt, and what is known of workers and pauses. Pure.

dependency  some of its sources have not settled
queue       its task waits for one of the workers of its queue
worker      no worker of its queue is alive
no_fit      the newest worker that was asked had no room for it
paused      its job, or a switch, holds it
slot, backoff, gate, child, payload, released    as the evaluator noted
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.dag.definition import Workflow
from core.models.engine import Attempt, Job, NodeState
from core.statuses import JOB_FINAL, NODE_FINAL, AttemptState, NodeStatus

Reason = dict[str, Any]


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
    return {key: _reason(workflow, job, nodes, key, attempts.get(key), around) for key in nodes}


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
