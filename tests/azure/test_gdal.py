"""GDAL reads blobs in place by signatures that end while it reads (sas-expiry, sas-encoding of the cases)."""

import asyncio
import io
import logging
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import numpy as np
import pytest
import rasterio
from anyio import to_thread
from numpy.typing import NDArray
from rasterio.errors import RasterioError
from rasterio.transform import from_origin
from rasterio.windows import Window

from cli.stack.azurite import Azurite
from core.ports import BlobRef, GdalSource
from repositories.blob_signatures import Signatures
from repositories.blobs_azure import AzureBlobRepository
from repositories.logs import TextFormatter
from serving.files import VersionFiles
from tests.azure.test_blobs import by_identity
from tests.peers.identity.server import IdentityPeer
from tests.support.blob_contract import STRANGE

SIZE, CORNER = 2048, Window(0, 0, 64, 64)
FAR_CORNER = Window(SIZE - 64, SIZE - 64, 64, 64)
SHORT_SECONDS = 2.0


@pytest.fixture
def pixels() -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(0, 255, (SIZE, SIZE), dtype=np.uint8)


@pytest.fixture
def raster(tmp_path: Path, pixels: NDArray[np.uint8]) -> Path:
    """Return a tiled file that GDAL reads by several requests."""
    path = tmp_path / "a.tif"
    tiled = {"driver": "GTiff", "tiled": True, "blockxsize": 256, "blockysize": 256}
    place = {"crs": "EPSG:3857", "transform": from_origin(500_000, 6_000_000, 10, 10)}
    with rasterio.open(path, "w", width=SIZE, height=SIZE, count=1, dtype="uint8", **tiled, **place) as dst:
        dst.write(pixels, 1)
    return path


@pytest.fixture
async def blobs(
    secure_azurite: Azurite, identity: IdentityPeer, secure_zones: None
) -> AsyncIterator[AzureBlobRepository]:
    """Yield a repository whose signatures live for two seconds."""
    blobs = by_identity(secure_azurite, identity, SHORT_SECONDS)
    yield blobs
    await blobs.close()


def corner(source: GdalSource, window: Window = CORNER) -> NDArray[np.uint8]:
    with rasterio.Env(**source.options), rasterio.open(source.path) as src:
        read: NDArray[np.uint8] = src.read(1, window=window)
        return read


async def ended(signatures: Signatures, ref: BlobRef) -> None:
    """Return once the signature of a blob has ended by the storage's clock, which has whole seconds."""
    left = (await signatures.of(ref)).expires_at - datetime.now(UTC)
    await asyncio.sleep(left.total_seconds() + 1.0)


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Collect what every library says at its most talkative, as our processes write it."""
    text, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(text)
    handler.setFormatter(TextFormatter("test"))
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


async def test_a_read_that_outlives_its_signature_is_done_again_with_a_new_one(
    blobs: AzureBlobRepository, raster: Path, pixels: NDArray[np.uint8]
) -> None:
    ref, tries = BlobRef("silver", f"long/{secrets.token_hex(4)}.tif"), list[str]()
    await blobs.upload(raster, ref)
    files = VersionFiles(blobs)

    def read_slowly() -> NDArray[np.uint8]:
        with files.reading(ref) as path, rasterio.open(path) as src:
            src.read(1, window=CORNER)
            if not tries:
                tries.append("first")
                anyio.from_thread.run(ended, blobs.accounts["silver"].signatures, ref)
            read: NDArray[np.uint8] = src.read(1, window=FAR_CORNER)
            return read

    with pytest.raises(RasterioError):
        await to_thread.run_sync(read_slowly)
    tries.clear()
    read = await to_thread.run_sync(lambda: files.patiently(read_slowly))
    assert tries == ["first"]
    assert (read == pixels[-64:, -64:]).all()


async def test_what_an_ended_signature_could_not_open_a_new_one_opens(
    blobs: AzureBlobRepository, raster: Path, pixels: NDArray[np.uint8]
) -> None:
    ref = BlobRef("silver", f"late/{secrets.token_hex(4)}.tif")
    await blobs.upload(raster, ref)
    late = await blobs.gdal_source(ref)
    await ended(blobs.accounts["silver"].signatures, ref)
    with pytest.raises(RasterioError) as refused:
        await asyncio.to_thread(corner, late)
    assert "sig=" not in f"{refused.value} {refused.value.__cause__!r} {late!r}"
    sources, used = [late, await blobs.gdal_source(ref)], list[GdalSource]()

    def read_with_the_next() -> NDArray[np.uint8]:
        used.append(sources[len(used)])
        return corner(used[-1])

    read = await asyncio.to_thread(VersionFiles(blobs).patiently, read_with_the_next)
    assert used == sources
    assert (read == pixels[:64, :64]).all()
    assert (await asyncio.to_thread(corner, sources[1]) == pixels[:64, :64]).all()


async def test_names_and_signatures_with_every_character_are_read(
    blobs: AzureBlobRepository, raster: Path, pixels: NDArray[np.uint8]
) -> None:
    await blobs.upload(raster, STRANGE)
    assert (await asyncio.to_thread(corner, await blobs.gdal_source(STRANGE)) == pixels[:64, :64]).all()
    for number in range(1000):
        ref = BlobRef("silver", f"encoded/{number}+{number}%2B.tif")
        signed = (await blobs.accounts["silver"].signatures.of(ref)).query.partition("&sig=")[2]
        if "%2B" in signed and "/" in signed.replace("%2F", "/") and signed.endswith("%3D"):
            break
    await blobs.copy(STRANGE, ref)
    assert (await asyncio.to_thread(corner, await blobs.gdal_source(ref)) == pixels[:64, :64]).all()


async def test_a_signature_opens_one_blob_for_reading_and_is_told_to_nobody(
    blobs: AzureBlobRepository, raster: Path
) -> None:
    mine, other = (BlobRef("silver", f"only/{name}.tif") for name in ("mine", "other"))
    await blobs.upload(raster, mine)
    await blobs.upload(raster, other)
    with logged() as text:
        source = await blobs.gdal_source(mine)
        await asyncio.to_thread(corner, source)
        with pytest.raises(RasterioError):
            await asyncio.to_thread(corner, GdalSource(f"/vsiaz/{other}", source.options))
    secret = source.options["AZURE_STORAGE_CONNECTION_STRING"].partition("&sig=")[2]
    assert secret
    said = text.getvalue() + repr(source) + source.path + repr(await blobs.accounts["silver"].signatures.of(mine))
    assert "403" in said, "GDAL's own words are among them, with the address"
    assert secret not in said
    assert not any("SharedAccessSignature" in value for value in os.environ.values())


async def test_a_signature_is_used_again_until_half_of_its_life_is_over(
    secure_azurite: Azurite, identity: IdentityPeer
) -> None:
    clock, seen = [datetime.now(UTC)], BlobRef("silver", "x")
    blobs = by_identity(secure_azurite, identity)
    signatures = Signatures(blobs.accounts["silver"].service, 60, now=lambda: clock[0])
    first = await signatures.of(seen)
    assert await signatures.of(seen) is first
    assert await signatures.of(BlobRef("silver", "y")) != first
    clock[0] = first.expires_at - signatures.life / 2
    renewed = await signatures.of(seen)
    assert renewed.expires_at > first.expires_at
    assert len(identity.issued) == 1, "one token, and one key for all of them"
    await blobs.close()
