"""Which files beside a raster are its sidecars."""

import pytest

from handlers.raster.sidecar_names import names_beside, role_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("Dem.tfw", "world"), ("DEM.TFW", "world"), ("dem.wld", "world"), ("dem.prj", "prj"),
        ("dem.tif.aux.xml", "aux"), ("dem.aux.xml", "aux"), ("dem.tif.msk", "mask"), ("dem.tif.ovr", "overviews"),
        ("dem.msk", None), ("other.tfw", None), ("dem.tif", None), ("dem.tif.prj", None),
    ],
)  # fmt: skip
def test_a_file_is_judged_by_both_names(name: str, role: str | None) -> None:
    assert role_of(name, "Dem.tif") == role


@pytest.mark.parametrize("raster", ["dem.tif", "DEM.TIF", "no_ending", "İstanbul.tif", "a.b.tiff"])
def test_few_names_are_looked_for_and_each_is_a_sidecar(raster: str) -> None:
    names = names_beside(raster)
    assert len(names) == len(set(names)) <= 16
    assert raster not in names
    assert {role_of(name, raster) for name in names} == {"world", "prj", "aux", "mask"}
