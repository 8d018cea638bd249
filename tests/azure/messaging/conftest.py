"""The adapter of Service Bus, in place of every other one."""

from collections.abc import AsyncIterator

import pytest

from repositories.database import AsyncPool
from tests.peers.servicebus.peer import Peer, running_peer
from tests.support.databases import Database
from tests.support.queues import QueueAdapter
from tests.support.service_bus import BusSide, bus_side, peer_settings, servicebus_adapter


@pytest.fixture
async def queue_adapter(database: Database, pool: AsyncPool) -> AsyncIterator[QueueAdapter]:
    """Return the adapter of Service Bus under the conformance suite."""
    async with servicebus_adapter(database, pool) as adapter:
        yield adapter
        await adapter.stack.aclose()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Return a peer with our queues."""
    async with running_peer(peer_settings()) as running:
        yield running


@pytest.fixture
async def side(database: Database, pool: AsyncPool, peer: Peer) -> AsyncIterator[BusSide]:
    """Return the adapter of one process."""
    async with bus_side(database, pool, peer) as made:
        yield made
