"""GRIB 1 and 2: one field by its number becomes a plain GeoTIFF that the rules then judge.

A file is messages one after the other, each complete in itself. They are walked here first, by their lengths and
sections; then the message of the chosen field alone is given to GDAL, in a file of its own. Values, units and
longitudes stay as they are.
Specification: WMO-No. 306, Volume I.2, FM 92 GRIB.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader

from handlers.raster.cube_attributes import CubeError
from handlers.raster.findings import Findings
from handlers.raster.grib_sections import Said, said_of
from handlers.raster.limits import LIMITS
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.rewrite import OnWindow
from handlers.raster.unpacked import Unpacked
from handlers.raster.windows import row_windows

MAGIC: Final = b"GRIB"
END: Final = b"7777"
MAX_FIELDS: Final = 10_000
LISTED: Final = 50
_GRID, _DATA = 3, 7
"""Sections of GRIB 2: where a field lies, and its values."""
_TIMES: Final = ("GRIB_REF_TIME", "GRIB_VALID_TIME")
_ENVIRONMENT: Final = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_PAM_ENABLED": "NO",
    "GRIB_NORMALIZE_UNITS": "NO",
    "GRIB_ADJUST_LONGITUDE_RANGE": "NO",
    "PROJ_NETWORK": "OFF",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: where its message lies in the file, and which of the message's fields it is."""

    start: int
    size: int
    band: int


def unpack_grib(source: Path, wanted: str | None, target: Path, findings: Findings, on_window: OnWindow) -> Unpacked:
    """Write the chosen field as a plain GeoTIFF.

    Raises:
        Rejected: SUBDATASET_REQUIRED, PARAMETER_INVALID, RASTER_TOO_LARGE.
        CubeError: a message is cut or cannot be read.
    """
    fields = list(fields_of(source))
    if not fields:
        raise CubeError("it has no message")
    number = _choose(source, fields, wanted, target.parent, findings)
    field = fields[number - 1]
    with source.open("rb") as file:
        file.seek(field.start)
        said = said_of(file.read(field.size), field.band)
    with _opened(source, field, target.parent) as (src, band):
        _check_size(src, findings)
        unread = None if _moment(src.tags(band), said) else f"field {number}"
        _write(src, band, said, target, on_window)
    return Unpacked(str(number), unread_time=unread)


def fields_of(source: Path) -> Iterator[Field]:
    """Yield the fields of all messages, in their order.

    Raises:
        CubeError: a message is cut, of an unknown edition, or has several grids; or there are too many.
    """
    count = 0
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(MAGIC)
        while start >= 0:
            size = _size(content, start)
            bands = _bands(content, start, size) if content[start + 7] == 2 else 1
            count += bands
            if count > MAX_FIELDS:
                raise CubeError(f"it has more than {MAX_FIELDS} fields")
            yield from (Field(start, size, band) for band in range(1, bands + 1))
            start = content.find(MAGIC, start + size)


def _size(content: mmap.mmap, start: int) -> int:
    """Return the bytes of a message, whose end is looked at."""
    head = content[start : start + 16]
    if len(head) < 16 or head[7] not in (1, 2):
        raise CubeError(f"the message at byte {start} is of no known edition")
    size = int.from_bytes(head[4:7] if head[7] == 1 else head[8:16], "big")
    if content[start + size - 4 : start + size] != END or size < 20:
        raise CubeError(f"the message at byte {start} is cut")
    return size


def _bands(content: mmap.mmap, start: int, size: int) -> int:
    """Return how many fields a message of edition 2 has, by its sections."""
    at, end, bands, grids = start + 16, start + size - 4, 0, set()
    while at < end:
        length, section = int.from_bytes(content[at : at + 4], "big"), content[at + 4]
        if length < 5 or at + length > end:
            raise CubeError(f"a section at byte {at} is broken")
        bands += section == _DATA
        if section == _GRID:
            grids.add(content[at : at + length])
        at += length
    if len(grids) != 1 or bands == 0:
        raise CubeError(f"the message at byte {start} has {len(grids)} grids and {bands} fields")
    return bands


