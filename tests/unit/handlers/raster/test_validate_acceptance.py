"""Rasters that are accepted, what is found out about them and what a careful reader is told."""

import hashlib
import re
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.enums import ColorInterp
from rasterio.transform import Affine, from_origin

from handlers.context import TaskCancelled
from tests.support.raster_path import UTM33, RasterPath, pattern, pixels, raw_tiff, stack
from tests.unit.handlers.raster.test_validate_refusals import linear_rpc

ALBERS = "+proj=aea +lat_1=44.25 +lat_2=60.75 +lat_0=31.5 +lon_0=9.5 +x_0=1000 +y_0=0 +ellps=intl +units=m +no_defs"


def facts_of(raster: RasterPath, source: Any, **options: Any) -> dict[str, Any]:
    output = raster.validate(source, **options).output
    assert isinstance(output, dict)
    return dict(output["raster"])


def test_a_plain_raster_is_accepted_without_findings(raster: RasterPath) -> None:
    source = raster.write(pattern(70, 90, "uint16", 0, 4000), nodata=5)
    outcome = raster.validate(source)
    assert outcome.findings == ()
    assert isinstance(outcome.output, dict)
    report, facts = outcome.output["report"], outcome.output["raster"]
    assert (report["verdict"], report["errors"], report["findings"]) == ("accept", [], [])
    assert (facts["width"], facts["height"], facts["count"], facts["dtype"]) == (90, 70, 1, "uint16")
    assert (facts["crs_code"], facts["crs_source"], facts["orientation"]) == (UTM33, "file", "north_up")
    assert facts["bounds"] == [500000, 4649076, 500900, 4649776]
    assert facts["nodata"] == 5


def test_size_and_digest_are_those_of_the_file(raster: RasterPath) -> None:
    source = raster.write(pattern(64, 64))
    output = raster.validate(source, size=source.stat().st_size).output
    assert isinstance(output, dict)
    assert output["content_hash"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert output["file_size_bytes"] == source.stat().st_size
    assert output["source"] == "source.tif"


def test_the_header_alone_reads_no_block(raster: RasterPath) -> None:
    source = raster.write(pattern(256, 256, "uint16"), compress="deflate")
    content = bytearray(source.read_bytes())
    content[-100:-50] = b"\xff" * 50
    source.write_bytes(content)
    output = raster.validate(source, header_only=True).output
    assert isinstance(output, dict)
    assert output["content_hash"] is None
    assert raster.progress == []


def test_progress_reaches_its_end_and_a_cancelled_task_stops(raster: RasterPath) -> None:
    source = raster.write(pattern(64, 64))
    raster.validate(source)
    assert raster.progress[-1]["current"] == raster.progress[-1]["total"] == 64 * 64
    raster.cancelled = True
    with pytest.raises(TaskCancelled):
        raster.validate(source)


@pytest.mark.parametrize("text", ["EPSG:32633", "urn:ogc:def:crs:EPSG::32633", CRS.from_epsg(32633).to_wkt()])
def test_a_crs_may_come_from_the_submit(raster: RasterPath, text: str) -> None:
    source = raster.write(pattern(8, 8), crs=None)
    facts = facts_of(raster, source, crs=text)
    assert (facts["crs_code"], facts["crs_source"]) == (UTM33, "submit")
    assert raster.codes(source, crs=text) == ["CRS_FROM_SUBMIT"]


def test_naming_the_same_crs_again_changes_nothing(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8))
    assert raster.codes(source, crs=pyproj.CRS.from_epsg(32633).to_wkt("WKT1_ESRI")) == []
    assert facts_of(raster, source, crs="EPSG:32633")["crs_source"] == "file"


def test_override_replaces_the_crs_with_a_warning(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8))
    outcome = raster.validate(source, crs="EPSG:32634", override_crs=True)
    assert (outcome.findings[0].code, outcome.findings[0].level) == ("CRS_OVERRIDDEN", "warning")
    assert facts_of(raster, source, crs="EPSG:32634", override_crs=True)["crs_code"] == "EPSG:32634"


