"""A message as Service Bus keeps it: the sender's sections as they came, and those that the broker writes anew.

Source: OASIS AMQP 1.0, part 3; the annotations are those that the Azure SDK reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID

from tests.peers.servicebus.codec import decode, encode_into
from tests.peers.servicebus.types import DecodeError, Described, Symbol, Timestamp, UInt

BATCH_FORMAT: Final = 0x80013700
"""Message format of a batch: its data sections each hold one encoded message."""

_T = TypeVar("_T")
_HEADER: Final = 0x70
_DELIVERY_ANNOTATIONS: Final = 0x71
_MESSAGE_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_DATA: Final = 0x75
_SEQUENCE: Final = 0x76
_VALUE: Final = 0x77
_FOOTER: Final = 0x78
_SECTIONS: Final = frozenset(range(_HEADER, _FOOTER + 1))

_LOCK_TOKEN: Final = Symbol("x-opt-lock-token")
SCHEDULED_TIME: Final = Symbol("x-opt-scheduled-enqueue-time")
_BROKERS_OWN: Final = frozenset(
    {
        *("x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-locked-until", "x-opt-lock-token"),
        *("x-opt-message-state", "x-opt-deadletter-source", "x-opt-enqueue-sequence-number"),
    }
)


@dataclass(slots=True)
class Envelope:
    """The sections of one message. `body` holds the encoded body and footer, which the broker never opens."""

    header: list[Any] = field(default_factory=list)
    annotations: dict[Any, Any] = field(default_factory=dict)
    properties: list[Any] = field(default_factory=list)
    application: dict[Any, Any] = field(default_factory=dict)
    body: bytes = b""

    @property
    def message_id(self) -> Any:
        """The sender's id of the message, of whatever type it chose."""
        return self.properties[0] if self.properties else None

    @property
    def ttl_seconds(self) -> float | None:
        """How long the sender wants the message to live."""
        ttl = self.header[2] if len(self.header) > 2 else None
        return None if ttl is None else int(ttl) / 1000

    @property
    def scheduled_for(self) -> float | None:
        """When the sender wants the message to appear, in seconds since 1970."""
        at = self.annotations.get(SCHEDULED_TIME)
        return None if at is None else int(at) / 1000

    def copy(self) -> "Envelope":
        """Return one that may be changed apart from this one."""
        return Envelope(list(self.header), dict(self.annotations), self.properties, dict(self.application), self.body)


def sections(payload: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """Yield (descriptor, value, encoded section).

    Raises:
        DecodeError: the payload is no sequence of sections.
    """
    pos = 0
    while pos < len(payload):
        value, end = decode(payload, pos)
        if not isinstance(value, Described) or value.descriptor not in _SECTIONS:
            raise DecodeError(f"byte {pos} of the message begins no section")
        yield int(value.descriptor), value.value, payload[pos:end]
        pos = end


def parse(payload: bytes) -> Envelope:
    """Return the message that a payload holds.

    Raises:
        DecodeError: it holds none, or one without a body.
    """
    envelope = Envelope()
    body = bytearray()
    for code, value, raw in sections(payload):
        if code >= _DATA:
            body += raw
        elif code == _HEADER:
            envelope.header = _of(list, value)
        elif code == _MESSAGE_ANNOTATIONS:
            said = _of(dict, value)
            envelope.annotations = {key: item for key, item in said.items() if key not in _BROKERS_OWN}
        elif code == _PROPERTIES:
            envelope.properties = _of(list, value)
        elif code == _APPLICATION_PROPERTIES:
            envelope.application = _of(dict, value)
    if not body:
        raise DecodeError("the message has no body")
    envelope.body = bytes(body)
    return envelope


def _of(kind: type[_T], value: Any) -> _T:
    if not isinstance(value, kind):
        raise DecodeError(f"a section holds a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def split(payload: bytes, message_format: int | None) -> list[Envelope]:
    """Return the messages of a transfer: one, or those of a batch.

    The sections around a batch's data only copy the properties of its first message and are not looked at.

    Raises:
        DecodeError: the payload, or a message in it, cannot be read.
    """
    if message_format != BATCH_FORMAT:
        return [parse(payload)]
    return [parse(bytes(value)) for code, value, _ in sections(payload) if code == _DATA]


def render(
    envelope: Envelope, *, delivery_count: int = 0, annotations: dict[str, Any] | None = None, token: UUID | None = None
) -> bytes:
    """Return the payload that carries a message out, with what the broker says about it."""
    header = envelope.header
    durable, priority, ttl = (*header[:3], None, None, None)[:3]
    out = bytearray()
    _section(_HEADER, [durable, priority, ttl, None, UInt(delivery_count)], out)
    if token is not None:
        _section(_DELIVERY_ANNOTATIONS, {_LOCK_TOKEN: token}, out)
    said = envelope.annotations | {Symbol(name): value for name, value in (annotations or {}).items()}
    if said:
        _section(_MESSAGE_ANNOTATIONS, said, out)
    if envelope.properties:
        _section(_PROPERTIES, envelope.properties, out)
    if envelope.application:
        _section(_APPLICATION_PROPERTIES, envelope.application, out)
    return bytes(out) + envelope.body


def compose(*, properties: list[Any], application: dict[str, Any], value: Any) -> bytes:
    """Return the payload of a message of the broker's own, an answer to a request."""
    out = bytearray()
    _section(_PROPERTIES, properties, out)
    _section(_APPLICATION_PROPERTIES, application, out)
    _section(_VALUE, value, out)
    return bytes(out)


def body_value(envelope: Envelope) -> Any:
    """Return what a message with an amqp-value body says, or None."""
    for code, value, _ in sections(envelope.body):
        if code == _VALUE:
            return value
    return None


def milliseconds(at: float) -> Timestamp:
    """Return a time in seconds since 1970 as AMQP has it."""
    return Timestamp(round(at * 1000))


def _section(code: int, value: Any, out: bytearray) -> None:
    out += bytes((0x00, 0x53, code))
    encode_into(value, out)
