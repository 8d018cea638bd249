"""Tasks that come with the answer to results: the room that is kept free for them, and their start.

A slot is promised once at a time: to messages that may be on their way out of the queue, or to an answer. While
results go out the consumer leaves the slots to their answers, which cost one call instead of three; but not for long,
since an answer does not bring every kind of task.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from core.handlers_catalog import HandlerSpec, RunMode
from core.wire import Capacity, ClaimAnswer, Grant, TaskMessage
from worker.tasks import Slots

TURN_SECONDS = 3.0
"""After so long of nothing but answers the consumer has its turn."""


class ReservedRoom:
    """Slots that are kept for one answer."""

    def __init__(self, capacity: Capacity, begin: Callable[[Grant], bool]) -> None:
        self.capacity = capacity
        self.claim_id = uuid.uuid4().hex
        self.left = capacity.slots
        self._begin = begin

    def start(self, grants: Sequence[Grant]) -> None:
        """Start what the answer brought; what nobody can have meant for this worker is left to its lease."""
        for grant in grants:
            if self.left > 0 and self._begin(grant):
                self.left -= 1


class Intake:
    """What lets answers bring tasks; `enabled` when tasks that run inline are what this worker is for."""

    def __init__(
        self,
        catalog: Mapping[str, HandlerSpec],
        slots: Slots,
        begin: Callable[[TaskMessage, HandlerSpec, ClaimAnswer], None],
        capacity: Callable[[], Capacity],
        *,
        enabled: bool,
        offered: int = 0,
    ) -> None:
        self._catalog = catalog
        self._slots = slots
        self._start = begin
        self._capacity = capacity
        self._enabled = enabled
        self._offered = offered
        self._standing = 0
        self._promised = 0
        self._consumer_waits = False

    def stop(self) -> None:
        """Keep no room any more; what an answer under way brings is still started."""
        self._enabled = False

    async def wait_turn(self, reported: Callable[[], Awaitable[None]]) -> None:
        """Wait until all results are reported, but not for long, then let the consumer have the free slots."""
        if not self._enabled or self._consumer_waits:
            return
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await reported()
        except TimeoutError:
            self._consumer_waits = True

    def promise(self, free: int) -> int:
        """Keep free slots for messages that may come out of the queue, and return how many.

        What offers need is left to them, but at most half; 0 when those that came have taken theirs.
        """
        self._promised = max((free + 1) // 2, free - (self._offered - self._standing)) if self._enabled else free
        self._consumer_waits = False
        return self._promised

    @contextmanager
    def offered(self, slots: int) -> Iterator[ReservedRoom]:
        """Keep at most so many slots for what another instance may make; none when all are promised already."""
        with self._reserved(min(slots, self._spare())) as room:
            self._standing += room.capacity.slots
            try:
                yield room
            finally:
                self._standing -= room.capacity.slots

    @contextmanager
    def reserved(self) -> Iterator[ReservedRoom]:
        """Keep what is free for an answer; what it does not fill is given back."""
        with self._reserved(self._spare()) as room:
            yield room

    def _spare(self) -> int:
        if not self._enabled or self._consumer_waits:
            return 0
        return max(0, self._slots.free(RunMode.INLINE) - self._promised)

    @contextmanager
    def _reserved(self, count: int) -> Iterator[ReservedRoom]:
        for _ in range(count):
            self._slots.take(RunMode.INLINE)
        room = ReservedRoom(self._capacity().model_copy(update={"slots": count}), self._begin)
        try:
            yield room
        finally:
            for _ in range(room.left):
                self._slots.give(RunMode.INLINE)

    def _begin(self, grant: Grant) -> bool:
        """Start a task whose slot is taken; return whether it was one for this worker."""
        spec = self._catalog.get(grant.message.handler)
        if spec is None or spec.mode is not RunMode.INLINE:
            return False
        self._start(grant.message, spec, grant.answer)
        return True
