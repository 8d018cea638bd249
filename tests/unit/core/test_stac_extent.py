"""The extent of a collection: all of its items, the short way round the globe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.stac import ItemExtent, extent_of

OPEN = {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}}


def bbox(*boxes: tuple[float, ...]) -> list[float]:
    found: list[float] = extent_of([ItemExtent(box, None, None) for box in boxes])["spatial"]["bbox"][0]
    return found


def test_without_places_and_times_it_is_open() -> None:
    assert extent_of([]) == extent_of([ItemExtent(None, None, None)]) == OPEN


@pytest.mark.parametrize(
    ("boxes", "covered"),
    [
        ([(12, 45, 12.1, 45.1), (20, 50, 20.1, 50.1)], [12, 45, 20.1, 50.1]),
        ([(12, 45, 0, 12.1, 45.1, 300)], [12, 45, 12.1, 45.1]),
        ([(178, -18, -178, -16)], [178, -18, -178, -16]),
        ([(178, -18, -178, -16), (170, -20, 172, -19)], [170, -20, -178, -16]),
        ([(178, -18, -178, -16), (-100, -20, -90, -19)], [178, -20, -90, -16]),
        ([(178, -18, -178, -16), (-180, -90, 180, 90)], [-180, -90, 180, 90]),
        ([(179, 0, -179, 1), (-179.5, 0, -170, 1), (175, 0, 179.5, 1)], [175, 0, -170, 1]),
    ],
)
def test_all_boxes_are_covered(boxes: list[tuple[float, ...]], covered: list[float]) -> None:
    assert bbox(*boxes) == pytest.approx(covered)


LONGITUDES = st.integers(-179, 179)


@given(st.lists(st.tuples(LONGITUDES, LONGITUDES), min_size=1, max_size=6))
def test_no_box_sticks_out(spans: list[tuple[int, int]]) -> None:
    west, _, east, _ = bbox(*((w, 0, e, 1) for w, e in spans))

    def inside(longitude: float) -> bool:
        return west <= longitude <= east if west <= east else longitude >= west or longitude <= east

    assert all(inside(w) and inside(e) for w, e in spans)


def test_times_are_compared_as_times() -> None:
    items = [
        ItemExtent(None, "2024-06-01T00:00:00+02:00", "2024-06-01T00:00:00+02:00"),
        ItemExtent(None, "2024-05-31T23:00:00Z", "2025-01-01T00:00:00Z"),
        ItemExtent(None, None, None),
    ]
    assert extent_of(items)["temporal"]["interval"] == [["2024-06-01T00:00:00+02:00", "2025-01-01T00:00:00Z"]]
