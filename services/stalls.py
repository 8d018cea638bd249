"""Moves jobs that nothing else would ever move (`repositories.stalls`): a net below everything that is known.

Whoever holds a job's row sees every result of its attempts, or that there is none. So a task in flight whose attempt
has ended without one is lost: it is charged as WORKER_LOST and tried again as far as its losses go.
"""

import logging
from collections.abc import Callable, Iterable

from core.models.engine import Job
from repositories.database import AsyncPool, transaction
from repositories.stalls import stalled
from services.advance import AdvanceService
from services.evaluation import ended_jobs
from services.loading_fan_outs import Scope
from services.work import pipelined

log = logging.getLogger(__name__)


class StallService:
    """Looks for them now and then; `on_ended` hears of the jobs that this ends."""

    def __init__(
        self, pool: AsyncPool, advance: AdvanceService, on_ended: Callable[[Iterable[Job]], None] = lambda _: None
    ) -> None:
        self._pool = pool
        self._advance = advance
        self._on_ended = on_ended

    async def move_stalled(self) -> int:
        """Advance stalled jobs with all their children, one transaction each, and return how many there were."""
        async with transaction(self._pool) as conn:
            details = {one.job_id: one.detail for one in await stalled(conn)}
        for job_id, detail in details.items():
            log.error("job was stalled", extra={"job_id": job_id, "detail": detail})
            async with pipelined(self._pool) as conn:
                steps = await self._advance.advance(conn, [job_id], scope=Scope(whole={job_id}))
            self._on_ended(ended_jobs(steps))
        return len(details)
