"""The adapter of Service Bus, in place of every other one."""

import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from repositories.database import AsyncPool
from tests.peers.servicebus.peer import Peer, running_peer
from tests.support.databases import Database
from tests.support.queues import QueueAdapter
from tests.support.service_bus import BusSide, bus_side, peer_settings, servicebus_adapter

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Let the SDK leave the sockets of connections that broke to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Let each test have its own garbage."""
    yield
    gc.collect()


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
