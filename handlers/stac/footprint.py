"""Where a raster lies in longitude and latitude: bbox and footprint by GeoJSON (RFC 7946).

Longitudes follow the edge of the raster without jumps, so an edge that crosses ±180 is seen as such, and one that
goes once around the Earth encloses a pole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyproj import CRS, Transformer

EDGE_POINTS: Final = 64
"""Points on each edge; enough for edges that are curves in longitude and latitude."""
DECIMALS: Final = 8
"""About a millimetre on the ground."""
MAX_TOLERANCE: Final = 1e-5
RELATIVE_TOLERANCE: Final = 1e-4
"""How far a footprint may leave the true edge, in degrees and as a share of its size."""
_GRID_POINTS: Final = 65
_EPSILON: Final = 1e-9

Point = tuple[float, float]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Footprint:
    """West, south, east, north with west > east across ±180, and the area as Polygon or MultiPolygon."""

    bbox: list[float]
    geometry: Json


def footprint(crs: CRS, transform: Sequence[float], width: int, height: int) -> Footprint:
    """Return where a raster lies.

    Args:
        crs: horizontal CRS of the raster.
        transform: affine a..f from columns and rows to x and y.
        width: columns.
        height: rows.
    """
    to_lonlat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    columns, rows = _edge(width, height)
    lons, lats = _transformed(to_lonlat, transform, columns, rows)
    if not (np.isfinite(lons) & np.isfinite(lats)).all():
        return _of_box(*_box_of_grid(to_lonlat, transform, width, height))
    ring = _unwrapped(lons, lats)
    turn = ring[-1][0] - ring[0][0]
    if abs(turn) > 180:
        pole = _enclosed_pole(crs, transform, width, height, ring)
        return _of_polar(ring[:-1], pole)
    return _of_ring(ring)


def _edge(width: int, height: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return columns and rows along the closed edge, clockwise from the upper left corner."""
    step = np.linspace(0.0, 1.0, EDGE_POINTS, endpoint=False)
    zero, one = np.zeros(EDGE_POINTS), np.ones(EDGE_POINTS)
    columns = np.concatenate([step, one, 1 - step, zero, [0.0]]) * width
    rows = np.concatenate([zero, step, one, 1 - step, [0.0]]) * height
    return columns, rows


