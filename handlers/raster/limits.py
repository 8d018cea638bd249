"""Size limits of rasters, applied to what the header declares before anything is allocated."""

from dataclasses import dataclass
from typing import Final

GIGABYTE: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RasterLimits:
    """Largest raster that is taken."""

    side_pixels: int = 2_000_000
    bands: int = 1024
    pixels: int = 40 * GIGABYTE
    """Columns times rows."""
    decoded_bytes: int = 120 * GIGABYTE
    """Columns times rows times bands times bytes of a value."""
    block_bytes: int = 1 * GIGABYTE
    """One compressed strip or tile, which must be held in memory whole."""


LIMITS: Final = RasterLimits()
