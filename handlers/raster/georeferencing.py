"""Rules about where a raster lies: CRS, geotransform, GCPs, RPC, orientation and longitudes."""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from pyproj import CRS, Transformer
from pyproj.exceptions import CRSError, ProjError
from rasterio.io import DatasetReader
from rasterio.transform import Affine

from handlers.raster import crs as crs_rules
from handlers.raster.facts import CrsSource, Orientation
from handlers.raster.findings import Findings
from handlers.raster.options import Options
from handlers.raster.tiff import Directory

MIN_GCPS: Final = 3
_TOLERANCE: Final = 1e-6
_STATE_CRS: Final = "Send the file with its CRS, or state it in options.crs, for example EPSG:32633."


@dataclass(frozen=True, slots=True)
class Georeferencing:
    """Where the pixels lie, after the rules."""

    crs: CRS
    crs_source: CrsSource
    transform: Affine
    bounds: tuple[float, float, float, float]
    orientation: Orientation
    has_gcps: bool = False
    longitude_shift: float = 0.0
    roll_columns: int = 0


def read_georeferencing(
    src: DatasetReader, page: Directory, options: Options, findings: Findings, *, override_crs: bool
) -> Georeferencing | None:
    """Return where a raster lies, None when an error was recorded."""
    gcps, gcp_crs = src.gcps
    placed = not src.transform.is_identity or (page.has_transform and not gcps)
    has_gcps = not placed and _span_a_plane(gcps)
    if not _is_placed(src, findings, placed=placed, has_gcps=has_gcps):
        if findings.errors[-1].code == "GEOREFERENCING_MISSING" and not src.crs and options.crs is None:
            _crs_missing(findings)
        return None
    own = src.crs or (gcp_crs if gcps else None)
    chosen = _choose_crs(own, options.crs, findings, override_crs=override_crs)
    if chosen is None:
        return None
    crs, source = chosen
    if has_gcps:
        source = CrsSource.GCPS if source is CrsSource.FILE else source
        transform = _around_gcps(gcps)
        findings.warn("GEOREFERENCED_FROM_GCPS", _placed_by(gcps), field="georeferencing")
        orientation = Orientation.ROTATED
    else:
        _note_unused(src, findings)
        transform = src.transform
        orientation = _orientation(transform, findings)
    found = Georeferencing(
        crs, source, transform, _bounds(transform, src.width, src.height), orientation, has_gcps=has_gcps
    )
    return _checked_extent(found, src, findings)


def _is_placed(src: DatasetReader, findings: Findings, *, placed: bool, has_gcps: bool) -> bool:
    """Record what is missing and return whether pixels have a position."""
    transform = src.transform
    if placed and math.isfinite(sum(map(abs, transform[:6]))) and not transform.is_degenerate:
        return True
    if has_gcps and not placed:
        return True
    if not placed and src.rpcs is not None:
        findings.reject(
            "RPC_ONLY",
            "georeferencing",
            "the file has only rational polynomial coefficients (RPC); placing it needs a height model",
            remediation="Orthorectify the image first and send the result.",
        )
        return False
    found = f"a geotransform without area {transform[:6]}" if placed else "neither geotransform nor control points"
    if src.gcps[0] and not placed:
        found = f"no geotransform, and {len(src.gcps[0])} control points of which no three, all finite, form a triangle"
    findings.reject(
        "GEOREFERENCING_MISSING",
        "file",
        f"the raster has no place on the ground: found {found}",
        remediation="Send a GeoTIFF with its georeferencing inside.",
    )
    return False


def _choose_crs(
    own: object, submitted: CRS | None, findings: Findings, *, override_crs: bool
) -> tuple[CRS, CrsSource] | None:
    """Return the CRS that holds and who said so, None when an error was recorded."""
    try:
        in_file = crs_rules.from_rasterio(own)
    except CRSError:
        findings.reject("CRS_NOT_GEOREFERENCED", "crs", "the CRS of the file cannot be understood by PROJ")
        return None
    if in_file is None and submitted is None:
        _crs_missing(findings)
        return None
    if in_file is None or submitted is None or _same(in_file, submitted):
        crs, source = (submitted, CrsSource.SUBMIT) if in_file is None else (in_file, CrsSource.FILE)
    elif override_crs:
        crs, source = submitted, CrsSource.SUBMIT
        was, now = crs_rules.describe(in_file), crs_rules.describe(submitted)
        findings.warn(
            "CRS_OVERRIDDEN", f"the file says {was}; {now} was forced by override_crs", field="crs", was=was, now=now
        )
    else:
        was, now = crs_rules.describe(in_file), crs_rules.describe(submitted)
        findings.reject(
            "CRS_CONFLICT",
            "crs",
            f"the file says {was}, the submit says {now}",
            value=now,
            remediation="Leave options.crs out, or set override_crs to replace the file's CRS.",
        )
        return None
    assert crs is not None
    return _usable_crs(crs, source, findings)


