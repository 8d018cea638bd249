"""NaN and infinity are found whatever else says what is valid: a mask, alpha, or an alpha band that is data."""

import math
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import ColorInterp

from tests.support.raster_path import Array, RasterPath, stack

HEIGHT, WIDTH = 40, 60
HOLE = np.s_[20:24, 10:20]
WAYS: dict[str, dict[str, Any]] = {"copied": {}, "resampled": {"target_crs": "EPSG:25833"}}


def last_is_alpha(dst: Any) -> None:
    """Tag the last of some bands as alpha."""
    dst.colorinterp = (*[ColorInterp.undefined] * (dst.count - 1), ColorInterp.alpha)


def mask_of_rows() -> Array:
    """Return a mask without the upper rows."""
    mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
    mask[:8] = 0
    return mask


def reflectance(alpha_hole: float) -> Array:
    """Return three bands and near infrared, never opaque, that holds something else in one place."""
    array = stack(4, HEIGHT, WIDTH, "float32", low=10)
    array[3] = np.linspace(0.1, 0.6, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)
    array[(3, *HOLE)] = alpha_hole
    return array


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by", ["mask", "alpha"])
@pytest.mark.parametrize("nodata", [None, math.nan, -9999.0, math.inf])
@pytest.mark.parametrize("hole", [math.nan, math.inf])
def test_a_mask_never_says_that_nan_is_valid(
    raster: RasterPath, way: str, by: str, nodata: float | None, hole: float
) -> None:
    """The mask wins over nodata NaN as over any other, and pixels without a number are masked beside it."""
    array, mask = stack(2, HEIGHT, WIDTH, "float32", low=10), mask_of_rows()
    array[(slice(None), *HOLE)] = hole
    settings: dict[str, Any] = {"mask": mask}
    if by == "alpha":
        array = np.concatenate([array, mask[None].astype("float32") / 255])
        settings = {"before": last_is_alpha}
    made = raster.make(raster.write(array, nodata=nodata, **settings), **WAYS[way])
    assert "NONFINITE_MASKED" in made.codes
    assert ("NODATA_IGNORED" in made.codes) == (nodata is not None)
    expected = mask > 0
    expected[HOLE] = False
    with rasterio.open(made.path) as cog:
        assert cog.nodata is None
        assert np.isfinite(cog.read(1)[cog.read_masks(1) > 0]).all()
        if way == "copied":
            np.testing.assert_array_equal(cog.read_masks(1) > 0, expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("alpha_hole", "missing"), [(math.nan, [3]), (0, [0]), (0.25, [0, 1]), (math.inf, [0, 3])])
def test_nan_is_found_in_and_under_an_alpha_band_that_is_data(
    raster: RasterPath, way: str, alpha_hole: float, missing: list[int]
) -> None:
    array = reflectance(alpha_hole)
    for band in set(missing) - {3}:
        array[(band, *HOLE)] = math.nan
    made = raster.make(raster.write(array, before=last_is_alpha), **WAYS[way])
    assert {"ALPHA_IS_DATA", "NODATA_SET_TO_NAN"} <= set(made.codes)
    with rasterio.open(made.path) as cog:
        assert math.isnan(cog.nodata)
        assert cog.colorinterp[3] is ColorInterp.undefined
        if way == "copied":
            np.testing.assert_array_equal(cog.read_masks() > 0, np.isfinite(array))


def test_a_mask_without_any_valid_pixel_is_empty_beside_an_alpha_band_that_is_data(raster: RasterPath) -> None:
    source = raster.write(reflectance(0.25), mask=np.zeros((HEIGHT, WIDTH), np.uint8), before=last_is_alpha)
    assert raster.rejection(source).detail.code == "RASTER_EMPTY"


def test_values_that_alpha_wins_over_are_no_nan(raster: RasterPath) -> None:
    """Nodata that differs by band would become NaN, were there no alpha."""
    array = np.concatenate([stack(2, HEIGHT, WIDTH, "float32", low=10), mask_of_rows()[None].astype("float32") / 255])
    array[(0, *HOLE)], array[(1, *HOLE)] = -1, -2
    source = raster.write(array, before=last_is_alpha)
    bands = "".join(f"<PAMRasterBand band='{n}'><NoDataValue>-{n}</NoDataValue></PAMRasterBand>" for n in (1, 2))
    source.with_name("source.tif.aux.xml").write_text(f"<PAMDataset>{bands}</PAMDataset>")
    made = raster.make(source)
    ignored = [f for f in made.output["report"]["findings"] if f["code"] == "NODATA_IGNORED"]
    assert [f["from"] for f in ignored] == [[-1.0, -2.0, None]]
    assert "nodata -1.0 and -2.0 and none" in ignored[0]["message"]
    assert "NONFINITE_MASKED" not in made.codes
    with rasterio.open(made.path) as cog:
        np.testing.assert_array_equal(cog.read(), array)
