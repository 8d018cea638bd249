"""Waiting for a condition with a deadline; tests never sleep to synchronise."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout_seconds: float = 10.0, every: float = 0.02) -> T:
    """Return the condition's first true value; fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_seconds} s: {what}")
        time.sleep(every)


async def await_until(
    condition: Callable[[], Awaitable[T]], what: str, timeout_seconds: float = 10.0, every: float = 0.02
) -> T:
    """Return the first true value that the awaited condition gives; fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        if value := await condition():
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout_seconds} s: {what}")
        await asyncio.sleep(every)
