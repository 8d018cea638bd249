"""The types of AMQP 1.0 that Python has none for.

Python's own stand for the others: None, bool, int as long, float as double, str, bytes, UUID, list, dict.
"""

from dataclasses import dataclass
from typing import Any


class DecodeError(ValueError):
    """The bytes are no AMQP."""


class UByte(int):
    """0 to 255."""


class UShort(int):
    """0 to 2**16 - 1."""


class UInt(int):
    """0 to 2**32 - 1."""


class ULong(int):
    """0 to 2**64 - 1."""


class Byte(int):
    """-128 to 127."""


class Short(int):
    """A signed number of 16 bits."""


class Int(int):
    """A signed number of 32 bits; a plain int has 64."""


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""


class Float(float):
    """A float of 32 bits; a plain float has 64."""


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain, in ASCII."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal of 32, 64 or 128 bits, which nothing here computes with."""

    code: int
    raw: bytes


@dataclass(slots=True)
class Described:
    """A value and the descriptor that says what it means."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type."""

    items: tuple[Any, ...]
