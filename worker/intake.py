"""Tasks that come with the answer to results: the room that is kept free for them, and their start.

They have slots of their own, many, since they are small and each costs one call where a message costs three: so what
comes as a message always finds its own. While results go out the consumer leaves messages to the answers; but not for
long, since an answer does not bring every kind of task.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from core.handlers_catalog import HandlerSpec, RunMode
from core.wire import Capacity, ClaimAnswer, Grant, TaskMessage
from worker.tasks import ANSWERED, Slots

STARTED_TOGETHER = 64
TURN_SECONDS = 3.0
"""After so long of nothing but answers the consumer has its turn."""


class ReservedRoom:
    """Slots that are kept for one answer."""

    def __init__(self, capacity: Capacity, begin: Callable[[Grant], bool]) -> None:
        self.capacity = capacity
        self.claim_id = uuid.uuid4().hex
        self.left = capacity.slots
        self._begin = begin

    async def start(self, grants: Sequence[Grant]) -> None:
        """Start what the answer brought; what nobody can have meant for this worker is left to its lease.

        In portions: small tasks end at once, and the results of the first ones go out while the next ones run.
        """
        coming = deque(grants)
        try:
            self._start(coming, STARTED_TOGETHER)
            while coming:
                await asyncio.sleep(0)
                self._start(coming, STARTED_TOGETHER)
        finally:
            self._start(coming, len(coming))  # they are this worker's, also when it is told to go amid them

    def _start(self, coming: deque[Grant], count: int) -> None:
        for _ in range(min(count, len(coming))):
            if self.left > 0 and self._begin(coming[0]):
                self.left -= 1
            coming.popleft()


class Intake:
    """What lets answers bring tasks; `enabled` when tasks that run inline are what this worker is for."""

    def __init__(
        self,
        catalog: Mapping[str, HandlerSpec],
        slots: Slots,
        begin: Callable[[TaskMessage, HandlerSpec, ClaimAnswer, str], None],
        capacity: Callable[[int], Capacity],
        *,
        enabled: bool,
    ) -> None:
        self._catalog = catalog
        self._slots = slots
        self._start = begin
        self._capacity = capacity
        self._enabled = enabled

    def stop(self) -> None:
        """Keep no room any more; what an answer under way brings is still started."""
        self._enabled = False

    async def wait_turn(self, reported: Callable[[], Awaitable[None]]) -> None:
        """Wait until all results are reported, but not for long, then let the consumer have its turn."""
        if self._enabled:
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_SECONDS):
                    await reported()

    @contextmanager
    def offered(self, slots: int) -> Iterator[ReservedRoom]:
        """Keep at most so many slots for what another instance may make."""
        with self._reserved(min(slots, self._spare())) as room:
            yield room

    @contextmanager
    def reserved(self, ended: int) -> Iterator[ReservedRoom]:
        """Keep room for an answer: as much as its results had, or half of what is free; the rest is for one beside it.

        What it does not fill is given back. A fan-out gets a task for each that ended, or it would have to take the
        way through the queue.
        """
        spare = self._spare()
        with self._reserved(min(spare, max(ended, (spare + 1) // 2))) as room:
            yield room

    def _spare(self) -> int:
        return self._slots.free(ANSWERED) if self._enabled else 0

    @contextmanager
    def _reserved(self, count: int) -> Iterator[ReservedRoom]:
        self._slots.take(ANSWERED, count)
        room = ReservedRoom(self._capacity(count), self._begin)
        try:
            yield room
        finally:
            self._slots.give(ANSWERED, room.left)

    def _begin(self, grant: Grant) -> bool:
        """Start a task whose slot is taken; return whether it was one for this worker."""
        spec = self._catalog.get(grant.message.handler)
        if spec is None or spec.mode is not RunMode.INLINE:
            return False
        self._start(grant.message, spec, grant.answer, ANSWERED)
        return True
