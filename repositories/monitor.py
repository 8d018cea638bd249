"""Custom metrics of Azure Monitor about one resource, over its REST interface.

https://learn.microsoft.com/azure/azure-monitor/metrics/metrics-store-custom-rest-api. The writer's identity is a
Monitoring Metrics Publisher of that resource. Plain REST instead of an SDK: one call, on the HTTP client that is there.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

import aiohttp

from core.errors import TransientError

RESOURCE: Final = "https://monitoring.azure.com/"
"""Whose tokens it takes; the last slash belongs to it."""
NAMESPACE: Final = "geodag"
TIMEOUT_SECONDS: Final = 20.0

Token = Callable[[], Awaitable[str]]


class MetricsUnavailable(TransientError):
    """Azure Monitor refused the metric, or did not answer."""

    code = "METRICS_UNAVAILABLE"


class MonitorMetrics:
    """The metrics of one resource."""

    def __init__(self, url: str, token: Token) -> None:
        """Take the address (region's endpoint, resource id, `/metrics`) and what returns a token for `RESOURCE`."""
        self._url = url
        self._token = token

    async def write(self, metric: str, dimension: str, values: Mapping[str, int], at: datetime) -> None:
        """Write what a metric was at a time, for each value of its one dimension.

        Raises:
            MetricsUnavailable: refused, or no answer.
        """
        series = [
            {"dimValues": [name], "min": value, "max": value, "sum": value, "count": 1}
            for name, value in values.items()
        ]
        base = {"metric": metric, "namespace": NAMESPACE, "dimNames": [dimension], "series": series}
        body = {"time": at.isoformat(), "data": {"baseData": base}}
        headers = {"Authorization": f"Bearer {await self._token()}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
                session.post(self._url, headers=headers, json=body, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise MetricsUnavailable(f"the metric is not written: HTTP {answer.status}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise MetricsUnavailable(f"the metric is not written: {type(error).__name__}") from error
