"""Nodata near the largest numbers of floats, written with few digits and told from task to task as decimals."""

from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine, from_origin

from tests.support.raster_path import ORIGIN, RasterPath, pattern, pixels

LARGEST32, LARGEST64 = float(np.finfo("float32").max), float(np.finfo("float64").max)
SOUTH_UP = Affine(10, 0, 500000, 0, 10, 4649776)
ROTATED = Affine.translation(500000, 4650000) @ Affine.rotation(30) @ Affine.scale(10, -10)
FROM_0_TO_360 = {"transform": from_origin(0, 30, 1, 1), "crs": "EPSG:4326"}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "flip": ({"transform": SOUTH_UP}, {}),
    "rotation": ({"transform": ROTATED}, {}),
    "longitudes": (FROM_0_TO_360, {}),
    "target": ({}, {"target_crs": "EPSG:3857"}),
}
VALUES = [("float32", -LARGEST32), ("float32", LARGEST32), ("float32", 1e20), ("float32", 9.969209968386869e36),
          ("float64", -LARGEST64), ("float64", 1e300)]  # fmt: skip


@pytest.mark.parametrize(("dtype", "nodata"), VALUES)
@pytest.mark.parametrize("change", CHANGES)
def test_floats_are_carried_whatever_their_size(raster: RasterPath, change: str, dtype: str, nodata: float) -> None:
    layout, options = CHANGES[change]
    array = pattern(60, 360, low=1).astype(dtype)
    array[10:30, 40:90] = np.dtype(dtype).type(nodata)
    made = raster.make(raster.write(array, nodata=nodata, **layout), **options)
    with rasterio.open(made.path) as cog:
        assert cog.nodata == float(np.dtype(dtype).type(nodata))
        valid = cog.read(1)[cog.read_masks(1) > 0]
    assert valid.size > 0
    assert valid.min() >= -50
    assert valid.max() <= 300
    raster.register(made)
    band = made.output["raster"]["bands"][0]["statistics"]
    assert 0 <= band["mean"] <= 260


@pytest.mark.parametrize("text", ["-3.40282e+38", "-3.402823e+38", "-3.40282306074e+38", "-3.4028235e+38"])
def test_text_of_few_digits_means_the_smallest_float(raster: RasterPath, text: str) -> None:
    array = pattern(60, 80, low=1).astype("float32")
    array[10:20, 5:25] = -LARGEST32
    source = raster.write(array, transform=ORIGIN, nodata=-1.5)
    data = source.read_bytes()
    assert data.count(b"-1.5\0") == 1
    source.write_bytes(data + text.encode() + b"\0")
    _point_nodata_at(source, len(data), len(text) + 1)
    made = raster.make(source)
    band = made.output["raster"]["bands"][0]["statistics"]
    assert band["minimum"] >= 0
    assert band["valid_percent"] == pytest.approx(100 * (1 - 200 / 4800))
    assert pixels(made.path)[0, 10, 5] == np.float32(-LARGEST32)


@pytest.mark.parametrize(("text", "nodata"), [("-9.999e3", -9999), ("-9999.0", -9999), ("1.0e6", 1_000_000)])
def test_whole_numbers_are_nodata_however_they_are_spelled(raster: RasterPath, text: str, nodata: int) -> None:
    """GDAL would find -9, -9999 and 1: the COG has to say what was meant, be it copied or made anew."""
    array = pattern(600, 640, "int64", low=1)
    array[10:20, 5:25] = nodata
    source = raster.make(raster.write(array, transform=ORIGIN, nodata=-1)).path
    data = source.read_bytes()
    source.write_bytes(data + text.encode() + b"\0")
    _point_nodata_at(source, len(data), len(text) + 1)
    made = raster.make(source)
    assert "NODATA_DROPPED" not in made.codes
    assert pixels(made.path)[0, 10, 5] == nodata
    with rasterio.open(made.path) as cog:
        assert cog.nodata == nodata
        assert (cog.read_masks(1) == 0).sum() == 200


def _point_nodata_at(path: Any, offset: int, length: int) -> None:
    """Let tag 42113 of a little-endian TIFF lie at the end of the file."""
    data = bytearray(path.read_bytes())
    at = data.index((42113).to_bytes(2, "little") + (2).to_bytes(2, "little"))
    data[at + 4 : at + 8] = length.to_bytes(4, "little")
    data[at + 8 : at + 12] = offset.to_bytes(4, "little")
    path.write_bytes(bytes(data))
