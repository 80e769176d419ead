"""The stored form of a hot record: its key and value as bytes in LMDB.

A stored key is the bucket (2 bytes) | the row's key | the topic's number (2) and the partition (4),
big-endian. So a bucket is one range, an entity one range within it, and a row's records in several
partitions lie side by side. A stored value is the offset, the record's time, the partition time at it, flags,
and the row's payload, which is empty for a tombstone and for nothing else. Before the payload of a record
that sets only some columns stands which ones it sets (``partial``). Where columns order the records, it is
several of them (``ordered``).

LMDB takes keys of at most 511 bytes. A longer one is stored as its beginning and a hash, the value
holding the whole key. Such a stored key has exactly 511 bytes and all others have fewer, so the two never
meet; and as it begins like the row's key, it lies within every range of a prefix of that key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from struct import Struct, pack
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from thermocline.rules.decode import Decoded, key_table, pack_rows, sequences
from thermocline.rules.keys import buckets, encode_table
from thermocline.rules.partition_time import NO_TIME

if TYPE_CHECKING:
    from thermocline.kafka.facts import TopicRecords
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam

STORED_KEY_BYTES_MAX: Final = 511  # LMDB's limit, as compiled into its wheels; checked when a file is opened
HASH_BYTES: Final = 32  # two keys with one hash would be one row: as unlikely as a collision of SHA-256

BUCKET: Final = Struct(">H")
PLACE: Final = Struct(">HI")
KEY_START: Final = BUCKET.size
PLACE_START: Final = -PLACE.size
PARTITION_START: Final = 2  # within the place
KEY_BYTES_MAX: Final = STORED_KEY_BYTES_MAX - BUCKET.size - PLACE.size - 1
LONG_KEY_PREFIX_BYTES: Final = STORED_KEY_BYTES_MAX - BUCKET.size - PLACE.size - HASH_BYTES

HEADER: Final = Struct(">qqqB")
TIME_START, PARTITION_TIME_START, FLAGS_START = 8, 16, 24
KEY_LENGTH: Final = Struct(">I")
HAS_LONG_KEY: Final = 1
IS_PARTIAL: Final = 2
IS_ORDERED: Final = 4
# Of value columns, and for each the offset of the record that set it: before the payload of what is partial.
COUNT: Final = Struct(">H")
NEVER: Final = -1
_encode: Final = msgspec.msgpack.Encoder().encode

NO_TOPIC: Final = ""
"""Where a topic's number has no topic: its records don't count."""
NOTHING_COUNTS: Final = (1 << 63) - 1
"""An offset beyond every record."""

META_KEY: Final = b"\xff\xff"  # above every bucket, of which there are at most 4,096, and all else


class HotRow(NamedTuple):
    """The last record of a row: the packed value columns, and where it stands in the log.

    ``kept`` are the places of the value columns that no hot record set: the cold row has their values. Where
    columns order the records, a tombstone is one without payload, since its ``sequence`` counts.
    """

    payload: bytes
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    kept: tuple[int, ...] = ()
    sequence: bytes = b""
    partition_time_ms: int = NO_TIME


class OrderedRecord(NamedTuple):
    """One record: where it stands in the order, where it comes from, and its payload, empty for a delete."""

    sequence: bytes
    offset: int
    timestamp_ms: int
    partition_time_ms: int
    payload: bytes


def stored_records(
    definition: LiveTable,
    number: int,
    records: TopicRecords,
    decoded: Decoded,
    partition_times_ms: Sequence[int],
) -> Iterator[tuple[bytes, bytes]]:
    """The stored key and value of each good record of a topic, in order; a row may come several times.

    ``number`` is what the topic has in the tier. The partition times are those at all records.
    """
    partitions, offsets, timestamps_ms = records.partitions, records.offsets, records.timestamps_ms
    table = key_table(definition, decoded, records.topic, partitions, offsets)
    numbers = buckets(definition, table.column(definition.bucket_column.name)).tolist()
    keys = encode_table(definition, table).to_pylist()
    payloads = pack_rows(definition, decoded)
    places = {partition: PLACE.pack(number, partition) for partition in {*partitions}}
    pack_bucket, pack_header = BUCKET.pack, HEADER.pack
    flags = [0] * len(payloads)
    if definition.merging.is_ordered:
        _set_ordered(definition, records, decoded, partition_times_ms, payloads)
        flags = [IS_ORDERED] * len(payloads)
    if decoded.absent is not None:
        _set_partial(definition, records, decoded, payloads, flags)
    for bucket, key, index, payload, flag in zip(numbers, keys, decoded.good, payloads, flags, strict=True):
        times, place = (timestamps_ms[index], partition_times_ms[index]), places[partitions[index]]
        if len(key) <= KEY_BYTES_MAX:
            header = pack_header(offsets[index], *times, flag)
            yield pack_bucket(bucket) + key + place, header + payload
        else:
            header = pack_header(offsets[index], *times, flag | HAS_LONG_KEY)
            short = key[:LONG_KEY_PREFIX_BYTES] + blake2b(key, digest_size=HASH_BYTES).digest()
            yield pack_bucket(bucket) + short + place, header + KEY_LENGTH.pack(len(key)) + key + payload


def packed_offsets(offsets: Sequence[int]) -> bytes:
    """What stands before a partial payload."""
    return COUNT.pack(len(offsets)) + pack(f">{len(offsets)}q", *offsets)


def _set_partial(
    definition: LiveTable, records: TopicRecords, decoded: Decoded, payloads: list[bytes], flags: list[int]
) -> None:
    """Notes, of the records that leave columns as they are, which ones they set."""
    assert decoded.absent is not None
    names = [column.name for column in definition.value_columns]
    for row, (index, absent) in enumerate(zip(decoded.good, decoded.absent, strict=True)):
        if absent:
            offset = records.offsets[index]
            payloads[row] = packed_offsets([NEVER if n in absent else offset for n in names]) + payloads[row]
            flags[row] = IS_PARTIAL


def _set_ordered(
    definition: LiveTable,
    records: TopicRecords,
    decoded: Decoded,
    partition_times_ms: Sequence[int],
    payloads: list[bytes],
) -> None:
    """Puts where each record stands in the order before its payload."""
    ordered = zip(decoded.good, sequences(definition, decoded), payloads, strict=True)
    for row, (index, sequence, payload) in enumerate(ordered):
        times = records.timestamps_ms[index], partition_times_ms[index]
        payloads[row] = _encode([OrderedRecord(sequence, records.offsets[index], *times, payload)])


def payload_start(value: bytes) -> int:
    """Where the payload begins in a stored value."""
    if not value[FLAGS_START] & HAS_LONG_KEY:
        return HEADER.size
    return HEADER.size + KEY_LENGTH.size + int(KEY_LENGTH.unpack_from(value, HEADER.size)[0])


def long_key_and_payload(value: bytes) -> tuple[bytes, bytes]:
    """The whole key and the payload of a value that is flagged ``HAS_LONG_KEY``."""
    start = HEADER.size + KEY_LENGTH.size
    end = start + KEY_LENGTH.unpack_from(value, HEADER.size)[0]
    return value[start:end], value[end:]


def first_counting(topics: Sequence[str], number: int, partition: int, seam: Seam) -> int:
    """The first offset that counts; ``topics`` are those that do, by their numbers."""
    topic = topics[number]
    return seam.get((topic, partition)) if topic else NOTHING_COUNTS  # safety: hot-topics-of-the-snapshot


def range_start(bucket: int, prefix: bytes) -> bytes:
    """What the stored keys of all rows whose key begins with the prefix begin with."""
    return BUCKET.pack(bucket) + prefix[:LONG_KEY_PREFIX_BYTES]