def _usable_crs(crs: CRS, source: CrsSource, findings: Findings) -> tuple[CRS, CrsSource] | None:
    if not crs_rules.is_on_earth(crs):
        findings.reject(
            "CRS_NOT_GEOREFERENCED",
            "crs",
            f"the CRS “{crs.name}” is {crs.type_name}: its coordinates have no place on Earth",
            remediation="Send the raster in a geographic or projected CRS.",
        )
        return None
    if source is CrsSource.SUBMIT:
        findings.info("CRS_FROM_SUBMIT", f"{crs_rules.describe(crs)} was given with the submit", field="crs")
    return crs, source


def _same(in_file: CRS, submitted: CRS) -> bool:
    """Return whether the submit names the file's CRS or, for one with heights, its horizontal part."""
    return crs_rules.equal(in_file, submitted) or crs_rules.equal(crs_rules.horizontal(in_file), submitted)


def _crs_missing(findings: Findings) -> None:
    if any(error.field == "crs" for error in findings.errors):
        return  # one was given, and what is wrong with it was said
    message = "the raster names no coordinate reference system and none was given"
    findings.reject("CRS_MISSING", "crs", message, remediation=_STATE_CRS)


def _note_unused(src: DatasetReader, findings: Findings) -> None:
    if src.rpcs is not None:
        findings.info("RPC_IGNORED", "the geotransform wins over RPC", field="georeferencing")


def _orientation(transform: Affine, findings: Findings) -> Orientation:
    a, b, _, d, e, _ = transform[:6]
    if b == 0 and d == 0:
        if a > 0 and e < 0:
            return Orientation.NORTH_UP
        findings.warn(
            "FLIPPED_TO_NORTH_UP", "rows or columns run the other way; flipped to north-up", field="georeferencing"
        )
        return Orientation.FLIPPED
    findings.warn(
        "RESAMPLED_TO_NORTH_UP", "the raster is rotated or sheared; resampled to north-up", field="georeferencing"
    )
    return Orientation.ROTATED


def _span_a_plane(gcps: list[object]) -> bool:
    """Return whether control points are finite and lie on no line, neither in the raster nor on the ground."""
    if len(gcps) < MIN_GCPS:
        return False
    places = np.array([[(g.col, g.row), (g.x, g.y)] for g in gcps])  # type: ignore[attr-defined]
    if not np.isfinite(places).all():
        return False
    spread = np.linalg.svd(np.moveaxis(places - places.mean(axis=0), 1, 0), compute_uv=False)
    return bool((spread[:, 1] > _TOLERANCE * spread[:, 0]).all())


def _around_gcps(gcps: list[object]) -> Affine:
    """Return the least-squares affine of the control points, only to know roughly where the raster lies."""
    (a, d), (b, e), (c, f) = _plane(*_places(gcps))
    return Affine(float(a), float(b), float(c), float(d), float(e), float(f))


def _placed_by(gcps: list[object]) -> str:
    """Return by what a raster is placed, and how well these agree: a wild one moves all of it without a word."""
    rows, xs = _places(gcps)
    said = f"placed by {len(gcps)} ground control points"
    weights = (np.linalg.qr(rows)[0] ** 2).sum(axis=1)
    left = np.linalg.norm(xs - rows @ _plane(rows, xs), axis=1)
    spare = weights < 1 - _TOLERANCE  # without it the others still span a plane
    if not spare.any():
        return said
    wildest = int(np.argmax(np.where(spare, left / np.where(spare, 1 - weights, 1), -1)))
    others = _plane(np.delete(rows, wildest, axis=0), np.delete(xs, wildest, axis=0))
    off = np.linalg.lstsq(others[:2].T, xs[wildest] - rows[wildest] @ others, rcond=None)[0]
    return f"{said}; one lies {float(np.hypot(*off)):.1f} pixels from where a plane through the others has it"


def _places(gcps: list[object]) -> tuple[np.ndarray, np.ndarray]:
    """Return columns, rows and ones, and the coordinates of each point."""
    rows = np.array([[g.col, g.row, 1.0] for g in gcps])  # type: ignore[attr-defined]
    return rows, np.array([[g.x, g.y] for g in gcps])  # type: ignore[attr-defined]


