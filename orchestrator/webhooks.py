"""Sends webhooks in the background: woken when one is stored, by the next one's time, and every half minute."""

import asyncio
import logging

from core.errors import DatabaseUnavailable
from services.webhooks import WebhookService

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 30.0
RETRY_SECONDS = 5.0


class WebhookLoop:
    """One instance's sender; any number of instances share the work."""

    def __init__(self, service: WebhookService) -> None:
        self._service = service
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at once."""
        self._woken.set()

    async def run(self) -> None:
        """Send for ever; outlives every error."""
        while True:
            self._woken.clear()
            pause = await self._step()
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _step(self) -> float:
        try:
            following = await self._service.deliver_due()
        except DatabaseUnavailable as error:
            log.warning("webhooks wait for the database", extra={"reason": str(error)})
            return RETRY_SECONDS
        except Exception:
            log.exception("webhooks not sent")
            return RETRY_SECONDS
        return LONGEST_PAUSE_SECONDS if following is None else min(max(following, 0.0), LONGEST_PAUSE_SECONDS)
