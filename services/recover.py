"""Who owns which job, and when silence counts as death (architecture §3.3 and §3.7)."""

import logging
import threading
from dataclasses import dataclass, field

from repositories.database import AsyncPool
from repositories.events import EventRepository
from repositories.jobs import JobRepository
from repositories.notifications import UNOWNED_CHANNEL, notify
from repositories.orchestrators import OrchestratorRepository
from repositories.workers import WorkerRepository
from services.work import pipelined

log = logging.getLogger(__name__)

BATCH = 200
FORGET_SECONDS = 86400.0
SILENT_SECONDS = 5.0
"""How long a transaction may wait for its client, as `idle_in_transaction_session_timeout` has it outside pipelines."""
MONTHS_AHEAD = 2


@dataclass(slots=True)
class OutageGuard:
    """Time in which nobody could renew does not count.

    After its own start, and after a gap in its own heartbeats above half the threshold, an instance expires no lease
    for one full lease period and reclaims no job for one threshold. Times are seconds of a monotonic clock.
    """

    started_at: float
    threshold_seconds: float
    lease_seconds: float
    _resumed_at: float = field(init=False)
    _last_beat_at: float | None = field(init=False, default=None)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._resumed_at = self.started_at

    @property
    def registered(self) -> bool:
        """Return whether this instance ever told the others that it lives."""
        return self._last_beat_at is not None

    def beat(self, now: float) -> None:
        """Note a heartbeat that the database has; a gap before it starts the grace anew."""
        with self._lock:
            if self._last_beat_at is None or now - self._last_beat_at > self.threshold_seconds / 2:
                self._resumed_at = now
            self._last_beat_at = now

    def may_expire_leases(self, now: float) -> bool:
        """Return whether workers could renew long enough for a lease that ran out to mean something."""
        return self._settled(now, self.lease_seconds)

    def may_reclaim(self, now: float) -> bool:
        """Return whether other owners had long enough to show a sign of life."""
        return self._settled(now, self.threshold_seconds)

    def _settled(self, now: float, grace_seconds: float) -> bool:
        with self._lock:
            if self._last_beat_at is None or now - self._last_beat_at > self.threshold_seconds / 2:
                return False
            return now - self._resumed_at >= grace_seconds


class RecoverService:
    """Takes over jobs that nobody owns or whose owner is dead, and gives up one's own."""

    def __init__(
        self, pool: AsyncPool, owner_id: str, threshold_seconds: float, silent_seconds: float = SILENT_SECONDS
    ) -> None:
        self._pool = pool
        self._owner_id = owner_id
        self._threshold_seconds = threshold_seconds
        self._silent_seconds = silent_seconds

    async def claim_jobs(self, *, may_reclaim: bool) -> int:
        """Take over one batch and return how many jobs it had; never waits for a locked job.

        A process that was stopped inside a transaction loses it first: its locks would keep its jobs from everybody.
        """
        async with pipelined(self._pool) as conn:
            jobs, orchestrators = JobRepository(conn), OrchestratorRepository(conn)
            if (ended := await orchestrators.end_silent_transactions(self._silent_seconds)) > 0:
                log.warning("transactions of silent clients ended", extra={"sessions": ended})
            claimed = await jobs.claim_unowned(self._owner_id, BATCH)
            if not may_reclaim:
                return claimed
            dead = await orchestrators.dead(self._owner_id, self._threshold_seconds)
            if dead:
                claimed += await jobs.reclaim(self._owner_id, dead, BATCH)
            return claimed + await jobs.adopt(self._owner_id, dead, BATCH)

    async def release_jobs(self) -> int:
        """Give up every job and wake whoever takes them; return how many there were."""
        async with pipelined(self._pool) as conn:
            await OrchestratorRepository(conn).set_state(self._owner_id, "draining")
            released = await JobRepository(conn).release(self._owner_id)
            if released:
                await notify(conn, [UNOWNED_CHANNEL])
            return released

    async def stop(self) -> None:
        """Say goodbye, so that nobody has to wait for this instance's silence."""
        async with pipelined(self._pool) as conn:
            await OrchestratorRepository(conn).set_state(self._owner_id, "stopped")

    async def forget_dead(self) -> None:
        """Remove boots, of workers too, that have been silent for a day and own nothing."""
        async with pipelined(self._pool) as conn:
            await OrchestratorRepository(conn).forget_dead(FORGET_SECONDS)
            await WorkerRepository(conn).forget_dead(FORGET_SECONDS)

    async def prepare_months(self) -> None:
        """See to it that the events of the coming months have partitions."""
        async with pipelined(self._pool) as conn:
            await EventRepository(conn).prepare_months(MONTHS_AHEAD)
