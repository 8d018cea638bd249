"""Grids beyond ±180° are found by tiles, and told to map clients in numbers that these understand."""

import pytest

from serving.turns import bounds_on_map, shifts

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
