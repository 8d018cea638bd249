"""Classic NetCDF, written here byte by byte after its specification, and what is wrong with broken ones."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray

from handlers.raster.findings import Rejected
from tests.support.raster_path import RasterPath, pixels

Array = NDArray[Any]
LATITUDES = np.linspace(49.95, 45.05, 50)
LONGITUDES = np.linspace(5.05, 12.95, 79)
VALUES = (np.add.outer(np.arange(50), np.arange(79)) * 3 - 40).astype(np.int16)
CODES = {"i1": 1, "S1": 2, "i2": 3, "i4": 4, "f4": 5, "f8": 6, "u2": 8}
"""Types of the format that files here have."""


def netcdf(
    path: Path, version: int, variables: dict[str, tuple[list[str], Array, dict[str, Any]]], *, streamed: bool = False
) -> Path:
    """Write dimensions, variables and their attributes; the dimension `time` is that of records."""
    wide, offset = (8 if version == 5 else 4), (4 if version == 1 else 8)
    lengths = {
        name: size for names, array, _ in variables.values() for name, size in zip(names, array.shape, strict=True)
    }
    places = {name: number for number, name in enumerate(lengths)}

    def number(value: int, size: int = wide) -> bytes:
        return value.to_bytes(size, "big")

    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    def name(text: str) -> bytes:
        return number(len(text)) + padded(text.encode())

    def listed(tag: int, entries: list[bytes]) -> bytes:
        return (number(tag, 4) if entries else number(0, 4)) + number(len(entries)) + b"".join(entries)

    def attribute(key: str, value: Any) -> bytes:
        if isinstance(value, str):
            return name(key) + number(CODES["S1"], 4) + number(len(value)) + padded(value.encode())
        array = np.atleast_1d(value)
        data = array.astype(array.dtype.newbyteorder(">")).tobytes()
        return name(key) + number(CODES[array.dtype.str[1:]], 4) + number(array.size) + padded(data)

    def declared(starts: dict[str, int]) -> bytes:
        entries = []
        for key, (names, array, attributes) in variables.items():
            about = listed(12, [attribute(*pair) for pair in attributes.items()])
            shape = number(len(names)) + b"".join(number(places[one]) for one in names)
            size = number(0)  # readers work it out of the shape
            begin = number(starts.get(key, 0), offset)
            entries.append(name(key) + shape + about + number(CODES[array.dtype.str[1:]], 4) + size + begin)
        return listed(11, entries)

    records = lengths.get("time", 0)
    dimensions = [name(one) + number(0 if one == "time" else size) for one, size in lengths.items()]
    said = (1 << 8 * wide) - 1 if streamed else records
    head = b"CDF" + bytes([version]) + number(said) + listed(10, dimensions) + listed(12, [])
    at, starts, body = len(head) + len(declared({})), {}, b""
    big = {key: array.astype(array.dtype.newbyteorder(">")) for key, (_, array, _) in variables.items()}
    moving = [key for key, (names, _, _) in variables.items() if names[:1] == ["time"]]
    for key in (key for key in variables if key not in moving):
        starts[key] = at + len(body)
        body += padded(big[key].tobytes())
    for record in range(records):
        for key in moving:
            starts.setdefault(key, at + len(body))
            data = big[key][record : record + 1].tobytes()
            body += data if len(moving) == 1 else padded(data)
    path.write_bytes(head + declared(starts) + body)
    return path


def grid() -> dict[str, tuple[list[str], Array, dict[str, Any]]]:
    """Return latitudes and longitudes."""
    return {
        "lat": (["lat"], LATITUDES, {"units": "degrees_north"}),
        "lon": (["lon"], LONGITUDES, {"units": "degrees_east"}),
    }


@pytest.mark.parametrize("version", [1, 2, 5])
def test_a_variable_becomes_a_cog_with_everything_it_says(raster: RasterPath, version: int) -> None:
    says = {"_FillValue": np.int16(-40), "scale_factor": 0.01, "add_offset": 273.15, "units": "K", "long_name": "air"}
    source = netcdf(raster.folder / "a.nc", version, {**grid(), "t2m": (["lat", "lon"], VALUES, says)})
    made = raster.make(source)
    with rasterio.open(made.path) as cog:
        assert np.array_equal(cog.read(1), VALUES)
        assert (cog.nodata, cog.scales, cog.offsets, cog.units) == (-40, (0.01,), (273.15,), ("K",))
        assert (cog.descriptions, cog.dtypes, cog.crs.to_epsg()) == (("air",), ("int16",), 4326)
        assert tuple(cog.bounds) == pytest.approx((5.0, 45.0, 13.0, 50.0), abs=0.01)
    assert made.facts["member"] == "t2m"
    assert {"SUBDATASET_USED", "CRS_BY_CONVENTION"} <= set(made.codes)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("others", [0, 2])
def test_records_lie_apart_and_one_is_chosen(raster: RasterPath, others: int, streamed: bool) -> None:
    """A single variable of records is not padded; several take turns."""
    cube = np.arange(3 * 50 * 79).reshape(3, 50, 79).astype(np.int16)
    variables = {**grid(), "rain": (["time", "lat", "lon"], cube, {})}
    if others:
        hours = {"units": "hours since 2024-02-28 12:00:00"}
        variables |= {"time": (["time"], np.array([0, 24, 48], "i4"), hours)}
        variables |= {"flag": (["time"], np.array([1, 2, 3], "i1"), {})}
    source = netcdf(raster.folder / "a.nc", 1, variables, streamed=streamed)
    refusal = raster.rejection(source)
    assert refusal.detail.code == "SUBDATASET_REQUIRED"
    assert ("rain:2 (2024-02-29T12:00:00+00:00)" if others else "rain:2 (2)") in refusal.detail.message
    made = raster.make(source, subdataset="rain:2")
    assert np.array_equal(pixels(made.path)[0], cube[1])


def test_signed_bytes_that_mean_unsigned_ones_are_read_as_they_mean(raster: RasterPath) -> None:
    values = (VALUES % 256).astype(np.uint8)
    says = {"_Unsigned": "true", "_FillValue": np.array([255], np.uint8).view(np.int8)}
    source = netcdf(raster.folder / "a.nc", 2, {**grid(), "band": (["lat", "lon"], values.view(np.int8), says)})
    with rasterio.open(raster.make(source).path) as cog:
        assert np.array_equal(cog.read(1), values)
        assert (cog.dtypes, cog.nodata) == (("uint8",), 255)


def test_what_was_never_written_is_no_data(raster: RasterPath) -> None:
    values = VALUES.astype(np.float32)
    values[0, :5] = 9.969209968386869e36
    source = netcdf(raster.folder / "a.nc", 1, {**grid(), "t2m": (["lat", "lon"], values, {})})
    statistics = raster.make(source).output["raster"]["bands"][0]["statistics"]
    assert (statistics["minimum"], statistics["maximum"]) == (VALUES.ravel()[5:].min(), VALUES.max())


@pytest.mark.parametrize("length", [5, 30, 200, 3000, -1])
def test_a_cut_file_is_refused(raster: RasterPath, length: int) -> None:
    whole = netcdf(raster.folder / "a.nc", 1, {**grid(), "t2m": (["lat", "lon"], VALUES, {})}).read_bytes()
    cut = raster.folder / "cut.nc"
    cut.write_bytes(whole[:length])
    refusal = raster.rejection(cut)
    assert (refusal.detail.code, refusal.detail.field) == ("RASTER_UNREADABLE", "file")


def test_no_broken_header_breaks_anything_but_itself(raster: RasterPath) -> None:
    whole = netcdf(raster.folder / "a.nc", 1, {**grid(), "t2m": (["lat", "lon"], VALUES, {"units": "K"})}).read_bytes()
    broken = raster.folder / "broken.nc"
    codes = set()
    for place in range(4, 300, 4):
        for value in (0, 7, 0x7FFFFFFF, 0xFFFFFFFF):
            broken.write_bytes(whole[:place] + struct.pack(">I", value) + whole[place + 4 :])
            try:
                raster.validate(broken)
            except Rejected as refusal:
                codes.add(refusal.detail.code)
    assert "RASTER_UNREADABLE" in codes
    assert codes <= {"RASTER_UNREADABLE", "SUBDATASET_REQUIRED", "CRS_MISSING", "CRS_EXTENT_IMPOSSIBLE"}