def test_a_crs_without_a_code_is_kept_as_wkt(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8), crs=CRS.from_proj4(ALBERS), transform=from_origin(120000, 2100000, 500, 500))
    facts = facts_of(raster, source)
    assert facts["crs_code"] is None
    assert "Albers" in facts["crs_wkt"]


def test_a_compound_crs_keeps_its_heights_and_names_its_horizontal_part(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8, "float32"), crs="EPSG:32633+5773")
    facts = facts_of(raster, source)
    assert facts["crs_code"] == UTM33
    assert "EGM96" in facts["crs_wkt"]
    assert facts["raster_type"] == "elevation"
    assert raster.codes(source, crs="EPSG:32633") == []


@pytest.mark.parametrize("turn", [45.0, 90.0, 3.5])
def test_a_rotated_raster_is_seen_with_all_four_corners(raster: RasterPath, turn: float) -> None:
    transform = Affine.translation(500000, 4650000) @ Affine.rotation(turn) @ Affine.scale(10, -10)
    source = raster.write(pattern(96, 48), transform=transform)
    assert raster.codes(source) == ["RESAMPLED_TO_NORTH_UP"]
    corners = [transform @ corner for corner in ((0, 0), (48, 0), (48, 96), (0, 96))]
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    assert facts_of(raster, source)["bounds"] == pytest.approx([min(xs), min(ys), max(xs), max(ys)])


@pytest.mark.parametrize("transform", [Affine(10, 0, 5e5, 0, 10, 4649000), Affine(-10, 0, 5e5, 0, -10, 4649000)])
def test_a_flipped_raster_warns(raster: RasterPath, transform: Affine) -> None:
    assert raster.codes(raster.write(pattern(60, 45), transform=transform)) == ["FLIPPED_TO_NORTH_UP"]


def test_control_points_alone_warn(raster: RasterPath) -> None:
    points = [
        GroundControlPoint(row=r, col=c, x=9 + c * 1e-3, y=46 - r * 1e-3, id=f"{r}{c}")
        for r in (0, 80)
        for c in (0, 99)
    ]
    source = raster.write(pattern(80, 99), crs="EPSG:4326", transform=None, gcps=points)
    facts = facts_of(raster, source)
    assert raster.codes(source) == ["GEOREFERENCED_FROM_GCPS"]
    assert (facts["crs_source"], facts["has_gcps"]) == ("gcps", True)
    assert facts["bounds"] == pytest.approx([9, 45.92, 9.099, 46])


@pytest.mark.parametrize(("wild", "pixels"), [(0.0, 0.0), (1.0, 1000.0)])
def test_the_warning_says_how_well_control_points_agree(raster: RasterPath, wild: float, pixels: float) -> None:
    points = [
        GroundControlPoint(row=r, col=c, x=9 + c * 1e-3 + wild * (r == c == 0), y=46 - r * 1e-3, id=f"{r}{c}")
        for r, c in ((0, 0), (0, 99), (80, 0), (80, 99), (40, 50))
    ]
    source = raster.write(pattern(80, 99), crs="EPSG:4326", transform=None, gcps=points)
    (warning,) = raster.validate(source).findings
    assert warning.code == "GEOREFERENCED_FROM_GCPS"
    found = re.search(r"one lies ([\d.]+) pixels", warning.message)
    assert found
    assert float(found[1]) == pytest.approx(pixels, abs=0.1)


def test_a_geotransform_wins_over_rational_polynomials(raster: RasterPath) -> None:
    source = raster.write(pattern(64, 64, "uint16"), before=lambda dst: setattr(dst, "rpcs", linear_rpc()))
    outcome = raster.validate(source)
    assert [(f.code, f.level) for f in outcome.findings] == [("RPC_IGNORED", "info")]


