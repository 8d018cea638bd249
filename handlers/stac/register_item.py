"""`raster.stac_register_item`: reads the stored COG back and builds the STAC item that the approval publishes."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rasterio.errors import RasterioError

from core.errors import ParameterMissing, StorageUnavailable
from core.stac_params import RegisterItemParams
from handlers.context import Outcome, ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.findings import Findings
from handlers.stac.item import CogFile, Description, build_item
from handlers.stac.moments import moment_of, software
from handlers.stac.register_tiles import register_tiles


def register_item(ctx: ProcessContext, params: RegisterItemParams) -> Outcome:
    """Return the item of a COG, or of tiles with the overview and the list of them; nothing is catalogued here.

    Raises:
        StorageUnavailable: the stored bytes are not those that were written; tried again.
        ParameterInvalid: a date of the submit is none.
        ParameterMissing: there is neither a COG nor tiles.
    """
    about = Description(
        item_id=params.item_id,
        collection_id=params.collection_id,
        title=params.title,
        description=params.description,
        href=params.href,
        version_label=params.version_label,
        properties=params.properties,
    )
    if params.tiles is not None:
        return register_tiles(ctx, params, about)
    if params.cog is None or params.cog_facts is None:
        raise ParameterMissing("cog and cog_facts are missing; there are no tiles either", field="cog")
    facts = params.cog_facts["raster"]
    path = Path(params.cog)
    digest = _sha256(path)
    if digest != params.cog_facts["sha256"]:
        raise StorageUnavailable(f"the stored COG has SHA-256 {digest}, {params.cog_facts['sha256']} was written")
    ctx.raise_if_cancelled()
    file, tags = _read_back(path, digest, facts)
    findings = Findings()
    moment = moment_of(params.options, tags, findings)
    item = build_item(file, facts, params.cog_facts["render"], about, moment, software())
    known = ("blob_path", "sha256", "size_bytes", "render", "report")
    output = {"stac_item_id": params.item_id, "stac_collection_id": params.collection_id, "stac_item": item}
    return Outcome(output | {name: params.cog_facts.get(name) for name in known}, findings=tuple(findings.findings))


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
