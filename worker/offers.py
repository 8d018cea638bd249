"""Slots that stand open at each orchestrator, so that a task that is made there needs no way to this worker."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from core.wire import ExchangeRequest, WorkerIdentity
from worker.backoff import Backoff
from worker.client import CallbackClient, NoAnswer, Refused
from worker.intake import Intake

WAIT_SECONDS = 20.0
PAUSE_SECONDS = 0.5
"""After an answer that brought nothing too soon, as from an instance that leaves, and while all slots are promised."""


class Offerer:
    """One call that waits at each address, again and again."""

    def __init__(
        self,
        clients: Sequence[CallbackClient],
        worker: Callable[[], WorkerIdentity],
        intake: Intake,
        slots: int,
        on_tasks: Callable[[CallbackClient], None],
        logger: logging.Logger,
    ) -> None:
        self._clients = clients
        self._worker = worker
        self._intake = intake
        self._slots = slots
        self._on_tasks = on_tasks
        self._logger = logger

    async def run(self) -> None:
        """Offer for ever."""
        await asyncio.gather(*(self._wait_at(client) for client in self._clients))

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.close() for client in self._clients))

    async def _wait_at(self, client: CallbackClient) -> None:
        backoff, loop = Backoff(), asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                brought = await self._offer(client)
                backoff.reset()
            except (NoAnswer, Refused) as exc:
                delay = backoff.next_seconds()
                self._logger.warning("offer not answered", extra={"reason": str(exc), "retry_seconds": delay})
                await asyncio.sleep(delay)
                continue
            if not brought and loop.time() - began < WAIT_SECONDS / 2:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _offer(self, client: CallbackClient) -> int:
        """Keep some slots open once; return how many tasks came."""
        with self._intake.offered(self._slots) as room:
            if room.capacity.slots == 0:
                return 0
            request = ExchangeRequest(
                worker=self._worker(), free=room.capacity, claim_id=room.claim_id, wait_seconds=WAIT_SECONDS
            )
            answer = await client.exchange(request)
            if answer.grants:
                self._on_tasks(client)
            await room.start(answer.grants)
            return len(answer.grants)
