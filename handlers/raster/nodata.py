"""Rules about nodata values: compared in the band's own dtype, dropped when the dtype cannot hold them."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.errors import DataError
from handlers.raster.facts import NodataValue
from handlers.raster.findings import Findings

EXACT_IN_DOUBLE: Final = 2**53
"""Whole numbers up to it are told apart by a double, by way of which GDAL resamples and rasterio sets nodata."""
_ALMOST: Final = 1e-5
"""How far text of six digits may be from the largest number of a dtype that it means, as a part of it."""
_NAN_WORDS: Final = frozenset({"nan", "-nan", "+nan", "1.#qnan", "-1.#qnan", "-1.#ind"})


@dataclass(frozen=True, slots=True)
class NodataDecision:
    """Which value holds, and what stands in the file."""

    value: NodataValue
    in_file: NodataValue
    tag: str | None


def decide_nodata(dtype: str, tag: str | None, submitted: float | None, findings: Findings) -> NodataDecision:
    """Return the nodata value of a file; the submit's wins over the file's, with a warning when they differ."""
    in_file = None if tag is None else _usable(parse_nodata(tag), dtype)
    if tag is not None and in_file is None:
        _dropped(tag[:40], dtype, findings)
    if submitted is None:
        return NodataDecision(in_file, in_file, tag)
    chosen = _usable(submitted, dtype)
    if chosen is None:
        _dropped(submitted, dtype, findings)
        return NodataDecision(in_file, in_file, tag)
    if in_file is not None and chosen != in_file:
        findings.warn(
            "NODATA_REPLACED",
            f"the submit says nodata {chosen}, the file says {in_file}: the submit's value is used",
            field="nodata",
            was=in_file,
            now=chosen,
        )
    return NodataDecision(chosen, in_file, tag)


def parse_nodata(text: str) -> float | int | None:
    """Return the number that a GDAL_NODATA tag says, None when it says none."""
    if text.lower() in _NAN_WORDS:
        return math.nan
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def as_number(value: NodataValue) -> float | int | None:
    """Return nodata as a Python number; the words nan, inf and -inf become floats."""
    return float(value) if isinstance(value, str) else value


def as_json(value: float | int | None) -> NodataValue:
    """Return nodata as JSON can say it."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def carried(value: NodataValue, dtype: str) -> float | int | None:
    """Return nodata for a copy of the pixels.

    Raises:
        DataError: DTYPE_UNSUPPORTED when a 64-bit nodata value cannot be carried over exactly.
    """
    nodata = as_number(value)
    if isinstance(nodata, int) and abs(nodata) > EXACT_IN_DOUBLE:
        raise DataError(
            f"nodata {nodata} of {dtype} pixels cannot be carried over exactly",
            code="DTYPE_UNSUPPORTED",
            field="dtype",
            value=dtype,
            remediation="Use a nodata value within ±2^53, or a 32-bit type.",
        )
    return nodata


def in_dtype(value: NodataValue, dtype: str) -> Any:
    """Return nodata as a scalar of the band's dtype, None when there is none."""
    number = as_number(value)
    return None if number is None else np.dtype(dtype).type(number)


def equals_nodata(values: NDArray[Any], nodata: Any) -> NDArray[np.bool_]:
    """Return where pixels are nodata, given the scalar of their own dtype; NaN equals NaN.

    The largest numbers of a float dtype are one nodata value, as GDAL has it: files write them with six digits or more.
    """
    if values.dtype.kind == "f":
        if np.isnan(nodata):
            return np.asarray(np.isnan(values), np.bool_)
        limit = np.finfo(values.dtype).max * values.dtype.type(1 - _ALMOST)
        if limit <= abs(nodata) < np.inf:
            beyond = values >= limit if nodata > 0 else values <= -limit
            return np.asarray(beyond & np.isfinite(values), np.bool_)
    return np.asarray(np.equal(values, nodata), np.bool_)


def _usable(value: float | int | None, dtype: str) -> NodataValue:
    """Return the value as the dtype holds it, None when it cannot."""
    if value is None:
        return None
    kind = np.dtype(dtype)
    return _usable_float(float(value), kind) if kind.kind == "f" else _usable_integer(value, kind)


def _usable_float(value: float, dtype: np.dtype[Any]) -> NodataValue:
    if not math.isfinite(value):
        return as_json(value)
    largest = float(np.finfo(dtype).max)
    if abs(abs(value) - largest) <= largest * _ALMOST:
        # Text such as -3.4028235e+38 or -3.40282e+38 means the smallest float32, though a little beyond or within it.
        return math.copysign(largest, value)
    if abs(value) > largest:
        return None
    return float(dtype.type(value))


def _usable_integer(value: float | int, dtype: np.dtype[Any]) -> NodataValue:
    if isinstance(value, float):
        if not math.isfinite(value) or not value.is_integer() or abs(value) > EXACT_IN_DOUBLE:
            return None
        value = int(value)
    limits = np.iinfo(dtype)
    return value if limits.min <= value <= limits.max else None


def _dropped(value: Any, dtype: str, findings: Findings) -> None:
    findings.warn(
        "NODATA_DROPPED",
        f"nodata {value} cannot occur in {dtype} pixels and was dropped",
        field="nodata",
        was=value,
    )
