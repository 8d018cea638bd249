"""What an orchestrator does at Service Bus: passes tasks on, takes submits, fetches dead letters."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from psycopg import AsyncConnection

from core.handlers_catalog import KNOWN_QUEUES
from edge.identity import Identity
from messaging.postgres import PostgresTaskReceiver
from messaging.relay import Relay
from messaging.servicebus import ServiceBus
from messaging.servicebus_letters import LetterCarrier
from orchestrator.settings import OrchestratorSettings
from orchestrator.submissions import Submissions
from repositories.attempts import AttemptRepository
from repositories.database import AsyncPool, listen, transaction
from repositories.engine_pool import queue_connection
from services.submit import SubmitService


class Bus:
    """All of it, for one process."""

    def __init__(
        self,
        bus: ServiceBus,
        relays: Sequence[Relay],
        carriers: Sequence[LetterCarrier],
        submissions: Submissions,
    ) -> None:
        self._bus = bus
        self._relays = relays
        self._carriers = carriers
        self._submissions = submissions
        self._taking: list[asyncio.Task[None]] = []
        self._passing: list[asyncio.Task[None]] = []

    @classmethod
    def of(
        cls,
        settings: OrchestratorSettings,
        owner_id: str,
        pool: AsyncPool,
        identity: Identity,
        submits: SubmitService,
    ) -> "Bus":
        """Return everything wired together, not yet connected."""
        bus = ServiceBus.of(settings)
        relays = [_relay(settings, owner_id, pool, bus, queue) for queue in sorted(KNOWN_QUEUES)]
        carriers = [LetterCarrier(pool, bus.reader(q, dead_letters=True), q) for q in sorted(KNOWN_QUEUES)]
        return cls(bus, relays, carriers, Submissions(bus.reader(settings.service_bus_jobs_queue), identity, submits))

    @property
    def trouble(self) -> str | None:
        """Return why tasks cannot be passed on at present."""
        return next((one.trouble for one in self._relays if one.trouble is not None), None)

    def start(self) -> None:
        """Begin with everything in the background."""
        self._passing = [asyncio.create_task(one.run(), name="relay") for one in self._relays]
        self._taking = [asyncio.create_task(one.run(), name="letters") for one in self._carriers]
        self._taking.append(asyncio.create_task(self._submissions.run(), name="submissions"))

    async def stop_taking(self) -> None:
        """Take nothing in any more; others do. Tasks are still passed on."""
        await _end(self._taking)
        await asyncio.gather(self._submissions.close(), *(one.close() for one in self._carriers))

    async def close(self) -> None:
        """End everything; what was not passed on is left to the other instances."""
        await self.stop_taking()
        await _end(self._passing)
        await asyncio.gather(*(one.close() for one in self._relays))
        await self._bus.close()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _relay(settings: OrchestratorSettings, owner_id: str, pool: AsyncPool, bus: ServiceBus, queue: str) -> Relay:
    name = f"relay {owner_id}"

    async def connect() -> AsyncConnection[Any]:
        return await queue_connection(settings.conninfo, name=name, pooled=settings.is_pooled)

    async def connect_to_listen() -> AsyncConnection[Any]:
        return await listen(settings.listen_conninfo, name=name)

    outbox = PostgresTaskReceiver(connect, connect_to_listen, queue=queue, consumer_id=f"relay-{os.urandom(8).hex()}")
    return Relay(outbox, bus, queue, _unclaimed(pool, queue), max_unclaimed=settings.service_bus_max_unclaimed)


def _unclaimed(pool: AsyncPool, queue: str) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        async with transaction(pool) as conn:
            return await AttemptRepository(conn).unclaimed_beyond(queue)

    return count
