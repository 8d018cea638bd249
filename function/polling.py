"""Waiting for something that only a view can tell: asked again and again until a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 0.5


async def poll_until(ask: Callable[[], Awaitable[T | None]], deadline: float) -> T | None:
    """Return the first answer that is not None, or None at the deadline (seconds of `time.monotonic`)."""
    pause = FIRST_PAUSE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(pause, left))
        if (found := await ask()) is not None:
            return found
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
    return None
