"""The refused records among the hot ones: where they are in the log, and why they were refused.

Kafka acknowledged such a record, and it gives no row; this is how whoever wrote it can be told. Its stored
key is a number that no bucket has | the topic's number | the partition | the offset, counted down, so that
the newest come first. Refused records are written with the positions behind them, and go with their
generation. A generation keeps so many; beyond these, it says only where in the log they begin and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from thermocline.rules.keys import decode_one, encode_one
from thermocline.serving.hot.record import BUCKET, META_KEY, PLACE

if TYPE_CHECKING:
    import lmdb

    from thermocline.kafka.facts import TopicRecords
    from thermocline.rules.decode import Decoded
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam

REFUSED: Final = BUCKET.pack(0xFFFE)
"""Above every bucket, and below a generation's meta."""

# Enough for whoever waits for single records; a producer that sends nothing good is told so by the first.
KEPT_MAX: Final = 1_000
# A reason may quote what the producer sent.
REASON_CHARACTERS_MAX: Final = 300
# Of a key, which may be as long as a record. By these, all but very long keys are told apart.
KEY_BYTES_MAX: Final = 1_000
# Refused records of a partition that are looked through for those of some keys: about a millisecond.
SCANNED_MAX: Final = 2_000

# Behind those of all topics: from where to where refused records of a partition are not kept.
_UNLISTED: Final = REFUSED + BUCKET.pack(0xFFFF)
_OFFSET: Final = Struct(">Q")
_OFFSET_MAX: Final = (1 << 64) - 1


class Refused(msgspec.Struct, frozen=True):
    """A record that the table's definition refuses. ``stage`` is where: key, decode or contract.

    ``key`` has the key columns by name; None if they could not be read. ``timestamp_ms`` is the record's own
    time; None where an earlier release stored it.
    """

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    key: dict[str, Any] | None = None
    timestamp_ms: int | None = None


class Unlisted(msgspec.Struct, frozen=True):
    """From the first to the last offset, both included, records were refused that are not kept here."""

    topic: str
    partition: int
    offset_first: int
    offset_last: int


class RefusedRecords(NamedTuple):
    """What is known of refused records. ``listed`` has the newest of each partition first."""

    listed: Sequence[Refused] = ()
    unlisted: Sequence[Unlisted] = ()

    def cut(self, count_max: int) -> RefusedRecords:
        """The same with at most so many listed: of each partition about as many, its newest."""
        taken = Counter[tuple[str, int]]()
        turns = []
        for number, one in enumerate(self.listed):
            turns.append((taken[one.topic, one.partition], number))
            taken[one.topic, one.partition] += 1
        kept = sorted(number for _, number in sorted(turns)[:count_max])  # safety: refused-of-each-partition
        return self._replace(listed=[self.listed[number] for number in kept])


@dataclass(frozen=True, slots=True)
class Asked:
    """Which refused records are wanted; by default all.

    ``prefixes`` is what a key must begin with; records whose key could not be read are wanted, too, and so is
    each that ``named`` names by its partition and offset.
    """

    prefixes: tuple[bytes, ...] | None = None
    named: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def wants(self, place: tuple[str, int], offset: int, key: bytes) -> bool:
        """Whether a record is one of them."""
        if self.prefixes is None or not key or self.named.get(place) == offset:
            return True
        is_cut = len(key) == KEY_BYTES_MAX
        # safety: refused-of-the-key
        return any(key.startswith(prefix) or (is_cut and prefix.startswith(key)) for prefix in self.prefixes)


EVERY: Final = Asked()


class _Stored(msgspec.Struct, array_like=True):
    """The stored value; ``key`` begins as the record's key, and is empty if that could not be read."""

    stage: str
    reason: str
    key: bytes = b""
    timestamp_ms: int | None = None


@dataclass(slots=True)
class KeptInOne:
    """The refused records of a generation as it is written: how many it keeps, and where the rest are."""

    count: int = 0
    unlisted: dict[tuple[str, int], Unlisted] = field(default_factory=dict)

    def stored(
        self, definition: LiveTable, number: int, records: TopicRecords, decoded: Decoded
    ) -> Iterator[tuple[bytes, bytes]]:
        """What is to be stored of the records of a topic, which has this number."""
        room = KEPT_MAX - self.count
        yield from stored_refused(definition, number, records, decoded, room)
        self.count += min(room, len(decoded.bad))
        beyond = set[tuple[str, int]]()
        for bad in decoded.bad[room:]:
            place, offset = (records.topic, records.partitions[bad.index]), records.offsets[bad.index]
            known = self.unlisted.get(place)
            self.unlisted[place] = Unlisted(*place, known.offset_first if known else offset, offset)
            beyond.add(place)
        for place in beyond:
            yield stored_unlisted(number, self.unlisted[place])  # safety: refused-unlisted


