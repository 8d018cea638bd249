"""Loops at the broker that end only when they are cancelled: after an error they pause, longer each time, and go on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from core.errors import TransientError

RECONNECT_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
log = logging.getLogger(__name__)


def pause_seconds(failures: int) -> float:
    """Return the pause after an error that so many came before, one behind the other."""
    return RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)]


def reason_of(error: Exception) -> str:
    """Return what may be told of an error: the words of one that passes, of any other only its kind."""
    return str(error) if isinstance(error, TransientError) else type(error).__name__


async def for_ever(step: Callable[[], Awaitable[object]], complaint: str, about: Mapping[str, Any]) -> None:
    """Take a step again and again; an error is logged as `complaint` and never ends it."""
    failures = 0
    while True:
        try:
            await step()
            failures = 0
        except Exception as error:
            unknown = not isinstance(error, TransientError)
            log.warning(complaint, extra={**about, "reason": reason_of(error)}, exc_info=unknown)
            await asyncio.sleep(pause_seconds(failures))
            failures += 1
