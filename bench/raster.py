"""Shows what the raster handlers cost beside GDAL's COG driver with the same profile, in the same run.

Each step runs in a process of its own; CPU is its user and system time less that of a process that only imports, peak
memory its largest resident size. Statistics, which `raster.create_cog` also makes, are measured by themselves.

    python -m bench.raster [--megabytes 100 1000] [--kinds rgb elevation classes multiband moved] [--folder FOLDER]
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.transform import from_origin

from core.handler_models import RasterOptions
from core.handlers_catalog import CreateCogParams, RasterValidateParams, RegisterItemParams
from handlers.context import Checkpoint, Outcome, ProcessContext, TaskInfo
from handlers.raster import gdal
from handlers.raster.cog_facts import describe_cog
from handlers.raster.create_cog import create_cog
from handlers.raster.facts import RasterFacts, RasterType
from handlers.raster.profiles import profile_of
from handlers.raster.validate import validate
from handlers.stac.register_item import register_item

Json = dict[str, Any]
MIB: Final = 1 << 20
ROWS: Final = 512


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input."""

    dtype: str
    bands: int
    raster_type: RasterType
    profile: Json
    options: Json


KINDS: Final = {
    "rgb": Kind("uint8", 3, RasterType.RGB, {"photometric": "RGB"}, {}),
    "elevation": Kind("float32", 1, RasterType.ELEVATION, {"nodata": -9999.0}, {"raster_type": "elevation"}),
    "classes": Kind("uint8", 1, RasterType.CATEGORICAL, {}, {"raster_type": "categorical"}),
    "multiband": Kind("uint16", 8, RasterType.MULTISPECTRAL, {"interleave": "pixel"}, {"raster_type": "multispectral"}),
    "moved": Kind("uint8", 3, RasterType.RGB, {"photometric": "RGB"}, {"target_crs": "EPSG:3857"}),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took."""

    cpu: float
    wall: float
    peak_mib: float


def make_input(path: Path, kind: Kind, megabytes: int) -> int:
    """Write smooth pixels with some noise, and return their decoded bytes."""
    side = int((megabytes * 1e6 / (kind.bands * np.dtype(kind.dtype).itemsize)) ** 0.5) // ROWS * ROWS
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 0.5, 0.5)}
    shape = {"width": side, "height": side, "count": kind.bands, "dtype": kind.dtype}
    noise = np.random.default_rng(1).integers(0, 4, (kind.bands, ROWS, side))
    columns = np.arange(side) / side
    with rasterio.open(path, "w", driver="GTiff", BIGTIFF="IF_SAFER", **shape, **place, **kind.profile) as dst:
        for top in range(0, side, ROWS):
            rows = np.arange(top, top + ROWS)[:, None] / side
            smooth = (np.sin(rows * 9) + np.cos(columns * 7)) * 50 + 120
            pixels = smooth[None] + noise
            if kind.raster_type is RasterType.CATEGORICAL:
                pixels = pixels // 25 * 10 + 1
            dst.write(pixels.astype(kind.dtype), window=rasterio.windows.Window(0, top, side, ROWS))
    return int(side * side * kind.bands * np.dtype(kind.dtype).itemsize)


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


STEPS: Final[dict[str, Callable[[Path, Kind], None]]] = {
    "start": start_only,
    "driver": drive,
    "validate": check,
    "create_cog": convert,
    "statistics": measure,
    "publish": publish,
}


def _keep(path: Path, outcome: Outcome) -> None:
    assert isinstance(outcome.output, dict)
    path.write_text(json.dumps(outcome.output))


def cost_of(step: str, name: str, folder: Path) -> Cost:
    """Run one step in a process of its own."""
    began = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "bench.raster", "--step", step, name, str(folder)]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{step} of {name} ended with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - began, usage.ru_maxrss / 1024)


def runs(kinds: list[str], megabytes: list[int], parent: Path | None) -> Iterator[tuple[str, ...]]:
    """Yield a line of the table for each kind and size."""
    for size in megabytes:
        for name in kinds:
            with tempfile.TemporaryDirectory(dir=parent) as folder:
                yield line(name, size, Path(folder))


def line(name: str, megabytes: int, folder: Path) -> tuple[str, ...]:
    """Return one line: costs, ratios, and what was estimated."""
    decoded = make_input(folder / "in.tif", KINDS[name], megabytes)
    costs = {step: cost_of(step, name, folder) for step in STEPS}
    start = costs["start"].cpu
    cpu = {step: max(0.0, cost.cpu - start) for step, cost in costs.items()}
    estimate = json.loads((folder / "validated.json").read_text())["estimate"]
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
    )


COLUMNS: Final = (
    "input", "MB", "driver CPU s", "create CPU s", "ratio", "beside CPU s", "ratio", "driver wall s", "our wall s",
    "driver MiB", "peak MiB", "estimate MiB", "CPU s / estimate",
)  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", nargs="+", type=int, default=[100])
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step, name, folder = given.step
        STEPS[step](Path(folder), KINDS[name])
        return
    show((f"{os.getloadavg()[0]:.0f} is the load average; input", *COLUMNS[1:]))
    show(("---",) * len(COLUMNS))
    for cells in runs(given.kinds, given.megabytes, given.folder):
        show(cells)


def show(cells: tuple[str, ...]) -> None:
    """Print a line of a Markdown table as soon as it is known."""
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
