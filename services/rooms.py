"""Room of a worker that a transaction fills with tasks: older ones out of the queue first, then its own (ADR 10).

A task that the transaction itself dispatches is written as leased, with no message in between. One that waits in the
queue is claimed as if the worker had received it: the claim decides, its message goes in the same transaction. Rows of
others are only locked when nobody holds them, so nobody waits for whom this transaction may be waiting for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from core.handlers_catalog import CATALOG, RunMode
from core.models.engine import Attempt
from core.payloads import PayloadRef
from core.ports import Delivery, Names, SharedQueue, Taken
from core.statuses import AttemptState
from core.wire import (
    Capacity,
    Claim,
    ClaimAnswer,
    ClaimOutcome,
    ClaimRequest,
    ExchangeRequest,
    Grant,
    TaskMessage,
)
from repositories.attempts import AttemptRepository
from services.claims import ClaimService, Free
from services.work import Connection

MOST_TAKEN = 512
"""Messages that one transaction reads at most; many may be of a kind that is not for an answer."""
KEPT = frozenset({ClaimOutcome.NO_FIT, ClaimOutcome.UNKNOWN})
"""Answers after which a message stays in the queue, for whoever receives it."""


class Task(NamedTuple):
    """One dispatch of an attempt, and what its message says besides."""

    attempt: Attempt
    params: Mapping[str, Any]
    params_ref: PayloadRef | None
    token: str
    items: tuple[int, ...] | None

    def message(self) -> TaskMessage:
        """Return what the worker is told."""
        attempt = self.attempt
        return TaskMessage.of_checked(
            task_id=attempt.task_id,
            job_id=attempt.job_id,
            node_id=attempt.node_id,
            attempt=attempt.attempt,
            dispatch_no=attempt.dispatch_no,
            handler=attempt.handler,
            queue=attempt.queue,
            priority=attempt.priority,
            params=dict(self.params),
            params_ref=self.params_ref,
            timeout_seconds=attempt.timeout_seconds,
            token=self.token,
            items=self.items,
        )


@dataclass(slots=True)
class Room:
    """What one worker has free for one transaction, and what it was given."""

    request: ExchangeRequest
    lease_seconds: float
    free: Free
    taken: Sequence[Delivery] = ()
    """Messages that are older than anything that this transaction makes."""
    claimed: list[Grant] = field(default_factory=list)
    """What it was given of those."""
    leased: list[Task] = field(default_factory=list)
    """What it was given of the tasks that the transaction makes."""
    _committed: bool = False

    def commit(self) -> None:
        """Note that the transaction has committed: from now on the tasks are the worker's."""
        self._committed = True

    def granted(self) -> tuple[Grant, ...]:
        """Return what the worker is told of its tasks, none before they are committed.

        It is made here and not when they are leased: meanwhile somebody may wait for the job.
        """
        return (*self.claimed, *(self._grant(task) for task in self.leased)) if self._committed else ()

    def lease(self, task: Task, now: datetime) -> Attempt | None:
        """Return the attempt of a new task as leased, None when the task is not for this room.

        An attempt that may go on from a checkpoint takes the way through the queue, whose claim looks for it.
        """
        attempt = task.attempt
        if attempt.queue != self.request.worker.queue or attempt.attempt > 0:
            return None
        if not is_small(attempt.handler, task.params_ref) or len(self.taken) >= min(self.free.slots, MOST_TAKEN):
            return None
        if self.free.take(attempt) is not None:
            return None
        self.leased.append(task)
        leased = {
            "state": AttemptState.LEASED,
            "claim_id": self.request.claim_id,
            "worker_id": self.request.worker.worker_id,
            "leased_at": now,
            "lease_expires_at": now + timedelta(seconds=self._seconds_of(attempt)),
            "redispatch_at": None,
        }
        return attempt.model_copy(update=leased)

    def _seconds_of(self, attempt: Attempt) -> float:
        return attempt.heartbeat_timeout_seconds or self.lease_seconds

    def _grant(self, task: Task) -> Grant:
        answer = ClaimAnswer.of_checked(
            task_id=task.attempt.task_id,
            outcome=ClaimOutcome.GRANTED,
            lease_seconds=self._seconds_of(task.attempt),
            handler=task.attempt.handler,
            params_digest=task.attempt.params_digest,
        )
        return Grant.of_checked(message=task.message(), answer=answer)


