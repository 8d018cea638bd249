"""Tells at validation what making the COG would refuse, as far as header and scan can tell; nothing is resampled."""

import rasterio
from pyproj import CRS
from rasterio.io import DatasetReader
from rasterio.transform import from_origin
from rasterio.windows import Window

from core.errors import DataError
from handlers.context import ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.estimate import Route
from handlers.raster.facts import RasterFacts, Validity
from handlers.raster.findings import Findings
from handlers.raster.nodata import EXACT_IN_DOUBLE, as_number, carried
from handlers.raster.plan import Plan
from handlers.raster.profiles import CogProfile
from handlers.raster.resample import check_target
from handlers.raster.rewrite import rewrite
from handlers.raster.scan import Scan
from handlers.raster.warp import rounded


def foresee(
    ctx: ProcessContext,
    src: DatasetReader,
    facts: RasterFacts,
    scanned: Scan | None,
    plan: Plan,
    profile: CogProfile,
    route: Route,
    findings: Findings,
) -> None:
    """Record the refusal that awaits a raster, if any.

    Args:
        ctx: has the scratch folder.
        src: the open source, as it was delivered.
        facts: what the rules decided.
        scanned: what its pixels hold; None when only the header was read.
        plan: the steps.
        profile: how the COG is written.
        route: which way it goes: pixels that become tiles are copied first.
        findings: hears of the refusal.
    """
    _check_crs(ctx, plan.final_crs, findings)
    try:
        _check_exactness(facts, scanned, plan, route)
        if plan.warp_to:
            _check_place(ctx, src, facts, plan, profile)
    except DataError as refusal:
        findings.errors.append(refusal.detail)


def _check_exactness(facts: RasterFacts, scanned: Scan | None, plan: Plan, route: Route) -> None:
    nodata = as_number(facts.nodata)
    copied = bool(plan.rewrite or plan.warp_to or route is Route.TILED)
    if isinstance(nodata, int) and (copied or int(float(nodata)) != nodata):
        carried(nodata, facts.dtype)
    if plan.warp_to and scanned is not None and scanned.largest_whole >= EXACT_IN_DOUBLE:
        raise rounded(facts.dtype)


def _check_crs(ctx: ProcessContext, wkt: str, findings: Findings) -> None:
    """Refuse a CRS that a GeoTIFF would tell differently: it says codes, and few projections and datums without."""
    final, path = CRS.from_wkt(wkt), ctx.scratch / "crs.tif"
    shape = {"width": 1, "height": 1, "count": 1, "dtype": "uint8", "transform": from_origin(0, 2, 1, 1)}
    try:
        with gdal.environment():
            rasterio.open(path, "w", driver="GTiff", crs=crs_rules.to_rasterio(wkt), **shape).close()
            with gdal.open_geotiff(path) as written:
                found = crs_rules.from_rasterio(written.crs)
    finally:
        path.unlink(missing_ok=True)
    if found is None or not crs_rules.equal(found, final):
        other = "none" if found is None else f"“{found.name}”"
        findings.reject(
            "CRS_UNSUPPORTED",
            "crs",
            f"GeoTIFF has no way to say “{final.name}”: it would be read as {other}",
            value=final.name,
            remediation="Send the raster in another CRS, or state its horizontal part with override_crs.",
        )


def _check_place(ctx: ProcessContext, src: DatasetReader, facts: RasterFacts, plan: Plan, profile: CogProfile) -> None:
    """Look up the target grid, from a copy without pixels where the raster will lie elsewhere by then."""
    if not plan.rewrite:
        check_target(src, facts, plan, profile, facts.validity)
        return
    copy = ctx.scratch / "placed.tif"
    try:
        rewrite(src, copy, facts, plan, lambda *_: None, Window(0, 0, 0, 0))
        with gdal.environment(), gdal.open_geotiff(copy) as placed:
            check_target(placed, facts, plan, profile, Validity.MASK if plan.nodata_to_mask else facts.validity)
    finally:
        copy.unlink(missing_ok=True)
