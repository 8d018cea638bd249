"""What the evaluator reads and what it decides. Frozen in, frozen out.

    advance(workflow, JobState, now) -> Decision        (core.dag.evaluator)

A service loads the state under the job's lock, calls `advance`, and writes the decision in the same transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from core.dag.chores import Chore
from core.dag.definition import Workflow
from core.dag.rendering import Rendered, Rendering
from core.dag.slot_wishes import NO_CHANGES, SlotChanges
from core.errors import CallerError, ErrorDetail
from core.models.engine import Attempt, Command, Job, NodeState, Slot, TaskResultRow
from core.models.fan_out import FanOut
from core.payloads import PayloadRef
from core.statuses import AttemptState


@dataclass(frozen=True, slots=True)
class JobState:
    """Everything one evaluation may read."""

    job: Job
    nodes: Mapping[str, NodeState]
    """By node id; every vertex of the workflow has a row from creation on."""
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    """Newest attempt by node id, for nodes that are DISPATCHED, RUNNING or have an unprocessed result."""
    results: Sequence[TaskResultRow] = ()
    """Unprocessed inbox rows of this job, oldest first."""
    may_expire_leases: bool = True
    """False while the outage rule holds: nobody could renew, so no lease counts as lost."""
    children: Mapping[str, NodeState] = field(default_factory=dict)
    """Of the children of fan-outs only those that something happens to: results in the inbox, timers due."""
    fan_outs: Mapping[str, FanOut] = field(default_factory=dict)
    """By node id, of the fan-outs that were expanded."""
    next_items: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """By node id, the items from `next_child * batch_size` on, as many as there may be room for."""
    child_timers: Mapping[str, datetime] = field(default_factory=dict)
    """By node id of a fan-out whose `wake_at` has come: the next timer of its children that are not loaded."""
    stored_items: Mapping[str, int] = field(default_factory=dict)
    """By node id of a fan-out that is expanding, how many of its items are stored."""
    pauses: frozenset[str] = frozenset()
    """Switches in force: `all`, `workflow:<id>`, `queue:<name>`."""
    slots: Mapping[str, Slot] = field(default_factory=dict)
    """By holder: what the job itself holds or waits for, and grants to its attempts that were not acted on yet."""
    rendered: Mapping[str, Rendered] = field(default_factory=dict)
    """By key, the answers to what an earlier decision needed; those of other jobs may be among them."""
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    """By hash, at least the definitions that nodes of this job's workflow run."""
    commands: Sequence[Command] = ()
    """Unprocessed commands to this job, oldest first."""
    reopen_refusal: ErrorDetail | None = None
    """Why this job may not be started again, for example because what it made was approved."""
    child_attempts: Mapping[str, int] = field(default_factory=dict)
    """By fan-out, the highest attempt number that any of its children used; known when a command may start it anew."""


class Dispatch(NamedTuple):
    """A new attempt to create and send. The service adds the random token."""

    node_id: str
    attempt: int
    queue: str
    handler: str
    params: Mapping[str, Any]
    timeout_seconds: float
    priority: int
    heartbeat_timeout_seconds: float | None = None
    child: bool = False
    params_ref: PayloadRef | None = None
    """Where large params lie; `params` is empty then."""
    params_digest: str | None = None
    """Digest of the params; None: not known yet, and not of large ones."""
    items: tuple[int, ...] | None = None
    """Of a batch, the indexes of the items to run."""
    queue_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Expansion:
    """The items of a fan-out, to be stored once."""

    node_id: str
    items: Sequence[Any]


@dataclass(frozen=True, slots=True)
class StartJob:
    """A child job to create in the same transaction, for the attempt `task_id` of a workflow node."""

    node_id: str
    task_id: str
    workflow_id: str
    definition_hash: str
    inputs: Mapping[str, Any]
    """Resolved."""
    input_refs: Mapping[str, PayloadRef] = field(default_factory=dict)
    """Where the large ones lie, which are not among `inputs`."""
    slots_above: Sequence[str] = ()
    """Keys of the slots that this job holds, and those that it works for."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """An attempt the evaluator ends: expired (lost or timed out) or revoked."""

    task_id: str
    state: AttemptState
    reason: str


class Disposition(NamedTuple):
    """What became of one inbox row: applied | superseded | poison, with why."""

    task_id: str
    disposition: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CommandDone:
    """What became of one command: `applied`, or the code of the error that refused it."""

    command_id: int
    outcome: str
    refusal: CallerError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ChildOrder:
    """A command that goes down to the child job of a task."""

    task_id: str
    kind: str
    args: Mapping[str, Any]
    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One transition for the event log; `event_type` is past tense, e.g. node_dispatched."""

    event_type: str
    event_status: str | None = None
    node_id: str | None = None
    task_id: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write. Rows appear only when they changed; an empty decision changes nothing."""

    job: Job | None = None
    nodes: tuple[NodeState, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    redispatches: tuple[str, ...] = ()
    """Task ids still queued past their `redispatch_at`: same attempt, next dispatch_no."""
    attempts_ended: tuple[AttemptEnd, ...] = ()
    dispositions: tuple[Disposition, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: datetime | None = None
    """Next timer of the job after this decision."""
    fan_outs: tuple[FanOut, ...] = ()
    """Rows that changed; one that was not there before comes with its `Expansion`."""
    expansions: tuple[Expansion, ...] = ()
    children: tuple[NodeState, ...] = ()
    """Loaded children that changed."""
    new_children: tuple[NodeState, ...] = ()
    child_jobs: tuple[StartJob, ...] = ()
    slots: SlotChanges = NO_CHANGES
    commands_done: tuple[CommandDone, ...] = ()
    """What became of every command of the state, in its order."""
    reset: tuple[str, ...] = ()
    """Nodes that start anew: their children, fan-outs and checkpoints are deleted before anything else is written."""
    needs: tuple[Rendering, ...] = ()
    """Values to make from large ones; the nodes that need them wait where they are until an answer is in the state."""
    chores: tuple[Chore, ...] = ()
    """Work to do beside the evaluation."""
    needs_children: bool = False
    """True: nothing else counts; evaluate again with every live child loaded and its attempt locked."""
    outputs: Mapping[str, Any] | None = None
    """Outputs of a job that completed, also when they are large and its row has only a reference, up to 1 MiB."""
    child_orders: tuple[ChildOrder, ...] = ()

    @property
    def ended(self) -> bool:
        """True when this decision brought the job to a final status."""
        return self.job is not None and self.job.completed_at is not None
