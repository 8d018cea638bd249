"""GRIB messages of arrays that are known before they are written."""

from typing import Any

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
