"""Frames carry their performatives whole, and what is none is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.peers.servicebus.codec import encode
from tests.peers.servicebus.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Disposition,
    Flow,
    Open,
    Performative,
    SaslInit,
    SaslOutcome,
    Transfer,
    decode_frame,
    encode_frame,
    error,
    outcome,
)
from tests.peers.servicebus.types import DecodeError, Described, Symbol, UInt, ULong

FRAMES = [
    Open("me", "host", 512, 10, 1000, properties={Symbol("a"): 1}),
    Begin(None, 1, 2, 3),
    Attach("link", 3, role=True, source=Described(ULong(0x28), ["q"]), max_message_size=2**40),
    Flow(1, 2, 3, 4, handle=5, delivery_count=6, link_credit=7, drain=True),
    Transfer(1, 2, b"tag", 0, settled=False, more=True, payload=b"\x00Spayload"),
    Disposition(role=True, first=4, settled=True, state=outcome(ACCEPTED)),
    Close(error("amqp:decode-error", "why")),
    SaslInit(Symbol("ANONYMOUS"), b""),
    SaslOutcome(1),
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_comes_back_as_it_went(frame: Performative) -> None:
    assert decode_frame(encode_frame(7, frame)) == (7, frame)


def test_an_empty_frame_says_that_the_peer_lives() -> None:
    assert decode_frame(encode_frame(0, None)) == (0, None)


def test_every_field_is_written_even_when_null() -> None:
    """The SDK indexes fields without looking how many there are."""
    for frame in FRAMES:
        raw = encode_frame(0, frame)
        assert raw[11] in (0xC0, 0xD0)
        assert (raw[13] if raw[11] == 0xC0 else int.from_bytes(raw[16:20], "big")) == len(frame.WIRE)


def _frame(code: int, fields: list[Any]) -> bytes:
    body = encode(Described(ULong(code), fields))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


@pytest.mark.parametrize(
    "raw",
    [
        _frame(0x99, []),
        _frame(0x12, [None, UInt(1), True]),
        _frame(0x12, ["name", "one", True]),
        _frame(0x12, ["name"]),
        _frame(0x16, [UInt(1), True, None, None]),
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x09\x02\x00\x00\x00\x40",
    ],
    ids=["unknown", "null", "type", "few", "many", "offset", "no-list"],
)
def test_what_is_no_performative_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_frame(raw)


@settings(max_examples=80)
@given(st.sampled_from(FRAMES), st.data())
def test_a_damaged_frame_is_read_or_refused(frame: Performative, data: st.DataObject) -> None:
    raw = bytearray(encode_frame(0, frame))
    raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_frame(bytes(raw))
    except DecodeError:
        return
