"""What the header of an open raster says, checked against the rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.io import DatasetReader

from core.handler_models import RasterOptions
from handlers.raster import crs as crs_rules
from handlers.raster.facts import ALPHA_DTYPES
from handlers.raster.findings import Findings
from handlers.raster.georeferencing import Georeferencing, read_georeferencing
from handlers.raster.nodata import NodataDecision, decide_nodata, in_dtype
from handlers.raster.options import LOSSY, Options
from handlers.raster.tiff import Directory

_PLAIN_KINDS: Final = "iuf"


@dataclass(frozen=True, slots=True)
class Header:
    """What holds for a raster as far as its header can tell."""

    place: Georeferencing
    crs_wkt: str
    crs_code: str | None
    has_heights: bool
    nodata: NodataDecision
    nodata_scalar: Any
    has_mask: bool
    alpha_band: int | None
    alpha_is_seen: bool
    """Whether readers take the alpha band for the mask."""
    has_palette: bool
    stale_statistics: bool


def read_header(
    src: DatasetReader,
    page: Directory,
    nodata_texts: Sequence[str | None],
    options: Options,
    raw: RasterOptions,
    findings: Findings,
) -> Header | None:
    """Return what the header says; None when an error was recorded that leaves nothing to go on with.

    `nodata_texts` are nodata of all bands as the file has it, or of each as a sidecar does where the file says nothing.
    """
    plain = _check_dtype(src, findings)
    place = read_georeferencing(src, page, options, findings, override_crs=raw.override_crs)
    if not plain or place is None:
        return None
    dtype = src.dtypes[0]
    nodata = decide_nodata(dtype, nodata_texts, raw.nodata, findings)
    has_palette = src.count == 1 and src.colorinterp[0] is ColorInterp.palette
    _check_scales(src, findings)
    _check_lossy(src, options, findings, has_palette=has_palette)
    stale = _has_statistics(src)
    if stale:
        findings.info("STATISTICS_RECOMPUTED", "statistics that came with the file are replaced by our own")
    return Header(
        place=place,
        crs_wkt=crs_rules.wkt2(place.crs),
        crs_code=crs_rules.code_of(place.crs),
        has_heights=crs_rules.has_vertical(place.crs),
        nodata=nodata,
        nodata_scalar=in_dtype(nodata.value, dtype),
        has_mask=_has_mask(src),
        alpha_band=_alpha_band(src),
        alpha_is_seen=_alpha_is_seen(src),
        has_palette=has_palette,
        stale_statistics=stale,
    )


def _check_dtype(src: DatasetReader, findings: Findings) -> bool:
    names = sorted(set(src.dtypes))
    if any("complex" in name for name in names):
        findings.reject(
            "DTYPE_COMPLEX",
            "dtype",
            f"pixels are complex numbers ({', '.join(names)}); expected real ones",
            value=names[0],
            remediation="Choose amplitude, phase, real or imaginary part and send that.",
        )
        return False
    if len(names) != 1 or np.dtype(names[0]).kind not in _PLAIN_KINDS:
        findings.reject("DTYPE_UNSUPPORTED", "dtype", f"pixels are {', '.join(names)}; expected one real number type")
        return False
    return True


def _check_scales(src: DatasetReader, findings: Findings) -> None:
    for band, pair in enumerate(zip(src.scales, src.offsets, strict=True), 1):
        if not all(map(math.isfinite, pair)):
            findings.reject(
                "RASTER_UNREADABLE",
                "file",
                f"band {band} has scale {pair[0]} and offset {pair[1]}; expected finite numbers",
                remediation="Set scale and offset to what turns pixels into values, 1 and 0 where nothing does.",
            )
            return


def _check_lossy(src: DatasetReader, options: Options, findings: Findings, *, has_palette: bool) -> None:
    if options.compression not in LOSSY:
        return
    bands = src.count - (1 if _alpha_band(src) else 0)
    if src.dtypes[0] != "uint8" or bands not in (1, 3) or has_palette:
        findings.reject(
            "PARAMETER_INVALID",
            "compression",
            f"{options.compression} holds one or three bands of uint8 without palette; "
            f"the raster has {bands} of {src.dtypes[0]}",
            value=options.compression,
        )


def _has_mask(src: DatasetReader) -> bool:
    flags = src.mask_flag_enums[0]
    return MaskFlags.per_dataset in flags and MaskFlags.alpha not in flags


def _alpha_band(src: DatasetReader) -> int | None:
    for band, color in enumerate(src.colorinterp, 1):
        if color is ColorInterp.alpha and src.count > 1:
            return band
    return None


def _alpha_is_seen(src: DatasetReader) -> bool:
    """GDAL looks for a mask in the last of two or four bands of unsigned bytes or words, and nowhere else."""
    return src.count in (2, 4) and _alpha_band(src) == src.count and src.dtypes[0] in ALPHA_DTYPES


def _has_statistics(src: DatasetReader) -> bool:
    return any(key.startswith("STATISTICS_") for band in src.indexes for key in src.tags(band))
