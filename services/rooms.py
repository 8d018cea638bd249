"""Room of a worker that a transaction fills with tasks: older ones out of the queue first, then its own (ADR 10).

A task that the transaction itself dispatches is written as leased, with no message in between. One that waits in the
queue is claimed as if the worker had received it: the claim decides, its message goes in the same transaction. Rows of
others are only locked when nobody holds them, so nobody waits for whom this transaction may be waiting for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.handlers_catalog import CATALOG, RunMode
from core.models.engine import Attempt
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

Task = tuple[Attempt, TaskMessage]
MOST_TAKEN = 512
"""Messages that one transaction reads at most; many may be of a kind that is not for an answer."""
KEPT = frozenset({ClaimOutcome.NO_FIT, ClaimOutcome.UNKNOWN})
"""Answers after which a message stays in the queue, for whoever receives it."""


@dataclass(slots=True)
class Room:
    """What one worker has free for one transaction, and what it was given."""

    request: ExchangeRequest
    lease_seconds: float
    free: Free
    taken: Sequence[Delivery] = ()
    """Messages that are older than anything that this transaction makes."""
    grants: list[Grant] = field(default_factory=list)
    granted: Sequence[Grant] = ()
    """The grants once they are committed."""

    def commit(self) -> None:
        """Note that the transaction has committed: from now on the tasks are the worker's."""
        self.granted = tuple(self.grants)

    def lease(self, task: Task, now: datetime) -> Attempt | None:
        """Return the attempt of a new task as leased, None when the task is not for this room.

        An attempt that may go on from a checkpoint takes the way through the queue, whose claim looks for it.
        """
        attempt, message = task
        if attempt.queue != self.request.worker.queue or attempt.attempt > 0 or not is_small(message):
            return None
        older_left = len(self.taken) >= min(self.free.slots, MOST_TAKEN)
        if older_left or self.free.take(attempt) is not None:
            return None
        seconds = attempt.heartbeat_timeout_seconds or self.lease_seconds
        answer = ClaimAnswer.of_checked(
            task_id=attempt.task_id,
            outcome=ClaimOutcome.GRANTED,
            lease_seconds=seconds,
            handler=attempt.handler,
            params_digest=attempt.params_digest,
        )
        self.grants.append(Grant.of_checked(message=message, answer=answer))
        leased = {
            "state": AttemptState.LEASED,
            "claim_id": self.request.claim_id,
            "worker_id": self.request.worker.worker_id,
            "leased_at": now,
            "lease_expires_at": now + timedelta(seconds=seconds),
            "redispatch_at": None,
        }
        return attempt.model_copy(update=leased)


def is_small(message: TaskMessage) -> bool:
    """Return whether a task may run beside a thousand others: in the event loop, with nothing large or scarce.

    What fetches a file, writes to the database or reads large params takes one of the worker's few slots.
    """
    spec = CATALOG.get(message.handler)
    inline = spec is not None and spec.mode is RunMode.INLINE and not spec.fetches and not spec.database
    return inline and message.params_ref is None


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
        wanted = [one for one in room.taken if one.message is not None and is_small(one.message)]
        if not wanted:
            return
        messages = {one.message.task_id: one.message for one in wanted if one.message is not None}
        queue = room.request.worker.queue
        attempts = await AttemptRepository(conn).lock_to_claim(list(messages), queue, wait=False)
        found = await attempts.rows()
        here = {attempt.task_id for attempt in found}
        claims = tuple(self._claim(message, room) for task_id, message in messages.items() if task_id in here)
        free = Capacity(slots=len(claims), memory_bytes=room.free.memory_bytes)
        request = ClaimRequest(worker=room.request.worker, free=free, claims=claims)
        answers = await self.claims.decide(conn, request, found)
        granted = [one for one in answers if one.outcome is ClaimOutcome.GRANTED]
        room.grants += [Grant(message=messages[one.task_id], answer=one) for one in granted]
        settled = {one.task_id for one in answers if one.outcome not in KEPT}
        done = [one.message_id for one in wanted if one.message is not None and one.message.task_id in settled]
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
            placed.queued.append(task[1])
        else:
            placed.leased[attempt.task_id] = attempt
        placed.attempts.append(attempt or task[0])
    return placed
