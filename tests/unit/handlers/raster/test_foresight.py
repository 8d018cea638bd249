"""What making a COG would refuse is heard at validation, by header alone where that can tell."""

from typing import Any

import numpy as np
import pytest
from pyproj import CRS
from rasterio.transform import Affine, from_origin

from core.errors import DataError
from core.handler_models import RasterOptions
from core.handlers_catalog import CreateCogParams
from handlers.raster import gdal
from handlers.raster.create_cog import create_cog
from handlers.raster.estimate import Route
from handlers.raster.facts import RasterFacts
from handlers.raster.findings import Findings, Rejected
from handlers.raster.foresight import foresee
from handlers.raster.plan import make_plan
from handlers.raster.profiles import profile_of
from tests.support.raster_path import Array, RasterPath, pattern

SOUTH_UP = Affine(10, 0, 500000, 0, 10, 4642776)
ROTATED = Affine.translation(500000, 4650000) @ Affine.rotation(30) @ Affine.scale(10, -10)
ELSEWHERE = {"target_crs": "EPSG:4326"}
WORLD = from_origin(-180, 90, 2, 2)
ACROSS_180 = from_origin(590000, 7300000, 1000, 1000)
ROTATED_ACROSS_180 = Affine.translation(178, 45) @ Affine.rotation(20) @ Affine.scale(0.05, -0.05)
MOON = "+proj=longlat +R=1737400 +no_defs"
BEYOND = 2**53 + 1


def refused(raster: RasterPath, array: Array, options: dict[str, Any], **settings: Any) -> tuple[str, str | None]:
    """Return code and field of the refusal at validation, having seen that nothing is left in the scratch folder."""
    source = raster.write(array, **settings)
    with pytest.raises(Rejected) as refusal:
        raster.validate(source, **options)
    assert refusal.value.detail.remediation
    assert refusal.value.report["verdict"] == "reject"
    assert not list(raster.folder.glob("run-*/*.tif"))
    return refusal.value.detail.code, refusal.value.detail.field


def refused_later(raster: RasterPath, array: Array, options: dict[str, Any], **settings: Any) -> tuple[str, str | None]:
    """Return code and field of the refusal of a COG whose raster was validated without those options."""
    source = raster.write(array, **settings)
    facts = raster.validate(source).output["raster"]  # type: ignore[index,call-overload]
    params = CreateCogParams(source=str(source), raster=facts, options=RasterOptions(**options), output_prefix="x")
    with pytest.raises(DataError) as refusal:
        create_cog(raster.context(), params)
    return refusal.value.detail.code, refusal.value.detail.field


@pytest.mark.parametrize(
    ("width", "transform", "crs", "target"),
    [
        (180, WORLD, "EPSG:4326", "EPSG:3857"),
        (180, WORLD, "EPSG:4326", "EPSG:3031"),
        (180, ACROSS_180, "EPSG:32660", "EPSG:4326"),
        (90, ACROSS_180, "EPSG:32660", "EPSG:4326"),
        (180, from_origin(0, 90, 2, 2), "EPSG:4326", "EPSG:3857"),
        (180, Affine(2, 0, -180, 0, 2, -90), "EPSG:4326", "EPSG:3031"),
        (90, from_origin(9, 46, 0.001, 0.001), MOON, "EPSG:4326"),
        (90, ROTATED_ACROSS_180, "EPSG:4326", "EPSG:3857"),
        (90, ROTATED_ACROSS_180, "EPSG:4326", "EPSG:3395"),
    ],
)
def test_a_target_that_stretches_the_raster_to_nothing(
    raster: RasterPath, width: int, transform: Affine, crs: str, target: str
) -> None:
    array, place, options = pattern(90, width), {"transform": transform, "crs": crs}, {"target_crs": target}
    wanted = ("CRS_EXTENT_IMPOSSIBLE", "crs")
    assert refused(raster, array, options, **place) == wanted
    assert refused(raster, array, options | {"header_only": True}, **place) == wanted
    assert refused_later(raster, array, options, **place) == wanted


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("band", [0, 1])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("transform", "options"), [(None, ELSEWHERE), (ROTATED, {})])
def test_64_bit_integers_that_resampling_would_round(
    raster: RasterPath, dtype: str, band: int, sign: int, transform: Affine | None, options: dict[str, Any]
) -> None:
    values = np.stack([pattern(40, 40, dtype), pattern(40, 40, dtype)])
    values[band, 10:20, 10:20] = sign * BEYOND if dtype == "int64" else BEYOND
    place = {} if transform is None else {"transform": transform}
    assert refused(raster, values, options, **place) == ("DTYPE_UNSUPPORTED", "dtype")
    if transform is None:
        assert refused_later(raster, values, options) == ("DTYPE_UNSUPPORTED", "dtype")


def test_64_bit_integers_that_nothing_rounds(raster: RasterPath) -> None:
    values = pattern(40, 40, "int64")
    raster.validate(raster.write(values), **ELSEWHERE)
    values[:20] = BEYOND
    raster.validate(raster.write(values))
    mask = np.where(values == BEYOND, 0, 255).astype(np.uint8)
    raster.validate(raster.write(values, mask=mask), **ELSEWHERE)


@pytest.mark.parametrize(
    ("nodata", "route", "settings", "options", "hears"),
    [
        (-(2**63), Route.DIRECT, {}, {}, False),
        (-(2**63), Route.TILED, {}, {}, True),
        (-(2**63), Route.DIRECT, {"transform": SOUTH_UP}, {}, True),
        (-(2**63), Route.DIRECT, {}, ELSEWHERE, True),
        (BEYOND, Route.DIRECT, {}, {}, True),
        (2**53, Route.TILED, {"transform": SOUTH_UP}, ELSEWHERE, False),
    ],
)
def test_a_64_bit_nodata_value_that_cannot_be_carried(
    raster: RasterPath, nodata: int, route: Route, settings: dict[str, Any], options: dict[str, Any], hears: bool
) -> None:
    source = raster.write(pattern(8, 8, "int64"), **settings)
    known = {"nodata": nodata, "file_nodata": nodata, "validity": "nodata"}
    facts = RasterFacts.model_validate(raster.validate(source).output["raster"] | known)  # type: ignore[index,operator]
    profile = profile_of(facts.raster_type, None)
    plan = make_plan(facts, CRS.from_user_input(options["target_crs"]) if options else None, profile)
    findings = Findings()
    with gdal.open_geotiff(source) as src:
        foresee(raster.context(), src, facts, None, plan, profile, route, findings)
    assert [(error.code, error.field) for error in findings.errors] == [("DTYPE_UNSUPPORTED", "dtype")] * hears
