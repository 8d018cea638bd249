"""What the numbers of a variable mean: signs, missing values and the valid range, as CF and NetCDF have them.

Whatever means that there is nothing takes one value, the nodata value of the copy; all else stays as it is.
https://docs.unidata.ucar.edu/nug/current/attribute_conventions.html, CF 2.5.1 and 8.1.
"""

from dataclasses import dataclass
from typing import Any, Final

import h5py
import numpy as np

from handlers.raster.cube_attributes import CubeError, factor_of, numbers_of, plain_of, text_of
from handlers.raster.nodata import EXACT_IN_DOUBLE

UNWRITTEN: Final = {
    "i2": -32767, "u2": 65535, "i4": -2147483647, "u4": 4294967295, "i8": -9223372036854775806,
    "u8": 18446744073709551614, "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
}  # fmt: skip
"""What NetCDF has where nothing was written; single bytes have none."""
_MISSING: Final = ("_FillValue", "missing_value")


@dataclass(frozen=True, slots=True)
class Meaning:
    """How stored numbers become those of the copy."""

    dtype: np.dtype[Any]
    """Of the copy."""
    nodata: Any
    """Scalar of the copy's type, None where nothing says one."""
    further: tuple[Any, ...]
    """Other values that mean missing."""
    low: Any
    high: Any
    """Valid range, None where there is no bound."""
    in_values: bool
    """The range is one of unpacked values, not of stored numbers."""
    scale: float
    offset: float
    dropped: tuple[str, ...]
    """Missing values that no pixel can hold, or that are no numbers."""
    stand_in: bool = False
    """The nodata value is one of ours, for where the file's own is too large to be carried; it counts once used."""

    def told(self, stored: Any) -> tuple[Any, int]:
        """Return the pixels of stored numbers, and how many of them took the nodata value."""
        pixels = _signed(stored, stored.dtype, self.dtype).astype(self.dtype)
        strange = self._outside(pixels)
        for mark in self.further:
            strange |= _equal(pixels, mark)
        if self.nodata is None:
            return pixels, 0
        there = _equal(pixels, self.nodata)
        if self.stand_in and there.any():
            raise CubeError(f"it holds {self.nodata}, and {self.further[0]} where nothing was written")
        strange &= ~there
        pixels[strange] = self.nodata
        return pixels, int(np.count_nonzero(strange))

    def _outside(self, pixels: Any) -> Any:
        values = pixels * self.scale + self.offset if self.in_values else pixels
        strange = np.zeros(pixels.shape, bool)
        if self.low is not None:
            strange |= values < self.low
        if self.high is not None:
            strange |= values > self.high
        return strange


def meaning_of(dataset: Any) -> Meaning:
    """Return what the numbers of a variable mean.

    Raises:
        CubeError: scale, offset or the valid range are not what they should be.
    """
    attributes, dtype = dataset.attrs, _stored(dataset)
    marks, dropped = _marks(attributes, dataset.dtype, dtype)
    stand_in = False
    if (unwritten := _unwritten(dataset, dtype)) is not None:
        stand_in = not marks and dtype.kind != "f" and abs(int(unwritten)) > EXACT_IN_DOUBLE
        marks += [dtype.type(EXACT_IN_DOUBLE if dtype.kind == "u" else -EXACT_IN_DOUBLE)] if stand_in else []
        marks.append(unwritten)
    scale, offset = factor_of(attributes, "scale_factor", 1.0), factor_of(attributes, "add_offset", 0.0)
    in_values = _range_is_of_values(attributes, dtype)
    low, high = _valid_range(attributes, dataset.dtype, dtype, in_values=in_values)
    nodata = marks[0] if marks else None
    if nodata is None and (low is not None or high is not None):
        nodata = _beyond(dtype, low, high, in_values=in_values)
    return Meaning(dtype, nodata, tuple(marks[1:]), low, high, in_values, scale, offset, dropped, stand_in)


def _stored(dataset: Any) -> np.dtype[Any]:
    """Return the type of the copy; `_Unsigned` says that signs mean something else than they say."""
    dtype = np.dtype("float32") if dataset.dtype == np.float16 else np.dtype(dataset.dtype.str).newbyteorder("=")
    kind = {("i", "true"): "u", ("u", "false"): "i"}.get(
        (dtype.kind, text_of(dataset.attrs.get("_Unsigned")).lower()), dtype.kind
    )
    return np.dtype(f"{kind}{dtype.itemsize}")


