"""Callers that wait for the end of a job, woken by this instance's own transactions or by `dag_ended`."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from core.errors import DatabaseUnavailable, NotFound
from core.models.engine import Job
from core.statuses import JOB_FINAL
from repositories.database import AsyncPool, transaction
from repositories.jobs import JobRepository

log = logging.getLogger(__name__)

SAFETY_SECONDS = 2.0
"""After this time a waiter looks by itself, whatever was notified."""


class JobWaiters:
    """Who waits for which job; one query serves all that wait."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._checking: asyncio.Task[None] | None = None
        self._check_again = False
        self._closed = False

    async def wait_for_end(self, job_id: str, timeout_seconds: float) -> Job:
        """Return the job as soon as it is final, or as it is at the time-out.

        Raises:
            NotFound: There is no such job.
        """
        ended = asyncio.get_running_loop().create_future()
        self._waiting[job_id].add(ended)
        try:
            job, deadline = await self._read(job_id), time.monotonic() + timeout_seconds
            while job.status not in JOB_FINAL and not self._closed and (left := deadline - time.monotonic()) > 0:
                await asyncio.wait([ended], timeout=min(left, SAFETY_SECONDS))
                job = await self._read(job_id)
            return job
        finally:
            self._waiting[job_id].discard(ended)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    def ended(self, job_ids: Iterable[str]) -> None:
        """Wake those who wait for these jobs."""
        for job_id in job_ids:
            for future in self._waiting.get(job_id, ()):
                if not future.done():
                    future.set_result(None)

    def check(self) -> None:
        """Look soon which of the awaited jobs have ended; calls while a look is under way make one more."""
        self._check_again = bool(self._waiting)
        if self._check_again and (self._checking is None or self._checking.done()):
            self._checking = asyncio.create_task(self._check(), name="job waiters")

    def close(self) -> None:
        """Let everybody go with what is known: this instance is about to end."""
        self._closed = True
        self.ended(list(self._waiting))

    async def _check(self) -> None:
        while self._check_again:
            self._check_again = False
            open_jobs = [job_id for job_id, futures in self._waiting.items() if not all(f.done() for f in futures)]
            if open_jobs:
                await self._wake_ended(open_jobs)

    async def _wake_ended(self, job_ids: Sequence[str]) -> None:
        try:
            async with transaction(self._pool) as conn:
                self.ended(await JobRepository(conn).ended_among(job_ids))
        except DatabaseUnavailable:
            log.warning("ended jobs not looked up; their waiters look again by themselves")

    async def _read(self, job_id: str) -> Job:
        async with transaction(self._pool) as conn:
            job = await JobRepository(conn).get(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}", field="job_id", value=job_id)
        return job
