"""What numbers, times and places of a cube mean: compared with arrays and dates that were known before."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from pyproj import CRS, Transformer

from tests.support.cubes import LATITUDES, LONGITUDES, VALUES, axis, variable, write
from tests.support.raster_path import RasterPath, pixels

Array = NDArray[Any]


def marked() -> Array:
    """Return values of which some rows hold what may mean missing."""
    values = VALUES.copy()
    values[0], values[1], values[2] = -9999, -8888, 30000
    return values


@pytest.mark.parametrize(
    ("attributes", "missing"),
    [
        ({"_FillValue": np.int16(-9999), "missing_value": np.int16(-8888)}, [0, 1]),
        ({"missing_value": np.array([-8888, -9999], np.int16)}, [0, 1]),
        ({"_FillValue": np.int16(-9999), "missing_value": np.float32(-8888)}, [0, 1]),
        ({"_FillValue": np.int16(-9999), "valid_range": np.array([-8888, 29999], np.int16)}, [0, 2]),
        ({"_FillValue": np.int16(-9999), "valid_max": np.int16(29999)}, [0, 2]),
        ({"valid_min": np.int16(-8888)}, [0]),
        ({"valid_max": np.int16(29999)}, [2]),
        ({"_FillValue": np.int16(-9999), "scale_factor": 0.1, "valid_range": np.array([-900.0, 2000.0])}, [0, 2]),
    ],
)
def test_whatever_means_missing_becomes_the_nodata_value(
    raster: RasterPath, attributes: dict[str, Any], missing: list[int]
) -> None:
    made = raster.make(write(raster.folder / "a.nc", values=marked(), **attributes))
    assert "MISSING_UNIFIED" in made.codes
    with rasterio.open(made.path) as cog:
        valid = cog.read_masks(1) > 0
        assert [row for row in range(50) if not valid[row].any()] == missing
        assert valid.sum() == 80 * (50 - len(missing))
        assert np.array_equal(cog.read(1)[valid], marked()[valid])


@pytest.mark.parametrize("dtype", ["i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8"])
def test_what_was_never_written_is_nodata(raster: RasterPath, dtype: str) -> None:
    own = {"i2": -32767, "u2": 65535, "i4": -(2**31) + 1, "u4": 2**32 - 1, "i8": -(2**63) + 2, "u8": 2**64 - 2}
    with h5py.File(raster.folder / "a.nc", "w") as file:
        axis(file, "lat", LATITUDES, "degrees_north")
        axis(file, "lon", LONGITUDES, "degrees_east")
        fill = np.array(own.get(dtype, 9.969209968386869e36), dtype)
        dataset = file.create_dataset("t2m", (50, 80), dtype, fillvalue=fill, chunks=(10, 80))
        dataset[10:20] = np.abs(VALUES[10:20])
        for place, name in enumerate(("lat", "lon")):
            dataset.dims[place].attach_scale(file[name])
    with rasterio.open(raster.make(raster.folder / "a.nc").path) as cog:
        valid = cog.read_masks(1) > 0
        assert valid[10:20].all()
        assert valid.sum() == 800
        assert np.array_equal(cog.read(1)[10:20], np.abs(VALUES[10:20]))


def test_a_value_that_stands_in_for_a_larger_one_must_not_occur(raster: RasterPath) -> None:
    values = np.full((50, 80), -(2**63) + 2, np.int64)
    values[0, 0] = -(2**53)

    def unwritten(file: Any) -> None:
        dataset = file.create_dataset("w", data=values, fillvalue=-(2**63) + 2, chunks=(50, 80))
        for place, name in enumerate(("lat", "lon")):
            dataset.dims[place].attach_scale(file[name])

    refusal = raster.rejection(write(raster.folder / "a.nc", more=unwritten), subdataset="w")
    assert refusal.detail.code == "RASTER_UNREADABLE"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_FillValue", np.zeros(0, np.float32)), ("_FillValue", h5py.Empty("f4")), ("missing_value", np.int32(99999)),
        ("missing_value", "none"), ("_FillValue", 1 + 2j), ("missing_value", -9999.5),
    ],
)  # fmt: skip
def test_a_missing_value_that_is_none_is_dropped_with_a_warning(raster: RasterPath, name: str, value: Any) -> None:
    made = raster.make(write(raster.folder / "a.nc", **{name: value}))
    assert "NODATA_DROPPED" in made.codes
    assert np.array_equal(pixels(made.path)[0], VALUES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale_factor", np.array([0.1, 0.2])), ("scale_factor", np.zeros(0)), ("scale_factor", "none"),
        ("add_offset", h5py.Empty("f8")), ("add_offset", 1j), ("scale_factor", True), ("valid_range", np.int16(3)),
        ("valid_range", "0 to 3"), ("valid_min", np.array([1, 2])), ("valid_max", np.nan),
    ],
)  # fmt: skip
def test_factors_and_ranges_that_are_none_are_refused(raster: RasterPath, name: str, value: Any) -> None:
    refusal = raster.rejection(write(raster.folder / "a.nc", **{name: value}))
    assert (refusal.detail.code, refusal.detail.field) == ("RASTER_UNREADABLE", "file")


def test_a_range_of_values_without_a_fill_value_is_refused(raster: RasterPath) -> None:
    says = {"scale_factor": 0.1, "valid_range": np.array([-1.0, 2.0])}
    assert raster.rejection(write(raster.folder / "a.nc", **says)).detail.code == "RASTER_UNREADABLE"


def test_signs_are_read_as_the_file_says(raster: RasterPath) -> None:
    values = (VALUES % 256).astype(np.uint8)
    signed = raster.make(write(raster.folder / "a.nc", values=values, _Unsigned="false"))
    assert np.array_equal(pixels(signed.path)[0], values.view(np.int8))
    says = {"_Unsigned": "true", "valid_range": np.array([0, -6], np.int8)}
    unsigned = raster.make(write(raster.folder / "b.nc", values=values.view(np.int8), **says))
    with rasterio.open(unsigned.path) as cog:
        assert np.array_equal(cog.read_masks(1) > 0, values <= 250)


def timed(
    path: Path, units: str, numbers: list[float], calendar: str | None = None, dtype: str = "f8", **more: Any
) -> Path:
    """Write a variable of several times."""

    def add(file: Any) -> None:
        said = {} if calendar is None else {"calendar": calendar}
        axis(file, "time", np.array(numbers, dtype), units, **said, **more)
        cube = np.stack([VALUES + step for step in range(len(numbers))])
        variable(file, "rain", cube, ["time", "lat", "lon"])

    return write(path, more=add)


def date_of(raster: RasterPath, source: Path, subdataset: str = "rain:2") -> tuple[str, list[str]]:
    """Return the date of an item, and all codes."""
    made = raster.make(source, subdataset=subdataset)
    registered = raster.register(made)
    assert isinstance(registered.output, dict)
    date: str = registered.output["stac_item"]["properties"]["datetime"]
    return date, [*made.codes, *(finding.code for finding in registered.findings)]


@pytest.mark.parametrize(
    ("units", "number", "calendar", "dtype", "date"),
    [
        ("days since 2001-1-1 0:0:0", 11.5, "standard", "f8", "2001-01-12T12:00:00Z"),
        ("hours since 1900-01-01 00:00:0.0", 1000006, "gregorian", "i4", "2014-01-29T22:00:00Z"),
        ("days since 1900-01-01", 40000 + 7 / 24, None, "f8", "2009-07-08T07:00:00Z"),
        ("hours since 0001-01-01 00:00:00", 17522928, "standard", "f8", "2000-01-02T00:00:00Z"),
        ("days since 0001-01-01", 730485, "proleptic_gregorian", "i4", "2001-01-01T00:00:00Z"),
        ("days since 1500-01-01", 200000, "standard", "i4", "2047-08-10T00:00:00Z"),
        ("milliseconds since 1970-01-01 00:00:00", 1709294400000, "standard", "i8", "2024-03-01T12:00:00Z"),
        ("h since 2010-06-01 12:00", 30, "standard", "i4", "2010-06-02T18:00:00Z"),
        ("hours since 2010-06-01 00:00:00 +02:00", 30, "standard", "i4", "2010-06-02T04:00:00Z"),
        ("days since 2010-06-01 00:00 -0600", 2, "standard", "i4", "2010-06-03T06:00:00Z"),
        ("days since 2000-01-01", -0.25, "standard", "f8", "1999-12-31T18:00:00Z"),
        ("days since 2015-01-01", 1 / 3, "standard", "f4", "2015-01-01T08:00:00Z"),
    ],
)
def test_times_are_those_of_their_unit_and_calendar(
    raster: RasterPath, units: str, number: float, calendar: str | None, dtype: str, date: str
) -> None:
    assert date_of(raster, timed(raster.folder / "a.nc", units, [0, number], calendar, dtype))[0] == date


def test_times_may_be_packed(raster: RasterPath) -> None:
    source = timed(raster.folder / "a.nc", "hours since 2020-01-01", [0, 4], None, "i2", scale_factor=6.0, add_offset=1)
    assert date_of(raster, source)[0] == "2020-01-02T01:00:00Z"


@pytest.mark.parametrize(
    ("units", "number", "calendar"),
    [
        ("days since 2000-01-01", 59, "360_day"), ("days since 2000-01-01", 400, "noleap"),
        ("months since 2000-01-01", 2, None), ("days since 2000-01-01", -999, None),
        ("day as %Y%m%d.%f", 20010101, None),
        ("days since 2000-02-30", 2, None), ("days since 0000-01-01", 800000, "proleptic_gregorian"),
        ("days since 2000-01-01", np.nan, None), ("days since 2000-01-01", 9.969209968386869e36, None),
        ("days since 1500-01-01", 2, None),
    ],
)  # fmt: skip
def test_a_time_that_is_no_date_is_said_and_not_used(
    raster: RasterPath, units: str, number: float, calendar: str | None
) -> None:
    source = timed(raster.folder / "a.nc", units, [1, number], calendar, missing_value=-999.0)
    before = datetime.now(UTC)
    date, codes = date_of(raster, source)
    assert {"DATETIME_UNREADABLE", "DATETIME_ASSUMED"} <= set(codes)
    assert date >= before.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(("lead", "date"), [(True, "2020-01-02T06:00:00Z"), (False, None)])
def test_a_forecast_holds_when_it_was_made_for(raster: RasterPath, lead: bool, date: str | None) -> None:
    def add(file: Any) -> None:
        made = {"standard_name": "forecast_reference_time"}
        axis(file, "made", np.array([0.0, 12.0]), "hours since 2020-01-01", **made)
        axis(file, "lead", np.array([6.0, 18.0]), "hours", **({"standard_name": "forecast_period"} if lead else {}))
        cube = np.stack([VALUES + step for step in range(4)]).reshape(2, 2, 50, 80)
        variable(file, "rain", cube, ["made", "lead", "lat", "lon"])

    found, codes = date_of(raster, write(raster.folder / "a.nc", more=add), "rain:4")
    assert found == date if lead else "DATETIME_UNREADABLE" in codes


def test_a_single_time_beside_the_variable_counts(raster: RasterPath) -> None:
    def add(file: Any) -> None:
        file["when"] = 30
        file["when"].attrs.update({"units": "hours since 2019-05-05", "standard_name": "time"})

    source = write(raster.folder / "a.nc", more=add, coordinates="nowhere when")
    assert date_of(raster, source, "t2m")[0] == "2019-05-06T06:00:00Z"


@pytest.mark.parametrize("order", ["lev lat lon", "lat lon lev", "lon lev lat", "lat lev lon"])
def test_dimensions_may_come_in_any_order(raster: RasterPath, order: str) -> None:
    cube = np.stack([VALUES + 1000 * step for step in range(3)])

    def add(file: Any) -> None:
        axis(file, "lev", np.array([1000.0, 850.0, 500.0]), "hPa", axis="Z")
        names = order.split()
        variable(file, "u", cube.transpose([("lev", "lat", "lon").index(name) for name in names]), names)

    made = raster.make(write(raster.folder / "a.nc", more=add), subdataset="u:2")
    assert np.array_equal(pixels(made.path)[0], cube[1])


@pytest.mark.parametrize("kind", ["single precision", "going around", "packed"])
def test_longitudes_may_be_rounded_go_around_or_be_packed(raster: RasterPath, kind: str) -> None:
    longitudes = np.linspace(-179.99, -172.1, 790).astype("f4") if kind == "single precision" else LONGITUDES
    longitudes = np.r_[np.arange(140, 180, 1.0), np.arange(-180, -140, 1.0)] if kind == "going around" else longitudes
    values = np.arange(50 * longitudes.size, dtype=np.float32).reshape(50, -1)
    stored = np.arange(80) if kind == "packed" else longitudes
    source = write(raster.folder / "a.nc", longitudes=stored, values=values)
    if kind == "packed":
        with h5py.File(source, "a") as file:
            file["lon"].attrs.update({"scale_factor": 0.1, "add_offset": 5.05})
    with rasterio.open(raster.make(source).path) as cog:
        for column in (0, 39, 40, longitudes.size - 1):
            longitude = (float(longitudes[column]) - cog.bounds.left) % 360 + cog.bounds.left
            assert cog.index(longitude, LATITUDES[7]) == (7, column)
            assert next(cog.sample([(longitude, LATITUDES[7])])).item() == values[7, column]


def test_steps_that_drift_are_not_regular(raster: RasterPath) -> None:
    steps = 0.01 * (1 + np.linspace(-9e-4, 9e-4, 2999))
    longitudes = np.cumsum(np.r_[0, steps])
    source = write(raster.folder / "a.nc", longitudes=longitudes, values=np.ones((50, 3000), np.float32))
    assert raster.rejection(source).detail.code == "RASTER_UNREADABLE"


LAMBERT: dict[str, Any] = {
    "grid_mapping_name": "lambert_conformal_conic", "standard_parallel": np.array([33.0, 45.0]),
    "longitude_of_central_meridian": -97.0, "latitude_of_projection_origin": 40.0, "earth_radius": 6370000.0,
}  # fmt: skip
ON_GRID = "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=40 +lon_0=-97 +R=6370000"


def projected(
    path: Path, units: str | None, factor: float, mapping: dict[str, Any] | None, said: str = "crs", *,
    deep: bool = False, names: tuple[str, str] = ("y", "x"), integers: bool = False, **attributes: Any,
) -> Path:  # fmt: skip
    """Write a grid of 12 km, or what its numbers are in another unit."""
    with h5py.File(path, "w") as file:
        for name, word, start, count in zip(names, "YX", (-300_000, -500_000), (23, 31), strict=True):
            metres = np.arange(count) if integers else (start + 12_000 * np.arange(count)) / factor
            axis(file, name, metres, units, axis=word, **attributes)
        values = np.arange(23 * 31, dtype=np.float32).reshape(23, 31)
        variable(file, "deep/er/v" if deep else "v", values, list(names), grid_mapping=said)
        if mapping is not None:
            file.create_dataset("crs", data=0).attrs.update(mapping)
    return path


@pytest.mark.parametrize(
    ("units", "factor", "said", "deep"),
    [
        ("m", 1, "crs", False), ("meters", 1, "crs", False), ("km", 1000, "crs", False), ("ft", 0.3048, "crs", False),
        (None, 1, "crs", False), ("m", 1, "crs: x y", False), ("m", 1, "other: lat lon crs: x y", False),
        ("m", 1, "crs", True), ("m", 1, "/crs", True),
    ],
)  # fmt: skip
def test_a_grid_lies_where_its_mapping_and_units_say(
    raster: RasterPath, units: str | None, factor: float, said: str, deep: bool
) -> None:
    made = raster.make(projected(raster.folder / "a.nc", units, factor, LAMBERT, said, deep=deep))
    there = Transformer.from_crs(ON_GRID, "+proj=longlat +R=6370000", always_xy=True)
    with rasterio.open(made.path) as cog:
        crs = CRS.from_wkt(made.facts["crs_wkt"])
        back = Transformer.from_crs(crs.geodetic_crs, crs, always_xy=True)
        for row, column in ((0, 0), (22, 30), (5, 17)):
            place = back.transform(*there.transform(-500_000 + 12_000 * column, -300_000 + 12_000 * row))
            assert next(cog.sample([place])).item() == row * 31 + column
            assert np.allclose(cog.xy(*cog.index(*place)), place, atol=1)


def test_a_false_easting_has_the_unit_of_the_axes(raster: RasterPath) -> None:
    mapping = LAMBERT | {"false_easting": 400.0, "false_northing": -20.0}
    made = raster.make(projected(raster.folder / "a.nc", "km", 1000, mapping))
    crs = CRS.from_wkt(made.facts["crs_wkt"])
    assert crs.to_cf()["false_easting"] == pytest.approx(400_000)
    assert crs.to_cf()["false_northing"] == pytest.approx(-20_000)


GEOSTATIONARY: dict[str, Any] = {
    "grid_mapping_name": "geostationary", "perspective_point_height": 35786023.0, "semi_major_axis": 6378137.0,
    "semi_minor_axis": 6356752.31414, "latitude_of_projection_origin": 0.0, "longitude_of_projection_origin": -75.0,
    "sweep_angle_axis": "x",
}  # fmt: skip


@pytest.mark.parametrize(("units", "per"), [("rad", 1.0), ("microradian", 1e-6), ("m", 1 / 35786023.0)])
def test_scan_angles_of_a_satellite_are_lengths_on_its_grid(raster: RasterPath, units: str, per: float) -> None:
    factor = 35786023.0 * per
    made = raster.make(projected(raster.folder / "a.nc", units, factor, GEOSTATIONARY))
    with rasterio.open(made.path) as cog:
        assert tuple(cog.bounds) == pytest.approx((-506_000, -306_000, -134_000, -30_000))


LONG_LAT = {"grid_mapping_name": "latitude_longitude"}
ROTATED = {
    "grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25,
    "grid_north_pole_longitude": -162.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("units", "mapping", "names", "more", "code"),
    [
        ("degrees", LAMBERT, ("lat", "lon"), {}, "CRS_CONFLICT"),
        ("m", LONG_LAT, ("y", "x"), {}, "CRS_CONFLICT"),
        ("degrees", LONG_LAT, ("rlat", "rlon"), {}, "CRS_CONFLICT"),
        ("rad", LAMBERT, ("y", "x"), {}, "CRS_CONFLICT"),
        ("hPa", LAMBERT, ("y", "x"), {}, "RASTER_UNREADABLE"),
        ("1", LAMBERT, ("y", "x"), {}, "RASTER_UNREADABLE"),
        ("1", None, ("y", "x"), {}, "RASTER_UNREADABLE"),
        (None, LAMBERT, ("y", "x"), {"integers": True}, "RASTER_UNREADABLE"),
        ("degrees", ROTATED, ("rlat", "rlon"), {}, "CRS_NOT_GEOREFERENCED"),
        ("degrees", None, ("rlat", "rlon"), {}, "CRS_MISSING"),
        ("degrees", None, ("lat", "lon"), {}, "CRS_MISSING"),
        ("m", {"grid_mapping_name": "nonsense"}, ("y", "x"), {}, "CRS_MISSING"),
        ("m", {"crs_wkt": "+proj=longlat +nadgrids=/etc/passwd"}, ("y", "x"), {}, "CRS_MISSING"),
    ],
)  # fmt: skip
def test_a_grid_that_does_not_say_where_it_lies_is_refused(
    raster: RasterPath, units: str, mapping: Any, names: tuple[str, str], more: dict[str, Any], code: str
) -> None:
    source = projected(raster.folder / "a.nc", units, 1e6, mapping, names=names, **more)
    assert raster.rejection(source).detail.code == code


def test_coordinates_of_a_rotated_grid_are_no_longitudes(raster: RasterPath) -> None:
    with h5py.File(raster.folder / "a.nc", "w") as file:
        axis(file, "b", LATITUDES, "degrees", standard_name="grid_latitude")
        axis(file, "a", LONGITUDES, "degrees", standard_name="grid_longitude")
        variable(file, "v", VALUES, ["b", "a"])
    assert raster.rejection(raster.folder / "a.nc").detail.code == "CRS_MISSING"


def test_a_dimension_without_coordinates_is_counted(raster: RasterPath) -> None:
    def add(file: Any) -> None:
        scale = file.create_dataset("band", data=np.zeros(2, ">f4"))
        scale.make_scale("This is a netCDF dimension but not a netCDF variable.         2")
        variable(file, "u", np.stack([VALUES, VALUES]), ["band", "lat", "lon"])

    assert "u:1 (1); u:2 (2)" in raster.rejection(write(raster.folder / "a.nc", more=add)).detail.message


def test_coordinates_in_one_huge_chunk_are_not_read(raster: RasterPath) -> None:
    source = raster.folder / "a.nc"
    with h5py.File(source, "w") as file:
        axis(file, "lat", LATITUDES, "degrees_north")
        scale = file.create_dataset("lon", (80,), "f8", maxshape=(None,), chunks=(100_000_000,), compression="gzip")
        scale.attrs["units"] = "degrees_east"
        scale.make_scale("lon")
        variable(file, "t2m", VALUES, ["lat", "lon"])
    assert raster.rejection(source).detail.code == "RASTER_UNREADABLE"
