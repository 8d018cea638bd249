"""How GDAL is started and how files are opened with it: only TIFF, only local files, nothing beside them.

The one exception are messages of GRIB, each in a file of its own (`handlers.raster.grib`).

Every other driver stays unused because each open names its driver; a worker's subprocess does not even register those
that can point at other files or addresses (`handlers.raster.drivers`).
"""

import os
import warnings
from pathlib import Path
from typing import Any, Final

import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import DatasetReader

from core.errors import DataError

MEBIBYTE: Final = 1 << 20
READ_CACHE_BYTES: Final = 64 * MEBIBYTE
COG_CACHE_BYTES: Final = 128 * MEBIBYTE
WARP_CACHE_BYTES: Final = 256 * MEBIBYTE


def environment(cache_bytes: int = READ_CACHE_BYTES, *, sidecars: bool = False, windowed: bool = False) -> rasterio.Env:
    """Return the GDAL settings for one piece of work.

    Args:
        cache_bytes: the block cache in bytes, never in MB.
        sidecars: whether what lies beside a file is read: only in a folder that `sidecars.assemble` filled.
        windowed: whether each pixel is read once, a window at a time: uncompressed ones then come without the rest of
            their strips, which are as wide as the raster.
    """
    return rasterio.Env(
        GDAL_DISABLE_READDIR_ON_OPEN="FALSE" if sidecars else "EMPTY_DIR",
        GDAL_PAM_ENABLED="YES" if sidecars else "NO",
        GDAL_GEOREF_SOURCES="INTERNAL,PAM" if sidecars else "INTERNAL",
        GDAL_CACHEMAX=cache_bytes,
        GTIFF_DIRECT_IO="YES" if windowed else "NO",
        GDAL_TIFF_INTERNAL_MASK="YES",
        GDAL_ERROR_ON_LIBJPEG_WARNING="YES",
        GTIFF_IGNORE_READ_ERRORS="NO",
        PROJ_NETWORK="OFF",
    )


def local_path(path: str | Path) -> Path:
    """Return `path` as an absolute path of this machine's file system.

    Raises:
        DataError: FORMAT_NOT_ALLOWED for anything GDAL would take as a virtual file or an address.
    """
    text = str(path)
    if not text.startswith("/") or text.startswith("/vsi") or "://" in text:
        raise DataError("only local files are opened", code="FORMAT_NOT_ALLOWED", field="format")
    return Path(text)


def open_geotiff(path: Path, page: int | None = None, **options: Any) -> DatasetReader:
    """Open a TIFF for reading, or one of its directories (`page` counts from 1, overviews and masks included).

    Raises:
        rasterio.errors.RasterioIOError: GDAL cannot read it as a TIFF.
    """
    checked = local_path(path)
    name: str | Path = checked if page is None else f"GTIFF_DIR:{page}:{checked}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # the rules say what follows from that
        return rasterio.open(name, driver="GTiff", num_threads=str(cores()), **options)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))
