"""Service Bus as tests have it: the real SDK and adapter before a peer that speaks its protocol in the same loop."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import AsyncConnection

from core.handlers_catalog import HEAVY_QUEUE, LIGHT_QUEUE
from messaging.postgres import PostgresTaskQueue, PostgresTaskReceiver
from messaging.relay import Relay
from messaging.servicebus import Outgoing, ServiceBus
from messaging.servicebus_letters import LetterCarrier
from messaging.servicebus_tasks import ServiceBusTaskReceiver
from messaging.settings import QueueSettings
from repositories import roles
from repositories.attempts import AttemptRepository
from repositories.database import AsyncPool, listen, transaction
from tests.peers.servicebus.model import QueueSettings as PeerQueue
from tests.peers.servicebus.peer import Peer, PeerSettings, running_peer
from tests.support.databases import Database
from tests.support.queues import QUEUE, QueueAdapter

JOBS_QUEUE = "orchestrator-jobs"
QUEUES = (LIGHT_QUEUE, HEAVY_QUEUE, JOBS_QUEUE)
_NUMBERS = itertools.count()


def peer_settings(**queue: Any) -> PeerSettings:
    """Return the settings of a peer with our queues; `queue` are settings of each."""
    return PeerSettings(tuple(PeerQueue(name, **queue) for name in QUEUES))


def settings_of(database: Database, connection_string: str, role: str = roles.ORCHESTRATOR) -> QueueSettings:
    """Return the settings of a process at a peer."""
    values = {name.lower(): value for name, value in database.environment(role).items()}
    return QueueSettings.model_validate(values | {"service_bus_connection_string": connection_string})


@dataclass
class BusSide:
    """The adapter of one process: its client, and its relays and carriers when they are started."""

    database: Database
    pool: AsyncPool
    peer: Peer
    bus: ServiceBus
    running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    relays: dict[str, Relay] = field(default_factory=dict)
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    def relay(self, queue: str = QUEUE, *, max_unclaimed: int = 1000, listens: bool = True) -> Relay:
        """Return a relay of one queue, not running."""
        dsn = self.database.conninfo(roles.ORCHESTRATOR)

        async def connect() -> AsyncConnection[Any]:
            return await listen(dsn, name="test relay")

        async def unclaimed() -> int:
            async with transaction(self.pool) as conn:
                return await AttemptRepository(conn).unclaimed_beyond(queue)

        outbox = PostgresTaskReceiver(connect, connect, queue=queue, consumer_id=f"r{next(_NUMBERS)}", lock_seconds=5)
        return Relay(outbox, self.bus, queue, unclaimed, max_unclaimed=max_unclaimed)

    def start_relay(self, queue: str = QUEUE, **options: Any) -> Relay:
        """Let a relay of a queue run; there is one a queue."""
        if queue not in self.relays:
            self.relays[queue] = relay = self.relay(queue, **options)
            self.running[queue] = asyncio.create_task(relay.run())
        return self.relays[queue]

    def receiver(self, queue: str = QUEUE, lock_seconds: float | None = None) -> ServiceBusTaskReceiver:
        """Return a receiver; how long locks last is a setting of the queue, and so for all of them."""
        if lock_seconds is not None:
            found = self.peer.broker.find(queue)
            found.settings = replace(found.settings, lock_seconds=lock_seconds)
        return ServiceBusTaskReceiver(self.bus.reader(queue))

    def carrier(self, queue: str = QUEUE) -> LetterCarrier:
        """Return what carries the dead letters of a queue."""
        return LetterCarrier(self.pool, self.bus.reader(queue, dead_letters=True), queue)

    async def close(self) -> None:
        """End everything."""
        for task in self.running.values():
            task.cancel()
        await asyncio.gather(*self.running.values(), return_exceptions=True)
        await asyncio.gather(*(relay.close() for relay in self.relays.values()))
        await self.bus.close()


async def sent(environment: Mapping[str, str], queue: str, messages: Mapping[str, Any]) -> None:
    """Send messages, JSON by their ids, as a process that has these settings does."""
    known = {name.lower(): environment[name] for name in environment if name.lower() in QueueSettings.model_fields}
    bus = ServiceBus.of(QueueSettings.model_validate(known))
    try:
        for message_id, body in messages.items():
            await bus.send(queue, [Outgoing(message_id, json.dumps(body).encode())])
    finally:
        await bus.close()


@contextlib.asynccontextmanager
async def bus_side(
    database: Database, pool: AsyncPool, peer: Peer, settings: QueueSettings | None = None
) -> AsyncIterator[BusSide]:
    """Yield one process's adapter; without settings it enters by the peer's key."""
    settings = settings or settings_of(database, peer.connection_string)
    side = BusSide(database, pool, peer, ServiceBus.of(settings))
    try:
        yield side
    finally:
        await side.close()


@contextlib.asynccontextmanager
async def servicebus_adapter(database: Database, pool: AsyncPool) -> AsyncIterator[QueueAdapter]:
    """Yield the adapter for the conformance suite: its relay begins with the first receiver."""
    async with running_peer(peer_settings()) as peer, bus_side(database, pool, peer) as side:
        carrier = side.carrier()

        def open_receiver(queue: str = QUEUE, **options: Any) -> ServiceBusTaskReceiver:
            side.start_relay(queue)
            return side.receiver(queue, **options)

        async def dead_letters() -> Sequence[tuple[str, str]]:
            await carrier.carry(2)
            async with transaction(pool) as conn:
                cursor = await conn.execute(
                    "SELECT message_id, reason FROM dagqueue.dead_letters ORDER BY dead_letter_id"
                )
                return [(row[0], row[1]) for row in await cursor.fetchall()]

        async def put_unreadable(message_id: str) -> None:
            await side.bus.send(QUEUE, [Outgoing(message_id, b'{"token": "do not tell", "surprise": 1}')])

        make: Callable[..., Any] = open_receiver
        yield QueueAdapter(PostgresTaskQueue(), make, lambda: transaction(pool), dead_letters, put_unreadable)
