"""Reads every block of a raster once and remembers what the rules need: validity, extremes, distinct values.

Blocks that the file does not store are known to hold nothing and are not inflated.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rasterio.errors import RasterioIOError
from rasterio.io import DatasetReader
from rasterio.windows import Window

from handlers.raster.nodata import equals_nodata, unify
from handlers.raster.tiff import BlockTable
from handlers.raster.windows import block_windows

MAX_CLASSES: Final = 64
_TABLE_VALUES: Final = 1 << 16

Array = NDArray[Any]
Mask = NDArray[np.bool_]


class BlockUnreadable(Exception):
    """A block cannot be decoded; the text names it."""


@dataclass(slots=True)
class Distinct:
    """Distinct integers, counted until there are more than `MAX_CLASSES`."""

    values: set[int] | None = field(default_factory=set)
    """None once there are too many."""

    def add(self, pixels: Array) -> None:
        """Count the values of an integer array."""
        if self.values is None or pixels.size == 0:
            return
        self.values |= set(_unique(pixels))
        if len(self.values) > MAX_CLASSES:
            self.values = None


def _unique(pixels: Array) -> list[int]:
    info = np.iinfo(pixels.dtype)
    if int(info.max) - int(info.min) >= _TABLE_VALUES:
        return [int(value) for value in np.unique(pixels)]
    table = np.zeros(_TABLE_VALUES, np.bool_)
    table[pixels.ravel().astype(np.int64) - int(info.min)] = True
    return [int(value) + int(info.min) for value in np.flatnonzero(table)]


@dataclass(slots=True)
class AlphaScan:
    """How mask-like a band is: how much of it is opaque."""

    zeros: int = 0
    full: int = 0
    total: int = 0

    def add(self, pixels: Array) -> None:
        """Count the values of the alpha band."""
        largest = np.iinfo(pixels.dtype).max if pixels.dtype.kind in "iu" else 1
        self.zeros += int((pixels == 0).sum())
        self.full += int((pixels == largest).sum())
        self.total += pixels.size

    @property
    def is_mask_like(self) -> bool:
        """At least half of what shows at all is opaque, as in a mosaic with soft edges; hardly any spectral band is.

        Zeros do not count, so it makes no difference how much lies around the picture, and whether it is stored.
        """
        return 2 * self.full >= self.total - self.zeros


@dataclass(slots=True)
class Scan:
    """What one pass over all pixels found."""

    total_pixels: int
    valid_pixels: int = 0
    """Valid in at least one band, by mask, alpha or nodata."""
    valid_without_alpha: int = 0
    """The same, taking an alpha band for data."""
    nodata_clashes: int = 0
    """Values, over all bands, that are data of their own band but the nodata value of all."""
    nonfinite_pixels: int = 0
    """Values, over all bands, that are NaN or infinite, not nodata, and not masked."""
    nonfinite_without_alpha: int = 0
    """The same, taking an alpha band for data."""
    minimum: float | None = None
    """Of the first band's valid pixels."""
    maximum: float | None = None
    largest_whole: int = 0
    """Magnitude of the valid 64-bit integers of all bands."""
    distinct: Distinct = field(default_factory=Distinct)
    alpha: AlphaScan = field(default_factory=AlphaScan)


@dataclass(frozen=True, slots=True)
class ScanRules:
    """What makes a pixel invalid."""

    nodata: Any
    """Scalar of the band's dtype, or None."""
    has_mask: bool
    alpha_band: int | None
    nodata_of_bands: tuple[Any, ...] = ()
    """What each band has for itself, where that differs."""


def scan(src: DatasetReader, table: BlockTable, rules: ScanRules, on_window: Callable[[int, int], None]) -> Scan:
    """Read all pixels once.

    Args:
        src: the open raster.
        table: where its blocks are.
        rules: what makes a pixel invalid.
        on_window: called with pixels read so far and pixels in all.

    Raises:
        BlockUnreadable: a block cannot be decoded.
    """
    result = Scan(total_pixels=src.width * src.height)
    pixel_bytes = np.dtype(src.dtypes[0]).itemsize * src.count
    done = 0
    for window in block_windows(src.width, src.height, table.width, table.height, pixel_bytes):
        done += window.width * window.height
        if not _is_sparse(table, window):
            data = _read(src, table, window)
            mask = src.read_masks(1, window=window) > 0 if rules.has_mask else None
            _account(result, data, mask, rules)
        on_window(done, result.total_pixels)
    return result


