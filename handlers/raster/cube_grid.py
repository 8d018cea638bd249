"""Where a variable lies, as the CF conventions say it: its two spatial axes, and what leads to them."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from handlers.raster.cube_attributes import check_storage, coordinates_of, text_of

REGULAR: Final = 0.02
"""How far a coordinate may lie from its place on a regular axis, in steps."""
MAX_AXIS: Final = 2_000_000
MAX_AXIS_CHUNK: Final = 64_000_000
"""Bytes of a chunk of coordinates."""
DEGREES: Final = re.compile(r"degrees?_?(east|north|e|n)?", re.IGNORECASE)
_TRUE: Final = re.compile(r"degrees?_?(east|north|e|n)", re.IGNORECASE)
_X: Final = frozenset(
    {"degrees_east", "degree_east", "degreese", "longitude", "projection_x_coordinate", "grid_longitude", "x", "lon"}
)
_Y: Final = frozenset(
    {"degrees_north", "degree_north", "degreesn", "latitude", "projection_y_coordinate", "grid_latitude", "y", "lat"}
)
_NO_VARIABLE: Final = b"This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True, slots=True)
class Axis:
    """Regular coordinates."""

    scale: Any
    place: int
    """Which dimension of the variable it is."""
    first: float
    step: float

    @property
    def unit(self) -> str:
        """Unit of the coordinates, empty when there is none."""
        return text_of(self.scale.attrs.get("units")).strip()

    @property
    def is_true(self) -> bool:
        """Whether these are longitudes or latitudes, not those of a rotated grid."""
        said = text_of(self.scale.attrs.get("standard_name")).lower()
        named = said or _name(self.scale)
        in_degrees = bool(DEGREES.fullmatch(self.unit))
        known = named in ("longitude", "latitude", "lon", "lat") or bool(_TRUE.fullmatch(self.unit))
        return in_degrees and known and not self.is_rotated

    @property
    def is_rotated(self) -> bool:
        """Whether these are longitudes or latitudes of a rotated grid."""
        said = text_of(self.scale.attrs.get("standard_name")).lower()
        return said in ("grid_longitude", "grid_latitude") or _name(self.scale) in ("rlon", "rlat")


@dataclass(frozen=True, slots=True)
class Grid:
    """The two spatial axes of a variable."""

    x: Axis
    y: Axis

    @property
    def geographic(self) -> bool:
        """Whether the axes are longitudes and latitudes."""
        return self.x.is_true and self.y.is_true

    @property
    def transposed(self) -> bool:
        """x comes before y in the file."""
        return self.x.place < self.y.place


def grid_of(dataset: Any) -> Grid | None:
    """Return the grid of a numeric variable that has one x and one y axis, both regular, else None."""
    if dataset.shape is None or dataset.ndim < 2 or dataset.dtype.kind not in "iuf" or dataset.dtype.itemsize > 8:
        return None
    if min(dataset.shape) < 1:
        return None
    scales = [scale_of(dataset, place) for place in range(dataset.ndim)]
    kinds = [None if scale is None else _kind(scale) for scale in scales]
    if kinds.count("x") != 1 or kinds.count("y") != 1:
        return None
    x, y = (_axis(scales[kinds.index(kind)], kinds.index(kind)) for kind in ("x", "y"))
    return Grid(x, y) if x is not None and y is not None else None


def scale_of(dataset: Any, place: int) -> Any | None:
    """Return the coordinates of a dimension: one-dimensional, as long as it, numeric."""
    dimension = dataset.dims[place]
    if len(dimension) == 0:
        return None
    scale = dimension[0]
    check_storage(scale)
    good = scale.ndim == 1 and scale.shape[0] == dataset.shape[place] <= MAX_AXIS and scale.dtype.kind in "iuf"
    chunk = (scale.chunks or (0,))[0] * scale.dtype.itemsize
    name = scale.attrs.get("NAME", b"")
    told = not (isinstance(name, bytes) and name.startswith(_NO_VARIABLE))
    return scale if good and told and chunk <= MAX_AXIS_CHUNK else None


def _name(scale: Any) -> str:
    return str(scale.name or "").rpartition("/")[2].lower()


def _kind(scale: Any) -> str | None:
    """Return x or y, by units, standard name, axis or name, in this order."""
    named = (scale.attrs.get(name) for name in ("units", "standard_name", "axis"))
    for word in (*(text_of(value).strip().lower() for value in named), _name(scale)):
        if word in _X:
            return "x"
        if word in _Y:
            return "y"
    return None


def _axis(scale: Any, place: int) -> Axis | None:
    """Return an axis, None when its coordinates are not regular; longitudes may go around."""
    values = coordinates_of(scale)
    if values.size < 2 or not np.isfinite(values).all():
        return None
    axis = _line(scale, place, values)
    around = axis is None and _kind(scale) == "x" and bool(DEGREES.fullmatch(text_of(scale.attrs.get("units"))))
    return _line(scale, place, np.unwrap(values, period=360)) if around else axis


def _line(scale: Any, place: int, values: Any) -> Axis | None:
    step = (values[-1] - values[0]) / (values.size - 1)
    places = values[0] + step * np.arange(values.size)
    regular = step != 0 and np.abs(values - places).max() <= REGULAR * abs(step)
    return Axis(scale, place, float(values[0]), float(step)) if regular else None
