"""Rules about nodata values: compared in the band's own dtype, dropped when the dtype cannot hold them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
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
_LEADING_DIGITS: Final = re.compile(r"[+-]?\d{1,20}")
_NAN_WORDS: Final = frozenset({"nan", "-nan", "+nan", "1.#qnan", "-1.#qnan", "-1.#ind"})


@dataclass(frozen=True, slots=True)
class NodataDecision:
    """Which value holds, and what stands in the file."""

    value: NodataValue
    in_file: NodataValue
    """None also where GDAL reads another number out of the text than it says."""
    tag: str | None
    of_bands: tuple[NodataValue, ...] = ()
    """What each band has for itself, where that differs: such pixels take the value that holds."""


def decide_nodata(
    dtype: str, texts: Sequence[str | None], submitted: float | None, findings: Findings
) -> NodataDecision:
    """Return the nodata value of a file; the submit's wins over the file's, with a warning when they differ.

    Args:
        dtype: Of the pixels.
        texts: What the file says, one text for all bands or one for each; None where it says nothing.
        submitted: What the submit says.
        findings: Hears what was dropped or replaced.
    """
    known = {text: _kept(text, dtype, findings) for text in dict.fromkeys(texts) if text is not None}
    values = tuple(None if text is None else known[text] for text in texts)
    chosen = None if submitted is None else _usable(submitted, dtype)
    if submitted is not None and chosen is None:
        _dropped(submitted, submitted, dtype, findings)
    differ = len(set(values)) > 1
    told = _for_all(values, dtype) if differ else values[0]
    found = texts[0] is None or _gdal_reads(texts[0], told, dtype)
    in_file = told if found and not differ else None
    of_bands = values if differ else ()
    if chosen is None:
        return NodataDecision(told, in_file, texts[0], of_bands)
    if told is not None and (of_bands or chosen != told):
        findings.warn(
            "NODATA_REPLACED",
            f"the submit says nodata {chosen}, the file says {spelled(values)}: the submit's value is used",
            field="nodata",
            was=list(of_bands) or told,
            now=chosen,
        )
    return NodataDecision(chosen, in_file, texts[0])


def spelled(values: Sequence[NodataValue]) -> str:
    """Return the values of bands in words, each once."""
    return " and ".join("none" if value is None else str(value) for value in dict.fromkeys(values))[:200]


def meant(text: str, dtype: str) -> NodataValue:
    """Return the nodata value that a text means as the dtype holds it, None when it cannot."""
    return _usable(parse_nodata(text), dtype)


def parse_nodata(text: str) -> float | int | None:
    """Return the number that a GDAL_NODATA tag says, None when it says none.

    A whole number is an int however it is spelled, if its digits leave no doubt: -9.999e3 does, 4.6116860184273879e+18
    is short for some number near it.
    """
    if text.lower() in _NAN_WORDS:
        return math.nan
    if "_" in text or not text.isascii():
        return None  # a number to Python, another one to GDAL
    try:
        number, exact = float(text), Decimal(text)
    except (ValueError, InvalidOperation):
        return None
    if not exact.is_finite() or abs(number) > 2.0**64 or exact != int(exact):
        return number
    return int(exact) if _all_digits(exact) or int(exact) == int(number) else number


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


def unify(pixels: NDArray[Any], of_bands: Sequence[Any], nodata: Any) -> int:
    """Let the nodata pixels of each band take the value of all, and return how many others hold that one as data.

    Args:
        pixels: Bands, rows, columns; changed in place.
        of_bands: Scalar of each band's own, or None.
        nodata: Scalar of all.
    """
    clashing = 0
    for band, own in zip(pixels, of_bands, strict=True):
        missing = np.zeros(band.shape, np.bool_) if own is None else equals_nodata(band, own)
        if band.dtype.kind != "f":
            clashing += int((equals_nodata(band, nodata) & ~missing).sum())
        band[missing] = nodata
    return clashing


def holds_data(pixels: NDArray[Any], of_bands: Sequence[Any]) -> NDArray[np.bool_]:
    """Return where any band of pixels (bands, rows, columns) is not its own nodata; a band with None always is."""
    found = np.zeros(pixels.shape[1:], np.bool_)
    for band, own in zip(pixels, of_bands, strict=True):
        found |= True if own is None else ~equals_nodata(band, own)
    return found


def _kept(text: str, dtype: str, findings: Findings) -> NodataValue:
    """Return what a text of the file means; when the dtype cannot hold it, None with a warning."""
    found = meant(text, dtype)
    if found is None:
        _dropped(text[:40], parse_nodata(text), dtype, findings)
    return found


def _all_digits(number: Decimal) -> bool:
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and exponent <= 0


def _gdal_reads(text: str, value: NodataValue, dtype: str) -> bool:
    """Return whether GDAL finds the value: for 64-bit integers it reads digits up to a point or exponent (strtoll)."""
    if np.dtype(dtype).kind == "f" or np.dtype(dtype).itemsize < 8:
        return True
    digits = _LEADING_DIGITS.match(text)
    return digits is not None and int(digits[0]) == value


def _for_all(values: Sequence[NodataValue], dtype: str) -> NodataValue:
    """Return one nodata value for bands that differ: NaN is never data, and numbers far from zero rarely are."""
    if np.dtype(dtype).kind == "f":
        return "nan"
    return max((value for value in values if isinstance(value, int)), key=abs)


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
        if not value.is_integer() or abs(value) >= EXACT_IN_DOUBLE:
            return None
        value = int(value)
    limits = np.iinfo(dtype)
    return value if limits.min <= value <= limits.max else None


def _dropped(said: str | float, value: float | int | None, dtype: str, findings: Findings) -> None:
    findings.warn("NODATA_DROPPED", f"nodata {said} was dropped: {_why_not(value, dtype)}", field="nodata", was=said)


def _why_not(value: float | int | None, dtype: str) -> str:
    """Return why pixels of a dtype cannot have a nodata value."""
    if value is None:
        return "it is no number"
    if np.dtype(dtype).kind == "f":
        return f"it lies beyond the largest number of {dtype} pixels"
    if isinstance(value, float) and not value.is_integer():
        return f"it is no whole number, as {dtype} pixels are"
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        return f"{dtype} pixels lie within {limits.min} and {limits.max}"
    return "beyond 2^53 only all digits tell which whole number is meant"
