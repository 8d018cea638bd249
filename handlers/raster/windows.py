"""Cuts rasters into windows of whole blocks, so that each block is decoded once and memory stays bounded."""

from collections.abc import Iterator
from typing import Final

from rasterio.windows import Window

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Small, because what is counted in a window is held as 64-bit numbers for a moment: eight times as much for bytes."""


def block_windows(
    width: int, height: int, block_width: int, block_height: int, pixel_bytes: float, target: int = WINDOW_BYTES
) -> Iterator[Window]:
    """Yield windows of whole blocks that cover the raster, each about `target` bytes or one block, row by row."""
    block_bytes = max(1.0, block_width * block_height * pixel_bytes)
    blocks = max(1, int(target / block_bytes))
    across = max(1, min(blocks, -(-width // block_width)))
    down = max(1, blocks // across) if across * block_width >= width else 1
    for top in range(0, height, down * block_height):
        for left in range(0, width, across * block_width):
            yield clipped(left, top, across * block_width, down * block_height, width, height)


def clipped(left: int, top: int, columns: int, rows: int, width: int, height: int) -> Window:
    """Return a window cut to the raster."""
    return Window(left, top, min(columns, width - left), min(rows, height - top))


def row_windows(width: int, height: int, pixel_bytes: float, step: int, target: int = WINDOW_BYTES) -> Iterator[Window]:
    """Yield windows over whole rows, `step` rows each or fewer when those would exceed `target` bytes."""
    rows = max(1, min(step, int(target / max(1.0, width * pixel_bytes))))
    for top in range(0, height, rows):
        yield clipped(0, top, width, rows, width, height)
