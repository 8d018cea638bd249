"""Creates jobs that are wished for at the same time by one transaction: who comes while one is under way waits for it.

A caller that is alone waits for nobody. A transaction that fails is done again job by job, so that an error reaches
only whoever caused it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.errors import DatabaseUnavailable
from repositories.database import AsyncPool
from services.job_keys import JobKey, jobs_of_keys
from services.jobs import Created, JobService, Order
from services.offers import Offers
from services.work import pipelined

MAX_TOGETHER = 100
Wish = tuple[Order, asyncio.Future[Created]]


@dataclass
class Submits:
    """The single submits of one instance."""

    pool: AsyncPool
    jobs: JobService
    offers: Offers
    _batches: asyncio.Lock = field(default_factory=asyncio.Lock)
    _wishes: list[Wish] = field(default_factory=list)
    _working: asyncio.Task[None] | None = None

    async def known(self, key: JobKey) -> Created | None:
        """Return the job that is there under a key; raises `Conflict` when it has another body."""
        async with pipelined(self.pool) as conn:
            found = await jobs_of_keys(conn, [key])
        return Created(found[0], existing=True) if found else None

    async def create(self, order: Order) -> Created:
        """Return the job once it is stored; raises what its transaction raises."""
        future: asyncio.Future[Created] = asyncio.get_running_loop().create_future()
        self._wishes.append((order, future))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(), name="submits")
        return await future

    async def create_many(self, orders: Sequence[Order]) -> list[Created]:
        """Return the jobs of a batch once all are stored, by a transaction of their own; raises what that raises.

        Batches follow each other: the first one is at work while the next is evaluated.
        """
        async with self._batches, self.offers.transaction(self.pool) as (conn, lent):
            return await self.jobs.create_or_find(conn, orders, lent)

    async def _work(self) -> None:
        while self._wishes:
            wishes, self._wishes = self._wishes[:MAX_TOGETHER], self._wishes[MAX_TOGETHER:]
            await self._fulfil(wishes)

    async def _fulfil(self, wishes: Sequence[Wish]) -> None:
        try:
            async with self.offers.transaction(self.pool) as (conn, lent):
                created = await self.jobs.create_or_find(conn, [order for order, _ in wishes], lent)
        except Exception as error:  # noqa: BLE001 - every caller raises it
            if len(wishes) > 1 and not isinstance(error, DatabaseUnavailable):
                for wish in wishes:
                    await self._fulfil([wish])
                return
            for _, future in wishes:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), one in zip(wishes, created, strict=True):
                if not future.done():
                    future.set_result(one)
