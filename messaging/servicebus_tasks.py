"""Tasks out of Service Bus: the receiving side of the port, in one worker."""

from collections.abc import Awaitable, Callable, Sequence

from pydantic import ValidationError

from core.ports import Delivery
from core.wire import TaskMessage
from messaging.servicebus import QueueReader, Received
from messaging.taken import unreadable


class ServiceBusTaskReceiver:
    """Receiving side of one queue; how long a lock lasts is the queue's own setting.

    `closing` closes what the reader belongs to, when that is nobody else's.
    """

    def __init__(self, reader: QueueReader, closing: Callable[[], Awaitable[None]] | None = None) -> None:
        self._reader = reader
        self._close = closing or reader.close

    @property
    def hears(self) -> bool:
        """Return whether the link to the broker stands."""
        return self._reader.connected.is_set()

    async def receive(self, max_messages: int, wait_seconds: float) -> Sequence[Delivery]:
        """Return up to `max_messages`; empty on time-out, also when the broker was away all that time."""
        return [delivery_of(one) for one in await self._reader.receive(max_messages, wait_seconds)]

    async def complete(self, deliveries: Sequence[Delivery]) -> None:
        """Remove them, as far as their locks are still ours."""
        await self._reader.complete([one.receipt for one in deliveries])

    async def abandon(self, delivery: Delivery, delay_seconds: float = 0.0) -> None:
        """Give one back after the delay."""
        await self._reader.abandon(delivery.receipt, delay_seconds)

    async def renew(self, deliveries: Sequence[Delivery]) -> None:
        """Lock them for another full period of the queue."""
        await self._reader.renew([one.receipt for one in deliveries])

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Set one aside, as far as its lock is still ours."""
        await self._reader.dead_letter(delivery.receipt, reason)

    async def close(self) -> None:
        """Give back what was not settled, then disconnect."""
        await self._close()


def delivery_of(received: Received) -> Delivery:
    """Return a message as a delivery."""
    count = received.raw.delivery_count or 0
    try:
        message = TaskMessage.model_validate_json(received.body())
    except ValidationError as error:
        return Delivery(None, received.message_id, count, received, unreadable(error))
    except ValueError as error:
        return Delivery(None, received.message_id, count, received, str(error))
    return Delivery(message, received.message_id, count, received)
