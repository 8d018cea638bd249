"""What stands in for Azure: the real SDKs talk to it over real protocols. `./scripts/test_azure` runs these tests."""

from collections.abc import AsyncIterator, Iterator

import pytest

from cli.stack.azurite import Azurite
from cli.stack.certificates import self_signed
from tests.peers.identity import server as identity_server
from tests.peers.identity.server import IdentityPeer
from tests.support import azurite_server
from tests.support.azurite_server import emptied
from tests.support.order import begin_with

LONGEST = ("upgrade/test_upgrade", "test_outages", "test_long_task", "test_pgbouncer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    begin_with(items, [f"tests/azure/{name}.py" for name in LONGEST])


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Yield a storage account with a key and without TLS, as `geodag up --blobs azurite` has it."""
    with azurite_server.running(tmp_path_factory.mktemp("azurite") / "log.txt") as running:
        yield running


@pytest.fixture(scope="session")
def secure_azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Yield a storage account behind TLS that takes tokens of an identity."""
    folder = tmp_path_factory.mktemp("secure-azurite")
    certificate, key = self_signed(folder)
    with azurite_server.running(folder / "log.txt", certificate, key) as running:
        yield running


@pytest.fixture
def identity() -> Iterator[IdentityPeer]:
    """Yield an identity endpoint of this test."""
    with identity_server.running() as peer:
        yield peer


@pytest.fixture
async def zones(azurite: Azurite) -> AsyncIterator[None]:
    """Make the containers; afterwards they hold nothing."""
    async with emptied(azurite):
        yield


@pytest.fixture
async def secure_zones(secure_azurite: Azurite) -> AsyncIterator[None]:
    """Make the containers behind TLS; afterwards they hold nothing."""
    async with emptied(secure_azurite):
        yield
