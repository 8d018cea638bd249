"""Resamples the raster of a file as its plan says, whole or a region of it."""

from pathlib import Path

from pyproj import CRS
from rasterio.io import DatasetReader
from rasterio.windows import Window

from handlers.context import ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.facts import RasterFacts, Validity
from handlers.raster.plan import Plan
from handlers.raster.profiles import CogProfile
from handlers.raster.warp import target_grid, warp


def resample(
    ctx: ProcessContext,
    source: Path,
    page: int | None,
    target: Path,
    facts: RasterFacts,
    plan: Plan,
    profile: CogProfile,
    validity: Validity,
    *,
    cache_bytes: int,
    region: Window | None = None,
) -> None:
    """Write the resampled copy of a raster, whose plan says where it goes.

    Args:
        ctx: hears how far it is.
        source: file with the raster, placed by geotransform or GCPs.
        page: of the raster in the file; None for the first.
        target: path of the copy, which must not exist.
        facts: what the rules decided.
        plan: has a CRS to warp to.
        profile: gives the kernel.
        validity: how the source says which pixels are valid.
        cache_bytes: for GDAL's blocks.
        region: window of the target grid in pixels; None for all of it.
    """
    assert plan.warp_to is not None
    with gdal.environment(cache_bytes), gdal.open_geotiff(source, page) as src:
        warp(
            src,
            target,
            facts,
            source_crs=_source_crs(facts),
            warp_to=plan.warp_to,
            final_crs=plan.final_crs,
            validity=validity,
            resampling=profile.warp,
            on_window=ctx.follow("resampling"),
            region=region,
        )


def check_target(src: DatasetReader, facts: RasterFacts, plan: Plan, profile: CogProfile, validity: Validity) -> None:
    """Look up where a raster will lie; arguments as of `resample`, and no pixel is read.

    Raises:
        DataError: the target CRS cannot show it, or it grows too big.
    """
    assert plan.warp_to is not None
    with target_grid(
        src,
        facts,
        source_crs=_source_crs(facts),
        warp_to=plan.warp_to,
        validity=validity,
        resampling=profile.warp,
    ):
        pass


def _source_crs(facts: RasterFacts) -> str:
    return crs_rules.wkt2(crs_rules.horizontal(CRS.from_wkt(facts.crs_wkt)))
