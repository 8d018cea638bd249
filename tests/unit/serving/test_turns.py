"""Grids beyond ±180° are found by tiles, and told to map clients in numbers that these understand."""

import math

import pytest
from rasterio.crs import CRS

from serving.turns import bounds_on_map, shifts, turn_of

WORLD = (-180.0, 180.0)
WEST_EDGE = (-180.0, -177.1875)


@pytest.mark.parametrize(
    ("grid", "tile", "expected"),
    [
        ((178.0, 182.0), WORLD, [-360]),
        ((178.0, 182.0), WEST_EDGE, [-360]),
        ((178.0, 182.0), (177.1875, 180.0), []),
        ((178.0, 180.0), WEST_EDGE, []),
        ((178.0, 180.0 + 1e-8), WEST_EDGE, []),
        ((-182.0, -178.0), WORLD, [360]),
        ((-180.05, 180.05), WORLD, [-360, 360]),
        (WORLD, WORLD, []),
        ((10.0, 20.0), WORLD, []),
        ((538.0, 542.0), WORLD, [-720, -360]),
    ],
)
def test_a_grid_moves_by_whole_turns_that_reach_the_tile(
    grid: tuple[float, float], tile: tuple[float, float], expected: list[float]
) -> None:
    assert sorted(shifts(grid, tile, 360.0)) == sorted(expected)


@pytest.mark.parametrize(
    ("crs", "expected"),
    [
        ("EPSG:4326", 360),
        ("EPSG:3857", 2 * math.pi * 6378137),
        ("EPSG:3395", 2 * math.pi * 6378137),
        ("EPSG:4087", 2 * math.pi * 6378137),
        ("EPSG:6933", 2 * 17367530.445161372),
        ("+proj=mill +R=6371000 +units=km", 2 * math.pi * 6371),
        ("EPSG:32633", None),
        ("EPSG:3035", None),
        ("EPSG:3413", None),
        ("ESRI:54009", None),
        ("EPSG:8857", None),
        ("EPSG:3832", None),
        ("+proj=merc +x_0=5 +datum=WGS84", None),
        ("+proj=merc +a=6378137 +b=6378137 +pm=paris", None),
    ],
)
def test_projections_whose_x_is_longitude_have_a_turn(crs: str, expected: float | None) -> None:
    assert turn_of(CRS.from_user_input(crs)) == (None if expected is None else pytest.approx(expected, rel=1e-9))


@pytest.mark.parametrize(
    ("west", "east", "expected"),
    [
        (178, 182, (-180, 180, 180)),
        (160, 200, (-180, 180, 180)),
        (178, -178, (-180, 180, 180)),
        (170, -160, (-180, 180, -175)),
        (-182, -178, (-180, 180, 180)),
        (-180.05, 180.05, (-180, 180, 0)),
        (182, 186, (-178, -174, -176)),
        (-180, 180, (-180, 180, 0)),
        (10, 20, (10, 20, 15)),
    ],
)
def test_bounds_stay_within_the_earth(west: float, east: float, expected: tuple[float, float, float]) -> None:
    assert bounds_on_map(west, east) == expected
