"""The winners of a whole bucket as a table, without a Python object for each value.

All records of the bucket in all generations are read as columns, those before the seam are left out, and
``fold`` decides. Where records may set only some columns, or columns order them, the generations are laid
over each other first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.byte_columns import Positions, big_endian, positions_and_bytes, text
from thermocline.rules.column_types import TIMESTAMP
from thermocline.rules.definition import (
    ABSENT,
    KEY,
    PARTITION_TIME,
    PROVENANCE,
    SEQUENCE,
    TOMBSTONE,
    LiveTable,
)
from thermocline.rules.fold import winners
from thermocline.rules.merging import LastWins, Merging
from thermocline.serving.hot.ordered import winner
from thermocline.serving.hot.partial import resolved
from thermocline.serving.hot.record import (
    BUCKET,
    FLAGS_START,
    HAS_LONG_KEY,
    HEADER,
    KEY_LENGTH,
    KEY_START,
    NOTHING_COUNTS,
    PARTITION_START,
    PARTITION_TIME_START,
    PLACE,
    PLACE_START,
    TIME_START,
    first_counting,
    long_key_and_payload,
)
from thermocline.serving.hot.winners import cursors_of, newest_values

if TYPE_CHECKING:
    import lmdb

    from thermocline.rules.seam import Seam

    Transactions = Sequence[lmdb.Transaction[bytes]]

PAYLOAD: Final = "payload"
# Bounds what there is as Python objects at a time; larger blocks are no faster.
BLOCK_RECORDS: Final = 65_536
BLOCK_BYTES_MAX: Final = 1 << 30
MICROSECONDS: Final = 1_000  # in a millisecond

_BINARY: Final = pa.large_binary()
_TOPIC: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        (KEY, _BINARY),
        *zip(PROVENANCE, (_TOPIC, pa.int32(), pa.int64(), TIMESTAMP), strict=True),
        (TOMBSTONE, pa.bool_()),
        (PAYLOAD, _BINARY),
    ]
)
LAST_WINS: Final = LastWins()
ABSENT_NAMES: Final = pa.field(ABSENT, pa.list_(pa.string()))
PARTIAL_SCHEMA: Final = SCHEMA.append(ABSENT_NAMES)
ORDERED_SCHEMA: Final = SCHEMA.append(pa.field(SEQUENCE, pa.binary()))
# What decides between partitions, of records that are not folded yet.
_PARTITION_TIME: Final = pa.field(PARTITION_TIME, pa.int64())
_READ, _READ_PARTIAL, _READ_ORDERED = (
    schema.append(_PARTITION_TIME) for schema in (SCHEMA, PARTIAL_SCHEMA, ORDERED_SCHEMA)
)


def winners_of_bucket(
    newest_first: Transactions,
    topics: Sequence[str],
    bucket: int,
    seam: Seam,
    merging: Merging = LAST_WINS,
    arrived: Sequence[bytes] | None = None,
) -> pa.Table:
    """The last record of each row of a bucket, where it is not before the seam; by ``SCHEMA``, in no order.

    Where it is known which records ``arrived`` since the seam, by their stored keys, no others are looked at.
    The payload of a tombstone is empty. All of the bucket's hot records are in memory while it works.
    With partial updates it is by ``PARTIAL_SCHEMA``, with the names of the columns that no hot record set,
    and whose values are to be taken from the cold row. Where columns order the records it is by
    ``ORDERED_SCHEMA``, and the cold row may have the higher sequence.
    """
    if merging.is_ordered:
        newest = _newest_values(newest_first, bucket, arrived)
        return winners(pa.Table.from_batches(_ordered(newest, newest_first, topics, seam), _READ_ORDERED))
    firsts = _first_offsets(topics, seam)
    if merging.is_partial:
        newest = _newest_values(newest_first, bucket, arrived)
        blocks = [
            _records(keys, values, topics, firsts, absent)
            for keys, values, absent in _laid_together(newest, newest_first, topics, seam, merging.may_lack)
        ]
        return winners(pa.Table.from_batches(blocks, _READ_PARTIAL))
    blocks = [
        _records(keys, values, topics, firsts)
        for transaction in newest_first
        for keys, values in _blocks(transaction, bucket, arrived)
    ]
    return winners(pa.Table.from_batches(blocks, _READ))


@lru_cache(maxsize=64)  # of a few tables, as they were altered
def merging_of(definition_json: str) -> Merging:
    """How records merge by the definition that a table carries."""
    return LiveTable.from_json(definition_json, "").merging


def _newest_values(
    newest_first: Transactions, bucket: int, arrived: Sequence[bytes] | None
) -> Mapping[bytes, bytes]:
    """The value that the newest generation has of each stored key of a bucket."""
    if arrived is None:
        return newest_values(cursors_of(newest_first), BUCKET.pack(bucket))
    found: dict[bytes, bytes] = {}
    for transaction in reversed(newest_first):
        found.update(transaction.cursor().getmulti(arrived))
    return found


def _ordered(
    newest: Mapping[bytes, bytes], newest_first: Transactions, topics: Sequence[str], seam: Seam
) -> Iterator[pa.RecordBatch]:
    """The winner of each stored key, where it is not before the seam; by ``_READ_ORDERED``."""
    found = iter(newest.items())
    while block := list(islice(found, BLOCK_RECORDS)):
        rows: list[tuple[Any, ...]] = []
        for stored_key, value in block:
            topic, partition = PLACE.unpack(stored_key[PLACE_START:])
            offset, _, _, flags = HEADER.unpack_from(value)
            first = first_counting(topics, topic, partition, seam)
            if offset < first:
                continue
            key = stored_key[KEY_START:PLACE_START]
            if flags & HAS_LONG_KEY:
                key, _ = long_key_and_payload(value)
            one = winner(stored_key, first, newest_first)
            rows.append((key, topic, partition, *one))
        yield _ordered_batch(rows, topics)


def _ordered_batch(rows: Sequence[tuple[Any, ...]], topics: Sequence[str]) -> pa.RecordBatch:
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * 8
    keys, topic, partition, sequences, offsets, times_ms, partition_times_ms, payloads = columns
    times = pa.array([time_ms * MICROSECONDS for time_ms in times_ms], pa.int64()).view(TIMESTAMP)
    arrays = [
        pa.array(keys, _BINARY),
        pa.DictionaryArray.from_arrays(pa.array(topic, pa.int32()), pa.array(topics, pa.string())),
        pa.array(partition, pa.int32()),
        pa.array(offsets, pa.int64()),
        times,
        pa.array([not payload for payload in payloads], pa.bool_()),
        pa.array(payloads, _BINARY),
        pa.array(sequences, pa.binary()),
        pa.array(partition_times_ms, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_READ_ORDERED)


def _laid_together(
    newest: Mapping[bytes, bytes],
    newest_first: Transactions,
    topics: Sequence[str],
    seam: Seam,
    partial: Sequence[str],
) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    """The stored keys, values and absent columns of records, each in all generations as one."""
    found = iter(newest.items())
    while block := list(islice(found, BLOCK_RECORDS)):
        places = [PLACE.unpack(key[PLACE_START:]) for key, _ in block]
        firsts = [first_counting(topics, number, partition, seam) for number, partition in places]
        whole = [resolved(*one, first, newest_first) for one, first in zip(block, firsts, strict=True)]
        for part in _parts([value for value, _ in whole]):
            yield (
                pa.array([key for key, _ in block[part]], _BINARY),
                pa.array([value for value, _ in whole[part]], _BINARY),
                pa.array([[partial[place] for place in kept] for _, kept in whole[part]], ABSENT_NAMES.type),
            )


def _blocks(
    transaction: lmdb.Transaction[bytes], bucket: int, arrived: Sequence[bytes] | None
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The stored keys and values of a bucket's records, or of those that arrived."""
    for keys, values in _all_of(transaction, bucket) if arrived is None else _some_of(transaction, arrived):
        for part in _parts(values):
            yield pa.array(keys[part], _BINARY), pa.array(values[part], _BINARY)