def stored_refused(
    definition: LiveTable, number: int, records: TopicRecords, decoded: Decoded, room: int
) -> Iterator[tuple[bytes, bytes]]:
    """The stored key and value of the first ``room`` refused records of a topic, by its number."""
    for bad in decoded.bad[:room]:
        key = b"" if bad.key is None else encode_one(definition, bad.key)
        stored = _Stored(
            bad.stage.value,
            bad.reason[:REASON_CHARACTERS_MAX],
            key[:KEY_BYTES_MAX],
            records.timestamps_ms[bad.index],
        )
        start = REFUSED + PLACE.pack(number, records.partitions[bad.index])
        yield start + _counted_down(records.offsets[bad.index]), _encode(stored)


def stored_unlisted(number: int, unlisted: Unlisted) -> tuple[bytes, bytes]:
    """The stored key and value of a range; one with the same beginning takes its place."""
    place = PLACE.pack(number, unlisted.partition)
    return _UNLISTED + place + _OFFSET.pack(unlisted.offset_first), _OFFSET.pack(unlisted.offset_last)


def refused_among(
    newest_first: Sequence[lmdb.Transaction[bytes]],
    topics: Sequence[str],
    definition: LiveTable,
    first: Seam,
    end: Seam,
    asked: Asked,
    count_max_each: int,
) -> RefusedRecords:
    """Those of each partition in [first, end); at most ``count_max_each`` of each are listed.

    ``topics`` are those that the records were stored with, ``definition`` tells what their keys are.
    """
    holding = [transaction for transaction in newest_first if _holds_any(transaction)]
    listed: list[Refused] = []
    unlisted: list[Unlisted] = []
    for topic, partition, before in end.items() if holding else ():
        since = first.get((topic, partition))
        if topic not in topics or before <= since:
            continue
        place = PLACE.pack(topics.index(topic), partition)
        start = REFUSED + place
        wanted = (start + _counted_down(before - 1), start + _counted_down(since))
        of_partition = chain.from_iterable(_between(transaction, *wanted) for transaction in holding)
        taken = 0
        for scanned, (key, value) in enumerate(of_partition, start=1):
            offset, stored = _OFFSET_MAX - _OFFSET.unpack_from(key, len(start))[0], _decode(value)
            if asked.wants((topic, partition), offset, stored.key):
                listed.append(_shown(definition, topic, partition, offset, stored))
                taken += 1
            if taken == count_max_each:
                break
            if scanned == SCANNED_MAX and asked.prefixes is not None:
                if offset > since:
                    unlisted.append(Unlisted(topic, partition, since, offset - 1))
                break
        unlisted += _unlisted_of(holding, topic, partition, place, since, before)
    return RefusedRecords(listed, unlisted)


def _unlisted_of(
    holding: Sequence[lmdb.Transaction[bytes]],
    topic: str,
    partition: int,
    place: bytes,
    since: int,
    before: int,
) -> Iterator[Unlisted]:
    """The ranges of a partition that are not kept, as far as they lie in [since, before)."""
    bounds = _UNLISTED + place + _OFFSET.pack(0), _UNLISTED + place + _OFFSET.pack(before - 1)
    for transaction in holding:
        for key, value in _between(transaction, *bounds):
            (offset_first,), (offset_last,) = _OFFSET.unpack(key[-_OFFSET.size :]), _OFFSET.unpack(value)
            if offset_last >= since:
                yield Unlisted(topic, partition, max(offset_first, since), min(offset_last, before - 1))


def _shown(definition: LiveTable, topic: str, partition: int, offset: int, stored: _Stored) -> Refused:
    key = _shown_key(definition, stored.key)
    return Refused(topic, partition, offset, stored.stage, stored.reason, key, stored.timestamp_ms)


def _shown_key(definition: LiveTable, key: bytes) -> dict[str, Any] | None:
    if not key or len(key) == KEY_BYTES_MAX:
        return None
    return dict(zip(definition.key, decode_one(definition, key), strict=True))


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
_decode = msgspec.msgpack.Decoder(_Stored).decode
