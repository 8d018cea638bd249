"""Headers of large files behind URLs: few requests, few bytes, and what GDAL then reads is what the file says."""

import io
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from core.errors import Classification, GeodagError
from core.outgoing import OutgoingPolicy
from edge.fetching import SourceClient
from edge.partial import Missing, PartialFile
from edge.peeking import MAX_REQUESTS, peek
from handlers.raster.peek import walk_header
from repositories.blobs_folder import FolderBlobRepository
from tests.support.range_host import range_host
from tests.support.raster_path import RasterPath, raw_tiff

LOCAL = OutgoingPolicy(allow_loopback=True)
SECRET = "sig=SECRET-aa11"
TILED = {"tiled": True, "blockxsize": 512, "blockysize": 512}
LARGE = 65_000_000


def client_of(folder: Path, policy: OutgoingPolicy = LOCAL, max_bytes: int = 20 << 30) -> SourceClient:
    return SourceClient(policy, FolderBlobRepository(folder), max_bytes)


def write_large(path: Path, *, at_end: bool = False, **layout: Any) -> Path:
    """Write the header of a BigTIFF of 11 GB; nothing else takes room on the disk."""
    profile = {"width": 60_000, "height": 61_200, "count": 3, "dtype": "uint8", "photometric": "RGB"}
    place = {"crs": "EPSG:32633", "transform": from_origin(5e5, 5e6, 0.1, 0.1)}
    with rasterio.open(path, "w", driver="GTiff", BIGTIFF="YES", **profile, **place, **layout):
        pass
    if at_end:
        with rasterio.open(path, "r+") as src:
            src.update_tags(lineage="x" * 200_000)
    return path


@pytest.mark.parametrize(
    "layout",
    [TILED, TILED | {"at_end": True}, {}],
    ids=["tiled", "directory at the end", "a strip for each row"],
)
async def test_eleven_gigabytes_are_inspected_in_a_second(tmp_path: Path, layout: dict[str, Any]) -> None:
    source = write_large(tmp_path / "large.tif", **layout)
    assert source.stat().st_size > 11_000_000_000
    raster = RasterPath(tmp_path)
    async with range_host(source) as host:
        begun = time.monotonic()
        whole = await peek(client_of(tmp_path), host.url, SECRET, tmp_path / "copy.tif", walk_header)
        output = raster.validate(tmp_path / "copy.tif", header_only=True).output
        seconds = time.monotonic() - begun
    assert (whole, seconds < 1, len(host.seen) < 10, host.sent_bytes < 1_000_000) == (False, True, True, True)
    assert isinstance(output, dict)
    facts = output["raster"]
    assert (facts["width"], facts["height"], facts["crs_code"]) == (60_000, 61_200, "EPSG:32633")
    assert (output["report"]["read"], output["estimate"]["route"]) == ("header", "tiled")
    assert (tmp_path / "copy.tif").stat().st_blocks * 512 < 4_000_000
    assert host.seen == [f"/far.tif?{SECRET}"] * len(host.seen)


async def test_everything_a_header_says_arrives(tmp_path: Path) -> None:
    source = tmp_path / "rich.tif"
    profile = {"width": 9000, "height": 9000, "count": 1, "dtype": "uint8", "nodata": 9, **TILED}
    with rasterio.open(source, "w", driver="GTiff", crs="EPSG:3035", transform=from_origin(4e6, 3e6, 10, 10), **profile) as dst:  # fmt: skip  # noqa: E501
        dst.write_colormap(1, {1: (255, 0, 0, 255)})
        dst.descriptions = ("classes",)
        dst.update_tags(note="é" * 500_000)
    async with range_host(source) as host:
        assert not await peek(client_of(tmp_path), host.url, None, tmp_path / "copy.tif", walk_header)
    with rasterio.open(source) as wanted, rasterio.open(tmp_path / "copy.tif") as found:
        assert (found.profile, found.tags()) == (wanted.profile, wanted.tags())
        assert (found.colormap(1), found.descriptions) == (wanted.colormap(1), wanted.descriptions)


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("a.tif", b"x" * LARGE)
    return path


def endless(path: Path) -> Path:
    """Write a file whose directories lie far from each other and never end within the limits."""
    step, count = 400_000, 170
    with path.open("wb") as file:
        file.write(b"II*\0" + struct.pack("<I", step))
        for place in range(1, count):
            file.seek(place * step)
            file.write(struct.pack("<HHHIII", 1, 256, 3, 1, 5, (place + 1) * step))
        file.truncate(count * step)
    return path


