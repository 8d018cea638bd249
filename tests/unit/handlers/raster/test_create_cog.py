"""COGs: strict by rio-cogeo, in place by plain rasterio, and with the pixels of the source bit by bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.enums import ColorInterp
from rasterio.transform import Affine, from_origin
from rasterio.warp import transform as transform_points
from rio_cogeo.cogeo import cog_validate

from core.errors import DataError, ParameterInvalid
from core.handler_models import RasterOptions
from core.handlers_catalog import CreateCogOutput, CreateCogParams
from handlers.context import TaskCancelled
from handlers.raster.create_cog import create_cog
from handlers.raster.tiff import read_directories
from tests.support.raster_path import ORIGIN, UTM33, Made, RasterPath, pattern, pixels, stack

FAR_EAST = from_origin(800000, 4649776, 10, 10)
"""Away from the central meridian, where grid north and true north differ."""
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]


def opened(made: Made) -> Any:
    found = cog_validate(made.path, strict=True, quiet=True)
    cog = rasterio.open(made.path)
    if cog.width == 1 and cog.height > 512:  # the validator takes the width alone, which stays one pixel
        found = (True, [one for one in found[1] if "Invalid Decimation 1 " not in one], found[2])
    if cog.height > cog.width:  # the validator takes a column of tiles for strips
        assert all(page.tiled for page in read_directories(made.path))
        found = (True, [one for one in found[1] if "not tiled" not in one], found[2])
    assert found == (True, [], [])
    return cog


@given(
    dtype=st.sampled_from(DTYPES),
    count=st.integers(1, 4),
    height=st.integers(1, 700),
    width=st.integers(1, 700),
    tiled=st.booleans(),
    interleave=st.sampled_from(["pixel", "band"]),
    seed=st.integers(0, 2**32 - 1),
)
@example(dtype="uint8", count=1, height=513, width=1, tiled=False, interleave="pixel", seed=0)
@example(dtype="uint8", count=1, height=1, width=513, tiled=False, interleave="pixel", seed=0)
@example(dtype="uint8", count=1, height=513, width=512, tiled=True, interleave="pixel", seed=0)
@example(dtype="int16", count=2, height=1100, width=1023, tiled=False, interleave="band", seed=0)
@settings(max_examples=20, deadline=None)
def test_pixels_are_those_of_the_source_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: str,
    count: int,
    height: int,
    width: int,
    tiled: bool,
    interleave: str,
    seed: int,
) -> None:
    raster = RasterPath(tmp_path_factory.mktemp("identity"))
    whole = np.random.default_rng(seed).integers(0, 256, (count, height, width, np.dtype(dtype).itemsize), np.uint8)
    values = whole.view(dtype)[..., 0]
    if dtype.startswith("float"):
        values = np.nan_to_num(values, nan=1.0, posinf=2.0, neginf=3.0)
    source = raster.write(values, tiled=tiled, interleave=interleave, photometric="MINISBLACK", alpha="NO")
    made = raster.make(source)
    with opened(made) as cog:
        assert (cog.dtypes[0], cog.count, cog.shape, cog.transform) == (dtype, count, (height, width), ORIGIN)
        assert cog.crs.to_epsg() == 32633
        assert np.array_equal(cog.read().view(np.uint8), values.view(np.uint8))


def test_a_column_of_tiles_is_a_cog_that_is_kept(raster: RasterPath) -> None:
    made = raster.make(raster.write(pattern(1100, 1024)))
    again = raster.make(made.path)
    assert again.path.read_bytes() == made.path.read_bytes()
    striped = raster.write(pattern(600, 512), compress="deflate", blockysize=512)
    assert raster.make(striped).output["raster"]["steps"] != ["copied, not recompressed"]


def test_output_fits_the_catalog_and_names_its_file(raster: RasterPath) -> None:
    made = raster.make(raster.write(pattern(600, 600)))
    output = CreateCogOutput.model_validate({**made.output, "blob_path": "silver/x/cog.tif"})
    assert made.path.name == "cog.tif"
    assert output.size_bytes == made.path.stat().st_size
    assert made.output["raster"]["shape"] == [600, 600]


def test_the_report_tells_what_was_noticed_and_compares_before_and_after(raster: RasterPath) -> None:
    source = raster.write(pattern(60, 45), transform=Affine(10, 0, 5e5, 0, 10, 4649000))
    report = raster.make(source).output["report"]
    assert (report["verdict"], report["errors"]) == ("accept_with_fixes", [])
    assert [finding["code"] for finding in report["findings"]] == ["FLIPPED_TO_NORTH_UP"]
    assert report["type"]["detected"] == "continuous"
    compared = {row["name"]: (row["before"], row["after"]) for row in report["compared"]}
    assert compared["transform"] == ([10, 0, 5e5, 0, 10, 4649000], [10, 0, 5e5, 0, -10, 4649600])
    assert compared["height"] == (60, 60)
    assert report["cog"] == {"compression": "deflate", "overviews": []}
    assert report["steps"] == ["copied pixel by pixel: flipped north-up", "COG written with deflate, overviews average"]


@pytest.mark.parametrize(
    ("transform", "options", "step"),
    [
        (ORIGIN, {"target_crs": "EPSG:3857"}, "resampled (bilinear) into the target CRS"),
        (ORIGIN * Affine.rotation(30), {}, "resampled (bilinear) to be north-up"),
        (ORIGIN, {"nodata": 251}, "copied pixel by pixel: nodata value set right"),
    ],
)
def test_steps_say_what_was_done(raster: RasterPath, transform: Affine, options: dict[str, Any], step: str) -> None:
    assert step in raster.make(raster.write(pattern(60, 45), transform=transform), **options).output["report"]["steps"]


def test_a_step_names_sidecars_as_what_was_taken_in(raster: RasterPath) -> None:
    source = raster.write(pattern(60, 45), crs=None)
    source.with_suffix(".prj").write_text(CRS.from_epsg(32633).to_wkt())
    assert raster.make(source).output["report"]["steps"][0] == "copied pixel by pixel: sidecars taken in"


def test_metadata_that_stays_true_is_kept(raster: RasterPath) -> None:
    def describe(dst: Any) -> None:
        dst.descriptions = ("first", "second")
        dst.scales, dst.offsets = (0.0001, 2.0), (0.0, -5.0)
        dst.set_band_unit(2, "m")
        dst.update_tags(1, sensor="own")

    tags = {"AREA_OR_POINT": "Point", "mine": "kept", "TIFFTAG_DATETIME": "2024:05:01 10:00:00"}
    values = stack(2, 100, 120, "int16", -2000, 9000)
    source = raster.write(values, before=describe, tags=tags, nodata=-32768)
    for made in (raster.make(source), raster.make(source, nodata=-9999)):
        with opened(made) as cog:
            assert cog.descriptions == ("first", "second")
            assert (cog.scales, cog.offsets, cog.units[1]) == ((0.0001, 2.0), (0.0, -5.0), "m")
            assert cog.tags(1)["sensor"] == "own"
            assert {key: cog.tags()[key] for key in tags} == tags
            assert cog.transform == ORIGIN
            assert np.array_equal(cog.read(), values)
    assert made.codes == ["NODATA_REPLACED"]
    assert made.output["raster"]["nodata"] == -9999


def test_a_palette_and_its_classes_survive_into_the_overviews(raster: RasterPath) -> None:
    rows, columns = np.mgrid[0:1100, 0:1100]
    classes = np.array([1, 2, 3, 4, 5], np.uint8)[((rows // 7) * 5 + columns // 7 * 3) % 5]
    palette = {value: (40 * value, 255 - 40 * value, 10 * value, 255) for value in range(6)}
    source = raster.write(classes, nodata=0, photometric="palette", before=lambda dst: dst.write_colormap(1, palette))
    made = raster.make(source)
    with opened(made) as cog:
        assert cog.colorinterp == (ColorInterp.palette,)
        assert [cog.colormap(1)[value] for value in range(1, 6)] == list(palette.values())[1:]
        assert cog.colormap(1)[0] == (*palette[0][:3], 0), "GDAL shows nodata as transparent"
        assert (cog.nodata, np.array_equal(cog.read(1), classes)) == (0, True)
        levels = len(cog.overviews(1))
    assert levels == 2
    for level in range(levels):
        with rasterio.open(made.path, overview_level=level) as coarse:
            assert set(np.unique(coarse.read(1))) <= {1, 2, 3, 4, 5}
    assert made.output["render"]["colormap"] == {str(v): list(palette[v]) for v in range(1, 6)}


def test_classes_without_palette_are_never_averaged(raster: RasterPath) -> None:
    rows, columns = np.mgrid[0:1024, 0:1024]
    codes = np.array([10, 20, 30, 40, 95, 100], np.uint8)[((rows // 3) * 5 + columns // 3) % 6]
    made = raster.make(raster.write(codes, nodata=0))
    with rasterio.open(made.path, overview_level=0) as coarse:
        assert set(np.unique(coarse.read(1))) <= set(np.unique(codes))
    assert set(made.output["render"]["colormap"]) == {"10", "20", "30", "40", "95", "100"}


def test_one_bit_becomes_zeros_and_ones(raster: RasterPath) -> None:
    values = (pattern(600, 700) % 2).astype(np.uint8)
    made = raster.make(raster.write(values, nbits=1, compress="ccittfax4"))
    with opened(made) as cog:
        assert np.array_equal(cog.read(1), values)
        assert "NBITS" not in cog.tags(1, ns="IMAGE_STRUCTURE")


def test_int64_values_and_their_nodata_stay_exact(raster: RasterPath) -> None:
    values = np.array([[2**53 + 1, 5], [-(2**62), 2**62 + 1]], np.int64)
    made = raster.make(raster.write(values))
    assert np.array_equal(pixels(made.path)[0], values)


def test_a_64_bit_nodata_that_cannot_be_carried_is_refused(raster: RasterPath) -> None:
    source = raster.write(np.array([[1, 2], [3, 4]], np.int64), transform=Affine(10, 0, 5e5, 0, 10, 4.6e6))
    facts = raster.validate(source).output["raster"] | {"nodata": 2**60 + 1, "validity": "nodata"}  # type: ignore[index]
    params = CreateCogParams(source=str(source), raster=facts, output_prefix="silver/x")
    with pytest.raises(DataError) as refusal:
        create_cog(raster.context(), params)
    assert refusal.value.detail.code == "DTYPE_UNSUPPORTED"


def test_an_internal_mask_is_kept_exactly(raster: RasterPath) -> None:
    mask = np.where(pattern(600, 600) % 3 > 0, 255, 0).astype(np.uint8)
    made = raster.make(raster.write(stack(3, 600, 600), mask=mask, photometric="RGB"))
    with opened(made) as cog:
        assert np.array_equal(cog.dataset_mask(), mask)
        assert np.array_equal(cog.read(), stack(3, 600, 600))
    statistics = made.output["raster"]["bands"][0]["statistics"]
    assert statistics["mean"] == pytest.approx(pattern(600, 600)[mask > 0].mean())


def test_a_mask_beside_a_nodata_value_wins(raster: RasterPath) -> None:
    mask = np.full((64, 64), 255, np.uint8)
    mask[:20] = 0
    made = raster.make(raster.write(pattern(64, 64), nodata=0, mask=mask))
    with opened(made) as cog:
        assert cog.nodata is None
        assert np.array_equal(cog.dataset_mask(), mask)


def test_an_alpha_band_is_kept_exactly(raster: RasterPath) -> None:
    bands = stack(4, 128, 128)
    bands[3] = np.where(np.hypot(*np.mgrid[-64:64, -64:64]) < 55, 255, 0)
    made = raster.make(raster.write(bands, photometric="RGB", alpha="YES"))
    with opened(made) as cog:
        assert cog.colorinterp[3] is ColorInterp.alpha
        assert np.array_equal(cog.read(), bands)
        assert np.array_equal(cog.dataset_mask(), bands[3])


def test_an_alpha_band_that_is_data_masks_nothing(raster: RasterPath) -> None:
    bands = stack(4, 96, 96, low=5, high=240)
    made = raster.make(raster.write(bands, photometric="RGB", alpha="YES"))
    with opened(made) as cog:
        assert ColorInterp.alpha not in cog.colorinterp
        assert np.array_equal(cog.read(), bands)
        assert (cog.dataset_mask() == 255).all()


def test_nan_becomes_nodata_and_nothing_else_changes(raster: RasterPath) -> None:
    values = pattern(64, 64, "float32", -20, 300)
    values[3, 4], values[5, 6] = np.nan, np.inf
    made = raster.make(raster.write(values))
    with opened(made) as cog:
        assert np.isnan(cog.nodata)
        expected = values.copy()
        expected[5, 6] = np.nan
        assert np.array_equal(cog.read(1), expected, equal_nan=True)
    assert made.output["raster"]["nodata"] == "nan"
    made = raster.make(raster.write(values, "declared.tif", nodata=-9999))
    with opened(made) as cog:
        assert (cog.nodata, cog.read(1)[3, 4], cog.read(1)[5, 6]) == (-9999, -9999, -9999)


def test_what_is_not_finite_is_masked_where_a_mask_says_what_is_valid(raster: RasterPath) -> None:
    values = pattern(40, 50, "float32")
    values[3, 4], values[5, 6] = np.nan, np.inf
    mask = np.full(values.shape, 255, np.uint8)
    mask[:2] = 0
    made = raster.make(raster.write(values, mask=mask))
    assert made.codes == ["NONFINITE_MASKED"]
    mask[3, 4] = mask[5, 6] = 0
    with opened(made) as cog:
        np.testing.assert_array_equal(cog.dataset_mask(), mask)
        np.testing.assert_array_equal(cog.read(1), values)


def test_a_nodata_value_that_cannot_be_leaves_the_file(raster: RasterPath) -> None:
    source = raster.write(pattern(16, 16, "int16", 0, 900), nodata=-32768)
    signed, unsigned = (b"\x53\x01\x03\x00\x01\x00\x00\x00" + kind for kind in (b"\x02\x00", b"\x01\x00"))
    source.write_bytes(source.read_bytes().replace(signed, unsigned))
    made = raster.make(source)
    assert b"-32768" not in made.path.read_bytes()
    assert made.output["raster"]["bands"][0]["statistics"]["minimum"] == 0


@pytest.mark.parametrize(
    ("transform", "turned"),
    [
        (Affine(10, 0, 500000, 0, 10, 4649000), lambda a: a[::-1]),
        (Affine(-10, 0, 500450, 0, -10, 4649600), lambda a: a[:, ::-1]),
        (Affine(-10, 0, 500450, 0, 10, 4649000), lambda a: a[::-1, ::-1]),
    ],
)
def test_a_flip_is_exact(raster: RasterPath, transform: Affine, turned: Any) -> None:
    values = pattern(60, 45, "int16", 0, 900)
    made = raster.make(raster.write(values, transform=transform, nodata=-1))
    with opened(made) as cog:
        assert cog.transform == Affine(10, 0, 500000, 0, -10, 4649600)
        assert np.array_equal(cog.read(1), turned(values))
    assert "FLIPPED_TO_NORTH_UP" in made.codes


def test_longitudes_from_0_to_360_start_at_minus_180(raster: RasterPath) -> None:
    values = np.repeat(np.arange(360, dtype=np.float32)[None], 180, 0)
    made = raster.make(raster.write(values, crs="EPSG:4326", transform=from_origin(0, 90, 1, 1)))
    with opened(made) as cog:
        assert tuple(cog.bounds) == (-180, -90, 180, 90)
        samples = [value.item() for value in cog.sample([(-0.5, 10.5), (0.5, 10.5), (-179.5, -40.5)])]
    assert samples == [359, 0, 180]


def test_a_crs_of_the_submit_is_written(raster: RasterPath) -> None:
    values = pattern(64, 64)
    made = raster.make(raster.write(values, crs=None), crs=UTM33)
    with opened(made) as cog:
        assert cog.crs.to_epsg() == 32633
        assert np.array_equal(cog.read(1), values)


def test_a_compound_crs_is_kept_whole(raster: RasterPath) -> None:
    values = pattern(64, 64, "float32", 0, 900)
    made = raster.make(raster.write(values, crs="EPSG:32633+5773"))
    with opened(made) as cog:
        assert "EGM96" in cog.crs.to_wkt()
        assert np.array_equal(cog.read(1), values)
    assert made.output["raster"]["crs_code"] == UTM33


def test_a_rotated_raster_is_resampled_north_up(raster: RasterPath) -> None:
    transform = Affine.translation(500000, 4650000) @ Affine.rotation(45) @ Affine.scale(10, -10)
    rows, columns = np.mgrid[0:96, 0:48]
    values = (rows + 2 * columns + 1).astype(np.float32)
    made = raster.make(raster.write(values, transform=transform))
    with opened(made) as cog:
        assert cog.transform.b == cog.transform.d == 0
        xs, ys = zip(*(transform @ c for c in ((0, 0), (48, 0), (48, 96), (0, 96))), strict=True)
        assert tuple(cog.bounds) == pytest.approx((min(xs), min(ys), max(xs), max(ys)), abs=20)
        places = [transform @ (c + 0.5, r + 0.5) for r, c in ((20, 20), (60, 30), (90, 5))]
        found = [value.item() for value in cog.sample(places)]
        assert np.isnan(cog.read(1)[0, 0])
    assert found == pytest.approx([61, 121, 101], abs=1.5)


@pytest.mark.parametrize("west", [200, -182, 358, 530])
@pytest.mark.parametrize("by_points", [False, True])
def test_a_rotated_raster_is_moved_by_whole_turns_too(raster: RasterPath, west: float, by_points: bool) -> None:
    place = Affine.translation(west, 45) @ Affine.rotation(20) @ Affine.scale(0.05, -0.05)
    rows, columns = np.mgrid[0:60, 0:50].astype(np.float32)
    corners = [(r, c, *(place @ (c, r))) for r in (0, 60) for c in (0, 50)]
    points = [GroundControlPoint(row=r, col=c, x=x, y=y) for r, c, x, y in corners]
    settings: dict[str, Any] = {"transform": None, "gcps": points} if by_points else {"transform": place}
    made = raster.make(raster.write(rows + 2 * columns, crs="EPSG:4326", **settings))
    assert "LONGITUDES_SHIFTED" in made.codes
    with opened(made) as cog:
        assert -180 <= cog.bounds.left < 180
        places = [place @ (c + 0.5, r + 0.5) for r, c in ((20, 20), (50, 30), (10, 45))]
        moved = [((x - cog.bounds.left) % 360 + cog.bounds.left, y) for x, y in places]
        assert [value.item() for value in cog.sample(moved)] == pytest.approx([60, 110, 100], abs=1.5)


def test_a_long_rotated_raster_is_not_smeared(raster: RasterPath) -> None:
    transform = Affine.translation(500000, 4650000) @ Affine.rotation(10) @ Affine.scale(10, -10)
    values = np.zeros((600, 16), np.float32)
    values[300, 8] = 1000
    made = raster.make(raster.write(values, transform=transform))
    with opened(made) as cog:
        found = np.nan_to_num(cog.read(1))
    assert found.max() > 250
    assert found.sum() == pytest.approx(1000, rel=0.25)
    assert np.ptp(np.argwhere(found > 1), axis=0).max() <= 2


def test_control_points_place_a_raster(raster: RasterPath) -> None:
    points = [
        GroundControlPoint(row=r, col=c, x=9 + c * 1e-3, y=46 - r * 1e-3, id=f"{r}-{c}")
        for r in (0, 80)
        for c in (0, 100)
    ]
    values = pattern(80, 100, "uint16", 1, 4000)
    made = raster.make(raster.write(values, crs="EPSG:4326", transform=None, gcps=points))
    with opened(made) as cog:
        assert tuple(cog.bounds) == pytest.approx((9, 45.92, 9.1, 46), abs=1e-6)
        assert np.array_equal(cog.read(1), values)


@pytest.mark.parametrize(
    "places",
    [
        [(r, c) for r in (0, 80) for c in (0, 50, 100)],
        [(r, c) for r in (0, 20, 40, 60, 80) for c in (0, 100)],
        [(0, 0), (0, 100), (80, 0)] * 2,
        [(0, 0), (0, 100), (80, 0), (80, 100)] * 3,
        [(40 + 30 * np.sin(turn), 50 + 30 * np.cos(turn)) for turn in range(8)],
    ],
)
@pytest.mark.parametrize("options", [{}, {"target_crs": "EPSG:3857"}])
def test_control_points_that_determine_no_curve_place_a_raster_too(
    raster: RasterPath, places: list[tuple[float, float]], options: dict[str, str]
) -> None:
    points = [GroundControlPoint(row=r, col=c, x=9 + c * 1e-3, y=46 - r * 1e-3) for r, c in places]
    rows, columns = np.mgrid[0:80, 0:100].astype("float32")
    made = raster.make(raster.write(1000 * rows + columns, crs="EPSG:4326", transform=None, gcps=points), **options)
    lons, lats = 9 + np.array([20.5, 50.5, 90.5]) * 1e-3, 46 - np.array([10.5, 40.5, 70.5]) * 1e-3
    with opened(made) as cog:
        xs, ys = transform_points("EPSG:4326", cog.crs, lons, lats)
        found = [value.item() for value in cog.sample(zip(xs, ys, strict=True))]
    assert found == pytest.approx([10020, 40050, 70090], abs=1 if not options else 1000)


@pytest.mark.parametrize(("dtype", "nodata"), [("uint8", 0), ("float32", -9999), ("float32", None), ("int16", None)])
def test_a_target_crs_moves_pixels_to_the_same_places(raster: RasterPath, dtype: str, nodata: float | None) -> None:
    rows, columns = np.mgrid[0:200, 0:300]
    values = (1 + (rows // 4 + columns // 4) % 120).astype(dtype)
    profile = {} if nodata is None else {"nodata": nodata}
    source = raster.write(values, transform=FAR_EAST, **profile)
    made = raster.make(source, target_crs="EPSG:3857", raster_type="continuous")
    place = (801505.0, 4648771.0)
    (x,), (y,) = rasterio.warp.transform(UTM33, "EPSG:3857", [place[0]], [place[1]])
    with rasterio.open(source) as src, opened(made) as cog:
        assert cog.crs.to_epsg() == 3857
        expected, found = next(src.sample([place])).item(), next(cog.sample([(x, y)])).item()
        assert found == pytest.approx(expected, abs=1)
        corner = cog.dataset_mask()[0, 0]
        assert corner == 0, "the collar holds no data"
        assert cog.dataset_mask().mean() > 200


def test_classes_are_warped_by_nearest_neighbour(raster: RasterPath) -> None:
    rows, columns = np.mgrid[0:300, 0:300]
    codes = np.array([10, 20, 95], np.uint8)[(rows // 5 + columns // 5) % 3]
    made = raster.make(raster.write(codes, nodata=0), target_crs="EPSG:3857")
    assert set(np.unique(pixels(made.path))) <= {0, 10, 20, 95}


def test_rgb_is_warped_without_black_collars(raster: RasterPath) -> None:
    made = raster.make(
        raster.write(stack(3, 200, 300, low=50), transform=FAR_EAST, photometric="RGB"), target_crs="EPSG:3857"
    )
    with opened(made) as cog:
        assert cog.count == 3
        mask = cog.dataset_mask()
        assert set(np.unique(mask)) == {0, 255}
        assert cog.read(1)[mask > 0].min() > 0


def test_lossy_compression_keeps_validity_exactly(raster: RasterPath) -> None:
    bands = stack(3, 300, 300, low=20, high=240)
    valid = np.add.outer(np.arange(300), np.arange(300)) > 150
    bands[:, ~valid] = 0
    bands[0, 200:210, 200:210] = 0
    made = raster.make(raster.write(bands, nodata=0, photometric="RGB"), compression="jpeg")
    with opened(made) as cog:
        assert cog.profile["compress"] == "jpeg"
        assert cog.nodata is None
        assert np.array_equal(cog.dataset_mask() > 0, valid)


@pytest.mark.parametrize("compression", ["deflate", "zstd", "lzw", "none"])
def test_lossless_compressions_are_lossless(raster: RasterPath, compression: str) -> None:
    values = pattern(600, 600, "uint16", 0, 60000)
    made = raster.make(raster.write(values), compression=compression)
    with opened(made) as cog:
        assert str(cog.profile.get("compress", "none")).lower() == compression
        assert np.array_equal(cog.read(1), values)


def valid_cog(raster: RasterPath, values: Any, **options: Any) -> Path:
    plain = raster.write(values, "plain.tif")
    source = raster.folder / "cog.tif"
    settings = {"compress": "deflate", "blocksize": 512, "overview_resampling": "average"} | options
    rasterio.shutil.copy(plain, source, driver="COG", **settings)
    return source


@pytest.mark.parametrize("resampling", ["nearest", "average", "bilinear", "mode"])
def test_a_valid_cog_is_copied_not_recompressed(raster: RasterPath, resampling: str) -> None:
    source = valid_cog(raster, pattern(1203, 1307, "uint16", 0, 9000), overview_resampling=resampling)
    made = raster.make(source)
    assert made.codes == ["COG_KEPT"]
    assert made.path.read_bytes() == source.read_bytes()


def test_a_valid_cog_with_nodata_is_copied(raster: RasterPath) -> None:
    values = pattern(1100, 1100, "float32", 0, 900)
    values[:300, :500] = np.nan
    plain = raster.write(values, "plain.tif", nodata=np.nan)
    source = raster.folder / "cog.tif"
    rasterio.shutil.copy(plain, source, driver="COG", compress="zstd", blocksize=512, overview_resampling="average")
    assert raster.make(source).codes == ["COG_KEPT"]


@pytest.mark.parametrize("edited_pixels", [1, 512])
def test_a_cog_whose_overviews_are_old_is_rebuilt(raster: RasterPath, edited_pixels: int) -> None:
    values = pattern(1200, 1300, "uint16", 0, 9000)
    plain = raster.write(values, "plain.tif")
    with rasterio.open(plain, "r+") as dst:
        dst.build_overviews([2, 4], rasterio.enums.Resampling.average)
        # Nine equal rows and columns, so that no overview pixel may differ in the middle.
        values[600 : 608 + edited_pixels, 700 : 708 + edited_pixels] = 60000
        dst.write(values, 1)
    source = raster.folder / "cog.tif"
    rasterio.shutil.copy(plain, source, driver="COG", compress="deflate", blocksize=512, overviews="FORCE_USE_EXISTING")
    assert cog_validate(source, strict=True, quiet=True) == (True, [], [])
    made = raster.make(source)
    assert made.codes == ["OVERVIEWS_REBUILT"]
    assert np.array_equal(pixels(made.path)[0], values)
    with rasterio.open(made.path, overview_level=0) as coarse:
        assert coarse.read(1)[302, 352] == 60000


@pytest.mark.parametrize("options", [{"blocksize": 256}, {"overviews": "NONE"}, {"compress": "none"}])
def test_a_cog_of_another_profile_is_made_anew(raster: RasterPath, options: dict[str, Any]) -> None:
    made = raster.make(valid_cog(raster, pattern(1200, 1300, "uint16", 0, 9000), **options))
    assert "COG_KEPT" not in made.codes
    with opened(made) as cog:
        assert (cog.block_shapes[0], cog.overviews(1)) == ((512, 512), [2, 4])


def test_a_long_thin_raster_is_whole(raster: RasterPath) -> None:
    values = pattern(5000, 3, "int16")
    made = raster.make(raster.write(values))
    with opened(made) as cog:
        assert np.array_equal(cog.read(1), values)


def test_a_page_of_several_is_taken_alone(raster: RasterPath) -> None:
    source = raster.write(pattern(40, 50))
    second = pattern(30, 20, "float32", 0, 900)
    profile = {"count": 1, "height": 30, "width": 20, "dtype": "float32", "crs": UTM33, "transform": ORIGIN}
    with rasterio.open(source, "w", driver="GTiff", append_subdataset="YES", **profile) as dst:
        dst.write(second, 1)
    made = raster.make(source, subdataset="2")
    assert np.array_equal(pixels(made.path)[0], second)


def test_a_cancelled_task_stops(raster: RasterPath) -> None:
    source = raster.write(pattern(64, 64))
    facts = raster.validate(source).output["raster"]  # type: ignore[index]
    raster.cancelled = True
    with pytest.raises(TaskCancelled):
        create_cog(raster.context(), CreateCogParams(source=str(source), raster=facts, output_prefix="silver/x"))


def test_a_wrong_option_is_refused_here_too(raster: RasterPath) -> None:
    source = raster.write(pattern(64, 64))
    facts = raster.validate(source).output["raster"]  # type: ignore[index]
    options = RasterOptions(target_crs="nowhere")
    params = CreateCogParams(source=str(source), raster=facts, options=options, output_prefix="silver/x")
    with pytest.raises(ParameterInvalid, match="target_crs"):
        create_cog(raster.context(), params)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_64_bit_integers_are_resampled_exactly_or_refused(raster: RasterPath, dtype: str) -> None:
    small = raster.make(raster.write(pattern(40, 40, dtype)), target_crs="EPSG:4326")
    with opened(small) as cog:
        assert cog.dtypes[0] == dtype
    large = raster.write(pattern(40, 40, dtype) + np.asarray(2**53, dtype))
    raster.rejection(large, target_crs="EPSG:4326")
    assert np.array_equal(pixels(raster.make(large).path), pixels(large)), "exact where nothing is resampled"
