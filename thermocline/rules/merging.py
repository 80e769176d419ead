"""Merging: how the records of a key become its row. A definition gives one object, which all readers ask.

| rule | a key's row is |
| --- | --- |
| `Append` | there is no key: every record is a row of its own |
| `LastWins` | its last record, by its place in the log |
| `BySequence` | its record of the highest sequence: the columns that order records, as bytes |
| `Partial` | its last records together: each column is from the last one that set it |

A new rule is a class of this kind. What a reader has to know of a rule, it asks here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from thermocline.rules.column_types import TYPES, ColumnType, Kind
from thermocline.rules.columns import Column
from thermocline.rules.keys import decode_columns, encode_columns, encode_values, flat_column

__all__ = ["Append", "BySequence", "LastWins", "Merging", "Partial"]

_EPOCHS: Final = {kind: entry.since for kind, entry in TYPES.items() if entry.since is not None}
_LONG: Final = ColumnType(Kind.LONG)


@dataclass(frozen=True)
class Merging:
    """A rule of merging; see the module."""

    @property
    def is_keyed(self) -> bool:
        """Whether a record takes the place of the row of its key."""
        return True

    @property
    def order_columns(self) -> tuple[Column, ...]:
        """The columns whose values order a key's records, before their places in the log do."""
        return ()

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The names of these columns; empty where the log alone orders."""
        return tuple(column.name for column in self.order_columns)

    @property
    def is_ordered(self) -> bool:
        """Whether a record may lose against the row, or the delete, that the table has of its key."""
        return bool(self.order_columns)

    @property
    def may_lack(self) -> tuple[str, ...]:
        """The value columns that a record may leave as the row below it has them."""
        return ()

    @property
    def is_partial(self) -> bool:
        """Whether a record may leave columns as they are."""
        return False

    @property
    def remembers_deletes(self) -> bool:
        """Whether a delete outlives the row, since a later record may lose against it."""
        return self.is_ordered

    @property
    def needs_every_record(self) -> bool:
        """Whether the last record of a key does not say all that the earlier ones did."""
        return self.is_ordered or self.is_partial

    @property
    def problem_in_sql(self) -> str:
        """Why views can't apply the rule to what they read of Kafka; empty where they can."""
        return ""

    def sequences(self, rows: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
        """The sequence of every row: bytes that sort as the order columns do, which are found by name.

        The columns must not be null.
        """
        arrays = [_number(one, flat_column(rows.column(one.name), one)) for one in self.order_columns]
        return encode_columns(_numbered(self.order_columns), arrays)

    def order_values(self, sequences: pa.Array) -> dict[str, pa.Array]:
        """The order columns of every sequence, a binary array, by name, as arrays of the declared types."""
        numbers = decode_columns(_numbered(self.order_columns), sequences)
        return {
            one.name: array if array.type == one.type.arrow else array.view(one.type.arrow)
            for one, array in zip(self.order_columns, numbers, strict=True)
        }

    def sequence(self, values: Sequence[Any]) -> bytes:
        """The sequence of one row, from the natural values of the order columns."""
        numbers = [
            (value - _EPOCHS[column.type.kind]) // timedelta(microseconds=1)
            if column.type.kind in _EPOCHS
            else value
            for column, value in zip(self.order_columns, values, strict=True)
        ]
        return encode_values(_numbered(self.order_columns), numbers)


class Append(Merging):
    """Every record is a row of its own, known by its place in the log."""

    @property
    def is_keyed(self) -> bool:
        """See `Merging`."""
        return False


class LastWins(Merging):
    """The last record of a key, by its place in the log, is its row."""


@dataclass(frozen=True)
class BySequence(Merging):
    """The record of the highest sequence is the row; of equal ones the last. A delete has a sequence, too.

    A record of a lower sequence than the state that it meets loses. The state of a key is its row, or the
    last delete that is remembered of it.
    """

    columns: tuple[Column, ...]

    @property
    def order_columns(self) -> tuple[Column, ...]:
        """See `Merging`."""
        return self.columns

    @property
    def problem_in_sql(self) -> str:
        """See `Merging`."""
        return "records that columns order (sequence_by) are not compared with the table's rows in SQL"


@dataclass(frozen=True)
class Partial(Merging):
    """A record may set some columns only, and leaves the others as they are."""

    columns: tuple[Column, ...]

    @property
    def may_lack(self) -> tuple[str, ...]:
        """See `Merging`."""
        return tuple(column.name for column in self.columns)

    @property
    def is_partial(self) -> bool:
        """See `Merging`."""
        return True

    @property
    def problem_in_sql(self) -> str:
        """See `Merging`."""
        return "records that set only some columns (partial_updates) are not laid over each other in SQL"


def _number(column: Column, values: pa.Array) -> pa.Array:
    return values.view(pa.int64()) if column.type.kind in _EPOCHS else values


@lru_cache(maxsize=64)  # of a few tables, as they were altered
def _numbered(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns, with times as numbers."""
    return tuple(replace(one, type=_LONG) if one.type.kind in _EPOCHS else one for one in columns)
