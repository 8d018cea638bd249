"""Where and when a variable lies, as the CF conventions say it: axes, grid mapping and time."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final

import h5py
import numpy as np
from pyproj import CRS
from pyproj.exceptions import CRSError
from rasterio.transform import Affine

from core.errors import ParameterInvalid
from handlers.raster import crs as crs_rules

REGULAR: Final = 1e-3
"""How much of a step the distances between coordinates may differ."""
MAX_AXIS: Final = 2_000_000
_X: Final = frozenset({"degrees_east", "degree_east", "degreese", "longitude", "projection_x_coordinate", "x", "lon"})
_Y: Final = frozenset({"degrees_north", "degree_north", "degreesn", "latitude", "projection_y_coordinate", "y", "lat"})
_DEGREES: Final = re.compile(r"degrees?_?(east|north|e|n)?", re.IGNORECASE)
_TIME: Final = re.compile(
    r"(second|minute|hour|day)s? since (\d{1,4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.0*)?)?)?(?: ?(?:Z|UTC|\+?0?0:?00))?",
    re.IGNORECASE,
)
_FILTERS: Final = frozenset({1, 2, 3, 4, 5, 6})
"""deflate, shuffle, fletcher32, szip, nbit, scaleoffset: part of HDF5 itself."""
_CALENDARS: Final = frozenset({"", "standard", "gregorian", "proleptic_gregorian"})
_GREGORIAN: Final = datetime(1582, 10, 15, tzinfo=UTC)


class CubeError(Exception):
    """A file that is not read; the text says why."""


class CubeForbidden(CubeError):
    """It refers to something outside of itself."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The two spatial axes of a variable."""

    transform: Affine
    geographic: bool
    transposed: bool
    """x comes before y in the file."""


def check_storage(dataset: Any) -> None:
    """Refuse a dataset whose pixels cannot be read from the file alone, before any is read.

    Raises:
        CubeForbidden: external storage, a virtual dataset, a filter that is not part of HDF5.
    """
    if not isinstance(dataset, h5py.Dataset):
        return  # an array of classic NetCDF, which cannot lie elsewhere
    if dataset.is_virtual or dataset.external:
        raise CubeForbidden("pixels lie in another file")
    plist = dataset.id.get_create_plist()
    filters = {plist.get_filter(index)[0] for index in range(plist.get_nfilters())}
    if not filters <= _FILTERS:
        raise CubeForbidden("it is compressed by a filter that is not part of HDF5")


def grid_of(dataset: Any) -> Grid | None:
    """Return the grid of a numeric variable whose last two dimensions are regular spatial axes, else None."""
    if dataset.shape is None or dataset.ndim < 2 or dataset.dtype.kind not in "iuf" or dataset.dtype.itemsize > 8:
        return None
    if min(dataset.shape) < 1:
        return None
    first, second = (_scale(dataset, axis) for axis in (-2, -1))
    if first is None or second is None:
        return None
    kinds = _kind(first), _kind(second)
    if kinds not in (("y", "x"), ("x", "y")):
        return None
    transposed = kinds == ("x", "y")
    x, y = (first, second) if transposed else (second, first)
    columns, rows = _step(x), _step(y)
    if columns is None or rows is None:
        return None
    (west, across), (north, down) = columns, rows
    geographic = all(_DEGREES.fullmatch(text_of(axis.attrs.get("units"))) for axis in (x, y))
    return Grid(Affine(across, 0, west - across / 2, 0, down, north - down / 2), geographic, transposed)


def crs_of(dataset: Any, grid: Grid) -> tuple[str | None, bool]:
    """Return the WKT of a variable's CRS, and whether only the convention says it; None when nobody says one."""
    name = text_of(dataset.attrs.get("grid_mapping"))
    mapping = dataset.parent.get(name) if name and "/" not in name and name in dataset.parent else None
    if mapping is not None:
        found = _mapped({key: _plain(value) for key, value in mapping.attrs.items()})
        if found is not None:
            return found.to_wkt("WKT2_2019"), False
    return (CRS.from_epsg(4326).to_wkt("WKT2_2019"), True) if grid.geographic and mapping is None else (None, False)


