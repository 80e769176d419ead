"""Avro values from bytes, one by one: passed over, or taken for a ``json`` column.

Each function gives where the value ends. None of them checks that this is within the record: whoever reads
a whole record does, once, since a place never moves back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from math import isfinite
from struct import Struct
from typing import Any, Final
from uuid import UUID

from thermocline.rules import scalars
from thermocline.rules.avro_schema import LEVELS_MAX, AvroType
from thermocline.rules.decode.exact import decimal_of, text_of_nanoseconds

__all__ = [
    "EPOCH_DAY",
    "WIDTHS",
    "Malformed",
    "Passer",
    "Taker",
    "Unfit",
    "branch_of",
    "check_level",
    "long_at",
    "passer",
    "scalar_taker",
    "take_array",
    "take_map",
    "take_union",
    "taker",
]

Taker = Callable[[bytes, int, int], tuple[Any, int]]
"""Takes the value at a place of a record, at a level of nesting; gives the place behind it, too."""
Passer = Callable[[bytes, int, int], int]

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LONG_SHIFT_MAX: Final = 63
WIDTHS: Final = {"boolean": 1, "float": 4, "double": 8}
_float: Final = Struct("<f").unpack_from
_double: Final = Struct("<d").unpack_from


class Malformed(ValueError):
    """Why bytes are no record of their schema."""


class Unfit:
    """In the place of a value that its record has, and that a column can't have."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """The variable-length number at a place, its sign still in the lowest bit, and where it ends."""
    number = data[at]
    if number < 128:
        return number, at + 1
    shift = 7
    while True:
        at += 1
        byte = data[at]
        number += (byte - 1) << shift  # less the bit by which the byte before says that this one follows
        if byte < 128:
            break
        shift += 7
        if shift > _LONG_SHIFT_MAX:  # safety: avro-number-length
            raise Malformed("a number takes more than 10 bytes")
    if number >> 64:
        raise Malformed("a number has more than 64 bits")
    return number, at + 1


def passer(of: AvroType, known: dict[int, Passer] | None = None) -> Passer:
    """Passes over values of a type: what no column asks for is measured, not read."""
    known = {} if known is None else known
    if id(of) not in known:
        # One that contains itself finds itself here.
        known[id(of)] = lambda data, at, level: known[id(of)](data, at, level)  # noqa: PLW0108  (not known yet)
        known[id(of)] = _passer(of, known)
    return known[id(of)]


def _passer(of: AvroType, known: dict[int, Passer]) -> Passer:
    if of.is_empty:
        return lambda _data, at, _: at
    match of.kind:
        case "int" | "long" | "enum":
            return lambda data, at, _: long_at(data, at)[1]
        case "string" | "bytes":
            return lambda data, at, _: _content(data, at)[1]
        case "boolean" | "float" | "double" | "fixed":
            width = of.size or WIDTHS[of.kind]
            return lambda _data, at, _: at + width
        case "union":
            branches = [passer(branch, known) for branch in of.branches]
            return lambda data, at, level: _pass_union(branches, data, at, level)
        case "record":
            fields: list[Passer] = []
            fields += [passer(type_, known) for _, type_ in of.fields]
            return lambda data, at, level: _pass_record(fields, data, at, level)
    assert of.items is not None
    item, is_empty, is_map = passer(of.items, known), of.items.is_empty, of.kind == "map"
    return lambda data, at, level: _pass_blocks(item, is_empty and not is_map, is_map, data, at, level)


def _pass_union(branches: list[Passer], data: bytes, at: int, level: int) -> int:
    number, at = long_at(data, at)
    return branches[branch_of(number, len(branches))](data, at, level)


def _pass_record(fields: list[Passer], data: bytes, at: int, level: int) -> int:
    check_level(level)
    for field in fields:
        at = field(data, at, level + 1)
    return at


