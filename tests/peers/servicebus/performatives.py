"""The frames of AMQP 1.0: a header of eight bytes, a performative, and behind a transfer its payload.

A performative goes out with all its fields: the SDK indexes them without looking how many there are.
Source: OASIS AMQP 1.0, parts 2 and 5.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tests.peers.servicebus.codec import ENCODERS, decode, encode_into, write_compound
from tests.peers.servicebus.types import Array, DecodeError, Described, Symbol, UByte, UInt, ULong, UShort

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1

ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27
_ERROR: Final = 0x1D


class Performative:
    """What a frame says; `WIRE` names the AMQP type of each field, the first `MANDATORY` ones may not be null."""

    CODE: ClassVar[int]
    WIRE: ClassVar[tuple[type, ...]]
    MANDATORY: ClassVar[int] = 0
    __slots__: tuple[str, ...] = ()


@dataclass(slots=True)
class Open(Performative):
    """Begins a connection."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Any = None
    CODE = 0x10
    MANDATORY = 1
    WIRE = (str, str, UInt, UShort, UInt, object, object, object, object, object)


@dataclass(slots=True)
class Begin(Performative):
    """Begins a session on a channel."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Any = None
    CODE = 0x11
    WIRE = (UShort, UInt, UInt, UInt, UInt, object, object, object)


@dataclass(slots=True)
class Attach(Performative):
    """Attaches a link; `role` is true for a receiver."""

    name: str
    handle: int
    role: bool
    send_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Described | None = None
    target: Described | None = None
    unsettled: Any = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Any = None
    CODE = 0x12
    MANDATORY = 3
    WIRE = (str, UInt, bool, UByte, UByte, object, object, object, bool, UInt, ULong, object, object, object)


@dataclass(slots=True)
class Flow(Performative):
    """Tells windows and, with a handle, a link's credit."""

    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None
    properties: Any = None
    CODE = 0x13
    WIRE = (UInt, UInt, UInt, UInt, UInt, UInt, UInt, UInt, bool, bool, object)


@dataclass(slots=True)
class Transfer(Performative):
    """Carries a message, or a part of one."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None
    payload: bytes = field(default=b"", repr=False)
    CODE = 0x14
    MANDATORY = 1
    WIRE = (UInt, UInt, bytes, UInt, bool, bool, UByte, object, bool, bool, bool)


@dataclass(slots=True)
class Disposition(Performative):
    """Tells the outcome of deliveries; `role` is true from their receiver."""

    role: bool
    first: int
    last: int | None = None
    settled: bool | None = None
    state: Any = None
    batchable: bool | None = None
    CODE = 0x15
    MANDATORY = 2
    WIRE = (bool, UInt, UInt, bool, object, bool)


@dataclass(slots=True)
class Detach(Performative):
    """Detaches a link."""

    handle: int
    closed: bool | None = None
    error: Any = None
    CODE = 0x16
    MANDATORY = 1
    WIRE = (UInt, bool, object)


@dataclass(slots=True)
class End(Performative):
    """Ends a session."""

    error: Any = None
    CODE = 0x17
    WIRE = (object,)


@dataclass(slots=True)
class Close(Performative):
    """Closes a connection."""

    error: Any = None
    CODE = 0x18
    WIRE = (object,)


@dataclass(slots=True)
class SaslMechanisms(Performative):
    """Offers ways to authenticate."""

    mechanisms: Any
    CODE = 0x40
    WIRE = (object,)


@dataclass(slots=True)
class SaslInit(Performative):
    """Chooses one."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None
    CODE = 0x41
    MANDATORY = 1
    WIRE = (Symbol, bytes, str)


@dataclass(slots=True)
class SaslOutcome(Performative):
    """Says whether it worked."""

    code: int
    additional_data: bytes | None = None
    CODE = 0x44
    WIRE = (UByte, bytes)


_KINDS: Final[dict[int, type[Performative]]] = {
    kind.CODE: kind
    for kind in (
        *(Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close),
        *(SaslMechanisms, SaslInit, SaslOutcome),
    )
}
_FIELDS: Final = {
    kind: tuple((name, ENCODERS.get(wire, encode_into)) for wire, name in zip(kind.WIRE, kind.__slots__, strict=False))
    for kind in _KINDS.values()
}
"""How each field is written: a field of one type goes straight to its encoder."""


def encode_frame(channel: int, performative: Performative | None) -> bytes:
    """Return a whole frame; no performative makes the empty frame that only says the peer is alive."""
    out = bytearray(8)
    out[4] = 2
    kind = AMQP_FRAME
    if performative is not None:
        kind = SASL_FRAME if performative.CODE >= SaslMechanisms.CODE else AMQP_FRAME
        out += bytes((0x00, 0x53, performative.CODE))
        _encode_fields(performative, out)
        if isinstance(performative, Transfer):
            out += performative.payload
    out[5] = kind
    out[6:8] = channel.to_bytes(2, "big")
    out[0:4] = len(out).to_bytes(4, "big")
    return bytes(out)


def _encode_fields(performative: Performative, out: bytearray) -> None:
    """Append the list of all fields; longer ones than a byte can count are rare but happen (errors, filters)."""
    body = bytearray()
    for name, encoder in _FIELDS[type(performative)]:
        value = getattr(performative, name)
        if value is None:
            body.append(0x40)
        else:
            encoder(value, body)
    write_compound(0xC0, len(performative.WIRE), body, out)


def decode_frame(frame: bytes) -> tuple[int, Performative | None]:
    """Return (channel, performative) of a whole frame; None for an empty one.

    Raises:
        DecodeError: this is no frame that AMQP 1.0 knows.
    """
    start = frame[4] * 4
    if start < 8 or start > len(frame) or frame[5] not in (AMQP_FRAME, SASL_FRAME):
        raise DecodeError("the frame's header makes no sense")
    channel = int.from_bytes(frame[6:8], "big")
    if start == len(frame):
        return channel, None
    body, end = decode(frame, start)
    if not isinstance(body, Described) or not isinstance(body.value, list):
        raise DecodeError("a frame holds a described list")
    kind = _KINDS.get(body.descriptor) if isinstance(body.descriptor, int) else None
    if kind is None or len(body.value) > len(kind.WIRE):
        raise DecodeError(f"no performative is {body.descriptor!r} with {len(body.value)} fields")
    try:
        performative = kind(*body.value)
    except TypeError as error:
        raise DecodeError(f"{kind.__name__} lacks fields") from error
    _check(performative)
    if isinstance(performative, Transfer):
        performative.payload = frame[end:]
    return channel, performative


def _check(performative: Performative) -> None:
    for index, (wire, name) in enumerate(zip(performative.WIRE, performative.__slots__, strict=False)):
        value = getattr(performative, name)
        allowed = index >= performative.MANDATORY if value is None else wire is object or isinstance(value, wire)
        if not allowed:
            raise DecodeError(f"{name} of {type(performative).__name__} is a {type(value).__name__}")


def symbols(*names: str) -> Array:
    """Return an array of symbols."""
    return Array(tuple(Symbol(name) for name in names))


def error(condition: str, description: str) -> Described:
    """Return an error as closing frames and rejections carry it."""
    return Described(ULong(_ERROR), [Symbol(condition), description, None])


def outcome(code: int, *fields: Any) -> Described:
    """Return a delivery state."""
    return Described(ULong(code), list(fields))
