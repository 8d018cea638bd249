"""What has to be done now and then, by whichever instance comes first: months, dead boots, reviews, values."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from core.errors import DatabaseUnavailable

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0
RETRY_SECONDS = 30.0


Chore = Callable[[], Awaitable[object]]


async def upkeep(chores: Sequence[Chore], interval_seconds: float = INTERVAL_SECONDS) -> None:
    """Do them at the start and every so often, for ever; what fails is tried again after half a minute at most."""
    soon = min(interval_seconds, RETRY_SECONDS)
    while True:
        pause = interval_seconds
        for chore in chores:
            try:
                await chore()
            except DatabaseUnavailable as error:
                log.warning(
                    "upkeep waits for the database",
                    extra={"chore": chore.__name__, "retry_seconds": soon, "reason": str(error)},
                )
                pause = soon
            except Exception:
                log.exception("upkeep failed", extra={"chore": chore.__name__, "retry_seconds": soon})
                pause = soon
        await asyncio.sleep(pause)
