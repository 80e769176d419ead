"""A log in memory, what appends it to a hot tier, and what a plain dict says the tier must answer."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from thermocline.kafka.facts import RecordChunk, TopicRecords
from thermocline.rules.decode import Unpacker, decoder_for
from thermocline.rules.definition import KEY, TOMBSTONE, LiveTable
from thermocline.rules.keys import bucket_of, decode_one, encode_one
from thermocline.rules.seam import Seam
from thermocline.serving.hot.leases import Terms
from thermocline.serving.hot.manifest import read_manifest
from thermocline.serving.hot.record import HotRow
from thermocline.serving.hot.scan import PAYLOAD
from thermocline.serving.hot.tier import HotTier

TOPICS = ("profiles", "more")
DEFINITION = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=TOPICS,
    key=["app_id", "user_id", "key"],
    entity=["app_id", "user_id"],
    columns={"app_id": "int", "user_id": "string", "key": "string", "value": "string"},
    buckets=4,
)
PLACES = [("profiles", 0), ("profiles", 1), ("more", 0)]
START = Seam(dict.fromkeys(PLACES, 100))


def generation_files(folder: Path) -> list[Path]:
    """The files of the generations that the manifest lists, oldest first."""
    manifest = read_manifest(folder)
    assert manifest is not None
    return [folder / listed.name for listed in manifest.generations]


def pinned_generations(folder: Path) -> tuple[Path, set[str]]:
    """The lease of the only pin of a folder, and the generations that it names."""
    (lease,) = (folder / "leases").iterdir()
    return lease, set(msgspec.json.decode(lease.read_bytes(), type=Terms).generations)


Key = tuple[int, str, str]
Place = tuple[str, int]


@dataclass(frozen=True)
class Record:
    offset: int
    timestamp_ms: int
    key: Key
    value: str | None
    is_bad: bool = False


@dataclass
class FakeLog:
    """Partitions that grow; ``fed`` is how far each has been appended to the tier."""

    partitions: dict[Place, list[Record]] = field(default_factory=lambda: {place: [] for place in PLACES})
    ends: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 100))

    def add(self, place: Place, key: Key, value: str | None, timestamp_ms: int, is_bad: bool = False) -> None:
        record = Record(self.ends[place], timestamp_ms, key, value, is_bad)
        self.partitions[place].append(record)
        self.ends[place] += 1

    def skip(self, place: Place) -> None:
        """An offset without a record, such as the marker of a transaction."""
        self.ends[place] += 1

    def feed(self, tier: HotTier, until: dict[Place, int] | None = None, reached_at: float = 0.0) -> None:
        """Appends all from the tier's end on, in one batch."""
        ends = until or self.ends
        chunks = []
        for place, records in self.partitions.items():
            chunk = RecordChunk(*place, [], [], [], [])
            for record in records:
                if tier.end[place] <= record.offset < ends[place]:
                    chunk.keys.append(raw_key(record))
                    chunk.values.append(raw_value(record))
                    chunk.offsets.append(record.offset)
                    chunk.timestamps_ms.append(record.timestamp_ms)
            if chunk.offsets:
                chunks.append(chunk)
        read = TopicRecords.of_each(chunks)
        batch = [(one, decoder_for(DEFINITION).decode(one.keys, one.values)) for one in read]
        tier.append(batch, Seam(ends), dict.fromkeys(ends, reached_at))

    def winners(self, seam: Seam, end: Seam) -> dict[Key, Record]:
        """What counts in [seam, end): the last record of each key, by offset and then over partitions."""
        last: dict[Key, dict[Place, tuple[int, Record]]] = {}
        for place, records in self.partitions.items():
            greatest_ms = -1
            for record in records:
                greatest_ms = max(greatest_ms, record.timestamp_ms)
                if seam.get(place) <= record.offset < end.get(place) and not record.is_bad:
                    last.setdefault(record.key, {})[place] = greatest_ms, record
        return {
            key: max(found.items(), key=lambda item: (item[1][0], item[0]))[1][1]
            for key, found in last.items()
        }


def check(view: object, log: FakeLog, seam: Seam, draw: random.Random) -> None:
    """Compares every bucket and a few entities and rows with the dict."""
    expected = log.winners(seam, view.end)  # type: ignore[attr-defined]
    found: dict[Key, str | None] = {}
    for bucket in range(DEFINITION.buckets):
        winners = view.scan(bucket, seam)  # type: ignore[attr-defined]
        keys = winners.column(KEY).to_pylist()
        assert len(keys) == len(set(keys))
        for key, row in zip(keys, winners.to_pylist(), strict=True):
            named = _named(key)
            record = expected[named]
            assert bucket_of(DEFINITION, named[1]) == bucket
            assert row[TOMBSTONE] == (not row[PAYLOAD])
            found[named] = None if row[TOMBSTONE] else str(_unpack(row[PAYLOAD])[0])
            assert row["_kafka_offset"] == record.offset
            assert row["_kafka_timestamp"].timestamp() * 1000 == record.timestamp_ms
            assert record in log.partitions[row["_kafka_topic"], row["_kafka_partition"]]
    assert found == {key: record.value for key, record in expected.items()}
    for key in draw.sample(sorted(found), min(5, len(found))):
        entity = {
            _named(one): _value(row)
            for one, row in view.lookup(  # type: ignore[attr-defined]
                bucket_of(DEFINITION, key[1]), encode_one(DEFINITION, key[:2]), seam
            ).items()
        }
        assert entity == {one: value for one, value in found.items() if one[:2] == key[:2]}
        whole = encode_one(DEFINITION, key)
        rows = view.lookup(bucket_of(DEFINITION, key[1]), whole, seam)  # type: ignore[attr-defined]
        assert {one: _value(row) for one, row in rows.items()} == {whole: found[key]}


def _named(key: bytes) -> Key:
    return decode_one(DEFINITION, key)  # type: ignore[return-value]


_unpack = Unpacker(DEFINITION).unpack


def _value(row: HotRow | None) -> str | None:
    return None if row is None else str(_unpack(row.payload)[0])


def raw_key(record: Record) -> bytes:
    """A record's key as it stands in the log."""
    return (
        b"{not json"
        if record.is_bad
        else json.dumps(dict(zip(DEFINITION.key, record.key, strict=True))).encode()
    )


def raw_value(record: Record) -> bytes | None:
    """A record's value as it stands in the log; None is a tombstone."""
    return None if record.value is None else json.dumps({"value": record.value}).encode()