def test_a_geotransform_wins_over_control_points(raster: RasterPath) -> None:
    ties = [value for column, row in ((0, 0), (4, 0), (0, 4)) for value in (column, row, 0, column, 90 - row, 0)]
    matrix = [10, 0, 0, 500000, 0, -10, 0, 4649776, 0, 0, 0, 0, 0, 0, 0, 1]
    keys = [1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633]
    tags = {256: (4, [4]), 257: (4, [4]), 258: (3, [8]), 262: (3, [1]), 273: (4, [8]), 277: (3, [1]), 279: (4, [16])}
    tags |= {33922: (12, ties), 34264: (12, matrix), 34735: (3, keys)}
    source = raw_tiff(raster.folder / "both.tif", tags, bytes(range(1, 17)))
    facts = facts_of(raster, source)
    assert (facts["has_gcps"], facts["bounds"]) == (False, [500000, 4649736, 500040, 4649776])


@pytest.mark.parametrize(
    ("west", "size", "step", "roll", "shift", "codes"),
    [
        (-180, 360, 1.0, 0, 0, []),
        (0, 360, 1.0, 180, -360, ["LONGITUDES_SHIFTED"]),
        (200, 130, 1.0, 0, -360, ["LONGITUDES_SHIFTED"]),
        (-300, 50, 1.0, 0, 360, ["LONGITUDES_SHIFTED"]),
        (170, 20, 1.0, 0, 0, []),
        (-180.5, 361, 1.0, 0, 0, ["BBOX_CLAMPED"]),
        (-0.5, 360, 1.0, 180, -360, ["LONGITUDES_SHIFTED"]),
    ],
)
def test_longitudes_are_put_in_order(
    raster: RasterPath, west: float, size: int, step: float, roll: int, shift: float, codes: list[str]
) -> None:
    source = raster.write(pattern(20, size, "float32"), crs="EPSG:4326", transform=from_origin(west, 10, step, step))
    facts = facts_of(raster, source)
    assert (facts["roll_columns"], facts["longitude_shift"]) == (roll, shift)
    assert raster.codes(source) == codes


def test_a_grid_half_a_pixel_beyond_the_poles_is_kept(raster: RasterPath) -> None:
    source = raster.write(pattern(181, 360, "float32"), crs="EPSG:4326", transform=from_origin(-180, 90.5, 1, 1))
    assert raster.codes(source) == ["BBOX_CLAMPED"]


def test_nan_without_nodata_becomes_the_nodata_value(raster: RasterPath) -> None:
    values = pattern(16, 16, "float32")
    values[:4, :2] = np.nan
    values[5, 5] = np.inf
    outcome = raster.validate(raster.write(values))
    assert [f.code for f in outcome.findings] == ["NODATA_SET_TO_NAN"]
    assert "9 values" in outcome.findings[0].message
    assert isinstance(outcome.output, dict)
    assert outcome.output["raster"]["nodata"] == "nan"


def test_nan_beside_a_nodata_value_takes_it(raster: RasterPath) -> None:
    values = pattern(16, 16, "float32")
    values[0, 0], values[1, 1] = np.nan, -9999
    source = raster.write(values, nodata=-9999)
    assert raster.codes(source) == ["NONFINITE_REPLACED"]
    assert facts_of(raster, source)["nonfinite_pixels"] == 1


def test_a_nodata_value_that_the_dtype_cannot_hold_is_dropped(raster: RasterPath) -> None:
    source = raster.write(pattern(16, 16, "int16", 0, 900), nodata=-32768)
    content = source.read_bytes().replace(
        b"\x53\x01\x03\x00\x01\x00\x00\x00\x02\x00", b"\x53\x01\x03\x00\x01\x00\x00\x00\x01\x00"
    )
    source.write_bytes(content)
    with rasterio.open(source) as src:
        assert src.dtypes == ("uint16",)
    facts = facts_of(raster, source)
    assert raster.codes(source) == ["NODATA_DROPPED"]
    assert (facts["nodata"], facts["validity"]) == (None, "all")


def test_a_mask_wins_over_a_nodata_value(raster: RasterPath) -> None:
    mask = np.full((64, 64), 255, np.uint8)
    mask[:20] = 0
    source = raster.write(pattern(64, 64), nodata=0, mask=mask)
    facts = facts_of(raster, source)
    assert raster.codes(source) == ["NODATA_IGNORED"]
    assert (facts["validity"], facts["nodata"]) == ("mask", None)


