"""Statistics agree with numpy on arrays known before writing; masked, nodata and NaN pixels never count."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.raster.statistics import BandStatistics, band_statistics
from tests.support.raster_path import RasterPath, pattern, stack, write_raster


def measured(path: Path, nodata: Any = None) -> list[BandStatistics]:
    with rasterio.open(path) as src:
        return band_statistics(src, nodata, lambda done, total: None)


@given(
    dtype=st.sampled_from(["uint8", "int8", "int16", "uint16", "int32", "float32", "float64"]),
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_moments_and_percentiles_agree_with_numpy(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, height: int, width: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(20, 30, (height, width)).clip(-100, 120).astype(dtype)
    path = write_raster(tmp_path_factory.mktemp("statistics") / "x.tif", values)
    (found,) = measured(path)
    exact = values.astype(np.float64)
    assert (found.minimum, found.maximum) == (values.min(), values.max())
    assert found.mean == pytest.approx(exact.mean(), abs=1e-6)
    assert found.stddev == pytest.approx(exact.std(), abs=1e-5)
    assert found.valid_percent == 100
    bin_width = float(np.ptp(exact)) / 65_536
    for share, percentile in ((2, found.p2), (98, found.p98)):
        expected = np.percentile(exact, share, method="inverted_cdf")
        assert percentile == pytest.approx(expected, abs=0 if values.dtype.itemsize <= 2 else bin_width + 1e-9)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("spike", "passes"), [(0, 1), (90_000, 2), (-90_000, 2)])
def test_with_an_overview_one_pass_is_enough_unless_a_value_lies_far_beyond(
    raster: RasterPath, dtype: str, spike: int, passes: int
) -> None:
    values = np.add.outer(np.arange(600), np.arange(700)).astype(dtype)
    values[:100], values[300, 300] = -9999, spike or 600
    path = raster.write(values, nodata=-9999)
    with rasterio.open(path, "r+") as dst:
        dst.build_overviews([8], rasterio.enums.Resampling.average)
    starts: list[int] = []
    with rasterio.open(path) as src:
        (found,) = band_statistics(src, -9999, lambda done, _: starts.append(done))
    assert starts.count(600 * 700) == passes
    exact = values[values != -9999].astype(np.float64)
    assert (found.minimum, found.maximum) == (exact.min(), exact.max())
    assert (found.mean, found.stddev) == (pytest.approx(exact.mean()), pytest.approx(exact.std()))
    bins = 2 * float(np.ptp(exact)) / 65_536
    for share, percentile in ((2, found.p2), (98, found.p98)):
        assert percentile == pytest.approx(np.percentile(exact, share, method="inverted_cdf"), abs=bins)


@pytest.mark.parametrize(
    ("dtype", "nodata"), [("uint8", 7), ("int32", -9999), ("float32", -9999.0), ("float32", "nan")]
)
def test_nodata_never_counts(raster: RasterPath, dtype: str, nodata: Any) -> None:
    values = pattern(200, 200, dtype, 20, 220)
    expected = values[50:].astype(np.float64)
    values[:50] = np.array(float(nodata)).astype(dtype)
    (found,) = measured(raster.write(values), nodata)
    assert (found.minimum, found.maximum) == (expected.min(), expected.max())
    assert found.mean == pytest.approx(expected.mean())
    assert found.valid_percent == 75


def test_nan_and_infinity_never_count(raster: RasterPath) -> None:
    values = pattern(10, 10, "float32", 1, 9)
    values[0, :5] = np.nan
    values[1, :5] = np.inf
    (found,) = measured(raster.write(values))
    assert found.maximum == 9
    assert found.valid_percent == 90


def test_masked_pixels_never_count(raster: RasterPath) -> None:
    mask = np.zeros((64, 64), np.uint8)
    mask[10:20] = 255
    bands = measured(raster.write(stack(3, 64, 64), mask=mask, photometric="RGB"))
    for band, values in zip(bands, stack(3, 64, 64)[:, 10:20], strict=True):
        assert (band.minimum, band.maximum) == (values.min(), values.max())
        assert band.mean == pytest.approx(values.mean())


def test_no_valid_pixel_gives_no_numbers(raster: RasterPath) -> None:
    for dtype in ("uint8", "float32"):
        (found,) = measured(raster.write(np.zeros((8, 8), dtype), f"{dtype}.tif"), 0)
        assert (found.minimum, found.mean, found.p2, found.valid_percent, found.classes) == (None, None, None, 0, ())


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
def test_classes_are_listed_up_to_64(raster: RasterPath, dtype: str) -> None:
    few, many = np.arange(64).reshape(8, 8).astype(dtype), np.arange(65).reshape(5, 13).astype(dtype)
    assert measured(raster.write(few, "few.tif"))[0].classes == tuple(range(64))
    assert measured(raster.write(many, "many.tif"))[0].classes is None


def test_values_beyond_a_double_leave_moments_out(raster: RasterPath) -> None:
    values = np.array([[1.7e308, -1.7e308], [1.7e308, 1.7e308]])
    (found,) = measured(raster.write(values))
    assert (found.minimum, found.maximum, found.stddev) == (-1.7e308, 1.7e308, None)


@pytest.mark.parametrize(
    ("scale", "farthest"), [(8e307, 1.7e308), (1e300, 1.7e308), (1e-3, 1.7e308), (1e-310, 1e-309), (5e-324, 1e-322)]
)
def test_values_at_the_ends_of_doubles_are_counted_without_a_warning(
    raster: RasterPath, scale: float, farthest: float
) -> None:
    """The overview shows the middle alone, so the range that it suggests is small beside what comes."""
    values = np.linspace(-0.3, 0.3, 700 * 600).reshape(600, 700) * scale
    values[301, 333], values[303, 335] = -farthest, farthest
    source = raster.write(values, tiled=True)
    with rasterio.open(source, "r+") as dst:
        dst.build_overviews([2, 4])
    (found,) = measured(source)
    assert (found.minimum, found.maximum) == (values.min(), values.max())


def test_a_constant_raster_has_one_value(raster: RasterPath) -> None:
    (found,) = measured(raster.write(np.full((9, 9), 2.5, np.float32)))
    assert (found.p2, found.p98, found.stddev) == (2.5, 2.5, 0)
