"""The type system of AMQP 1.0: values to bytes and back.

What was decoded encodes to the same type again, if not always to the same of its forms.
Source: OASIS AMQP 1.0, part 1.
"""

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

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

MAX_DEPTH: Final = 32
"""Lists, maps, arrays and described values may lie this deep in each other."""
MAX_FREE_ITEMS: Final = 1024
"""An array's items may take no bytes at all (null, true); so many of them are believed."""


Encoder = Callable[[Any, bytearray], None]
_FIXED: Final[dict[int, tuple[str, type]]] = {
    0x50: (">B", UByte),
    0x51: (">b", Byte),
    0x60: (">H", UShort),
    0x61: (">h", Short),
    0x70: (">I", UInt),
    0x71: (">i", Int),
    0x72: (">f", Float),
    0x80: (">Q", ULong),
    0x81: (">q", int),
    0x82: (">d", float),
    0x83: (">q", Timestamp),
}
_ONE_BYTE: Final[dict[int, tuple[str, type]]] = {
    0x52: (">B", UInt),
    0x53: (">B", ULong),
    0x54: (">b", Int),
    0x55: (">b", int),
}
_CONSTANTS: Final[dict[int, Any]] = {
    0x40: None,
    0x41: True,
    0x42: False,
    0x43: UInt(0),
    0x44: ULong(0),
}
_DECIMALS: Final = {0x74: 4, 0x84: 8, 0x94: 16}
_TEXTS: Final[dict[int, tuple[int, Callable[[bytes], Any]]]] = {
    0xA0: (1, bytes),
    0xB0: (4, bytes),
    0xA1: (1, lambda raw: raw.decode("utf-8")),
    0xB1: (4, lambda raw: raw.decode("utf-8")),
    0xA3: (1, lambda raw: Symbol(raw.decode("ascii"))),
    0xB3: (4, lambda raw: Symbol(raw.decode("ascii"))),
}
_UNPACKERS: Final = {code: (struct.Struct(layout), kind) for code, (layout, kind) in (_FIXED | _ONE_BYTE).items()}


def decode(data: bytes, pos: int = 0, depth: int = 0) -> tuple[Any, int]:
    """Return the value that begins at a position, and the position after it.

    Raises:
        DecodeError: the bytes end early, nest too deep or are of no known type.
    """
    try:
        return _decode(data[pos], data, pos + 1, depth)
    except (IndexError, struct.error, UnicodeDecodeError, OverflowError, TypeError, ValueError) as error:
        raise DecodeError(f"at byte {pos}: {error}") from error


def decode_all(data: bytes) -> list[Any]:
    """Return every value of a byte string."""
    values, pos = [], 0
    while pos < len(data):
        value, pos = decode(data, pos)
        values.append(value)
    return values


