"""Estimates from the header alone what turning a raster into a COG will need, and which way it should go.

Numbers: what processes really took (docs/raster-rules.md); the block cache is bounded, so
memory does not grow with the raster but with its blocks.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np

from handlers.raster import gdal
from handlers.raster.facts import RasterFacts, RasterType, Validity
from handlers.raster.limits import GIGABYTE
from handlers.raster.plan import Plan
from handlers.raster.profiles import BLOCK_SIZE, CogProfile
from handlers.raster.windows import WINDOW_BYTES

MEGABYTE: Final = 1_000_000
TILED_BYTES: Final = 4 * GIGABYTE
"""Decoded bytes above which a raster is better cut into tiles."""
_PROCESS_BYTES: Final = 130 * gdal.MEBIBYTE
"""A process with GDAL, PROJ and numpy before it reads anything."""
_CACHE_OVERHEAD: Final = 1.3
"""What a block cache really takes beside its limit."""
_WINDOWS_HELD: Final = 10
"""Arrays of one window that exist at a time: pixels, validity, and 64-bit numbers made of them."""
_OVERVIEWS: Final = 1 / 3
_BYTES_PER_SECOND: Final = {"none": 20e6, "zstd": 14e6, "deflate": 12e6, "jpeg": 12e6, "lzw": 9e6}
"""Decoded bytes that one core of a busy machine validates, converts and measures."""
_CATEGORICAL_SHARE: Final = 0.35
"""Of that speed, where the level is higher and overviews take the most frequent value."""
_WARPED_BYTES_PER_SECOND: Final = 20e6
_STARTUP_SECONDS: Final = 1.0


class Route(StrEnum):
    """Which way a raster goes."""

    DIRECT = "direct"
    TILED = "tiled"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one raster needs."""

    memory_bytes: int
    """Peak of the largest process."""
    scratch_bytes: int
    """Files that exist at a time beside the source."""
    seconds: float
    """Of one core."""
    route: Route

    def as_json(self) -> dict[str, Any]:
        """Return the estimate as JSON."""
        return asdict(self) | {"route": str(self.route)}


def estimate(facts: RasterFacts, plan: Plan, profile: CogProfile, *, block_bytes: int, packed_bytes: int) -> Estimate:
    """Return what a raster needs.

    Args:
        facts: what validation knows, from the header alone or from all pixels.
        plan: the steps.
        profile: how the COG is written.
        block_bytes: one block of the source in memory.
        packed_bytes: what had to leave an archive, else 0.
    """
    pixel_bytes = np.dtype(facts.dtype).itemsize * facts.count + (1 if facts.validity is Validity.MASK else 0)
    decoded = facts.width * facts.height * pixel_bytes
    cache = gdal.WARP_CACHE_BYTES if plan.warp_to else gdal.COG_CACHE_BYTES
    row_of_blocks = -(-facts.width // BLOCK_SIZE) * BLOCK_SIZE * BLOCK_SIZE * pixel_bytes
    window = min(decoded, max(WINDOW_BYTES, block_bytes))
    held = min(decoded * (1 + _OVERVIEWS), _CACHE_OVERHEAD * cache)
    memory = _PROCESS_BYTES + held + _WINDOWS_HELD * window + min(row_of_blocks, WINDOW_BYTES)
    copies = decoded * (bool(plan.rewrite) + bool(plan.warp_to))
    scratch = packed_bytes + copies + decoded * (1 + 2 * _OVERVIEWS)
    speed = _BYTES_PER_SECOND[profile.compression]
    speed *= _CATEGORICAL_SHARE if facts.raster_type is RasterType.CATEGORICAL else 1
    seconds = _STARTUP_SECONDS + decoded / speed
    if plan.warp_to:
        seconds += decoded / _WARPED_BYTES_PER_SECOND
    route = Route.TILED if decoded > TILED_BYTES else Route.DIRECT
    return Estimate(int(memory), int(scratch), round(seconds, 1), route)