def _transformed(
    to_lonlat: Transformer, transform: Sequence[float], columns: NDArray[np.float64], rows: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b, c, d, e, f = transform[:6]
    lons, lats = to_lonlat.transform(a * columns + b * rows + c, d * columns + e * rows + f)
    return np.asarray(lons), np.asarray(lats)


def _unwrapped(lons: NDArray[np.float64], lats: NDArray[np.float64]) -> list[Point]:
    """Return the ring with longitudes that never jump by more than half a turn."""
    turns = np.concatenate([[0.0], np.cumsum(np.round(np.diff(lons) / 360.0))])
    return [(float(lon), float(lat)) for lon, lat in zip(lons - 360.0 * turns, _clamped(lats), strict=True)]


def _clamped(lats: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(lats, -90.0, 90.0)


def _of_ring(ring: list[Point]) -> Footprint:
    lons, lats = [lon for lon, _ in ring], [lat for _, lat in ring]
    west, east, south, north = min(lons), max(lons), min(lats), max(lats)
    if east - west >= 360 - _EPSILON:
        return _of_box(-180.0, south, 180.0, north)
    shift = -360.0 * math.floor((west + 180.0) / 360.0)
    moved = [(lon + shift, lat) for lon, lat in ring]
    west, east = west + shift, east + shift
    if east <= 180 + _EPSILON:
        return Footprint(_rounded([west, south, min(east, 180.0), north]), _polygons([moved]))
    parts = [_clipped(moved, 180.0, keep_west=True), _clipped(moved, 180.0, keep_west=False)]
    parts[1] = [(lon - 360.0, lat) for lon, lat in parts[1]]
    return Footprint(_rounded([west, south, east - 360.0, north]), _polygons(parts))


def _of_box(west: float, south: float, east: float, north: float) -> Footprint:
    boxes = [(west, 180.0), (-180.0, east)] if west > east else [(west, east)]
    rings = [[(left, south), (right, south), (right, north), (left, north), (left, south)] for left, right in boxes]
    return Footprint(_rounded([west, south, east, north]), _polygons(rings))


def _of_polar(ring: list[Point], pole: float) -> Footprint:
    """Return the footprint of a raster that holds a pole: everything between its edge and the pole."""
    points = sorted(((lon + 180.0) % 360.0 - 180.0, lat) for lon, lat in ring)
    (first_lon, first_lat), (last_lon, last_lat) = points[0], points[-1]
    gap = first_lon + 360.0 - last_lon
    share = (180.0 - last_lon) / gap if gap > _EPSILON else 0.0
    seam = last_lat + share * (first_lat - last_lat)
    along = [(-180.0, seam), *points, (180.0, seam)]
    closed = [*along, (180.0, pole), (-180.0, pole), (-180.0, seam)]
    lats = [lat for _, lat in along]
    south, north = (min(lats), 90.0) if pole > 0 else (-90.0, max(lats))
    return Footprint(_rounded([-180.0, south, 180.0, north]), _polygons([closed]))


def _enclosed_pole(crs: CRS, transform: Sequence[float], width: int, height: int, ring: list[Point]) -> float:
    """Return the latitude of the pole that lies inside; by the side of the equator when the CRS cannot say."""
    a, b, c, d, e, f = transform[:6]
    from_lonlat = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    determinant = a * e - b * d
    for pole in (90.0, -90.0):
        x, y = from_lonlat.transform(0.0, pole)
        if not (math.isfinite(x) and math.isfinite(y)) or determinant == 0:
            continue
        column = (e * (x - c) - b * (y - f)) / determinant
        row = (a * (y - f) - d * (x - c)) / determinant
        if 0 <= column <= width and 0 <= row <= height:
            return pole
    return 90.0 if sum(lat for _, lat in ring) > 0 else -90.0


def _box_of_grid(
    to_lonlat: Transformer, transform: Sequence[float], width: int, height: int
) -> tuple[float, float, float, float]:
    """Return the box of all places of a grid over the raster that PROJ can transform.

    West > east when the smallest interval that holds all longitudes crosses ±180.
    """
    columns, rows = np.meshgrid(np.linspace(0, width, _GRID_POINTS), np.linspace(0, height, _GRID_POINTS))
    lons, lats = _transformed(to_lonlat, transform, columns.ravel(), rows.ravel())
    known = np.isfinite(lons) & np.isfinite(lats)
    lons, lats = np.sort((lons[known] + 180.0) % 360.0 - 180.0), _clamped(lats[known])
    gaps = np.diff(np.concatenate([lons, [lons[0] + 360.0]]))
    widest = int(gaps.argmax())
    south, north = float(lats.min()), float(lats.max())
    if gaps[widest] < 360.0 / 16:
        return -180.0, south, 180.0, north
    return float(lons[(widest + 1) % lons.size]), south, float(lons[widest]), north


def _clipped(ring: list[Point], meridian: float, *, keep_west: bool) -> list[Point]:
    """Return the part of a closed ring on one side of a meridian (Sutherland and Hodgman), closed again."""
    sign = 1.0 if keep_west else -1.0
    kept: list[Point] = []
    for (lon_a, lat_a), (lon_b, lat_b) in pairwise(ring):
        inside_a, inside_b = sign * lon_a <= sign * meridian, sign * lon_b <= sign * meridian
        if inside_a:
            kept.append((lon_a, lat_a))
        if inside_a != inside_b:
            share = (meridian - lon_a) / (lon_b - lon_a)
            kept.append((meridian, lat_a + share * (lat_b - lat_a)))
    return [*kept, kept[0]]


def _polygons(rings: list[list[Point]]) -> Json:
    """Return a Polygon, or a MultiPolygon for several rings, counter-clockwise and without needless points."""
    coordinates = [[_counter_clockwise(_simplified(ring))] for ring in rings]
    if len(coordinates) == 1:
        return {"type": "Polygon", "coordinates": coordinates[0]}
    return {"type": "MultiPolygon", "coordinates": coordinates}


def _simplified(ring: list[Point]) -> list[Point]:
    """Return the closed ring with fewer points, none further from it than a fraction of its size."""
    spread = max(max(axis) - min(axis) for axis in zip(*ring, strict=True))
    tolerance = min(MAX_TOLERANCE, spread * RELATIVE_TOLERANCE)
    open_ring = ring[:-1]
    far = max(range(len(open_ring)), key=lambda place: math.dist(open_ring[0], open_ring[place]))
    there = _thinned(open_ring[: far + 1], tolerance)
    back = _thinned([*open_ring[far:], open_ring[0]], tolerance)
    kept = [(round(lon, DECIMALS), round(lat, DECIMALS)) for lon, lat in [*there[:-1], *back[:-1]]]
    return [*kept, kept[0]]


def _thinned(line: list[Point], tolerance: float) -> list[Point]:
    """Return a line with the points that matter (Douglas and Peucker)."""
    if len(line) < 3:
        return line
    distances = [_distance(point, line[0], line[-1]) for point in line[1:-1]]
    worst = max(range(len(distances)), key=distances.__getitem__)
    if distances[worst] <= tolerance:
        return [line[0], line[-1]]
    middle = worst + 1
    return [*_thinned(line[: middle + 1], tolerance)[:-1], *_thinned(line[middle:], tolerance)]


def _distance(point: Point, start: Point, end: Point) -> float:
    """Return the distance of a point from the line through two others, in degrees."""
    length = math.dist(start, end)
    if length == 0:
        return math.dist(point, start)
    cross = (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])
    return abs(cross) / length


def _counter_clockwise(ring: list[Point]) -> list[list[float]]:
    area = sum(lon_a * lat_b - lon_b * lat_a for (lon_a, lat_a), (lon_b, lat_b) in pairwise(ring))
    return [list(point) for point in (ring if area >= 0 else reversed(ring))]


def _rounded(bbox: list[float]) -> list[float]:
    return [round(value, DECIMALS) + 0.0 for value in bbox]