def _decode(code: int, data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    if (number := _UNPACKERS.get(code)) is not None:
        layout, kind = number
        (value,) = layout.unpack_from(data, pos)
        return (value if kind is int or kind is float else kind(value)), pos + layout.size
    if code in _CONSTANTS:
        return _CONSTANTS[code], pos
    if (text := _TEXTS.get(code)) is not None:
        width, build = text
        size = int.from_bytes(_slice(data, pos, width), "big")
        pos += width
        return build(_slice(data, pos, size)), pos + size
    return _decode_rare(code, data, pos, depth)


def _decode_rare(code: int, data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise DecodeError(f"values lie more than {MAX_DEPTH} deep in each other")
    if code == 0x00:
        descriptor, pos = _decode(data[pos], data, pos + 1, depth + 1)
        value, pos = _decode(data[pos], data, pos + 1, depth + 1)
        return Described(descriptor, value), pos
    if code == 0x45:
        return [], pos
    if code in (0xC0, 0xD0, 0xC1, 0xD1):
        return _decode_compound(code, data, pos, depth)
    if code in (0xE0, 0xF0):
        return _decode_array(1 if code == 0xE0 else 4, data, pos, depth)
    if code == 0x56:
        return _slice(data, pos, 1) != b"\0", pos + 1
    if code == 0x98:
        return UUID(bytes=_slice(data, pos, 16)), pos + 16
    if code == 0x73:
        return Char(_slice(data, pos, 4).decode("utf-32-be")), pos + 4
    if (size := _DECIMALS.get(code)) is not None:
        return Decimal(code, _slice(data, pos, size)), pos + size
    raise DecodeError(f"no type has the code 0x{code:02x}")


def _slice(data: bytes, pos: int, size: int) -> bytes:
    part = data[pos : pos + size]
    if len(part) != size:
        raise DecodeError(f"{size} bytes are told of at byte {pos}, {len(part)} are there")
    return part


def _sizes(width: int, data: bytes, pos: int) -> tuple[int, int, int]:
    """Return (end, count, position of the first item) of a list, map or array."""
    size = int.from_bytes(_slice(data, pos, width), "big")
    count = int.from_bytes(_slice(data, pos + width, width), "big")
    end = pos + width + size
    if end > len(data) or size < width:
        raise DecodeError(f"{size} bytes are told of at byte {pos}, {len(data) - pos - width} are there")
    if count > size and count > MAX_FREE_ITEMS:
        raise DecodeError(f"{count} items are told of in {size} bytes")
    return end, count, pos + 2 * width


def _decode_compound(code: int, data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end, count, pos = _sizes(1 if code < 0xD0 else 4, data, pos)
    values = []
    for _ in range(count):
        value, pos = _decode(data[pos], data, pos + 1, depth + 1)
        values.append(value)
    if pos != end:
        raise DecodeError(f"the items end at byte {pos}, their list at byte {end}")
    if code in (0xC0, 0xD0):
        return values, end
    if count % 2:
        raise DecodeError("a map has a key without a value")
    return dict(zip(values[::2], values[1::2], strict=True)), end


def _decode_array(width: int, data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    end, count, pos = _sizes(width, data, pos)
    code, pos = data[pos], pos + 1
    descriptor = None
    if described := code == 0x00:
        descriptor, pos = decode(data, pos, depth + 1)
        code, pos = data[pos], pos + 1
    items: list[Any] = []
    for _ in range(count):
        value, pos = _decode(code, data, pos, depth + 1)
        items.append(Described(descriptor, value) if described else value)
    if pos != end:
        raise DecodeError(f"the items end at byte {pos}, their array at byte {end}")
    return Array(tuple(items)), end


def encode(value: Any) -> bytes:
    """Return the bytes of a value."""
    out = bytearray()
    encode_into(value, out)
    return bytes(out)


def encode_into(value: Any, out: bytearray) -> None:
    """Append the bytes of a value."""
    try:
        ENCODERS[type(value)](value, out)
    except KeyError as problem:
        raise TypeError(f"{problem} has no AMQP type") from None


def _number(code: int) -> Encoder:
    layout = _UNPACKERS[code][0]

    def write(value: Any, out: bytearray) -> None:
        out.append(code)
        out += layout.pack(value)

    return write


def _short_number(code: int, small: int, zero: int | None, low: int, high: int) -> Encoder:
    """Numbers that have a form of one byte, and some of none."""
    layout = _UNPACKERS[code][0]

    def write(value: int, out: bytearray) -> None:
        if value == 0 and zero is not None:
            out.append(zero)
        elif low <= value <= high:
            out.append(small)
            out.append(value & 0xFF)
        else:
            out.append(code)
            out += layout.pack(value)

    return write


def _text(short: int, long: int, convert: Callable[[Any], bytes]) -> Encoder:
    def write(value: Any, out: bytearray) -> None:
        raw = convert(value)
        if len(raw) <= 255:
            out.append(short)
            out.append(len(raw))
        else:
            out.append(long)
            out += len(raw).to_bytes(4, "big")
        out += raw

    return write


def _write_bool(value: bool, out: bytearray) -> None:
    out.append(0x41 if value else 0x42)


def _write_none(_value: None, out: bytearray) -> None:
    out.append(0x40)


def _write_uuid(value: UUID, out: bytearray) -> None:
    out.append(0x98)
    out += value.bytes


def _write_char(value: Char, out: bytearray) -> None:
    out.append(0x73)
    out += value.encode("utf-32-be")


def _write_decimal(value: Decimal, out: bytearray) -> None:
    out.append(value.code)
    out += value.raw


def _write_described(value: Described, out: bytearray) -> None:
    out.append(0x00)
    ENCODERS[type(value.descriptor)](value.descriptor, out)
    ENCODERS[type(value.value)](value.value, out)


def write_compound(short: int, count: int, body: bytearray, out: bytearray) -> None:
    """Append a list (0xC0) or map (0xC1) whose items are encoded already."""
    if len(body) < 255 and count <= 255:
        out += bytes((short, len(body) + 1, count))
    else:
        out.append(short + 0x10)
        out += (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    out += body


def _write_list(value: list[Any], out: bytearray) -> None:
    if not value:
        out.append(0x45)
        return
    body = bytearray()
    for item in value:
        ENCODERS[type(item)](item, body)
    write_compound(0xC0, len(value), body, out)


def _write_map(value: dict[Any, Any], out: bytearray) -> None:
    body = bytearray()
    for key, item in value.items():
        ENCODERS[type(key)](key, body)
        ENCODERS[type(item)](item, body)
    write_compound(0xC1, 2 * len(value), body, out)


def _write_array(value: Array, out: bytearray) -> None:
    kinds = {type(item) for item in value.items} or {type(None)}
    if len(kinds) > 1 or (kind := kinds.pop()) not in _ARRAY_CODES:
        raise TypeError("an array holds values of one simple type")
    code = _ARRAY_CODES[kind]
    body = bytearray()
    for item in value.items:
        if code == 0x56:
            body.append(bool(item))
        elif code in _TEXTS:
            raw = item if kind is bytes else item.encode()
            body += len(raw).to_bytes(4, "big") + raw
        else:
            single = bytearray()
            _WIDE.get(kind, encode_into)(item, single)
            body += single[1:]
    out.append(0xF0)
    out += (len(body) + 5).to_bytes(4, "big") + len(value.items).to_bytes(4, "big") + bytes((code,)) + body


_WIDE: Final[dict[type, Encoder]] = {kind: _number(code) for code, (_, kind) in _FIXED.items()}
ENCODERS: Final[dict[type, Encoder]] = _WIDE | {
    type(None): _write_none,
    bool: _write_bool,
    UInt: _short_number(0x70, 0x52, 0x43, 0, 255),
    ULong: _short_number(0x80, 0x53, 0x44, 0, 255),
    Int: _short_number(0x71, 0x54, None, -128, 127),
    int: _short_number(0x81, 0x55, None, -128, 127),
    bytes: _text(0xA0, 0xB0, bytes),
    bytearray: _text(0xA0, 0xB0, bytes),
    str: _text(0xA1, 0xB1, lambda text: text.encode("utf-8")),
    Symbol: _text(0xA3, 0xB3, lambda text: text.encode("ascii")),
    UUID: _write_uuid,
    Char: _write_char,
    Decimal: _write_decimal,
    Described: _write_described,
    Array: _write_array,
    list: _write_list,
    dict: _write_map,
}
_ARRAY_CODES: Final[dict[type, int]] = {kind: code for code, (_, kind) in _FIXED.items()} | {
    type(None): 0x40,
    bool: 0x56,
    bytes: 0xB0,
    str: 0xB1,
    Symbol: 0xB3,
    UUID: 0x98,
    Char: 0x73,
}
