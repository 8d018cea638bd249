"""What a submit may say about a raster, checked before the file is looked at."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyproj import CRS

from core.errors import ParameterInvalid
from core.handler_models import RasterOptions
from handlers.raster.crs import describe, is_on_earth, parse_crs
from handlers.raster.facts import RasterType
from handlers.raster.findings import Findings

LOSSLESS: Final = ("deflate", "zstd", "lzw", "none")
LOSSY: Final = ("jpeg",)


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options; None where nothing was said or what was said is wrong."""

    crs: CRS | None
    target_crs: CRS | None
    raster_type: RasterType | None
    compression: str | None


def check_options(raw: RasterOptions, findings: Findings) -> Options:
    """Parse every option; what is wrong becomes PARAMETER_INVALID on its own field."""
    _check_dates(raw, findings)
    return Options(
        crs=_crs(raw.crs, "crs", findings),
        target_crs=_target_crs(raw.target_crs, findings),
        raster_type=_raster_type(raw.raster_type, findings),
        compression=_compression(raw.compression, findings),
    )


def parse_datetime(text: str) -> datetime:
    """Return an RFC 3339 date-time, or a date taken as its midnight in UTC; without an offset UTC is meant.

    Raises:
        ValueError: it is neither.
    """
    moment = datetime.fromisoformat(text.strip())
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _crs(text: str | None, field: str, findings: Findings) -> CRS | None:
    if text is None:
        return None
    try:
        return parse_crs(text, field)
    except ParameterInvalid as exc:
        findings.errors.append(exc.detail)
        return None


def _target_crs(text: str | None, findings: Findings) -> CRS | None:
    crs = _crs(text, "target_crs", findings)
    if crs is not None and not is_on_earth(crs):
        _invalid(findings, "target_crs", text, f"target_crs {describe(crs)} is neither geographic nor projected")
    return crs


def _raster_type(text: str | None, findings: Findings) -> RasterType | None:
    if text is None or text in set(RasterType):
        return None if text is None else RasterType(text)
    _invalid(findings, "raster_type", text, f"raster_type {text[:40]!r} is unknown; known are {', '.join(RasterType)}")
    return None


def _compression(text: str | None, findings: Findings) -> str | None:
    if text is None:
        return None
    if text.lower() in LOSSLESS + LOSSY:
        return text.lower()
    known = ", ".join(LOSSLESS + LOSSY)
    _invalid(findings, "compression", text, f"compression {text[:40]!r} is unknown; known are {known}")
    return None


def _check_dates(raw: RasterOptions, findings: Findings) -> None:
    moments: dict[str, datetime] = {}
    for field in ("datetime", "start_datetime", "end_datetime"):
        text = getattr(raw, field)
        if text is None:
            continue
        try:
            moments[field] = parse_datetime(text)
        except ValueError:
            _invalid(
                findings, field, text, f"{field} {text[:40]!r} is no RFC 3339 date-time such as 2024-05-01T10:00:00Z"
            )
    start, end = moments.get("start_datetime"), moments.get("end_datetime")
    if (raw.start_datetime is None) != (raw.end_datetime is None):
        _invalid(findings, "start_datetime", raw.start_datetime, "start_datetime and end_datetime go together")
    if start and end and start > end:
        _invalid(findings, "end_datetime", raw.end_datetime, "end_datetime lies before start_datetime")


def _invalid(findings: Findings, field: str, value: str | None, message: str) -> None:
    findings.reject("PARAMETER_INVALID", field, message, value=value[:100] if value else value)
