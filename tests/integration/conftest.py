"""The adapters of integration tests; GEODAG_QUEUE and GEODAG_BLOBS choose them (tests/support/adapters.py)."""

import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.stack.azurite import Azurite
from cli.stack.certificates import self_signed
from cli.stack.layout import BlobsKind, QueueKind
from core.handlers_catalog import KNOWN_QUEUES
from repositories.database import AsyncPool
from tests.peers.identity import server as identity_server
from tests.peers.identity.server import IdentityPeer
from tests.peers.servicebus.peer import running_peer
from tests.support import adapters, azurite_server
from tests.support.databases import Database
from tests.support.service_bus import BusSide, bus_side, peer_settings
from tests.support.storage import Folders, Storage, account_of

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what this pass is about; let the SDK leave the sockets of broken connections to the garbage collector."""
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    adapters.select(config, mine)
    kept = set(mine)
    items[:] = [item for item in items if item in kept or not item.path.is_relative_to(HERE)]
    if adapters.IS_SECOND_PASS:
        for item in mine:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=adapters.IS_SECOND_PASS)
def _collected() -> Iterator[None]:
    """Let each test have its own garbage."""
    yield
    gc.collect()


@contextmanager
def _azurite(folder: Path) -> Iterator[Azurite]:
    certificate, key = self_signed(folder)
    with azurite_server.running(folder / "log.txt", certificate, key, an_account_a_zone=False) as running:
        yield running


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Azurite, IdentityPeer] | None]:
    """Yield a storage account behind TLS and an identity that may enter it, where this pass has them."""
    if adapters.BLOBS is BlobsKind.FOLDERS:
        yield None
        return
    with _azurite(tmp_path_factory.mktemp("azurite")) as azurite, identity_server.running() as identity:
        yield azurite, identity


@pytest.fixture
def blob_root(tmp_path: Path) -> Path:
    """Return the folder of the blobs, for tests that look into it: they are of the embedded pass alone."""
    return tmp_path / "blobs"


@pytest.fixture
async def storage(account: tuple[Azurite, IdentityPeer] | None, tmp_path: Path) -> AsyncIterator[Storage]:
    """Yield where the blobs of this test lie."""
    if account is None:
        yield Folders(tmp_path / "blobs")
        return
    async with account_of(*account) as made:
        yield made


if adapters.QUEUE is QueueKind.POSTGRES:

    @pytest.fixture
    def queue_side() -> None:
        """Return nothing: the queue is the database's own."""

else:

    @pytest.fixture
    async def queue_side(database: Database, pool: AsyncPool) -> AsyncIterator[BusSide]:
        """Yield a broker with our queues, and the relay of an orchestrator."""
        async with running_peer(peer_settings(max_delivery_count=1000)) as peer, bus_side(database, pool, peer) as side:
            for queue in sorted(KNOWN_QUEUES):
                side.start_relay(queue)
            yield side
