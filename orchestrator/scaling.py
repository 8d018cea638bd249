"""The number that workers scale on: asked for by Container Apps, written to Azure Monitor for an App Service."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from core.handlers_catalog import KNOWN_QUEUES
from orchestrator.settings import OrchestratorSettings
from repositories.attempts import AttemptRepository
from repositories.database import AsyncPool, transaction
from repositories.monitor import RESOURCE, MonitorMetrics

log = logging.getLogger(__name__)

LONG_WAIT_SECONDS = 900.0
"""Somebody asks for the number several times a minute, so the message lasts as long as the wait (infra/ alerts)."""
WRITE_SECONDS: Final = 60.0
"""The grain of the metric."""
METRIC: Final = "tasks"
DIMENSION: Final = "queue"


@dataclass(frozen=True, slots=True)
class Work:
    """The tasks of one queue. What a pause holds, parked or still in the queue, is work for no worker."""

    unclaimed: int
    leased: int
    held: int
    oldest_unclaimed_seconds: float

    @property
    def tasks(self) -> int:
        """Return the number: it stays above 0 while a lease lives, though no message is left."""
        return self.unclaimed + self.leased


async def work_of(pool: AsyncPool, queue: str) -> Work:
    """Return what there is to do in a queue; long waits are said in the log."""
    async with transaction(pool) as conn:
        counts = await AttemptRepository(conn).counts(queue)
    (unclaimed, waited), (leased, _), (held, _) = (counts.get(kind, (0, 0.0)) for kind in ("queued", "leased", "held"))
    if waited > LONG_WAIT_SECONDS:
        log.warning("tasks wait for workers", extra={"queue": queue, "unclaimed": unclaimed, "seconds": round(waited)})
    return Work(unclaimed, leased, held, round(max(waited, 0.0), 3))


class ScaleMetric:
    """The numbers of all queues as a custom metric; every instance writes the same, so a rule takes the greatest."""

    def __init__(self, pool: AsyncPool, metrics: MonitorMetrics, now: Callable[[], datetime]) -> None:
        self._pool = pool
        self._metrics = metrics
        self._now = now

    @classmethod
    def of(cls, settings: OrchestratorSettings, pool: AsyncPool) -> "ScaleMetric | None":
        """Return what the settings ask for, if anything."""
        identity, url = settings.identity, settings.scale_metrics_url
        if identity is None or url is None:
            return None

        async def token() -> str:
            return (await asyncio.to_thread(identity.token, RESOURCE)).text

        return cls(pool, MonitorMetrics(url, token), lambda: datetime.now(UTC))

    async def write_scale(self) -> None:
        """Write the numbers of now.

        Raises:
            MetricsUnavailable: Nobody took them.
            NoToken: The identity gives none.
        """
        values = {queue: (await work_of(self._pool, queue)).tasks for queue in sorted(KNOWN_QUEUES)}
        await self._metrics.write(METRIC, DIMENSION, values, self._now())
