"""What has to be done now and then, by whichever instance comes first: months, dead boots, reviews, values."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0
RETRY_SECONDS = 30.0


Chore = Callable[[], Awaitable[object]]


async def upkeep(chores: Sequence[Chore]) -> None:
    """Do them at the start and every hour, for ever; what fails is tried again sooner."""
    while True:
        pause = INTERVAL_SECONDS
        for chore in chores:
            try:
                await chore()
            except Exception:
                log.exception("upkeep failed", extra={"chore": chore.__name__, "retry_seconds": RETRY_SECONDS})
                pause = RETRY_SECONDS
        await asyncio.sleep(pause)
