"""Every handler by name: where it runs, for how long, with which params and which output.

Implementations in `handlers/` bind to these specifications; a test compares the two sides. The orchestrator reads
only this module, so it never imports GDAL.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from core.example_params import (
    ChunkOutput,
    ChunkParams,
    EchoOutput,
    FailParams,
    FlakyParams,
    HelloOutput,
    HelloParams,
    MakeValuesOutput,
    MakeValuesParams,
    MultiPhaseOutput,
    MultiPhaseParams,
    SizeCheckOutput,
    SizeCheckParams,
    SleepOutput,
    SleepParams,
)
from core.external_params import ExportOutput, ExportParams, WithdrawOutput, WithdrawParams
from core.handler_models import AnyOutput, AnyParams, Output, Params, RasterOptions
from core.stac_params import (
    EnsureCollectionOutput,
    EnsureCollectionParams,
    RegisterItemOutput,
    RegisterItemParams,
    RegisterItemsOutput,
    RegisterItemsParams,
)
from core.tile_params import (
    CheckCollectionOutput,
    CheckCollectionParams,
    ProcessFileParams,
    ProcessTileOutput,
    ProcessTileParams,
    TilingSchemeOutput,
    TilingSchemeParams,
)

LIGHT_QUEUE = "functionapp-tasks"
HEAVY_QUEUE = "container-tasks"
KNOWN_QUEUES = frozenset({LIGHT_QUEUE, HEAVY_QUEUE})
DEFAULT_TIMEOUT_SECONDS = 3600.0


class RunMode(StrEnum):
    """INLINE runs in the worker's event loop (64 slots); SUBPROCESS in a pooled, jailed process."""

    INLINE = "inline"
    SUBPROCESS = "subprocess"


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """The contract of one handler."""

    name: str
    queue: str
    mode: RunMode
    params: type[BaseModel]
    output: type[BaseModel]
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    memory_bytes: int = 0
    """Address-space limit of the subprocess; 0 means the worker's default."""
    staged: tuple[str, ...] = ()
    """Names of params that are blob paths (`container/name`): the worker stages them and hands over local paths.
    `list.name` means that name in each object of a list. What is null is left out."""
    sidecars: bool = False
    """True when the small files beside a staged raster (world file, .prj, .aux.xml, .msk) are staged too, by name."""
    database: bool = False
    """True when the handler writes to pgstac or geo tables through its context (inline handlers only)."""
    reusable: int = 0
    """Not 0 when equal params give equal files, which are taken again; raised whenever other files come out."""
    fetches: bool = False
    """True when the sealed credential of its job's source is used: by the guarded client that inline handlers get, by
    the worker for what `peeked` names."""
    peeked: str = ""
    """Name of a param that is a URL: the worker puts a local copy in its place, of the header where that will do, and
    says in the param `whole` whether it has all bytes."""
    description: str = ""


class RasterValidateParams(Params):
    source: str = Field(description="Blob path container/name; staged by the worker.")
    options: RasterOptions = RasterOptions()
    expected_size_bytes: int | None = None
    header_only: bool = False


class RasterInspectParams(Params):
    url: str = Field(description="Without a query; the credential comes with the claim.")
    file_name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)
    options: RasterOptions = RasterOptions()
    whole: bool = Field(default=True, description="Set by the worker: whether the copy has more than the header.")


class RasterValidateOutput(Output):
    source: str
    content_hash: str | None = Field(description="SHA-256 of the source file; null when only the header was read.")
    file_size_bytes: int
    file_size_mb: float
    raster: dict[str, Any] = Field(description="What create_cog needs: crs_wkt, crs_code, transform, nodata, type, …")
    report: dict[str, Any] = Field(description="Validation report: verdict, findings, raster facts.")
    estimate: dict[str, Any] = Field(description="memory_bytes, scratch_bytes, seconds of a core, route.")


class CreateCogParams(Params):
    source: str = Field(description="Blob path; staged by the worker.")
    raster: dict[str, Any] = Field(description="`raster` of raster.validate.")
    options: RasterOptions = RasterOptions()
    output_prefix: str = Field(description="container/prefix; the worker appends the task id.")


class CreateCogOutput(Output):
    blob_path: str
    sha256: str
    size_bytes: int
    raster: dict[str, Any] = Field(description="Facts of the COG: crs, shape, bounds, dtype, nodata, statistics.")
    render: dict[str, Any] = Field(description="Default rendering: bidx, rescale, colormap.")
    report: dict[str, Any] = Field(description="Validation report of the version: verdict, findings, before, after.")


class FetchParams(Params):
    url: str = Field(description="Without a query; the credential comes with the claim.")
    file_name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)
    output_prefix: str = Field(description="container/prefix; the handler appends the task id.")


class FetchOutput(Output):
    source: str = Field(description="Blob path of the copy, which everything later reads.")
    size_bytes: int
    sha256: str
    etag: str | None = Field(description="As the host said.")


