"""The worker of the integration tests at Service Bus: its tasks come over a relay and a broker."""

import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from repositories.database import AsyncPool
from tests.integration.worker.conftest import Dispatcher, Orchestrator, environment_of, orchestrator, state_dir
from tests.peers.servicebus.peer import Peer, running_peer
from tests.support.databases import Database
from tests.support.queues import QUEUE
from tests.support.service_bus import BusSide, bus_side, peer_settings

__all__ = ["orchestrator", "state_dir"]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Let the SDK leave the sockets of connections that broke to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


class BusDispatcher(Dispatcher):
    """Puts tasks into the outbox; knows of those that the broker has."""

    def __init__(self, orchestrator: Orchestrator, conn: AsyncConnection[Any], side: BusSide) -> None:
        super().__init__(orchestrator, conn)
        self._side = side

    async def waiting(self) -> list[str]:
        """Return the tasks whose messages are in the outbox or at the broker."""
        found = set(await super().waiting())
        for one in self._side.peer.broker.find(QUEUE).messages.values():
            found.add(str(one.envelope.message_id).rpartition(".")[0])
        return sorted(found)

    async def dead(self) -> dict[str, str]:
        """Return dead letters, those that the broker has too."""
        if self._side.peer.broker.find(f"{QUEUE}/$DeadLetterQueue").messages:
            await self._side.carrier().carry(20)
        return await super().dead()


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Let each test have its own garbage."""
    yield
    gc.collect()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Return a peer with our queues."""
    async with running_peer(peer_settings(max_delivery_count=1000)) as running:
        yield running


@pytest.fixture
def worker_environment(database: Database, orchestrator: Orchestrator, tmp_path: Path, peer: Peer) -> dict[str, str]:
    """Return the settings of a worker at the peer."""
    return {
        **environment_of(database, orchestrator, tmp_path),
        "SERVICE_BUS_CONNECTION_STRING": peer.connection_string,
    }


@pytest.fixture
def environment(worker_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Put the worker's settings into this process's environment."""
    for name, value in worker_environment.items():
        monkeypatch.setenv(name, value)
    return worker_environment


@pytest.fixture
async def dispatch(
    orchestrator: Orchestrator, conn: AsyncConnection[Any], database: Database, pool: AsyncPool, peer: Peer
) -> AsyncIterator[BusDispatcher]:
    """Return what puts tasks on their way."""
    async with bus_side(database, pool, peer) as side:
        side.start_relay()
        yield BusDispatcher(orchestrator, conn, side)
