"""Removes stored values whose job is gone, or never came to be."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from repositories.database import AsyncPool, transaction
from repositories.jobs import JobRepository
from repositories.notifications import clock
from repositories.payloads import PayloadStore

log = logging.getLogger(__name__)

YOUNG = timedelta(days=1)
"""Inputs are stored before their job is created; a folder so young may still get its job."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class PayloadUpkeep:
    """Looks through the folders of stored values; any number of instances may do it at once."""

    pool: AsyncPool
    store: PayloadStore

    async def remove_orphans(self) -> int:
        """Remove the values of jobs that do not exist and return of how many."""
        async with transaction(self.pool) as conn:
            now = (await (await clock(conn)).rows())[0]
        owners = [job_id for job_id, modified_at in (await self.store.jobs()).items() if modified_at < now - YOUNG]
        removed = 0
        for start in range(0, len(owners), BATCH):
            batch = owners[start : start + BATCH]
            async with transaction(self.pool) as conn:
                known = await JobRepository(conn).known_among(batch)
            for job_id in batch:
                if job_id not in known:
                    await self.store.remove(job_id)
                    removed += 1
        if removed:
            log.info("stored values removed", extra={"jobs": removed})
        return removed
