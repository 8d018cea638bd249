"""Reads a version that is stored as tiles: what one picture needs of them, put together in memory at its resolution.

Pixels are pasted before anything is resampled, so that a picture over a seam is the one that a single file would give.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import rasterio
from morecantile import TileMatrixSet
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader, MemoryFile
from rasterio.warp import transform_bounds
from rasterio.windows import Window
from rio_tiler.io import Reader

from handlers.raster.cog_facts import has_mask
from serving.files import TileEntry, TileList, VersionFiles

MARGIN: Final = 4
"""Pixels around what a picture shows, for kernels."""
PICTURE: Final = 256
Bounds = tuple[float, float, float, float]


def window_of(tiles: TileList, bounds: Bounds, bounds_crs: CRS) -> tuple[Window, int] | None:
    """Return what a picture of 256 pixels needs of the whole, and the power of two by which it may be reduced.

    None where the overview of the whole is fine enough, or nothing lies there.
    """
    grid = tiles.grid
    try:
        west, south, east, north = transform_bounds(bounds_crs, CRS.from_wkt(grid.crs_wkt), *bounds, densify_pts=21)
    except RasterioError:
        return None
    to_pixels = ~grid.affine()
    left, top = to_pixels @ (west, north)
    right, bottom = to_pixels @ (east, south)
    if not all(map(math.isfinite, (left, top, right, bottom))) or right <= left or bottom <= top:
        return None
    reduction = 1 << max(0, math.floor(math.log2(max(1.0, min(right - left, bottom - top) / PICTURE))))
    if reduction >= grid.reduction:
        return None
    step = reduction * MARGIN
    first = [max(0, (math.floor(place / reduction) * reduction) - step) for place in (left, top)]
    last = [
        min(size, math.ceil(place / reduction) * reduction + step)
        for place, size in ((right, grid.width), (bottom, grid.height))
    ]
    if last[0] <= first[0] or last[1] <= first[1]:
        return None
    return Window(*first, last[0] - first[0], last[1] - first[1]), reduction


@contextmanager
def assembled(
    files: VersionFiles,
    tiles: TileList,
    window: Window,
    reduction: int,
    matrix_set: TileMatrixSet,
    resampling: Resampling,
) -> Iterator[Reader]:
    """Yield a reader of a window of the whole, reduced, that lives in memory."""
    left, top = int(window.col_off), int(window.row_off)
    width, height = -(-int(window.width) // reduction), -(-int(window.height) // reduction)
    entries = tiles.under(left, top, left + int(window.width), top + int(window.height))
    transform = tiles.grid.affine((left, top, 0, 0), reduction)
    with MemoryFile() as memory, rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"):
        with (
            files.reading(files.tile(entries[0])) as path,
            rasterio.open(path) as like,
            memory.open(**_profile(like, width, height, transform)) as dst,
        ):
            dst.colorinterp = like.colorinterp
            if like.colorinterp[0] is ColorInterp.palette:
                dst.write_colormap(1, like.colormap(1))
            for entry in entries:
                with files.reading(files.tile(entry)) as place, rasterio.open(place) as tile:
                    _paste(dst, tile, entry, window, reduction, resampling)
        with memory.open() as src, Reader(None, dataset=src, tms=matrix_set) as reader:
            yield reader


def _profile(like: DatasetReader, width: int, height: int, transform: Any) -> dict[str, Any]:
    return {
        "driver": "GTiff", "count": like.count, "dtype": like.dtypes[0], "crs": like.crs, "nodata": like.nodata,
        "width": width, "height": height, "transform": transform,
    }  # fmt: skip


def _paste(
    dst: Any, tile: DatasetReader, entry: TileEntry, window: Window, reduction: int, resampling: Resampling
) -> None:
    """Copy what a tile has of a window; corners of tiles are multiples of the reduction."""
    west, north, tile_width, tile_height = entry.window
    left, top = max(west, int(window.col_off)), max(north, int(window.row_off))
    right = min(west + tile_width, int(window.col_off + window.width))
    bottom = min(north + tile_height, int(window.row_off + window.height))
    here = Window(left - west, top - north, right - left, bottom - top)
    column, row = (left - int(window.col_off)) // reduction, (top - int(window.row_off)) // reduction
    rows, columns = -(-(bottom - top) // reduction), -(-(right - left) // reduction)
    shape = (min(rows, dst.height - row), min(columns, dst.width - column))
    there = Window(column, row, shape[1], shape[0])
    pixels: NDArray[Any] = tile.read(window=here, out_shape=(tile.count, *shape), resampling=resampling)
    if has_mask(tile) or tile.nodata is not None:
        valid = tile.dataset_mask(window=here, out_shape=shape) > 0
        pixels = np.where(valid, pixels, dst.read(window=there))
    dst.write(pixels, window=there)
    if has_mask(tile):
        mask = tile.read_masks(1, window=here, out_shape=shape)
        kept = (mask > 0) | (dst.read_masks(1, window=there) > 0)
        dst.write_mask(kept.astype(np.uint8) * 255, window=there)
