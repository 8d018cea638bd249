"""What has to be done now and then, by whichever instance comes first: months ahead, boots long gone."""

import asyncio
import logging

from services.recover import RecoverService

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 3600.0
RETRY_SECONDS = 30.0


async def upkeep(recover: RecoverService) -> None:
    """Do it at the start and every hour, for ever; what fails is tried again sooner."""
    while True:
        pause = INTERVAL_SECONDS
        for chore in (recover.prepare_months, recover.forget_dead):
            try:
                await chore()
            except Exception:
                log.exception("upkeep failed", extra={"chore": chore.__name__, "retry_seconds": RETRY_SECONDS})
                pause = RETRY_SECONDS
        await asyncio.sleep(pause)
