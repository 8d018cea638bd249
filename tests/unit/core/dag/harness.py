"""The outside of the evaluator, in memory: claims, results, releases and time, as services and workers make them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from core.dag.apply import apply
from core.dag.commands import command
from core.dag.conditions import Read
from core.dag.definition import Workflow
from core.dag.evaluator import advance, initial_nodes
from core.dag.inputs import resolve_inputs
from core.dag.rendering import Rendered
from core.dag.state import Decision, Event, JobState
from core.models.engine import Attempt, Job, NodeState, TaskResultRow
from core.models.fan_out import FanOut
from core.statuses import AttemptState, JobStatus, NodeStatus

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 20.0
FIXED = {"backoff": "fixed", "initial_delay_seconds": 10, "jitter": 0}


def workflow_of(nodes: Mapping[str, Any], **fields: Any) -> Workflow:
    """Build a workflow from canonical JSON, without the loader's checks."""
    return Workflow.model_validate_json(json.dumps({"workflow_id": "w", "version": 1, "nodes": nodes, **fields}))


def task(*after: str, join: str = "all_of", **fields: Any) -> dict[str, Any]:
    """Return a canonical echo task that depends on others."""
    node: dict[str, Any] = {"type": "task", "handler": "echo", **fields}
    return {**node, "depends_on": {join: list(after)}} if after else node


def reading(scope: Mapping[str, Any]) -> Read:
    """Return what reads the operands of conditions from a scope."""
    return lambda operand: operand.expression.evaluate(scope)


def chain(*tasks: str, **fields: Any) -> dict[str, Any]:
    """Return canonical nodes: start, the tasks in a row, end; `fields` go into every task."""
    ids = ["start", *tasks, "end"]
    nodes: dict[str, Any] = {}
    for node_id, after in zip(ids, [*ids[1:], None], strict=True):
        node = {"type": node_id} if node_id in {"start", "end"} else task(**fields)
        nodes[node_id] = {**node, "next": [after]} if after else node
    return nodes


def job_of(workflow: Workflow, inputs: Mapping[str, Any] | None = None, **fields: Any) -> Job:
    """Return a job as the service creates it."""
    return Job(
        job_id="job1",
        workflow_id=workflow.workflow_id,
        workflow_version=workflow.version,
        definition_hash=workflow.definition_hash,
        status=JobStatus.PENDING,
        input_params=resolve_inputs(workflow, inputs or {}),
        run_no=1,
        version=0,
        created_at=START,
        updated_at=START,
        **fields,
    )


