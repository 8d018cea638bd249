"""Rasters whose pixels are known before they are written."""

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.io import MemoryFile
from rasterio.transform import Affine, from_origin


def geotiff(pixels: NDArray[np.generic], *, crs: str | None = "EPSG:4326", transform: Affine | None = None) -> bytes:
    """Return an uncompressed GeoTIFF of pixels (bands, height, width)."""
    bands, height, width = pixels.shape
    profile = {"driver": "GTiff", "count": bands, "height": height, "width": width, "dtype": pixels.dtype.name}
    where = transform or from_origin(10.0, 50.0, 0.001, 0.001)
    with MemoryFile() as memory:
        with memory.open(**profile, crs=crs, transform=where) as dataset:
            dataset.write(pixels)
        return bytes(memory.read())


def terrain(height: int = 300, width: int = 400, seed: int = 1) -> NDArray[np.int16]:
    """Return smooth hills, (1, height, width) int16 metres, with a little noise."""
    y, x = np.mgrid[0:height, 0:width]
    hills = 500 + 300 * np.sin(x / 37) * np.cos(y / 23)
    noise = np.random.default_rng(seed).integers(-5, 5, (height, width))
    return (hills + noise).astype("int16")[np.newaxis]


def noise(size: int, seed: int = 1) -> NDArray[np.uint16]:
    """Return noise, (1, size, size) uint16, which is slow to compress."""
    return np.random.default_rng(seed).integers(0, 60000, (1, size, size), dtype="uint16")


def read(path: str) -> tuple[NDArray[np.generic], Affine, str]:
    """Return pixels, transform and CRS as plain rasterio reads them."""
    with rasterio.open(path) as dataset:
        return dataset.read(), dataset.transform, str(dataset.crs)
