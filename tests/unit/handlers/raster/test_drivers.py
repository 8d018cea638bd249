"""A process that opens uploads does not know the formats that point at other files."""

import subprocess
import sys

from handlers.raster.drivers import UNUSED_DRIVERS

SCRIPT = """
import rasterio
with rasterio.Env() as env:
    names = set(env.drivers())
wanted = "VRT MRF WMS HTTP GTI STACIT HDF5 netCDF Zarr GTiff COG".split()
print(" ".join(sorted(names.intersection(wanted))))
"""


def test_only_what_is_needed_is_registered() -> None:
    environment = {"GDAL_SKIP": UNUSED_DRIVERS}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["COG", "GTiff"]


def test_every_skipped_driver_is_one_that_gdal_has() -> None:
    environment = {"GDAL_SKIP": UNUSED_DRIVERS}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "", "GDAL warns of an unknown name at every task"