def _mapped(attributes: dict[str, Any]) -> CRS | None:
    text = attributes.get("crs_wkt") or attributes.get("spatial_ref")
    try:
        if isinstance(text, str):
            return crs_rules.parse_crs(text, "crs")
        known = {key: value for key, value in attributes.items() if isinstance(value, int | float | str | list)}
        return CRS.from_cf(known)
    except (ParameterInvalid, CRSError, KeyError, TypeError, ValueError):
        return None


def labels_of(dataset: Any, limit: int) -> list[str]:
    """Return for each step, the first so many, in which order and for which coordinates it is: ` (2024-01-01, 850)`."""
    labels = []
    for place, leading in zip(range(limit), product(*map(range, dataset.shape[:-2])), strict=False):
        values = (_label(dataset, axis, index) for axis, index in enumerate(leading))
        labels.append(f" ({', '.join(values)})")
        assert place < limit
    return labels


def _label(dataset: Any, axis: int, index: int) -> str:
    scale = _scale(dataset, axis)
    if scale is None:
        return str(index + 1)
    moment = _moment(scale, index)
    return moment.isoformat() if moment else f"{scale[index].item():g}"


def moment_of(dataset: Any, leading: tuple[Any, ...]) -> datetime | None:
    """Return the time of a step, None when no leading axis is a time that the calendar of today can say."""
    for axis, index in enumerate(leading):
        scale = _scale(dataset, axis)
        moment = _moment(scale, int(index)) if scale is not None else None
        if moment is not None:
            return moment
    return None


def _moment(scale: Any, index: int) -> datetime | None:
    found = _TIME.fullmatch(text_of(scale.attrs.get("units")).strip())
    if found is None or text_of(scale.attrs.get("calendar")).lower() not in _CALENDARS:
        return None
    unit, *parts = found.groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    try:
        since = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        moment = since + timedelta(**{f"{unit.lower()}s": float(scale[index])})
    except (ValueError, OverflowError):
        return None
    return moment.replace(microsecond=0) if min(since, moment) >= _GREGORIAN else None


def _scale(dataset: Any, axis: int) -> Any | None:
    """Return the coordinates of an axis: one-dimensional, as long as it, numeric."""
    dimension = dataset.dims[axis % dataset.ndim]
    if len(dimension) == 0:
        return None
    scale = dimension[0]
    check_storage(scale)
    good = scale.ndim == 1 and scale.shape[0] == dataset.shape[axis] <= MAX_AXIS and scale.dtype.kind in "iuf"
    return scale if good else None


def _kind(scale: Any) -> str | None:
    """Return x or y, by units, standard name, axis or name, in this order."""
    attributes = scale.attrs
    named = (attributes.get(name) for name in ("units", "standard_name", "axis"))
    for word in (*named, scale.name.rpartition("/")[2]):
        said = text_of(word).lower()
        if said in _X:
            return "x"
        if said in _Y:
            return "y"
    return None


def _step(scale: Any) -> tuple[float, float] | None:
    """Return the first coordinate and the distance between two, None when they are not regular; in metres for km."""
    values = scale[:].astype(np.float64)
    if values.size < 2 or not np.isfinite(values).all():
        return None
    factor = 1000.0 if text_of(scale.attrs.get("units")).lower() in ("km", "kilometre", "kilometer") else 1.0
    step = (values[-1] - values[0]) / (values.size - 1)
    if step == 0 or np.abs(np.diff(values) - step).max() > REGULAR * abs(step):
        return None
    return float(values[0] * factor), float(step * factor)


def text_of(value: Any) -> str:
    """Return a text attribute, empty when it is none; bounded."""
    plain = _plain(value)
    return plain[:200] if isinstance(plain, str) else ""


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return _plain(value.item()) if value.size == 1 else [_plain(item) for item in value.ravel().tolist()]
    return value.item() if isinstance(value, np.generic) else value
