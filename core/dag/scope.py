"""What templates and conditions of a job may look up."""

from collections.abc import Iterator, Mapping
from typing import Any

from core.dag.run import Run
from core.models.engine import NodeState
from core.statuses import NodeStatus


class _NodeViews(Mapping[str, Mapping[str, Any]]):
    """What templates see of nodes: the status, and the output of those that completed."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes

    def __getitem__(self, node_id: str) -> Mapping[str, Any]:
        node = self._nodes[node_id]
        if node.output_ref is not None:
            return {"status": node.status.value, "output": Unread(node_id)}
        if node.status is NodeStatus.COMPLETED:
            return {"status": node.status.value, "output": node.output if node.output is not None else {}}
        return {"status": node.status.value}

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class Unread(Mapping[str, Any]):
    """Stands for an output that lies in a blob; `core.dag.values` lets no template come here."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(f"the output of {self._node_id} was looked into without having been read")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError(f"the output of {self._node_id} was gone through without having been read")

    def __len__(self) -> int:
        raise RuntimeError(f"the output of {self._node_id} was measured without having been read")


def scope_of(run: Run) -> dict[str, Any]:
    """Return what templates of this job may look up."""
    job = run.job
    facts = {
        "job_id": job.job_id,
        "workflow_id": job.workflow_id,
        "workflow_version": job.workflow_version,
        "run_no": job.run_no,
        "priority": job.priority,
        "correlation_id": job.correlation_id,
        "created_at": job.created_at.isoformat(),
    }
    return {"inputs": job.input_params, "nodes": _NodeViews(run.nodes), "job": facts}
