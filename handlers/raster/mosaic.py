"""Puts the tiles of a large raster together: one small COG that shows the whole, and facts and rendering of the whole.

Nothing of the tiles is read but what they left for this: their reduced copies and what their pixels count.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.transform import array_bounds
from rasterio.windows import Window

from core.errors import DataError
from core.tile_params import ProcessTileOutput
from handlers.context import ProcessContext
from handlers.raster import gdal, tallies
from handlers.raster.cog_facts import facts_of, has_mask, nodata_of, render_of
from handlers.raster.facts import RasterFacts
from handlers.raster.grid import Grid, Tile
from handlers.raster.profiles import CogProfile
from handlers.raster.rewrite import copy_metadata, create_plain, final_colors

Json = dict[str, Any]


def check_complete(grid: Grid, tiles: Sequence[ProcessTileOutput]) -> None:
    """Refuse tiles that do not cover their grid: a hole would look like nodata.

    Raises:
        DataError: RASTER_UNREADABLE, naming the first tiles that are missing.
    """
    there = {Tile.of(one.tile) for one in tiles}
    if grid.files is not None and len(there) == grid.files:
        return
    missing = [tile.name for tile in grid.tiles() if tile not in there]
    if missing:
        raise DataError(
            f"{len(missing)} tiles are missing: {', '.join(missing[:10])}",
            code="RASTER_UNREADABLE",
            field="file",
            remediation="Retry the failed tiles.",
        )


def write_overview(
    ctx: ProcessContext, grid: Grid, tiles: Sequence[ProcessTileOutput], profile: CogProfile, target: Path
) -> None:
    """Write the COG that shows the whole, reduced as the grid says."""
    plain = ctx.scratch / "overview.tif"
    shape = (-(-grid.height // grid.reduction), -(-grid.width // grid.reduction))
    with gdal.environment(), gdal.open_geotiff(Path(tiles[0].coarse_path)) as like:
        colors = final_colors(like, alpha_is_data=False)
        place = {"crs": like.crs, "transform": grid.affine(reduction=grid.reduction)}
        with create_plain(like, plain, shape=shape, nodata=like.nodata, colors=colors, **place) as dst:
            copy_metadata(like, dst, colors)
        with rasterio.open(plain, "r+", driver="GTiff") as dst:
            for done, one in enumerate(tiles):
                ctx.raise_if_cancelled()
                ctx.progress(done, len(tiles), "putting tiles together")
                left, top, _, _ = Tile.of(one.tile).window
                _paste(dst, Path(one.coarse_path), left // grid.reduction, top // grid.reduction)
    with gdal.environment(), gdal.open_geotiff(plain) as src:
        rasterio.shutil.copy(src, target, driver="COG", **profile.creation_options(gdal.cores()))
    plain.unlink()


def describe_whole(
    overview: Path, grid: Grid, tiles: Sequence[ProcessTileOutput], facts: RasterFacts, profile: CogProfile
) -> tuple[Json, Json]:
    """Return the facts of the whole and its default rendering, the same for all tiles; both without NaN."""
    statistics = tallies.total([Path(one.tallies_path) for one in tiles], grid.width * grid.height)
    with gdal.environment(), gdal.open_geotiff(overview) as cog:
        described = facts_of(cog, facts, nodata_of(cog), statistics, profile.compression)
        render = render_of(cog, facts, nodata_of(cog), statistics)
    whole = {
        "shape": [grid.height, grid.width],
        "transform": list(grid.transform),
        "bounds": list(array_bounds(grid.height, grid.width, grid.affine())),
    }
    return described | whole, render


def _paste(dst: Any, path: Path, left: int, top: int) -> None:
    """Write the valid pixels of a part; delivered files may overlap, and the later one lies on top."""
    with gdal.open_geotiff(path) as part:
        window = Window(left, top, min(part.width, dst.width - left), min(part.height, dst.height - top))
        if window.width < 1 or window.height < 1:
            return
        here = Window(0, 0, window.width, window.height)
        if not has_mask(part) and part.nodata is None:
            dst.write(part.read(window=here), window=window)
            return
        valid = part.dataset_mask(window=here) > 0
        dst.write(np.where(valid, part.read(window=here), dst.read(window=window)), window=window)
        if has_mask(part):
            dst.write_mask(
                np.where(valid | (dst.read_masks(1, window=window) > 0), 255, 0).astype(np.uint8), window=window
            )
