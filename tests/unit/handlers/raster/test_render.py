"""The default rendering is always usable: finite, increasing ranges on bands that exist."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.raster.facts import RasterType
from handlers.raster.render import default_render, stretch
from handlers.raster.statistics import NOTHING_VALID, BandStatistics

BAND = BandStatistics(0.0, 100.0, 50.0, 10.0, 20.0, 80.0, 100.0, None)
RGB = ["red", "green", "blue"]


def test_continuous_data_are_stretched_between_percentiles() -> None:
    render = default_render(RasterType.CONTINUOUS, "int16", ["gray"], [None], [BAND], -1, None)
    assert render["bidx"] == [1]
    assert render["rescale"] == [[20.0, 80.0]]
    assert (render["colormap_name"], render["nodata"], render["resampling"]) == ("viridis", -1, "bilinear")


def test_colours_are_shown_as_they_are() -> None:
    render = default_render(RasterType.RGB, "uint8", RGB, [None] * 3, [BAND] * 3, None, None)
    assert (render["bidx"], render["rescale"], render["colormap_name"]) == ([1, 2, 3], None, None)


def test_sixteen_bit_colours_are_stretched_band_by_band() -> None:
    bands = [BAND, replace(BAND, p2=1.0), replace(BAND, p98=90.0)]
    render = default_render(RasterType.RGB, "uint16", RGB, [None] * 3, bands, None, None)
    assert render["rescale"] == [[20.0, 80.0], [1.0, 80.0], [20.0, 90.0]]


def test_bands_are_found_by_their_names() -> None:
    names = ["coastal", "blue", "green", "red", "nir", "swir1", "swir2"]
    colors = ["gray"] + ["undefined"] * 6
    render = default_render(RasterType.MULTISPECTRAL, "uint16", colors, names, [BAND] * 7, None, None)
    assert render["bidx"] == [4, 3, 2]


def test_an_alpha_band_is_never_shown() -> None:
    colors = ["alpha", *RGB]
    render = default_render(RasterType.RGBA, "uint8", colors, [None] * 4, [BAND] * 4, None, None)
    assert render["bidx"] == [2, 3, 4]


def test_two_bands_show_the_first() -> None:
    render = default_render(RasterType.MULTISPECTRAL, "uint16", ["gray"] * 2, [None] * 2, [BAND] * 2, None, None)
    assert (render["bidx"], len(render["rescale"])) == ([1], 1)


def test_classes_get_different_colours_and_nearest_resampling() -> None:
    classes = tuple(range(64))
    render = default_render(
        RasterType.CATEGORICAL, "uint8", ["gray"], [None], [replace(BAND, classes=classes)], 255, None
    )
    colours = [tuple(colour) for colour in render["colormap"].values()]
    assert len(set(colours)) == 64
    assert (render["rescale"], render["resampling"]) == (None, "nearest")


def test_a_palette_shows_the_classes_that_occur() -> None:
    palette = {value: (value, 0, 0, 255) for value in range(256)}
    render = default_render(
        RasterType.CATEGORICAL, "uint8", ["palette"], [None], [replace(BAND, classes=(3, 9))], None, palette
    )
    assert render["colormap"] == {"3": [3, 0, 0, 255], "9": [9, 0, 0, 255]}


def test_classes_that_are_too_many_are_still_shown() -> None:
    render = default_render(RasterType.CATEGORICAL, "uint16", ["gray"], [None], [BAND], None, None)
    assert (render["colormap"], render["colormap_name"], render["rescale"]) == (None, "viridis", [[20.0, 80.0]])


@pytest.mark.parametrize("band", [NOTHING_VALID, replace(BAND, p2=5.0, p98=5.0, minimum=5.0, maximum=5.0)])
def test_a_range_without_width_gets_one(band: BandStatistics) -> None:
    low, high = stretch(band)
    assert high > low


@given(st.lists(st.floats(-1e30, 1e30), min_size=4, max_size=4))
def test_a_range_always_increases(numbers: list[float]) -> None:
    minimum, p2, p98, maximum = sorted(numbers)
    low, high = stretch(replace(BAND, minimum=minimum, maximum=maximum, p2=p2, p98=p98))
    assert math.isfinite(low)
    assert high > low