def _pass_blocks(item: Passer, is_empty: bool, is_map: bool, data: bytes, at: int, level: int) -> int:
    check_level(level)
    while True:
        count, end, at = _block(data, at, is_empty)
        if not count:
            return at
        for _ in range(count):
            if is_map:
                at = _content(data, at)[1]
            at = item(data, at, level + 1)
        _check_block(at, end)


def taker(of: AvroType, known: dict[int, Taker] | None = None) -> Taker:
    """Takes values of a type as what JSON is written of: times and decimals as such, maps in order."""
    known = {} if known is None else known
    if id(of) not in known:
        known[id(of)] = lambda data, at, level: known[id(of)](data, at, level)  # noqa: PLW0108  (not known yet)
        known[id(of)] = _taker(of, known)
    return known[id(of)]


def _taker(of: AvroType, known: dict[int, Taker]) -> Taker:
    match of.kind:
        case "union":
            branches = [taker(branch, known) for branch in of.branches]
            return lambda data, at, level: take_union(branches, data, at, level)
        case "record":
            fields = [(name, taker(type_, known)) for name, type_ in of.fields]
            return lambda data, at, level: _take_record(fields, data, at, level)
        case "array" | "map":
            assert of.items is not None
            item, is_empty = taker(of.items, known), of.items.is_empty
            if of.kind == "map":
                return lambda data, at, level: take_map(item, data, at, level)
            return lambda data, at, level: take_array(item, is_empty, data, at, level)
    take, convert = scalar_taker(of), _JSON_OF.get(of.logical)
    if convert is None:
        return take

    def converted(data: bytes, at: int, level: int) -> tuple[Any, int]:
        value, at = take(data, at, level)
        try:
            return convert(value, of), at
        except (ValueError, OverflowError) as error:
            return Unfit(f"{of}: {error}"), at

    return converted


def scalar_taker(of: AvroType) -> Taker:
    """Takes values of a type that has none within it, whatever their logical type says."""
    if of.kind == "fixed":
        return lambda data, at, _: (data[at : at + of.size], at + of.size)
    if of.kind == "enum":
        return lambda data, at, _: _take_symbol(of.symbols, data, at)
    return _SCALARS[of.kind]


def _take_int(data: bytes, at: int, _: int) -> tuple[int, int]:
    number, at = long_at(data, at)
    if number >> 32:
        raise Malformed("an int has more than 32 bits")
    return (number >> 1) ^ -(number & 1), at


def _take_long(data: bytes, at: int, _: int) -> tuple[int, int]:
    number, at = long_at(data, at)
    return (number >> 1) ^ -(number & 1), at


def _take_string(data: bytes, at: int, _: int) -> tuple[str, int]:
    content, at = _content(data, at)
    return content.decode(), at


def _take_symbol(symbols: tuple[str, ...], data: bytes, at: int) -> tuple[str, int]:
    number, at = long_at(data, at)
    return symbols[branch_of(number, len(symbols))], at


def take_union(branches: list[Taker], data: bytes, at: int, level: int) -> tuple[Any, int]:
    """The value of the branch that is there."""
    number, at = long_at(data, at)
    return branches[branch_of(number, len(branches))](data, at, level)


def _take_record(
    fields: list[tuple[str, Taker]], data: bytes, at: int, level: int
) -> tuple[dict[str, Any], int]:
    check_level(level)
    record = {}
    for name, take in fields:
        record[name], at = take(data, at, level + 1)
    return record, at


def take_array(item: Taker, is_empty: bool, data: bytes, at: int, level: int) -> tuple[list[Any], int]:
    """Its items; ``is_empty``: their type's values take no bytes."""
    check_level(level)
    items: list[Any] = []
    while True:
        count, end, at = _block(data, at, is_empty)
        if not count:
            return items, at
        for _ in range(count):
            value, at = item(data, at, level + 1)
            items.append(value)
        _check_block(at, end)