def claims(path: Path) -> Path:
    """Write a header whose block table would fill the file."""
    raw_tiff(path, {256: (4, [1]), 257: (4, [1]), 273: (4, [8]), 279: (4, [1])})
    content = bytearray(path.read_bytes())
    at = content.index(struct.pack("<HHI", 273, 4, 1))
    content[at : at + 8] = struct.pack("<HHI", 273, 4, LARGE // 8)
    with path.open("wb") as file:
        file.write(content)
        file.truncate(LARGE)
    return path


@pytest.mark.parametrize("make", [archive, endless, claims])
async def test_what_is_no_header_or_too_much_of_it_is_copied_whole_after_few_requests(
    tmp_path: Path, make: Any
) -> None:
    source = make(tmp_path / "source")
    async with range_host(source) as host:
        assert await peek(client_of(tmp_path), host.url, None, tmp_path / "copy", walk_header)
        assert len(host.seen) <= MAX_REQUESTS + 1
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(("size", "requests"), [(1000, 1), (100_000, 2)])
async def test_a_small_file_is_copied_whole(tmp_path: Path, size: int, requests: int) -> None:
    (tmp_path / "small").write_bytes(np.random.default_rng(1).bytes(size))
    async with range_host(tmp_path / "small") as host:
        assert await peek(client_of(tmp_path), host.url, None, tmp_path / "copy", walk_header)
        assert len(host.seen) == requests
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "small").read_bytes()


async def test_a_host_without_ranges_gives_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 200_000)
    async with range_host(tmp_path / "small") as host:
        host.mood = "without_ranges"
        assert await peek(client_of(tmp_path), host.url, None, tmp_path / "copy", walk_header)
        with pytest.raises(GeodagError) as refused:
            await peek(client_of(tmp_path, max_bytes=1000), host.url, None, tmp_path / "other", walk_header)
    assert (tmp_path / "copy").stat().st_size == 200_000
    assert refused.value.detail.code == "FILE_TOO_LARGE"


async def test_a_redirect_is_followed_once_without_the_credential(tmp_path: Path) -> None:
    async with range_host(write_large(tmp_path / "large.tif", **TILED)) as host:
        host.mood = "moved"
        assert not await peek(client_of(tmp_path), host.url, SECRET, tmp_path / "copy.tif", walk_header)
    assert host.seen[0] == f"/far.tif?{SECRET}"
    assert set(host.seen[1:]) == {"/there.tif?own=1"}


@pytest.mark.parametrize(
    ("mood", "code", "kind"),
    [
        ("changing", "SOURCE_CHANGED", Classification.PERMANENT),
        ("shifted", "SOURCE_UNAVAILABLE", Classification.TRANSIENT),
        ("unbounded", "SOURCE_UNAVAILABLE", Classification.TRANSIENT),
        ("short", "SOURCE_UNAVAILABLE", Classification.TRANSIENT),
        ("inside", "SOURCE_URL_FORBIDDEN", Classification.PERMANENT),
    ],
)
async def test_a_host_that_misbehaves_is_refused_without_naming_the_credential(
    tmp_path: Path, mood: str, code: str, kind: Classification
) -> None:
    async with range_host(write_large(tmp_path / "large.tif", **TILED)) as host:
        host.mood = mood
        with pytest.raises(GeodagError) as refused:
            await peek(client_of(tmp_path), host.url, SECRET, tmp_path / "copy.tif", walk_header)
    assert (refused.value.detail.code, refused.value.detail.classification) == (code, kind)
    assert "SECRET" not in refused.value.detail.model_dump_json() + repr(refused.value.__context__)


async def test_an_empty_file_and_one_above_the_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    async with range_host(tmp_path / "empty") as host:
        with pytest.raises(GeodagError) as refused:
            await peek(client_of(tmp_path), host.url, None, tmp_path / "copy", walk_header)
        assert refused.value.detail.code == "FILE_EMPTY"
        host.file = write_large(tmp_path / "large.tif", **TILED)
        with pytest.raises(GeodagError) as large:
            await peek(client_of(tmp_path, max_bytes=LARGE), host.url, None, tmp_path / "copy", walk_header)
    assert (large.value.detail.code, len(host.seen)) == ("FILE_TOO_LARGE", 2)


async def test_loopback_is_not_asked_by_default(tmp_path: Path) -> None:
    async with range_host(tmp_path / "none") as host:
        with pytest.raises(GeodagError) as refused:
            await peek(client_of(tmp_path, OutgoingPolicy()), host.url, None, tmp_path / "copy", walk_header)
        assert (refused.value.detail.code, host.seen) == ("SOURCE_URL_FORBIDDEN", [])


def test_a_partial_file_says_what_is_missing(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path / "part", 100)
    partial.add(0, b"a" * 10)
    partial.add(20, b"b" * 10)
    partial.add(10, b"c" * 10)
    with partial.open("rb") as file:
        assert file.read(30) == b"a" * 10 + b"c" * 10 + b"b" * 10
        file.seek(25)
        with pytest.raises(Missing) as gap:
            file.read(1000)
        assert (gap.value.start, gap.value.end) == (30, 100)
        assert (file.seek(0, io.SEEK_END), file.read(5)) == (100, b"")
    assert not partial.is_whole