def _plane(rows: np.ndarray, xs: np.ndarray) -> np.ndarray:
    fitted: np.ndarray = np.linalg.lstsq(rows, xs, rcond=None)[0]
    return fitted


def _bounds(transform: Affine, width: int, height: int) -> tuple[float, float, float, float]:
    a, b, c, d, e, f = transform[:6]
    corners = ((0, 0), (width, 0), (width, height), (0, height))
    xs = [a * column + b * row + c for column, row in corners]
    ys = [d * column + e * row + f for column, row in corners]
    return min(xs), min(ys), max(xs), max(ys)


def _checked_extent(found: Georeferencing, src: DatasetReader, findings: Findings) -> Georeferencing | None:
    """Return the georeferencing with its longitudes in order, None when the CRS cannot hold the coordinates."""
    flat = crs_rules.horizontal(found.crs)
    if not flat.is_geographic:
        if _has_place(flat, found.bounds):
            return found
        _impossible(found, findings, "PROJ finds no place on Earth for any of its corners")
        return None
    degrees = math.degrees(flat.axis_info[0].unit_conversion_factor) if flat.axis_info else 1.0
    west, south, east, north = (value * degrees for value in found.bounds)
    pixel = (
        max(abs(found.transform.a), abs(found.transform.e), abs(found.transform.b), abs(found.transform.d)) * degrees
    )
    if west < -540 or east > 540 or south < -90 - pixel - _TOLERANCE or north > 90 + pixel + _TOLERANCE:
        _impossible(found, findings, "expected longitudes within ±540 and latitudes within ±90 degrees")
        return None
    if south < -90 - _TOLERANCE or north > 90 + _TOLERANCE:
        findings.warn(
            "BBOX_CLAMPED", "the grid reaches up to a pixel beyond a pole; pixels kept, bbox clamped", field="crs"
        )
    columns = 0 if found.orientation is Orientation.ROTATED else src.width
    return _ordered_longitudes(found, columns, degrees, findings)


def _ordered_longitudes(found: Georeferencing, width: int, degrees: float, findings: Findings) -> Georeferencing:
    """Return the georeferencing with a shift, or a roll where `width` columns (0: never) go around the Earth."""
    west, east = found.bounds[0] * degrees, found.bounds[2] * degrees
    pixel = abs(found.transform.a) * degrees
    if west >= -180 - pixel - _TOLERANCE and east <= 180 + pixel + _TOLERANCE:
        if west < -180 - _TOLERANCE or east > 180 + _TOLERANCE:
            findings.warn(
                "BBOX_CLAMPED", "the grid reaches up to a pixel beyond ±180; pixels kept, bbox clamped", field="crs"
            )
        return found
    if abs(width * pixel - 360) < pixel * 1e-3:
        columns = round((-180 - west) / pixel) % width
        start = west + columns * pixel
        shift = 360.0 * round((-180 - start) / 360)
    else:
        columns, shift = 0, -360.0 * math.floor((west + 180) / 360)
    if columns == 0 and shift == 0:
        return found
    findings.warn(
        "LONGITUDES_SHIFTED",
        f"longitudes {west:g}..{east:g} were moved into -180..180",
        field="crs",
        was=[west, east],
        now=[west + columns * pixel + shift, east + columns * pixel + shift],
    )
    return replace(found, longitude_shift=shift / degrees, roll_columns=columns)


def _has_place(flat: CRS, bounds: tuple[float, float, float, float]) -> bool:
    west, south, east, north = bounds
    try:
        transformer = Transformer.from_crs(flat, flat.geodetic_crs or "EPSG:4326", always_xy=True)
        xs, ys = np.meshgrid(np.linspace(west, east, 9), np.linspace(south, north, 9))
        lons, lats = transformer.transform(xs.ravel(), ys.ravel())
    except ProjError:
        return False
    return bool((np.isfinite(lons) & np.isfinite(lats)).any())


def _impossible(found: Georeferencing, findings: Findings, expected: str) -> None:
    extent = [float(f"{value:.12g}") for value in found.bounds]
    findings.reject(
        "CRS_EXTENT_IMPOSSIBLE",
        "crs",
        f"{crs_rules.describe(found.crs)} cannot hold the extent {extent}: {expected}",
        value=extent,
        remediation="Check which CRS the coordinates are in.",
    )
