"""Default rendering of a raster: which bands, which stretch, which colours. Always usable, whatever the type."""

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handlers.raster.facts import IMAGERY, NodataValue, RasterType
from handlers.raster.statistics import BandStatistics
from handlers.raster.types import words

Json = dict[str, Any]
Palette = Mapping[int, tuple[int, int, int, int]]

_COLORMAPS: Final = {
    RasterType.ELEVATION: "terrain",
    RasterType.VEGETATION_INDEX: "rdylgn",
    RasterType.CONTINUOUS: "viridis",
    RasterType.MULTISPECTRAL: "viridis",
}
_GOLDEN_RATIO: Final = 0.618033988749895
_RGB: Final = ("red", "green", "blue")


def default_render(
    raster_type: RasterType,
    dtype: str,
    colors: Sequence[str],
    descriptions: Sequence[str | None],
    statistics: Sequence[BandStatistics],
    nodata: NodataValue,
    palette: Palette | None,
) -> Json:
    """Return `{bidx, rescale, colormap, colormap_name, nodata, resampling}`.

    `bidx` counts from 1; `rescale` has one pair for each of `bidx`, or is null when values are colours already;
    `colormap` maps class values (as text) to RGBA.
    """
    bidx = _bands(raster_type, colors, descriptions)
    chosen = [statistics[band - 1] for band in bidx]
    render: Json = {
        "bidx": bidx,
        "rescale": [stretch(band) for band in chosen],
        "colormap": None,
        "colormap_name": _COLORMAPS.get(raster_type) if len(bidx) == 1 else None,
        "nodata": nodata,
        "resampling": "nearest" if raster_type is RasterType.CATEGORICAL else "bilinear",
    }
    if raster_type is RasterType.CATEGORICAL:
        classes = _used(palette, chosen[0]) if palette else _class_colors(chosen[0].classes or ())
        if classes:
            render |= {"colormap": {str(value): list(rgba) for value, rgba in classes.items()}, "rescale": None}
        else:
            render["colormap_name"] = "viridis"
    elif raster_type is not RasterType.MULTISPECTRAL and len(bidx) == 3 and dtype == "uint8":
        render["rescale"] = None
    return render


def stretch(band: BandStatistics) -> list[float]:
    """Return the range to show: p2..p98, else the extremes, else something of width one."""
    for low, high in ((band.p2, band.p98), (band.minimum, band.maximum)):
        if low is not None and high is not None and high > low:
            return [float(low), float(high)]
    only = float(band.minimum) if band.minimum is not None else 0.0
    return [only, only + max(1.0, abs(only) * 1e-6)]


def _bands(raster_type: RasterType, colors: Sequence[str], descriptions: Sequence[str | None]) -> list[int]:
    data = [band for band, color in enumerate(colors, 1) if color != "alpha"]
    if raster_type not in IMAGERY or len(data) < 3:
        return data[:1]
    named = [_named(color, colors, descriptions) for color in _RGB]
    return [band for band in named if band] if all(named) else data[:3]


def _named(color: str, colors: Sequence[str], descriptions: Sequence[str | None]) -> int | None:
    """Return the band that is this colour by its interpretation, else by its name."""
    if color in colors:
        return colors.index(color) + 1
    for band, text in enumerate(descriptions, 1):
        if words(text or "") == {color}:
            return band
    return None


def _used(palette: Palette, band: BandStatistics) -> Palette:
    """Return the entries of the palette that occur; all of them when there are too many to know."""
    return {value: palette[value] for value in band.classes or palette if value in palette}


def _class_colors(classes: Sequence[int]) -> dict[int, tuple[int, int, int, int]]:
    """Return clearly different colours for class values, the same ones every time."""
    chosen: dict[int, tuple[int, int, int, int]] = {}
    for place, value in enumerate(classes):
        red, green, blue = colorsys.hsv_to_rgb(place * _GOLDEN_RATIO % 1.0, 0.65, 0.9)
        chosen[value] = (round(red * 255), round(green * 255), round(blue * 255), 255)
    return chosen
