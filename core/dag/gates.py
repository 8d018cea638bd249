"""Gates: a node that waits for a human or a signal, for at most `expires_after_seconds`. The first decision wins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from core.dag.json_values import NotJson, as_stored
from core.dag.nodes import GateNode
from core.dag.run import Run
from core.errors import Conflict, ErrorDetail, NotFound, ParameterInvalid, PayloadTooLarge
from core.ids import canonical_json
from core.models.engine import NodeState
from core.payloads import LIMIT_BYTES
from core.statuses import JOB_FINAL, NodeStatus

GATE_EXPIRED = "GATE_EXPIRED"
GATE_REJECTED = "GATE_REJECTED"


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What somebody decided; with `actor` from the credential, never from the body."""

    decision: Literal["approved", "rejected"]
    actor: str
    reason: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Anything for the nodes that follow, at most 64 KiB."""

    def output(self) -> dict[str, Any]:
        """Return the output of the gate."""
        return {"decision": self.decision, "actor": self.actor, "reason": self.reason, "data": dict(self.data)}


def go_on(run: Run, node_id: str, node: GateNode) -> None:
    """Let a READY gate wait."""
    seconds = node.expires_after_seconds
    expires = None if seconds is None else run.now + timedelta(seconds=seconds)
    run.start_job()
    run.move(
        node_id,
        NodeStatus.WAITING,
        "gate_opened",
        not_before=expires,
        waiting_for={"kind": "gate", "detail": {"expires_at": expires and expires.isoformat()}},
    )


def wake(run: Run, node_id: str) -> None:
    """Let a gate that nobody decided in time fail; it is not opened again."""
    node = run.nodes[node_id]
    if _has_expired(run, node):
        message = f"nobody decided the gate {node_id} by {node.not_before:%Y-%m-%dT%H:%M:%SZ}"
        run.fail_node(node_id, ErrorDetail(code=GATE_EXPIRED, message=message, node_id=node_id))


def decide(run: Run, node_id: str, decision: GateDecision) -> None:
    """Write a decision; the evaluation goes on from there.

    Raises:
        NotFound: the job has no such gate.
        ParameterInvalid, PayloadTooLarge: its data cannot be stored.
        Conflict: GATE_DECIDED with the decision that won; GATE_EXPIRED; GATE_NOT_OPEN when the gate is not reached yet;
            NODE_FINAL when it was skipped or cancelled; JOB_FINAL when the job ended without a decision.
    """
    node = run.nodes.get(node_id)
    if node is None or not isinstance(run.workflow.nodes.get(node_id), GateNode):
        raise NotFound(f"the job has no gate {node_id!r}", field="node_id", value=node_id)
    output = decision.output() | {"data": _stored(decision.data)}
    _check_open(run, node)
    if decision.decision == "approved":
        run.move(node_id, NodeStatus.COMPLETED, data=output, output=output, error=None)
    else:
        message = f"{decision.actor} rejected: {decision.reason or 'no reason given'}"
        run.fail_node(node_id, ErrorDetail(code=GATE_REJECTED, message=message, node_id=node_id), output=output)


def _check_open(run: Run, node: NodeState) -> None:
    """Refuse a decision that comes too late or too early; what became of the gate counts before the end of its job."""
    gate, state = f"the gate {node.node_id}", _state_of(node)
    if node.status is NodeStatus.COMPLETED or state["error"] == GATE_REJECTED:
        raise Conflict(f"{gate} was {_told(node)}", code="GATE_DECIDED", value=state)
    if state["error"] == GATE_EXPIRED or _has_expired(run, node):
        raise Conflict(f"{gate} expired; nobody had decided it", code=GATE_EXPIRED, value=state)
    if run.job.status in JOB_FINAL:
        message = f"the job is {run.job.status} already; nobody decided {gate}, it is {node.status}"
        raise Conflict(message, code="JOB_FINAL", value=run.job.status.value)
    if node.status in {NodeStatus.PENDING, NodeStatus.READY}:
        raise Conflict(f"{gate} is not reached yet", code="GATE_NOT_OPEN", value=state)
    if node.status is not NodeStatus.WAITING:
        raise Conflict(f"{gate} is {node.status} already; nobody decided it", code="NODE_FINAL", value=state)


def _told(node: NodeState) -> str:
    """Return who decided what, and why."""
    won = node.output or {}
    return f"{won.get('decision')} by {won.get('actor')}: {won.get('reason') or 'no reason given'}"


def _state_of(node: NodeState) -> dict[str, Any]:
    """Return what the loser of a race is told."""
    error = node.error or {}
    return {"node_id": node.node_id, "status": node.status.value, "output": node.output, "error": error.get("code")}


def _has_expired(run: Run, node: NodeState) -> bool:
    return node.not_before is not None and node.not_before <= run.now


def _stored(data: Mapping[str, Any]) -> Any:
    """Return the data of a decision as they will be read; raises for what cannot be stored."""
    try:
        stored = as_stored(dict(data), "data")
    except NotJson as error:
        raise ParameterInvalid(error.detail.message, field="data") from error
    size = len(canonical_json(stored).encode())
    if size > LIMIT_BYTES:
        raise PayloadTooLarge(f"data has {size} bytes, more than {LIMIT_BYTES}", field="data")
    return stored


def only_gates_wait(run: Run) -> bool:
    """Return whether nothing of the job can go on before a human decides: such a job holds no slot."""
    unfinished = [(run.workflow.nodes[node_id], run.nodes[node_id].status) for node_id in run.unfinished()]
    at_gates = [isinstance(node, GateNode) and status is NodeStatus.WAITING for node, status in unfinished]
    return any(at_gates) and all(
        waits or status is NodeStatus.PENDING for waits, (_, status) in zip(at_gates, unfinished, strict=True)
    )
