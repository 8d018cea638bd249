"""Variables of HDF5 and NetCDF files: one, and one step of it, becomes a plain GeoTIFF that the rules then judge.

GDAL never opens such a file: it is walked here first, and what could read another file or run a filter from elsewhere
is refused. Fields of GRIB files are chosen alike (`handlers.raster.grib`). Conventions: https://cfconventions.org
(1.11), dimension scales as HDF5 and NetCDF-4 have them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import rasterio
from rasterio.windows import Window

from handlers.raster import classic, grib
from handlers.raster.cube_grid import (
    CubeError,
    CubeForbidden,
    Grid,
    check_storage,
    crs_of,
    grid_of,
    labels_of,
    moment_of,
    text_of,
)
from handlers.raster.findings import Findings
from handlers.raster.limits import LIMITS
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.rewrite import OnWindow
from handlers.raster.windows import row_windows

MAX_OBJECTS: Final = 10_000
MAX_DEPTH: Final = 32
LISTED: Final = 50


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with two spatial dimensions."""

    name: str
    dataset: Any
    grid: Grid

    @property
    def steps(self) -> int:
        """How many rasters there are of it."""
        return prod(self.dataset.shape[:-2])

    def names(self) -> list[str]:
        """Return how each of its steps is chosen, with what it is for."""
        if self.steps == 1:
            return [self.name]
        labels = labels_of(self.dataset, LISTED)
        return [f"{self.name}:{number}{label}" for number, label in enumerate(labels, 1)]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was chosen."""

    chosen: str
    without_mapping: bool
    """The CRS is that of the convention: latitudes and longitudes without a grid mapping are WGS 84."""


def unpack(source: Path, wanted: str | None, target: Path, findings: Findings, on_window: OnWindow) -> Unpacked:
    """Write the chosen variable, and the chosen step of it, as a plain GeoTIFF.

    Raises:
        Rejected: FORMAT_NOT_ALLOWED, RASTER_UNREADABLE, SUBDATASET_REQUIRED, PARAMETER_INVALID, RASTER_TOO_LARGE.
    """
    try:
        if _magic(source) == grib.MAGIC:
            return Unpacked(grib.unpack_grib(source, wanted, target, findings, on_window), False)
        with _datasets(source) as datasets:
            variables = list(_variables(datasets))
            variable, step = _choose(variables, wanted, findings)
            _check_size(variable, findings)
            crs, without_mapping = crs_of(variable.dataset, variable.grid)
            _write(variable, step, crs, target, on_window)
            chosen = variable.name if variable.steps == 1 else f"{variable.name}:{step + 1}"
            return Unpacked(chosen, without_mapping)
    except CubeForbidden as exc:
        findings.stop("FORMAT_NOT_ALLOWED", "format", f"the file is refused: {exc}")
    except (CubeError, OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as exc:
        why = str(exc) if isinstance(exc, CubeError) else "it is broken"
        findings.stop(
            "RASTER_UNREADABLE", "file", f"the file cannot be read: {why}",
            remediation="Check the file and send it again, completely.",
        )  # fmt: skip


def _magic(source: Path) -> bytes:
    with source.open("rb") as file:
        return file.read(4)


@contextmanager
def _datasets(source: Path) -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield all datasets of a file by their names."""
    if _magic(source) in classic.MAGIC:
        yield iter(classic.variables_of(source).items())
        return
    with h5py.File(source, "r", locking=False) as file:
        yield _walk(file)


def _variables(datasets: Iterator[tuple[str, Any]]) -> Iterator[Variable]:
    for name, dataset in datasets:
        grid = grid_of(dataset)
        if grid is not None:
            yield Variable(name, dataset, grid)