def alpha_raster(raster: RasterPath, alpha: Any, description: str | None = None) -> Any:
    bands = stack(4, 96, 96)
    bands[3] = alpha

    def describe(dst: Any) -> None:
        if description:
            dst.set_band_description(4, description)

    return raster.write(bands, photometric="RGB", alpha="YES", before=describe)


def test_an_alpha_band_that_is_a_mask_is_an_alpha_band(raster: RasterPath) -> None:
    disc = np.where(np.hypot(*np.mgrid[-48:48, -48:48]) < 40, 255, 0)
    facts = facts_of(raster, alpha_raster(raster, disc))
    assert (facts["raster_type"], facts["validity"], facts["alpha_is_data"]) == ("rgba", "alpha", False)


@pytest.mark.parametrize("description", [None, "nir"])
def test_an_alpha_band_that_is_no_mask_is_data(raster: RasterPath, description: str | None) -> None:
    source = alpha_raster(raster, pattern(96, 96, low=5, high=240), description)
    assert raster.codes(source) == ["ALPHA_IS_DATA"]
    facts = facts_of(raster, source)
    assert facts["validity"] == "all"
    assert facts["raster_type"] == ("nir" if description else "multispectral")


def feathered(width: int) -> Any:
    """Return alpha of a mosaic in the middle whose edge becomes transparent over so many of its pixels."""
    rows, columns = np.mgrid[0:200, 0:200]
    inside = np.minimum(np.minimum(rows, 199 - rows), np.minimum(columns, 199 - columns)) - 30
    return np.clip(inside * 255 // width, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("around", [0, 400])
@pytest.mark.parametrize("width", [4, 12, 20])
def test_soft_edges_are_alpha_however_wide_and_stay_as_they_are(raster: RasterPath, width: int, around: int) -> None:
    alpha = np.pad(feathered(width), ((0, around), (0, around)))
    bands = np.concatenate([np.stack([pattern(*alpha.shape, seed=band) for band in range(3)]), alpha[None]])
    source = raster.write(bands, photometric="RGB", alpha="YES")
    facts = facts_of(raster, source)
    assert (facts["raster_type"], facts["validity"], facts["alpha_is_data"]) == ("rgba", "alpha", False)
    np.testing.assert_array_equal(pixels(raster.make(source).path)[3], alpha)


@pytest.mark.parametrize("around", [0, 2000])
def test_infrared_tagged_alpha_is_data_however_much_is_empty_around_it(raster: RasterPath, around: int) -> None:
    infrared = np.pad(pattern(96, 96, low=5, high=240), ((0, around), (0, 0)))
    bands = np.stack([infrared] * 4)
    codes = raster.codes(raster.write(bands, photometric="RGB", alpha="YES"))
    assert "ALPHA_IS_DATA" in codes


@pytest.mark.parametrize(
    ("count", "at", "dtype", "overlooked"),
    [(5, 5, "uint8", True), (7, 7, "uint16", True), (3, 3, "uint16", True), (4, 4, "uint16", False),
     (4, 1, "uint8", True), (2, 2, "float32", True), (4, 4, "int16", True), (2, 2, "uint8", False)],
)  # fmt: skip
def test_an_alpha_band_that_readers_would_overlook_gets_a_mask(
    raster: RasterPath, count: int, at: int, dtype: str, overlooked: bool
) -> None:
    bands = stack(count, 60, 70, dtype, 1, 200)
    valid = np.indices((60, 70)).sum(axis=0) > 40
    bands[:, ~valid] = 0
    bands[at - 1] = valid * (np.iinfo(dtype).max if dtype != "float32" else 1)
    if dtype == "float32":
        bands[0, 50, 50] = np.nan
    colors = [ColorInterp.alpha if band == at else ColorInterp.undefined for band in range(1, count + 1)]
    source = raster.write(bands, before=lambda dst: setattr(dst, "colorinterp", colors))
    for options in ({}, {"target_crs": "EPSG:32634"}):
        made = raster.make(source, **options)
        assert ("ALPHA_TO_MASK" in made.codes) == overlooked
        with rasterio.open(made.path) as cog:
            assert (cog.colorinterp[at - 1] is ColorInterp.alpha) == dtype.startswith("uint"), "what maps can draw"
            first = next(band for band in range(1, count + 1) if band != at)
            measured = made.output["raster"]["bands"][first - 1]["statistics"]
            assert measured["minimum"] >= 1, "holes are not measured"
            assert cog.read(first)[cog.dataset_mask() > 0].min() >= 1
            if not options:
                expected = valid & np.isfinite(bands[first - 1]) if count == 2 else valid
                np.testing.assert_array_equal(cog.dataset_mask() > 0, expected)
                np.testing.assert_array_equal(cog.read(), bands)


@pytest.mark.parametrize("count", [2, 4, 5])
def test_alpha_beside_a_mask_can_be_resampled(raster: RasterPath, count: int) -> None:
    bands, mask = stack(count, 60, 70, "uint8", 1, 200), np.full((60, 70), 255, np.uint8)
    bands[-1], mask[:20] = 255, 0
    colors = [ColorInterp.alpha if band == count else ColorInterp.undefined for band in range(1, count + 1)]
    source = raster.write(bands, mask=mask, before=lambda dst: setattr(dst, "colorinterp", colors))
    made = raster.make(source, target_crs="EPSG:4326")
    with rasterio.open(made.path) as cog:
        assert cog.colorinterp[-1] is ColorInterp.alpha
        assert (cog.dataset_mask() > 0).mean() == pytest.approx(2 / 3, abs=0.05)
        assert cog.read(1)[cog.dataset_mask() > 0].min() >= 1


def test_a_spectral_name_alone_makes_it_data(raster: RasterPath) -> None:
    assert raster.codes(alpha_raster(raster, 255, "near infrared")) == ["ALPHA_IS_DATA"]


def test_almost_no_valid_pixel_warns(raster: RasterPath) -> None:
    values = np.zeros((200, 200), np.uint8)
    values[0, :7] = pattern(1, 7, low=1)
    assert raster.codes(raster.write(values, nodata=0)) == ["RASTER_MOSTLY_EMPTY"]


def test_statistics_of_the_file_are_told_to_be_stale(raster: RasterPath) -> None:
    source = raster.write(pattern(8, 8), before=lambda dst: dst.update_tags(1, STATISTICS_MAXIMUM="1"))
    assert raster.codes(source) == ["STATISTICS_RECOMPUTED"]


def test_nodata_beside_lossy_compression_becomes_a_mask(raster: RasterPath) -> None:
    source = raster.write(stack(3, 32, 32, low=1), nodata=0, photometric="RGB")
    assert raster.codes(source, compression="jpeg") == ["NODATA_TO_MASK"]


def test_classes_are_counted_over_all_blocks(raster: RasterPath) -> None:
    values = np.tile(np.arange(64, dtype=np.uint16), (4096, 8))
    assert facts_of(raster, raster.write(values, "few.tif"))["raster_type"] == "categorical"
    values[-1, -1] = 9999
    assert facts_of(raster, raster.write(values, "more.tif"))["raster_type"] == "continuous"


def test_a_palette_makes_a_raster_categorical(raster: RasterPath) -> None:
    palette = {value: (value, 255 - value, 0, 255) for value in range(256)}
    source = raster.write(pattern(64, 64), photometric="palette", before=lambda dst: dst.write_colormap(1, palette))
    facts = facts_of(raster, source)
    assert (facts["raster_type"], facts["palette"]) == ("categorical", True)
    assert raster.rejection(source, raster_type="continuous").detail.field == "raster_type"


def test_a_stated_type_is_taken_when_it_can_be(raster: RasterPath) -> None:
    facts = facts_of(raster, raster.write(pattern(64, 64, "int16")), raster_type="elevation")
    assert (facts["raster_type"], facts["type_evidence"]) == ("elevation", "stated by the submit")


def test_a_band_that_the_file_calls_red_is_no_mask(raster: RasterPath) -> None:
    source = raster.write(stack(3, 16, 16), photometric="RGB")
    with rasterio.open(source) as src:
        assert src.colorinterp[0] is ColorInterp.red
    assert facts_of(raster, source)["raster_type"] == "rgb"
