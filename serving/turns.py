"""Whole turns around the Earth: the grid of a raster may go on beyond ±180°, tiles of a map never do."""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Final

import pyproj
import rasterio
import rasterio.shutil
from morecantile import TileMatrixSet
from rasterio import Affine
from rasterio.crs import CRS
from rasterio.io import DatasetReader, MemoryFile

HALF_TURN: Final = 180.0
TURN: Final = 360.0
_ROUNDING: Final = 1e-9
"""Part of a turn that is no overlap."""
_LONGITUDES: Final = (-179.0, -90.0, -7.0, 0.0, 50.0, 179.0)
_LATITUDES: Final = (-60.0, 0.0, 70.0)
"""Where a projection is asked for x."""


def shifts(grid: tuple[float, float], tile: tuple[float, float], turn: float) -> list[float]:
    """Return by how much to move a grid so that it touches a tile; to stay is not among them.

    Args:
        grid: West and east of the grid.
        tile: West and east of the tile.
        turn: Once around the Earth, in the same units.
    """
    first = math.floor((tile[0] - grid[1]) / turn + _ROUNDING) + 1
    last = math.ceil((tile[1] - grid[0]) / turn - _ROUNDING) - 1
    return [turns * turn for turns in range(first, last + 1) if turns]


def turn_of(crs: CRS) -> float | None:
    """Return once around the Earth in units of a CRS, None where x is no longitude counted from Greenwich."""
    return TURN if crs.is_geographic else _projected_turn(crs.to_wkt())


@functools.lru_cache(maxsize=128)
def _projected_turn(wkt: str) -> float | None:
    """Return the turn of a cylindrical projection (Mercator, equal-area, equirectangular), found by its own numbers."""
    crs = pyproj.CRS.from_wkt(wkt)
    base = crs.geodetic_crs
    if base is None or base.prime_meridian is None or base.prime_meridian.longitude:
        return None
    longitudes, latitudes = zip(*product(_LONGITUDES, _LATITUDES), strict=True)
    try:
        x, _ = pyproj.Transformer.from_crs(base, crs, always_xy=True).transform(longitudes, latitudes)
    except pyproj.exceptions.ProjError:
        return None
    degree = x[-1] / longitudes[-1]
    off = [abs(there - degree * longitude) for there, longitude in zip(x, longitudes, strict=True)]
    return TURN * degree if 0 < degree < math.inf and max(off) <= _ROUNDING * x[-1] else None


@contextmanager
def moved(src: DatasetReader, shift: float) -> Iterator[str]:
    """Yield what GDAL opens as the same raster further east, in units of its CRS; pixels stay where they are stored."""
    with MemoryFile(ext=".vrt") as memory:
        rasterio.shutil.copy(src, memory.name, driver="VRT")
        with rasterio.open(memory.name, "r+") as vrt:
            vrt.transform = Affine.translation(shift, 0) * src.transform
        yield memory.name


def bounds_on_map(west: float, east: float) -> tuple[float, float, float]:
    """Return west and east as map clients understand them, within ±180, and the longitude of the middle.

    What crosses ±180 reaches all around: clients ask nothing where west > east (MapLibre), or beyond ±180.

    Args:
        west: Degrees; more than east when ±180 lies between.
        east: Degrees.
    """
    east += TURN if west > east else 0.0
    turns = TURN * math.floor((west + HALF_TURN) / TURN)
    west, east = west - turns, east - turns
    middle = _within((west + east) / 2)
    return (west, east, middle) if east <= HALF_TURN else (-HALF_TURN, HALF_TURN, middle)


def turned(matrix_set: TileMatrixSet, longitude: float) -> TileMatrixSet:
    """Return a matrix set of the same levels as WebMercatorQuad, with a longitude in its middle."""
    crs = pyproj.CRS.from_proj4(f"+proj=merc +a=6378137 +b=6378137 +lon_0={longitude!r} +units=m +no_defs")
    levels = {"minzoom": matrix_set.minzoom, "maxzoom": matrix_set.maxzoom}
    return TileMatrixSet.custom(list(matrix_set.xy_bbox), crs, **levels)


def _within(longitude: float) -> float:
    return longitude if longitude <= HALF_TURN else longitude - TURN
