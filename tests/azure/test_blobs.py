"""The blob adapter on Azurite with the real SDK: the contract of the port, by key and by identity over TLS."""

import time
from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from cli.stack.azurite import Azurite
from core.errors import ParameterInvalid
from core.ports import BlobRef, BlobRepository
from repositories.blobs_azure import AzureBlobRepository, connect
from repositories.managed_identity import ManagedIdentity
from tests.peers.identity.server import IdentityPeer
from tests.support.azurite_server import of_zones
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
    """With tokens of the managed identity over TLS, in an account a zone; copies by user-delegation signatures."""

    large_bytes = (4 << 20) + 7

    @pytest.fixture
    async def blobs(
        self, secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None
    ) -> AsyncIterator[BlobRepository]:
        """Yield the repository of an empty account."""
        blobs = by_identity(secure_azurite, identity)
        yield blobs
        await blobs.close()


def by_identity(
    azurite: Azurite,
    identity: IdentityPeer,
    signature_seconds: float = 60,
    now: Callable[[], float] = time.time,
) -> AzureBlobRepository:
    """Return a repository that enters with an identity; each zone has an account of its own."""
    provider = ManagedIdentity(identity.endpoint, SecretStr(identity.header), now=now)
    urls = {zone: account.url for zone, account in of_zones(azurite).items()}
    return connect((urls, provider), signature_seconds=signature_seconds, ca_file=azurite.certificate)


async def test_an_address_in_our_own_accounts_is_a_blob_and_no_other(
    secure_azurite: Azurite, identity: IdentityPeer
) -> None:
    blobs = by_identity(secure_azurite, identity)
    silver, bronze = (blobs.accounts[zone].url for zone in ("silver", "bronze"))
    assert silver != bronze
    assert blobs.locate(f"{silver}/silver/a%20b/%C3%BC.tif") == BlobRef("silver", "a b/ü.tif")
    for path in (
        f"{bronze}/silver/a",
        f"{silver}/silver/a?sig=1",
        f"{silver}/silver/../bronze/a",
        f"{silver}x/silver/a",
    ):
        with pytest.raises(ParameterInvalid) as refused:
            blobs.locate(path)
        assert "sig" not in str(refused.value)
    await blobs.close()
