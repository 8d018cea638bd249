"""Footprints hold every pixel, whatever the CRS, across the antimeridian and around poles."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pyproj import CRS, Transformer

from handlers.stac.footprint import Footprint, footprint

PLACES = {
    "utm": ("EPSG:32633", (10, 0, 500000, 0, -10, 4649776), 640, 480),
    "utm far from its meridian": ("EPSG:32633", (1000, 0, 0, 0, -1000, 7800000), 500, 600),
    "geographic": ("EPSG:4326", (0.1, 0, 9, 0, -0.1, 46), 30, 20),
    "other datum": ("EPSG:4314", (0.1, 0, 9, 0, -0.1, 52), 30, 20),
    "web mercator": ("EPSG:3857", (1000, 0, 1e6, 0, -1000, 6e6), 300, 200),
    "antimeridian": ("EPSG:32660", (1000, 0, 590000, 0, -1000, 7300000), 100, 100),
    "antimeridian from the east": ("EPSG:32601", (1000, 0, 200000, 0, -1000, 7300000), 200, 100),
    "antimeridian in degrees": ("EPSG:4326", (0.1, 0, 175, 0, -0.1, 10), 100, 50),
    "south pole": ("EPSG:3031", (20000, 0, -1e6, 0, -20000, 1e6), 100, 100),
    "south pole off centre": ("EPSG:3031", (20000, 0, -1e5, 0, -20000, 3e5), 100, 100),
    "north pole": ("EPSG:3413", (20000, 0, -1e6, 0, -20000, 1e6), 100, 100),
    "near a pole": ("EPSG:3031", (20000, 0, 2e5, 0, -20000, 3e5), 10, 10),
    "rotated": ("EPSG:32633", (7, 7, 500000, 7, -7, 4650000), 96, 48),
    "albers without code": (
        "+proj=aea +lat_1=44 +lat_2=60 +lat_0=31 +lon_0=9 +ellps=intl",
        (5e3, 0, 0, 0, -5e3, 3e6),
        90,
        80,
    ),
}


def made(name: str) -> tuple[Footprint, Any]:
    crs, transform, width, height = PLACES[name]
    found = footprint(CRS.from_user_input(crs), transform, width, height)
    to_lonlat = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    columns, rows = np.meshgrid(np.linspace(0.01, 0.99, 24) * width, np.linspace(0.01, 0.99, 24) * height)
    a, b, c, d, e, f = transform
    lons, lats = to_lonlat.transform(a * columns + b * rows + c, d * columns + e * rows + f)
    return found, list(zip(((lons + 180) % 360 - 180).ravel().tolist(), lats.ravel().tolist(), strict=True))


def rings(geometry: dict[str, Any]) -> list[list[list[float]]]:
    polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    assert all(len(polygon) == 1 for polygon in polygons)
    return [polygon[0] for polygon in polygons]


def holds(ring: list[list[float]], lon: float, lat: float) -> bool:
    """Return whether a ring holds a point (even-odd rule)."""
    inside = False
    for (lon_a, lat_a), (lon_b, lat_b) in pairwise(ring):
        if (lat_a > lat) != (lat_b > lat) and lon < lon_a + (lat - lat_a) / (lat_b - lat_a) * (lon_b - lon_a):
            inside = not inside
    return inside


@pytest.mark.parametrize("name", PLACES)
def test_every_pixel_lies_in_bbox_and_geometry(name: str) -> None:
    found, points = made(name)
    west, south, east, north = found.bbox
    for lon, lat in points:
        assert south - 1e-6 <= lat <= north + 1e-6
        assert west - 1e-6 <= lon <= east + 1e-6 if west <= east else lon >= west - 1e-6 or lon <= east + 1e-6
        assert any(holds(ring, lon, lat) for ring in rings(found.geometry)), (lon, lat)


@pytest.mark.parametrize("name", PLACES)
def test_rings_are_closed_counter_clockwise_finite_and_within_the_world(name: str) -> None:
    found, _ = made(name)
    for ring in rings(found.geometry):
        assert ring[0] == ring[-1]
        assert len(ring) >= 4
        assert sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring)) > 0
        assert all(math.isfinite(lon) and -180 <= lon <= 180 and -90 <= lat <= 90 for lon, lat in ring)


@pytest.mark.parametrize("name", PLACES)
def test_the_bbox_is_that_of_the_geometry(name: str) -> None:
    found, _ = made(name)
    parts = rings(found.geometry)
    west, south, east, north = found.bbox
    lats = [lat for ring in parts for _, lat in ring]
    assert (min(lats), max(lats)) == pytest.approx((south, north), abs=1e-4)
    if len(parts) == 2:
        assert west > east
        assert min(lon for lon, _ in parts[0]) == pytest.approx(west, abs=1e-4)
        assert max(lon for lon, _ in parts[1]) == pytest.approx(east, abs=1e-4)


def test_crossing_the_antimeridian_gives_two_parts_and_west_above_east() -> None:
    found, _ = made("antimeridian")
    assert found.geometry["type"] == "MultiPolygon"
    assert found.bbox == pytest.approx([178.9025, 64.8701, -178.8495, 65.8087], abs=1e-4)
    left, right = rings(found.geometry)
    assert max(lon for lon, _ in left) == 180
    assert min(lon for lon, _ in right) == -180


@pytest.mark.parametrize(
    ("name", "south", "north"),
    [("south pole", -90, -77.04), ("south pole off centre", -90, None), ("north pole", None, 90)],
)
def test_a_pole_inside_reaches_it_at_all_longitudes(name: str, south: float | None, north: float | None) -> None:
    found, _ = made(name)
    assert (found.bbox[0], found.bbox[2]) == (-180, 180)
    assert south is None or found.bbox[1] == south
    assert north is None or found.bbox[3] == pytest.approx(north, abs=0.01)


@pytest.mark.parametrize(
    ("transform", "width", "height", "bbox"),
    [
        ((1, 0, -180, 0, -1, 90), 360, 180, [-180, -90, 180, 90]),
        ((1, 0, -180.5, 0, -1, 90.5), 361, 181, [-180, -90, 180, 90]),
        ((1, 0, 0, 0, -1, 90), 360, 180, [-180, -90, 180, 90]),
        ((1, 0, 200, 0, -1, 10), 130, 20, [-160, -10, -30, 10]),
        ((1, 0, 170, 0, -1, 10), 10, 20, [170, -10, 180, 10]),
        ((1, 0, 180, 0, -1, 10), 10, 20, [-180, -10, -170, 10]),
        ((1, 0, -190, 0, -1, 10), 20, 20, [170, -10, -170, 10]),
    ],
)
def test_degrees(transform: tuple[float, ...], width: int, height: int, bbox: list[float]) -> None:
    assert footprint(CRS.from_epsg(4326), transform, width, height).bbox == pytest.approx(bbox)


def test_corners_outside_the_projection_are_left_out() -> None:
    globe = CRS.from_user_input("+proj=sinu +R=6371007.181")
    found = footprint(globe, (1e5, 0, -2.0015e7, 0, -1e5, 1.00075e7), 401, 201)
    assert found.bbox[0] <= -179
    assert found.bbox[2] >= 179
    assert all(math.isfinite(value) for value in found.bbox)
    disc = CRS.from_user_input("+proj=geos +h=35785831 +lon_0=140 +ellps=WGS84")
    found = footprint(disc, (4e4, 0, -5.6e6, 0, -4e4, 5.6e6), 280, 280)
    assert found.geometry["type"] == "MultiPolygon"
    assert found.bbox[0] > 40
    assert found.bbox[2] < -120


def test_a_small_north_up_raster_needs_five_points() -> None:
    found, _ = made("geographic")
    assert found.geometry["coordinates"] == [[[9, 46], [9, 44], [12, 44], [12, 46], [9, 46]]]
