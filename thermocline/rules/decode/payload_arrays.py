"""Many packed rows as Arrow columns, without a Python object for each value, save those of nested columns.

A payload is a MessagePack array with one cell for each value column. The rows are walked cell by cell, all
rows at once: a cell's first byte says what it is and how long.
Source: MessagePack specification, "Formats" and "Timestamp extension type".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.byte_columns import Bytes, Positions, big_endian, positions_and_bytes, text
from thermocline.rules.column_types import ColumnType, Packing, for_every
from thermocline.rules.decode.arrow import arrow_array
from thermocline.rules.decode.payload import nested_unpacker
from thermocline.rules.definition import LiveTable

__all__ = ["unpack_arrays"]

_ANY_DAY: Final = "1970-01-01T"
NIL: Final = 0xC0
TRUE: Final = 0xC3
NUMBERS: Final = {
    0xCB: "f8",
    0xCC: "u1", 0xCD: "u2", 0xCE: "u4", 0xCF: "u8",
    0xD0: "i1", 0xD1: "i2", 0xD2: "i4", 0xD3: "i8",
}  # fmt: skip
LENGTH_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # of binary and of strings
TIMESTAMP_32, TIMESTAMP_64, TIMESTAMP_96 = 0xD6, 0xD7, 0xC7
MICROSECONDS: Final = 1_000_000  # in a second
NANOSECONDS: Final = 1_000  # in a microsecond
SECONDS_BITS: Final = np.uint64(34)  # of a 64-bit timestamp; the nanoseconds lie above them


@dataclass(frozen=True, slots=True)
class _Cells:
    """One cell of each row: its first byte, and where its content begins and where the next cell does."""

    data: Bytes
    heads: Bytes
    starts: Positions
    stops: Positions

    @property
    def is_null(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        is_null: np.ndarray[Any, np.dtype[np.bool_]] = self.heads == NIL
        return is_null


def unpack_arrays(definition: LiveTable, payloads: pa.Array, wanted: Collection[str]) -> dict[str, pa.Array]:
    """The wanted ones of the value columns, by name and of the declared types, as ``Unpacker`` has them.

    ``payloads`` is a binary array; none of them is a tombstone's, which is empty.
    """
    ends, data = positions_and_bytes(payloads)
    columns = definition.value_columns
    positions = ends[:-1] + _array_header_bytes(len(columns))
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        cells = _cells(data, positions)
        if column.name in wanted:
            arrays[column.name] = _CONVERTED[column.type.entry.packing](cells, column.type)
        positions = cells.stops
    assert np.array_equal(positions, ends[1:]), "a payload of another definition"
    return arrays


def _array_header_bytes(count: int) -> int:
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


def _cells(data: Bytes, positions: Positions) -> _Cells:
    heads = data[positions]
    starts = positions + _BEFORE_CONTENT[heads]
    stops = starts + _CONTENT[heads]
    widths = _LENGTH[heads]
    for width in (1, 2, 4):
        measured = np.flatnonzero(widths == width)
        if len(measured):
            stops[measured] += big_endian(data, positions[measured] + 1, f"u{width}")
    assert (starts > positions).all(), "a cell that we never write"
    return _Cells(data, heads, starts, stops)


def _by_head(sizes: dict[int, int]) -> Positions:
    table = np.zeros(256, np.int64)
    table[list(sizes)] = list(sizes.values())
    return table


_FIXED_STRINGS: Final = {0xA0 + length: length for length in range(32)}
_SMALL_INTEGERS: Final = (*range(0x80), *range(0xE0, 0x100))
_TIMESTAMPS: Final = {TIMESTAMP_32: 4, TIMESTAMP_64: 8, TIMESTAMP_96: 12}
_LENGTH: Final = _by_head(LENGTH_BYTES)
_CONTENT: Final = _by_head(
    _FIXED_STRINGS | {head: np.dtype(number).itemsize for head, number in NUMBERS.items()} | _TIMESTAMPS
)
# What stands before the content: the head, a length where there is one, and the type of a timestamp.
_BEFORE_CONTENT: Final = _by_head(
    dict.fromkeys([NIL, TRUE - 1, TRUE, *_SMALL_INTEGERS, *_FIXED_STRINGS, *NUMBERS], 1)
    | {head: 1 + width for head, width in LENGTH_BYTES.items()}
    | {TIMESTAMP_32: 2, TIMESTAMP_64: 2, TIMESTAMP_96: 3}
)


def _text(cells: _Cells, column_type: ColumnType) -> pa.Array:
    """Strings, and what is packed as text: dates, times without a zone, and decimals."""
    strings = text(cells.data, cells.starts, cells.stops, cells.is_null).cast(pa.string())
    return strings if strings.type == column_type.arrow else strings.cast(column_type.arrow)


def _time(cells: _Cells, column_type: ColumnType) -> pa.Array:
    """Times of day. Arrow makes none of a text, but moments, which have one."""
    texts = text(cells.data, cells.starts, cells.stops, cells.is_null).cast(pa.string())
    moments = pc.binary_join_element_wise(_ANY_DAY, texts, "")
    return moments.cast(pa.timestamp("us")).cast(column_type.arrow)


def _binary(cells: _Cells, column_type: ColumnType) -> pa.Array:
    values = text(cells.data, cells.starts, cells.stops, cells.is_null).cast(pa.binary())
    return values if values.type == column_type.arrow else values.cast(column_type.arrow)


def _nested(cells: _Cells, column_type: ColumnType) -> pa.Array:
    """One by one: how many values there are in it is only known by reading it."""
    unpack = nested_unpacker(column_type)
    packed = text(cells.data, cells.starts, cells.stops, cells.is_null).cast(pa.binary()).to_pylist()
    return arrow_array(column_type, [None if one is None else unpack(one) for one in packed])


def _number(cells: _Cells, column_type: ColumnType) -> pa.Array:
    numbers = cells.heads.view(np.int8).astype(column_type.arrow.to_pandas_dtype())  # of the small integers
    for head, dtype in NUMBERS.items():
        places = np.flatnonzero(cells.heads == head)
        if len(places):
            numbers[places] = big_endian(cells.data, cells.starts[places], dtype)
    return pa.array(numbers, mask=cells.is_null)


def _boolean(cells: _Cells, _: ColumnType) -> pa.Array:
    return pa.array(cells.heads == TRUE, mask=cells.is_null)


def _timestamp(cells: _Cells, column_type: ColumnType) -> pa.Array:
    times = np.zeros(len(cells.heads), np.int64)
    for head, microseconds in _MICROSECONDS.items():
        places = np.flatnonzero(cells.heads == head)
        if len(places):
            times[places] = microseconds(cells.data, cells.starts[places])
    return pa.array(times, mask=cells.is_null).view(column_type.arrow)


def _of_32_bits(data: Bytes, starts: Positions) -> Positions:
    return big_endian(data, starts, "u4").astype(np.int64) * MICROSECONDS


def _of_64_bits(data: Bytes, starts: Positions) -> Positions:
    both = big_endian(data, starts, "u8")
    nanoseconds = (both >> SECONDS_BITS).astype(np.int64)
    seconds = (both & ((np.uint64(1) << SECONDS_BITS) - np.uint64(1))).astype(np.int64)
    return seconds * MICROSECONDS + nanoseconds // NANOSECONDS


def _of_96_bits(data: Bytes, starts: Positions) -> Positions:
    nanoseconds = big_endian(data, starts, "u4").astype(np.int64)
    seconds: Positions = big_endian(data, starts + 4, "i8")
    return seconds * MICROSECONDS + nanoseconds // NANOSECONDS


_MICROSECONDS: Final = {TIMESTAMP_32: _of_32_bits, TIMESTAMP_64: _of_64_bits, TIMESTAMP_96: _of_96_bits}
_CONVERTED: Final[Mapping[Packing, Callable[[_Cells, ColumnType], pa.Array]]] = for_every(
    Packing,
    {
        Packing.NUMBER: _number,
        Packing.TEXT: _text,
        Packing.BYTES: _binary,
        Packing.BOOLEAN: _boolean,
        Packing.TIMESTAMP: _timestamp,
        Packing.TIME: _time,
        Packing.NESTED: _nested,
    },
)