def _signed(values: Any, stored: np.dtype[Any], dtype: np.dtype[Any]) -> Any:
    """Return numbers of the stored type with the signs that they mean; all others as they are."""
    if values.dtype.kind == stored.kind != dtype.kind and values.dtype.itemsize == dtype.itemsize:
        return values.astype(values.dtype.newbyteorder("=")).view(dtype)
    return values


def _marks(attributes: Any, stored: np.dtype[Any], dtype: np.dtype[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Return the values that mean missing, the fill value first, and the words for what can be none."""
    marks: list[Any] = []
    dropped = []
    for name in _MISSING:
        value = attributes.get(name)
        found = _signed(numbers_of(value), stored, dtype)
        if value is not None and not found.size:
            dropped.append(f"{text_of(value)!r} ({name})")
        for number in found[:1] if name == "_FillValue" else found:
            fitting = _fitting(number, dtype)
            if fitting is None:
                dropped.append(f"{plain_of(number)} ({name})")
            elif not any(_equal(fitting, mark) for mark in marks):
                marks.append(fitting)
    return marks, tuple(dropped)


def _fitting(number: Any, dtype: np.dtype[Any]) -> Any | None:
    """Return a number in the type of the pixels, None when none of them can hold it."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            held = dtype.type(number)
        return held if np.isfinite(held) or not np.isfinite(number) else None
    whole = int(number) if np.isfinite(number) and number == np.floor(number) else None
    limits = np.iinfo(dtype)
    return None if whole is None or not limits.min <= whole <= limits.max else dtype.type(whole)


def _unwritten(dataset: Any, dtype: np.dtype[Any]) -> Any | None:
    """Return what stands where nothing was written, where that is NetCDF's own value."""
    value = UNWRITTEN.get(f"{dataset.dtype.kind}{dataset.dtype.itemsize}")
    if value is None or dtype.kind != dataset.dtype.kind or "_FillValue" in dataset.attrs:
        return None
    own = dtype.type(value)
    if isinstance(dataset, h5py.Dataset):
        states = dataset.id.get_create_plist().fill_value_defined()
        if states != h5py.h5d.FILL_VALUE_USER_DEFINED or dataset.fillvalue != own:
            return None
    return own


def _range_is_of_values(attributes: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a range has the wider type of scale and offset, and so is one of unpacked values."""
    factors = [numbers_of(attributes.get(name)).dtype for name in ("scale_factor", "add_offset") if name in attributes]
    given = [numbers_of(attributes.get(name)) for name in ("valid_range", "valid_min", "valid_max")]
    types = {array.dtype for array in given if array.size}
    return bool(factors) and types == {np.result_type(*factors)} and types != {dtype} and dtype.kind in "iu"


def _valid_range(attributes: Any, stored: np.dtype[Any], dtype: np.dtype[Any], *, in_values: bool) -> tuple[Any, Any]:
    """Return both bounds of what is valid, each None where the file says none."""
    low, high = (_bound(attributes, stored, dtype, at) for at in (0, 1))
    if dtype.kind == "f" and not in_values:
        low, high = (None if bound is None else dtype.type(bound) for bound in (low, high))
    if any(bound is not None and np.isnan(bound) for bound in (low, high)):
        raise CubeError("its valid range is none")
    return low, high


def _bound(attributes: Any, stored: np.dtype[Any], dtype: np.dtype[Any], at: int) -> Any | None:
    name, size = ("valid_range", 2) if "valid_range" in attributes else (("valid_min", "valid_max")[at], 1)
    if name not in attributes:
        return None
    found = _signed(numbers_of(attributes[name]), stored, dtype)
    if found.size != size:
        raise CubeError(f"{name} has {found.size} numbers in place of {size}")
    return found[at % size]


def _beyond(dtype: np.dtype[Any], low: Any, high: Any, *, in_values: bool) -> Any | None:
    """Return a value outside of the valid range, to stand for all that lie there; None where every one is valid."""
    if dtype.kind == "f":
        return dtype.type("nan")
    limits = np.iinfo(dtype)
    if in_values:
        raise CubeError("its valid range is one of unpacked values, and there is no fill value beside it")
    if low is not None and low > limits.min:
        return _exact(limits.min, dtype, low)
    if high is not None and high < limits.max:
        return _exact(limits.max, dtype, high)
    return None


def _exact(value: int, dtype: np.dtype[Any], bound: Any) -> Any:
    """Return the value, or one beside the bound where a double could not hold it."""
    if abs(value) <= EXACT_IN_DOUBLE:
        return dtype.type(value)
    return dtype.type(int(np.floor(bound)) - 1 if value < 0 else int(np.ceil(bound)) + 1)


def _equal(values: Any, mark: Any) -> Any:
    return np.isnan(values) if mark != mark else values == mark
