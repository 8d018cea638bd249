"""Reads classic NetCDF (CDF-1, CDF-2 and CDF-5): a header, then arrays at the places that it names.

Specification: https://docs.unidata.ucar.edu/nwg/current/file_format_specifications.html. Such a file cannot name
another one. All of the header is checked against the length of the file before a pixel is read; pixels stay in the file
until they are asked for. Variables look like those of h5py as far as `cube` and its parts need it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from handlers.raster.cube_attributes import CubeError

MAGIC: Final = {b"CDF\x01": 1, b"CDF\x02": 2, b"CDF\x05": 5}
MAX_LISTED: Final = 10_000
"""Dimensions, variables, or attributes of one of them."""
_NAMES: Final = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
_TYPES: Final = {code: np.dtype(name) for code, name in enumerate(_NAMES, 1)}
"""Those above 6 are of CDF-5 alone."""
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12


@dataclass(frozen=True, slots=True)
class ClassicVariable:
    """A variable, or the coordinates of a dimension."""

    name: str
    pixels: Any
    """Array over the file, in its byte order."""
    attrs: Mapping[str, Any]
    dims: tuple[tuple["ClassicVariable", ...], ...]
    """Of each dimension its coordinates, or nothing."""
    parent: Mapping[str, "ClassicVariable"]
    """All variables of the file by name."""
    chunks: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions."""
        return tuple(self.pixels.shape)

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the pixels, in the byte order of the file."""
        found: np.dtype[Any] = self.pixels.dtype
        return found

    def __getitem__(self, places: Any) -> Any:
        return self.pixels[places]


def variables_of(path: Path) -> dict[str, ClassicVariable]:
    """Return the variables of a file by name.

    Raises:
        CubeError: the header is broken, or the file is shorter than it says.
    """
    return _Header(np.memmap(path, np.uint8, "r")).variables()


@dataclass(slots=True)
class _Declared:
    """What the header says of a variable."""

    name: str
    dimensions: tuple[int, ...]
    attributes: dict[str, Any]
    dtype: np.dtype[Any]
    begin: int
    is_record: bool
    shape: tuple[int, ...]
    """Of a record, when it has records."""


class _Header:
    """Reads a header from its start."""

    def __init__(self, content: np.memmap[Any, Any]) -> None:
        self._content = content
        self._version = MAGIC[content[:4].tobytes()]
        self._at = 4

    def variables(self) -> dict[str, ClassicVariable]:
        """Return all variables."""
        records = self._number()
        streaming = records == (1 << (64 if self._version == 5 else 32)) - 1
        dimensions = [(self._name(), self._number()) for _ in self._listed(_DIMENSIONS)]
        self._attributes()
        declared = [self._declared(dimensions) for _ in self._listed(_VARIABLES)]
        if len({one.name for one in declared}) < len(declared):
            raise CubeError("a name occurs twice")
        record_bytes = _record_bytes([one for one in declared if one.is_record])
        if streaming:
            starts = [one.begin for one in declared if one.is_record]
            records = (len(self._content) - min(starts)) // record_bytes if starts and record_bytes else 0
        found: dict[str, ClassicVariable] = {}
        for one in declared:
            shape = (records, *one.shape) if one.is_record else one.shape
            pixels = self._array(one, shape, record_bytes)
            found[one.name] = ClassicVariable(one.name, pixels, one.attributes, (), found)
        for one in declared:
            names = [dimensions[place][0] for place in one.dimensions]
            scales = tuple((found[name],) if name in found and name != one.name else () for name in names)
            whole = found[one.name]
            found[one.name] = ClassicVariable(one.name, whole.pixels, whole.attrs, scales, found)
        return found

    def _array(self, one: _Declared, shape: tuple[int, ...], record_bytes: int) -> Any:
        """Return the pixels over the file; records lie apart from each other, all else is dense."""
        inner = [one.dtype.itemsize * prod(one.shape[place + 1 :]) for place in range(len(one.shape))]
        strides = (record_bytes, *inner) if one.is_record else tuple(inner)
        dense = one.dtype.itemsize * prod(one.shape)
        end = one.begin + dense + (record_bytes * (shape[0] - 1) if one.is_record else 0)
        if prod(shape) and end > len(self._content):
            raise CubeError(f"{one.name[:40]!r} ends at byte {end}, the file has {len(self._content)}")
        if not prod(shape):
            return np.empty((0,) * len(shape), one.dtype)
        return np.ndarray(shape, one.dtype, self._content, one.begin, strides)

    def _declared(self, dimensions: list[tuple[str, int]]) -> _Declared:
        name = self._name()
        places = tuple(self._number() for _ in range(self._bounded(self._number())))
        if any(place >= len(dimensions) for place in places):
            raise CubeError("a variable has a dimension that there is not")
        attributes = self._attributes()
        dtype = self._type()
        self._number()  # its size, which follows from its shape and may be too small to hold it
        begin = self._integer(4 if self._version == 1 else 8)
        lengths = [dimensions[place][1] for place in places]
        if 0 in lengths[1:]:
            raise CubeError("a dimension without a length is not the first one")
        is_record = lengths[:1] == [0]
        return _Declared(
            name, places, attributes, dtype, begin, is_record, tuple(lengths[1:] if is_record else lengths)
        )

    def _attributes(self) -> dict[str, Any]:
        return {self._name(): self._value() for _ in self._listed(_ATTRIBUTES)}

    def _value(self) -> Any:
        dtype, count = self._type(), self._number()
        data = self._bytes(count * dtype.itemsize)
        if dtype.kind == "S":
            return data.rstrip(b"\0").decode("utf-8", "replace")
        return np.frombuffer(data, dtype)

    def _type(self) -> np.dtype[Any]:
        code = self._integer(4)
        if code not in _TYPES or (code > 6 and self._version != 5):
            raise CubeError(f"there is no type {code}")
        return _TYPES[code]

    def _listed(self, tag: int) -> range:
        found, count = self._integer(4), self._number()
        if (found, count) != (0, 0) and found != tag:
            raise CubeError(f"the header is broken at byte {self._at}")
        return range(self._bounded(count))

    def _bounded(self, count: int) -> int:
        if count > MAX_LISTED:
            raise CubeError(f"a list has {count} entries; at most {MAX_LISTED} are read")
        return count

    def _name(self) -> str:
        return self._bytes(self._number()).decode("utf-8", "replace")

    def _number(self) -> int:
        return self._integer(8 if self._version == 5 else 4)

    def _integer(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "big")

    def _bytes(self, size: int) -> bytes:
        """Return so many bytes and pass what pads them to four."""
        data = self._content[self._at : self._at + size].tobytes()
        if size > len(self._content) or len(data) < size:
            raise CubeError("the header is cut")
        self._at += size + -size % 4
        return data


def _record_bytes(variables: list[_Declared]) -> int:
    """Return how far records lie apart; a single variable of small values is not padded."""
    sizes = [one.dtype.itemsize * prod(one.shape) for one in variables]
    return sizes[0] if len(sizes) == 1 else sum(size + -size % 4 for size in sizes)
