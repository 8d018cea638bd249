"""The working copy of one evaluation: the only place where statuses are written and events are made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from core.dag.chores import Chore
from core.dag.definition import Workflow
from core.dag.event_log import EventLog
from core.dag.family import Family
from core.dag.holds import hold_of_job, holding, queue_of
from core.dag.nodes import TaskNode, Work, WorkflowNode
from core.dag.rendering import Rendering
from core.dag.retry import RetryPolicy
from core.dag.slot_wishes import Wishes
from core.dag.state import (
    AttemptEnd,
    ChildOrder,
    CommandDone,
    Decision,
    Dispatch,
    Disposition,
    Event,
    JobState,
    StartJob,
)
from core.errors import ErrorDetail
from core.handlers_catalog import HandlerSpec
from core.models.engine import Attempt, Job, NodeState
from core.payloads import PayloadRef
from core.statuses import (
    ATTEMPT_FINAL,
    ATTEMPT_TRANSITIONS,
    JOB_FINAL,
    JOB_TRANSITIONS,
    NODE_FINAL,
    NODE_TRANSITIONS,
    AttemptState,
    JobStatus,
    NodeStatus,
    SkipReason,
    check_transition,
)

IN_FLIGHT = frozenset({NodeStatus.DISPATCHED, NodeStatus.RUNNING})
_GROUPED: Mapping[NodeStatus, str] = {
    NodeStatus.COMPLETED: "children_completed",
    NodeStatus.CANCELLED: "children_cancelled",
}
"""What happens to many children alike is one event."""
_NODE_EVENTS: Mapping[NodeStatus, str] = {
    NodeStatus.READY: "node_ready",
    NodeStatus.WAITING: "node_retrying",
    NodeStatus.DISPATCHED: "node_dispatched",
    NodeStatus.RUNNING: "node_started",
    NodeStatus.COMPLETED: "node_completed",
    NodeStatus.FAILED: "node_failed",
    NodeStatus.SKIPPED: "node_skipped",
    NodeStatus.CANCELLED: "node_cancelled",
}
_JOB_EVENTS: Mapping[JobStatus, str] = {
    JobStatus.RUNNING: "job_started",
    JobStatus.COMPLETED: "job_completed",
    JobStatus.FAILED: "job_failed",
    JobStatus.CANCELLED: "job_cancelled",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A READY task whose params are rendered and valid, to be dispatched when nothing stops it."""

    spec: HandlerSpec
    params: dict[str, Any]
    ref: PayloadRef | None = None
    """Where large params lie; `params` is empty then."""
    digest: str | None = None


