"""Rasters that are refused, each with its code and field; nothing of their content is quoted."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.rpc import RPC
from rasterio.transform import Affine, from_origin

from core.errors import Classification
from handlers.raster import gdal
from handlers.raster.findings import Rejected
from tests.support.raster_path import ORIGIN, RasterPath, pattern, raw_tiff, stack

LOCAL = 'LOCAL_CS["WGS 84 / UTM zone 33N",UNIT["metre",1],AXIS["Easting",EAST],AXIS["Northing",NORTH]]'


def linear_rpc() -> RPC:
    """Return coefficients that map pixels to places by straight lines."""

    def term(place: int, value: float = 1.0) -> list[float]:
        return [value if place == index else 0.0 for index in range(20)]

    return RPC(
        height_off=200, height_scale=500, lat_off=45.5, lat_scale=0.05, long_off=9.2, long_scale=0.05,
        line_off=31.5, line_scale=32, samp_off=31.5, samp_scale=32, err_bias=None, err_rand=None,
        line_num_coeff=term(2, -1.0), line_den_coeff=term(0), samp_num_coeff=term(1), samp_den_coeff=term(0),
    )  # fmt: skip


def check(refusal: Rejected, code: str, field: str, *words: str) -> None:
    """Compare a refusal; it is permanent and its report says the same."""
    assert (refusal.detail.code, refusal.detail.field) == (code, field)
    assert refusal.detail.classification is Classification.PERMANENT
    assert refusal.detail.user_fixable
    for word in words:
        assert word in refusal.detail.message
    assert refusal.report["verdict"] == "reject"
    assert code in [error["code"] for error in refusal.report["errors"]]


def test_a_missing_file(raster: RasterPath) -> None:
    check(raster.rejection(raster.folder / "gone.tif"), "FILE_NOT_FOUND", "file")


def test_an_empty_file(raster: RasterPath) -> None:
    source = raster.folder / "empty.tif"
    source.touch()
    check(raster.rejection(source), "FILE_EMPTY", "file", "0 bytes")


def test_a_source_that_changed_since_the_submit(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8))
    check(raster.rejection(source, size=7), "SOURCE_CHANGED", "source", "7 were recorded")


@pytest.mark.parametrize(
    ("content", "code", "field", "word"),
    [
        (b"\xff\xd8\xff\xe0secret", "GEOREFERENCING_MISSING", "file", "JPEG"),
        (b"<VRTDataset><Source>/etc/passwd secret", "FORMAT_NOT_ALLOWED", "format", "VRT"),
        (b"PK\x03\x04secret", "RASTER_UNREADABLE", "file", "archive"),
        (b"<html><body>secret", "RASTER_UNREADABLE", "file", "HTML"),
        (b"secret words", "RASTER_UNREADABLE", "file", "plain text"),
        (b"II*\0secret", "RASTER_UNREADABLE", "file", "cut off"),
        (b"II*\0", "RASTER_UNREADABLE", "file", "header"),
    ],
)
def test_content_decides_not_the_name(raster: RasterPath, content: bytes, code: str, field: str, word: str) -> None:
    source = raster.folder / "named_like_a_raster.tif"
    source.write_bytes(content)
    refusal = raster.rejection(source)
    check(refusal, code, field, word)
    assert "secret" not in str(refusal.report)
    assert str(raster.folder) not in str(refusal.report)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("compress", [None, "deflate"])
def test_a_cut_file(raster: RasterPath, share: float, compress: str | None) -> None:
    profile = {"compress": compress} if compress else {}
    source = raster.write(pattern(512, 512, "uint16"), tiled=True, blockxsize=128, blockysize=128, **profile)
    whole = source.read_bytes()
    source.write_bytes(whole[: int(len(whole) * share)])
    check(raster.rejection(source), "RASTER_UNREADABLE", "file")


@pytest.mark.parametrize("bad", [0, 6, 15])
@pytest.mark.parametrize("tiled", [True, False])
def test_a_corrupt_block_is_named(raster: RasterPath, bad: int, tiled: bool) -> None:
    profile = {"tiled": True, "blockxsize": 128, "blockysize": 128} if tiled else {"blockysize": 32}
    source = raster.write(pattern(512, 512, "uint16"), compress="deflate", **profile)
    content = bytearray(source.read_bytes())
    at = _offset(source, bad)
    content[at + 4 : at + 60] = b"\xff" * 56
    source.write_bytes(content)
    check(raster.rejection(source), "RASTER_UNREADABLE", "file", f"block {bad} ")


def _offset(source: Path, block: int) -> int:
    """Return where a block begins, from the classic little-endian header."""
    content = source.read_bytes()
    (directory,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, _, _, at = struct.unpack_from("<HHII", content, entry)
        if tag in (273, 324):
            return int(struct.unpack_from("<I", content, at + 4 * block)[0])
    raise AssertionError("no table of blocks")


def test_dimensions_that_could_not_be_processed(tmp_path: Path, raster: RasterPath) -> None:
    source = raw_tiff(tmp_path / "bomb.tif", {256: (4, [400_000]), 257: (4, [400_000]), 258: (3, [8]), 273: (4, [8])})
    check(raster.rejection(source), "RASTER_TOO_LARGE", "file", "400000 x 400000")


@pytest.mark.parametrize(
    ("width", "height", "bands"), [(3_000_000, 1, 1), (1, 3_000_000, 1), (10, 10, 5000), (100_000, 100_000, 100)]
)
def test_each_limit_of_size(tmp_path: Path, raster: RasterPath, width: int, height: int, bands: int) -> None:
    tags = {256: (4, [width]), 257: (4, [height]), 258: (3, [8]), 273: (4, [8]), 277: (4, [bands])}
    check(raster.rejection(raw_tiff(tmp_path / "big.tif", tags)), "RASTER_TOO_LARGE", "file")


def test_one_compressed_block_that_would_not_fit_into_memory(tmp_path: Path, raster: RasterPath) -> None:
    tags = {256: (4, [60_000]), 257: (4, [60_000]), 258: (3, [8]), 259: (3, [8]), 273: (4, [8]), 279: (4, [9])}
    check(raster.rejection(raw_tiff(tmp_path / "block.tif", tags)), "RASTER_TOO_LARGE", "file", "one block")


def test_a_header_that_lists_too_few_blocks(tmp_path: Path, raster: RasterPath) -> None:
    tags = {256: (4, [100]), 257: (4, [100]), 258: (3, [8]), 273: (4, [8]), 278: (4, [10])}
    check(raster.rejection(raw_tiff(tmp_path / "few.tif", tags)), "RASTER_UNREADABLE", "file", "10 blocks")


def test_a_tiff_that_gdal_cannot_open(tmp_path: Path, raster: RasterPath) -> None:
    tags = {256: (4, [4]), 257: (4, [4]), 258: (3, [7]), 259: (3, [60_000]), 273: (4, [8]), 279: (4, [16])}
    source = raw_tiff(tmp_path / "odd.tif", tags, bytes(16))
    check(raster.rejection(source), "RASTER_UNREADABLE", "file", "GDAL cannot open")


def test_metadata_that_point_at_another_file(raster: RasterPath) -> None:
    other = raster.write(pattern(16, 16), "other.tif")
    source = raster.write(pattern(32, 32), before=lambda dst: dst.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=str(other)))
    check(raster.rejection(source), "FORMAT_NOT_ALLOWED", "format", "another file")


@pytest.mark.parametrize("path", ["/vsicurl/http://127.0.0.1/x.tif", "/vsizip/a.zip", "relative.tif", "http://x/y"])
def test_virtual_and_remote_paths_are_never_opened(path: str) -> None:
    with pytest.raises(Exception, match="only local files"):
        gdal.open_geotiff(Path(path) if not path.startswith("http") else path)  # type: ignore[arg-type]


def test_several_pages_are_listed(raster: RasterPath) -> None:
    source = raster.write(pattern(40, 50))
    with rasterio.open(
        source, "w", driver="GTiff", count=1, height=30, width=20, dtype="float32", append_subdataset="YES",
        crs="EPSG:32633", transform=ORIGIN,
    ) as dst:  # fmt: skip
        dst.write(pattern(30, 20, "float32"), 1)
    refusal = raster.rejection(source)
    check(refusal, "SUBDATASET_REQUIRED", "subdataset", "1: 50x40", "2: 20x30")
    check(raster.rejection(source, subdataset="3"), "PARAMETER_INVALID", "subdataset", "'3'")
    chosen = raster.validate(source, subdataset="2").output["raster"]  # type: ignore[index]
    assert (chosen["width"], chosen["height"], chosen["dtype"]) == (20, 30, "float32")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_pixels(raster: RasterPath, dtype: str) -> None:
    source = raster.write(pattern(8, 8, "float32").astype(dtype))
    check(raster.rejection(source), "DTYPE_COMPLEX", "dtype", dtype)


def test_no_crs_anywhere(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8), crs=None)
    check(raster.rejection(source), "CRS_MISSING", "crs")


def test_a_submit_that_names_another_crs_than_the_file(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8))
    check(raster.rejection(source, crs="EPSG:32634"), "CRS_CONFLICT", "crs", "EPSG:32633", "EPSG:32634")


def test_an_engineering_crs_whatever_its_name(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8), crs=CRS.from_wkt(LOCAL))
    check(raster.rejection(source), "CRS_NOT_GEOREFERENCED", "crs", "Engineering CRS")


@pytest.mark.parametrize("text", ["EPSG:5773", LOCAL, "EPSG:4978"])
def test_a_submitted_crs_without_a_place_on_earth(raster: RasterPath, text: str) -> None:
    source = raster.write(pattern(8, 8), crs=None)
    check(raster.rejection(source, crs=text), "CRS_NOT_GEOREFERENCED", "crs")


@pytest.mark.parametrize(
    ("crs", "transform"),
    [
        ("EPSG:4326", from_origin(500000, 4649776, 10, 10)),
        ("EPSG:4326", from_origin(541, 10, 0.1, 0.1)),
        ("EPSG:4326", from_origin(0, 92, 0.1, 0.1)),
        ("EPSG:32633", from_origin(5e9, 4e9, 10, 10)),
    ],
)
def test_coordinates_that_the_crs_cannot_hold(raster: RasterPath, crs: str, transform: Affine) -> None:
    source = raster.write(pattern(8, 8), crs=crs, transform=transform)
    check(raster.rejection(source), "CRS_EXTENT_IMPOSSIBLE", "crs", crs)


def test_no_place_at_all_names_both_faults(raster: RasterPath) -> None:
    refusal = raster.rejection(raster.write(pattern(8, 8), crs=None, transform=None))
    check(refusal, "GEOREFERENCING_MISSING", "file", "Also CRS_MISSING (crs)")
    assert [error["code"] for error in refusal.report["errors"]] == ["GEOREFERENCING_MISSING", "CRS_MISSING"]


def test_a_stated_crs_does_not_give_a_place(raster: RasterPath) -> None:
    refusal = raster.rejection(raster.write(pattern(8, 8), crs=None, transform=None), crs="EPSG:32633")
    assert [error["code"] for error in refusal.report["errors"]] == ["GEOREFERENCING_MISSING"]


def test_two_control_points_are_too_few(raster: RasterPath) -> None:
    points = [GroundControlPoint(row=0, col=0, x=9, y=46), GroundControlPoint(row=8, col=8, x=9.1, y=45.9)]
    source = raster.write(pattern(8, 8), crs="EPSG:4326", transform=None, gcps=points)
    check(raster.rejection(source), "GEOREFERENCING_MISSING", "file")


def test_a_tie_point_with_pixels_of_no_width_gives_no_place(raster: RasterPath) -> None:
    """GDAL takes it for a control point and says that the transform is the identity, which is near 0,0."""
    source = raster.write(pattern(8, 8), crs="EPSG:32633", transform=Affine(0, 0, 500000, 0, -10, 4650000))
    with rasterio.open(source) as src:
        assert src.transform.is_identity
    check(raster.rejection(source), "GEOREFERENCING_MISSING", "file", "no geotransform, and 1 control points")


def test_rational_polynomials_alone(raster: RasterPath) -> None:
    source = raster.write(
        pattern(64, 64, "uint16"), crs=None, transform=None, before=lambda dst: setattr(dst, "rpcs", linear_rpc())
    )
    check(raster.rejection(source), "RPC_ONLY", "georeferencing", "height model")


@pytest.mark.parametrize(("dtype", "nodata"), [("uint8", 0), ("float32", -9999), ("float32", float("nan"))])
def test_no_valid_pixel(raster: RasterPath, dtype: str, nodata: float) -> None:
    source = raster.write(np.full((600, 20), nodata, dtype), nodata=nodata)
    check(raster.rejection(source), "RASTER_EMPTY", "file", "12000 pixels")
    assert "RASTER_EMPTY" not in raster.codes(source, allow_empty=True)


def test_no_valid_pixel_by_mask_or_alpha(raster: RasterPath) -> None:
    masked = raster.write(pattern(64, 64), "mask.tif", mask=np.zeros((64, 64), np.uint8))
    check(raster.rejection(masked), "RASTER_EMPTY", "file")
    clear = stack(4, 64, 64)
    clear[3] = 0
    transparent = raster.write(clear, "alpha.tif", photometric="RGB", alpha="YES")
    check(raster.rejection(transparent), "RASTER_EMPTY", "file")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"crs": "EPSG:0"}, "crs"),
        ({"crs": "+init=/etc/passwd:x"}, "crs"),
        ({"crs": "+proj=utm +zone=33 +nadgrids=/etc/passwd"}, "crs"),
        ({"crs": "/vsicurl/http://127.0.0.1/crs"}, "crs"),
        ({"target_crs": "mercator"}, "target_crs"),
        ({"target_crs": LOCAL}, "target_crs"),
        ({"raster_type": "photo"}, "raster_type"),
        ({"raster_type": "rgb"}, "raster_type"),
        ({"compression": "zip"}, "compression"),
        ({"compression": "jpeg"}, "compression"),
        ({"datetime": "yesterday"}, "datetime"),
        ({"start_datetime": "2024-01-01"}, "start_datetime"),
        ({"start_datetime": "2024-02-01", "end_datetime": "2024-01-01"}, "end_datetime"),
        ({"subdataset": "2"}, "subdataset"),
    ],
)
def test_options_that_cannot_be(raster: RasterPath, options: dict[str, Any], field: str) -> None:
    source = raster.write(pattern(8, 8, "uint16"))
    check(raster.rejection(source, **options), "PARAMETER_INVALID", field)


def test_all_faults_of_the_header_are_collected(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8, "float32").astype("complex64"), crs=None)
    refusal = raster.rejection(source, datetime="yesterday", compression="zip")
    codes = [(error["code"], error["field"]) for error in refusal.report["errors"]]
    assert codes == [
        ("PARAMETER_INVALID", "datetime"),
        ("PARAMETER_INVALID", "compression"),
        ("DTYPE_COMPLEX", "dtype"),
        ("CRS_MISSING", "crs"),
    ]


def test_a_fault_of_the_header_stops_before_any_block_is_read(raster: RasterPath) -> None:
    raster.rejection(raster.write(pattern(64, 64), crs=None))
    assert raster.progress == []


@pytest.mark.parametrize(("scale", "offset"), [(float("nan"), 0.0), (1.0, float("inf"))])
def test_a_scale_that_is_no_number(raster: RasterPath, scale: float, offset: float) -> None:
    def describe(dst: Any) -> None:
        dst.scales, dst.offsets = (1.0, scale), (0.0, offset)

    source = raster.write(stack(2, 20, 20, "int16"), before=describe)
    check(raster.rejection(source), "RASTER_UNREADABLE", "file", "band 2 has scale")


@pytest.mark.parametrize("places", [[(0, 0), (10, 10), (20, 20), (30, 30)], [(0, 0), (0, 40), (40, 0), (40, None)]])
def test_control_points_that_span_nothing(raster: RasterPath, places: list[tuple[int, int | None]]) -> None:
    points = [
        GroundControlPoint(
            row=row, col=column or 0, x=math.nan if column is None else 9 + column / 100, y=46 - row / 100
        )
        for row, column in places
    ]
    source = raster.write(pattern(40, 40), transform=None, crs="EPSG:4326", gcps=points)
    check(raster.rejection(source), "GEOREFERENCING_MISSING", "file", "4 control points")
