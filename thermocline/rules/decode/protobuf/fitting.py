"""Conversions from Protobuf's fields to columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from thermocline.rules import scalars
from thermocline.rules.column_types import ColumnType, Kind, for_every
from thermocline.rules.decode.exact import (
    decimal_of,
    finite,
    instant_of_nanoseconds,
    instants,
    whole_microseconds,
)

__all__ = [
    "DATE",
    "DECIMAL",
    "TIMESTAMP",
    "TIME_OF_DAY",
    "WRAPPERS",
    "Convert",
    "NotUtf8",
    "checked_text",
    "conversion",
    "date_of",
    "described",
    "is_closed_enum",
    "is_map",
    "nanoseconds_of",
    "symbol",
    "symbols_of",
    "timestamps",
]

Convert = Callable[[Any], Any]
"""Makes a column's value of a field's; raises `ValueError` with a plain phrase where it can't be one."""

TIMESTAMP: Final = "google.protobuf.Timestamp"
DATE: Final = "google.type.Date"
TIME_OF_DAY: Final = "google.type.TimeOfDay"
DECIMAL: Final = "confluent.type.Decimal"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
NANOSECONDS: Final = 1_000_000_000  # in a second
_SECONDS: Final = attrgetter("seconds")
_NANOSECONDS: Final = attrgetter("nanos")


class NotUtf8(ValueError):
    """A string whose bytes are no text: the whole record is bad."""


def conversion(field: Any, to: ColumnType) -> Convert | None:
    """What makes the column's value of one of a singular field; None where they are the same.

    Raises:
        ValueError: the column does not take that type.
    """
    kind = _TYPES[field.type]
    if to.epoch is not None and kind in _INTEGERS:
        return to.convert
    if kind == "message":
        kind = _message(field.message_type.full_name)
    if to.kind is Kind.DECIMAL and kind == _message(DECIMAL):
        return partial(_decimal, to=to)
    if to.kind is Kind.STRING and kind == "enum":
        return partial(symbol, symbols=symbols_of(field.enum_type))
    if to.epoch is None and kind in _TAKEN[to.kind]:
        return _TAKEN[to.kind][kind]
    raise ValueError(f"the record has a value of type {described(field)}")  # safety: protobuf-other-type


def described(field: Any) -> str:
    """A field's type, in the words of a schema."""
    if is_map(field):
        return "map"
    of = field.message_type or field.enum_type
    kind = f"{_TYPES[field.type]} {of.full_name}" if of is not None else _TYPES[field.type]
    return f"repeated {kind}" if field.is_repeated else kind


def is_map(field: Any) -> bool:
    """Whether a repeated field is a map."""
    of = field.message_type
    return of is not None and bool(of.GetOptions().map_entry)


def is_closed_enum(field: Any) -> bool:
    """Whether the library hides numbers that the enum of a field, or of a map's values, does not have."""
    enum = field.message_type.fields_by_name["value"].enum_type if is_map(field) else field.enum_type
    return enum is not None and bool(enum.is_closed)


def symbols_of(enum: Any) -> dict[int, str]:
    """The names of an enum's numbers, the first of several."""
    symbols: dict[int, str] = {}
    for value in enum.values:
        symbols.setdefault(value.number, value.name)
    return symbols


def symbol(number: int, symbols: Mapping[int, str]) -> str:
    """The name of an enum's number."""
    found = symbols.get(number)
    if found is None:  # safety: protobuf-enum
        raise ValueError(f"the number {number} is not in its enum")
    return found


def checked_text(text: str | bytes) -> str:
    """A string; schemas before proto3 let bytes through that are no text."""
    if isinstance(text, bytes):
        raise NotUtf8("a string is not UTF-8")
    return text


def date_of(value: Any) -> date:
    """A google.type.Date that is a whole one."""
    try:
        return date(value.year, value.month, value.day)
    except (ValueError, OverflowError):
        raise ValueError("not a whole date of the calendar from year 1 to 9999") from None


def _time_of_day(value: Any) -> time:
    """A google.type.TimeOfDay that is one: neither the end of the day nor a leap second."""
    try:
        whole = time(value.hours, value.minutes, value.seconds)
    except (ValueError, OverflowError):
        raise ValueError("not a time of day") from None
    if not 0 <= value.nanos < NANOSECONDS:
        raise ValueError(f"a time with {value.nanos:,} nanoseconds in a second")
    return whole.replace(microsecond=whole_microseconds(value.nanos))


def nanoseconds_of(value: Any) -> int:
    """A google.protobuf.Timestamp, since 1970."""
    if not 0 <= value.nanos < NANOSECONDS:
        raise ValueError(f"a time with {value.nanos:,} nanoseconds in a second")
    return int(value.seconds) * NANOSECONDS + int(value.nanos)


def timestamps(values: Sequence[Any]) -> list[datetime | None]:
    """Many google.protobuf.Timestamp at once, or None. Raises `ValueError` where any of them is no time."""
    there = [value for value in values if value is not None]
    made = iter(instants(list(map(_SECONDS, there)), list(map(_NANOSECONDS, there))))
    return [None if value is None else next(made) for value in values]


def _decimal(value: Any, to: ColumnType) -> Decimal:
    assert to.precision is not None
    assert to.scale is not None
    return scalars.fitted(decimal_of(value.value, value.scale), to.precision, to.scale)


def _message(name: str) -> str:
    """How a message is told from a scalar type that is called the same."""
    return f"message {name}"


def _long(number: int) -> int:
    if number > scalars.LONG_RANGE[1]:
        raise ValueError("an integer out of range")
    return number


_TYPES: Final[dict[int, str]] = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in (
        *("int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64"),
        *("fixed64", "float", "double", "bool", "string", "bytes", "enum", "message", "group"),
    )
}
_INTS: Final = ("int32", "sint32", "sfixed32")
_LONGS: Final = (*_INTS, "uint32", "fixed32", "int64", "sint64", "sfixed64")
_INTEGERS: Final = (*_LONGS, "uint64", "fixed64")
_TAKEN: Final[Mapping[Kind, Mapping[str, Convert | None]]] = for_every(
    Kind,
    {
        Kind.INT: dict.fromkeys(_INTS),
        Kind.LONG: {**dict.fromkeys(_LONGS), "uint64": _long, "fixed64": _long},
        Kind.STRING: {"string": checked_text},  # and enums, see `conversion`
        Kind.DOUBLE: {"float": finite, "double": finite},
        Kind.DECIMAL: {},
        Kind.BOOLEAN: {"bool": None},
        Kind.DATE: {_message(DATE): date_of},
        Kind.TIME: {_message(TIME_OF_DAY): _time_of_day},
        Kind.TIMESTAMPTZ: {_message(TIMESTAMP): lambda value: instant_of_nanoseconds(nanoseconds_of(value))},
        Kind.TIMESTAMP: {},
        Kind.UUID: {
            "string": lambda text: scalars.uuid(checked_text(text)),
            "bytes": scalars.uuid_of_bytes,
        },
        Kind.BINARY: {"bytes": None},
        # What is nested is taken apart before, and a json column takes anything.
        **{kind: {} for kind in (Kind.JSON, Kind.STRUCT, Kind.LIST, Kind.MAP)},
    },
)
"""By the type of a field, or the message that it is."""
