"""Upload addresses: for one blob, write-only, for a quarter of an hour."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.errors import CallerError, Conflict, Forbidden, ParameterInvalid, Unauthenticated
from core.ports import BlobRef
from services.uploads import UploadGrant, sign, verify
from tests.support.business import FOREIGNER, READER, SUBMITTER, UPLOAD_KEY, Business

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GRANT = UploadGrant(BlobRef("bronze", "uploads/ddh/ä/dem.tif"), int(NOW.timestamp()) + 900, 10)


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def wish(**changes: Any) -> dict[str, Any]:
    return {"platform_id": "ddh", "filename": "dem.tif"} | changes


async def test_a_granted_file_arrives_and_can_be_submitted(business: Business) -> None:
    address = await business.uploads.grant(SUBMITTER, wish(size_bytes=6), NOW)
    assert address.upload_url.startswith("https://orchestrator.test/uploads/")
    assert address.blob_name.startswith("uploads/ddh/")
    assert address.blob_name.endswith("/dem.tif")
    token = address.upload_url.rpartition("/")[2]
    info = await business.uploads.receive(token, chunks(b"abc", b"def"), NOW + timedelta(minutes=14))
    assert info.size_bytes == 6
    source = {"container_name": address.container_name, "blob_name": address.blob_name}
    assert (await business.submit(source=source)).version_ordinal == 0


async def test_two_grants_never_share_a_blob(business: Business) -> None:
    names = {(await business.uploads.grant(SUBMITTER, wish(), NOW)).blob_name for _ in range(3)}
    assert len(names) == 3


async def test_an_address_works_once(business: Business) -> None:
    token = sign(UPLOAD_KEY, GRANT)
    await business.uploads.receive(token, chunks(b"first"), NOW)
    with pytest.raises(Conflict) as refused:
        await business.uploads.receive(token, chunks(b"other"), NOW)
    assert refused.value.detail.code == "BLOB_EXISTS"
    assert business.storage.read(str(GRANT.ref)) == b"first"


async def test_a_file_that_is_longer_than_granted_leaves_nothing(business: Business) -> None:
    with pytest.raises(ParameterInvalid):
        await business.uploads.receive(sign(UPLOAD_KEY, GRANT), chunks(b"12345", b"678901"), NOW)
    assert business.storage.read(str(GRANT.ref)) is None


async def test_no_byte_is_taken_of_a_file_that_is_announced_as_longer_than_granted(business: Business) -> None:
    async def untouched() -> AsyncIterator[bytes]:
        pytest.fail("a byte was asked for")
        yield b""

    with pytest.raises(ParameterInvalid, match="11 bytes; expected at most 10") as refused:
        await business.uploads.receive(sign(UPLOAD_KEY, GRANT), untouched(), NOW, 11)
    assert (refused.value.detail.field, refused.value.detail.value) == ("size", 11)
    assert business.storage.read(str(GRANT.ref)) is None
    await business.uploads.receive(sign(UPLOAD_KEY, GRANT), chunks(b"1234567890"), NOW, 10)


async def test_an_address_expires(business: Business) -> None:
    with pytest.raises(Unauthenticated, match="expired"):
        await business.uploads.receive(sign(UPLOAD_KEY, GRANT), chunks(b"x"), NOW + timedelta(minutes=15))


def test_a_token_says_exactly_what_was_granted() -> None:
    assert verify(UPLOAD_KEY, sign(UPLOAD_KEY, GRANT), NOW) == GRANT


@pytest.mark.parametrize("position", range(len(sign(UPLOAD_KEY, GRANT))))
def test_a_token_changed_anywhere_is_refused(position: int) -> None:
    token = sign(UPLOAD_KEY, GRANT)
    changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
    with pytest.raises(Unauthenticated):
        verify(UPLOAD_KEY, changed, NOW)


@pytest.mark.parametrize("token", ["", ".", "a.b", "ä.ö", "x" * 5000, sign(b"other" * 8, GRANT)])
def test_a_foreign_token_is_refused(token: str) -> None:
    with pytest.raises(Unauthenticated):
        verify(UPLOAD_KEY, token, NOW)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"filename": "../x.tif"}, "filename"),
        ({"filename": "a/b.tif"}, "filename"),
        ({"filename": ".."}, "filename"),
        ({"filename": ""}, "filename"),
        ({"filename": "a\x00.tif"}, "filename"),
        ({"filename": "ä" * 101}, "filename"),
        ({"filename": 7}, "filename"),
        ({"size_bytes": 0}, "size_bytes"),
        ({"size_bytes": 1001}, "size_bytes"),
        ({"container": "silver"}, "container"),
    ],
)
async def test_a_bad_wish_is_refused_by_field(business: Business, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CallerError) as refused:
        await business.uploads.grant(SUBMITTER, wish(**changes), NOW)
    assert (refused.value.detail.code, refused.value.detail.field) == ("PARAMETER_INVALID", field)


async def test_only_submitters_of_the_own_platform_get_an_address(business: Business) -> None:
    for caller in (FOREIGNER, READER):
        with pytest.raises(Forbidden):
            await business.uploads.grant(caller, wish(), NOW)
    refusals = []
    for platform_id in ("arcgis", "nobody"):
        with pytest.raises(Forbidden) as refused:
            await business.uploads.grant(SUBMITTER, wish(platform_id=platform_id), NOW)
        refusals.append(refused.value.detail.message.replace(platform_id, "it"))
    assert len(set(refusals)) == 1
