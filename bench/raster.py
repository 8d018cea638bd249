"""Shows what the raster handlers cost beside GDAL's COG driver with the same profile, in the same run.

Each step runs in a process of its own; CPU is its user and system time less that of a process that only imports, peak
memory its largest resident size. Statistics, which `raster.create_cog` also makes, are measured by themselves. With
`--tiles` the same raster is cut as well: all its tiles one after the other in one process, then the overview. With
`--times` all steps take turns so often and the median counts: the kernel's share of a large write varies threefold.

    python -m bench.raster [--megabytes 100 1000] [--kinds rgb elevation ...] [--tiles] [--times 3] [--folder FOLDER]
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.transform import from_origin

from core.handler_models import RasterOptions
from core.handlers_catalog import CreateCogParams, RasterValidateParams
from core.stac_params import RegisterItemParams
from core.tile_params import ProcessTileParams, TilingSchemeParams
from handlers.context import Checkpoint, Outcome, ProcessContext, TaskInfo
from handlers.raster import gdal
from handlers.raster.cog_facts import describe_cog
from handlers.raster.create_cog import create_cog
from handlers.raster.facts import RasterFacts, RasterType
from handlers.raster.profiles import profile_of
from handlers.raster.tiling import process_tile, tiling_scheme
from handlers.raster.validate import validate
from handlers.stac.register_item import register_item

Json = dict[str, Any]
MIB: Final = 1 << 20
ROWS: Final = 512
HOLE: Final = 195
"""Smooth values above it lie where alpha or a mask says that there is nothing."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input."""

    dtype: str
    bands: int
    raster_type: RasterType
    profile: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    masked: bool = False
    """Whether an internal mask says that a twentieth of it holds nothing."""
    palette: bool = False


KINDS: Final = {
    "rgb": Kind("uint8", 3, RasterType.RGB, {"photometric": "RGB"}),
    "rgba": Kind("uint8", 4, RasterType.RGBA, {"photometric": "RGB", "alpha": "YES"}),
    "masked": Kind("uint8", 3, RasterType.RGB, {"photometric": "RGB"}, masked=True),
    "elevation": Kind("float32", 1, RasterType.ELEVATION, {"nodata": -9999.0}, {"raster_type": "elevation"}),
    "heights": Kind("int16", 1, RasterType.ELEVATION, {"nodata": -32768}, {"raster_type": "elevation"}),
    "classes": Kind("uint8", 1, RasterType.CATEGORICAL, {}, {"raster_type": "categorical"}),
    "palette": Kind("uint8", 1, RasterType.CATEGORICAL, {"photometric": "PALETTE", "nodata": 0}, palette=True),
    "multiband": Kind("uint16", 8, RasterType.MULTISPECTRAL, {"interleave": "pixel"}, {"raster_type": "multispectral"}),
    "moved": Kind("uint8", 3, RasterType.RGB, {"photometric": "RGB"}, {"target_crs": "EPSG:3857"}),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took."""

    cpu: float
    wall: float
    peak_mib: float


def make_input(path: Path, kind: Kind, megabytes: int) -> None:
    """Write smooth pixels with some noise."""
    side = int((megabytes * 1e6 / (kind.bands * np.dtype(kind.dtype).itemsize)) ** 0.5) // ROWS * ROWS
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 0.5, 0.5)}
    shape = {"width": side, "height": side, "count": kind.bands, "dtype": kind.dtype}
    noise = np.random.default_rng(1).integers(0, 4, (kind.bands, ROWS, side))
    columns = np.arange(side) / side
    layout = {"driver": "GTiff", "BIGTIFF": "IF_SAFER", **shape, **place, **kind.profile}
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES"), rasterio.open(path, "w", **layout) as dst:
        if kind.palette:
            dst.write_colormap(1, {value: (value, 255 - value, 80, 255) for value in range(256)})
        for top in range(0, side, ROWS):
            window = rasterio.windows.Window(0, top, side, ROWS)
            rows = np.arange(top, top + ROWS)[:, None] / side
            smooth = (np.sin(rows * 9) + np.cos(columns * 7)) * 50 + 120
            hole = smooth > HOLE
            pixels = smooth[None] + noise
            if kind.raster_type is RasterType.CATEGORICAL:
                pixels = pixels // 25 * 10 + 1
            if kind.raster_type is RasterType.RGBA:
                pixels[3] = np.where(hole, 0, 255)
            dst.write(pixels.astype(kind.dtype), window=window)
            if kind.masked:
                dst.write_mask(np.where(hole, 0, 255).astype("uint8"), window=window)


def write_input(folder: Path, kind: Kind) -> None:
    """Write the input of the size that the folder names."""
    make_input(folder / "in.tif", kind, int((folder / "megabytes").read_text()))


def context(folder: Path) -> ProcessContext:
    """Return a context over a folder."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    return ProcessContext(
        TaskInfo("job_node_1", "job", "node", 1),
        folder,
        checkpoint=Checkpoint(None, lambda _: None),
        report=lambda _: None,
        is_cancelled=lambda: False,
        logger=logging.LoggerAdapter(logging.getLogger("bench")),
    )