class Run:
    """State that one evaluation changes, and what it has decided so far."""

    def __init__(self, workflow: Workflow, state: JobState, now: datetime, catalog: Mapping[str, HandlerSpec]) -> None:
        self.workflow = workflow
        self.state = state
        self.now = now
        self.catalog = catalog
        self.job: Job = state.job
        self.nodes: dict[str, NodeState] = dict(state.nodes)
        self.family = Family(state)
        self.children, self.fan_outs = self.family.children, self.family.fan_outs
        self.prepared: dict[str, Prepared] = {}
        self.dispatches: dict[str, Dispatch] = {}
        self.redispatches: list[str] = []
        self.child_jobs: dict[str, StartJob] = {}
        """By node id."""
        self.wishes = Wishes()
        self.attempts_ended: dict[str, AttemptEnd] = {}
        self.dispositions: list[Disposition] = []
        self.log = EventLog()
        self.needs: dict[str, Rendering] = {}
        self.chores: dict[str, Chore] = {}
        self.incomplete = False
        """True when children have to be cancelled that are not loaded; nothing that was decided counts then."""
        self.outputs: Mapping[str, Any] | None = None
        self.commands_done: list[CommandDone] = []
        self.child_orders: list[ChildOrder] = []
        self.reset: list[str] = []

    @property
    def overdue(self) -> bool:
        """True when the job's deadline has passed."""
        return self.job.deadline_at is not None and self.job.deadline_at <= self.now

    def held_by(self, queue: str | None = None) -> str | None:
        """Return what pauses new work for a queue, or work that needs none: `job`, or the name of a pause switch."""
        return next(iter(holding(self.job, self.state.pauses, queue)), None)

    def queue_of(self, node_id: str) -> str | None:
        """Return the queue of a task or of a fan-out; None when this build does not know its handler."""
        return queue_of(self.workflow, node_id, self.catalog)

    def holds(self, node_id: str, queue: str | None = None) -> bool:
        """Return whether a pause keeps a node from going on, and note which.

        When it ends, the node has waited for nobody: its time in the queue begins anew.
        """
        node, switch = self.node(node_id), self.held_by(queue)
        if switch is not None:
            self.wait_for(node_id, "paused", switch)
        elif node.waiting_for is not None and node.waiting_for["kind"] == "paused":
            restarted = {"dispatched_at": self.now} if node.status is NodeStatus.DISPATCHED else {}
            self._put(node.model_copy(update={"waiting_for": None, **restarted}))
        return switch is not None

    def unfinished(self) -> tuple[str, ...]:
        """Return the nodes that are not final, in the order of the graph."""
        return tuple(node_id for node_id in self.workflow.graph.order if not self.is_final(node_id))

    def is_final(self, node_id: str) -> bool:
        """Return whether a node has ended for this run."""
        return self.nodes[node_id].status in NODE_FINAL

    def find(self, node_id: str) -> NodeState | None:
        """Return a vertex or a loaded child of a fan-out; None when there is none."""
        return self.nodes.get(node_id) or self.children.get(node_id)

    def node(self, node_id: str) -> NodeState:
        """Return a vertex or a loaded child of a fan-out."""
        return self.nodes[node_id] if node_id in self.nodes else self.children[node_id]

    def _put(self, node: NodeState) -> None:
        if node.parent_node_id is None:
            self.nodes[node.node_id] = node
        else:
            self.family.put(node)

    def policy_of(self, node_id: str) -> RetryPolicy:
        """Return the retry policy of a vertex, or of the fan-out that a child belongs to."""
        return self.workflow.retry_policies[self.node(node_id).parent_node_id or node_id]

    def failed(self) -> Iterator[str]:
        """Yield the failed nodes that fail the job, in the order of the graph."""
        for node_id in self.all_failed():
            if not self.workflow.nodes[node_id].best_effort:
                yield node_id

    def all_failed(self) -> Iterator[str]:
        """Yield every failed node, in the order of the graph."""
        for node_id in self.workflow.graph.order:
            node = self.nodes.get(node_id)
            if node is not None and node.status is NodeStatus.FAILED:
                yield node_id

    def tasks_in_flight(self) -> Iterator[tuple[str, Work, NodeState]]:
        """Yield the tasks that have an attempt out."""
        for node_id, node in self.workflow.nodes.items():
            state = self.nodes[node_id]
            if isinstance(node, TaskNode) and state.status in IN_FLIGHT:
                yield node_id, node, state

    def children_in_flight(self) -> Iterator[tuple[str, Work, NodeState]]:
        """Yield the loaded children of fan-outs that have an attempt out."""
        for node_id, child in self.children.items():
            if child.status in IN_FLIGHT and child.parent_node_id in self.fan_outs:
                yield node_id, self.workflow.works[child.parent_node_id], child

    def attempt_of(self, node_id: str) -> Attempt | None:
        """Return the newest attempt of a node, when it was loaded and is the one that the node knows."""
        attempt = self.state.attempts.get(node_id)
        return attempt if attempt is not None and attempt.task_id == self.node(node_id).task_id else None

    def move(self, node_id: str, status: NodeStatus, event: str | None = None, /, **fields: Any) -> None:
        """Write a node's status and fields, and the event of it with `fields["data"]`; what it waited for is over."""
        node = self.node(node_id)
        check_transition(NODE_TRANSITIONS, node.status, status)
        data = fields.pop("data", {})
        fields = {"waiting_for": None, **fields, "status": status}
        if status in NODE_FINAL:
            fields |= {"completed_at": self.now, "not_before": None}
        changed = node.model_copy(update=fields)
        self._put(changed)
        if changed.parent_node_id is not None and status in _GROUPED:
            self.log.add_child(_GROUPED[status], status.value, changed.parent_node_id, changed.fan_out_index or 0)
            return
        task_id = changed.task_id if node.status is not NodeStatus.PENDING else None
        self.log.append(Event(event or _NODE_EVENTS[status], status, node_id, task_id, data))

    def fail_node(self, node_id: str, error: ErrorDetail, **fields: Any) -> None:
        """End a node as FAILED with its error."""
        detail = error.model_dump(mode="json", exclude_none=True)
        data = {"code": error.code, "message": error.message}
        self.move(node_id, NodeStatus.FAILED, data=data, error=detail, **fields)

    def wait_for(self, node_id: str, kind: str, detail: Any = None) -> None:
        """Note why a node does not go on; no event, nothing when it is noted already."""
        node, reason = self.node(node_id), {"kind": kind, "detail": detail}
        if node.waiting_for != reason:
            self._put(node.model_copy(update={"waiting_for": reason}))

    def wait_for_nothing(self, node_id: str) -> None:
        """Note that a node waits no more for what it noted."""
        if self.node(node_id).waiting_for is not None:
            self._put(self.node(node_id).model_copy(update={"waiting_for": None}))

    def send_again(self, attempt: Attempt) -> None:
        """Send the same attempt once more."""
        if attempt.task_id not in self.redispatches:
            self.redispatches.append(attempt.task_id)

    def need(self, rendering: Rendering, node_id: str | None = None) -> None:
        """Note that a value has to be made elsewhere, and which node waits for it."""
        self.needs[rendering.key] = rendering
        if node_id is not None:
            blobs = [one.ref.blob for one in rendering.large]
            self.wait_for(node_id, "payload", {"value": rendering.path, "reads": blobs})

    def add_chore(self, chore: Chore) -> None:
        """Ask for work beside the evaluation."""
        self.chores[chore.key] = chore

    def move_job(self, status: JobStatus, **fields: Any) -> None:
        """Write the job's status and fields, and the event of it."""
        check_transition(JOB_TRANSITIONS, self.job.status, status)
        data = fields.pop("data", {})
        fields["status"] = status
        if self.job.started_at is None and status is not JobStatus.CANCELLED and not self.overdue:
            fields["started_at"] = self.now
        if status in JOB_FINAL:
            fields |= {"completed_at": self.now, "wake_at": None}
        self.job = self.job.model_copy(update=fields)
        self.log.append(Event(_JOB_EVENTS[status], status, data=data))

    def start_job(self) -> None:
        """Let the job be RUNNING from the first thing on that takes time."""
        if self.job.status is JobStatus.PENDING:
            self.move_job(JobStatus.RUNNING)

    def note(self, event: str, **data: Any) -> None:
        """Log something that happened to the job without changing its status."""
        self.log.append(Event(event, self.job.status.value, data=data))

    def set_job(self, **fields: Any) -> None:
        """Write fields of the job other than its status."""
        self.job = self.job.model_copy(update=fields)

    def end_attempt(self, attempt: Attempt, state: AttemptState, reason: str) -> None:
        """Expire or revoke an attempt, once; a child job that runs for it is cancelled."""
        if attempt.task_id in self.attempts_ended or attempt.state in ATTEMPT_FINAL:
            return
        check_transition(ATTEMPT_TRANSITIONS, attempt.state, state)
        self.attempts_ended[attempt.task_id] = AttemptEnd(attempt.task_id, state, reason)
        if attempt.task_id in self.redispatches:
            self.redispatches.remove(attempt.task_id)
        abandoned = state is not AttemptState.REPORTED
        if abandoned and isinstance(self.workflow.nodes.get(attempt.node_id), WorkflowNode):
            self.child_orders.append(ChildOrder(attempt.task_id, "cancel", {}, "engine", reason))
        child = self.children.get(attempt.node_id) if state is AttemptState.REVOKED else None
        if child is not None:
            self.log.add_child("attempts_revoked", state.value, child.parent_node_id or "", child.fan_out_index or 0)
            return
        event = Event(f"attempt_{state.value}", state.value, attempt.node_id, attempt.task_id, {"reason": reason})
        self.log.append(event)

    def cancel_node(self, node_id: str, reason: str) -> None:
        """Cancel an unfinished node, revoke its attempt, and cancel its children."""
        self._cancel_children(node_id, reason)
        attempt = self.attempt_of(node_id)
        if attempt is not None:
            self.end_attempt(attempt, AttemptState.REVOKED, reason)
        self.prepared.pop(node_id, None)
        self.child_jobs.pop(node_id, None)
        self.dispatches.pop(node_id, None)
        self.move(node_id, NodeStatus.CANCELLED, data={"reason": reason})

    def bypass_node(self, node_id: str, by: Mapping[str, Any]) -> None:
        """Skip an unfinished node because an operator wants it; its edges pass."""
        self._cancel_children(node_id, "the node was skipped")
        attempt = self.attempt_of(node_id)
        if attempt is not None:
            self.end_attempt(attempt, AttemptState.REVOKED, "the node was skipped")
        self.prepared.pop(node_id, None)
        data = {**by, "skip_reason": SkipReason.BYPASSED.value}
        self.move(node_id, NodeStatus.SKIPPED, data=data, skip_reason=SkipReason.BYPASSED, error=None)

    def override_params(self, node_id: str, params: Mapping[str, Any]) -> None:
        """Put params over those that the workflow gives a node."""
        self._put(self.node(node_id).model_copy(update={"params_override": dict(params) or None}))

    def reopen(self, event: str, data: Mapping[str, Any]) -> None:
        """Begin the next run of the job; one whose end is stored is RUNNING again, under nobody's ownership yet."""
        if self.job.status in JOB_FINAL:
            seconds = self.workflow.deadline_seconds
            deadline = None if seconds is None else self.now + timedelta(seconds=seconds)
            ended = dict.fromkeys(("completed_at", "paused_at", "waiting_for", "outputs", "outputs_ref", "error"))
            self.set_job(status=JobStatus.RUNNING, warnings=[], deadline_at=deadline, **ended)
            if self.state.job.status in JOB_FINAL:
                self.set_job(owner_id=None, owner_epoch=self.job.owner_epoch + 1)
        self.set_job(run_no=self.job.run_no + 1)
        self.note(event, **data, run_no=self.job.run_no)

    def reset_node(self, node_id: str) -> None:
        """Let a node be PENDING as in the beginning; only the number of its next attempt is kept, and edited params.

        A fan-out keeps the highest number of its children: those that it makes anew begin behind it.
        """
        self._cancel_children(node_id, "the node starts anew")
        attempt = self.attempt_of(node_id)
        if attempt is not None:
            self.end_attempt(attempt, AttemptState.REVOKED, "the node starts anew")
        node = self.node(node_id)
        fresh = NodeState(
            job_id=node.job_id,
            node_id=node_id,
            attempt=max(node.attempt, self.state.child_attempts.get(node_id, -1) + 1),
            params_override=node.params_override,
        )
        self.prepared.pop(node_id, None)
        self.family.forget(node_id)
        self._put(fresh)
        self.reset.append(node_id)
        self.log.append(Event("node_reset", NodeStatus.PENDING.value, node_id, node.task_id))

    def _cancel_children(self, node_id: str, reason: str) -> None:
        """Cancel what is unfinished below a fan-out; all of it has to be loaded for that."""
        if node_id not in self.fan_outs:
            return
        if not self.family.all_live_seen(node_id):
            self.incomplete = True
            return
        for child in self.family.live(node_id):
            self.cancel_node(child.node_id, reason)
        self.family.close(node_id, self.now)

    def cancel_unfinished(self, reason: str) -> None:
        """Cancel every node that has not ended, also those the workflow does not name."""
        for node_id, node in tuple(self.nodes.items()):
            if node.status not in NODE_FINAL:
                self.cancel_node(node_id, reason)

    def _note_hold(self) -> None:
        """Keep what holds the job where a cleared switch finds it; a job that waits for its slot says that instead."""
        before = self.job.waiting_for
        if before is not None and before["kind"] != "paused":
            return
        reason = hold_of_job(self.workflow, self.job, self.nodes.values(), self.state.pauses, self.catalog)
        if reason != before:
            self.set_job(waiting_for=reason)

    def decision(self, wake_at: datetime | None) -> Decision:
        """Return what changed; when something is missing for that, only that it is."""
        if self.incomplete:
            return Decision(needs_children=True)
        self._note_hold()
        if self.job.wake_at != wake_at:
            self.job = self.job.model_copy(update={"wake_at": wake_at})
        before = self.state.nodes
        return Decision(
            job=self.job if self.job is not self.state.job else None,
            nodes=tuple(node for node_id, node in self.nodes.items() if node is not before[node_id]),
            dispatches=tuple(self.dispatches.values()),
            redispatches=tuple(self.redispatches),
            attempts_ended=tuple(self.attempts_ended.values()),
            dispositions=tuple(self.dispositions),
            events=self.log.events(),
            wake_at=wake_at,
            children=self.family.changed_children(self.reset),
            new_children=self.family.new_children(self.reset),
            child_jobs=tuple(self.child_jobs.values()),
            slots=self.wishes.changes,
            needs=tuple(self.needs.values()),
            chores=tuple(self.chores.values()),
            fan_outs=tuple(self.family.changed_fan_outs()),
            expansions=tuple(self.family.expansions()),
            outputs=self.outputs,
            commands_done=tuple(self.commands_done),
            child_orders=tuple(self.child_orders),
            reset=tuple(self.reset),
        )
