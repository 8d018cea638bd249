"""Settles messages beside the work: a failure here is never more than one delivery too many."""

import asyncio
import logging

from core.errors import TransientError
from core.ports import Delivery, TaskReceiver

_TRIES = 3
_RETRY_SECONDS = 0.5


class Settler:
    """Completes messages in batches in the background; abandons and dead-letters at once.

    When the queue cannot be reached the message's lock runs out and it is delivered again; then its claim is refused
    and it is completed by whoever received it.
    """

    def __init__(self, receiver: TaskReceiver, logger: logging.Logger) -> None:
        self._receiver = receiver
        self._logger = logger
        self._done: list[Delivery] = []
        self._wake = asyncio.Event()

    def complete(self, delivery: Delivery) -> None:
        """Remove a message soon."""
        self._done.append(delivery)
        self._wake.set()

    async def abandon(self, delivery: Delivery, delay_seconds: float) -> None:
        """Give a message back."""
        try:
            await self._receiver.abandon(delivery, delay_seconds)
        except TransientError as exc:
            self._logger.warning("message not given back", extra={"reason": str(exc)})

    async def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Set a message aside."""
        self._logger.error("message set aside", extra={"message_id": delivery.message_id, "reason": reason})
        try:
            await self._receiver.dead_letter(delivery, reason)
        except TransientError as exc:
            self._logger.warning("message not set aside", extra={"reason": str(exc)})

    async def run(self) -> None:
        """Complete messages for ever."""
        while True:
            await self._wake.wait()
            await self.flush()

    async def flush(self) -> None:
        """Complete what is due now."""
        self._wake.clear()
        batch, self._done = self._done, []
        for _ in range(_TRIES if batch else 0):
            try:
                await self._receiver.complete(batch)
                return
            except TransientError as exc:
                self._logger.warning("messages not completed", extra={"reason": str(exc), "count": len(batch)})
                await asyncio.sleep(_RETRY_SECONDS)
