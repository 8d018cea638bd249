"""What a queue holds, and what it was created with."""

from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from tests.peers.servicebus.messages import Envelope


class State(IntEnum):
    """Where a message stands; the numbers are those of `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue was created with."""

    name: str
    lock_seconds: float = 60.0
    max_delivery_count: int = 10
    ttl_seconds: float | None = None
    dead_letter_expired: bool = False
    duplicate_window_seconds: float | None = None


@dataclass(slots=True)
class Message:
    """One message in a queue. `key` is its own among all, `sequence` is what clients see."""

    key: int
    sequence: int
    envelope: Envelope
    enqueued_at: float
    expires_at: float | None = None
    state: State = State.ACTIVE
    due_at: float | None = None
    delivery_count: int = 0
    lock: UUID | None = None
    locked_until: float = 0.0
