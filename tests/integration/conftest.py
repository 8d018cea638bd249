"""The adapters of integration tests: GEODAG_QUEUE, GEODAG_BLOBS and GEODAG_IDENTITY choose those for Azure."""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from core.handlers_catalog import KNOWN_QUEUES
from core.ports import BlobRepository
from repositories.database import AsyncPool
from tests.peers.servicebus.peer import running_peer
from tests.support import adapters
from tests.support.azure_side import Azure, azure_side
from tests.support.databases import Database
from tests.support.service_bus import BusSide, bus_side
from tests.support.storage import Storage, storage_of_test

HERE = Path(__file__).parent
OF_SDK = (
    "ignore::pytest.PytestUnraisableExceptionWarning",  # sockets of connections that broke are left to the collector
    "ignore:Sending a large body directly:ResourceWarning",  # of aiohttp about one part of up to 4 MiB
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what this pass is about; let the SDK do what it does."""
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    kept = set(adapters.select(config, mine))
    items[:] = [item for item in items if item in kept or item not in set(mine)]
    if adapters.IS_SECOND_PASS:
        for item in kept:
            item.add_marker(pytest.mark.filterwarnings(*OF_SDK))


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure | None]:
    """Yield what stands in for Azure in the second pass; nothing in the first."""
    if not adapters.IS_SECOND_PASS:
        yield None
        return
    with azure_side(tmp_path_factory.mktemp("azure")) as made:
        yield made


@pytest.fixture
def blob_root(tmp_path: Path) -> Path:
    """Return the folder of the blobs, for tests that look into it: they are of the embedded pass alone."""
    return tmp_path / "blobs"


@pytest.fixture
async def storage(azure: Azure | None, tmp_path: Path) -> AsyncIterator[Storage]:
    """Yield where the blobs of this test lie."""
    async with storage_of_test(azure, tmp_path / "blobs") as made:
        yield made


@pytest.fixture
def blobs(storage: Storage) -> BlobRepository:
    """Return the blobs of this test."""
    return storage.repository()


if adapters.IS_SECOND_PASS:

    @pytest.fixture
    async def queue_side(azure: Azure, database: Database, pool: AsyncPool) -> AsyncIterator[BusSide]:
        """Yield a broker with our queues, and the relays of an orchestrator."""
        async with running_peer(azure.namespace(max_delivery_count=1000)) as peer:
            settings = azure.queue_settings(database, peer)
            async with bus_side(database, pool, peer, settings) as side:
                for queue in sorted(KNOWN_QUEUES):
                    side.start_relay(queue)
                yield side
        gc.collect()  # what a test leaves to it is that test's own

else:

    @pytest.fixture
    def queue_side(azure: None) -> None:
        """Return nothing: the queue is the database's own."""
