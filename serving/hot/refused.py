"""The refused records among the hot ones: where they are in the log, and why they were refused.

Kafka acknowledged such a record, and it gives no row; this is how whoever wrote it can be told. Its stored
key is a number that no bucket has | the topic's index | the partition | the offset, counted down, so that
the newest come first. Refused records are written with the positions behind them, and go with their
generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from serving.hot.record import BUCKET, META_KEY, PLACE

if TYPE_CHECKING:
    import lmdb

    from thermocline.kafka.log import RecordChunk
    from thermocline.rules.decode import Decoded
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam

REFUSED: Final = BUCKET.pack(0xFFFE)
"""Above every bucket, and below a generation's meta."""

# Enough for whoever waits for single records; a producer that sends nothing good is told so by the first.
KEPT_MAX: Final = 1_000
# A reason may quote what the producer sent.
REASON_CHARACTERS_MAX: Final = 300
LAST: Final = " (no record that was refused after this one is kept here)"

_OFFSET: Final = Struct(">Q")
_OFFSET_MAX: Final = (1 << 64) - 1


class Refused(msgspec.Struct, frozen=True):
    """A record that the table's definition refuses. ``stage`` is where: key, decode or contract."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str


def stored_refused(
    definition: LiveTable, chunk: RecordChunk, decoded: Decoded, room: int
) -> Iterator[tuple[bytes, bytes]]:
    """The stored key and value of the first ``room`` refused records of a chunk; what fills it up says so."""
    start = REFUSED + PLACE.pack(definition.topics.index(chunk.topic), chunk.partition)
    for count, bad in enumerate(decoded.bad[:room], start=1):
        reason = bad.reason[:REASON_CHARACTERS_MAX] + (LAST if count == room else "")
        yield start + _counted_down(chunk.offsets[bad.index]), _encode((bad.stage.value, reason))


def refused_among(
    newest_first: Sequence[lmdb.Transaction[bytes]],
    topics: Sequence[str],
    first: Seam,
    end: Seam,
    count_max_each: int,
) -> list[Refused]:
    """Those of each partition in [first, end), the newest first; at most ``count_max_each`` of each."""
    holding = [transaction for transaction in newest_first if _holds_any(transaction)]
    found: list[Refused] = []
    for topic, partition, before in end.items() if holding else ():
        if topic in topics and before > first.get((topic, partition)):
            start = REFUSED + PLACE.pack(topics.index(topic), partition)
            wanted = (start + _counted_down(before - 1), start + _counted_down(first.get((topic, partition))))
            of_partition = chain.from_iterable(_between(transaction, *wanted) for transaction in holding)
            for key, value in islice(of_partition, count_max_each):
                (counted_down,) = _OFFSET.unpack_from(key, len(start))
                found.append(Refused(topic, partition, _OFFSET_MAX - counted_down, *_decode(value)))
    return found


def _holds_any(transaction: lmdb.Transaction[bytes]) -> bool:
    """Mostly there is none, and whoever finds no row asks."""
    return any(key.startswith(REFUSED) for key, _ in _between(transaction, REFUSED, META_KEY))


def _between(
    transaction: lmdb.Transaction[bytes], lowest: bytes, highest: bytes
) -> Iterator[tuple[bytes, bytes]]:
    cursor = transaction.cursor()
    if cursor.set_range(lowest):
        for key, value in cursor:
            if key > highest:
                return
            yield key, value


def _counted_down(offset: int) -> bytes:
    return _OFFSET.pack(_OFFSET_MAX - offset)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str]).decode
