"""Resamples a raster once into an uncompressed tiled copy, from which the COG driver may read as often as it likes.

The COG driver reads its source twice; warping on the fly would warp twice unless everything fits into the block cache,
and then the copy costs nothing that can be measured (geo-stack.md §4.4).

GDAL chooses the width of its kernels for each piece it warps, by the shape of the piece: a rotated raster, or one of
few columns, is smeared over several pixels, differently in each piece, and holes reach that far. So the scale is given
here, one for the whole raster, whatever it is cut into.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyproj import Transformer
from pyproj.enums import TransformDirection
from rasterio._err import CPLE_BaseError
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader
from rasterio.transform import Affine
from rasterio.vrt import WarpedVRT
from rasterio.windows import Window

from core.errors import DataError
from handlers.raster.crs import to_rasterio
from handlers.raster.facts import Orientation, RasterFacts, RasterType, Validity
from handlers.raster.limits import LIMITS
from handlers.raster.nodata import EXACT_IN_DOUBLE, carried
from handlers.raster.plan import final_transform
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.rewrite import OnWindow, copy_metadata, create_plain, final_colors
from handlers.raster.windows import block_windows

Array = NDArray[np.float64]

WARP_MEMORY_MB: Final = 128
COARSEST: Final = 8
FINEST: Final = 1e-3
"""Columns or rows of the source that a pixel of the target may cover; beyond, the CRS stretches it to nothing."""
NOT_WARPED: Final = (RasterioError, CPLE_BaseError)
"""What a warped view raises that cannot be; rasterio lets errors of GDAL through as they are."""
_SECOND_ORDER_TERMS: Final = 6
_DETERMINED: Final = 1e-6
"""Least share of the largest singular value that the smallest one has."""
SCALE_POINTS: Final = 21
"""Pixels along each side of the target at which its scale is looked at."""


def warp(
    src: DatasetReader,
    target: Path,
    facts: RasterFacts,
    *,
    source_crs: str,
    warp_to: str,
    final_crs: str,
    validity: Validity,
    resampling: Resampling,
    on_window: OnWindow,
    region: Window | None = None,
) -> None:
    """Write the resampled copy, or a region of it, whose pixels are the same whatever the region.

    Args:
        src: the open source, placed by geotransform or GCPs.
        target: path of the copy, which must not exist.
        facts: what the rules decided.
        source_crs: WKT of the horizontal CRS of the source.
        warp_to: WKT of the horizontal CRS to resample into.
        final_crs: WKT to store, the same place with its vertical part.
        validity: what says which pixels of `src` hold data.
        resampling: how.
        on_window: called with pixels done and pixels in all.
        region: the part to write, in pixels of the whole; its corner is a corner of blocks.

    Raises:
        DataError: CRS_EXTENT_IMPOSSIBLE when the target cannot show the raster, RASTER_TOO_LARGE when it grows too big,
            DTYPE_UNSUPPORTED when 64-bit integers would be rounded.
    """
    with target_grid(
        src, facts, source_crs=source_crs, warp_to=warp_to, validity=validity, resampling=resampling
    ) as vrt:
        nodata, with_mask = _nodata(facts, validity), _has_mask(facts, validity)
        colors = _with_alpha(final_colors(src, alpha_is_data=False), facts)
        part = region or Window(0, 0, vrt.width, vrt.height)
        corner = vrt.transform * Affine.translation(part.col_off, part.row_off)
        place = {"crs": to_rasterio(final_crs), "transform": corner}
        with create_plain(src, target, shape=(part.height, part.width), nodata=nodata, colors=colors, **place) as dst:
            copy_metadata(src, dst, colors)
            _copy_windows(vrt, dst, part, on_window, with_mask=with_mask)


@contextmanager
def target_grid(
    src: DatasetReader,
    facts: RasterFacts,
    *,
    source_crs: str,
    warp_to: str,
    validity: Validity,
    resampling: Resampling,
) -> Iterator[WarpedVRT]:
    """Yield a raster as it will lie, its pixels to be read; arguments and errors as of `warp`."""
    nodata = _nodata(facts, validity)
    settings: dict[str, Any] = {"src_nodata": nodata, "nodata": nodata}
    if _has_mask(facts, validity):
        settings = {"add_alpha": True}
    settings |= {
        "src_crs": to_rasterio(source_crs),
        "crs": to_rasterio(warp_to),
        "resampling": resampling,
        "warp_mem_limit": WARP_MEMORY_MB,
        "init_dest_nodata": True,
        "UNIFIED_SRC_NODATA": "YES" if _is_colour(facts) else "NO",
        **gcp_settings(src, facts),
    }
    try:
        with WarpedVRT(src, **settings) as unscaled:
            if not (unscaled.width and unscaled.height):
                raise no_place(facts)
            settings |= warp_scale(src, unscaled, facts, Transformer.from_crs(warp_to, source_crs, always_xy=True))
        vrt = WarpedVRT(src, **settings)
    except NOT_WARPED as exc:
        raise no_place(facts) from exc
    with vrt:
        _check_size(vrt, facts)
        yield vrt


def gcp_settings(src: DatasetReader, facts: RasterFacts) -> dict[str, str]:
    """Return GDAL's MAX_GCP_ORDER where it would look for a polynomial of second order that the points leave open.

    Six or more points make it do so, be they on two lines, on one circle, or three that are given twice.
    """
    points = src.gcps[0] if facts.has_gcps else []
    if len(points) < _SECOND_ORDER_TERMS:
        return {}
    sides = np.array([[(point.col, point.row), (point.x, point.y)] for point in points], np.float64)
    determined = all(_determine_second_order(sides[:, side]) for side in (0, 1))
    return {} if determined else {"MAX_GCP_ORDER": "1"}


def _determine_second_order(places: Array) -> bool:
    x, y = ((places - places.mean(axis=0)) / places.std(axis=0)).T
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)
    spread = np.linalg.svd(terms, compute_uv=False)
    return bool(spread[-1] > _DETERMINED * spread[0])


def _with_alpha(colors: tuple[ColorInterp, ...], facts: RasterFacts) -> tuple[ColorInterp, ...]:
    """Return colours in which an alpha band, that was none while it was resampled, is one again."""
    band = None if facts.hides_alpha else facts.masked_alpha
    return tuple(ColorInterp.alpha if number == band else color for number, color in enumerate(colors, 1))


def _nodata(facts: RasterFacts, validity: Validity) -> float | int | None:
    """Return the value that resampled pixels have where the source says nothing."""
    if validity is Validity.ALL and facts.dtype.startswith("float"):
        return float("nan")
    return carried(facts.nodata, facts.dtype) if validity is Validity.NODATA else None


def _is_colour(facts: RasterFacts) -> bool:
    """Return whether nodata is a colour, missing where all bands have it; of others each band has holes of its own."""
    whole = not facts.dtype.startswith("float") and not facts.nodata_of_bands
    return whole and facts.raster_type in (RasterType.RGB, RasterType.RGBA, RasterType.NIR)


def _has_mask(facts: RasterFacts, validity: Validity) -> bool:
    return _nodata(facts, validity) is None and validity is not Validity.ALPHA


def warp_scale(src: DatasetReader, vrt: WarpedVRT, facts: RasterFacts, to_source_crs: Transformer) -> dict[str, str]:
    """Return GDAL's XSCALE and YSCALE: pixels of the target for one column and one row of the source, at most 1.

    They are the median over a grid of pixels of the target that lie in the source; empty when none does.

    Raises:
        DataError: CRS_EXTENT_IMPOSSIBLE when the target is so stretched that next to nothing is left of the raster.
    """
    to_source = ~(final_transform(facts) if facts.has_gcps else src.transform)
    grid = [np.linspace(0, size - 1, min(size, SCALE_POINTS)) for size in (vrt.width, vrt.height)]
    columns, rows = (axis.ravel() for axis in np.meshgrid(*grid))
    here, right, below = (
        _placed(columns + across, rows + down, vrt.transform, to_source_crs, to_source)
        for across, down in ((0, 0), (1, 0), (0, 1))
    )
    with np.errstate(invalid="ignore"):  # infinite where there is no place
        steps = np.hypot(right - here, below - here)
    extent = np.array([[src.width], [src.height]])
    inside = np.isfinite(steps).all(axis=0) & ((here >= 0) & (here <= extent)).all(axis=0)
    if not inside.any():
        _check_middle(src, vrt, facts, to_source_crs)
        return {}
    median = np.median(steps[:, inside], axis=1)
    looked_at = (
        median if facts.orientation is not Orientation.ROTATED else np.median(_area(right, below, here)[inside]) ** 0.5
    )
    if not ((looked_at >= FINEST) & (looked_at <= COARSEST)).all():
        raise no_place(facts)
    scale = 1 / np.maximum(1, median)
    return {"XSCALE": f"{scale[0]:.9g}", "YSCALE": f"{scale[1]:.9g}"}


def _check_middle(src: DatasetReader, vrt: WarpedVRT, facts: RasterFacts, to_source_crs: Transformer) -> None:
    """Refuse a target with far larger pixels than the source, as one around the Earth for both sides of 180°."""
    rotated = facts.orientation is Orientation.ROTATED
    grid = [np.linspace(0, size - 1, SCALE_POINTS) for size in (src.width, src.height)]
    columns, rows = (axis.ravel() for axis in np.meshgrid(*grid))
    transform, to_target = final_transform(facts) if facts.has_gcps else src.transform, ~vrt.transform
    here, right, below = (
        _placed(columns + across, rows + down, transform, to_source_crs, to_target, TransformDirection.INVERSE)
        for across, down in ((0, 0), (1, 0), (0, 1))
    )
    with np.errstate(invalid="ignore"):  # infinite where there is no place
        lengths = np.array([np.hypot(*(there - here)) for there in (right, below)])
        lengths = _area(right, below, here)[None] ** 0.5 if rotated else lengths
    known = np.isfinite(lengths).all(axis=0)
    if known.any() and (np.median(lengths[:, known], axis=1) * COARSEST < 1).any():
        raise no_place(facts)


def _area(right: Array, below: Array, here: Array) -> Array:
    """Return how many pixels lie under one, whatever the angle of the grids, by the places of it and two neighbours."""
    (a, b), (c, d) = right - here, below - here
    return np.asarray(np.abs(a * d - b * c))


def _placed(
    columns: Array,
    rows: Array,
    transform: Affine,
    to_source_crs: Transformer,
    to_source: Affine,
    direction: TransformDirection = TransformDirection.FORWARD,
) -> Array:
    """Return columns and rows of the source (2, n) for pixels of the target; not finite where there is no place."""
    a, b, c, d, e, f = transform[:6]
    xs, ys = to_source_crs.transform(columns * a + rows * b + c, columns * d + rows * e + f, direction=direction)
    a, b, c, d, e, f = to_source[:6]
    return np.array([xs * a + ys * b + c, xs * d + ys * e + f])


def _copy_windows(vrt: WarpedVRT, dst: Any, part: Window, on_window: OnWindow, *, with_mask: bool) -> None:
    """Copy block by block: GDAL approximates places within what it is asked for, so all ask for the same pieces."""
    bands = dst.count
    done, total = 0, dst.width * dst.height
    for window in block_windows(dst.width, dst.height, BLOCK_SIZE, BLOCK_SIZE, pixel_bytes=1, target=1):
        left, top = part.col_off + window.col_off, part.row_off + window.row_off
        pixels = vrt.read(window=Window(left, top, window.width, window.height))
        _check_exact(pixels)
        dst.write(pixels[:bands], window=window)
        if with_mask:
            dst.write_mask((pixels[bands] > 0).astype(np.uint8) * 255, window=window)
        done += window.width * window.height
        on_window(done, total)


def _check_exact(pixels: NDArray[Any]) -> None:
    """Refuse 64-bit integers that were rounded: GDAL resamples by way of doubles."""
    if pixels.dtype.kind not in "iu" or pixels.dtype.itemsize < 8:
        return
    if int(pixels.max()) >= EXACT_IN_DOUBLE or int(pixels.min()) <= -EXACT_IN_DOUBLE:
        raise rounded(pixels.dtype.name)


def _check_size(vrt: WarpedVRT, facts: RasterFacts) -> None:
    decoded = vrt.width * vrt.height * facts.count * np.dtype(facts.dtype).itemsize
    if vrt.width * vrt.height > LIMITS.pixels or decoded > LIMITS.decoded_bytes:
        raise DataError(
            f"resampled it would have {vrt.width} x {vrt.height} pixels, {decoded} bytes",
            code="RASTER_TOO_LARGE",
            field="file",
            remediation="Leave target_crs out, or choose one that suits the extent.",
        )


def no_place(facts: RasterFacts) -> DataError:
    """Return the refusal of a target CRS that cannot show a raster."""
    return DataError(
        f"the extent {list(facts.bounds)} cannot be resampled into the target CRS",
        code="CRS_EXTENT_IMPOSSIBLE",
        field="crs",
        remediation="Leave target_crs out, or choose one that suits the extent.",
    )


def rounded(dtype: str) -> DataError:
    """Return the refusal of 64-bit integers that resampling would round."""
    return DataError(
        f"{dtype} values beyond ±2^53 cannot be resampled exactly",
        code="DTYPE_UNSUPPORTED",
        field="dtype",
        value=dtype,
        remediation="Leave target_crs out and send the raster north-up, or use values within ±2^53.",
    )