def is_small(handler: str, params_ref: PayloadRef | None) -> bool:
    """Return whether a task may run beside a thousand others: in the event loop, with nothing large or scarce.

    What fetches a file, writes to the database or reads large params takes one of the worker's few slots.
    """
    spec = CATALOG.get(handler)
    inline = spec is not None and spec.mode is RunMode.INLINE and not spec.fetches and not spec.database
    return inline and params_ref is None


@dataclass(frozen=True, slots=True)
class Lent:
    """Rooms of workers that wait, to be filled with new tasks of queues in which nothing older waits."""

    rooms: Sequence[Room] = ()
    backlog: Names | None = None

    async def usable(self) -> Sequence[Room]:
        """Return those that may be filled."""
        if self.backlog is None:
            return ()
        behind = await self.backlog.names()
        return [room for room in self.rooms if room.request.worker.queue not in behind]


NOBODY_WAITS = Lent()


class RoomService:
    """Makes rooms, and fills them with what waits in the queue."""

    def __init__(self, queue: SharedQueue, claims: ClaimService) -> None:
        self._queue = queue
        self.claims = claims

    def room(self, request: ExchangeRequest) -> Room | None:
        """Return the room of a worker; None when it has none, or leaves."""
        free = Free.of(request.free, request.worker.state != "active")
        return Room(request, self.claims.lease_seconds, free) if free.slots > 0 else None

    async def lend(self, conn: Connection, rooms: Sequence[Room]) -> Lent:
        """Ask which of these rooms may be filled; the answer comes with those of the statements that follow."""
        if not rooms:
            return NOBODY_WAITS
        return Lent(rooms, await self._queue.backlog(conn, sorted({room.request.worker.queue for room in rooms})))

    async def take(self, conn: Connection, room: Room) -> Taken:
        """Ask for the oldest messages that a worker has room for; they stay locked and in the queue."""
        return await self._queue.take(conn, room.request.worker.queue, min(room.free.slots, MOST_TAKEN))

    async def claim(self, conn: Connection, room: Room) -> None:
        """Claim what was taken; a message goes with its claim, whatever the answer, unless that says to keep it."""
        wanted = [
            (one, one.message)
            for one in room.taken
            if one.message is not None and is_small(one.message.handler, one.message.params_ref)
        ]
        if not wanted:
            return
        messages = {message.task_id: message for _, message in wanted}
        queue = room.request.worker.queue
        attempts = await AttemptRepository(conn).lock_to_claim(list(messages), queue, wait=False)
        found = await attempts.rows()
        here = {attempt.task_id for attempt in found}
        claims = tuple(self._claim(message, room) for task_id, message in messages.items() if task_id in here)
        free = Capacity(slots=len(claims), memory_bytes=room.free.memory_bytes)
        request = ClaimRequest(worker=room.request.worker, free=free, claims=claims)
        answers = await self.claims.decide(conn, request, found)
        granted = [one for one in answers if one.outcome is ClaimOutcome.GRANTED]
        room.claimed += [Grant(message=messages[one.task_id], answer=one) for one in granted]
        settled = {one.task_id for one in answers if one.outcome not in KEPT}
        done = [delivery.message_id for delivery, message in wanted if message.task_id in settled]
        if done:
            await self._queue.remove(conn, done)

    def _claim(self, message: TaskMessage, room: Room) -> Claim:
        return Claim(
            task_id=message.task_id,
            dispatch_no=message.dispatch_no,
            token=message.token,
            claim_id=room.request.claim_id,
        )


@dataclass(slots=True)
class Placed:
    """Where new tasks go."""

    attempts: list[Attempt] = field(default_factory=list)
    queued: list[TaskMessage] = field(default_factory=list)
    leased: dict[str, Attempt] = field(default_factory=dict)
    """By task id: those that workers run as soon as the transaction commits."""


def place(tasks: Sequence[Task], rooms: Sequence[Room], now: datetime) -> Placed:
    """Lease new tasks to those who have room, in turns, and leave the others to the queue."""
    placed = Placed()
    for number, task in enumerate(tasks):
        attempt: Attempt | None = None
        for turn in range(len(rooms)):
            if (attempt := rooms[(number + turn) % len(rooms)].lease(task, now)) is not None:
                break
        if attempt is None:
            placed.queued.append(task.message())
        else:
            placed.leased[attempt.task_id] = attempt
        placed.attempts.append(attempt or task.attempt)
    return placed
