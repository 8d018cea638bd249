"""The blob adapter on Azurite with the real SDK: the contract of the port, by key and by identity over TLS."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from azure.storage.blob import ContentSettings
from pydantic import SecretStr

from cli.stack.azurite import Azurite
from core.errors import BlobDamaged, ParameterInvalid
from core.payloads import PayloadLost, PayloadRef
from core.ports import BlobRef, BlobRepository
from repositories.blobs_azure import PART_BYTES, AzureBlobRepository, connect
from repositories.managed_identity import ManagedIdentity
from repositories.payloads import PayloadStore
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


@pytest.mark.parametrize("size", [1000, PART_BYTES + 1000], ids=["one part", "parts"])
async def test_what_the_storage_itself_finds_damaged_keeps_its_last_part_and_is_a_lost_value(
    azurite: Azurite, zones: None, tmp_path: Path, size: int
) -> None:
    blobs = connect(azurite.connection_string, signature_seconds=60)
    data = b'"' + b"y" * (size - 2) + b'"'
    ref = await PayloadStore(blobs).put("payloads/j/values/", data)
    await spoil(blobs, ref)
    parts = blobs.stream(BlobRef("silver", ref.blob))
    assert [len(await anext(parts)) for _ in range(size // PART_BYTES)] == [PART_BYTES] * (size // PART_BYTES)
    with pytest.raises(BlobDamaged):
        await anext(parts)
    store = PayloadStore(blobs)
    for reading in (store.check(ref), store.stage(ref, tmp_path), store.put("payloads/j/values/", data)):
        with pytest.raises(PayloadLost) as told:
            await reading
        assert (told.value.detail.code, told.value.detail.field) == ("PAYLOAD_CORRUPT", ref.blob)
    await blobs.close()


async def spoil(blobs: AzureBlobRepository, ref: PayloadRef) -> None:
    """Give a blob the digest of other bytes, as it has when its own have changed."""
    blob = blobs.accounts["silver"].service.get_blob_client("silver", ref.blob)
    await blob.set_http_headers(ContentSettings(content_md5=bytearray(16)))
