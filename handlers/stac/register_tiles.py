"""The tiled half of `raster.stac_register_item`: the overview of the whole, its item, and the list of its tiles."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import rasterio
from pyproj import CRS

from core.errors import ParameterMissing
from core.stac_params import RegisterItemParams
from core.tile_params import ProcessTileOutput
from handlers.context import Outcome, ProcessContext
from handlers.raster import crs as crs_rules
from handlers.raster import gdal
from handlers.raster.facts import RasterFacts
from handlers.raster.findings import Findings
from handlers.raster.grid import Grid, Tile
from handlers.raster.mosaic import check_complete, describe_whole, write_overview
from handlers.raster.options import check_options
from handlers.raster.profiles import profile_of
from handlers.raster.report import final_report
from handlers.stac.footprint import footprint
from handlers.stac.item import CogFile, Description, as_tiled, build_item
from handlers.stac.moments import moment_of, software

Json = dict[str, Any]
OVERVIEW: Final = "overview.tif"
TILES: Final = "tiles.json"


def register_tiles(ctx: ProcessContext, params: RegisterItemParams, about: Description) -> Outcome:
    """Write overview and list of tiles, and return the item of the whole.

    Raises:
        ParameterMissing: `grid`, `raster` or `output_prefix` is missing.
        DataError: a tile is missing.
    """
    for name in ("grid", "raster", "output_prefix"):
        if getattr(params, name) is None:
            raise ParameterMissing(f"{name} is missing; tiles need it", field=name)
    grid, findings = Grid.of(params.grid or {}), Findings()
    tiles = [ProcessTileOutput.of(one) for one in params.tiles or ()]
    facts = RasterFacts.of(params.raster or {})
    profile = profile_of(facts.raster_type, check_options(params.options, findings).compression)
    check_complete(grid, tiles)
    overview = ctx.out_dir / OVERVIEW
    write_overview(ctx, grid, tiles, profile, overview)
    described, render = describe_whole(overview, grid, tiles, facts, profile)
    cut = f"cut into {len(tiles)} tiles of {grid.tile_pixels} pixels"
    made = cut if params.collection is None else f"{len(tiles)} files put together"
    steps = [f"{made}, COGs written with {profile.compression}"]
    notes = facts.findings if params.collection is None else params.collection["findings"]
    described |= {"steps": steps, "findings": list(notes)}
    file, tags = _file(overview, grid)
    moment = moment_of(params.options, tags, findings)
    item = build_item(file, described, render, about, moment, software())
    with gdal.environment(), gdal.open_geotiff(overview) as cog:
        item = as_tiled(item, [cog.height, cog.width], list(cog.transform[:6]), len(tiles))
    crs = crs_rules.horizontal(CRS.from_wkt(grid.crs_wkt))
    (ctx.out_dir / TILES).write_text(json.dumps(_listed(grid, tiles, crs), allow_nan=False))
    output = {
        "stac_item_id": params.item_id,
        "stac_collection_id": params.collection_id,
        "stac_item": item,
        "sha256": file.sha256,
        "size_bytes": file.size_bytes,
        "render": render,
        "report": final_report(facts, described, steps) | _verdicts(params),
    }
    files = {"blob_path": OVERVIEW, "tiles_path": TILES}
    return Outcome(output, files=files, findings=tuple(findings.findings))


def _verdicts(params: RegisterItemParams) -> Json:
    """Return what the report says of each of several files."""
    return {} if params.collection is None else {"files": params.collection["verdicts"]}


def _file(overview: Path, grid: Grid) -> tuple[CogFile, dict[str, str]]:
    """Return the whole as one file would be, with size and digest of its overview."""
    with overview.open("rb") as stored:
        digest = hashlib.file_digest(stored, "sha256").hexdigest()
    with gdal.environment(), rasterio.open(overview, driver="GTiff") as cog:
        tags = cog.tags()
    file = CogFile(
        width=grid.width,
        height=grid.height,
        transform=grid.transform,
        crs_wkt=grid.crs_wkt,
        sampling="point" if tags.get("AREA_OR_POINT") == "Point" else "area",
        size_bytes=overview.stat().st_size,
        sha256=digest,
    )
    return file, tags


def _listed(grid: Grid, tiles: Sequence[ProcessTileOutput], crs: CRS) -> Json:
    """Return what serving and the catalogue need of every tile."""
    return {"grid": grid.model_dump(mode="json"), "tiles": [_entry(grid, one, crs) for one in tiles]}


def _entry(grid: Grid, one: ProcessTileOutput, crs: CRS) -> Json:
    tile = Tile.of(one.tile)
    transform = one.transform or list(grid.affine(tile.window)[:6])
    place = footprint(crs, transform, tile.window[2], tile.window[3])
    return {
        "name": tile.name,
        "title": one.title,
        "window": list(tile.window),
        "transform": transform,
        "bbox": place.bbox,
        "geometry": place.geometry,
        "blob_path": one.blob_path,
        "sha256": one.sha256,
        "size_bytes": one.size_bytes,
    }
