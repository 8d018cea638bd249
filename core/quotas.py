"""How much a platform may ask for at a time. Pure; the database keeps one moment per platform and its clock decides.

Calls are measured by GCRA (a leaky bucket that stores one moment): each call occupies the platform for a minute
divided by its rate, and a call is refused when that would keep it busy for longer than its burst does.
"""

import math
from typing import Final

from core.errors import Throttled
from core.models.business import Platform

QUOTA_RETRY_SECONDS: Final = 30.0
"""When to try again once too many requests are open; nobody knows when one ends."""


def seconds_per_call(platform: Platform) -> float:
    """Return for how long one call occupies a platform."""
    return 60.0 / platform.requests_per_minute


def refused_rate(platform: Platform, wait_seconds: float) -> Throttled:
    """Return the refusal of a call that comes too soon."""
    return Throttled(
        f"{platform.platform_id} may call {platform.requests_per_minute} times a minute,"
        f" {platform.request_burst} of them at once",
        value=platform.requests_per_minute,
        remediation="Slow down; wait as Retry-After says.",
        retry_after_seconds=max(1, math.ceil(wait_seconds)),
    )


def check_open(platform: Platform, open_requests: int) -> None:
    """Raise `Throttled` QUOTA_EXCEEDED when a platform has as many open requests as it may."""
    if open_requests >= platform.max_open_requests:
        raise Throttled(
            f"{platform.platform_id} has {open_requests} open requests; at most {platform.max_open_requests} are taken",
            code="QUOTA_EXCEEDED",
            value=open_requests,
            expected=platform.max_open_requests,
            remediation="Wait until some of them have ended.",
            retry_after_seconds=int(QUOTA_RETRY_SECONDS),
        )
