"""What the evaluator reads and what it decides. Frozen in, frozen out.

    advance(workflow, JobState, now) -> Decision        (core.dag.evaluator)

A service loads the state under the job's lock, calls `advance`, and writes the decision in the same transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.models.engine import Attempt, Job, NodeState, TaskResultRow
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


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A new attempt to create and send. The service adds the random token."""

    node_id: str
    attempt: int
    queue: str
    handler: str
    params: Mapping[str, Any]
    timeout_seconds: float
    priority: int


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """An attempt the evaluator ends: expired (lost or timed out) or revoked."""

    task_id: str
    state: AttemptState
    reason: str


@dataclass(frozen=True, slots=True)
class Disposition:
    """What became of one inbox row: applied | superseded | poison, with why."""

    task_id: str
    disposition: str
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

    @property
    def ended(self) -> bool:
        """True when this decision brought the job to a final status."""
        return self.job is not None and self.job.completed_at is not None
