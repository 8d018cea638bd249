"""Decides what must happen to a raster before GDAL's COG driver may copy it, and in which CRS it ends up."""

from dataclasses import dataclass

from pyproj import CRS
from rasterio.transform import Affine

from handlers.raster import crs as crs_rules
from handlers.raster.facts import CrsSource, Orientation, RasterFacts, Validity
from handlers.raster.profiles import CogProfile


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, in this order: rewrite (exact, pixel by pixel), warp (resampled), COG."""

    rewrite: tuple[str, ...]
    """What is different in a plain copy that is written first, in words; empty when the source can stay as it is."""
    warp_to: str | None
    """WKT2 to resample into, None when pixels stay where they are."""
    final_crs: str
    """WKT2 of the result."""
    nodata_to_mask: bool


def make_plan(facts: RasterFacts, target_crs: CRS | None, profile: CogProfile) -> Plan:
    """Return the steps for a raster."""
    source_crs = CRS.from_wkt(facts.crs_wkt)
    elsewhere = target_crs is not None and not _same_place(source_crs, target_crs)
    to_mask = profile.is_lossy and facts.validity is Validity.NODATA
    final = target_crs if elsewhere and target_crs is not None else source_crs
    warp = elsewhere or facts.orientation is Orientation.ROTATED
    return Plan(
        rewrite=tuple(_changes(facts, nodata_to_mask=to_mask, warp=warp)),
        warp_to=crs_rules.wkt2(crs_rules.horizontal(final)) if warp else None,
        final_crs=crs_rules.wkt2(final),
        nodata_to_mask=to_mask,
    )


def final_transform(facts: RasterFacts) -> Affine:
    """Return the geotransform after flipping, rolling and shifting; a rotated one, or one of GCPs, is only shifted."""
    a, _, c, _, e, f = facts.transform
    if facts.orientation is Orientation.ROTATED:
        return Affine.translation(facts.longitude_shift, 0) * Affine(*facts.transform)
    if facts.orientation is Orientation.FLIPPED:
        west, _, _, north = facts.bounds
        a, c, e, f = abs(a), west, -abs(e), north
    return Affine(a, 0.0, c + facts.roll_columns * a + facts.longitude_shift, 0.0, e, f)


def _same_place(left: CRS, right: CRS) -> bool:
    return crs_rules.equal(left, right) or crs_rules.equal(crs_rules.horizontal(left), right)


def _changes(facts: RasterFacts, *, nodata_to_mask: bool, warp: bool) -> list[str]:
    changes = {
        "sidecars taken in": bool(facts.sidecars),
        "CRS of the submit set": facts.crs_source is CrsSource.SUBMIT,
        "flipped north-up": facts.orientation is Orientation.FLIPPED,
        "longitudes moved": bool(facts.longitude_shift or facts.roll_columns),
        "nodata value set right": facts.nodata != facts.file_nodata
        or (facts.nodata is None and facts.nodata_tag is not None),
        "NaN and infinity made missing": facts.nonfinite_pixels > 0
        and facts.validity in (Validity.NODATA, Validity.MASK),
        "alpha band set right": facts.alpha_is_data
        or facts.hides_alpha
        or facts.alpha_to_mask is not None
        or (warp and facts.masked_alpha is not None),
        "old statistics left out": facts.stale_statistics,
        "nodata made a mask": nodata_to_mask,
    }
    return [change for change, holds in changes.items() if holds]
