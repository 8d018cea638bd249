"""The blob adapter on Azurite with the real SDK: the contract of the port, by key and by identity over TLS."""

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from cli.stack.azurite import Azurite
from core.ports import BlobRepository
from repositories.blobs_azure import AzureBlobRepository, connect
from repositories.managed_identity import ManagedIdentity
from tests.peers.identity.server import IdentityPeer
from tests.support.blob_contract import BlobContract

LARGE_BYTES = (17 << 20) + 7
"""More parts than are on their way at a time."""


class TestByKey(BlobContract):
    """With the account's key, without TLS."""

    large_bytes = LARGE_BYTES

    @pytest.fixture
    async def blobs(self, azurite: Azurite, zones: None) -> AsyncIterator[BlobRepository]:
        """Yield the repository of an empty account."""
        blobs = connect(azurite.connection_string, signature_seconds=60)
        yield blobs
        await blobs.close()


class TestByIdentity(BlobContract):
    """With tokens of the managed identity, over TLS; copies by a user-delegation signature."""

    large_bytes = (4 << 20) + 7

    @pytest.fixture
    async def blobs(
        self, secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None
    ) -> AsyncIterator[BlobRepository]:
        """Yield the repository of an empty account."""
        blobs = by_identity(secure_azurite, identity)
        yield blobs
        await blobs.close()


def by_identity(azurite: Azurite, identity: IdentityPeer, signature_seconds: float = 60) -> AzureBlobRepository:
    """Return a repository that enters with an identity."""
    provider = ManagedIdentity(identity.endpoint, SecretStr(identity.header))
    return connect((azurite.url, provider), signature_seconds=signature_seconds, ca_file=azurite.certificate)
