"""What pauses a job: the job's own flag, and the switches in force of everything, of its workflow and of a queue."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from core.dag.definition import Workflow
from core.handlers_catalog import HandlerSpec
from core.models.engine import Job, NodeState


def holding(job: Job, pauses: Collection[str], queue: str | None = None) -> tuple[str, ...]:
    """Return all that pauses work for a queue, or work that needs none; rows of nodes have the first of it."""
    if job.paused_at is None and not pauses:
        return ()
    switches = ("all", f"workflow:{job.workflow_id}", *((f"queue:{queue}",) if queue else ()))
    own = () if job.paused_at is None else ("job",)
    return (*own, *(switch for switch in switches if switch in pauses))


def queue_of(workflow: Workflow, node_id: str, catalog: Mapping[str, HandlerSpec]) -> str | None:
    """Return the queue of a task or of a fan-out; None when it needs none, or this build does not know its handler."""
    work = workflow.works.get(node_id)
    if work is None:
        return None
    spec = catalog.get(work.handler)
    return work.queue or (None if spec is None else spec.queue)


def hold_of_job(
    workflow: Workflow,
    job: Job,
    nodes: Iterable[NodeState],
    pauses: Collection[str],
    catalog: Mapping[str, HandlerSpec],
) -> dict[str, Any] | None:
    """Return what a job waits for of which a pause holds some nodes: all that holds any of them; else None."""
    held = dict.fromkeys(_all_noted(workflow, job, nodes, pauses, catalog))
    return {"kind": "paused", "detail": list(held)} if held else None


def _all_noted(
    workflow: Workflow,
    job: Job,
    nodes: Iterable[NodeState],
    pauses: Collection[str],
    catalog: Mapping[str, HandlerSpec],
) -> Iterator[str]:
    for node in nodes:
        if node.waiting_for is not None and node.waiting_for["kind"] == "paused":
            yield from holding(job, pauses, queue_of(workflow, node.node_id, catalog))
            yield node.waiting_for["detail"]
