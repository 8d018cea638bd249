"""A broker in memory that drops, doubles, delays and reorders; what it carries comes from the real outbox.

Messages leave `dagqueue.messages` only after the transaction that wrote them committed, as with a relay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.simulation.faults import Faults
from bench.simulation.world import Process, World
from core.errors import DatabaseUnavailable
from core.wire import TaskMessage
from repositories.database import AsyncPool, transaction

LOCK_SECONDS = 20.0


@dataclass(eq=False, slots=True)
class Parcel:
    """One copy of a message in the broker."""

    message: TaskMessage
    visible_at: float
    deliveries: int = 0


class Broker:
    """At least once, in any order, or never."""

    def __init__(self, world: World, faults: Faults) -> None:
        self.process = Process("broker")
        self._world = world
        self._faults = faults
        self._parcels: list[Parcel] = []
        self.dead_letters: list[tuple[TaskMessage, str]] = []

    async def relay(self, pool: AsyncPool) -> None:
        """Take what was committed out of the outbox, for ever."""
        while True:
            await self._world.pause(self.process, 3 * self._world.chance.random())
            try:
                async with transaction(pool) as conn:
                    cursor = await conn.execute("DELETE FROM dagqueue.messages RETURNING body, message_id")
                    rows = sorted(await cursor.fetchall(), key=lambda row: str(row[1]))
            except DatabaseUnavailable:
                continue  # what was deleted by a commit without an answer is lost, as in a broker that forgets
            for body, _ in rows:
                self._accept(TaskMessage.model_validate(body))

    def _accept(self, message: TaskMessage) -> None:
        copies, late = self._faults.message_fate()
        for _ in range(copies):
            self._parcels.append(Parcel(message, self._world.now + late))

    def receive(self, queue: str, most: int) -> Sequence[Parcel]:
        """Lock and return up to `most` messages of a queue, in no order."""
        now = self._world.now
        visible = [one for one in self._parcels if one.message.queue == queue and one.visible_at <= now]
        taken = self._world.chance.sample(visible, min(most, len(visible)))
        for parcel in taken:
            parcel.deliveries += 1
            parcel.visible_at = now + LOCK_SECONDS
        return taken

    def complete(self, parcel: Parcel) -> None:
        """Remove a message; that it is gone already, or that this gets lost, is no error."""
        if parcel in self._parcels and not self._faults.answer_lost():
            self._parcels.remove(parcel)

    def give_back(self, parcel: Parcel, seconds: float) -> None:
        """Make a message visible again."""
        parcel.visible_at = self._world.now + seconds

    def dead_letter(self, parcel: Parcel, reason: str) -> None:
        """Set a message aside."""
        if parcel in self._parcels:
            self._parcels.remove(parcel)
            self.dead_letters.append((parcel.message, reason))