def _all_of(transaction: lmdb.Transaction[bytes], bucket: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    cursor = transaction.cursor()
    end = BUCKET.pack(bucket + 1)
    is_more = cursor.set_range(BUCKET.pack(bucket))
    while is_more:
        keys: list[bytes] = []
        values: list[bytes] = []
        for key, value in islice(cursor, BLOCK_RECORDS):
            if key >= end:
                break
            keys.append(key)
            values.append(value)
        yield keys, values
        is_more = len(keys) == BLOCK_RECORDS and cursor.next()


def _some_of(
    transaction: lmdb.Transaction[bytes], arrived: Sequence[bytes]
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    for first in range(0, len(arrived), BLOCK_RECORDS):
        found = transaction.cursor().getmulti(arrived[first : first + BLOCK_RECORDS])
        yield [key for key, _ in found], [value for _, value in found]


def _parts(values: Sequence[bytes], first: int = 0) -> Iterator[slice]:
    """Parts whose values are no more bytes than an array of views reaches; mostly one."""
    if len(values) > 1 and sum(map(len, values)) > BLOCK_BYTES_MAX:
        half = len(values) // 2
        yield from _parts(values[:half], first)
        yield from _parts(values[half:], first + half)
    else:
        yield slice(first, first + len(values))


def _records(
    keys: pa.Array,
    values: pa.Array,
    topics: Sequence[str],
    firsts: Positions,
    absent: pa.Array | None = None,
) -> pa.RecordBatch:
    """The records that are not before the seam, out of the parts that ``record`` describes."""
    ends, data = positions_and_bytes(values)
    starts, ends = ends[:-1], ends[1:]
    offsets = big_endian(data, starts, "i8")
    times = big_endian(data, starts + TIME_START, "i8") * MICROSECONDS
    partition_times_ms = big_endian(data, starts + PARTITION_TIME_START, "i8")
    has_long_key = (data[starts + FLAGS_START] & HAS_LONG_KEY).astype(np.bool_)
    row_keys, topic, partition = _keys_and_places(keys)
    payloads = starts + HEADER.size
    if has_long_key.any():
        lengths = payloads[has_long_key]
        long_keys = lengths + KEY_LENGTH.size
        payloads[has_long_key] = long_keys + big_endian(data, lengths, "u4")
        whole = text(data, long_keys, payloads[has_long_key]).cast(_BINARY)
        row_keys = pc.replace_with_mask(row_keys, pa.array(has_long_key), whole)
    columns = [
        row_keys,
        pa.DictionaryArray.from_arrays(pa.array(topic.astype(np.int32)), pa.array(topics, pa.string())),
        pa.array(partition.astype(np.int32)),
        pa.array(offsets),
        pa.array(times).view(TIMESTAMP),
        pa.array(payloads == ends),
        text(data, payloads, ends).cast(_BINARY),
        *([] if absent is None else [absent]),
        pa.array(partition_times_ms),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=_READ if absent is None else _READ_PARTIAL)
    counts = offsets >= firsts[topic, np.minimum(partition, firsts.shape[1] - 1)]
    return batch if counts.all() else batch.filter(pa.array(counts))  # safety: hot-scan-before-the-seam


def _keys_and_places(stored: pa.Array) -> tuple[pa.Array, Positions, Positions]:
    """The row's key, the topic's index and the partition of each stored key."""
    ends, data = positions_and_bytes(stored)
    places = ends[1:] + PLACE_START
    topic, partition = big_endian(data, places, "u2"), big_endian(data, places + PARTITION_START, "u4")
    keys = text(data, ends[:-1] + KEY_START, places).cast(_BINARY)
    return keys, topic.astype(np.int64), partition.astype(np.int64)


def _first_offsets(topics: Sequence[str], seam: Seam) -> Positions:
    """By topic's number and partition, the first offset that counts; 0 in the last column, for all others."""
    partitions = 1 + max((partition for _, partition, _ in seam.items()), default=-1)
    numbers = {topic: number for number, topic in enumerate(topics) if topic}
    firsts = np.zeros((len(topics), partitions + 1), np.int64)
    for topic, partition, first in seam.items():
        if topic in numbers:
            firsts[numbers[topic], partition] = first
    # safety: hot-scan-topics-of-the-snapshot
    firsts[[number for number, topic in enumerate(topics) if not topic]] = NOTHING_COUNTS
    return firsts
