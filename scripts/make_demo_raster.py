"""Writes matplotlib's sample elevation grid (Jacksboro fault, Tennessee, from NASA's SRTM) as a plain GeoTIFF.

The grid, its bounds and its steps are those of the package's own file; nothing is invented. EPSG:4326, one int16 band
X
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rasterio
from matplotlib import cbook
from numpy.typing import NDArray
from rasterio.transform import from_bounds

SAMPLE = "jacksboro_fault_dem.npz"


@dataclass(frozen=True, slots=True)
class Grid:
    """An elevation grid: metres, north-up, (height, width); bounds are west, south, east, north in degrees."""

    elevation: NDArray[np.int16]
    bounds: tuple[float, float, float, float]


def load_grid() -> Grid:
    """Return the sample grid with its real bounds; its `ymin` is the first row, the northern edge."""
    with np.load(str(cbook.get_sample_data(SAMPLE, asfileobj=False))) as sample:
        west, north, east, south = (float(sample[name]) for name in ("xmin", "ymin", "xmax", "ymax"))
        return Grid(np.asarray(sample["elevation"], dtype="int16"), (west, south, east, north))


def write_raster(grid: Grid, destination: Path, level: int = 0) -> None:
    """Write a grid as an untiled, uncompressed GeoTIFF, as a partner would deliver it."""
    height, width = grid.elevation.shape
    profile = {"driver": "GTiff", "height": height, "width": width, "count": 1, "dtype": "int16", "crs": "EPSG:4326"}
    destination.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(destination, "w", **profile, transform=from_bounds(*grid.bounds, width, height)) as dataset:
        dataset.write(grid.elevation + np.int16(level), 1)
        dataset.set_band_description(1, "elevation")
        dataset.units = ("metre",)


def main() -> None:
    """Write the raster that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--version", type=int, default=1)
    arguments = parser.parse_args()
    write_raster(load_grid(), arguments.destination, arguments.version - 1)


if __name__ == "__main__":
    main()
