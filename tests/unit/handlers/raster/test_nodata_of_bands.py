"""Nodata that a sidecar has for bands, and holes that bands have for themselves."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine

from tests.support.raster_path import Array, RasterPath, pixels, stack


def _aux_of(*nodata: str) -> str:
    bands = [
        f"<PAMRasterBand band='{number}'>{f'<NoDataValue>{text}</NoDataValue>' if text else ''}</PAMRasterBand>"
        for number, text in enumerate(nodata, 1)
    ]
    return f"<PAMDataset>{''.join(bands)}</PAMDataset>"


def _of_bands(raster: RasterPath, array: Array, *nodata: str, **settings: Any) -> Path:
    source = raster.write(array, **settings)
    source.with_name("source.tif.aux.xml").write_text(_aux_of(*nodata))
    return source


SOUTH_UP = Affine(10, 0, 500000, 0, 10, 4649776)
WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "copied": ({}, {}),
    "flipped": ({"transform": SOUTH_UP}, {}),
    "resampled": ({}, {"target_crs": "EPSG:25833"}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dtype", "nodata", "one"),
    [
        ("float32", ["-1", "-2"], math.nan),
        ("float64", ["nan", "-2"], math.nan),
        ("float32", ["-1", ""], math.nan),
        ("int16", ["-1", "-2"], -2),
        ("int64", ["", "-9.999e3"], -9999),
        ("uint8", ["251", "255"], 255),
    ],
)
def test_nodata_that_differs_by_band_is_unified(
    raster: RasterPath, way: str, dtype: str, nodata: list[str], one: float
) -> None:
    array = stack(2, 40, 60, dtype, low=1)
    expected = array.copy()
    for band, text in enumerate(nodata):
        if text:
            array[band, 5 + band : 15, 20:30] = np.dtype(dtype).type(float(text))
            expected[band, 5 + band : 15, 20:30] = np.dtype(dtype).type(one)
    layout, options = WAYS[way]
    source = _of_bands(raster, array, *nodata, **layout)
    assert "NODATA_UNIFIED" in raster.codes(source, header_only=True, **options)
    made = raster.make(source, **options)
    unified = [f for f in made.output["report"]["findings"] if f["code"] == "NODATA_UNIFIED"]
    assert [(f["level"], f["to"]) for f in unified] == [("warning", "nan" if math.isnan(one) else one)]
    assert made.output["report"]["verdict"] == "accept_with_fixes"
    with rasterio.open(made.path) as cog:
        np.testing.assert_equal(cog.nodata, one)
    np.testing.assert_allclose(pixels(made.path), expected[:, ::-1] if way == "flipped" else expected, atol=1e-6)
    shares = [band["statistics"]["valid_percent"] for band in made.output["raster"]["bands"]]
    assert shares == pytest.approx([100 - 100 * (10 - n) * 10 / 2400 if t else 100 for n, t in enumerate(nodata)])


@pytest.mark.parametrize(("nodata", "held"), [(["0", "255"], 255), (["0", ""], 0)])
def test_nodata_of_one_band_that_is_data_of_another_is_refused(
    raster: RasterPath, nodata: list[str], held: int
) -> None:
    """No value of a whole number type is sure to be free: data must not become nodata without a word."""
    array = stack(2, 20, 30, low=1, high=200)
    array[0, 3, 4:9] = array[1, 3, 4:9] = held
    source = _of_bands(raster, array, *nodata)
    refusal = raster.rejection(source).detail
    assert (refusal.code, refusal.field) == ("SIDECAR_INVALID", "sidecar")
    assert f"take {held}, which 5 pixels hold as data" in refusal.message
    assert raster.make(source, nodata=7).facts["nodata"] == 7


def test_a_mask_wins_over_nodata_of_bands(raster: RasterPath) -> None:
    array = stack(2, 20, 30)
    mask = np.full((20, 30), 255, np.uint8)
    mask[:4] = 0
    made = raster.make(_of_bands(raster, array, "0", "200", mask=mask))
    assert "NODATA_IGNORED" in made.codes
    assert "NODATA_UNIFIED" not in made.codes
    np.testing.assert_array_equal(pixels(made.path), array)


@pytest.mark.parametrize("nodata", [["0.1", "0.10000000149011612"], ["-3.4028234663852886e+38", "-3.40282e+38"]])
def test_nodata_of_bands_is_compared_as_pixels_store_it(raster: RasterPath, nodata: list[str]) -> None:
    array = stack(2, 20, 30, "float32", low=1)
    array[:, 3, 4] = np.float32(nodata[0])
    made = raster.make(_of_bands(raster, array, *nodata))
    assert "NODATA_UNIFIED" not in made.codes
    np.testing.assert_array_equal(pixels(made.path), array)
    assert made.facts["nodata"] == float(np.float32(nodata[0]))


@pytest.mark.parametrize("number", ["3", "7", "0", "x", "", "9" * 5000])
def test_nodata_of_a_band_that_is_none_is_not_taken_for_that_of_another(raster: RasterPath, number: str) -> None:
    source = raster.write(stack(2, 20, 30, "float32"))
    more = f"<PAMRasterBand band='{number}'><NoDataValue>-1</NoDataValue></PAMRasterBand></PAMDataset>"
    source.with_name("source.tif.aux.xml").write_text(_aux_of("-1").replace("</PAMDataset>", more))
    refusal = raster.rejection(source).detail
    assert (refusal.code, refusal.field) == ("SIDECAR_INVALID", "sidecar")
    assert "the raster has 2 band(s)" in refusal.message


def test_a_band_told_twice_is_one_band(raster: RasterPath) -> None:
    source = raster.write(stack(2, 20, 30, "float32"))
    source.with_name("source.tif.aux.xml").write_text(_aux_of("-1", "-1.0").replace("band='2'", "band='1'"))
    assert raster.make(source).facts["nodata_of_bands"] == [-1.0, None]
    source.with_name("source.tif.aux.xml").write_text(_aux_of("-1", "-2").replace("band='2'", "band='1'"))
    assert "nodata -1 and -2 for one band" in raster.rejection(source).detail.message


@pytest.mark.parametrize(
    ("text", "warned"), [("-2", ["SIDECAR_IGNORED"]), ("nan", ["SIDECAR_IGNORED"]), ("-1.0", []), ("-1", [])]
)
def test_the_own_nodata_of_a_file_wins_over_its_sidecar(raster: RasterPath, text: str, warned: list[str]) -> None:
    source = raster.write(stack(2, 20, 30, "float32"), nodata=-1)
    source.with_name("source.tif.aux.xml").write_text(_aux_of(text, text))
    assert [f.code for f in raster.validate(source).findings if f.code == "SIDECAR_IGNORED"] == warned
    assert raster.make(source).facts["nodata"] == -1


@pytest.mark.parametrize("nodata", [["-1", "-1.0"], ["nan", "NaN"], ["-1e0", "-1"]])
def test_one_value_in_several_spellings_is_one(raster: RasterPath, nodata: list[str]) -> None:
    source = raster.write(stack(2, 20, 30, "float32"))
    source.with_name("source.tif.aux.xml").write_text(_aux_of(*nodata))
    assert raster.make(source).facts["nodata"] in (-1.0, "nan")


@pytest.mark.parametrize(
    ("dtype", "nodata"), [("float32", -9999.0), ("float64", 1e20), ("float32", math.nan), ("int16", -9999)]
)
def test_holes_of_one_band_do_not_blend_into_it_when_resampled(raster: RasterPath, dtype: str, nodata: float) -> None:
    array = stack(3, 60, 80, dtype, low=100, high=200)
    array[1, 20:40, 30:50] = nodata
    made = raster.make(raster.write(array, nodata=nodata), target_crs="EPSG:3857")
    bands = made.output["raster"]["bands"]
    assert [band["statistics"]["minimum"] >= 50 for band in bands] == [True] * 3
    assert [band["statistics"]["maximum"] <= 250 for band in bands] == [True] * 3
    shares = [band["statistics"]["valid_percent"] for band in bands]
    assert shares[1] == pytest.approx(shares[0] - 100 * 400 / 4800, abs=1)
    assert shares[0] == shares[2]


def test_nodata_of_an_rgb_is_a_colour_of_all_its_bands(raster: RasterPath) -> None:
    """What lacks red alone is no hole: resampled, it stays without red."""
    array = stack(3, 60, 80, low=100, high=200)
    array[0, 20:40, 30:50] = 0
    made = raster.make(raster.write(array, nodata=0, photometric="RGB"), target_crs="EPSG:3857")
    with rasterio.open(made.path) as cog:
        red = cog.read(1)
    assert ((red > 0) & (red < 60)).sum() > 100


def test_lossy_colours_that_are_missing_by_band_are_masked_and_keep_their_values(raster: RasterPath) -> None:
    """No colour may become nodata of another band: what lacks red alone is shown without red, not in bright red."""
    array = np.full((3, 64, 96), 100, np.uint8)
    array[:, 16:32, 16:48] = np.array([0, 255, 0], np.uint8)[:, None, None]
    array[0, 48:, :] = 0
    made = raster.make(_of_bands(raster, array, "0", "255", "0", photometric="RGB"), compression="jpeg")
    lossy = [f for f in made.output["report"]["findings"] if f["code"] == "NODATA_TO_MASK"]
    assert "cannot keep nodata 0 and 255 exactly" in lossy[0]["message"]
    assert "NODATA_UNIFIED" not in made.codes
    missing = np.zeros((64, 96), bool)
    missing[16:32, 16:48] = True
    with rasterio.open(made.path) as cog:
        assert cog.nodata is None
        np.testing.assert_array_equal(cog.dataset_mask() == 0, missing)
        red = cog.read(1)
    assert red[56:].max() < 30