class World:
    """One job and what happens to it; what would advance the job in production advances it here."""

    def __init__(
        self,
        workflow: Workflow,
        inputs: Mapping[str, Any] | None = None,
        *,
        workflows: Mapping[str, Workflow] | None = None,
        pauses: Iterable[str] = (),
        **fields: Any,
    ) -> None:
        job = job_of(workflow, inputs, **fields)
        self.workflow = workflow
        self.now = START
        rows = {node.node_id: node for node in initial_nodes(workflow, job)}
        self.state = JobState(job=job, nodes=rows, pauses=frozenset(pauses), workflows=workflows or {})
        self.events: list[Event] = []
        self.decisions: list[Decision] = []
        self.rows: dict[str, TaskResultRow] = {}
        self.advance()

    @property
    def job(self) -> Job:
        """Return the job as it is stored."""
        return self.state.job

    def node(self, node_id: str) -> NodeState:
        """Return a node, or a child of a fan-out, as it is stored."""
        return self.state.nodes.get(node_id) or self.state.children[node_id]

    def fan_out(self, node_id: str) -> FanOut:
        """Return the row of a fan-out as it is stored."""
        return self.state.fan_outs[node_id]

    def children(self) -> dict[str, str]:
        """Return the status of every child of a fan-out."""
        return {node_id: child.status.value for node_id, child in self.state.children.items()}

    def statuses(self) -> dict[str, str]:
        """Return the status of every node."""
        return {node_id: node.status.value for node_id, node in self.state.nodes.items()}

    def attempt(self, node_id: str) -> Attempt:
        """Return the newest attempt of a node."""
        return self.state.attempts[node_id]

    def event_types(self) -> list[str]:
        """Return the types of all events so far."""
        return [event.event_type for event in self.events]

    def advance(self) -> Decision:
        """Evaluate and write."""
        return self.write(advance(self.workflow, self.state, self.now))

    def write(self, decision: Decision) -> Decision:
        """Write a decision as a service does."""
        self.state = apply(self.state, decision, self.now)
        self.events.extend(decision.events)
        self.decisions.append(decision)
        return decision

    def tick(self, seconds: float) -> Decision:
        """Let time pass, then evaluate."""
        self.now += timedelta(seconds=seconds)
        return self.advance()

    def wake(self) -> Decision:
        """Let time pass until the job's next timer, then evaluate."""
        assert self.job.wake_at is not None
        self.now = max(self.now, self.job.wake_at)
        return self.advance()

    def claim(self, *node_ids: str) -> None:
        """Grant the attempts of these nodes; an attempt transaction does not evaluate."""
        for node_id in node_ids:
            self._set_attempt(
                node_id,
                state=AttemptState.LEASED,
                worker_id="worker-1",
                leased_at=self.now,
                lease_expires_at=self.now + timedelta(seconds=LEASE_SECONDS),
            )
            if node_id in self.state.nodes:  # the rows of children are not written by a claim
                self.set_node(node_id, status=NodeStatus.RUNNING, started_at=self.now)

    def beat(self, node_id: str) -> None:
        """Renew a lease."""
        self._set_attempt(node_id, lease_expires_at=self.now + timedelta(seconds=LEASE_SECONDS))

    def report(
        self, node_id: str, status: str = "completed", *, advance: bool = True, **fields: Any
    ) -> Decision | None:
        """Store a result of the node's newest attempt and evaluate."""
        if status == "completed" and "outcomes" not in fields:
            fields.setdefault("output", {"echoed_params": {}})
        self._set_attempt(node_id, state=AttemptState.REPORTED, ended_at=self.now)
        attempt = self.attempt(node_id)
        self.put(
            TaskResultRow(
                task_id=attempt.task_id,
                job_id=self.job.job_id,
                node_id=node_id,
                attempt=attempt.attempt,
                status=status,
                reported_at=self.now,
                **fields,
            )
        )
        return self.advance() if advance else None

    def put(self, row: TaskResultRow) -> None:
        """Put a row into the inbox."""
        self.rows[row.task_id] = row
        self.state = replace(self.state, results=(*self.state.results, row))

    def complete(self, *node_ids: str, output: Mapping[str, Any] | None = None) -> None:
        """Claim and complete."""
        for node_id in node_ids:
            self.claim(node_id)
            self.report(node_id, output=dict(output or {"echoed_params": {}}))

    def fail(self, node_id: str, classification: str = "permanent", code: str = "BROKEN") -> None:
        """Claim and fail."""
        self.claim(node_id)
        error = {"code": code, "message": "it broke", "classification": classification}
        self.report(node_id, "failed", error=error)

    def decide(self, node_id: str, decision: Literal["approved", "rejected"] = "approved", **fields: Any) -> Decision:
        """Decide a gate and evaluate; `fields` are its data, an actor, a reason."""
        actor, reason = fields.pop("actor", "ann"), fields.pop("reason", None)
        args = {"node_id": node_id, "decision": decision, **fields}
        return self.write(command(self.workflow, self.state, self.now, "gate", args, actor=actor, reason=reason))

    def pauses(self, *switches: str) -> None:
        """Let exactly these pause switches be in force."""
        self.state = replace(self.state, pauses=frozenset(switches))

    def cancel(self) -> Decision:
        """Cancel the job."""
        return self.write(command(self.workflow, self.state, self.now, "cancel", actor="ann"))

    def grant(self, *holders: str) -> Decision:
        """Grant slots that were asked for, as any transaction does that has one to give, and evaluate."""
        for holder in holders:
            granted = self.state.slots[holder].model_copy(update={"granted_at": self.now})
            self.state = replace(self.state, slots={**self.state.slots, holder: granted})
        return self.advance()

    def set_job(self, **fields: Any) -> None:
        """Change the job as a command does."""
        self.state = replace(self.state, job=self.job.model_copy(update=fields))

    def set_node(self, node_id: str, **fields: Any) -> None:
        """Change a node's row."""
        changed = self.state.nodes[node_id].model_copy(update=fields)
        self.state = replace(self.state, nodes={**self.state.nodes, node_id: changed})

    def set_fan_out(self, node_id: str, **fields: Any) -> None:
        """Change the row of a fan-out as a command does."""
        changed = self.fan_out(node_id).model_copy(update=fields)
        self.state = replace(self.state, fan_outs={**self.state.fan_outs, node_id: changed})

    def without_children(self, *node_ids: str) -> JobState:
        """Return the state as it is when these children and their attempts are not loaded."""
        children = {key: child for key, child in self.state.children.items() if key not in node_ids}
        attempts = {key: one for key, one in self.state.attempts.items() if key not in node_ids}
        return replace(self.state, children=children, attempts=attempts)

    def reset(self, node_id: str) -> None:
        """Start a fan-out anew, as a rerun does: its row and its children go, its number stays."""
        kept = {key: child for key, child in self.state.children.items() if child.parent_node_id != node_id}
        rows = {key: row for key, row in self.state.fan_outs.items() if key != node_id}
        self.state = replace(self.state, children=kept, fan_outs=rows)
        self.set_node(node_id, status=NodeStatus.READY)

    def answer(self, key: str, answer: Rendered) -> Decision:
        """Evaluate with a value that was made elsewhere."""
        self.state = replace(self.state, rendered={key: answer})
        return self.advance()

    def outage(self, on: bool) -> None:
        """Say whether nobody can renew."""
        self.state = replace(self.state, may_expire_leases=not on)

    def set_attempt(self, node_id: str, **fields: Any) -> None:
        """Change the newest attempt of a node, as another process does."""
        self._set_attempt(node_id, **fields)

    def _set_attempt(self, node_id: str, **fields: Any) -> None:
        changed = self.attempt(node_id).model_copy(update=fields)
        self.state = replace(self.state, attempts={**self.state.attempts, node_id: changed})


def one_task(**fields: Any) -> World:
    """Return a world of start, one echo task `a`, end."""
    return World(workflow_of(chain("a", **fields)))


def retrying(**retry: Any) -> World:
    """Return `one_task` whose retries come 10 seconds later, without jitter."""
    return one_task(retry={**FIXED, **retry})
