"""Real COGs of arrays that are known before they are written, and an oracle that does not use the code under test."""

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from rasterio.enums import Resampling
from rasterio.io import MemoryFile
from rasterio.transform import Affine, from_bounds
from rasterio.warp import reproject

EARTH_HALF = math.pi * 6378137.0
"""Half the width of the Web Mercator square, in metres."""
NODATA = -9999.0


def write_cog(path: Path, bands: NDArray[Any], crs: str, transform: Affine, nodata: float | None = None) -> None:
    """Write (bands, height, width) as a COG with GDAL's own driver."""
    count, height, width = bands.shape
    profile = {
        "driver": "GTiff", "count": count, "height": height, "width": width, "dtype": bands.dtype.name,
        "crs": crs, "transform": transform, "nodata": nodata,
    }  # fmt: skip
    with MemoryFile() as memory:
        with memory.open(**profile) as dst:
            dst.write(bands)
        with memory.open() as src:
            rasterio.shutil.copy(src, path, driver="COG", compress="DEFLATE", blocksize=256)


def elevation() -> NDArray[np.float32]:
    """Return a smooth plane of 0..1000 m, 600 x 800 pixels, with a hole of nodata in its middle."""
    rows, columns = np.mgrid[0:600, 0:800]
    plane = (columns + rows) / (599 + 799) * 1000
    plane[250:350, 300:500] = NODATA
    return plane.astype("float32")[np.newaxis]


ELEVATION_TRANSFORM = Affine(30.0, 0.0, 500_000.0, 0.0, -30.0, 5_600_000.0)
ELEVATION_CRS = "EPSG:32633"


def tile_of(longitude: float, latitude: float, z: int) -> tuple[int, int]:
    """Return (x, y) of the Web Mercator tile that holds a point; formula of the OSM slippy map."""
    x = (longitude + 180) / 360
    y = (1 - math.asinh(math.tan(math.radians(latitude))) / math.pi) / 2
    return int(x * 2**z), int(y * 2**z)


def warped_tile(bands: NDArray[Any], crs: str, transform: Affine, z: int, x: int, y: int) -> NDArray[Any]:
    """Return a tile's pixels (bands, 256, 256) by plain rasterio.warp, NODATA where there is nothing."""
    size = 2 * EARTH_HALF / 2**z
    west, north = -EARTH_HALF + x * size, EARTH_HALF - y * size
    out = np.full((bands.shape[0], 256, 256), NODATA, "float64")
    reproject(
        bands.astype("float64"), out, src_transform=transform, src_crs=crs, src_nodata=NODATA, dst_nodata=NODATA,
        dst_transform=from_bounds(west, north - size, west + size, north, 256, 256), dst_crs="EPSG:3857",
        resampling=Resampling.bilinear,
    )  # fmt: skip
    return out


def read_png(content: bytes) -> NDArray[np.uint8]:
    """Return an 8-bit PNG as (height, width, channels), decoded here from its bytes (RFC 2083)."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    position, data, header = 8, b"", b""
    while position < len(content):
        (length,) = struct.unpack(">I", content[position : position + 4])
        kind, body = content[position + 4 : position + 8], content[position + 8 : position + 8 + length]
        header, data = (body if kind == b"IHDR" else header), (data + body if kind == b"IDAT" else data)
        position += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    assert depth == 8
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    return _unfiltered(zlib.decompress(data), height, width, channels)


def _unfiltered(raw: bytes, height: int, width: int, channels: int) -> NDArray[np.uint8]:
    rows = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    image = np.zeros((height, width, channels), np.uint8)
    above = [0] * (width * channels)
    for number in range(height):
        above = _unfiltered_row(int(rows[number, 0]), rows[number, 1:].tolist(), above, channels)
        image[number] = np.array(above, np.uint8).reshape(width, channels)
    return image


def _unfiltered_row(kind: int, line: list[int], above: list[int], step: int) -> list[int]:
    for i in range(len(line)):
        left, up = (line[i - step] if i >= step else 0), above[i]
        corner = above[i - step] if i >= step else 0
        guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]
        line[i] = (line[i] + guess) & 255
    return line


def _paeth(left: int, up: int, corner: int) -> int:
    estimate = left + up - corner
    return min((left, up, corner), key=lambda value: abs(estimate - value))