def _choose(source: Path, fields: list[Field], wanted: str | None, folder: Path, findings: Findings) -> int:
    """Return the number of the field that is meant; the only field of a file needs none."""
    if wanted is None and len(fields) == 1:
        return 1
    if wanted is not None and wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= len(fields):
        return int(wanted[:9])
    shown = [f"{number}{_label(source, field, folder)}" for number, field in enumerate(fields[:LISTED], 1)]
    listed = f"{len(fields)} field(s): {'; '.join(shown)}"
    if wanted is not None:
        message = f"there is no field {wanted[:40]!r}; found {listed}"
        findings.stop("PARAMETER_INVALID", "subdataset", message, value=wanted[:100])
    return findings.stop(
        "SUBDATASET_REQUIRED",
        "subdataset",
        f"the file has {listed}",
        remediation="Give the number of one of them in options.subdataset, for example 1.",
    )


def _label(source: Path, field: Field, folder: Path) -> str:
    """Return what a field is, where and when, as GDAL's tables have it."""
    with _opened(source, field, folder) as (src, band):
        tags, moment = src.tags(band), _moment(src.tags(band))
    said = (tags.get("GRIB_ELEMENT"), tags.get("GRIB_SHORT_NAME"), moment.isoformat() if moment else None)
    return f" ({', '.join(text[:60] for text in said if text)})"


@contextmanager
def _opened(source: Path, field: Field, folder: Path) -> Iterator[tuple[DatasetReader, int]]:
    """Yield the message of a field, open in a file of its own, and the band of the field."""
    alone = folder / "message.grib"
    with source.open("rb") as file:
        file.seek(field.start)
        alone.write_bytes(file.read(field.size))
    try:
        with rasterio.Env(**_ENVIRONMENT), rasterio.open(alone, driver="GRIB", USE_IDX="NO") as src:
            if field.band > src.count:
                raise CubeError(f"the message at byte {field.start} has fields that GDAL does not know")
            yield src, field.band
    except RasterioError as exc:
        raise CubeError(f"the message at byte {field.start} cannot be read") from exc
    finally:
        alone.unlink()


def _check_size(src: DatasetReader, findings: Findings) -> None:
    decoded = src.width * src.height * np.dtype(src.dtypes[0]).itemsize
    if max(src.width, src.height) > LIMITS.side_pixels or decoded > LIMITS.block_bytes:
        findings.stop("RASTER_TOO_LARGE", "file", f"the field has {src.width} x {src.height} pixels, {decoded} bytes")


def _write(src: DatasetReader, band: int, said: Said, target: Path, on_window: OnWindow) -> None:
    """Copy a field and what it says of itself."""
    nodata, missing = src.nodatavals[band - 1], 0
    tags, dtype = src.tags(band), src.dtypes[band - 1]
    profile = {"driver": "GTiff", "width": src.width, "height": src.height, "count": 1, "dtype": dtype}
    layout = {"tiled": True, "blockxsize": BLOCK_SIZE, "blockysize": BLOCK_SIZE, "BIGTIFF": "IF_SAFER"}
    place: dict[str, Any] = {"crs": src.crs, "transform": src.transform, "nodata": nodata}
    with rasterio.open(target, "w", **profile, **layout, **place) as dst:
        dst.set_band_description(1, tags.get("GRIB_COMMENT") or tags.get("GRIB_ELEMENT") or f"field {band}")
        if unit := tags.get("GRIB_UNIT", "").strip("[]"):
            dst.set_band_unit(1, unit)
        if moment := _moment(tags, said):
            dst.update_tags(TIFFTAG_DATETIME=f"{moment:%Y:%m:%d %H:%M:%S}")
        for window in row_windows(src.width, src.height, np.dtype(dtype).itemsize, BLOCK_SIZE):
            pixels = src.read(band, window=window)
            missing += int(np.count_nonzero(pixels == nodata))
            dst.write(pixels, 1, window=window)
            on_window(window.row_off + window.height, src.height)
    if said.missing is not None and missing != said.missing:
        raise CubeError(f"{missing} values are {nodata:g}, {said.missing} are missing; the two cannot be told apart")


def _moment(tags: dict[str, str], said: Said | None = None) -> datetime | None:
    """Return when a field is valid; GDAL says it in seconds since 1970, and takes months for nothing."""
    try:
        made, valid = (datetime.fromtimestamp(int(tags[key].split(" ")[0]), UTC) for key in _TIMES)
    except (KeyError, ValueError, OverflowError, OSError):
        return None
    wrong = said is not None and (said.by_months or said.year not in (None, made.year))
    return None if wrong else valid
