"""Stored records of a row in one partition, where columns order them and not their offsets alone.

Of a seam it must be known which of the records at or beyond it has the highest sequence. So a record is kept
until a later one comes whose sequence is as high: what is left, from the oldest to the newest, has falling
sequences, and the first one that is not before the seam is the winner. Mostly that is one record.

The stored value begins like that of any record, with offset and times of the newest one, and is
flagged ``IS_ORDERED``; then follow the records. They may be laid over older ones whenever they meet: as they
are appended, as generations are merged, and as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.serving.hot.record import FLAGS_START, IS_ORDERED, OrderedRecord, payload_start
from thermocline.serving.hot.refused import REFUSED

if TYPE_CHECKING:
    import lmdb

__all__ = ["laid_over", "winner"]

_encode: Final = msgspec.msgpack.Encoder().encode
_records_of: Final = msgspec.msgpack.Decoder(list[OrderedRecord]).decode


def laid_over(
    records: Iterable[tuple[bytes, bytes]], held: Mapping[bytes, bytes], below: lmdb.Transaction[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """The stored records of each key, over what is stored under it: among those ``held``, or else ``below``.

    Each key comes once: thousands of records of one key would else be written again for each of them.
    """
    of_key: dict[bytes, list[bytes]] = {}
    for key, value in records:
        of_key.setdefault(key, []).append(value)
    for key, values in of_key.items():
        older = (held.get(key) or below.get(key)) if key < REFUSED else None
        oldest_first = values if older is None else [older, *values]
        yield key, values[-1] if len(oldest_first) == 1 or key >= REFUSED else _merged(oldest_first)


def winner(key: bytes, first: int, newest_first: Sequence[lmdb.Transaction[bytes]]) -> OrderedRecord:
    """The record that wins from ``first`` on, by what all generations say of a stored key.

    One of them has a record of it that is not before ``first``.
    """
    found = [one for one in (transaction.get(key) for transaction in newest_first) if one is not None]
    candidates = [one for stored in found for one in _records(stored) if one.offset >= first]
    return max(candidates, key=lambda one: (one.sequence, one.offset))  # safety: hot-sequence


def _merged(oldest_first: Sequence[bytes]) -> bytes:
    kept: list[OrderedRecord] = []
    for value in oldest_first:
        for record in _records(value):
            while kept and kept[-1].sequence <= record.sequence:  # safety: hot-keeps-higher
                kept.pop()
            kept.append(record)
    newest = oldest_first[-1]
    return newest[: payload_start(newest)] + _encode(kept)


def _records(value: bytes) -> list[OrderedRecord]:
    assert value[FLAGS_START] & IS_ORDERED
    return _records_of(value[payload_start(value) :])
