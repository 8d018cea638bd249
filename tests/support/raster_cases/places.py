"""Where test rasters lie, and what lies there in degrees."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyproj import CRS, Transformer
from rasterio.transform import Affine, from_origin

from tests.support.raster_cases.case import Array
from tests.support.raster_path import pattern

EDGE_POINTS: Final = 40

PLACES: Final[dict[str, tuple[str, Affine]]] = {
    "utm33": ("EPSG:32633", from_origin(500000, 4649776, 10, 10)),
    "utm19s": ("EPSG:32719", from_origin(402000, 6299000, 0.5, 0.5)),
    "laea": ("EPSG:3035", from_origin(4321000, 3210000, 25, 25)),
    "mercator": ("EPSG:3857", from_origin(-8238000, 4971000, 4.777, 4.777)),
    "degrees": ("EPSG:4326", from_origin(12.0, 45.0, 0.001, 0.001)),
    "nad83feet": ("EPSG:2263", from_origin(980000, 200000, 3, 3)),
}
"""Name -> CRS and transform."""


@dataclass(frozen=True, slots=True)
class Like:
    """One input of a kind: its pixels' type, its size and its place."""

    folder: Path
    dtype: str
    height: int
    width: int
    place: str = "utm33"

    @property
    def crs(self) -> str:
        """CRS of the place."""
        return PLACES[self.place][0]

    @property
    def transform(self) -> Affine:
        """Transform of the place."""
        return PLACES[self.place][1]

    @property
    def file(self) -> Path:
        """Where the input is written."""
        return self.folder / "input.tif"

    def pixels(self, low: int = 0, high: int = 250, seed: int = 0) -> Array:
        """Return one band of a pattern without symmetry, (height, width)."""
        return pattern(self.height, self.width, self.dtype, low, high, seed)

    def bands(self, count: int, low: int = 0, high: int = 250) -> Array:
        """Return (count, height, width), each band another pattern."""
        return np.stack([self.pixels(low, high, seed) for seed in range(count)])

    def patches(self, codes: list[int], size: int) -> Array:
        """Return class codes in small patches: the average of any 2 x 2 pixels is a code that is not in the list."""
        rows, columns = np.mgrid[0 : self.height, 0 : self.width].astype(np.int64)
        places = (rows // size) * 5 + (columns // size) * 3 + (rows // 3) * (columns // 5)
        return np.asarray(codes, self.dtype)[places % len(codes)]

    def bbox(self, transform: Affine | None = None) -> list[float]:
        """Return west, south, east, north in degrees, by points along all four edges."""
        return bbox_of(transform or self.transform, self.height, self.width, self.crs)


def bbox_of(transform: Affine, height: int, width: int, crs: Any) -> list[float]:
    """Return the envelope in degrees of the four edges of a grid; it must not cross 180 degrees."""
    share = np.linspace(0, 1, EDGE_POINTS)
    columns = np.concatenate([share * width, share * width, share * 0, share * 0 + width])
    rows = np.concatenate([share * 0, share * 0 + height, share * height, share * height])
    a, b, c, d, e, f = transform[:6]
    to_degrees = Transformer.from_crs(CRS.from_user_input(crs), "EPSG:4326", always_xy=True)
    lons, lats = to_degrees.transform(a * columns + b * rows + c, d * columns + e * rows + f)
    return [round(float(v), 6) for v in (lons.min(), lats.min(), lons.max(), lats.max())]
