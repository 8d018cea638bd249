"""Turns at jobs, within one process: what would find a job's row locked by its neighbour waits for it instead."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress

MOST_SECONDS = 0.3
"""After so long nobody waits any more: the row's lock still lets one through at a time."""


class Turns:
    """Callers that concern the same jobs, one after the other, in the order in which they came.

    Another call may be read while the one before waits for the database. Only a matter of speed: processes do not see
    each other's turns, and a turn that is passed over costs a wake-up of the job's owner.
    """

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Event] = {}
        """By job id: set when the turn of whoever came last is over."""

    @asynccontextmanager
    async def taken(self, job_ids: Collection[str]) -> AsyncIterator[None]:
        """Run the block after everybody who came before for one of these jobs, or when that takes too long.

        Whoever comes next begins before this caller goes on: its statements are with the server while this one answers.
        """
        over = asyncio.Event()
        before = {last for job_id in job_ids if (last := self._last.get(job_id)) is not None}
        self._last.update(dict.fromkeys(job_ids, over))
        try:
            if before:
                await _wait(before)
            yield
        finally:
            over.set()
            mine = [job_id for job_id in job_ids if self._last.get(job_id) is over]
            for job_id in mine:
                del self._last[job_id]
        if len(mine) < len(job_ids):
            await asyncio.sleep(0)


async def _wait(events: Iterable[asyncio.Event]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(MOST_SECONDS):
            for one in events:
                await one.wait()
