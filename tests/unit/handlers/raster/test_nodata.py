"""Nodata values are compared in the band's dtype and dropped when it cannot hold them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.raster.findings import Findings
from handlers.raster.nodata import decide_nodata, equals_nodata, in_dtype, parse_nodata

FLOAT32_LOWEST = float(np.finfo("float32").min)

KEPT = [
    ("uint8", "255", 255),
    ("uint8", "0.0", 0),
    ("int16", "-32768", -32768),
    ("int64", "-9223372036854775808", -(2**63)),
    ("uint64", "18446744073709551615", 2**64 - 1),
    ("float32", "-9999", -9999.0),
    ("float32", "nan", "nan"),
    ("float32", "-3.4028235e+38", FLOAT32_LOWEST),
    ("float32", "-3.40282346638529e+38", FLOAT32_LOWEST),
    ("float32", "-3.40282e+38", FLOAT32_LOWEST),
    ("float32", "-3.402823e+38", FLOAT32_LOWEST),
    ("float32", "3.40282306074e+38", -FLOAT32_LOWEST),
    ("float32", "-3.4e38", float(np.float32(-3.4e38))),
    ("float32", "1e20", float(np.float32(1e20))),
    ("float64", "-1.79769e+308", -1.7976931348623157e308),
    ("float64", "-1.7976931348623157e+308", -1.7976931348623157e308),
    ("float32", "-inf", "-inf"),
]

DROPPED = [
    ("uint8", "256"),
    ("uint8", "-1"),
    ("uint16", "-32768"),
    ("int16", "-9999.5"),
    ("uint8", "nan"),
    ("int64", "-4.6116860184273879e+18"),
    ("float32", "-1.7976931348623157e+308"),
    ("int32", "none at all"),
    ("int32", ""),
]


@pytest.mark.parametrize(("dtype", "tag", "expected"), KEPT)
def test_what_the_dtype_can_hold_is_kept_silently(dtype: str, tag: str, expected: object) -> None:
    findings = Findings()
    assert decide_nodata(dtype, tag, None, findings).value == expected
    assert findings.findings == []


@pytest.mark.parametrize(("dtype", "tag"), DROPPED)
def test_what_the_dtype_cannot_hold_is_dropped_with_a_warning(dtype: str, tag: str) -> None:
    findings = Findings()
    assert decide_nodata(dtype, tag, None, findings).value is None
    assert [(f.code, f.level) for f in findings.findings] == [("NODATA_DROPPED", "warning")]


def test_the_submit_wins_over_the_file_with_a_warning() -> None:
    findings = Findings()
    decided = decide_nodata("int16", "-9999", 0.0, findings)
    assert (decided.value, decided.in_file) == (0, -9999)
    assert [f.code for f in findings.findings] == ["NODATA_REPLACED"]


def test_the_same_value_from_both_sides_is_no_finding() -> None:
    findings = Findings()
    assert decide_nodata("float32", "-3.4028235e+38", FLOAT32_LOWEST, findings).value == FLOAT32_LOWEST
    assert findings.findings == []


@given(st.floats(width=32, allow_infinity=False))
def test_a_float32_value_equals_itself_after_text_and_rounding(value: float) -> None:
    decided = decide_nodata("float32", f"{value:.17g}", None, Findings())
    written = np.array([value, 1.5], np.float32)
    matches = equals_nodata(written, in_dtype(decided.value, "float32"))
    assert bool(matches[0])
    assert not matches[1] or value == 1.5


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_numbers_of_a_dtype_are_one_nodata_value(dtype: str, sign: int) -> None:
    largest = np.finfo(dtype).max
    near, far = largest * np.dtype(dtype).type(0.999995), largest * np.dtype(dtype).type(0.999)
    pixels = sign * np.array([largest, near, far, -largest, np.inf, np.nan, 0, -1], dtype)
    for nodata in (largest, near):
        found = equals_nodata(pixels, np.dtype(dtype).type(sign * nodata))
        assert found.tolist() == [True, True, *[False] * 6]


@given(st.text(max_size=12))
def test_no_text_breaks_the_parser(text: str) -> None:
    number = parse_nodata(text)
    assert number is None or isinstance(number, int | float)
