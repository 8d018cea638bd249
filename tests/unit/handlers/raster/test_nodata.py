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
    ("int64", "-9999.0", -9999),
    ("int64", "-9.999e3", -9999),
    ("int64", "1e18", 10**18),
    ("int64", "9007199254740993.0", 2**53 + 1),
    ("int64", "-9.223372036854775808e+18", -(2**63)),
    ("int64", "9223372036854775807.000", 2**63 - 1),
    ("uint64", "1.8446744073709551615e19", 2**64 - 1),
    ("uint64", "1e19", 10**19),
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

NOT_WHOLE, NO_NUMBER, DOUBTFUL = "it is no whole number", "it is no number", "beyond 2^53 only all digits tell"
DROPPED = [
    ("uint8", "256", "uint8 pixels lie within 0 and 255"),
    ("uint8", "-1", "uint8 pixels lie within 0 and 255"),
    ("uint16", "-32768", "uint16 pixels lie within 0 and 65535"),
    ("int16", "-9999.5", NOT_WHOLE),
    ("uint8", "nan", NOT_WHOLE),
    ("int32", "-inf", NOT_WHOLE),
    ("int64", "-9.9995e3", NOT_WHOLE),
    ("int64", "-4.6116860184273879e+18", DOUBTFUL),
    ("uint64", "1.8446744073709e+19", DOUBTFUL),
    ("int64", "9.223372036854775808e+18", "int64 pixels lie within -9223372036854775808 and 9223372036854775807"),
    ("int64", "1e300", "int64 pixels lie within"),
    ("uint64", "-9999.0", "uint64 pixels lie within 0 and 18446744073709551615"),
    ("float32", "-1.7976931348623157e+308", "beyond the largest number of float32"),
    ("int32", "none at all", NO_NUMBER),
    ("int32", "", NO_NUMBER),
    ("int32", "9" * 5000, NOT_WHOLE),
    ("int32", "1_000", NO_NUMBER),
    ("float32", "-9_999.5", NO_NUMBER),
    ("uint8", "\u0661", NO_NUMBER),
]


@pytest.mark.parametrize(("dtype", "tag", "expected"), KEPT)
def test_what_the_dtype_can_hold_is_kept_silently(dtype: str, tag: str, expected: object) -> None:
    findings = Findings()
    assert decide_nodata(dtype, [tag], None, findings).value == expected
    assert findings.findings == []


@pytest.mark.parametrize(("dtype", "tag", "why"), DROPPED)
def test_what_the_dtype_cannot_hold_is_dropped_with_the_reason(dtype: str, tag: str, why: str) -> None:
    findings = Findings()
    assert decide_nodata(dtype, [tag], None, findings).value is None
    assert [(f.code, f.level) for f in findings.findings] == [("NODATA_DROPPED", "warning")]
    assert findings.findings[0].message.startswith(f"nodata {tag[:40]} was dropped: ")
    assert why in findings.findings[0].message


@pytest.mark.parametrize(
    ("tag", "read"), [("-9999", -9999), ("-9999.0", -9999), ("-9.999e3", None), ("1e18", None), ("-1e0", -1)]
)
def test_gdal_reads_64_bit_integers_up_to_a_point_or_exponent(tag: str, read: int | None) -> None:
    """What it would misread does not count as being in the file, so the copy gets it anew."""
    assert decide_nodata("int64", [tag], None, Findings()).in_file == read


@pytest.mark.parametrize("submitted", [2**53 + 1, -(2**53) - 1, 2**60 + 1])
def test_a_submit_that_no_double_tells_exactly_is_dropped_with_the_reason(submitted: int) -> None:
    findings = Findings()
    assert decide_nodata("int64", ["5"], float(submitted), findings).value == 5
    assert DOUBTFUL in findings.findings[0].message


@pytest.mark.parametrize(
    ("dtype", "texts"),
    [
        ("float32", ["0.1", repr(float(np.float32(0.1)))]),
        ("float32", ["-3.4028234663852886e+38", "-3.40282e+38", "-3.4028235e38"]),
        ("float32", ["16777216", "16777217"]),
        ("float16", ["-9999", "-10000"]),
        ("float64", ["1e20", "100000000000000000000"]),
        ("int16", ["-9999", "-9999.0", "-9.999e3"]),
        ("float32", ["nan", "NaN"]),
    ],
)
def test_bands_are_compared_as_their_dtype_stores_nodata(dtype: str, texts: list[str]) -> None:
    findings = Findings()
    decided = decide_nodata(dtype, texts, None, findings)
    assert (decided.of_bands, findings.findings) == ((), [])
    assert decided.value == decide_nodata(dtype, texts[:1], None, findings).value


@pytest.mark.parametrize(
    ("dtype", "texts", "value", "of_bands"),
    [
        ("float32", ["-1", "-2"], "nan", (-1.0, -2.0)),
        ("float32", ["-3.4028234663852886e+38", "-3.4e38"], "nan", (FLOAT32_LOWEST, float(np.float32(-3.4e38)))),
        ("float64", ["0.1", repr(float(np.float32(0.1)))], "nan", (0.1, float(np.float32(0.1)))),
        ("float32", [None, "-1"], "nan", (None, -1.0)),
        ("uint8", ["0", "255", None], 255, (0, 255, None)),
        ("int16", ["0", "-9999"], -9999, (0, -9999)),
    ],
)
def test_bands_that_differ_get_one_value(
    dtype: str, texts: list[str | None], value: object, of_bands: tuple[object, ...]
) -> None:
    decided = decide_nodata(dtype, texts, None, Findings())
    assert (decided.value, decided.of_bands, decided.in_file) == (value, of_bands, None)


def test_the_submit_wins_over_all_bands() -> None:
    findings = Findings()
    decided = decide_nodata("int16", ["-1", "-2", None], 0.0, findings)
    assert (decided.value, decided.of_bands) == (0, ())
    assert [(f.code, f.from_) for f in findings.findings] == [("NODATA_REPLACED", [-1, -2, None])]
    assert "-1 and -2 and none" in findings.findings[0].message


def test_the_submit_wins_over_the_file_with_a_warning() -> None:
    findings = Findings()
    decided = decide_nodata("int16", ["-9999"], 0.0, findings)
    assert (decided.value, decided.in_file) == (0, -9999)
    assert [f.code for f in findings.findings] == ["NODATA_REPLACED"]


def test_the_same_value_from_both_sides_is_no_finding() -> None:
    findings = Findings()
    assert decide_nodata("float32", ["-3.4028235e+38"], FLOAT32_LOWEST, findings).value == FLOAT32_LOWEST
    assert findings.findings == []


@given(st.floats(width=32, allow_infinity=False))
def test_a_float32_value_equals_itself_after_text_and_rounding(value: float) -> None:
    decided = decide_nodata("float32", [f"{value:.17g}"], None, Findings())
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
