"""Statuses of jobs, nodes and attempts, and the one table of moves between them.

A status changes only by a compare-and-set write whose (from, to) pair stands in these tables; `docs/architecture.md`
draws them. *Final* means final within a run.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from core.errors import InvalidTransition


class JobStatus(StrEnum):
    """Where one run of a workflow stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class NodeStatus(StrEnum):
    """Where one vertex of a run stands; WAITING covers gate, slot, backoff and child job."""

    PENDING = "PENDING"
    READY = "READY"
    WAITING = "WAITING"
    DISPATCHED = "DISPATCHED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class AttemptState(StrEnum):
    """Where one try at a task stands."""

    QUEUED = "queued"
    PARKED = "parked"
    LEASED = "leased"
    REPORTED = "reported"
    RELEASED = "released"
    EXPIRED = "expired"
    REVOKED = "revoked"


class SkipReason(StrEnum):
    """Why a node was skipped; decides how its outgoing edges settle."""

    NOT_TAKEN = "not_taken"
    BYPASSED = "bypassed"
    UPSTREAM_FAILED = "upstream_failed"


Status = TypeVar("Status", bound=StrEnum)
Transitions = Mapping[Status, frozenset[Status]]

JOB_TRANSITIONS: Final[Transitions[JobStatus]] = {
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.RUNNING: frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}

NODE_TRANSITIONS: Final[Transitions[NodeStatus]] = {
    NodeStatus.PENDING: frozenset({NodeStatus.READY, NodeStatus.SKIPPED, NodeStatus.CANCELLED}),
    NodeStatus.READY: frozenset(
        {
            NodeStatus.WAITING,
            NodeStatus.DISPATCHED,
            NodeStatus.RUNNING,
            NodeStatus.COMPLETED,
            NodeStatus.FAILED,
            NodeStatus.SKIPPED,
            NodeStatus.CANCELLED,
        }
    ),
    NodeStatus.WAITING: frozenset(
        {
            NodeStatus.READY,
            NodeStatus.WAITING,
            NodeStatus.COMPLETED,
            NodeStatus.FAILED,
            NodeStatus.SKIPPED,
            NodeStatus.CANCELLED,
        }
    ),
    NodeStatus.DISPATCHED: frozenset(
        {
            NodeStatus.RUNNING,
            NodeStatus.WAITING,
            NodeStatus.COMPLETED,
            NodeStatus.FAILED,
            NodeStatus.SKIPPED,
            NodeStatus.CANCELLED,
        }
    ),
    NodeStatus.RUNNING: frozenset(
        {NodeStatus.WAITING, NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED, NodeStatus.CANCELLED}
    ),
    NodeStatus.COMPLETED: frozenset(),
    NodeStatus.FAILED: frozenset(),
    NodeStatus.SKIPPED: frozenset(),
    NodeStatus.CANCELLED: frozenset(),
}

ATTEMPT_TRANSITIONS: Final[Transitions[AttemptState]] = {
    AttemptState.QUEUED: frozenset(
        {AttemptState.LEASED, AttemptState.PARKED, AttemptState.EXPIRED, AttemptState.REVOKED}
    ),
    AttemptState.PARKED: frozenset({AttemptState.QUEUED, AttemptState.REVOKED}),
    AttemptState.LEASED: frozenset(
        {AttemptState.REPORTED, AttemptState.RELEASED, AttemptState.EXPIRED, AttemptState.REVOKED}
    ),
    AttemptState.REPORTED: frozenset(),
    AttemptState.RELEASED: frozenset(),
    AttemptState.EXPIRED: frozenset(),
    AttemptState.REVOKED: frozenset(),
}

JOB_FINAL: Final = frozenset(s for s, targets in JOB_TRANSITIONS.items() if not targets)
NODE_FINAL: Final = frozenset(s for s, targets in NODE_TRANSITIONS.items() if not targets)
ATTEMPT_FINAL: Final = frozenset(s for s, targets in ATTEMPT_TRANSITIONS.items() if not targets)


def check_transition(table: Transitions[Status], source: Status, target: Status) -> None:
    """Raise `InvalidTransition` unless `source -> target` stands in `table`."""
    if target not in table[source]:
        raise InvalidTransition(f"{type(source).__name__} cannot go from {source} to {target}", value=str(source))
