"""Asks whether a platform may call now."""

from typing import Any

from psycopg import AsyncConnection

from core import quotas
from core.models.business import Platform
from repositories.platforms import PlatformRepository


async def take_call(conn: AsyncConnection[Any], platform: Platform) -> None:
    """Count a call of a platform.

    Raises:
        Throttled: it calls too often; nothing was counted.
    """
    wait_seconds = await PlatformRepository(conn).take_call(platform)
    if wait_seconds is not None:
        raise quotas.refused_rate(platform, wait_seconds)


async def check_open(conn: AsyncConnection[Any], platform: Platform) -> None:
    """Check that a platform may open another request; those that come at the same moment do not see each other.

    Raises:
        Throttled: QUOTA_EXCEEDED.
    """
    quotas.check_open(platform, await PlatformRepository(conn).open_requests(platform.platform_id))
