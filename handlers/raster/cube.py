"""Variables of HDF5 and NetCDF files: one, and one step of it, becomes a plain GeoTIFF that the rules then judge.

GDAL never opens such a file: it is walked here first, and what could read another file or run a filter from elsewhere
is refused. Fields of GRIB files are chosen alike (`handlers.raster.grib`). Conventions: https://cfconventions.org
(1.11), dimension scales as HDF5 and NetCDF-4 have them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import rasterio
from pyproj import CRS
from rasterio.io import DatasetWriter
from rasterio.windows import Window

from handlers.raster import classic, grib
from handlers.raster import crs as crs_rules
from handlers.raster.cube_attributes import (
    CubeContradicts,
    CubeError,
    CubeForbidden,
    check_storage,
    text_of,
)
from handlers.raster.cube_crs import placed
from handlers.raster.cube_grid import Grid, grid_of, scale_of
from handlers.raster.cube_time import moment_at, time_of
from handlers.raster.cube_values import Meaning, meaning_of
from handlers.raster.findings import Findings
from handlers.raster.limits import LIMITS
from handlers.raster.profiles import BLOCK_SIZE
from handlers.raster.rewrite import OnWindow
from handlers.raster.unpacked import Unpacked
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
    def leading(self) -> list[int]:
        """Which dimensions are not spatial."""
        return [place for place in range(self.dataset.ndim) if place not in (self.grid.x.place, self.grid.y.place)]

    @property
    def lengths(self) -> list[int]:
        """Lengths of the leading dimensions."""
        return [self.dataset.shape[place] for place in self.leading]

    @property
    def steps(self) -> int:
        """How many rasters there are of it."""
        return prod(self.lengths)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.dataset.shape[self.grid.y.place], self.dataset.shape[self.grid.x.place]

    def names(self) -> list[str]:
        """Return how each of its steps, the first so many, is chosen, and for which coordinates it is."""
        if self.steps == 1:
            return [self.name]
        scales = [scale_of(self.dataset, place) for place in self.leading]
        steps = zip(range(LISTED), product(*map(range, self.lengths)), strict=False)
        return [f"{self.name}:{number + 1} ({', '.join(map(_label, scales, indices))})" for number, indices in steps]

    def coordinates(self, step: int) -> list[tuple[Any, int]]:
        """Return the leading coordinates of a step."""
        indices = np.unravel_index(step, self.lengths) if self.leading else ()
        found = ((scale_of(self.dataset, place), int(at)) for place, at in zip(self.leading, indices, strict=True))
        return [(scale, at) for scale, at in found if scale is not None]


def _label(scale: Any | None, index: int) -> str:
    if scale is None:
        return str(index + 1)
    moment = moment_at(scale, index)
    return moment.isoformat() if moment else f"{scale[index].item():g}"


def unpack(source: Path, wanted: str | None, target: Path, findings: Findings, on_window: OnWindow) -> Unpacked:
    """Write the chosen variable, and the chosen step of it, as a plain GeoTIFF.

    Raises:
        Rejected: FORMAT_NOT_ALLOWED, RASTER_UNREADABLE, SUBDATASET_REQUIRED, PARAMETER_INVALID, RASTER_TOO_LARGE,
            CRS_CONFLICT, CRS_NOT_GEOREFERENCED.
    """
    try:
        if _magic(source) == grib.MAGIC:
            return grib.unpack_grib(source, wanted, target, findings, on_window)
        with _datasets(source) as datasets:
            variables = list(_variables(datasets))
            variable, step = _choose(variables, wanted, findings)
            _check_size(variable, findings)
            return _write(variable, step, target, findings, on_window)
    except CubeForbidden as exc:
        findings.stop("FORMAT_NOT_ALLOWED", "format", f"the file is refused: {exc}")
    except CubeContradicts as exc:
        findings.stop(
            "CRS_CONFLICT", "crs", f"the file contradicts itself: {exc}",
            remediation="Mend the units of the coordinates, or the grid mapping.",
        )  # fmt: skip
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
    height, width = variable.size
    decoded = height * width * variable.dataset.dtype.itemsize
    chunk = prod(variable.dataset.chunks or (1,)) * variable.dataset.dtype.itemsize
    if max(width, height) > LIMITS.side_pixels or decoded > LIMITS.decoded_bytes or chunk > LIMITS.block_bytes:
        findings.stop("RASTER_TOO_LARGE", "file", f"{variable.name} has {width} x {height} pixels, {decoded} bytes")


def _write(variable: Variable, step: int, target: Path, findings: Findings, on_window: OnWindow) -> Unpacked:
    """Copy a step; columns run along x whatever the order in the file."""
    height, width = variable.size
    attributes, meaning = variable.dataset.attrs, meaning_of(variable.dataset)
    transform, crs, by_convention = placed(variable.dataset, variable.grid)
    moment, unread_time = time_of(variable.dataset, variable.coordinates(step))
    profile = {"driver": "GTiff", "width": width, "height": height, "count": 1, "dtype": meaning.dtype.name}
    layout = {"tiled": True, "blockxsize": BLOCK_SIZE, "blockysize": BLOCK_SIZE, "BIGTIFF": "IF_SAFER"}
    with rasterio.open(target, "w", crs=crs, transform=transform, **profile, **layout) as dst:
        dst.set_band_description(1, text_of(attributes.get("long_name")) or variable.name)
        if unit := text_of(attributes.get("units")):
            dst.set_band_unit(1, unit)
        dst.scales, dst.offsets = (meaning.scale,), (meaning.offset,)
        if moment is not None:
            dst.update_tags(TIFFTAG_DATETIME=f"{moment:%Y:%m:%d %H:%M:%S}")
        unified = _copy(variable, step, meaning, dst, on_window)
        if meaning.nodata is not None and (unified or not meaning.stand_in):
            dst.nodata = meaning.nodata.item()
    _check_crs(target, crs, findings)
    chosen = variable.name if variable.steps == 1 else f"{variable.name}:{step + 1}"
    return Unpacked(chosen, by_convention, unified, meaning.dropped, unread_time)


def _copy(variable: Variable, step: int, meaning: Meaning, dst: DatasetWriter, on_window: OnWindow) -> int:
    """Write all pixels and return how many took the nodata value."""
    unified = 0
    for window in row_windows(dst.width, dst.height, meaning.dtype.itemsize, BLOCK_SIZE):
        pixels, strange = meaning.told(_read(variable, step, window))
        unified += strange
        dst.write(pixels, 1, window=window)
        on_window(window.row_off + window.height, dst.height)
    return unified


def _read(variable: Variable, step: int, window: Window) -> Any:
    places: list[Any] = [slice(None)] * variable.dataset.ndim
    places[variable.grid.y.place] = slice(window.row_off, window.row_off + window.height)
    if variable.leading:
        for place, at in zip(variable.leading, np.unravel_index(step, variable.lengths), strict=True):
            places[place] = int(at)
    found = variable.dataset[tuple(places)]
    return found.T if variable.grid.transposed else found


def _check_crs(target: Path, wkt: str | None, findings: Findings) -> None:
    """Refuse a CRS that a GeoTIFF cannot hold, which would come out as another one or as none."""
    if wkt is None:
        return
    wanted = CRS.from_wkt(wkt)
    with rasterio.open(target) as src:
        held = crs_rules.from_rasterio(src.crs)
    if held is None or (wanted.is_derived and wanted.is_geographic) or held.type_name != wanted.type_name:
        findings.stop(
            "CRS_NOT_GEOREFERENCED", "crs",
            f"the CRS of the grid mapping, a {wanted.type_name}, is none that a GeoTIFF can hold",
            remediation="Resample the variable into a geographic or projected CRS and send that.",
        )  # fmt: skip
