"""Every handler by name: where it runs, for how long, with which params and which output.

Implementations in `handlers/` bind to these specifications; a test compares the two sides. The orchestrator reads
only this module, so it never imports GDAL.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from core.external_params import ExportOutput, ExportParams, WithdrawOutput, WithdrawParams
from core.handler_models import AnyOutput, AnyParams, Output, Params, RasterOptions
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


class SleepParams(Params):
    seconds: float = Field(ge=0, le=86400)


class HelloParams(Params):
    name: str = "World"


class HelloOutput(Output):
    message: str


class EchoOutput(Output):
    echoed_params: dict[str, Any]


class SleepOutput(Output):
    slept_seconds: float


class FailParams(Params):
    code: str = "INTERNAL"
    message: str = "failed on purpose"
    transient: bool = False


class FlakyParams(AnyParams):
    failure_rate: float = Field(default=0.2, ge=0, le=1)


class MultiPhaseParams(Params):
    phases: int = Field(default=3, ge=1, le=1000)
    seconds_per_phase: float = Field(default=0.1, ge=0)


class MultiPhaseOutput(Output):
    phases_run: list[int]
    resumed_from: int


class SizeCheckParams(Params):
    size_bytes: int = Field(ge=0)
    threshold_bytes: int = Field(default=100_000_000, ge=0)


class SizeCheckOutput(Output):
    size_bytes: int
    size_mb: float
    is_large: bool


class ChunkParams(Params):
    items: list[Any]
    seconds_per_item: float = Field(default=0.0, ge=0)


class ChunkOutput(Output):
    processed: int
    results: list[Any]


class MakeValuesParams(Params):
    count: int = Field(default=1000, ge=0, le=1_000_000)
    bytes_each: int = Field(default=200, ge=40, le=1_000_000)


class MakeValuesOutput(Output):
    count: int
    values: list[str]


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


class EnsureCollectionParams(Params):
    collection_id: str
    title: str
    description: str = ""


class EnsureCollectionOutput(Output):
    collection_id: str
    created: bool


class RegisterItemParams(Params):
    """A COG with its facts, or the tiles of a large raster with their grid."""

    cog: str | None = Field(default=None, description="Blob path of the COG; staged: this is the read-back.")
    cog_facts: dict[str, Any] | None = Field(default=None, description="The whole output of raster.create_cog.")
    tiles: list[dict[str, Any]] | None = Field(default=None, description="Outputs of raster.process_tile.")
    grid: dict[str, Any] | None = Field(default=None, description="`grid` of raster.generate_tiling_scheme.")
    raster: dict[str, Any] | None = Field(default=None, description="`raster` of raster.validate; tiles need it.")
    collection: dict[str, Any] | None = Field(default=None, description="Output of raster.check_collection, for files.")
    output_prefix: str | None = Field(default=None, description="Where the overview of tiles goes.")
    collection_id: str
    item_id: str
    title: str
    description: str | None = None
    href: str = Field(description="Unsigned URL of the download door for this version.")
    version_label: str
    properties: dict[str, Any] = Field(default={}, description="platform:* traceability, lineage.")
    options: RasterOptions = RasterOptions()


class RegisterItemOutput(Output):
    stac_item_id: str
    stac_collection_id: str
    stac_item: dict[str, Any]
    blob_path: str | None = Field(description="The COG, or the overview of the tiles.")
    sha256: str | None
    size_bytes: int | None
    render: dict[str, Any] | None
    report: dict[str, Any] | None
    tiles_path: str | None = Field(default=None, description="List of the tiles, with their places and files.")


class ItemToRegister(Params):
    """One COG of a batch; the batch says the rest."""

    cog: str = Field(description="Blob path of the COG; staged: this is the read-back.")
    cog_facts: dict[str, Any] = Field(description="The whole output of raster.create_cog.")
    item_id: str
    title: str
    description: str | None = None
    href: str = Field(description="Unsigned URL of the download door for this version.")
    options: RasterOptions | None = Field(default=None, description="Instead of those of the batch.")


class RegisterItemsParams(Params):
    """Several COGs of one collection."""

    items: list[ItemToRegister] = Field(min_length=1, max_length=300)
    collection_id: str
    version_label: str
    properties: dict[str, Any] = Field(default={}, description="platform:* traceability, lineage.")
    options: RasterOptions = RasterOptions()


class RegisterItemsOutput(Output):
    stac_collection_id: str
    stac_item_ids: list[str]
    stac_items: list[dict[str, Any]] = Field(description="In the order of the params.")


_SPECS = (
    HandlerSpec("echo", LIGHT_QUEUE, RunMode.INLINE, AnyParams, EchoOutput, 300),
    HandlerSpec("hello_world", LIGHT_QUEUE, RunMode.INLINE, HelloParams, HelloOutput, 300),
    HandlerSpec("sleep", LIGHT_QUEUE, RunMode.INLINE, SleepParams, SleepOutput),
    HandlerSpec("fail", LIGHT_QUEUE, RunMode.INLINE, FailParams, AnyOutput, 300),
    HandlerSpec("flaky_echo", LIGHT_QUEUE, RunMode.INLINE, FlakyParams, EchoOutput, 300),
    HandlerSpec("multi_phase", HEAVY_QUEUE, RunMode.SUBPROCESS, MultiPhaseParams, MultiPhaseOutput),
    HandlerSpec("size_check", LIGHT_QUEUE, RunMode.INLINE, SizeCheckParams, SizeCheckOutput, 300),
    HandlerSpec("chunk_processor", HEAVY_QUEUE, RunMode.SUBPROCESS, ChunkParams, ChunkOutput),
    HandlerSpec("make_values", HEAVY_QUEUE, RunMode.SUBPROCESS, MakeValuesParams, MakeValuesOutput, 300),
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
    HandlerSpec("external.export", LIGHT_QUEUE, RunMode.INLINE, ExportParams, ExportOutput, 86400),
    HandlerSpec("external.withdraw", LIGHT_QUEUE, RunMode.INLINE, WithdrawParams, WithdrawOutput),
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
