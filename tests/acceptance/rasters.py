"""Rasters whose pixels are known before they are written."""

import warnings

import numpy as np
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning
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


def png(body: bytes) -> NDArray[np.generic]:
    """Return the pixels of a picture, (bands, height, width)."""
    silence = warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning)
    with silence, MemoryFile(body) as memory, memory.open() as picture:
        pixels: NDArray[np.generic] = picture.read()
        return pixels
