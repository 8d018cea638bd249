"""What stands in for Azure: the real SDKs talk to it over real protocols. `./scripts/test_azure` runs these tests."""

from collections.abc import Iterator

import pytest

from cli.stack.azurite import Azurite
from tests.support import azurite_server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Yield a storage account with a key and without TLS, as `geodag up --blobs azurite` has it."""
    with azurite_server.running(tmp_path_factory.mktemp("azurite") / "log.txt") as running:
        yield running
