"""Directories and block tables are read without GDAL and agree with it."""

import struct
from pathlib import Path

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.raster.tiff import HeaderError, read_directories
from tests.support.raster_path import ORIGIN, RasterPath, pattern, raw_tiff, stack, write_raster

PROFILES = [
    {},
    {"tiled": True, "blockxsize": 64, "blockysize": 32},
    {"compress": "deflate", "blockysize": 7},
    {"interleave": "pixel"},
    {"interleave": "band"},
    {"BIGTIFF": "YES"},
    {"ENDIANNESS": "BIG"},
    {"BIGTIFF": "YES", "ENDIANNESS": "BIG", "tiled": True, "blockxsize": 16, "blockysize": 16},
]


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_directory_agrees_with_gdal(raster: RasterPath, profile: dict[str, object]) -> None:
    source = raster.write(stack(3, 90, 70, "uint16"), nodata=7, **profile)
    (page,) = read_directories(source)
    with rasterio.open(source) as src:
        assert (page.width, page.height, page.samples, page.bits) == (src.width, src.height, src.count, 16)
        assert (page.blocks.height, page.blocks.width) == src.block_shapes[0]
        assert page.blocks.planes == (3 if src.profile["interleave"] == "band" else 1)
    assert page.nodata_text == "7"
    assert page.has_transform
    page.blocks.check_extent(page)


def test_overviews_and_masks_are_no_pages_of_their_own(raster: RasterPath) -> None:
    source = raster.write(pattern(600, 600), mask=np.full((600, 600), 255, np.uint8))
    with rasterio.open(source, "r+") as dst:
        dst.build_overviews([2, 4])
    directories = read_directories(source)
    assert len(directories) > 2
    assert [directory.is_main for directory in directories].count(True) == 1


def test_blocks_that_were_never_written_are_sparse(raster: RasterPath) -> None:
    source = raster.folder / "sparse.tif"
    profile = {"width": 512, "height": 512, "count": 1, "dtype": "uint8", "tiled": True, "blockxsize": 256}
    profile |= {"blockysize": 256, "SPARSE_OK": True, "crs": "EPSG:3857", "transform": ORIGIN}
    with rasterio.open(source, "w", driver="GTiff", **profile) as dst:
        dst.write(np.ones((256, 256), np.uint8), 1, window=((0, 256), (256, 512)))
    (page,) = read_directories(source)
    assert page.blocks.sparse.tolist() == [[True, False], [True, True]]
    page.blocks.check_extent(page)


@given(cut=st.floats(min_value=0.0, max_value=0.999), tiled=st.booleans(), compressed=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_cut_file_never_passes(
    tmp_path_factory: pytest.TempPathFactory, cut: float, tiled: bool, compressed: bool
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    profile = {"tiled": tiled} | ({"blockxsize": 64, "blockysize": 64} if tiled else {})
    profile |= {"compress": "deflate"} if compressed else {}
    source = write_raster(folder / "cut.tif", pattern(200, 200, "uint16"), **profile)
    whole = source.read_bytes()
    source.write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(HeaderError):
        _check_all(source)


def test_directories_that_point_at_each_other_end(tmp_path: Path) -> None:
    source = raw_tiff(tmp_path / "loop.tif", {256: (3, [1])})
    head = bytearray(source.read_bytes())
    head[-4:] = struct.pack("<I", 8)
    source.write_bytes(head)
    with pytest.raises(HeaderError, match="endless"):
        read_directories(source)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({256: (4, [0]), 257: (4, [5]), 273: (4, [8]), 279: (4, [1])}, "without size"),
        ({256: (4, [9]), 257: (4, [5])}, "lists 0"),
        ({256: (4, [9]), 257: (4, [5]), 273: (4, [8]), 278: (4, [1])}, "declares 5 blocks but lists 1"),
        ({256: (4, [9]), 257: (4, [5]), 273: (4, [999999]), 279: (4, [45])}, "cut off"),
        ({256: (4, [9]), 257: (4, [5]), 259: (3, [8]), 273: (4, [8]), 279: (4, [99999])}, "cut off"),
    ],
)
def test_a_header_that_contradicts_itself_is_named(
    tmp_path: Path, tags: dict[int, tuple[int, list[int]]], message: str
) -> None:
    source = raw_tiff(tmp_path / "lie.tif", tags)
    (page,) = read_directories(source)
    with pytest.raises(HeaderError, match=message):
        page.blocks.check_extent(page)


def test_values_outside_the_file_are_an_error_not_an_allocation(tmp_path: Path) -> None:
    source = raw_tiff(tmp_path / "far.tif", {256: (4, [4]), 257: (4, [4])})
    head = bytearray(source.read_bytes())
    entry = head.index(struct.pack("<HH", 257, 4))
    struct.pack_into("<II", head, entry + 4, 0x7FFFFFFF, 16)
    source.write_bytes(head)
    (page,) = read_directories(source)
    with pytest.raises(HeaderError, match="beyond the end"):
        _ = page.height


def _check_all(source: Path) -> None:
    for page in read_directories(source):
        page.blocks.check_extent(page)
        assert page.nodata_text is None
