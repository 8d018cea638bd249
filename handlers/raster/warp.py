"""Resamples a raster once into an uncompressed tiled copy, from which the COG driver may read as often as it likes.

The COG driver reads its source twice; warping on the fly would warp twice unless everything fits into the block cache,
and then the copy costs nothing that can be measured (geo-stack.md §4.4).
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from rasterio.enums import Resampling
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader
from rasterio.vrt import WarpedVRT

from core.errors import DataError
from handlers.raster.crs import to_rasterio
from handlers.raster.facts import RasterFacts, Validity
from handlers.raster.limits import LIMITS
from handlers.raster.nodata import as_number
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.rewrite import OnWindow, copy_metadata, create_plain, final_colors
from handlers.raster.windows import block_windows

WARP_MEMORY_MB: Final = 128


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
) -> None:
    """Write the resampled copy.

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

    Raises:
        DataError: CRS_EXTENT_IMPOSSIBLE when the target cannot show the raster, RASTER_TOO_LARGE when it grows too big.
    """
    nodata = as_number(facts.nodata) if validity is Validity.NODATA else None
    if validity is Validity.ALL and facts.dtype.startswith("float"):
        nodata = float("nan")
    with_mask = nodata is None and validity is not Validity.ALPHA
    settings: dict[str, Any] = {"add_alpha": True} if with_mask else {"src_nodata": nodata, "nodata": nodata}
    try:
        vrt = WarpedVRT(
            src,
            src_crs=to_rasterio(source_crs),
            crs=to_rasterio(warp_to),
            resampling=resampling,
            warp_mem_limit=WARP_MEMORY_MB,
            init_dest_nodata=True,
            **settings,
        )
    except RasterioError as exc:
        raise _no_place(facts) from exc
    with vrt:
        _check_size(vrt, facts)
        colors = final_colors(src, alpha_is_data=False)
        place = {"crs": to_rasterio(final_crs), "transform": vrt.transform}
        with create_plain(src, target, shape=vrt.shape, nodata=nodata, colors=colors, **place) as dst:
            copy_metadata(src, dst, colors)
            _copy_windows(vrt, dst, src.count, on_window, with_mask=with_mask)


def _copy_windows(vrt: WarpedVRT, dst: Any, bands: int, on_window: OnWindow, *, with_mask: bool) -> None:
    pixel_bytes = np.dtype(dst.dtypes[0]).itemsize * (bands + 1)
    done, total = 0, vrt.width * vrt.height
    for window in block_windows(vrt.width, vrt.height, BLOCK_SIZE, BLOCK_SIZE, pixel_bytes):
        pixels = vrt.read(window=window)
        dst.write(pixels[:bands], window=window)
        if with_mask:
            dst.write_mask((pixels[bands] > 0).astype(np.uint8) * 255, window=window)
        done += window.width * window.height
        on_window(done, total)


def _check_size(vrt: WarpedVRT, facts: RasterFacts) -> None:
    decoded = vrt.width * vrt.height * facts.count * np.dtype(facts.dtype).itemsize
    if vrt.width * vrt.height > LIMITS.pixels or decoded > LIMITS.decoded_bytes:
        raise DataError(
            f"resampled it would have {vrt.width} x {vrt.height} pixels, {decoded} bytes",
            code="RASTER_TOO_LARGE",
            field="file",
            remediation="Leave target_crs out, or choose one that suits the extent.",
        )


def _no_place(facts: RasterFacts) -> DataError:
    return DataError(
        f"the extent {list(facts.bounds)} cannot be resampled into the target CRS",
        code="CRS_EXTENT_IMPOSSIBLE",
        field="crs",
        remediation="Leave target_crs out, or choose one that suits the extent.",
    )
