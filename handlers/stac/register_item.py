"""`raster.stac_register_item`: reads the stored COG back and builds the STAC item that the approval publishes."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rasterio
from rasterio.errors import RasterioError

from core.errors import ParameterInvalid, StorageUnavailable
from core.handlers_catalog import RasterOptions, RegisterItemParams
from handlers.context import Outcome, ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.findings import Findings
from handlers.raster.options import parse_datetime
from handlers.stac.item import CogFile, Description, Moment, build_item

_TIFF_DATETIME = "%Y:%m:%d %H:%M:%S"


def register_item(ctx: ProcessContext, params: RegisterItemParams) -> Outcome:
    """Return the item of a COG; nothing is written to the catalogue here.

    Raises:
        StorageUnavailable: the stored bytes are not those that were written; tried again.
        ParameterInvalid: a date of the submit is none.
    """
    path = Path(params.cog)
    facts = params.cog_facts["raster"]
    digest = _sha256(path)
    if digest != params.cog_facts["sha256"]:
        raise StorageUnavailable(f"the stored COG has SHA-256 {digest}, {params.cog_facts['sha256']} was written")
    ctx.raise_if_cancelled()
    file, tags = _read_back(path, digest, facts)
    findings = Findings()
    about = Description(
        item_id=params.item_id,
        collection_id=params.collection_id,
        title=params.title,
        description=params.description,
        href=params.href,
        version_label=params.version_label,
        properties=params.properties,
    )
    moment = _moment(params.options, tags, findings)
    item = build_item(file, facts, params.cog_facts["render"], about, moment, _software())
    output = {"stac_item_id": params.item_id, "stac_collection_id": params.collection_id, "stac_item": item}
    return Outcome(output, findings=tuple(findings.findings))


def _read_back(path: Path, digest: str, facts: Mapping[str, Any]) -> tuple[CogFile, Mapping[str, str]]:
    try:
        with gdal.environment(), gdal.open_geotiff(path) as cog:
            crs = crs_rules.from_rasterio(cog.crs)
            tags = cog.tags()
            same = [cog.height, cog.width] == facts["shape"] and list(cog.transform[:6]) == facts["transform"]
            if not same or crs is None:
                raise StorageUnavailable("the stored COG is another raster than the one that was written")
            file = CogFile(
                width=cog.width,
                height=cog.height,
                transform=tuple(cog.transform[:6]),
                crs_wkt=crs_rules.wkt2(crs),
                sampling="point" if tags.get("AREA_OR_POINT") == "Point" else "area",
                size_bytes=path.stat().st_size,
                sha256=digest,
            )
    except RasterioError as exc:
        raise StorageUnavailable("the stored COG cannot be opened") from exc
    return file, tags


def _moment(options: RasterOptions, tags: Mapping[str, str], findings: Findings) -> Moment:
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


def _software() -> dict[str, str]:
    found = {"GDAL": rasterio.__gdal_version__, "rasterio": rasterio.__version__}
    try:
        return {"geodag": version("geodag"), **found}
    except PackageNotFoundError:
        return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
