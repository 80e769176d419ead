"""The order in which records came to a generation, so that the last of them are found without a look at all.

Each append leaves a note of its stored keys, in the same transaction. A note is stored under a key above the
generation's meta | its number in the generation | how many keys were noted so far, its own included. It
begins with the positions before the append: whatever an older note names lies before them. Notes of far more
keys than one looks for are dropped, the oldest first, and a merged generation has none. Who asks for what no
note tells looks through all records instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.serving.hot.record import BUCKET, META_KEY

if TYPE_CHECKING:
    import lmdb

    from thermocline.rules.seam import Seam

__all__ = ["Arrived", "add_note", "arrived_by_bucket", "notes_in"]

Arrived = Mapping[int, Sequence[bytes]]
"""Stored keys by their bucket, ascending."""

KEYS_MAX: Final = 1 << 15
"""That are noted beside those of the last append, some 40 bytes each. Of more, a look through a generation,
which ends after 30 seconds, takes no longer than what is done with them."""

_NUMBER: Final = Struct(">QQ")
_NUMBER_START: Final = len(META_KEY)
_FIRST: Final = META_KEY + _NUMBER.pack(0, 0)


class _Note(msgspec.Struct, array_like=True):
    """``start`` are the positions before the keys came."""

    start: Sequence[tuple[str, int, int]]
    keys: Sequence[bytes]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Note).decode


def add_note(transaction: lmdb.Transaction[bytes], keys: Sequence[bytes], start: Seam) -> None:
    """Notes that records with these stored keys came, at or beyond ``start``; before they are written."""
    cursor = transaction.cursor()
    if cursor.last() and cursor.key() > META_KEY:
        last, count = _NUMBER.unpack_from(cursor.key(), _NUMBER_START)
        number = last + 1
    else:
        # A generation that has records of which there is no note has no first one.
        number, count = int(transaction.stat()["entries"] > 1), 0  # safety: arrived-all-or-not
    count += len(keys)
    note = _Note(tuple(start.items()), keys)
    transaction.put(META_KEY + _NUMBER.pack(number, count), _encode(note))
    while cursor.set_range(_FIRST) and _NUMBER.unpack_from(cursor.key(), _NUMBER_START)[1] + KEYS_MAX < count:
        cursor.delete()


def arrived_by_bucket(
    generations: Sequence[lmdb.Transaction[bytes]], topics: Collection[str], seam: Seam
) -> Arrived | None:
    """The stored keys of all records of the topics at or beyond the seam, and maybe of others.

    None where no note tells.
    """
    keys: set[bytes] = set()
    for transaction in generations:
        found = _arrived(transaction, topics, seam)
        if found is None:
            return None
        keys |= found
    by_bucket: dict[int, list[bytes]] = defaultdict(list)
    for key in sorted(keys):
        by_bucket[BUCKET.unpack_from(key)[0]].append(key)
    return by_bucket


def notes_in(transaction: lmdb.Transaction[bytes]) -> int:
    """How many notes a generation has."""
    cursor = transaction.cursor()
    if not cursor.set_range(_FIRST):
        return 0
    first, _ = _NUMBER.unpack_from(cursor.key(), _NUMBER_START)
    cursor.last()
    last, _ = _NUMBER.unpack_from(cursor.key(), _NUMBER_START)
    return int(last - first + 1)


def _arrived(transaction: lmdb.Transaction[bytes], topics: Collection[str], seam: Seam) -> set[bytes] | None:
    """Those of one generation."""
    cursor = transaction.cursor()
    if not cursor.set_range(_FIRST):
        return None
    number, _ = _NUMBER.unpack_from(cursor.key(), _NUMBER_START)
    if number > 0 and not _is_before(_decode(cursor.value()), topics, seam):  # safety: arrived-dropped
        return None
    keys: set[bytes] = set()
    is_more = cursor.last()
    while is_more and cursor.key() > META_KEY:
        note = _decode(cursor.value())
        keys.update(note.keys)
        if _is_before(note, topics, seam):  # safety: arrived-since
            break
        is_more = cursor.prev()
    return keys


def _is_before(note: _Note, topics: Collection[str], seam: Seam) -> bool:
    """Whether what is older than the note, and of the topics, lies before the seam."""
    return all(
        seam.get((topic, partition)) >= offset for topic, partition, offset in note.start if topic in topics
    )