def _walk(file: Any) -> Iterator[tuple[str, Any]]:
    """Yield every dataset by its path, having refused what leads out of the file.

    Raises:
        CubeForbidden: external links or storage, virtual datasets, filters that are not part of HDF5.
        CubeError: too many objects or too deep.
    """
    waiting, seen = [("", file, 0)], 0
    while waiting:
        prefix, group, depth = waiting.pop()
        for key in group:
            seen += 1
            if seen > MAX_OBJECTS or depth > MAX_DEPTH:
                raise CubeError(f"it has more than {MAX_OBJECTS} objects or groups deeper than {MAX_DEPTH}")
            link = group.get(key, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise CubeForbidden("it links to another file")
            if not isinstance(link, h5py.HardLink):
                continue
            found = group[key]
            name = f"{prefix}{key}"
            if isinstance(found, h5py.Group):
                waiting.append((f"{name}/", found, depth + 1))
            elif isinstance(found, h5py.Dataset):
                check_storage(found)
                yield name, found


def _choose(variables: list[Variable], wanted: str | None, findings: Findings) -> tuple[Variable, int]:
    if not variables:
        raise CubeError("it has no variable over two regular spatial dimensions")
    found = _named(variables, wanted)
    if found is not None:
        return found
    listed = "; ".join([name for variable in variables for name in variable.names()][:LISTED])
    if wanted is not None and all(variable.name != wanted for variable in variables):
        message = f"there is no variable {wanted[:40]!r}; found {listed}"
        findings.stop("PARAMETER_INVALID", "subdataset", message, value=wanted[:100])
    return findings.stop(
        "SUBDATASET_REQUIRED",
        "subdataset",
        f"the file has several rasters: {listed}",
        remediation="Name one of them in options.subdataset, up to the blank.",
    )


def _named(variables: list[Variable], wanted: str | None) -> tuple[Variable, int] | None:
    """Return variable and step that a name means; the only raster of a file needs none."""
    if wanted is None:
        return (variables[0], 0) if len(variables) == variables[0].steps == 1 else None
    for variable in variables:
        name, _, step = wanted.rpartition(":")
        if variable.steps == 1 and variable.name == wanted:
            return variable, 0
        if variable.name == name and step.isascii() and step.isdigit() and len(step) < 10:
            return (variable, int(step) - 1) if 1 <= int(step) <= variable.steps else None
    return None


def _check_size(variable: Variable, findings: Findings) -> None:
    height, width = variable.dataset.shape[-2:]
    decoded = height * width * variable.dataset.dtype.itemsize
    chunk = prod(variable.dataset.chunks or (1,)) * variable.dataset.dtype.itemsize
    if max(width, height) > LIMITS.side_pixels or decoded > LIMITS.decoded_bytes or chunk > LIMITS.block_bytes:
        findings.stop("RASTER_TOO_LARGE", "file", f"{variable.name} has {width} x {height} pixels, {decoded} bytes")


def _write(variable: Variable, step: int, crs: str | None, target: Path, on_window: OnWindow) -> None:
    """Copy a step; columns run along x whatever the order in the file."""
    dataset, grid = variable.dataset, variable.grid
    leading = np.unravel_index(step, dataset.shape[:-2]) if dataset.ndim > 2 else ()
    height, width = dataset.shape[-2:] if not grid.transposed else dataset.shape[:-3:-1]
    attributes, dtype = dataset.attrs, _stored(dataset)
    profile = {"driver": "GTiff", "width": width, "height": height, "count": 1, "dtype": dtype.name}
    layout = {"tiled": True, "blockxsize": BLOCK_SIZE, "blockysize": BLOCK_SIZE, "BIGTIFF": "IF_SAFER"}
    with rasterio.open(target, "w", crs=crs, transform=grid.transform, **profile, **layout) as dst:
        nodata = attributes.get("_FillValue", attributes.get("missing_value"))
        if nodata is not None:
            value = _meant(np.asarray(nodata).ravel()[:1], dtype)[0]
            if _fits(value, dtype):
                dst.nodata = value.item()
        dst.set_band_description(1, text_of(attributes.get("long_name")) or variable.name)
        if unit := text_of(attributes.get("units")):
            dst.set_band_unit(1, unit)
        dst.scales = (float(np.asarray(attributes.get("scale_factor", 1.0)).ravel()[0]),)
        dst.offsets = (float(np.asarray(attributes.get("add_offset", 0.0)).ravel()[0]),)
        if (moment := moment_of(dataset, leading)) is not None:
            dst.update_tags(TIFFTAG_DATETIME=f"{moment:%Y:%m:%d %H:%M:%S}")
        for window in row_windows(width, height, dtype.itemsize, BLOCK_SIZE):
            dst.write(_meant(_read(dataset, leading, grid, window), dtype).astype(dtype), 1, window=window)
            on_window(window.row_off + window.height, height)


def _stored(dataset: Any) -> np.dtype[Any]:
    """Return the type of the copy; NetCDF without unsigned types says `_Unsigned` of signed ones."""
    dtype = np.dtype("float32") if dataset.dtype == np.float16 else dataset.dtype.newbyteorder("=")
    unsigned = dtype.kind == "i" and text_of(dataset.attrs.get("_Unsigned")).lower() == "true"
    return np.dtype(f"u{dtype.itemsize}") if unsigned else np.dtype(dtype)


def _meant(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return signed numbers as the unsigned ones of the copy that their bits mean; all others as they are."""
    signed = dtype.kind == "u" and values.dtype.kind == "i" and values.dtype.itemsize == dtype.itemsize
    return values.astype(f"i{dtype.itemsize}").view(dtype) if signed else values


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a value may occur among the pixels; one that cannot marks none of them."""
    if dtype.kind == "f":
        return value.dtype.kind in "iuf"
    limits = np.iinfo(dtype)
    return value.dtype.kind in "iu" and limits.min <= value <= limits.max


def _read(dataset: Any, leading: tuple[Any, ...], grid: Grid, window: Window) -> Any:
    rows = slice(window.row_off, window.row_off + window.height)
    if grid.transposed:
        return dataset[(*leading, slice(None), rows)].T
    return dataset[(*leading, rows, slice(None))]
