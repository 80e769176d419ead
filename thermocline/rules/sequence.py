"""The sequence of a record or a row: the columns that order a key's records, as bytes that sort as they do.

The bytes are those of a key made of these columns (`thermocline.rules.keys`); a time is its microseconds.
A record of a lower sequence than the state that it meets loses. The state of a key is its row, or the last
delete that is remembered of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.keys import encode_columns, encode_values, flat_column

if TYPE_CHECKING:
    from thermocline.rules.definition import Column, LiveTable

__all__ = ["encode_one", "encode_table"]

_EPOCHS: Final = {
    Kind.TIMESTAMPTZ: datetime(1970, 1, 1, tzinfo=UTC),
    Kind.TIMESTAMP: datetime(1970, 1, 1),  # noqa: DTZ001  (a time without a zone)
}
_LONG: Final = ColumnType(Kind.LONG)


def encode_table(definition: LiveTable, table: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
    """The sequence of every row, from its columns found by name. They must not be null."""
    columns = definition.sequence_columns
    arrays = [_number(column, flat_column(table.column(column.name), column)) for column in columns]
    return encode_columns(_numbered(columns), arrays)


def encode_one(definition: LiveTable, values: Sequence[Any]) -> bytes:
    """The sequence of one row, from the natural values of its columns."""
    columns = definition.sequence_columns
    numbers = [
        (value - _EPOCHS[column.type.kind]) // timedelta(microseconds=1)
        if column.type.kind in _EPOCHS
        else value
        for column, value in zip(columns, values, strict=True)
    ]
    return encode_values(_numbered(columns), numbers)


def _number(column: Column, values: pa.Array) -> pa.Array:
    return values.view(pa.int64()) if column.type.kind in _EPOCHS else values


@lru_cache(maxsize=64)  # of a few tables, as they were altered
def _numbered(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns, with times as numbers."""
    return tuple(replace(one, type=_LONG) if one.type.kind in _EPOCHS else one for one in columns)