def take_map(item: Taker, data: bytes, at: int, level: int) -> tuple[dict[str, Any], int]:
    """Its entries by their names, the last of equal ones: producers write them in any order."""
    check_level(level)
    entries: dict[str, Any] = {}
    while True:
        count, end, at = _block(data, at, is_empty=False)
        if not count:
            return dict(sorted(entries.items())), at
        for _ in range(count):
            name, at = _take_string(data, at, level)
            entries[name], at = item(data, at, level + 1)
        _check_block(at, end)


def branch_of(number: int, count: int) -> int:
    """A union's branch, or an enum's symbol, by the number that is written of it."""
    if number & 1 or number >> 1 >= count:
        raise Malformed(f"a union or an enum of {count} has no number {(number >> 1) ^ -(number & 1)}")
    return number >> 1


def _content(data: bytes, at: int) -> tuple[bytes, int]:
    number, at = long_at(data, at)
    end = at + (number >> 1)
    if number & 1 or end > len(data):
        raise Malformed(f"a length of {(number >> 1) ^ -(number & 1):,} is beyond the record's end")
    return data[at:end], end


def _block(data: bytes, at: int, is_empty: bool) -> tuple[int, int | None, int]:
    """How many items follow, where they end if that is said, and where they begin."""
    number, at = long_at(data, at)
    count, end = (number >> 1) ^ -(number & 1), None
    if count < 0:
        size, at = long_at(data, at)
        count, end = -count, at + (size >> 1)
        if size & 1:
            raise Malformed("a block of items has a negative size")
    if count and is_empty:  # safety: avro-empty-items
        raise Malformed("an array has items that take no bytes: their number is not to be believed")
    if count > len(data) - at:
        raise Malformed(f"{count:,} items are more than the record has bytes left")
    return count, end, at


def _check_block(at: int, end: int | None) -> None:
    if end is not None and at != end:  # safety: avro-block-size
        raise Malformed("a block of items is not as long as it says")


def check_level(level: int) -> None:
    """Raises `Malformed` where a record, an array or a map is nested too deeply."""
    if level >= LEVELS_MAX:  # safety: avro-levels
        raise Malformed(f"nested more than {LEVELS_MAX} levels deep")


def _boolean(byte: int) -> bool:
    if byte > 1:
        raise Malformed(f"a boolean is {byte}, not 0 or 1")
    return byte == 1


def _finite(number: float) -> float | Unfit:
    return number if isfinite(number) else Unfit(f"JSON has no {number}")


_SCALARS: Final[dict[str, Taker]] = {
    "null": lambda _data, at, _: (None, at),
    "boolean": lambda data, at, _: (_boolean(data[at]), at + 1),
    "int": _take_int,
    "long": _take_long,
    "float": lambda data, at, _: (_finite(_float(data, at)[0]), at + 4),
    "double": lambda data, at, _: (_finite(_double(data, at)[0]), at + 8),
    "bytes": lambda data, at, _: _content(data, at),
    "string": _take_string,
}
_JSON_OF: Final[dict[str, Callable[[Any, AvroType], Any]]] = {
    "decimal": lambda value, of: format(decimal_of(value, of.scale), "f"),
    "uuid": lambda value, _: UUID(bytes=value) if isinstance(value, bytes) else scalars.uuid(value),
    "date": lambda value, _: date.fromordinal(value + EPOCH_DAY),
    "time-millis": lambda value, _: scalars.time_of_day(value * 1_000),
    "time-micros": lambda value, _: scalars.time_of_day(value),
    "timestamp-millis": lambda value, _: scalars.instant(value * 1_000),
    "timestamp-micros": lambda value, _: scalars.instant(value),
    "timestamp-nanos": lambda value, _: text_of_nanoseconds(value, "Z"),
    "local-timestamp-millis": lambda value, _: scalars.local_instant(value * 1_000),
    "local-timestamp-micros": lambda value, _: scalars.local_instant(value),
    "local-timestamp-nanos": lambda value, _: text_of_nanoseconds(value, ""),
}
