"""Values survive the way to bytes and back with their types, and no bytes do more harm than a DecodeError."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.peers.servicebus.codec import MAX_DEPTH, decode, decode_all, encode
from tests.peers.servicebus.types import (
    Array,
    Byte,
    Char,
    Decimal,
    DecodeError,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def _whole(kind: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(kind)


NUMBERS = (
    _whole(UByte, 8, signed=False),
    _whole(UShort, 16, signed=False),
    _whole(UInt, 32, signed=False),
    _whole(ULong, 64, signed=False),
    _whole(Byte, 8, signed=True),
    _whole(Short, 16, signed=True),
    _whole(Int, 32, signed=True),
    _whole(int, 64, signed=True),
    _whole(Timestamp, 64, signed=True),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=260).map(Symbol)
SIMPLE = (
    *NUMBERS,
    st.booleans(),
    st.none(),
    st.text(max_size=260),
    SYMBOLS,
    st.binary(max_size=260),
    st.uuids(),
    st.characters(codec="utf-8").map(Char),
)
ARRAYS = st.one_of(*(st.lists(kind, max_size=5) for kind in SIMPLE)).map(lambda items: Array(tuple(items)))
DECIMALS = st.sampled_from([(0x74, 4), (0x84, 8), (0x94, 16)]).flatmap(
    lambda kind: st.binary(min_size=kind[1], max_size=kind[1]).map(lambda raw: Decimal(kind[0], raw))
)
VALUES = st.recursive(
    st.one_of(*SIMPLE, ARRAYS, DECIMALS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.text(max_size=20), inner, max_size=6),
        st.builds(Described, SYMBOLS, inner),
    ),
    max_leaves=8,
)


def _typed(value: Any) -> Any:
    """Return a value with the type of every part, since equality overlooks them."""
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if isinstance(value, dict):
        return [(_typed(key), _typed(item)) for key, item in value.items()]
    if isinstance(value, Array):
        return Array, [_typed(item) for item in value.items]
    if isinstance(value, Described):
        return Described, _typed(value.descriptor), _typed(value.value)
    return type(value), value


@settings(max_examples=60)
@given(VALUES)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    raw = encode(value)
    found, end = decode(raw)
    assert (_typed(found), end) == (_typed(value), len(raw))


@settings(max_examples=60)
@given(VALUES, st.data())
def test_a_value_that_ends_early_is_told(value: Any, data: st.DataObject) -> None:
    raw = encode(value)
    with pytest.raises(DecodeError):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@settings(max_examples=80)
@given(st.binary(max_size=60))
def test_any_bytes_decode_or_are_refused(raw: bytes) -> None:
    try:
        decode_all(raw)
    except DecodeError:
        return


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("40", None),
        ("5601", True),
        ("43", UInt(0)),
        ("7000000100", UInt(256)),
        ("54ff", Int(-1)),
        ("8100000000000000ff", 255),
        ("83000001690b2c5a00", Timestamp(0x1690B2C5A00)),
        ("98000102030405060708090a0b0c0d0e0f", UUID(bytes=bytes(range(16)))),
        ("a10568656c6c6f", "hello"),
        ("b300000001" + "78", Symbol("x")),
        ("45", []),
        ("c0030241a0", None),
        ("c003014141", None),
        ("c10401" + "a10161", None),
        ("e0050243" + "", None),
        ("005324c0030143", None),
    ],
)
def test_known_bytes_mean_what_the_standard_says(raw: str, value: Any) -> None:
    data = bytes.fromhex(raw)
    if value is None and raw != "40":
        with pytest.raises(DecodeError):
            decode(data)
    else:
        found, end = decode(data)
        assert (_typed(found), end) == (_typed(value), len(data))


def test_values_nest_to_a_limit() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert decode(encode(deep))[0] == deep
    with pytest.raises(DecodeError, match="deep"):
        decode(encode([deep]))


def test_a_list_cannot_promise_more_items_than_it_can_hold() -> None:
    huge = b"\xf0" + (5).to_bytes(4, "big") + (2**31).to_bytes(4, "big") + b"\x40"
    with pytest.raises(DecodeError, match="items"):
        decode(huge)


def test_what_amqp_has_no_type_for_is_refused() -> None:
    for value in (object(), Array((1, "a")), Array(([],)), {"set": {1}}):
        with pytest.raises(TypeError):
            encode(value)
