"""What the sections of a GRIB message say that GDAL's driver does not heed, and would take for something else.

Specification: WMO-No. 306, Volume I.2, FM 92 GRIB; tables 3.1, 3.4, 5.0 and, of edition 1, 6, 8 and 11.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from handlers.raster.cube_attributes import CubeError

_GRIDS_1: Final = frozenset({0, 1, 3, 5})
"""Kinds of grids of edition 1 that are read: latitude and longitude, Mercator, Lambert, polar stereographic."""
_GRIDS_2: Final = {0: 71, 10: 59, 20: 64, 30: 64, 31: 64, 140: 63}
"""Kinds of edition 2, those and Albers and azimuthal equal-area; where in the section the scanning mode stands."""
_GAUSSIAN: Final = frozenset({4, 14, 24, 34, 40, 41, 42, 43})
_WESTWARD, _ZIGZAG, _STAGGERED = 0x80, 0x10, 0x0F
_OTHER_PACKING_1: Final = 0xD0
"""Spherical harmonics, second-order packing, further flags."""
_NO_FIXED_LENGTH: Final = frozenset({3, 4, 5, 6, 7})
"""Months to centuries, as units of time."""
_LEAD_TIME_TEMPLATES: Final = 15


@dataclass(frozen=True, slots=True)
class Said:
    """What a message says of one of its fields."""

    missing: int | None
    """How many points a bitmap leaves out; None where missing values are marked otherwise."""
    by_months: bool
    """It holds some months or years after its reference time."""
    year: int | None = None
    """Of the reference time, where edition 1 has it in two parts."""


def said_of(message: bytes, band: int) -> Said:
    """Return what a message says of its `band`th field.

    Raises:
        CubeError: grid, scanning mode or packing are none that are read.
    """
    try:
        return _first_edition(message) if message[7] == 1 else _second_edition(message, band)
    except IndexError as exc:
        raise CubeError("a section of the message is cut") from exc


def _first_edition(message: bytes) -> Said:
    product = 8
    flags = message[product + 7]
    if not flags & 0x80:
        raise CubeError("the message names a grid of some centre, not one of its own")
    grid = product + int.from_bytes(message[product : product + 3], "big")
    _check_grid(message[grid + 5], message[grid + 5] in _GRIDS_1, message[grid + 27] & (_WESTWARD | _ZIGZAG))
    bitmap = grid + int.from_bytes(message[grid : grid + 3], "big")
    data = bitmap + (int.from_bytes(message[bitmap : bitmap + 3], "big") if flags & 0x40 else 0)
    if message[data + 3] & _OTHER_PACKING_1:
        raise CubeError("the values of the field are packed in a way that is not read")
    ahead = message[product + 17] in _NO_FIXED_LENGTH and any(message[product + 18 : product + 20])
    return Said(None, bool(ahead), (message[product + 24] - 1) * 100 + message[product + 12])


def _second_edition(message: bytes, band: int) -> Said:
    at, fields, end, points = 16, 0, len(message) - 4, 0
    missing: int | None = 0
    by_months = marked = False
    while at < end and fields < band:
        length, section = int.from_bytes(message[at : at + 4], "big"), message[at + 4]
        body = message[at : at + length]
        if section == 3:
            points = _points(body)
        elif section == 4:
            template = int.from_bytes(body[7:9], "big")
            by_months = template <= _LEAD_TIME_TEMPLATES and body[17] in _NO_FIXED_LENGTH and any(body[18:22])
        elif section == 5:
            marked = int.from_bytes(body[9:11], "big") in (2, 3) and body[22] != 0
        elif section == 6 and body[5] != 254:
            missing = _left_out(body, points)
        fields += section == 7
        at += length
    return Said(None if marked else missing, by_months)


def _points(body: bytes) -> int:
    """Return how many points a grid has, one that is read."""
    kind = int.from_bytes(body[12:14], "big")
    scanning = body[_GRIDS_2[kind]] if kind in _GRIDS_2 else 0
    _check_grid(kind, kind in _GRIDS_2, scanning & (_WESTWARD | _ZIGZAG | _STAGGERED))
    return int.from_bytes(body[6:10], "big")


def _left_out(body: bytes, points: int) -> int | None:
    """Return how many points the bitmap of a section leaves out; None for one that some centre defines."""
    if body[5] != 0:
        return 0 if body[5] == 255 else None
    return points - int(np.unpackbits(np.frombuffer(body[6:], np.uint8))[:points].sum())


def _check_grid(kind: int, known: bool, scanning: int) -> None:
    if kind in _GAUSSIAN:
        raise CubeError("its rows are those of a Gaussian grid, which are not evenly spaced")
    if not known:
        raise CubeError(f"its grid is of kind {kind}, which is not read")
    if scanning:
        raise CubeError("its rows do not run from west to east, one like the other")
