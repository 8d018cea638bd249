"""CRS with heights: written so that they read back as the same ones, or refused before anything is made."""

from typing import Any

import numpy as np
import pytest
import rasterio
from pyproj import CRS

from handlers.raster import crs as crs_rules
from tests.support.raster_path import RasterPath, pattern

COMPOUND = ["EPSG:7405", "EPSG:27700+5701", "EPSG:8767", "EPSG:2225+6360", "EPSG:7415", "EPSG:6649", "EPSG:9518"]
OF_TWO_AGES = ["EPSG:3067", "EPSG:5114", "EPSG:3186", "EPSG:8909", "EPSG:3903", "EPSG:5945"]
"""Codes that pyproj's database of PROJ defines in another way than the newer one of GDAL."""
PIT = 'VERTCRS["pit",VDATUM["pit"],CS[vertical,1],AXIS["height (H)",up],LENGTHUNIT["metre",1]]'
AT_HOME = {"EPSG:6649": (-100.0, 50.0, 0.01), "EPSG:9518": (10.0, 50.0, 0.01)}


def _written(raster: RasterPath, name: str, **more: Any) -> Any:
    """Return a raster whose pixels have to be written anew, since NaN lies beside its nodata value."""
    values = pattern(40, 50, low=1).astype("float32")
    values[3, 4], values[5, 6] = np.nan, -9999
    x, y, step = AT_HOME.get(name, (400_000.0, 300_000.0, 10.0))
    return raster.write(values, transform=rasterio.Affine(step, 0, x, 0, -step, y), nodata=-9999.0, **more)


@pytest.mark.parametrize("by_submit", [False, True], ids=["of the file", "of the submit"])
@pytest.mark.parametrize("name", COMPOUND)
def test_a_compound_crs_reads_back_as_itself(raster: RasterPath, name: str, by_submit: bool) -> None:
    wanted = CRS.from_user_input(name)
    in_file = None if by_submit else crs_rules.to_rasterio(wanted.to_wkt())
    made = raster.make(_written(raster, name, crs=in_file), **({"crs": name} if by_submit else {}))
    with rasterio.open(made.path) as cog:
        found = crs_rules.from_rasterio(cog.crs)
    assert found is not None
    assert found.is_compound
    assert crs_rules.equal(found, wanted)


@pytest.mark.parametrize("how", ["crs", "target_crs"])
@pytest.mark.parametrize("name", OF_TWO_AGES)
def test_a_code_means_what_a_geotiff_means_by_it(raster: RasterPath, name: str, how: str) -> None:
    place = {"transform": rasterio.Affine(0.001, 0, 10.5, 0, -0.001, 60.5), "crs": "EPSG:4326"}
    at = {"transform": rasterio.Affine(10, 0, 400_000, 0, -10, 6_700_000), "crs": None}
    if name == "EPSG:8909":
        at["transform"] = rasterio.Affine(10, 0, 800_000, 0, -10, 1_100_000)
        place["transform"] = rasterio.Affine(0.001, 0, -84.0, 0, -0.001, 10.0)
    made = raster.make(raster.write(pattern(40, 50), **(at if how == "crs" else place)), **{how: name})
    with rasterio.open(made.path) as cog:
        assert cog.crs == rasterio.crs.CRS.from_user_input(name)


@pytest.mark.parametrize("name", [name for name in OF_TWO_AGES if name not in ("EPSG:3903", "EPSG:5945")])
def test_a_file_keeps_the_code_that_only_gdal_has_for_it(name: str) -> None:
    in_file = crs_rules.from_rasterio(rasterio.crs.CRS.from_user_input(name))
    assert in_file is not None
    assert crs_rules.code_of(in_file) == name
    assert crs_rules.equal(in_file, crs_rules.parse_crs(name, "crs"))
    assert crs_rules.equal(in_file, crs_rules.parse_crs(CRS.from_user_input(name).to_wkt(), "crs"))


@pytest.mark.parametrize("name", ["EPSG:32633", "EPSG:3035", "EPSG:4326", "EPSG:2263", "ESRI:54009", "EPSG:4979"])
def test_a_code_that_both_define_alike_stays_as_it_was(name: str) -> None:
    assert crs_rules.parse_crs(name, "crs").to_wkt() == CRS.from_user_input(name).to_wkt()


def test_a_definition_that_is_not_what_its_code_says_is_taken_as_it_is() -> None:
    text = CRS.from_epsg(3067).to_wkt().replace("500000", "500001")
    assert crs_rules.parse_crs(text, "crs").to_wkt() == CRS.from_wkt(text).to_wkt()


def test_what_a_geotiff_would_tell_differently_is_refused(raster: RasterPath) -> None:
    """A GeoTIFF has no room for a vertical datum of one's own."""
    own = f'COMPOUNDCRS["UTM and pit",{CRS.from_epsg(32633).to_wkt()},{PIT}]'
    refusal = raster.rejection(_written(raster, "", crs=None), crs=own)
    assert (refusal.detail.code, refusal.detail.field) == ("CRS_UNSUPPORTED", "crs")
    assert "UTM and pit" in refusal.detail.message
    assert refusal.detail.remediation


@pytest.mark.parametrize("name", ["EPSG:9311", "EPSG:26632", "ESRI:102425"])
def test_a_crs_without_heights_is_refused_too_before_anything_is_made(raster: RasterPath, name: str) -> None:
    """By GDAL 3.10 and its PROJ; the guard over the finished COG would say INTERNAL."""
    refusal = raster.rejection(_written(raster, "", crs=None), crs=name)
    assert (refusal.detail.code, refusal.detail.field) == ("CRS_UNSUPPORTED", "crs")
