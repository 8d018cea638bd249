"""HDF5 and NetCDF-4: one variable and step by choice, as the CF conventions say; nothing outside is read."""

from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
from pyproj import CRS

from tests.support.cubes import LATITUDES, VALUES, axis, variable, write
from tests.support.raster_path import RasterPath, pixels


def test_a_variable_becomes_a_cog_with_everything_it_says(raster: RasterPath) -> None:
    says = {
        "_FillValue": np.int16(-32768),
        "scale_factor": 0.01,
        "add_offset": 273.15,
        "units": "K",
        "long_name": "air",
    }
    values = VALUES.copy()
    values[0, 0] = -32768
    made = raster.make(write(raster.folder / "a.nc", values=values, **says))
    with rasterio.open(made.path) as cog:
        assert np.array_equal(cog.read(1), values)
        assert (cog.nodata, cog.scales, cog.offsets, cog.units) == (-32768, (0.01,), (273.15,), ("K",))
        assert (cog.descriptions, cog.dtypes, cog.crs.to_epsg()) == (("air",), ("int16",), 4326)
        assert tuple(cog.bounds) == pytest.approx((5.0, 45.0, 13.0, 50.0))
    assert made.facts["member"] == "t2m"
    assert {"SUBDATASET_USED", "CRS_BY_CONVENTION"} <= set(made.codes)


def test_latitudes_and_longitudes_without_a_mapping_are_wgs_84(raster: RasterPath) -> None:
    assert "CRS_BY_CONVENTION" in raster.codes(write(raster.folder / "a.nc"))


def test_south_up_and_longitudes_to_360_come_out_in_order(raster: RasterPath) -> None:
    longitudes = np.arange(0.0, 360.0, 4.0)
    values = np.add.outer(np.arange(45), np.arange(90)).astype(np.float32)
    source = write(raster.folder / "a.nc", latitudes=np.arange(-88.0, 90.0, 4.0), longitudes=longitudes, values=values)
    made = raster.make(source)
    with rasterio.open(made.path) as cog:
        assert tuple(cog.bounds) == pytest.approx((-178.0, -90.0, 182.0, 90.0))
        for column in (0, 44, 45, 89):
            for row in (0, 30):
                longitude = (longitudes[column] + 180) % 360 - 180
                place = (longitude if longitude > cog.bounds.left else longitude + 360, -88.0 + 4.0 * row)
                assert next(cog.sample([place])).item() == values[row, column]
    assert {"FLIPPED_TO_NORTH_UP", "LONGITUDES_SHIFTED"} <= set(made.codes)


def test_a_grid_mapping_gives_the_crs_and_x_may_come_first(raster: RasterPath) -> None:
    path = raster.folder / "a.nc"
    with h5py.File(path, "w") as file:
        axis(file, "easting", np.arange(500.005, 501.0, 0.01), "km", standard_name="projection_x_coordinate")
        axis(file, "northing", np.arange(4999.995, 4999.5, -0.01), "km", standard_name="projection_y_coordinate")
        width, height = file["easting"].size, file["northing"].size
        values = np.arange(width * height, dtype=np.float32).reshape(width, height)
        variable(file, "dem", values, ["easting", "northing"], grid_mapping="crs")
        file.create_dataset("crs", data=0).attrs["crs_wkt"] = CRS.from_epsg(32633).to_wkt()
    made = raster.make(path)
    assert made.facts["crs_code"] == "EPSG:32633"
    assert np.array_equal(pixels(made.path)[0], values.T)
    assert made.facts["transform"] == pytest.approx([10, 0, 500_000, 0, -10, 5_000_000])


def steps(file: Any) -> None:
    axis(file, "time", np.array([0, 24, 48]), "hours since 2024-02-28 12:00:00", calendar="standard")
    axis(file, "level", np.array([850.0, 500.0]), "hPa")
    cube = np.arange(3 * 2 * 50 * 80, dtype=np.float32).reshape(3, 2, 50, 80)
    variable(file, "winds/u", cube, ["time", "level", "lat", "lon"])


def test_variables_and_steps_are_listed_and_one_is_chosen(raster: RasterPath) -> None:
    source = write(raster.folder / "a.nc", more=steps)
    refusal = raster.rejection(source)
    assert refusal.detail.code == "SUBDATASET_REQUIRED"
    assert "t2m; winds/u:1 (2024-02-28T12:00:00+00:00, 850); " in refusal.detail.message
    made = raster.make(source, subdataset="winds/u:4")
    assert np.array_equal(pixels(made.path)[0], np.arange(3 * 4000, 4 * 4000, dtype=np.float32).reshape(50, 80))
    assert raster.register(made).output["stac_item"]["properties"]["datetime"] == "2024-02-29T12:00:00Z"
    assert made.facts["member"] == "winds/u:4"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ("winds/u", "SUBDATASET_REQUIRED"), ("winds/u:7", "PARAMETER_INVALID"), ("winds/u:0", "PARAMETER_INVALID"),
        ("t2m:2", "PARAMETER_INVALID"), ("lat", "PARAMETER_INVALID"), ("/etc/passwd", "PARAMETER_INVALID"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_list_is_refused(raster: RasterPath, wanted: str, code: str) -> None:
    refusal = raster.rejection(write(raster.folder / "a.nc", more=steps), subdataset=wanted)
    assert (refusal.detail.code, refusal.detail.field) == (code, "subdataset")


def external_link(file: Any) -> None:
    file["other"] = h5py.ExternalLink("/etc/passwd", "/")


def external_storage(file: Any) -> None:
    file.create_dataset("pixels", (100,), "u1", external=[("/etc/passwd", 0, 100)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((100,), "u1")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (100,))
    file.create_virtual_dataset("pixels", layout)


def foreign_filter(file: Any) -> None:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((10,))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    h5py.h5d.create(file.id, b"pixels", h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple((100,)), plist)


@pytest.mark.parametrize("more", [external_link, external_storage, virtual, foreign_filter])
def test_what_leads_out_of_the_file_is_refused(raster: RasterPath, more: Callable[[Any], None]) -> None:
    refusal = raster.rejection(write(raster.folder / "a.nc", more=more))
    assert (refusal.detail.code, refusal.detail.field) == ("FORMAT_NOT_ALLOWED", "format")


def test_broken_irregular_and_placeless_files_are_refused(raster: RasterPath) -> None:
    source = write(raster.folder / "a.nc")
    cut = raster.folder / "cut.nc"
    cut.write_bytes(source.read_bytes()[:3000])
    bent = write(raster.folder / "bent.nc", latitudes=LATITUDES**2)
    with h5py.File(raster.folder / "bare.h5", "w") as file:
        file.create_dataset("t2m", data=VALUES)
    for path in (cut, bent, raster.folder / "bare.h5"):
        assert raster.rejection(path).detail.code == "RASTER_UNREADABLE"


def test_a_calendar_of_equal_years_gives_no_date(raster: RasterPath) -> None:
    def noleap(file: Any) -> None:
        axis(file, "time", np.array([1.0, 2.0]), "days since 2000-02-28", calendar="noleap")
        variable(file, "rain", np.ones((2, 50, 80), np.float32), ["time", "lat", "lon"])

    made = raster.make(write(raster.folder / "a.nc", more=noleap), subdataset="rain:2")
    with rasterio.open(made.path) as cog:
        assert "TIFFTAG_DATETIME" not in cog.tags()
