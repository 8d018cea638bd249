"""Callers that wait for the end of a job, told by this instance's own transactions or by `dag_ended`.

What this instance wrote itself is not read again: a job that it created is known to run until somebody's end is heard
of, and one that it ended is handed over as it was written. What has to be read is read for all callers at once.
"""

import asyncio
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence

from core.errors import DatabaseUnavailable, NotFound
from core.models.engine import Job
from core.statuses import JOB_FINAL
from repositories.database import AsyncPool
from repositories.jobs import JobRepository
from services.work import pipelined

log = logging.getLogger(__name__)

SAFETY_SECONDS = 2.0
"""After this time a waiter looks by itself, whatever was notified."""
REMEMBERED = 2000


class JobWaiters:
    """Who waits for which job; `hears` says whether the ends that others write are heard of."""

    def __init__(self, pool: AsyncPool, hears: Callable[[], bool] = lambda: False) -> None:
        self._pool = pool
        self._hears = hears
        self._waiting: defaultdict[str, set[asyncio.Future[Job | None]]] = defaultdict(set)
        self._running: OrderedDict[str, Job] = OrderedDict()
        self._ends = 0
        self._asked: dict[str, asyncio.Future[Job | None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._check_again = False
        self._closed = False

    @property
    def ends(self) -> int:
        """Return a number that grows with every end that is heard of."""
        return self._ends

    def created(self, jobs: Iterable[Job], ends: int) -> None:
        """Remember jobs that this instance created, unless one may have ended since it read `ends` before."""
        if ends != self._ends or not self._hears():
            return
        for job in jobs:
            self._running[job.job_id] = job
        while len(self._running) > REMEMBERED:
            self._running.popitem(last=False)

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job:
        """Return the job as soon as it is final, or as it is at the time-out.

        Raises:
            NotFound: There is no such job.
        """
        ended: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        self._waiting[job_id].add(ended)
        try:
            deadline = time.monotonic() + timeout_seconds
            known = self._running.get(job_id) if timeout_seconds > 0 else None
            job = known or await self._read(job_id)
            while job.status not in JOB_FINAL and not self._closed and (left := deadline - time.monotonic()) > 0:
                await asyncio.wait([ended], timeout=min(left, SAFETY_SECONDS))
                job = (ended.result() if ended.done() else None) or await self._read(job_id)
            return job
        finally:
            self._waiting[job_id].discard(ended)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    def ended(self, jobs: Iterable[Job]) -> None:
        """Hand jobs that this instance ended to those who wait for them."""
        for job in jobs:
            self._ends += 1
            self._running.pop(job.job_id, None)
            self._tell(job.job_id, job)

    def check(self) -> None:
        """Look soon which of the awaited jobs have ended; calls while a look is under way make one more."""
        self._ends += 1
        self._running.clear()
        self._check_again = bool(self._waiting)
        if self._check_again and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._check(), name="job waiters")

    def close(self) -> None:
        """Let everybody go with what is known: this instance is about to end."""
        self._closed = True
        for job_id in list(self._waiting):
            self._tell(job_id, None)

    def _tell(self, job_id: str, job: Job | None) -> None:
        for future in self._waiting.get(job_id, ()):
            if not future.done():
                future.set_result(job)

    async def _check(self) -> None:
        while self._check_again:
            self._check_again = False
            open_jobs = [job_id for job_id, futures in self._waiting.items() if not all(f.done() for f in futures)]
            if open_jobs:
                await self._tell_ended(open_jobs)

    async def _tell_ended(self, job_ids: Sequence[str]) -> None:
        try:
            async with pipelined(self._pool) as conn:
                pending = await JobRepository(conn).final_among(job_ids)
            for job in await pending.rows():
                self._tell(job.job_id, job)
        except DatabaseUnavailable:
            log.warning("ended jobs not looked up; their waiters look again by themselves")

    async def _read(self, job_id: str) -> Job:
        """Return a job as it is now: read after this call began, together with what others ask for."""
        if job_id not in self._asked:
            self._asked[job_id] = asyncio.get_running_loop().create_future()
        asked = self._asked[job_id]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_asked(), name="job reader")
        job = await asyncio.shield(asked)
        if job is None:
            raise NotFound(f"there is no job {job_id}", field="job_id", value=job_id)
        return job

    async def _read_asked(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                async with pipelined(self._pool) as conn:
                    pending = await JobRepository(conn).get_many(asked)
                found = {job.job_id: job for job in await pending.rows()}
            except Exception as error:  # noqa: BLE001 - every caller raises it
                for future in asked.values():
                    future.set_exception(error)
                    future.exception()
            else:
                for job_id, future in asked.items():
                    future.set_result(found.get(job_id))
