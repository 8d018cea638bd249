"""Tells whether a file already is the COG that would be made of it, so that it can be copied instead.

A COG that was edited keeps a valid layout but has old overviews; GDAL cannot tell. So each overview pixel must lie
within the range of the pixels it covers and of their direct neighbours, from which bilinear overviews borrow.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rasterio.io import DatasetReader
from rasterio.windows import Window
from rio_cogeo.cogeo import cog_validate

from handlers.raster import gdal
from handlers.raster.options import LOSSLESS
from handlers.raster.profiles import BLOCK_SIZE, CogProfile
from handlers.raster.tiff import read_directories

Array = NDArray[Any]

_TILE: Final = 1024
_ENVIRONMENT: Final = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "GDAL_PAM_ENABLED": "NO"}

_NOT_NARROWER: Final = "Invalid Decimation 1 for overview level"
"""Said of an overview as wide as the raster itself: right only where that is one pixel wide."""
_NOT_TILED: Final = "not tiled"
"""Said of what is one tile wide and higher, as 1,024 columns are in their first overview: its tags know better."""


def is_strict_cog(path: Path) -> bool:
    """Return whether `rio cogeo validate --strict` passes; a finding beside the file is never looked for.

    It measures overviews by their width alone, and takes blocks as wide as the raster for strips. One pixel cannot
    become narrower, and a column of tiles is tiled: what it says against those does not count.
    """
    _, errors, warnings = cog_validate(path, strict=True, quiet=True, config=dict(_ENVIRONMENT))
    return not warnings and all(_excused(error, path) for error in errors)


def _excused(error: str, path: Path) -> bool:
    if error.endswith(_NOT_TILED):
        return all(page.tiled for page in read_directories(path))
    if error.startswith(_NOT_NARROWER):
        with gdal.open_geotiff(path) as src:
            return bool(src.width == 1)
    return False


def has_profile(src: DatasetReader, profile: CogProfile) -> bool:
    """Return whether an open file is compressed and tiled as wanted; any lossless compression is as good as ours."""
    found = str(src.profile.get("compress", "none")).lower()
    wanted = set(LOSSLESS) - {"none"} if profile.compression == "deflate" else {profile.compression}
    return (
        found in wanted
        and not profile.is_lossy
        and src.block_shapes[0] == (BLOCK_SIZE, BLOCK_SIZE)
        and "NBITS" not in src.tags(1, ns="IMAGE_STRUCTURE")
        and _overviews_reach_one_tile(src)
    )


def _overviews_reach_one_tile(src: DatasetReader) -> bool:
    factors = src.overviews(1)
    smallest = max(src.width, src.height) / (factors[-1] if factors else 1)
    return bool(smallest <= BLOCK_SIZE)


def overviews_are_fresh(path: Path, page: int | None, bands: int, levels: int) -> bool:
    """Return whether every overview pixel lies within the range of the pixels it covers.

    A level is compared with the one before it; where that fails, with the full resolution, from which some writers
    make all levels.
    """
    for level in range(levels):
        if _level_fits(path, page, bands, level, level - 1):
            continue
        if level == 0 or not _level_fits(path, page, bands, level, -1):
            return False
    return True


def _level_fits(path: Path, page: int | None, bands: int, level: int, finer_level: int) -> bool:
    finer_options = {} if finer_level < 0 else {"overview_level": finer_level}
    with (
        gdal.open_geotiff(path, page, overview_level=level) as coarse,
        gdal.open_geotiff(path, page, **finer_options) as finer,
    ):
        for top in range(0, coarse.height, _TILE):
            for left in range(0, coarse.width, _TILE):
                rows = np.arange(top, min(top + _TILE, coarse.height))
                columns = np.arange(left, min(left + _TILE, coarse.width))
                if not _tile_fits(coarse, finer, rows, columns, bands):
                    return False
    return True


def _tile_fits(coarse: DatasetReader, finer: DatasetReader, rows: Array, columns: Array, bands: int) -> bool:
    row_starts, row_ends = _covered(rows, coarse.height, finer.height)
    column_starts, column_ends = _covered(columns, coarse.width, finer.width)
    window = Window(
        int(column_starts[0]),
        int(row_starts[0]),
        int(column_ends[-1] - column_starts[0]),
        int(row_ends[-1] - row_starts[0]),
    )
    for band in range(1, bands + 1):
        shown = coarse.read(band, window=Window(int(columns[0]), int(rows[0]), len(columns), len(rows)))
        base = finer.read(band, window=window)
        spans = ((row_starts, row_ends), (column_starts, column_ends))
        low = _reduced(base, spans, np.fmin)
        high = _reduced(base, spans, np.fmax)
        outside = (shown < low) | (shown > high)
        if shown.dtype.kind == "f":
            outside |= np.isnan(shown) & ~np.isnan(_reduced(base, spans, np.maximum))
        if outside.any():
            return False
    return True


def _covered(places: Array, coarse_size: int, finer_size: int) -> tuple[Array, Array]:
    """Return first and one past last finer row (or column) under each coarse one, with one neighbour on each side."""
    starts = places * finer_size // coarse_size - 1
    ends = -(-(places + 1) * finer_size // coarse_size) + 1
    return np.maximum(starts, 0), np.minimum(ends, finer_size)


def _reduced(base: Array, spans: tuple[tuple[Array, Array], tuple[Array, Array]], reduce: np.ufunc) -> Array:
    """Return the reduction of `base` over the spans of rows and columns, which may overlap by one."""
    result = base
    for axis, (starts, ends) in enumerate(spans):
        first, length = starts - starts[0], int((ends - starts).max())
        taken = np.take(result, first, axis=axis)
        for step in range(1, length):
            taken = reduce(taken, np.take(result, np.minimum(first + step, ends - 1 - starts[0]), axis=axis))
        result = taken
    return result
