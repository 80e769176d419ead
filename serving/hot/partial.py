"""Stored records of a row in one partition, where some of them set only some columns.

A stored value that is flagged ``IS_PARTIAL`` has, before its payload, the number of value columns and, for
each, the offset of the record that set it last: ``NEVER`` where none did that is known here. The payload has
these values, and nil for the others. A whole record and a tombstone set every column, and need no offsets.

That is exact for every seam: a column that was set at or beyond it has its value here, and any other one has
it in the cold row, or is null where there is none. So records may be laid over older ones whenever they meet:
as they are appended, as generations are merged, and as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.serving.hot.record import (
    COUNT,
    FLAGS_START,
    HEADER,
    IS_PARTIAL,
    NEVER,
    packed_offsets,
    payload_start,
)
from thermocline.serving.hot.refused import REFUSED

if TYPE_CHECKING:
    import lmdb

_NIL: Final = msgspec.Raw(msgspec.msgpack.encode(None))
_OFFSET: Final = Struct(">q")
_encode = msgspec.msgpack.Encoder().encode
_cells_of = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

Cells = Sequence[msgspec.Raw]


def laid_over(
    records: Iterable[tuple[bytes, bytes]], held: Mapping[bytes, bytes], below: lmdb.Transaction[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """Stored records, each over what is stored under its key: among those ``held``, or else ``below``."""
    for key, value in records:
        if key < REFUSED and value[FLAGS_START] & IS_PARTIAL:
            older = held.get(key) or below.get(key)
            yield key, value if older is None else merged(value, older)  # safety: hot-append-merges
        else:
            yield key, value


def merged(newer: bytes, older: bytes) -> bytes:
    """A stored value that is flagged ``IS_PARTIAL`` with what is older under the same key."""
    start = payload_start(newer)
    offsets, payload = _offsets_and_payload(newer[start:])
    if NEVER not in offsets:
        return newer
    cells = _cells_of(payload)
    older_offsets, older_cells = _columns(older, len(offsets))
    for place, offset in enumerate(offsets):
        if offset == NEVER:
            cells[place] = older_cells[place]
    offsets = [old if own == NEVER else own for own, old in zip(offsets, older_offsets, strict=True)]
    return newer[:start] + packed_offsets(offsets) + _encode(cells)


def resolved(
    key: bytes, value: bytes, first: int, newest_first: Sequence[lmdb.Transaction[bytes]]
) -> tuple[bytes, tuple[int, ...]]:
    """What all generations say together of a stored key, of which the newest has this value.

    It is as one that is not flagged; and the places of the columns that no record from ``first`` on set.
    """
    if not value[FLAGS_START] & IS_PARTIAL:
        return value, ()
    values = [one for one in (transaction.get(key) for transaction in newest_first) if one is not None]
    for older in values[1:]:
        value = merged(value, older)  # safety: hot-generations-merge
    start = payload_start(value)
    offsets, payload = _offsets_and_payload(value[start:])
    # safety: hot-column-before-the-seam
    kept = tuple(place for place, offset in enumerate(offsets) if offset < first)
    flags = bytes([value[FLAGS_START] & ~IS_PARTIAL])
    return value[:FLAGS_START] + flags + value[FLAGS_START + 1 : start] + payload, kept


def _columns(value: bytes, count: int) -> tuple[Sequence[int], Cells]:
    """When each column was set, and to what."""
    payload = value[payload_start(value) :]
    if value[FLAGS_START] & IS_PARTIAL:
        offsets, payload = _offsets_and_payload(payload)
        return offsets, _cells_of(payload)
    offset, *_ = HEADER.unpack_from(value)
    # safety: hot-delete-sets-all
    return [offset] * count, _cells_of(payload) if payload else [_NIL] * count


def _offsets_and_payload(flagged: bytes) -> tuple[Sequence[int], bytes]:
    """When each column was set, and the packed values, of what follows the key in a flagged value."""
    (count,) = COUNT.unpack_from(flagged)
    end = COUNT.size + count * _OFFSET.size
    offsets = [offset for (offset,) in _OFFSET.iter_unpack(flagged[COUNT.size : end])]
    return offsets, flagged[end:]