def start_only(_: Path, __: Kind) -> None:
    """Import, and do nothing."""


def drive(folder: Path, kind: Kind) -> None:
    """Run GDAL's driver alone, resampling as it does by itself where the kind is moved."""
    options = profile_of(kind.raster_type, None).creation_options(gdal.cores())
    if "target_crs" in kind.options:
        options |= {"TARGET_SRS": kind.options["target_crs"], "WARP_RESAMPLING": "CUBIC"}
    cache = gdal.WARP_CACHE_BYTES if "target_crs" in kind.options else gdal.COG_CACHE_BYTES
    with gdal.environment(cache), gdal.open_geotiff(folder / "in.tif") as src:
        rasterio.shutil.copy(src, folder / "driver.tif", driver="COG", **options)


def check(folder: Path, kind: Kind) -> None:
    """Run raster.validate."""
    params = RasterValidateParams(source=str(folder / "in.tif"), options=RasterOptions(**kind.options))
    _keep(folder / "validated.json", validate(context(folder / "v"), params))


def convert(folder: Path, kind: Kind) -> None:
    """Run raster.create_cog."""
    raster = json.loads((folder / "validated.json").read_text())["raster"]
    params = CreateCogParams(
        source=str(folder / "in.tif"), raster=raster, options=RasterOptions(**kind.options), output_prefix="silver/x"
    )
    _keep(folder / "made.json", create_cog(context(folder / "c"), params))


def measure(folder: Path, _: Kind) -> None:
    """Make the statistics of the COG once more."""
    facts = RasterFacts.model_validate(json.loads((folder / "validated.json").read_text())["raster"])
    with gdal.environment():
        describe_cog(context(folder / "s"), folder / "c/out/cog.tif", facts, "deflate")


def publish(folder: Path, _: Kind) -> None:
    """Run raster.stac_register_item."""
    made = json.loads((folder / "made.json").read_text())
    params = RegisterItemParams(
        cog=str(folder / "c/out/cog.tif"),
        cog_facts={**made, "blob_path": "silver/a/0/r1/t/cog.tif"},
        collection_id="bench",
        item_id="a-v0",
        title="Bench",
        href="http://127.0.0.1/download/a?version=0",
        version_label="v1",
    )
    register_item(context(folder / "p"), params)


def cut(folder: Path, kind: Kind) -> None:
    """Run raster.generate_tiling_scheme, and raster.process_tile for each tile."""
    raster = json.loads((folder / "validated.json").read_text())["raster"]
    common = {"source": str(folder / "in.tif"), "raster": raster, "options": RasterOptions(**kind.options)}
    scheme = tiling_scheme(context(folder / "g"), TilingSchemeParams(**common)).output
    assert isinstance(scheme, dict)
    results = []
    for tile in scheme["tile_list"]:
        ctx = context(folder / "t" / f"{tile['row']}-{tile['column']}")
        made = process_tile(ctx, ProcessTileParams(**common, grid=scheme["grid"], tile=tile, output_prefix="silver/x"))
        assert isinstance(made.output, dict)
        results.append({**made.output, **{name: str(ctx.out_dir / file) for name, file in made.files.items()}})
    (folder / "tiles.json").write_text(json.dumps({"raster": raster, "grid": scheme["grid"], "tiles": results}))


def put_together(folder: Path, kind: Kind) -> None:
    """Run raster.stac_register_item on the tiles."""
    kept = json.loads((folder / "tiles.json").read_text())
    about: Json = {"collection_id": "bench", "item_id": "a-v0", "title": "Bench", "version_label": "v1"}
    options = RasterOptions(**kind.options)
    params = RegisterItemParams(**kept, **about, href="http://127.0.0.1/a", output_prefix="silver/x", options=options)
    register_item(context(folder / "o"), params)


