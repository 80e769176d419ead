"""Decoded rows as the Arrow table that ingest folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from thermocline.rules import keys
from thermocline.rules.column_types import ColumnType
from thermocline.rules.decode.record import Decoded
from thermocline.rules.definition import ABSENT, LiveTable

__all__ = ["arrow_array", "key_table", "natural_values", "records_table", "sequences"]

MICROSECONDS: Final = 1000  # in one of Kafka's milliseconds


def records_table(
    definition: LiveTable,
    decoded: Decoded,
    topic: str,
    partition: int,
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
) -> pa.Table:
    """One row per good record, in input order, with ``definition.records_schema``.

    The offsets and timestamps are those of the whole chunk that was decoded, bad records included.
    """
    row = [arrow_array(column.type, decoded.columns[column.name]) for column in definition.columns]
    places = _places(decoded, topic, [partition] * len(offsets), offsets)
    times = np.asarray(timestamps_ms, np.int64)[np.asarray(decoded.good, np.int64)] * MICROSECONDS
    schema = definition.records_schema
    arrays = [*row, *places, pa.array(times).view(schema.field("_kafka_timestamp").type)]
    identified = pa.record_batch(arrays, names=schema.names[: len(arrays)])
    key = keys.encode_table(definition, identified)
    facts = [pa.array(decoded.tombstones, pa.bool_()), key]
    if definition.merging.is_ordered:
        facts.append(definition.merging.sequences(identified))
    if decoded.absent is not None:
        facts.append(pa.array(decoded.absent, schema.field(ABSENT).type))
    return pa.Table.from_arrays([*arrays, *facts], schema=schema)


def key_table(
    definition: LiveTable,
    decoded: Decoded,
    topic: str,
    partitions: Sequence[int],
    offsets: Sequence[int],
) -> pa.Table:
    """What identifies each good record's row, in input order: the columns of ``definition.identity``.

    The partitions and offsets are those of all records that were decoded, bad ones included.
    """
    if not definition.merging.is_keyed:
        places = _places(decoded, topic, partitions, offsets)
        return pa.Table.from_arrays(places, names=list(definition.identity))
    arrays = [arrow_array(column.type, decoded.columns[column.name]) for column in definition.key_columns]
    return pa.Table.from_arrays(arrays, names=list(definition.identity))


def sequences(definition: LiveTable, decoded: Decoded) -> list[bytes]:
    """The sequence of each good record, in input order."""
    merging = definition.merging
    arrays = [arrow_array(one.type, decoded.columns[one.name]) for one in merging.order_columns]
    found = pa.Table.from_arrays(arrays, names=list(merging.ordered_by))
    encoded: list[bytes] = merging.sequences(found).to_pylist()
    return encoded


def _places(
    decoded: Decoded, topic: str, partitions: Sequence[int], offsets: Sequence[int]
) -> list[pa.Array]:
    """Topic, partition and offset of each good record."""
    good = np.asarray(decoded.good, np.int64)
    return [
        pa.repeat(pa.scalar(topic, pa.string()), len(good)),
        pa.array(np.asarray(partitions, np.int32)[good]),
        pa.array(np.asarray(offsets, np.int64)[good]),  # safety: places-of-good
    ]


def arrow_array(of: ColumnType, values: Sequence[Any]) -> pa.Array:
    """Natural values of a type, or None, as an array."""
    stored = of.stored
    if stored is not None:
        values = [None if value is None else stored(value) for value in values]
    return pa.array(values, of.arrow)


def natural_values(of: ColumnType, values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of an array of the declared type."""
    found: list[Any] = values.to_pylist()
    natural = of.natural
    return found if natural is None else [None if value is None else natural(value) for value in found]
