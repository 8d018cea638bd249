"""Runs the handlers of the raster path in this process, on rasters whose arrays are known before they are written."""

import json
import logging
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.transform import Affine, from_origin

from core.handler_models import RasterOptions
from core.handlers_catalog import CreateCogParams, RasterValidateParams
from core.stac_params import RegisterItemParams
from handlers.context import Checkpoint, Outcome, ProcessContext, TaskInfo
from handlers.raster.create_cog import create_cog
from handlers.raster.findings import Rejected
from handlers.raster.validate import validate
from handlers.stac.register_item import register_item

Array = NDArray[Any]

UTM33 = "EPSG:32633"
ORIGIN = from_origin(500000, 4649776, 10, 10)


def pattern(height: int, width: int, dtype: str = "uint8", low: int = 0, high: int = 250, seed: int = 0) -> Array:
    """Return a fixed pattern without symmetry, so that a flip, a transpose or a swap of bands is visible."""
    rows, columns = np.mgrid[0:height, 0:width].astype(np.int64)
    values = (rows * 131 + columns * 17 + (rows * columns) // 7 + seed * 29) % (high - low + 1) + low
    return values.astype(dtype)


def stack(count: int, height: int, width: int, dtype: str = "uint8", low: int = 0, high: int = 250) -> Array:
    """Return `count` different bands of `pattern`."""
    return np.stack([pattern(height, width, dtype, low, high, seed) for seed in range(count)])


def write_raster(
    path: Path,
    array: Array,
    *,
    transform: Affine | None = ORIGIN,
    crs: str | CRS | None = UTM33,
    tags: Mapping[str, str] | None = None,
    mask: Array | None = None,
    before: Callable[[Any], None] | None = None,
    **profile: Any,
) -> Path:
    """Write a GeoTIFF with plain rasterio."""
    bands = array[None] if array.ndim == 2 else array
    place = {"transform": transform} if transform is not None else {}
    settings = {"count": bands.shape[0], "height": bands.shape[1], "width": bands.shape[2], "dtype": bands.dtype.name}
    with (
        warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning),
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES", GDAL_PAM_ENABLED="NO"),
        rasterio.open(path, "w", driver="GTiff", crs=crs, **settings, **place, **profile) as dst,
    ):
        dst.update_tags(**(tags or {}))
        if before:
            before(dst)
        dst.write(bands)
        if mask is not None:
            dst.write_mask(mask)
    return path


def as_stored(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as the next task reads it: a number whose digits end before the point has become a whole one.

    PostgreSQL keeps JSON numbers as decimals: it says 1e20 with all its digits, and -9999.0 as it is.
    """

    def number(text: str) -> int | float:
        return int(value) if "e" in text and (value := Decimal(text)) == value.to_integral_value() else float(text)

    stored: dict[str, Any] = json.loads(json.dumps(document), parse_float=number)
    return stored


def raw_tiff(path: Path, tags: Mapping[int, tuple[int, Sequence[float]]], data: bytes = b"") -> Path:
    """Write a little-endian classic TIFF from tags (`tag: (type 3, 4 or 12, values)`), `data` following the header."""
    entries, extra = b"", b""
    directory_at = 8 + len(data)
    extra_at = directory_at + 2 + 12 * len(tags) + 4
    for tag in sorted(tags):
        kind, values = tags[tag]
        packed = struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)
        if len(packed) > 4:
            value, extra = struct.pack("<I", extra_at + len(extra)), extra + packed
        else:
            value = packed.ljust(4, b"\0")
        entries += struct.pack("<HHI", tag, kind, len(values)) + value
    head = b"II*\0" + struct.pack("<I", directory_at)
    path.write_bytes(head + data + struct.pack("<H", len(tags)) + entries + bytes(4) + extra)
    return path


_FORMATS = {3: "H", 4: "I", 12: "d"}


@dataclass(frozen=True, slots=True)
class Made:
    """A COG and what was said about it."""

    path: Path
    output: dict[str, Any]
    codes: list[str]
    """Codes of all findings, of validation and of COG creation."""
    facts: dict[str, Any]
    """`raster` of raster.validate."""


@dataclass(slots=True)
class RasterPath:
    """The three handlers over one scratch folder."""

    folder: Path
    cancelled: bool = False
    progress: list[dict[str, Any]] = field(default_factory=list)
    runs: int = 0

    def context(self) -> ProcessContext:
        """Return a context with a scratch folder of its own."""
        self.runs += 1
        scratch = self.folder / f"run-{self.runs}"
        (scratch / "out").mkdir(parents=True)
        return ProcessContext(
            TaskInfo("job_node_1", "job", "node", 1),
            scratch,
            checkpoint=Checkpoint(None, lambda _: None),
            report=self.progress.append,
            is_cancelled=lambda: self.cancelled,
            logger=logging.LoggerAdapter(logging.getLogger("test")),
        )

    def write(self, array: Array, name: str = "source.tif", **settings: Any) -> Path:
        """Write a source raster; see `write_raster`."""
        return write_raster(self.folder / name, array, **settings)

    def validate(self, source: Path, *, header_only: bool = False, size: int | None = None, **options: Any) -> Outcome:
        """Run raster.validate."""
        params = RasterValidateParams(
            source=str(source),
            options=RasterOptions(**options),
            header_only=header_only,
            expected_size_bytes=size,
        )
        return validate(self.context(), params)

    def rejection(self, source: Path, **options: Any) -> Rejected:
        """Run raster.validate and return its refusal."""
        try:
            outcome = self.validate(source, **options)
        except Rejected as refusal:
            return refusal
        raise AssertionError(f"accepted: {outcome.output}")

    def codes(self, source: Path, **options: Any) -> list[str]:
        """Run raster.validate and return the codes of its findings."""
        return [finding.code for finding in self.validate(source, **options).findings]

    def make(self, source: Path, **options: Any) -> Made:
        """Run raster.validate and raster.create_cog."""
        validated = self.validate(source, **options)
        assert isinstance(validated.output, dict)
        context = self.context()
        params = CreateCogParams(
            source=str(source),
            raster=as_stored(validated.output)["raster"],
            options=RasterOptions(**options),
            output_prefix="silver/asset/0/r1",
        )
        outcome = create_cog(context, params)
        assert isinstance(outcome.output, dict)
        path = context.out_dir / outcome.files["blob_path"]
        codes = [finding.code for finding in (*validated.findings, *outcome.findings)]
        assert sorted(p.name for p in context.scratch.iterdir()) == ["out"], "temporary files are removed"
        return Made(path, outcome.output, codes, validated.output["raster"])

    def register(
        self, made: Made, properties: Mapping[str, Any] | None = None, title: str = "A raster", **options: Any
    ) -> Outcome:
        """Run raster.stac_register_item on a COG."""
        params = RegisterItemParams(
            cog=str(made.path),
            cog_facts={**as_stored(made.output), "blob_path": "silver/asset/0/r1/task/cog.tif"},
            collection_id="ddh-rasters",
            item_id="asset-v0",
            title=title,
            href="http://127.0.0.1:8080/download/asset?version=0",
            version_label="v1",
            properties=dict(properties or {}),
            options=RasterOptions(**options),
        )
        return register_item(self.context(), params)


def pixels(path: Path) -> Array:
    """Return all bands, read with plain rasterio."""
    with (
        warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning),
        rasterio.open(path) as src,
    ):
        return np.asarray(src.read())
