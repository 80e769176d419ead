"""The winners among the hot records of one entity.

Generations are asked from the newest to the oldest, and the first one that has a record of a (row,
partition) decides about it; one that sets only some columns is laid over the older ones (``partial``), and
where columns order the records, the older ones have a say, too (``ordered``).
Records before the seam are left out one by one. What is left of a row, at most one record a partition, is
decided by ``fold``'s order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from thermocline.rules.fold import order_of
from thermocline.serving.hot.ordered import winner
from thermocline.serving.hot.partial import resolved
from thermocline.serving.hot.record import (
    HAS_LONG_KEY,
    HEADER,
    IS_ORDERED,
    IS_PARTIAL,
    KEY_START,
    LONG_KEY_PREFIX_BYTES,
    PLACE,
    PLACE_START,
    HotRow,
    first_counting,
    long_key_and_payload,
    range_start,
)

if TYPE_CHECKING:
    import lmdb

    from thermocline.rules.seam import Seam

    Transactions = Sequence[lmdb.Transaction[bytes]]
    Cursors = Sequence[lmdb.Cursor[bytes]]


def winners_of_prefix(
    newest_first: Transactions, topics: Sequence[str], bucket: int, prefix: bytes, seam: Seam
) -> dict[bytes, HotRow | None]:
    """The last record of each row whose key begins so, where it is not before the seam; None: a tombstone.

    Where columns order the records, it is a row without payload, since it may lose against the cold row.
    """
    found = newest_values(cursors_of(newest_first), range_start(bucket, prefix))
    winners = _folded(found.items(), newest_first, topics, seam)
    if len(prefix) > LONG_KEY_PREFIX_BYTES:
        return {key: row for key, row in winners.items() if key.startswith(prefix)}
    return winners


def is_in_several_partitions(
    newest_first: Transactions, topics: Sequence[str], bucket: int, keys: Sequence[bytes], seam: Seam
) -> bool:
    """Whether one of the rows has records at or beyond the seam in several partitions."""
    cursors = cursors_of(newest_first)
    return any(_is_contested(cursors, topics, bucket, key, seam) for key in keys)


def _is_contested(cursors: Cursors, topics: Sequence[str], bucket: int, key: bytes, seam: Seam) -> bool:
    found = newest_values(cursors, range_start(bucket, key))
    if len(found) < 2:  # as nearly always
        return False
    places: set[bytes] = set()
    for stored_key, value in found.items():
        offset, _, _, flags = HEADER.unpack_from(value)
        is_long = flags & HAS_LONG_KEY
        own = long_key_and_payload(value)[0] if is_long else stored_key[KEY_START:PLACE_START]
        packed = stored_key[PLACE_START:]
        if own == key and offset >= _place(packed, topics, seam)[2]:
            places.add(packed)
    return len(places) > 1


def cursors_of(transactions: Transactions) -> Cursors:
    """A cursor of each."""
    return [transaction.cursor() for transaction in transactions]


def newest_values(cursors: Cursors, start: bytes) -> dict[bytes, bytes]:
    """The value that the newest generation has of each stored key that begins so. The newest comes first."""
    found: dict[bytes, bytes] = {}
    for cursor in cursors:
        if cursor.set_range(start):
            for stored_key, value in cursor:
                if not stored_key.startswith(start):
                    break
                found.setdefault(stored_key, value)  # safety: hot-newest-generation
    return found


def _folded(  # noqa: C901  (a function for each step would double its time)
    found: Iterable[tuple[bytes, bytes]], newest_first: Transactions, topics: Sequence[str], seam: Seam
) -> dict[bytes, HotRow | None]:
    """The winner of each row, from its last stored record in each partition."""
    rows: dict[bytes, HotRow] = {}
    tombstones: set[bytes] = set()
    places: dict[bytes, tuple[str, int, int]] = {}
    unpack_header, header_bytes = HEADER.unpack_from, HEADER.size
    for stored_key, value in found:
        packed = stored_key[PLACE_START:]
        if packed not in places:
            places[packed] = _place(packed, topics, seam)
        topic, partition, first = places[packed]
        offset, timestamp_ms, partition_time_ms, flags = unpack_header(value)
        if offset < first:  # safety: hot-before-the-seam
            continue
        kept: tuple[int, ...] = ()
        if flags & IS_PARTIAL:
            value, kept = resolved(stored_key, value, first, newest_first)  # noqa: PLW2901
        if flags & HAS_LONG_KEY:
            key, payload = long_key_and_payload(value)
        else:
            key, payload = stored_key[KEY_START:PLACE_START], value[header_bytes:]
        # Made the short way, in half the time.
        fields = (payload, topic, partition, offset, timestamp_ms, kept, b"", partition_time_ms)
        row = tuple.__new__(HotRow, fields)
        if flags & IS_ORDERED:
            row = _ordered_row(stored_key, first, newest_first, topic, partition)
        if key in rows and _order(rows[key]) > _order(row):  # safety: hot-one-partition-each
            continue
        rows[key] = row
        if not payload:
            tombstones.add(key)
    winners = cast("dict[bytes, HotRow | None]", rows)
    for key in tombstones:
        if not rows[key].payload:
            winners[key] = None  # safety: hot-tombstone
    return winners


def _ordered_row(
    stored_key: bytes, first: int, newest_first: Transactions, topic: str, partition: int
) -> HotRow:
    one = winner(stored_key, first, newest_first)
    place = (topic, partition, one.offset, one.timestamp_ms)
    return HotRow(one.payload, *place, (), one.sequence, one.partition_time_ms)


def _place(packed: bytes, topics: Sequence[str], seam: Seam) -> tuple[str, int, int]:
    """The topic, the partition, and the first offset that counts."""
    number, partition = PLACE.unpack(packed)
    return topics[number], partition, first_counting(topics, number, partition, seam)


def _order(row: HotRow) -> tuple[bytes, int, str, int]:
    return order_of(row.partition_time_ms, row.topic, row.partition, row.sequence)
