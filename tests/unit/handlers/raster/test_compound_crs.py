"""CRS with heights: written so that they read back as the same ones, or refused before anything is made."""

from typing import Any

import numpy as np
import pytest
import rasterio
from pyproj import CRS

from handlers.raster import crs as crs_rules
from tests.support.raster_path import RasterPath, pattern

COMPOUND = ["EPSG:7405", "EPSG:27700+5701", "EPSG:8767", "EPSG:2225+6360", "EPSG:7415", "EPSG:6649", "EPSG:9518"]
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


def test_what_a_geotiff_would_tell_differently_is_refused(raster: RasterPath) -> None:
    """By GDAL 3.10 and its PROJ: ETRS89 / TM35FIN with N2000 heights comes back as EUREF-FIN."""
    refusal = raster.rejection(_written(raster, "", crs=None), crs="EPSG:3903")
    assert (refusal.detail.code, refusal.detail.field) == ("CRS_UNSUPPORTED", "crs")
    assert "EUREF-FIN" in refusal.detail.message
    assert refusal.detail.remediation