def _is_sparse(table: BlockTable, window: Window) -> bool:
    top, left = window.row_off // table.height, window.col_off // table.width
    bottom = -(-(window.row_off + window.height) // table.height)
    right = -(-(window.col_off + window.width) // table.width)
    return bool(table.sparse[top:bottom, left:right].all())


def _read(src: DatasetReader, table: BlockTable, window: Window) -> Array:
    try:
        return np.asarray(src.read(window=window))
    except RasterioIOError as exc:
        raise BlockUnreadable(_name_bad_block(src, table, window)) from exc


def _name_bad_block(src: DatasetReader, table: BlockTable, window: Window) -> str:
    """Read the blocks of a window one by one until one fails, and describe it."""
    for top in range(window.row_off, window.row_off + window.height, table.height):
        for left in range(window.col_off, window.col_off + window.width, table.width):
            columns, rows = min(table.width, src.width - left), min(table.height, src.height - top)
            row, column = top // table.height, left // table.width
            try:
                src.read(window=Window(left, top, columns, rows))
            except RasterioIOError:
                at = int(table.offsets[row * table.across + column])
                return (
                    f"block {row * table.across + column} (row {row}, column {column}) at byte {at} cannot be decoded"
                )
    return f"blocks around column {window.col_off}, row {window.row_off} cannot be decoded"


def _account(result: Scan, data: Array, mask: Mask | None, rules: ScanRules) -> None:
    bands, valid_by = data, mask
    if rules.alpha_band is not None:
        alpha = data[rules.alpha_band - 1]
        result.alpha.add(alpha)
        bands, valid_by = np.delete(data, rules.alpha_band - 1, axis=0), alpha != 0 if mask is None else mask
    if rules.nodata_of_bands:
        result.nodata_clashes += unify(data, rules.nodata_of_bands, rules.nodata)
    if rules.alpha_band is not None:
        result.valid_without_alpha += _count_valid(data, _valid(data, rules.nodata, mask))
        result.nonfinite_without_alpha += _count_nonfinite(data, rules.nodata, mask)
    valid = _valid(bands, rules.nodata, valid_by)
    result.nonfinite_pixels += _count_nonfinite(bands, rules.nodata, valid_by)
    result.valid_pixels += _count_valid(bands, valid)
    first = bands[0] if valid is None else bands[0][valid[0]]
    _extremes(result, first)
    if data.dtype.kind in "iu":
        result.distinct.add(first)
        if data.dtype.itemsize == 8:
            result.largest_whole = max(result.largest_whole, _magnitude(bands if valid is None else bands[valid]))


def _valid(bands: Array, nodata: Any, mask: Mask | None) -> Mask | None:
    """Return per band which pixels are valid, None when all are; nodata counts only where no mask wins over it."""
    if mask is None:
        return _band_validity(bands, nodata)
    finite = _band_validity(bands, None)
    return np.broadcast_to(mask, bands.shape) if finite is None else finite & mask


def _band_validity(bands: Array, nodata: Any) -> Mask | None:
    """Return per band which pixels are finite and not nodata, None when all are."""
    valid = np.isfinite(bands) if bands.dtype.kind == "f" else None
    if nodata is not None:
        data = ~equals_nodata(bands, nodata)
        valid = data if valid is None else valid & data
    return None if valid is None or bool(valid.all()) else valid


def _count_valid(bands: Array, valid: Mask | None) -> int:
    rows, columns = bands.shape[1:]
    return rows * columns if valid is None else int(valid.any(axis=0).sum())


def _count_nonfinite(bands: Array, nodata: Any, mask: Mask | None) -> int:
    if bands.dtype.kind != "f":
        return 0
    bad = ~np.isfinite(bands)
    if mask is not None:
        bad &= mask
    elif nodata is not None:
        bad &= ~equals_nodata(bands, nodata)
    return int(bad.sum())


def _magnitude(pixels: Array) -> int:
    return max(int(pixels.max()), -int(pixels.min())) if pixels.size else 0


def _extremes(result: Scan, pixels: Array) -> None:
    if pixels.size == 0:
        return
    low, high = pixels.min().item(), pixels.max().item()
    result.minimum = low if result.minimum is None else min(result.minimum, low)
    result.maximum = high if result.maximum is None else max(result.maximum, high)