STEPS: Final[dict[str, Callable[[Path, Kind], None]]] = {
    "start": start_only,
    "driver": drive,
    "validate": check,
    "create_cog": convert,
    "statistics": measure,
    "publish": publish,
}
TILED_STEPS: Final[dict[str, Callable[[Path, Kind], None]]] = {"cut": cut, "put_together": put_together}
ALL_STEPS: Final = {"input": write_input, **STEPS, **TILED_STEPS}


def _keep(path: Path, outcome: Outcome) -> None:
    assert isinstance(outcome.output, dict)
    path.write_text(json.dumps(outcome.output))


def cost_of(step: str, name: str, folder: Path) -> Cost:
    """Run one step in a process of its own; this one stays small, because a child's peak begins with its parent's."""
    began = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "bench.raster", "--step", step, name, str(folder)]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{step} of {name} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - began, usage.ru_maxrss / 1024)


def runs(given: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yield a line of the table for each kind and size."""
    for size in given.megabytes:
        for name in given.kinds:
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                yield line(name, size, Path(folder), tiles=given.tiles, times=given.times)


def median_costs(name: str, folder: Path, times: int) -> dict[str, Cost]:
    """Return what each step costs when they take turns."""
    rounds = [{step: cost_of(step, name, folder) for step in STEPS} for _ in range(times)]
    return {step: sorted((one[step] for one in rounds), key=lambda cost: cost.cpu)[times // 2] for step in STEPS}


def line(name: str, megabytes: int, folder: Path, *, tiles: bool, times: int) -> tuple[str, ...]:
    """Return one line: costs, ratios, and what was estimated."""
    (folder / "megabytes").write_text(str(megabytes))
    cost_of("input", name, folder)
    costs = median_costs(name, folder, times)
    start = costs["start"].cpu
    cpu = {step: max(0.0, cost.cpu - start) for step, cost in costs.items()}
    found = json.loads((folder / "validated.json").read_text())
    estimate, facts = found["estimate"], found["raster"]
    decoded = facts["width"] * facts["height"] * facts["count"] * np.dtype(facts["dtype"]).itemsize
    peak = max(costs["validate"].peak_mib, costs["create_cog"].peak_mib)
    create = cpu["create_cog"] - cpu["statistics"]
    beside = cpu["validate"] + cpu["statistics"] + cpu["publish"]
    seconds = sum(cost.cpu for step, cost in costs.items() if step in ("validate", "create_cog"))
    return (
        name,
        f"{decoded / 1e6:.0f}",
        f"{cpu['driver']:.1f}",
        f"{create:.1f}",
        f"{create / cpu['driver']:.2f}",
        f"{beside:.1f}",
        f"{beside / cpu['driver']:.2f}",
        f"{costs['driver'].wall:.0f}",
        f"{costs['validate'].wall + costs['create_cog'].wall:.0f}",
        f"{costs['driver'].peak_mib:.0f}",
        f"{peak:.0f}",
        f"{estimate['memory_bytes'] / MIB:.0f}",
        f"{seconds:.1f} / {estimate['seconds']:.1f}",
        *(tiled_cells(name, folder, start, cpu["create_cog"]) if tiles else ()),
    )


def tiled_cells(name: str, folder: Path, start: float, direct: float) -> tuple[str, ...]:
    """Return what the same raster costs in tiles, beside `direct` seconds for one COG with its statistics."""
    (folder / "driver.tif").unlink()
    costs = [cost_of(step, name, folder) for step in TILED_STEPS]
    seconds = sum(max(0.0, cost.cpu - start) for cost in costs)
    return f"{seconds:.1f}", f"{seconds / direct:.2f}", f"{max(cost.peak_mib for cost in costs):.0f}"


COLUMNS: Final = (
    "input", "MB", "driver CPU s", "create CPU s", "ratio", "beside CPU s", "ratio", "driver wall s", "our wall s",
    "driver MiB", "peak MiB", "estimate MiB", "CPU s / estimate",
)  # fmt: skip
TILED_COLUMNS: Final = ("tiled CPU s", "of direct", "tiled MiB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", nargs="+", type=int, default=[100])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step, name, folder = given.step
        ALL_STEPS[step](Path(folder), KINDS[name])
        return
    columns = (*COLUMNS, *TILED_COLUMNS) if given.tiles else COLUMNS
    show((f"{os.getloadavg()[0]:.0f} is the load average; input", *columns[1:]))
    show(("---",) * len(columns))
    for cells in runs(given):
        show(cells)


def show(cells: tuple[str, ...]) -> None:
    """Print a line of a Markdown table as soon as it is known."""
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
