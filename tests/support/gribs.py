"""GRIB messages of arrays that are known before they are written."""

from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from rasterio.io import MemoryFile
from rasterio.transform import from_origin

EUROPE = from_origin(5, 50, 0.1, 0.1)


def field(values: NDArray[Any], transform: Any = EUROPE) -> bytes:
    """Return a message of edition 2: a temperature in kelvin."""
    height, width = values.shape
    profile = {"driver": "GTiff", "width": width, "height": height, "count": 1, "dtype": "float64"}
    with (
        rasterio.Env(GDAL_PAM_ENABLED="NO"),
        MemoryFile() as memory,
        MemoryFile(ext=".grib2") as packed,
    ):
        with memory.open(**profile, crs="EPSG:4326", transform=transform) as dst:
            dst.write(values, 1)
        with memory.open() as src:
            rasterio.shutil.copy(
                src, packed.name, driver="GRIB", DATA_ENCODING="SIMPLE_PACKING", INPUT_UNIT="K",
                DISCIPLINE="0", PDS_PDTN="0", PDS_TEMPLATE_ASSEMBLED_VALUES="0 0 2 255 255 0 0 1 6 1 0 0 255 0 0",
                IDS="CENTER=98 SUBCENTER=0 MASTER_TABLE=4 LOCAL_TABLE=0 SIGNF_REF_TIME=1 "
                "REF_TIME=2024-02-29T12:00:00Z PROD_STATUS=0 TYPE=1",
            )  # fmt: skip
        return packed.read()


def with_bitmap(values: NDArray[Any], valid: NDArray[Any]) -> bytes:
    """Return a message of edition 2: whole numbers from 0 to 65,535, without those that are not valid."""
    message, at = field(values.astype("float64")), 16
    values, valid = values[::-1], valid[::-1]  # the grid that GDAL writes begins in the south
    while message[at + 4] != 5:
        at += int.from_bytes(message[at : at + 4], "big")

    def section(number: int, body: bytes) -> bytes:
        return (5 + len(body)).to_bytes(4, "big") + bytes([number]) + body

    packed = int(valid.sum()).to_bytes(4, "big") + bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0])
    bits = np.packbits(valid.ravel()).tobytes()
    body = message[16:at] + section(5, packed) + section(6, b"\0" + bits)
    body += section(7, values[valid].astype(">u2").tobytes())
    return message[:8] + (20 + len(body)).to_bytes(8, "big") + body + b"7777"


def first_edition(values: NDArray[Any], *, kind: int = 0, scanning: int = 0, packing: int = 0, unit: int = 1,
                  ahead: int = 6, century: int = 21, own_grid: bool = True) -> bytes:  # fmt: skip
    """Return a message of edition 1: whole numbers from 0 to 65,535, in Europe, of 2024-02-29 12:00."""
    height, width = values.shape

    def degrees(value: float) -> bytes:
        return round(value * 1000).to_bytes(3, "big")

    product = bytes([2, 98, 0, 255, 128 * own_grid, 11, 1, 0, 0, 24, 2, 29, 12, 0, unit, ahead, 0, 0, 0, 0, 0, century])
    product = b"\0\0\x1c" + product + bytes(3)
    last = degrees(50 - 0.05 - 0.1 * (height - 1)), degrees(5.05 + 0.1 * (width - 1))
    sides = width.to_bytes(2, "big") + height.to_bytes(2, "big")
    grid = b"\0\0\x20\0\xff" + bytes([kind]) + sides + degrees(49.95) + degrees(5.05) + b"\x80" + b"".join(last)
    grid += (100).to_bytes(2, "big") * 2 + bytes([scanning]) + bytes(4)
    pixels = values.astype(">u2").tobytes()
    data = (11 + len(pixels)).to_bytes(3, "big") + bytes([packing, 0, 0, 0, 0, 0, 0, 16]) + pixels
    total = 8 + len(product) + len(grid) + len(data) + 4
    return b"GRIB" + total.to_bytes(3, "big") + b"\1" + product + grid + data + b"7777"
