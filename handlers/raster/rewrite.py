"""Writes an uncompressed tiled copy of a raster in which everything is as the rules want it, pixels untouched.

Only flips, rolls, and the replacement of non-finite values by nodata happen to pixels here; nothing is resampled.
Where a mask says what is valid, pixels without any finite value are masked instead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.control import GroundControlPoint
from rasterio.enums import ColorInterp, Interleaving
from rasterio.io import DatasetReader, DatasetWriter, MemoryFile
from rasterio.transform import Affine
from rasterio.windows import Window

from handlers.raster.crs import to_rasterio
from handlers.raster.facts import Orientation, RasterFacts, Validity
from handlers.raster.nodata import carried, holds_data, in_dtype, unify
from handlers.raster.plan import Plan, final_transform
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.windows import block_windows, row_windows

Array = NDArray[Any]
OnWindow = Callable[[int, int], None]

_IN_MEMORY: Final = "tile"
"""Name of what has no file."""
_WIDE: Final = ("int64", "uint64")
_RGB: Final = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)


def rewrite(
    src: DatasetReader,
    target: Path,
    facts: RasterFacts,
    plan: Plan,
    on_window: OnWindow,
    region: Window | None = None,
) -> None:
    """Write the copy.

    Args:
        src: the open source.
        target: path of the copy, which must not exist.
        facts: what the rules decided.
        plan: whether nodata becomes a mask.
        on_window: called with pixels done and pixels in all.
        region: what is needed of the copy; the rest is left out of its file, which keeps its place and size.

    Raises:
        DataError: DTYPE_UNSUPPORTED when a 64-bit nodata value could not be carried over exactly.
    """
    nodata = None if plan.nodata_to_mask else carried(facts.nodata, facts.dtype)
    # GDAL resamples by alpha or by a mask, not by both.
    hidden = facts.hides_alpha or (plan.warp_to is not None and facts.masked_alpha is not None)
    colors = final_colors(src, alpha_is_data=facts.alpha_is_data or hidden)
    place = _place(src, facts) | ({"SPARSE_OK": "TRUE"} if region else {})
    with create_plain(src, target, shape=src.shape, nodata=nodata, colors=colors, **place) as dst:
        copy_metadata(src, dst, colors)
        windows = _windows(src, facts) if region is None else region_windows(region, src)
        _write_windows(src, dst, facts, plan, windows, on_window)


@contextmanager
def held(
    src: DatasetReader, facts: RasterFacts, plan: Plan, region: Window, on_window: OnWindow
) -> Iterator[DatasetReader]:
    """Yield a part of the copy, held in memory; arguments as in `rewrite`, the region in the copy's pixels."""
    nodata = None if plan.nodata_to_mask else carried(facts.nodata, facts.dtype)
    colors = final_colors(src, alpha_is_data=facts.alpha_is_data or facts.hides_alpha)
    corner = final_transform(facts) * Affine.translation(region.col_off, region.row_off)
    place = {"crs": to_rasterio(facts.crs_wkt), "transform": corner}

    def fill(dst: DatasetWriter) -> None:
        copy_metadata(src, dst, colors)
        _write_windows(src, dst, facts, plan, _held_windows(region, src), on_window, region)

    if nodata is not None and facts.dtype in _WIDE:
        # rasterio sets nodata as a double, which only the tag of a file turns into what these pixels have.
        with MemoryFile(ext=".tif") as memory:
            shape = (region.height, region.width)
            with create_plain(src, Path(memory.name), shape=shape, nodata=nodata, colors=colors, **place) as dst:
                fill(dst)
            with memory.open(driver="GTiff") as written:
                yield written
        return
    with rasterio.open(
        _IN_MEMORY,
        "w",
        driver="MEM",
        width=region.width,
        height=region.height,
        count=src.count,
        dtype=src.dtypes[0],
        nodata=nodata,
        interleave="pixel" if colors[:3] == _RGB else "band",
        **place,
    ) as dst:
        fill(dst)
        yield dst


