"""What counts as a large value, and what its reference promises."""

import pytest

from core import payloads
from core.payloads import LIMIT_BYTES, PayloadLost, ValueTooLarge, decode, encode, is_large, is_payload, ref_to


@pytest.mark.parametrize(("length", "large"), [(LIMIT_BYTES - 2, False), (LIMIT_BYTES - 1, True)])
def test_the_limit_counts_bytes_of_canonical_json(length: int, large: bool) -> None:
    assert is_large(encode("x" * length, "value")) is large
    assert is_large(encode("ä" * (length // 2), "value")) is (large and length % 2 == 0)


def test_a_value_beyond_the_largest_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "MAX_BYTES", 10)
    with pytest.raises(ValueTooLarge) as caught:
        encode("x" * 20, "output.rows")
    assert (caught.value.detail.code, caught.value.detail.field) == ("VALUE_TOO_LARGE", "output.rows")


@pytest.mark.parametrize("text", ["NaN", "[1,", "[" * 100_000])
def test_bytes_that_are_no_json_are_damage_even_with_the_right_digest(text: str) -> None:
    data = text.encode()
    with pytest.raises(PayloadLost):
        decode(ref_to("payloads/j/", data), data)


@pytest.mark.parametrize(
    ("container", "name", "expected"),
    [
        ("silver", "payloads/j/x", True),
        ("silver", "payloads", True),
        ("silver", "payloads2/x", False),
        ("bronze", "payloads/j/x", False),
        ("silver", "a/payloads/x", False),
    ],
)
def test_stored_values_are_told_by_their_place(container: str, name: str, expected: bool) -> None:
    assert is_payload(container, name) is expected
