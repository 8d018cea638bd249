"""When the pixels of an item were taken, and what software made it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import rasterio

from core.errors import ParameterInvalid
from core.handler_models import RasterOptions
from handlers.raster.findings import Findings
from handlers.raster.options import parse_datetime
from handlers.stac.item import Moment

_TIFF_DATETIME: Final = "%Y:%m:%d %H:%M:%S"


def moment_of(options: RasterOptions, tags: Mapping[str, str], findings: Findings) -> Moment:
    """Return when the pixels were taken: as submitted, else by the file's own tag, else the time of processing."""
    try:
        start = parse_datetime(options.start_datetime) if options.start_datetime else None
        end = parse_datetime(options.end_datetime) if options.end_datetime else None
        if options.datetime:
            return Moment(parse_datetime(options.datetime), start, end)
    except ValueError as exc:
        raise ParameterInvalid("a date of the submit is no RFC 3339 date-time", field="datetime") from exc
    if start and end:
        return Moment(None, start, end)
    try:
        taken = datetime.strptime(tags.get("TIFFTAG_DATETIME", ""), _TIFF_DATETIME).replace(tzinfo=UTC)
        message = "the date comes from the TIFF DateTime tag"
        findings.info("DATETIME_FROM_FILE", message, field="datetime", now=taken.isoformat())
    except ValueError:
        taken = datetime.now(UTC).replace(microsecond=0)
        message = "no date was given and the file has none: time of processing"
        findings.info("DATETIME_ASSUMED", message, field="datetime", now=taken.isoformat())
    return Moment(taken)


def software() -> dict[str, str]:
    """Return what made an item, for the processing extension."""
    found = {"GDAL": rasterio.__gdal_version__, "rasterio": rasterio.__version__}
    try:
        return {"geodag": version("geodag"), **found}
    except PackageNotFoundError:
        return found
