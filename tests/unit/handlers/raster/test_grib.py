"""GRIB: one field by its number; the oracle is the array that was packed, whose values GRIB 2 keeps here exactly."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from numpy.typing import NDArray
from rasterio.transform import from_origin

from tests.support.gribs import field, first_edition, with_bitmap
from tests.support.raster_path import RasterPath, pixels

Array = NDArray[Any]
TEMPERATURES = np.add.outer(np.arange(40), np.arange(60)).astype(np.float64) + 250
WORLD = from_origin(0, 90, 6, 4.5)


def write(folder: Path, *messages: bytes) -> Path:
    """Write messages one after the other."""
    path = folder / "a.grib"
    path.write_bytes(b"".join(messages))
    return path


def test_the_only_field_needs_no_choice(raster: RasterPath) -> None:
    made = raster.make(write(raster.folder, field(TEMPERATURES)))
    with rasterio.open(made.path) as cog:
        assert np.allclose(cog.read(1), TEMPERATURES, atol=1e-3)
        assert cog.units == ("K",), "units stay those of the file"
        assert "emperature" in cog.descriptions[0]
        assert tuple(cog.bounds) == pytest.approx((5, 46, 11, 50), abs=1e-6)
    item = raster.register(made).output["stac_item"]  # type: ignore[index]
    assert item["properties"]["datetime"] == "2024-02-29T18:00:00Z"
    assert "SUBDATASET_USED" in made.codes


def test_fields_are_listed_and_one_is_chosen(raster: RasterPath) -> None:
    source = write(raster.folder, field(TEMPERATURES), b"\0" * 7, field(TEMPERATURES + 1000))
    refusal = raster.rejection(source)
    assert (refusal.detail.code, refusal.detail.field) == ("SUBDATASET_REQUIRED", "subdataset")
    assert "2 field(s): 1 (TMP, " in refusal.detail.message
    assert "2024-02-29T18:00:00+00:00); 2 (" in refusal.detail.message
    made = raster.make(source, subdataset="2")
    assert np.allclose(pixels(made.path)[0], TEMPERATURES + 1000, atol=1e-3)
    assert made.facts["member"] == "2"


@pytest.mark.parametrize("wanted", ["3", "0", "TMP", "-1", "1.5", "/etc/passwd", "9" * 30])
def test_what_is_not_in_the_list_is_refused(raster: RasterPath, wanted: str) -> None:
    refusal = raster.rejection(write(raster.folder, field(TEMPERATURES), field(TEMPERATURES)), subdataset=wanted)
    assert (refusal.detail.code, refusal.detail.field) == ("PARAMETER_INVALID", "subdataset")


def test_longitudes_to_360_are_rolled_like_those_of_any_raster(raster: RasterPath) -> None:
    made = raster.make(write(raster.folder, field(TEMPERATURES, WORLD)))
    assert "LONGITUDES_SHIFTED" in made.codes
    with rasterio.open(made.path) as cog:
        assert tuple(cog.bounds) == pytest.approx((-180, -90, 180, 90), abs=1e-4)
        assert np.allclose(cog.read(1), np.roll(TEMPERATURES, 30, axis=1), atol=1e-3)


def test_broken_messages_are_refused(raster: RasterPath) -> None:
    whole = field(TEMPERATURES)
    broken = {
        "cut": whole[:-100],
        "no end": whole[:-4] + b"8888",
        "longer than it says": whole[:8] + (len(whole) + 8).to_bytes(8, "big") + whole[16:],
        "without sections": b"GRIB\0\0\0\2" + (20).to_bytes(8, "big") + b"7777",
        "a section without end": whole[:16] + b"\xff\xff\xff\xff" + whole[20:],
        "edition 3": whole[:7] + b"\3" + whole[8:],
        "a head": b"GRIB",
    }
    for name, content in broken.items():
        refusal = raster.rejection(write(raster.folder, content))
        assert (refusal.detail.code, refusal.detail.field) == ("RASTER_UNREADABLE", "file"), name


COUNTS = np.add.outer(np.arange(40) * 60, np.arange(60))


def with_bytes(message: bytes, section: int, **places: int) -> bytes:
    """Return a message of edition 2 with other bytes (`b71=128`) in a section."""
    changed, at = bytearray(message), 16
    while changed[at + 4] != section:
        at += int.from_bytes(changed[at : at + 4], "big")
    for name, value in places.items():
        changed[at + int(name[1:])] = value
    return bytes(changed)


def test_the_first_edition_is_read_as_it_was_packed(raster: RasterPath) -> None:
    made = raster.make(write(raster.folder, first_edition(COUNTS)))
    with rasterio.open(made.path) as cog:
        assert np.array_equal(cog.read(1), COUNTS)
        assert tuple(cog.bounds) == pytest.approx((5, 46, 11, 50), abs=1e-6)
    item = raster.register(made).output["stac_item"]  # type: ignore[index]
    assert item["properties"]["datetime"] == "2024-02-29T18:00:00Z"


@pytest.mark.parametrize(
    "message",
    [
        first_edition(COUNTS, scanning=0x80), first_edition(COUNTS, kind=4), first_edition(COUNTS, kind=50),
        first_edition(COUNTS, packing=0x40), first_edition(COUNTS, packing=0x80), first_edition(COUNTS, packing=0x10),
        first_edition(COUNTS, own_grid=False),
        with_bytes(field(TEMPERATURES), 3, b71=0x80), with_bytes(field(TEMPERATURES), 3, b71=0x10),
        with_bytes(field(TEMPERATURES), 3, b13=40), with_bytes(field(TEMPERATURES), 3, b13=101),
    ],
)  # fmt: skip
def test_what_would_be_taken_for_something_else_is_refused(raster: RasterPath, message: bytes) -> None:
    """Rows from east to west or to and fro, Gaussian and other grids, packings that GDAL does not heed."""
    refusal = raster.rejection(write(raster.folder, message))
    assert (refusal.detail.code, refusal.detail.field) == ("RASTER_UNREADABLE", "file")


def test_a_value_like_the_mark_of_missing_ones_is_not_lost(raster: RasterPath) -> None:
    values, valid = COUNTS.copy(), np.ones(COUNTS.shape, bool)
    valid[3] = False
    with rasterio.open(raster.make(write(raster.folder, with_bitmap(values, valid))).path) as cog:
        assert np.array_equal(cog.read_masks(1) > 0, valid)
        assert np.array_equal(cog.read(1)[valid], values[valid])
    values[7] = 9999
    refusal = raster.rejection(write(raster.folder, with_bitmap(values, valid)))
    assert refusal.detail.code == "RASTER_UNREADABLE"
    assert "120 values are 9999, 60 are missing" in refusal.detail.message


@pytest.mark.parametrize(
    "message",
    [
        first_edition(COUNTS, unit=3), first_edition(COUNTS, century=19), with_bytes(field(TEMPERATURES), 4, b17=3),
    ],
)  # fmt: skip
def test_a_time_that_gdal_takes_for_another_is_not_used(raster: RasterPath, message: bytes) -> None:
    """Months have no fixed length; years of the century before last."""
    assert "DATETIME_UNREADABLE" in raster.make(write(raster.folder, message)).codes
