"""The rules of a queue, without a socket: time comes in as an argument, and nothing waits.

    scheduled --due--> active --take--> locked --complete--> gone
                         ^                |---abandon, lock expired--> active, counted
                         |                |---release----------------> active, not counted
    deferred <--defer----+----------------|
        `--take_deferred--> locked        `---dead_letter, counted to the limit--> dead-letter queue

A message that outlived its TTL is dropped or dead-lettered as soon as nobody holds its lock.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID, uuid4

from tests.peers.servicebus.errors import ARGUMENT, LOCK_LOST, MESSAGE_NOT_FOUND, BrokerError
from tests.peers.servicebus.journal import Forgetful, Journal
from tests.peers.servicebus.messages import Envelope
from tests.peers.servicebus.model import Message, QueueSettings, State

DEAD_LETTER_SUFFIX: Final = "/$DeadLetterQueue"
MAX_DELIVERIES_REASON: Final = "MaxDeliveryCountExceeded"
EXPIRED_REASON: Final = "TTLExpiredException"


class Consumer(Protocol):
    """Somebody that messages are pushed to."""

    def wants(self) -> bool:
        """Return whether it has credit for one more."""

    def deliver(self, message: Message) -> None:
        """Take a message that `take` gave."""

    @property
    def keeps(self) -> bool:
        """Whether messages are locked for it; else they are gone once sent."""


@dataclass
class Queue:
    """One queue, or the dead-letter queue of one (then `dead` is None: from there nothing moves on by itself)."""

    settings: QueueSettings
    dead: "Queue | None" = None
    journal: Journal = field(default_factory=Forgetful)
    keys: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    messages: dict[int, Message] = field(default_factory=dict)
    consumers: deque[Consumer] = field(default_factory=deque)
    _sequences: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _ready: list[tuple[int, int]] = field(default_factory=list)
    _locks: dict[UUID, Message] = field(default_factory=dict)
    _due: list[tuple[float, int]] = field(default_factory=list)
    _seen: dict[object, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The path that clients attach to."""
        return self.settings.name

    # What comes in

    def put(self, envelope: Envelope, now: float) -> Message | None:
        """Take a message in; None when one with its id came within the window of duplicates."""
        if self._is_duplicate(envelope, now):
            return None
        at = envelope.scheduled_for
        return self._add(envelope, now, at if at is not None and at > now else None)

    def schedule(self, envelope: Envelope, now: float) -> Message:
        """Take a message in that appears when its annotation says so.

        Raises:
            BrokerError: it says no time.
        """
        if (at := envelope.scheduled_for) is None:
            raise BrokerError(ARGUMENT, "the message has no x-opt-scheduled-enqueue-time")
        return self._add(envelope, now, at if at > now else None)

    def cancel_scheduled(self, sequences: Iterable[int]) -> None:
        """Remove messages that are still scheduled, all or none.

        Raises:
            BrokerError: one of them is not, or not any more.
        """
        found = [self._find(sequence, State.SCHEDULED) for sequence in sequences]
        for message in found:
            self._remove(message)

    def _add(self, envelope: Envelope, now: float, due_at: float | None) -> Message:
        message = Message(next(self.keys), next(self._sequences), envelope, now, due_at=due_at)
        self.messages[message.key] = message
        if due_at is not None:
            message.state = State.SCHEDULED
            self._watch(due_at, message)
        else:
            self._activate(message, now)
        self.journal.saved(self.name, message)
        return message

    def _activate(self, message: Message, now: float) -> None:
        message.state, message.due_at, message.enqueued_at = State.ACTIVE, None, now
        wanted = [ttl for ttl in (message.envelope.ttl_seconds, self.settings.ttl_seconds) if ttl is not None]
        if wanted and self.dead is not None:
            message.expires_at = now + min(wanted)
            self._watch(message.expires_at, message)
        heapq.heappush(self._ready, (message.sequence, message.key))

    def _is_duplicate(self, envelope: Envelope, now: float) -> bool:
        window, message_id = self.settings.duplicate_window_seconds, envelope.message_id
        if window is None or message_id is None:
            return False
        while self._seen and (oldest := next(iter(self._seen.items())))[1] <= now - window:
            del self._seen[oldest[0]]
        if message_id in self._seen:
            return True
        self._seen[message_id] = now
        return False

    def go_on_from(self, sequence: int) -> None:
        """Give higher sequence numbers than one that was given before a restart."""
        self._sequences = itertools.count(sequence + 1)

    def restore(self, message: Message) -> None:
        """Take a message back from the journal."""
        self.messages[message.key] = message
        if message.state is State.ACTIVE:
            heapq.heappush(self._ready, (message.sequence, message.key))
        for at in (message.due_at, message.expires_at):
            if at is not None:
                self._watch(at, message)

    def add_clone(self, message: Message) -> None:
        """Make a message deliverable once more, as a broker that lost sight of its first delivery does."""
        clone = Message(next(self.keys), message.sequence, message.envelope, message.enqueued_at, message.expires_at)
        clone.delivery_count = message.delivery_count + 1
        self.messages[clone.key] = clone
        heapq.heappush(self._ready, (clone.sequence, clone.key))
        self.journal.saved(self.name, clone)

    # What goes out

    def take(self, now: float, *, keep: bool = True) -> Message | None:
        """Return the first ready message, locked, or removed when it is not to be kept."""
        self.tick(now)
        while self._ready:
            message = self.messages.get(heapq.heappop(self._ready)[1])
            if message is None or message.lock is not None or message.state is not State.ACTIVE:
                continue
            if keep:
                self._lock(message, now)
            else:
                self._remove(message)
            return message
        return None

    def take_deferred(self, sequences: Iterable[int], now: float, *, keep: bool = True) -> list[Message]:
        """Return deferred messages by sequence number, locked or removed, all or none.

        Raises:
            BrokerError: one of them is not deferred, or locked.
        """
        found = [self._find(sequence, State.DEFERRED) for sequence in sequences]
        for message in found:
            if keep:
                self._lock(message, now)
            else:
                self._remove(message)
        return found

    def peek(self, from_sequence: int, count: int) -> list[Message]:
        """Return messages from a sequence number on, whatever their state, without touching them."""
        found = (message for message in self.messages.values() if message.sequence >= from_sequence)
        return heapq.nsmallest(count, found, key=lambda message: message.sequence)

    def _find(self, sequence: int, state: State) -> Message:
        for message in self.messages.values():
            if message.sequence == sequence and message.state is state and message.lock is None:
                return message
        raise BrokerError(MESSAGE_NOT_FOUND, f"no message {sequence} is {state.name.lower()} in {self.name}")

    def _lock(self, message: Message, now: float) -> None:
        message.lock, message.locked_until = uuid4(), now + self.settings.lock_seconds
        self._locks[message.lock] = message
        self._watch(message.locked_until, message)

    # What its holder says

    def held(self, token: UUID, now: float) -> Message:
        """Return the message of a lock.

        Raises:
            BrokerError: the lock expired, or there never was one.
        """
        message = self._locks.get(token)
        if message is None or message.locked_until <= now:
            raise BrokerError(
                LOCK_LOST, "The lock supplied is invalid. Either the lock expired, or the message has been removed."
            )
        return message

    def complete(self, token: UUID, now: float) -> None:
        """Remove a message that was handled."""
        self._remove(self.held(token, now))

    def abandon(self, token: UUID, now: float) -> None:
        """Give a message back as tried in vain."""
        self._give_back(self.held(token, now), now, counted=True)

    def release(self, token: UUID, now: float) -> None:
        """Give a message back as not tried."""
        self._give_back(self.held(token, now), now, counted=False)

    def defer(self, token: UUID, now: float) -> None:
        """Put a message aside until somebody asks for its sequence number."""
        message = self.held(token, now)
        message.state = State.DEFERRED
        self._give_back(message, now, counted=True)

    def dead_letter(self, token: UUID, now: float, reason: str | None = None, description: str | None = None) -> None:
        """Move a message to the dead-letter queue."""
        self._bury(self.held(token, now), now, reason, description)

    def renew(self, token: UUID, now: float) -> float:
        """Return until when the lock now holds."""
        message = self.held(token, now)
        message.locked_until = now + self.settings.lock_seconds
        self._watch(message.locked_until, message)
        return message.locked_until

    def expire(self, token: UUID, now: float) -> None:
        """Let a lock expire now, whatever its time."""
        if (message := self._locks.get(token)) is not None:
            self._give_back(message, now, counted=True)

    def expire_locks(self, now: float) -> int:
        """Let every lock expire now; return how many there were."""
        held = list(self._locks)
        for token in held:
            self.expire(token, now)
        return len(held)

    def _unlock(self, message: Message) -> None:
        if message.lock is not None:
            del self._locks[message.lock]
            message.lock = None

    def _give_back(self, message: Message, now: float, *, counted: bool) -> None:
        self._unlock(message)
        message.delivery_count += counted
        if message.state is State.ACTIVE:
            limit = self.settings.max_delivery_count
            if self.dead is not None and counted and message.delivery_count >= limit:
                told = f"Message could not be consumed after {limit} delivery attempts."
                self._bury(message, now, MAX_DELIVERIES_REASON, told)
                return
            heapq.heappush(self._ready, (message.sequence, message.key))
        self.journal.saved(self.name, message)
        self._review(message, now)

    def _bury(self, message: Message, now: float, reason: str | None, description: str | None) -> None:
        if self.dead is None:
            raise BrokerError(ARGUMENT, f"{self.name} is a dead-letter queue itself")
        self._remove(message)
        said = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
        envelope = message.envelope.copy()
        envelope.application |= {name: text for name, text in said.items() if text is not None}
        self.dead.receive_dead(message, envelope, now)

    def receive_dead(self, message: Message, envelope: Envelope, now: float) -> None:
        """Take in what another queue could not get rid of; it keeps its sequence number and count."""
        moved = Message(next(self.keys), message.sequence, envelope, now, delivery_count=message.delivery_count)
        self.messages[moved.key] = moved
        heapq.heappush(self._ready, (moved.sequence, moved.key))
        self.journal.saved(self.name, moved)

    def _remove(self, message: Message) -> None:
        self._unlock(message)
        del self.messages[message.key]
        self.journal.removed(self.name, message.key)

    # What time does

    def _watch(self, at: float, message: Message) -> None:
        heapq.heappush(self._due, (at, message.key))

    def next_due(self) -> float | None:
        """Return when time may next change something here."""
        return self._due[0][0] if self._due else None

    def tick(self, now: float) -> None:
        """Do what has become due: show scheduled messages, free expired locks, bury expired messages."""
        while self._due and self._due[0][0] <= now:
            message = self.messages.get(heapq.heappop(self._due)[1])
            if message is not None:
                self._review(message, now)

    def _review(self, message: Message, now: float) -> None:
        if message.lock is not None:
            if message.locked_until <= now:
                self._give_back(message, now, counted=True)
        elif message.due_at is not None:
            if message.due_at <= now:
                self._activate(message, now)
                self.journal.saved(self.name, message)
        elif message.expires_at is not None and message.expires_at <= now:
            if self.settings.dead_letter_expired:
                self._bury(message, now, EXPIRED_REASON, "The message expired and was dead lettered.")
            else:
                self._remove(message)

    def pump(self, now: float) -> None:
        """Hand ready messages to consumers in turn, as far as both reach."""
        self.tick(now)
        idle = 0
        while self._ready and idle < len(self.consumers):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if not consumer.wants():
                idle += 1
                continue
            if (message := self.take(now, keep=consumer.keeps)) is None:
                return
            idle = 0
            consumer.deliver(message)
