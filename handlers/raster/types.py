"""Decides what the pixels of a raster mean, and says why."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from handlers.raster.facts import RasterType

_ELEVATION_WORDS: Final = frozenset(
    {"dem", "dtm", "dsm", "elevation", "elev", "srtm", "height", "altitude", "bathymetry", "terrain", "topography"}
)
_INDEX_WORDS: Final = frozenset({"ndvi", "evi", "savi", "ndwi", "ndmi", "nbr", "gndvi", "ndre"})
_NIR_WORDS: Final = frozenset({"nir", "nearinfrared", "infrared", "cir"})
_SPECTRAL_WORDS: Final = _NIR_WORDS | {"red", "green", "blue", "coastal", "swir", "swir1", "swir2", "rededge", "pan"}
_RGB = ("red", "green", "blue")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the decision rests on."""

    dtype: str
    colors: tuple[str, ...]
    """Colour interpretation of each band."""
    descriptions: tuple[str, ...]
    name: str
    """File name; weak evidence, used only for single bands."""
    has_palette: bool
    has_alpha: bool
    has_heights: bool
    """The CRS has a vertical part."""
    distinct: int | None
    """Number of distinct valid values of a single integer band; None when more than 64 or not counted."""
    minimum: float | None
    maximum: float | None

    @property
    def data_bands(self) -> int:
        """Bands without the alpha band."""
        return len(self.colors) - int(self.has_alpha)

    @property
    def is_float(self) -> bool:
        """Whether pixels are floating-point numbers."""
        return self.dtype.startswith("float")


def words(text: str) -> set[str]:
    """Return the words of a name in lower case: `Site_DEM-2024` has site, dem and 2024."""
    return {word.lower() for word in re.findall(r"[A-Za-z]+\d?|\d+", text)}


def is_spectral(description: str | None) -> bool:
    """Return whether a band's name says that it holds a spectral channel."""
    return bool(words(description or "") & _SPECTRAL_WORDS)


def detect_type(seen: Evidence) -> tuple[RasterType, str]:
    """Return the type and the evidence for it in words."""
    return _single_band(seen) if seen.data_bands == 1 else _many_bands(seen)


def contradiction(stated: RasterType, seen: Evidence) -> str | None:
    """Return why a stated type cannot be, None when it can."""
    bands = seen.data_bands
    if stated in (RasterType.RGB, RasterType.RGBA, RasterType.NIR) and bands < 3:
        return f"{stated} needs at least three bands besides alpha, the raster has {bands}"
    if stated is RasterType.RGBA and not seen.has_alpha:
        return "rgba needs a band tagged alpha whose values are a mask"
    if stated is RasterType.MULTISPECTRAL and bands < 2:
        return "multispectral needs at least two bands, the raster has one"
    if stated in (RasterType.ELEVATION, RasterType.CATEGORICAL, RasterType.VEGETATION_INDEX) and bands != 1:
        return f"{stated} needs exactly one band, the raster has {bands}"
    if stated is RasterType.CATEGORICAL and seen.is_float:
        return f"categorical needs integer pixels, the raster has {seen.dtype}"
    if stated is not RasterType.CATEGORICAL and seen.has_palette:
        return f"a raster with a palette is categorical, not {stated}"
    return None


def _single_band(seen: Evidence) -> tuple[RasterType, str]:
    if seen.has_palette:
        return RasterType.CATEGORICAL, "the band has a palette"
    described = words(" ".join(seen.descriptions))
    named = described | words(seen.name)
    if named & _INDEX_WORDS:
        return RasterType.VEGETATION_INDEX, f"named {_first(named & _INDEX_WORDS)}"
    if seen.has_heights:
        return RasterType.ELEVATION, "the CRS has a vertical part"
    if (seen.is_float and named & _ELEVATION_WORDS) or described & _ELEVATION_WORDS:
        return RasterType.ELEVATION, f"named {_first(named & _ELEVATION_WORDS)}, values {_span(seen)}"
    if seen.distinct is not None and not seen.is_float:
        return RasterType.CATEGORICAL, f"one integer band with {seen.distinct} distinct values"
    if named & _ELEVATION_WORDS:
        return RasterType.ELEVATION, f"named {_first(named & _ELEVATION_WORDS)}, values {_span(seen)}"
    return RasterType.CONTINUOUS, f"one {seen.dtype} band, values {_span(seen)}"


def _many_bands(seen: Evidence) -> tuple[RasterType, str]:
    first_three = _colors_or_names(seen)
    if first_three == _RGB and seen.data_bands == 3:
        if seen.has_alpha:
            return RasterType.RGBA, "bands are red, green, blue and an alpha band whose values are a mask"
        return RasterType.RGB, "bands are red, green and blue"
    if first_three == _RGB and seen.data_bands == 4 and words(seen.descriptions[3]) & _NIR_WORDS:
        return RasterType.NIR, "bands are red, green, blue and near infrared"
    return RasterType.MULTISPECTRAL, f"{seen.data_bands} bands, not red, green and blue alone"


def _colors_or_names(seen: Evidence) -> tuple[str, ...]:
    if seen.colors[:3] == _RGB:
        return _RGB
    names: Sequence[str] = [name.strip().lower() for name in seen.descriptions[:3]]
    return _RGB if tuple(names) == _RGB else seen.colors[:3]


def _first(found: set[str]) -> str:
    return min(found)


def _span(seen: Evidence) -> str:
    return "none" if seen.minimum is None else f"{seen.minimum:g}..{seen.maximum:g}"
