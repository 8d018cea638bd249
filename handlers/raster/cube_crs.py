"""The CRS of a variable, and its axes in the unit of that CRS: CF 5.6 and appendix F."""

import math
from typing import Any, Final

from pyproj import CRS
from pyproj.exceptions import CRSError
from rasterio.transform import Affine

from core.errors import ParameterInvalid
from handlers.raster import crs as crs_rules
from handlers.raster.cube_attributes import CubeContradicts, CubeError, beside, plain_of, text_of
from handlers.raster.cube_grid import DEGREES, Axis, Grid

_METRES: Final = {
    "m": 1.0, "metre": 1.0, "meter": 1.0, "km": 1e3, "kilometre": 1e3, "kilometer": 1e3, "cm": 0.01, "mm": 0.001,
    "ft": 0.3048, "foot": 0.3048, "feet": 0.3048, "us_survey_foot": 1200 / 3937, "us_survey_feet": 1200 / 3937,
    "us survey foot": 1200 / 3937, "us-ft": 1200 / 3937, "mile": 1609.344,
}  # fmt: skip
_RADIANS: Final = {"rad": 1.0, "radian": 1.0, "microradian": 1e-6, "urad": 1e-6}
_FALSE: Final = ("false_easting", "false_northing")


def placed(dataset: Any, grid: Grid) -> tuple[Affine, str | None, bool]:
    """Return transform, WKT of the CRS, and whether only the convention says it; None when nobody says one.

    Raises:
        CubeError: the unit of an axis is none of those that are read.
        CubeContradicts: the axes are not in what the grid mapping says.
    """
    name = _mapping_name(text_of(dataset.attrs.get("grid_mapping")), grid)
    if name is None:
        wkt = CRS.from_epsg(4326).to_wkt("WKT2_2019") if grid.geographic else None
        return _transform(grid, _plain_factor(grid.x), _plain_factor(grid.y)), wkt, grid.geographic
    found = beside(dataset, name)
    crs = None if found is None else _mapped({key: plain_of(value) for key, value in found.attrs.items()}, grid)
    if crs is None:
        return _transform(grid, _plain_factor(grid.x), _plain_factor(grid.y)), None, False
    return _transform(grid, _factor(grid.x, crs), _factor(grid.y, crs)), crs.to_wkt("WKT2_2019"), False


def _mapping_name(text: str, grid: Grid) -> str | None:
    """Return the name of the mapping that the axes are in; `crs: x y other: lat lon` says it of several."""
    if ":" not in text:
        return text or None
    axes = {axis.scale.name.rpartition("/")[2] for axis in (grid.x, grid.y)}
    name = ""
    names: dict[str, set[str]] = {}
    for word in text.split():
        if word.endswith(":"):
            name = word[:-1]
        else:
            names.setdefault(name, set()).add(word)
    return next((name for name, words in names.items() if axes <= words), next(iter(names), None))


def _mapped(attributes: dict[str, Any], grid: Grid) -> CRS | None:
    text = attributes.get("crs_wkt") or attributes.get("spatial_ref")
    try:
        if isinstance(text, str):
            return crs_rules.parse_crs(text, "crs")
        known = {key: value for key, value in attributes.items() if isinstance(value, int | float | str | list)}
        return CRS.from_cf(_in_metres(known, grid))
    except (ParameterInvalid, CRSError, KeyError, TypeError, ValueError):
        return None


def _in_metres(attributes: dict[str, Any], grid: Grid) -> dict[str, Any]:
    """Return the parameters with false origins, which have the unit of the axes, in metres."""
    factors = dict(zip(_FALSE, (_METRES.get(_singular(axis.unit), 1.0) for axis in (grid.x, grid.y)), strict=True))
    return {key: value * factors[key] if key in factors else value for key, value in attributes.items()}


def _singular(unit: str) -> str:
    word = unit.lower()
    return word if word in _METRES or word in _RADIANS else word.removesuffix("s")


def _plain_factor(axis: Axis) -> float:
    """Return what makes metres of lengths where no CRS is known; angles stay as they are."""
    if DEGREES.fullmatch(axis.unit):
        return 1.0
    if not axis.unit:
        _refuse_cells(axis)
        return 1.0
    if _singular(axis.unit) not in _METRES:
        raise _unknown(axis)
    return _METRES[_singular(axis.unit)]


def _factor(axis: Axis, crs: CRS) -> float:
    """Return what makes coordinates of an axis those of the CRS."""
    flat, unit = crs_rules.horizontal(crs), _singular(axis.unit)
    size: float = flat.axis_info[0].unit_conversion_factor
    if not axis.unit:
        _refuse_cells(axis)
        return 1.0
    in_degrees = bool(DEGREES.fullmatch(axis.unit))
    if flat.is_geographic:
        if in_degrees and (not axis.is_true if flat.is_derived else not axis.is_rotated):
            return math.radians(1.0) / size
    elif unit in _METRES:
        return _METRES[unit] / size
    elif unit in _RADIANS and (height := _satellite_height(flat)) is not None:
        return _RADIANS[unit] * height
    if in_degrees or unit in _METRES or unit in _RADIANS:
        raise CubeContradicts(f"the {_which(axis)} is in {axis.unit}, its grid mapping a {flat.type_name}")
    raise _unknown(axis)


def _satellite_height(flat: CRS) -> float | None:
    """Return how far the satellite of a geostationary projection is from the Earth, in metres."""
    said = flat.to_cf()
    geostationary = said.get("grid_mapping_name") == "geostationary"
    return float(said["perspective_point_height"]) if geostationary else None


def _which(axis: Axis) -> str:
    return f"coordinate {str(axis.scale.name).rpartition('/')[2][:40]!r}"


def _unknown(axis: Axis) -> CubeError:
    return CubeError(f"the {_which(axis)} has the unit {axis.unit[:40]!r}, which is neither length nor angle on a grid")


def _refuse_cells(axis: Axis) -> None:
    """Refuse numbers of cells, which some writers put where coordinates belong."""
    if axis.scale.dtype.kind in "iu" and axis.step == 1 and axis.first in (0, 1) and not axis.is_true:
        raise CubeError(f"the {_which(axis)} counts cells, it has no place on the ground")


def _transform(grid: Grid, across: float, down: float) -> Affine:
    x, y = grid.x, grid.y
    return Affine(x.step * across, 0, (x.first - x.step / 2) * across, 0, y.step * down, (y.first - y.step / 2) * down)
