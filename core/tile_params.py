"""Params and outputs of the handlers that make one version of many files: tiles, or files that came together."""

from typing import Any

from pydantic import Field

from core.handler_models import Output, Params, RasterOptions


class TilingSchemeParams(Params):
    source: str = Field(description="Blob path; staged by the worker.")
    raster: dict[str, Any] = Field(description="`raster` of raster.validate.")
    options: RasterOptions = RasterOptions()
    tile_pixels: int | None = Field(default=None, ge=512, le=16384, multiple_of=512, description="Side of a tile.")
    tile_size_mb: float | None = Field(default=None, gt=0, le=1000, description="Decoded; wins over tile_pixels.")
    output_prefix: str | None = Field(
        default=None, description="Where what had to be unpacked goes; left out, each tile unpacks it again."
    )


class TilingSchemeOutput(Output):
    grid: dict[str, Any] = Field(description="crs_wkt, transform, width, height, tile_pixels, reduction.")
    tile_list: list[dict[str, Any]] = Field(description="row, column, window of each tile.")
    tile_count: int
    unpacked: str | None = Field(default=None, description="The raster that came out of an archive, for tiles to read.")
    raster: dict[str, Any] = Field(description="`raster` of raster.validate, as tiles need it then.")


class ProcessTileParams(Params):
    source: str = Field(description="Blob path; staged by the worker.")
    content_hash: str | None = Field(default=None, description="Of the source; tiles of other content are not reused.")
    raster: dict[str, Any] = Field(description="`raster` of raster.validate.")
    options: RasterOptions = RasterOptions()
    grid: dict[str, Any] = Field(description="`grid` of raster.generate_tiling_scheme.")
    tile: dict[str, Any] = Field(description="One of its `tile_list`.")
    tile_index: int | None = Field(default=None, description="Place in the list; the tile says where it lies itself.")
    output_prefix: str = Field(description="container/prefix; the worker appends the task id.")


class ProcessTileOutput(Output):
    tile: dict[str, Any]
    blob_path: str
    sha256: str
    size_bytes: int
    coarse_path: str = Field(description="The tile's share of the overview of the whole.")
    tallies_path: str = Field(description="What its pixels count, for the statistics of the whole.")
    title: str | None = Field(default=None, description="Name of a delivered file.")
    transform: list[float] | None = Field(default=None, description="Affine a..f of a delivered file.")


class CheckCollectionParams(Params):
    sources: list[str] = Field(min_length=1, max_length=100, description="Blob paths, in the order of validation.")
    checked: dict[str, Any] = Field(description="Output of the fan_in over raster.validate: results and failures.")
    resolution_tolerance: float = Field(default=0.001, ge=0, le=0.1, description="Share by which pixels may differ.")
    tolerate_files: int = Field(default=0, ge=0, description="How many files may be refused or unlike the others.")


class CheckCollectionOutput(Output):
    files: list[dict[str, Any]] = Field(description="name, source, content_hash, raster and tile of each alike file.")
    grid: dict[str, Any] = Field(description="The grid that they lie in.")
    verdicts: list[dict[str, Any]] = Field(description="file, verdict, errors and findings of every file.")
    findings: list[dict[str, Any]] = Field(description="Findings of the files that are taken, and of the collection.")


class ProcessFileParams(Params):
    source: str = Field(description="Blob path; staged by the worker.")
    file: dict[str, Any] = Field(description="One of `files` of raster.check_collection.")
    grid: dict[str, Any]
    options: RasterOptions = RasterOptions()
    output_prefix: str = Field(description="container/prefix; the worker appends the task id.")
