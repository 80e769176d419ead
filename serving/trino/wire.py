"""Thrift's binary protocol, strict, as far as the connector of Trino speaks it.

Structs are read as mappings of field ids to values, text and binary both as bytes. They are written by
concatenation: a struct is its fields and `STOP`.

Source: https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

__all__ = [
    "BOOL",
    "DOUBLE",
    "I32",
    "I64",
    "LIST",
    "PASSED_ON",
    "PROCESS",
    "SET",
    "STOP",
    "STRING",
    "STRUCT",
    "Call",
    "Malformed",
    "binary",
    "failed",
    "field",
    "i32",
    "i64",
    "listed",
    "passed_on",
    "process_call",
    "raised",
    "read_call",
    "replied",
    "text",
]

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
STOP: Final = b"\0"
VALUES_MAX: Final = 1_000_000
"""Of a message: an empty one takes a byte of it, and seventy of memory. A condition has ten for a value."""
LEVELS_MAX: Final = 16
"""Of values within each other; a condition of Trino's has nine."""

_VERSION: Final = 0x80010000
_VERSION_MASK: Final = 0xFFFF0000
_CALL, _REPLY, _EXCEPTION = 1, 2, 3
PASSED_ON: Final = "thermoclinePassedOn"
PROCESS: Final = "thermoclineProcess"
"""The methods of calls between servers: another call, and which process answers."""
_UNKNOWN_METHOD, _PROTOCOL_ERROR = 1, 7
_FIELD: Final = Struct(">bh")
_LIST: Final = Struct(">bi")
_MAP: Final = Struct(">bbi")
_I32: Final = Struct(">i")
_U32: Final = Struct(">I")
_NUMBERS: Final = {
    BYTE: Struct(">b"),
    DOUBLE: Struct(">d"),
    I16: Struct(">h"),
    I32: _I32,
    I64: Struct(">q"),
}


class Malformed(ValueError):
    """Bytes that are no call in this protocol."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call: its arguments by field id."""

    method: str
    sequence_id: int
    arguments: dict[int, Any]


def read_call(message: bytes) -> Call:
    """The call in a frame. Raises `Malformed`."""
    reader = _Reader(message)
    try:
        head = reader.number(_U32)
        if head & _VERSION_MASK != _VERSION or head & 0xFF != _CALL:
            raise Malformed("not a call in the strict binary protocol")
        method = reader.binary().decode("ascii")
        sequence_id = reader.number(_I32)
        return Call(method, sequence_id, reader.struct(LEVELS_MAX))
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise Malformed("a message that breaks off, or of a type that is not known") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._values_left = VALUES_MAX

    def number(self, form: Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def binary(self) -> bytes:
        return self._take(self.number(_I32))

    def struct(self, levels: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        while kind := self._take(1)[0]:
            (field_id,) = _NUMBERS[I16].unpack(self._take(2))
            found[field_id] = self._value(kind, levels)
        return found

    def _value(self, kind: int, levels: int) -> Any:
        if levels == 0:
            raise Malformed("values too deep within each other")
        self._values_left -= 1
        if self._values_left < 0:
            raise Malformed(f"more than {VALUES_MAX:,} values")
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == BOOL:
            return self._take(1) != b"\0"
        if kind == STRING:
            return self.binary()
        if kind == STRUCT:
            return self.struct(levels - 1)
        if kind == MAP:
            keys, values, count = _MAP.unpack(self._take(_MAP.size))
            return {self._value(keys, levels - 1): self._value(values, levels - 1) for _ in range(count)}
        if kind in (LIST, SET):
            of, count = _LIST.unpack(self._take(_LIST.size))
            return [self._value(of, levels - 1) for _ in range(count)]
        raise KeyError(kind)

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if count < 0 or len(taken) < count:  # also ends a list that claims more than the message holds
            raise IndexError
        self._at += count
        return taken


def field(kind: int, field_id: int, value: bytes) -> bytes:
    """A field of a struct, with its value as written."""
    return _FIELD.pack(kind, field_id) + value


def binary(value: bytes) -> bytes:
    """Bytes as a value."""
    return _I32.pack(len(value)) + value


def text(value: str) -> bytes:
    """Text as a value."""
    return binary(value.encode())


def i32(value: int) -> bytes:
    """A 32-bit integer as a value."""
    return _I32.pack(value)


def i64(value: int) -> bytes:
    """A 64-bit integer as a value."""
    return _NUMBERS[I64].pack(value)


def listed(kind: int, values: Sequence[bytes]) -> bytes:
    """A list or set of values as written."""
    return _LIST.pack(kind, len(values)) + b"".join(values)


def process_call() -> bytes:
    """A call that asks which process answers."""
    return _head(_CALL, PROCESS, 0) + STOP


def passed_on(message: bytes) -> bytes:
    """A call of one server to another one, of a call that it was asked."""
    return _head(_CALL, PASSED_ON, 0) + field(STRING, 1, binary(message)) + STOP


def replied(call: Call, kind: int, result: bytes) -> bytes:
    """The reply with a result."""
    return _head(_REPLY, call.method, call.sequence_id) + field(kind, 0, result) + STOP


def failed(call: Call, message: str, is_retryable: bool) -> bytes:
    """The reply with the service's own exception, whose message the user reads."""
    told = field(STRING, 1, text(message)) + field(BOOL, 2, bytes([is_retryable])) + STOP
    return _head(_REPLY, call.method, call.sequence_id) + field(STRUCT, 1, told) + STOP


def raised(call: Call | None, message: str) -> bytes:
    """The protocol's exception: for a method that is not there, or a message that can't be read."""
    kind = _PROTOCOL_ERROR if call is None else _UNKNOWN_METHOD
    method, sequence_id = ("", 0) if call is None else (call.method, call.sequence_id)
    body = field(STRING, 1, text(message)) + field(I32, 2, i32(kind)) + STOP
    return _head(_EXCEPTION, method, sequence_id) + body


def _head(kind: int, method: str, sequence_id: int) -> bytes:
    return _U32.pack(_VERSION | kind) + text(method) + i32(sequence_id)
