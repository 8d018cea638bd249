"""The background loop: advances jobs whose timer is due or whose inbox has results, and takes over ownerless jobs.

It is woken by notifications and by timers; `ORCHESTRATOR_POLL_INTERVAL` is the safety net. Every look at the database
is a query, so nothing is remembered that a restart of either side could make wrong.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from core.errors import DatabaseUnavailable
from core.models.engine import Job
from orchestrator.heartbeat import Pulse
from repositories.database import AsyncPool, lost_to_a_lock
from repositories.jobs import DueJob, JobRepository
from services.advance import AdvanceService, Ownership, with_all_children
from services.evaluation import Step, ended_jobs
from services.loading import MAX_RESULTS
from services.loading_fan_outs import Scope
from services.recover import OutageGuard, RecoverService
from services.work import Unwritable, pipelined

log = logging.getLogger(__name__)

BATCH = 50
"""Jobs in one transaction."""
DUE_LIMIT = 1000
DEFER_SECONDS = 30.0
"""How long a job whose write fails by itself is left alone."""
HELD_SECONDS = 1.0
"""How long a job is left alone of which somebody holds rows for longer than a statement may wait."""
BACKOFF_SECONDS = (0.1, 0.25, 0.5, 1.0)
DEAF_POLL_SECONDS = 0.2
MIN_WAIT_SECONDS = 0.02


@dataclass(slots=True)
class Look:
    """What one look at the database found."""

    due: Sequence[DueJob]
    seconds_to_next_timer: float | None
    full: bool = False


@dataclass
class Loop:
    """One instance's loop; `on_ended` hears of the jobs that it ended."""

    pool: AsyncPool
    advance: AdvanceService
    recover: RecoverService
    guard: OutageGuard
    pulse: Pulse
    owner_id: str
    poll_interval: float
    hears: Callable[[], bool]
    on_ended: Callable[[Iterable[Job]], None]
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _claim_due: bool = True
    _claimed_at: float = 0.0
    _stopping: bool = False
    _failures: int = 0
    _more: bool = False
    """Whether a look or a transaction took as much as it may, so that more is likely to be due."""
    _deferred: dict[str, float] = field(default_factory=dict)

    def wake(self, *, unowned: bool = False) -> None:
        """Look at once; with `unowned`, also for jobs that nobody owns."""
        self._claim_due = self._claim_due or unowned
        self._woken.set()

    def stop(self) -> None:
        """End after the tick that is under way."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Tick until stopped; outlives every error, and counts a step only when it was finished."""
        while not self._stopping:
            self._woken.clear()
            pause = await self._step_safely()
            await self._sleep(pause)

    async def _step_safely(self) -> float:
        try:
            pause = await self.step()
        except DatabaseUnavailable as error:
            log.warning("loop waits for the database", extra={"reason": str(error)})
            self.pulse.step()
            return self._backoff()
        except Exception:
            log.exception("tick failed")
            return self._backoff()
        self._failures = 0
        self.pulse.step()
        return pause

    async def step(self) -> float:
        """Do everything that is due now and return for how long there is nothing to do."""
        await self._take_over()
        self._deferred = {job_id: until for job_id, until in self._deferred.items() if until > time.monotonic()}
        look = await self._look()
        ready = [job for job in look.due if job.job_id not in self._deferred]
        advanced, self._more = 0, look.full
        for start in range(0, len(ready), BATCH):
            advanced += await self._advance(ready[start : start + BATCH])
        if self._more and advanced:
            return 0.0
        return self._pause(look.seconds_to_next_timer)

    async def _take_over(self) -> None:
        """Claim ownerless jobs when told, and at least once in a poll interval; those of the dead when allowed."""
        if not self._claim_due and time.monotonic() - self._claimed_at < self.poll_interval:
            return
        if not self.guard.registered:
            return
        self._claim_due = False
        while (claimed := await self.recover.claim_jobs(may_reclaim=self._may_reclaim())) > 0:
            log.info("jobs taken over", extra={"jobs": claimed, "owner_id": self.owner_id})
        self._claimed_at = time.monotonic()

    def _may_reclaim(self) -> bool:
        return self.guard.may_reclaim(time.monotonic())

    async def _look(self) -> Look:
        async with pipelined(self.pool) as conn:
            jobs = JobRepository(conn)
            found = [await jobs.due_results(self.owner_id, DUE_LIMIT), await jobs.due_timers(self.owner_id, DUE_LIMIT)]
            found.append(await jobs.due_grants(self.owner_id, DUE_LIMIT))
            may_expire = self.guard.may_expire_leases(time.monotonic())
            leases = await jobs.due_leases(self.owner_id, DUE_LIMIT) if may_expire else None
            timer = await jobs.seconds_to_next_timer(self.owner_id, list(self._deferred))
            groups = [await pending.rows() for pending in found]
            expired = [] if leases is None else await leases.rows()
            next_timer = (await timer.rows())[0]
        if expired:
            log.warning("leases expired", extra={"jobs": [job.job_id for job in expired][:10]})
        groups.append(expired)
        due = {job.job_id: job for group in groups for job in group}
        return Look(list(due.values()), next_timer, any(len(group) == DUE_LIMIT for group in groups))

    async def _advance(self, due: Sequence[DueJob], unwritable: Exception | None = None) -> int:
        """Advance a batch in one transaction; when that fails, each job alone, so one blocks no other.

        What cannot be written of one alone counts as its failed evaluation: a job that decides nothing else ends too.
        """
        try:
            return await self._advance_together(due, unwritable)
        except Exception as error:
            held = isinstance(error, DatabaseUnavailable)
            if isinstance(error, DatabaseUnavailable) and not lost_to_a_lock(error):
                raise
            if len(due) == 1:
                log.warning("job left alone for a while", extra={"job_id": due[0].job_id}, exc_info=not held)
                again = isinstance(error, Unwritable) and unwritable is None
                counted = await self._advance(due, error) if again else 0
                self._deferred[due[0].job_id] = time.monotonic() + (HELD_SECONDS if held else DEFER_SECONDS)
                return counted
            log.warning("batch not written, going one by one", extra={"jobs": len(due), "error": type(error).__name__})
        finally:
            self.pulse.step()
        return sum([await self._advance([job]) for job in due])

    async def _advance_together(self, due: Sequence[DueJob], unwritable: Exception | None) -> int:
        ownership = Ownership.of(self.owner_id, due)

        async def attempt(scope: Scope) -> Sequence[Step]:
            async with pipelined(self.pool) as conn:
                return await self.advance.advance(conn, list(ownership.epochs), ownership, scope, unwritable)

        steps = await with_all_children(attempt)
        self.on_ended(ended_jobs(steps))
        for job in due:
            self._deferred.pop(job.job_id, None)
        self._more = self._more or sum(len(step.state.results) for step in steps) >= MAX_RESULTS
        return sum(1 for step in steps if step.job is not None)

    def _pause(self, seconds_to_next_timer: float | None) -> float:
        """Return how long to wait: for the next timer, or until a job is not left alone any more."""
        longest = self.poll_interval if self.hears() else min(self.poll_interval, DEAF_POLL_SECONDS)
        ends = [until - time.monotonic() for until in self._deferred.values()]
        timers = ends if seconds_to_next_timer is None else [*ends, seconds_to_next_timer]
        return max(min([*timers, longest]), MIN_WAIT_SECONDS)

    def _backoff(self) -> float:
        self._failures += 1
        return BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS)) - 1]

    async def _sleep(self, seconds: float) -> None:
        if self._stopping or seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
