"""How a large raster is cut: a grid of tiles in the pixels of its output, so that tiles meet without a seam.

Corners of tiles are corners of blocks of the whole COG, and tiles are reduced by a power of two that divides their
size, so that blocks and overviews of tiles are those of the whole.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from pydantic import Field
from pyproj import CRS, Transformer
from rasterio.io import DatasetReader
from rasterio.transform import Affine
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from core.documents import Document
from handlers.raster import crs as crs_rules
from handlers.raster.facts import RasterFacts
from handlers.raster.plan import Plan, final_transform
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.warp import NOT_WARPED, gcp_settings, no_place

TILE_PIXELS: Final = 4096
"""Side of a tile unless its bytes say otherwise; small enough for 400 MB a process."""
TILE_BYTES: Final = 128_000_000
"""Decoded bytes of a tile, at most, unless a workflow says otherwise."""
OVERVIEW_PIXELS: Final = 2048
"""Longer side of the overview of the whole, at most: it costs a COG of its own beside those of the tiles."""
_PROBES: Final = 33
"""Places along each side of a tile at which its source is looked up."""
_MARGIN: Final = 16
"""Pixels of the source around a tile, for kernels; more where the source is reduced."""


class Grid(Document):
    """The output of a large raster and its tiles."""

    crs_wkt: str = Field(description="WKT2 of the output.")
    transform: tuple[float, float, float, float, float, float] = Field(description="Affine a..f of the whole.")
    width: int
    height: int
    tile_pixels: int = Field(description="Side of a tile, a multiple of 512; those at the east and south are smaller.")
    reduction: int = Field(description="Power of two by which the overview of the whole is smaller.")
    files: int | None = Field(default=None, description="How many delivered files lie in it; null when it was cut.")

    def tiles(self) -> Iterator["Tile"]:
        """Yield the tiles, row by row from the north west."""
        step = self.tile_pixels
        for row, top in enumerate(range(0, self.height, step)):
            for column, left in enumerate(range(0, self.width, step)):
                size = (min(step, self.width - left), min(step, self.height - top))
                yield Tile(row=row, column=column, window=(left, top, *size))

    def affine(self, window: tuple[int, int, int, int] = (0, 0, 0, 0), reduction: int = 1) -> Affine:
        """Return the transform of a window of the whole, reduced."""
        return Affine(*self.transform) * Affine.translation(*window[:2]) * Affine.scale(reduction)


class Tile(Document):
    """One tile of a grid."""

    row: int = Field(description="From the north, counted from 0.")
    column: int = Field(description="From the west, counted from 0.")
    window: tuple[int, int, int, int] = Field(description="Left, top, width and height in pixels of the whole.")

    @property
    def name(self) -> str:
        """Return what tells it from the others in names and ids."""
        return f"r{self.row:04d}c{self.column:04d}"


def make_grid(
    src: DatasetReader, facts: RasterFacts, plan: Plan, tile_pixels: int | None, tile_size_mb: float | None
) -> Grid:
    """Return the grid of an open raster that lies where it will lie before it is resampled.

    Raises:
        DataError: CRS_EXTENT_IMPOSSIBLE when the target CRS cannot show the raster.
    """
    transform, width, height = final_transform(facts), facts.width, facts.height
    if plan.warp_to is not None:
        source_crs = crs_rules.horizontal(CRS.from_wkt(facts.crs_wkt))
        try:
            with WarpedVRT(
                src,
                src_crs=crs_rules.to_rasterio(crs_rules.wkt2(source_crs)),
                crs=crs_rules.to_rasterio(plan.warp_to),
                **gcp_settings(src, facts),
            ) as vrt:
                transform, width, height = vrt.transform, vrt.width, vrt.height
        except NOT_WARPED as error:
            raise no_place(facts) from error
        if not (width and height):
            raise no_place(facts)
    pixel_bytes = np.dtype(facts.dtype).itemsize * facts.count
    side = tile_pixels or min(TILE_PIXELS, _side(TILE_BYTES, pixel_bytes))
    if tile_size_mb is not None:
        side = _side(tile_size_mb * 1e6, pixel_bytes)
    return Grid(
        crs_wkt=plan.final_crs,
        transform=tuple(transform[:6]),
        width=width,
        height=height,
        tile_pixels=side,
        reduction=reduction_of(max(width, height)),
    )


def _side(size_bytes: float, pixel_bytes: float) -> int:
    """Return the side of a tile of at most so many bytes: 512, 1024, 2048 and so on."""
    blocks = math.sqrt(size_bytes / pixel_bytes) / BLOCK_SIZE
    return BLOCK_SIZE << math.floor(math.log2(max(1.0, blocks)))


def reduction_of(longest: int) -> int:
    """Return the power of two by which the overview of a raster with so long a side is smaller."""
    return 1 << max(1, math.ceil(math.log2(max(1.0, longest / OVERVIEW_PIXELS))))


def source_region(tile: Tile, grid: Grid, facts: RasterFacts, plan: Plan) -> Window:
    """Return what a resampled tile needs of its source: whole blocks, in pixels of the copy that is resampled.

    All of it where that cannot be told: by GCPs, or where some of the tile has no place in the source.
    """
    whole = Window(0, 0, facts.width, facts.height)
    if facts.has_gcps or plan.warp_to is None:
        return whole
    left, top, width, height = tile.window
    axes = [np.linspace(start, start + size, _PROBES) for start, size in ((left, width), (top, height))]
    columns, rows = (axis.ravel() for axis in np.meshgrid(*axes))
    a, b, c, d, e, f = grid.transform
    source_crs = crs_rules.horizontal(CRS.from_wkt(facts.crs_wkt))
    transformer = Transformer.from_crs(plan.warp_to, source_crs, always_xy=True)
    xs, ys = transformer.transform(a * columns + b * rows + c, d * columns + e * rows + f)
    a, b, c, d, e, f = (~final_transform(facts))[:6]
    places = np.array([a * xs + b * ys + c, d * xs + e * ys + f])
    if not np.isfinite(places).all():
        return whole
    spans = [
        _span(at.min(), at.max(), size, pixels)
        for at, size, pixels in zip(places, (facts.width, facts.height), (width, height), strict=True)
    ]
    (west, columns_used), (north, rows_used) = spans
    return Window(west, north, columns_used, rows_used)


def _span(low: float, high: float, size: int, pixels: int) -> tuple[int, int]:
    """Return first and count of the source's columns (or rows) under a tile, with a margin, by whole blocks."""
    reduced = max(1.0, (high - low) / pixels)
    margin = _MARGIN * reduced + 0.02 * (high - low)
    first = int(max(0, low - margin)) // BLOCK_SIZE * BLOCK_SIZE
    last = min(size, -(-int(min(size, high + margin) + 1) // BLOCK_SIZE) * BLOCK_SIZE)
    if first >= size or last <= first:
        return 0, min(size, BLOCK_SIZE)
    return first, last - first
