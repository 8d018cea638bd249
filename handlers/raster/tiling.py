"""`raster.generate_tiling_scheme` and `raster.process_tile`: a large raster as a grid of COGs.

Each tile is made from the source, its pixels those of the COG of the whole, so that a dead worker costs one tile.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio.shutil
from rasterio.enums import Resampling
from rasterio.io import DatasetReader
from rasterio.windows import Window

from core.errors import GeodagError, ParameterInvalid
from core.handler_models import RasterOptions
from core.tile_params import ProcessTileParams, TilingSchemeParams
from handlers.context import Outcome, ProcessContext
from handlers.raster import gdal, tallies
from handlers.raster.cog_facts import has_mask, nodata_of
from handlers.raster.delivery import completed, received
from handlers.raster.facts import RasterFacts, Validity
from handlers.raster.findings import Findings
from handlers.raster.grid import Grid, Tile, make_grid, source_region
from handlers.raster.keep import is_strict_cog
from handlers.raster.options import check_options
from handlers.raster.plan import Plan, make_plan
from handlers.raster.profiles import CogProfile, profile_of
from handlers.raster.resample import resample
from handlers.raster.rewrite import copy_metadata, create_plain, final_colors, held, rewrite
from handlers.raster.sniff import HEAD_BYTES
from handlers.raster.statistics import tallies as tallies_of
from handlers.raster.tiff import read_directories

CACHE_BYTES: Final = 96 * gdal.MEBIBYTE
"""Of blocks; what one tile needs and no more, so that a process stays below 400 MB."""
COARSE: Final = "coarse.tif"
TALLIES: Final = "tallies.npz"
UNPACKED: Final = "source.tif"


def tiling_scheme(ctx: ProcessContext, params: TilingSchemeParams) -> Outcome:
    """Return the grid of a raster's output and its tiles; no pixel is read.

    What had to leave an archive is kept for the tiles, so that they need not unpack it again and again; not so where
    sidecars say what it is.

    Raises:
        DataError: the target CRS cannot show the raster.
    """
    facts, plan, _ = _planned(params.raster, params.options)
    with _opened(ctx, Path(params.source), facts) as (path, page):
        moved = plan.warp_to and plan.rewrite
        placed = (_placed(ctx, path, page, facts, plan, Window(0, 0, 1, 1)), None) if moved else (path, page)
        with gdal.environment(CACHE_BYTES), gdal.open_geotiff(*placed) as src:
            grid = make_grid(src, facts, plan, params.tile_pixels, params.tile_size_mb)
        keep = params.output_prefix is not None and path != Path(params.source) and not facts.sidecars
        if keep:
            path.rename(ctx.out_dir / UNPACKED)
    tiles = [tile.model_dump(mode="json") for tile in grid.tiles()]
    raster = params.raster | {"member": None} if keep else params.raster
    output = {"grid": grid.model_dump(mode="json"), "tile_list": tiles, "tile_count": len(tiles), "raster": raster}
    return Outcome(output, files={"unpacked": UNPACKED} if keep else {})


def process_tile(ctx: ProcessContext, params: ProcessTileParams) -> Outcome:
    """Write the COG of one tile, a reduced copy of it for the overview of the whole, and what its pixels count.

    Running it again gives the same bytes.

    Raises:
        DataError: a 64-bit nodata value cannot be kept.
    """
    facts, plan, profile = _planned(params.raster, params.options)
    grid, tile = Grid.of(params.grid), Tile.of(params.tile)
    target = ctx.out_dir / f"{tile.name}.tif"
    with (
        _opened(ctx, Path(params.source), facts) as (path, page),
        gdal.environment(CACHE_BYTES, sidecars=bool(facts.sidecars), windowed=True),
        _pixels(ctx, path, page, tile, grid, facts, plan, profile) as pixels,
    ):
        ctx.raise_if_cancelled()
        with gdal.environment(CACHE_BYTES):
            rasterio.shutil.copy(pixels, target, driver="COG", **profile.creation_options(gdal.cores()))
    if not is_strict_cog(target):
        raise GeodagError("the tile that was written is no strict COG")
    with gdal.environment(CACHE_BYTES):
        with gdal.open_geotiff(target) as cog:
            tallies.save(ctx.out_dir / TALLIES, tallies_of(cog, nodata_of(cog), ctx.follow("measuring pixels")))
        with reduced(target, ctx.scratch / "reduced.tif", grid.reduction, profile) as coarse:
            write_coarse(coarse, ctx.out_dir / COARSE, grid, tile)
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    output = {"tile": tile.model_dump(mode="json"), "sha256": digest, "size_bytes": target.stat().st_size}
    return Outcome(output, files={"blob_path": target.name, "coarse_path": COARSE, "tallies_path": TALLIES})


def _planned(raster: dict[str, Any], raw: RasterOptions) -> tuple[RasterFacts, Plan, CogProfile]:
    findings = Findings()
    options = check_options(raw, findings)
    if findings.errors:
        raise ParameterInvalid(findings.errors[0].message, field=findings.errors[0].field)
    facts = RasterFacts.of(raster)
    profile = profile_of(facts.raster_type, options.compression)
    return facts, make_plan(facts, options.target_crs, profile), profile


@contextmanager
def _opened(ctx: ProcessContext, source: Path, facts: RasterFacts) -> Iterator[tuple[Path, int | None]]:
    """Yield path and page of the raster of a source."""
    findings = Findings()
    with source.open("rb") as file:
        head = file.read(HEAD_BYTES)
    with received(ctx, source, head, facts.member, findings) as delivered:
        path = delivered.path
        if facts.sidecars:
            path, _ = completed(ctx, delivered, read_directories(path)[(facts.page or 1) - 1], findings)
        yield path, facts.page


def _placed(ctx: ProcessContext, path: Path, page: int | None, facts: RasterFacts, plan: Plan, region: Window) -> Path:
    """Return a copy that lies where the rules say, with the pixels of a region only."""
    copy = ctx.scratch / "placed.tif"
    copy.unlink(missing_ok=True)
    environment = gdal.environment(CACHE_BYTES, sidecars=bool(facts.sidecars), windowed=True)
    with environment, gdal.open_geotiff(path, page) as src:
        rewrite(src, copy, facts, plan, ctx.follow("copying pixels"), region)
    return copy


@contextmanager
def _pixels(
    ctx: ProcessContext,
    path: Path,
    page: int | None,
    tile: Tile,
    grid: Grid,
    facts: RasterFacts,
    plan: Plan,
    profile: CogProfile,
) -> Iterator[DatasetReader]:
    """Yield the pixels of a tile, decoded: the COG driver reads them twice."""
    region = Window(*tile.window)
    if plan.warp_to is None:
        with (
            gdal.open_geotiff(path, page) as src,
            held(src, facts, plan, region, ctx.follow("copying pixels")) as pixels,
        ):
            yield pixels
        return
    validity, plain = facts.validity, ctx.scratch / "plain.tif"
    if plan.rewrite:
        path, page = _placed(ctx, path, page, facts, plan, source_region(tile, grid, facts, plan)), None
        validity = Validity.MASK if plan.nodata_to_mask else validity
    resample(ctx, path, page, plain, facts, plan, profile, validity, cache_bytes=CACHE_BYTES, region=region)
    if plan.rewrite:
        path.unlink()
    with gdal.open_geotiff(plain) as src:
        yield src
    plain.unlink()


@contextmanager
def reduced(cog: Path, copy: Path, reduction: int, profile: CogProfile) -> Iterator[DatasetReader]:
    """Yield a COG by its overview; where it has none so small, by one made of its smallest in a copy of that."""
    with gdal.open_geotiff(cog) as src:
        factors = src.overviews(1)
    if reduction in factors:
        with gdal.open_geotiff(cog, overview_level=factors.index(reduction)) as src:
            yield src
        return
    smaller = [(level, factor) for level, factor in enumerate(factors) if reduction % factor == 0]
    level, factor = smaller[-1] if smaller else (None, 1)
    with gdal.open_geotiff(cog, **({} if level is None else {"overview_level": level})) as src:
        rasterio.shutil.copy(src, copy, driver="GTiff", TILED="YES", BIGTIFF="IF_SAFER")
    halvings = (reduction // factor).bit_length() - 1
    with rasterio.open(copy, "r+", driver="GTiff") as dst:
        dst.build_overviews([2 << step for step in range(halvings)], Resampling[profile.overviews.lower()])
    with gdal.open_geotiff(copy, overview_level=halvings - 1) as src:
        yield src
    copy.unlink()


def write_coarse(coarse: DatasetReader, target: Path, grid: Grid, tile: Tile) -> None:
    """Write a tile's share of the overview of the whole."""
    colors = final_colors(coarse, alpha_is_data=False)
    place = {
        "crs": coarse.crs,
        "transform": grid.affine(tile.window, grid.reduction),
        "compress": "deflate",
        "zlevel": 1,
    }
    with create_plain(coarse, target, shape=coarse.shape, nodata=coarse.nodata, colors=colors, **place) as dst:
        copy_metadata(coarse, dst, colors)
        dst.write(coarse.read())
        if has_mask(coarse):
            dst.write_mask((coarse.read_masks(1) > 0).astype(np.uint8) * 255)
