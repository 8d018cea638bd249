"""The type of a raster follows from evidence, and a stated type is checked against it."""

from dataclasses import replace

import pytest

from handlers.raster.facts import RasterType
from handlers.raster.types import Evidence, contradiction, detect_type

RGB = ("red", "green", "blue")
ONE = Evidence(
    dtype="int16", colors=("gray",), descriptions=("",), name="x.tif", has_palette=False, has_alpha=False,
    has_heights=False, distinct=None, minimum=0, maximum=900,
)  # fmt: skip
THREE = replace(ONE, dtype="uint8", colors=RGB, descriptions=("", "", ""))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (ONE, RasterType.CONTINUOUS),
        (replace(ONE, has_palette=True), RasterType.CATEGORICAL),
        (replace(ONE, distinct=64), RasterType.CATEGORICAL),
        (replace(ONE, dtype="float32"), RasterType.CONTINUOUS),
        (replace(ONE, has_heights=True), RasterType.ELEVATION),
        (replace(ONE, name="Site_DEM-2024.tif"), RasterType.ELEVATION),
        (replace(ONE, name="Site_DEM.tif", distinct=9), RasterType.CATEGORICAL),
        (replace(ONE, name="Site_DEM.tif", dtype="float32"), RasterType.ELEVATION),
        (replace(ONE, descriptions=("Elevation",), distinct=9), RasterType.ELEVATION),
        (replace(ONE, name="academy.tif"), RasterType.CONTINUOUS),
        (replace(ONE, descriptions=("NDVI",)), RasterType.VEGETATION_INDEX),
        (THREE, RasterType.RGB),
        (replace(THREE, colors=("gray", "undefined", "undefined")), RasterType.MULTISPECTRAL),
        (replace(THREE, colors=("gray",) * 3, descriptions=RGB), RasterType.RGB),
        (replace(THREE, colors=(*RGB, "alpha"), descriptions=("",) * 4, has_alpha=True), RasterType.RGBA),
        (replace(THREE, colors=(*RGB, "undefined"), descriptions=("", "", "", "nir")), RasterType.NIR),
        (replace(THREE, colors=(*RGB, "undefined"), descriptions=("",) * 4), RasterType.MULTISPECTRAL),
        (replace(ONE, colors=("gray", "alpha"), descriptions=("", ""), has_alpha=True), RasterType.CONTINUOUS),
        (replace(ONE, colors=("gray",) * 7, descriptions=("",) * 7), RasterType.MULTISPECTRAL),
    ],
)
def test_detection(seen: Evidence, expected: RasterType) -> None:
    found, evidence = detect_type(seen)
    assert found is expected
    assert evidence


@pytest.mark.parametrize(
    ("stated", "seen"),
    [
        (RasterType.RGB, ONE),
        (RasterType.RGBA, THREE),
        (RasterType.MULTISPECTRAL, ONE),
        (RasterType.ELEVATION, THREE),
        (RasterType.CATEGORICAL, replace(ONE, dtype="float32")),
        (RasterType.CONTINUOUS, replace(ONE, has_palette=True)),
    ],
)
def test_a_stated_type_that_cannot_be_is_contradicted(stated: RasterType, seen: Evidence) -> None:
    assert contradiction(stated, seen)


@pytest.mark.parametrize("stated", [RasterType.ELEVATION, RasterType.CATEGORICAL, RasterType.CONTINUOUS])
def test_a_stated_type_that_can_be_is_not(stated: RasterType) -> None:
    assert contradiction(stated, ONE) is None
