"""How a COG of each type is compressed, resampled and laid out. Numbers behind the choices: geo-stack.md §4.

The level is always given: GDAL's defaults (6 and 9) cost more than twice the time for a few percent of size.
"""

from dataclasses import dataclass
from typing import Final

from rasterio.enums import Resampling

from handlers.raster.facts import RasterType
from handlers.raster.options import LOSSY

BLOCK_SIZE: Final = 512
JPEG_QUALITY: Final = 85
_CATEGORICAL_LEVEL: Final = 6
"""Classes compress fast, so that a higher level costs little and halves the file."""


@dataclass(frozen=True, slots=True)
class CogProfile:
    """Everything that the type of a raster decides about its COG."""

    compression: str
    level: int | None
    predictor: bool
    overviews: str
    """Resampling of overviews, as the COG driver names it."""
    warp: Resampling

    @property
    def is_lossy(self) -> bool:
        """Whether pixels change by compression."""
        return self.compression in LOSSY

    def creation_options(self, threads: int) -> dict[str, str]:
        """Return the options of GDAL's COG driver."""
        options = {
            "COMPRESS": self.compression.upper(),
            "BLOCKSIZE": str(BLOCK_SIZE),
            "BIGTIFF": "IF_SAFER",
            "OVERVIEWS": "IGNORE_EXISTING",
            "OVERVIEW_RESAMPLING": self.overviews,
            "NUM_THREADS": str(threads),
        }
        if self.level is not None:
            options["LEVEL"] = str(self.level)
        if self.compression in ("deflate", "zstd", "lzw"):
            options["PREDICTOR"] = "YES" if self.predictor else "NO"
        if self.compression == "jpeg":
            options["QUALITY"] = str(JPEG_QUALITY)
        return options


_OVERVIEWS: Final = {
    RasterType.CATEGORICAL: "MODE",
    RasterType.ELEVATION: "BILINEAR",
}
_WARP: Final = {
    RasterType.CATEGORICAL: Resampling.nearest,
    RasterType.RGB: Resampling.cubic,
    RasterType.RGBA: Resampling.cubic,
}


def profile_of(raster_type: RasterType, compression: str | None) -> CogProfile:
    """Return the profile of a type; the compression is the submit's wish or deflate."""
    chosen = compression or "deflate"
    categorical = raster_type is RasterType.CATEGORICAL
    level = None
    if chosen in ("deflate", "zstd"):
        level = _CATEGORICAL_LEVEL if categorical else 1
    return CogProfile(
        compression=chosen,
        level=level,
        predictor=not categorical,
        overviews=_OVERVIEWS.get(raster_type, "AVERAGE"),
        warp=_WARP.get(raster_type, Resampling.bilinear),
    )
