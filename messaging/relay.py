"""From the outbox to the broker: the rows of `dagqueue.messages` are passed on in batches, then deleted (ADR 11).

The relay is a consumer of the embedded queue like any worker, woken like one and holding rows by the same lock, only
that it sends what it receives. What was sent and not deleted is sent again under the same message id: the claim
decides. The outbox is the ordered queue: no more than `max_unclaimed` messages of a queue are left to the broker, so
that what is urgent overtakes all others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from core.dead_letters import TOO_LARGE
from core.errors import PayloadTooLarge
from core.ports import Delivery, TaskReceiver
from messaging.servicebus import Outgoing, ServiceBus
from messaging.tireless import for_ever, reason_of

log = logging.getLogger(__name__)

MAX_BATCH = 500
RECEIVE_SECONDS = 20.0
FULL_SECONDS = (0.02, 0.05, 0.1, 0.2)
"""Pauses while the broker has enough; the last one repeats."""


class Relay:
    """Passes the messages of one queue on, for as long as its process lives."""

    def __init__(
        self,
        outbox: TaskReceiver,
        bus: ServiceBus,
        queue: str,
        unclaimed: Callable[[], Awaitable[int]],
        *,
        max_unclaimed: int,
    ) -> None:
        self._outbox = outbox
        self._bus = bus
        self._queue = queue
        self._unclaimed = unclaimed
        self._max_unclaimed = max_unclaimed
        self._room = 0
        self.trouble: str | None = None
        """Why nothing can be passed on at present."""

    async def run(self) -> None:
        """Pass on until cancelled; never ends because of an error."""
        await for_ever(self._turn, "outbox not passed on", {"queue": self._queue})

    async def close(self) -> None:
        """Unlock what was not passed on."""
        await self._outbox.close()

    async def _turn(self) -> None:
        try:
            await self._wait_for_room()
            await self._pass_on(await self._outbox.receive(min(self._room, MAX_BATCH), RECEIVE_SECONDS))
        except Exception as error:
            self.trouble = reason_of(error)
            raise
        self.trouble = None

    async def _wait_for_room(self) -> None:
        """Count again once half of what there was room for is used; wait until a tenth of all is free."""
        if self._room > self._max_unclaimed // 2:
            return
        tries = 0
        while (room := self._max_unclaimed - await self._unclaimed()) < max(1, self._max_unclaimed // 10):
            await asyncio.sleep(FULL_SECONDS[min(tries, len(FULL_SECONDS) - 1)])
            tries += 1
        self._room = room

    async def _pass_on(self, deliveries: Sequence[Delivery]) -> None:
        waiting = list(deliveries)
        try:
            while waiting:
                try:
                    sent = await self._bus.send(self._queue, [_outgoing(one) for one in waiting])
                except PayloadTooLarge as error:
                    await self._refuse(waiting.pop(0), error)
                    continue
                self._room -= sent
                await self._outbox.complete(waiting[:sent])
                del waiting[:sent]
        finally:
            for one in waiting:
                await self._outbox.abandon(one)

    async def _refuse(self, delivery: Delivery, error: PayloadTooLarge) -> None:
        """Set aside what the broker will never take: its attempt fails with the reason."""
        log.error("message too large for the broker", extra={"message_id": delivery.message_id, "reason": str(error)})
        await self._outbox.dead_letter(delivery, f"{TOO_LARGE} {error}")


def _outgoing(delivery: Delivery) -> Outgoing:
    body = b"{}" if delivery.message is None else delivery.message.model_dump_json().encode()
    return Outgoing(delivery.message_id, body)