def _held_windows(region: Window, src: DatasetReader) -> Iterator[Window]:
    """Yield windows that cover a region and decode each block of the source once: rows of it where those are strips."""
    if src.block_shapes[0][1] < src.width:
        yield from region_windows(region, src)
        return
    pixel_bytes = np.dtype(src.dtypes[0]).itemsize * (src.count + 1)
    for rows in row_windows(region.width, region.height, pixel_bytes, BLOCK_SIZE):
        yield Window(region.col_off, region.row_off + rows.row_off, rows.width, rows.height)


def region_windows(region: Window, src: DatasetReader) -> Iterator[Window]:
    """Yield windows of whole blocks that cover a region whose corner is a corner of blocks."""
    pixel_bytes = np.dtype(src.dtypes[0]).itemsize * (src.count + 1)
    for window in block_windows(region.width, region.height, BLOCK_SIZE, BLOCK_SIZE, pixel_bytes):
        yield Window(region.col_off + window.col_off, region.row_off + window.row_off, window.width, window.height)


def _write_windows(
    src: DatasetReader,
    dst: DatasetWriter,
    facts: RasterFacts,
    plan: Plan,
    windows: Iterator[Window],
    on_window: OnWindow,
    region: Window | None = None,
) -> None:
    """Write windows of the copy to where they belong in a file that holds all of it, or a region."""
    left, top = (region.col_off, region.row_off) if region else (0, 0)
    done, total = 0, dst.width * dst.height
    for here in windows:
        data, mask = _read(src, here, facts, to_mask=plan.nodata_to_mask)
        there = Window(here.col_off - left, here.row_off - top, here.width, here.height)
        dst.write(data, window=there)
        if mask is not None:
            dst.write_mask(mask, window=there)
        done += here.width * here.height
        on_window(done, total)


def create_plain(
    src: DatasetReader,
    target: Path,
    *,
    shape: tuple[int, int],
    nodata: float | int | None,
    colors: tuple[ColorInterp, ...],
    **place: Any,
) -> DatasetWriter:
    """Create an empty uncompressed tiled TIFF with the bands of `src`."""
    height, width = shape
    palette = colors == (ColorInterp.palette,)
    photometric = "RGB" if colors[:3] == _RGB else ("PALETTE" if palette and src.dtypes[0] == "uint8" else "MINISBLACK")
    return rasterio.open(
        target,
        "w",
        driver="GTiff",
        width=width,
        height=height,
        count=src.count,
        dtype=src.dtypes[0],
        nodata=nodata,
        tiled=True,
        blockxsize=BLOCK_SIZE,
        blockysize=BLOCK_SIZE,
        interleave="pixel" if colors[:3] == _RGB else "band",
        photometric=photometric,
        alpha="YES" if ColorInterp.alpha in colors else "NO",
        BIGTIFF="IF_SAFER",
        **place,
    )


def final_colors(src: DatasetReader, *, alpha_is_data: bool) -> tuple[ColorInterp, ...]:
    """Return the colour interpretations, an alpha band that is data becoming undefined."""
    if not alpha_is_data:
        return tuple(src.colorinterp)
    return tuple(ColorInterp.undefined if color is ColorInterp.alpha else color for color in src.colorinterp)


def copy_metadata(src: DatasetReader, dst: DatasetWriter, colors: tuple[ColorInterp, ...]) -> None:
    """Carry over what stays true: names, units, scale, offset, palette and tags, but no statistics."""
    dst.colorinterp = colors
    dst.update_tags(**src.tags())
    dst.descriptions = src.descriptions
    dst.scales = src.scales
    dst.offsets = src.offsets
    for band in src.indexes:
        unit = src.units[band - 1]
        if unit:
            dst.set_band_unit(band, unit)
        tags = {key: value for key, value in src.tags(band).items() if not key.startswith("STATISTICS_")}
        if tags:
            dst.update_tags(band, **tags)
    if colors == (ColorInterp.palette,):
        dst.write_colormap(1, src.colormap(1))


def _place(src: DatasetReader, facts: RasterFacts) -> dict[str, Any]:
    """Return where the copy lies; a rotated or GCP raster keeps its own place until it is warped."""
    crs = to_rasterio(facts.crs_wkt)
    if not facts.has_gcps:
        return {"crs": crs, "transform": final_transform(facts)}
    return {"crs": crs, "gcps": [_moved(point, facts.longitude_shift) for point in src.gcps[0]]}