_SPECS = (
    HandlerSpec(
        "echo",
        LIGHT_QUEUE,
        RunMode.INLINE,
        AnyParams,
        EchoOutput,
        300,
        description="Returns its params.",
    ),
    HandlerSpec(
        "hello_world",
        LIGHT_QUEUE,
        RunMode.INLINE,
        HelloParams,
        HelloOutput,
        300,
        description="Greets somebody.",
    ),
    HandlerSpec(
        "sleep",
        LIGHT_QUEUE,
        RunMode.INLINE,
        SleepParams,
        SleepOutput,
        description="Waits, and stops waiting when it is cancelled.",
    ),
    HandlerSpec(
        "fail",
        LIGHT_QUEUE,
        RunMode.INLINE,
        FailParams,
        AnyOutput,
        300,
        description="Fails with the code that it is given, for good or for now.",
    ),
    HandlerSpec(
        "flaky_echo",
        LIGHT_QUEUE,
        RunMode.INLINE,
        FlakyParams,
        EchoOutput,
        300,
        description="Returns its params, and fails for now in some of its attempts.",
    ),
    HandlerSpec(
        "multi_phase",
        HEAVY_QUEUE,
        RunMode.SUBPROCESS,
        MultiPhaseParams,
        MultiPhaseOutput,
        description="Works in phases with a checkpoint after each; the next attempt goes on behind the last one.",
    ),
    HandlerSpec(
        "size_check",
        LIGHT_QUEUE,
        RunMode.INLINE,
        SizeCheckParams,
        SizeCheckOutput,
        300,
        description="Says whether a size is above a threshold, for a conditional to choose by.",
    ),
    HandlerSpec(
        "chunk_processor",
        HEAVY_QUEUE,
        RunMode.SUBPROCESS,
        ChunkParams,
        ChunkOutput,
        description="Returns each of its items, after a time for each.",
    ),
    HandlerSpec(
        "make_values",
        HEAVY_QUEUE,
        RunMode.SUBPROCESS,
        MakeValuesParams,
        MakeValuesOutput,
        300,
        description="Makes many texts: a large output.",
    ),
    HandlerSpec(
        "source.fetch",
        LIGHT_QUEUE,
        RunMode.INLINE,
        FetchParams,
        FetchOutput,
        3600,
        fetches=True,
        description="Copies a file from a URL to the bronze zone, through the guard.",
    ),
    HandlerSpec(
        "external.export",
        LIGHT_QUEUE,
        RunMode.INLINE,
        ExportParams,
        ExportOutput,
        86400,
        description="Copies a public version to the external zone.",
    ),
    HandlerSpec(
        "external.withdraw",
        LIGHT_QUEUE,
        RunMode.INLINE,
        WithdrawParams,
        WithdrawOutput,
        description="Removes the copies of an export.",
    ),
    HandlerSpec(
        "raster.validate",
        LIGHT_QUEUE,
        RunMode.SUBPROCESS,
        RasterValidateParams,
        RasterValidateOutput,
        1800,
        staged=("source",),
        sidecars=True,
        description="Header, then every block; verdict and findings.",
    ),
    HandlerSpec(
        "raster.inspect",
        LIGHT_QUEUE,
        RunMode.SUBPROCESS,
        RasterInspectParams,
        RasterValidateOutput,
        1800,
        fetches=True,
        peeked="url",
        description="As raster.validate, for a file behind a URL: of a large one the header alone.",
    ),
    HandlerSpec(
        "raster.create_cog",
        HEAVY_QUEUE,
        RunMode.SUBPROCESS,
        CreateCogParams,
        CreateCogOutput,
        7200,
        staged=("source",),
        sidecars=True,
        description="Cloud Optimized GeoTIFF with the profile of its type.",
    ),
    HandlerSpec(
        "raster.generate_tiling_scheme",
        LIGHT_QUEUE,
        RunMode.SUBPROCESS,
        TilingSchemeParams,
        TilingSchemeOutput,
        600,
        staged=("source",),
        sidecars=True,
        description="Grid of the output of a large raster and its tiles.",
    ),
    HandlerSpec(
        "raster.process_tile",
        HEAVY_QUEUE,
        RunMode.SUBPROCESS,
        ProcessTileParams,
        ProcessTileOutput,
        3600,
        staged=("source",),
        sidecars=True,
        reusable=1,
        description="One tile of a large raster as a COG, the same pixels as in the COG of the whole.",
    ),
    HandlerSpec(
        "raster.check_collection",
        LIGHT_QUEUE,
        RunMode.SUBPROCESS,
        CheckCollectionParams,
        CheckCollectionOutput,
        600,
        description="Whether several validated files are alike, with a verdict on each.",
    ),
    HandlerSpec(
        "raster.process_file",
        HEAVY_QUEUE,
        RunMode.SUBPROCESS,
        ProcessFileParams,
        ProcessTileOutput,
        7200,
        staged=("source",),
        reusable=1,
        description="The COG of one of several files, with what the whole needs of it.",
    ),
    HandlerSpec(
        "raster.stac_ensure_collection",
        LIGHT_QUEUE,
        RunMode.INLINE,
        EnsureCollectionParams,
        EnsureCollectionOutput,
        300,
        database=True,
        description="Creates the pgstac collection when it is missing, under the fence.",
    ),
    HandlerSpec(
        "raster.stac_register_item",
        LIGHT_QUEUE,
        RunMode.SUBPROCESS,
        RegisterItemParams,
        RegisterItemOutput,
        600,
        staged=("cog", "tiles.coarse_path", "tiles.tallies_path"),
        description="Reads the COG back, or puts tiles together, and builds the STAC item that the approval publishes.",
    ),
    HandlerSpec(
        "raster.stac_register_items",
        LIGHT_QUEUE,
        RunMode.SUBPROCESS,
        RegisterItemsParams,
        RegisterItemsOutput,
        1800,
        staged=("items.cog",),
        description="As raster.stac_register_item, for a batch of COGs; all of them or none.",
    ),
)

CATALOG: dict[str, HandlerSpec] = {spec.name: spec for spec in _SPECS}
