"""Decoded rows as the Arrow table that ingest folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from thermocline import keys
from thermocline.decode.record import Decoded
from thermocline.definition import Column, Kind, LiveTable

__all__ = ["records_table"]

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
    count = len(decoded.good)
    row = [_array(column, decoded.columns[column.name]) for column in definition.columns]
    key = keys.encode_table(definition, pa.record_batch(row, schema=definition.row_schema))
    good = np.asarray(decoded.good, np.int64)
    times = np.asarray(timestamps_ms, np.int64)[good] * MICROSECONDS
    schema = definition.records_schema
    ours = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(np.asarray(offsets, np.int64)[good]),
        pa.array(times).view(schema.field("_kafka_timestamp").type),
        pa.array(decoded.tombstones, pa.bool_()),
        key,
    ]
    return pa.Table.from_arrays([*row, *ours], schema=schema)


def _array(column: Column, values: list[Any]) -> pa.Array:
    if column.type.kind is Kind.UUID:
        values = [None if value is None else value.bytes for value in values]
    return pa.array(values, column.type.arrow)
