"""Moves jobs that nothing else would ever move (`repositories.stalls`): a net below everything that is known.

Whoever holds a job's row sees every result of its attempts, or that there is none. So a task in flight whose attempt
has ended without one is lost: it is charged as WORKER_LOST and tried again as far as its losses go. The end of a child
job that was not heard is told again. One that waits for a slot which is held above it is refused that slot.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from core.errors import DatabaseUnavailable
from core.models.engine import Job
from repositories.database import AsyncPool, lost_to_a_lock, transaction
from repositories.jobs import JobRepository
from repositories.stalls import note_held_above, stalled, tell_again
from services.advance import AdvanceService
from services.evaluation import Step, ended_jobs
from services.loading_fan_outs import Scope
from services.work import pipelined

log = logging.getLogger(__name__)


class StallService:
    """Looks for them now and then: at first among all jobs, then among its instance's, as every other one does.

    `on_ended` hears of the jobs that this ends.
    """

    def __init__(
        self,
        pool: AsyncPool,
        advance: AdvanceService,
        owner_id: str,
        on_ended: Callable[[Iterable[Job]], None] = lambda _: None,
    ) -> None:
        self._pool = pool
        self._advance = advance
        self._owner_id = owner_id
        self._on_ended = on_ended
        self._among: str | None = None

    async def move_stalled(self) -> int:
        """Advance stalled jobs with all their children, one transaction each, and return how many there were.

        One that cannot be moved keeps no other.
        """
        async with transaction(self._pool) as conn:
            details = {one.job_id: one.detail for one in await stalled(conn, owner_id=self._among)}
        for job_id, detail in details.items():
            await self._move(job_id, detail)
        self._among = self._owner_id
        return len(details)

    async def _move(self, job_id: str, detail: str) -> None:
        log.error("job was stalled", extra={"job_id": job_id, "detail": detail})
        try:
            self._on_ended(ended_jobs(await self._advanced(job_id)))
        except Exception as error:
            if isinstance(error, DatabaseUnavailable) and not lost_to_a_lock(error):
                raise
            log.exception("stalled job was not moved", extra={"job_id": job_id})

    async def _advanced(self, job_id: str) -> Sequence[Step]:
        async with pipelined(self._pool) as conn:
            if not await (await JobRepository(conn).lock([job_id])).rows():
                return ()  # whoever holds it moves it, or the next look does
            await tell_again(conn, job_id)
            await note_held_above(conn, job_id)
            return await self._advance.advance(conn, [job_id], scope=Scope(whole={job_id}))