def _moved(point: GroundControlPoint, east: float) -> GroundControlPoint:
    return GroundControlPoint(point.row, point.col, point.x + east, point.y, point.z, point.id, point.info)


def _windows(src: DatasetReader, facts: RasterFacts) -> Iterator[Window]:
    """Yield windows of the copy; whole rows when columns move."""
    pixel_bytes = np.dtype(facts.dtype).itemsize * facts.count
    if facts.roll_columns or facts.orientation is Orientation.FLIPPED:
        return row_windows(src.width, src.height, pixel_bytes, BLOCK_SIZE)
    block_height, block_width = src.block_shapes[0]
    return block_windows(src.width, src.height, block_width, block_height, pixel_bytes)


def _read(src: DatasetReader, here: Window, facts: RasterFacts, *, to_mask: bool) -> tuple[Array, Array | None]:
    """Return the pixels for a window of the copy, and their mask when the copy has one."""
    parts = [_read_piece(src, piece, facts, to_mask=to_mask) for piece in _pieces(src, here, facts)]
    data = [pixels for pixels, _ in parts]
    masks = [mask for _, mask in parts if mask is not None]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(data, axis=-1), np.concatenate(masks, axis=-1) if masks else None


def _pieces(src: DatasetReader, here: Window, facts: RasterFacts) -> Iterator[Window]:
    """Yield the windows of the source, from the west, that make up a window of the copy: two where its columns roll."""
    flipped = facts.orientation is Orientation.FLIPPED
    flip_rows, flip_columns = flipped and facts.transform[4] > 0, flipped and facts.transform[0] < 0
    top = src.height - here.row_off - here.height if flip_rows else here.row_off
    start = (here.col_off + facts.roll_columns) % src.width
    first = min(here.width, src.width - start)
    for left, columns in ((start, first), (0, here.width - first)):
        if columns:
            yield Window(src.width - left - columns if flip_columns else left, top, columns, here.height)


def _read_piece(src: DatasetReader, there: Window, facts: RasterFacts, *, to_mask: bool) -> tuple[Array, Array | None]:
    data = src.read(window=there, out=_room(src, there))
    values, mask = data, None
    if facts.alpha_to_mask is not None:
        values, mask = np.delete(data, facts.alpha_to_mask - 1, axis=0), _as_mask(data[facts.alpha_to_mask - 1] != 0)
    elif facts.validity is Validity.MASK:
        mask = src.read_masks(1, window=there)
    nodata = in_dtype(facts.nodata, facts.dtype)
    of_bands = [in_dtype(value, facts.dtype) for value in facts.nodata_of_bands]
    if to_mask:
        mask = _as_mask(holds_data(data, of_bands or [nodata] * src.count))
    elif of_bands:
        unify(data, of_bands, nodata)
    if nodata is not None and data.dtype.kind == "f" and facts.nonfinite_pixels:
        data[~np.isfinite(data)] = nodata
    if mask is not None and facts.nonfinite_pixels:
        mask = np.where(np.isfinite(values).any(axis=0), mask, 0).astype(np.uint8)
    return _flipped(data, facts), None if mask is None else _flipped(mask, facts)


def _as_mask(valid: NDArray[np.bool_]) -> Array:
    return valid.astype(np.uint8) * 255


def _room(src: DatasetReader, there: Window) -> Array:
    """Return room for pixels (bands, height, width), in memory in the order of the source: GDAL copies whole lines."""
    if src.count > 1 and src.interleaving is Interleaving.pixel:
        return np.empty((there.height, there.width, src.count), src.dtypes[0]).transpose(2, 0, 1)
    return np.empty((src.count, there.height, there.width), src.dtypes[0])


def _flipped(pixels: Array, facts: RasterFacts) -> Array:
    if facts.orientation is Orientation.FLIPPED:
        if facts.transform[4] > 0:
            pixels = pixels[..., ::-1, :]
        if facts.transform[0] < 0:
            pixels = pixels[..., ::-1]
    return pixels
