"""Records that columns order, in the hot tier: over seams, generations and merges."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from thermocline.kafka.facts import RecordChunk, TopicRecords
from thermocline.rules.decode import Unpacker, decoder_for
from thermocline.rules.definition import KEY, LiveTable
from thermocline.rules.keys import encode_one
from thermocline.rules.seam import Seam
from thermocline.serving.hot import tier as tier_module
from thermocline.serving.hot.record import KEY_BYTES_MAX
from thermocline.serving.hot.scan import PAYLOAD
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.view import HotReader, HotView

DEFINITION = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["t"],
    key=["k"],
    columns={"k": "string", "text": "string", "at": {"type": "int", "header": "at"}},
    buckets=1,
    sequence_by=["at"],
)
# One is stored as a beginning and a hash.
KEYS = ("a", "b", "long" * KEY_BYTES_MAX)
START = Seam({("t", 0): 0, ("t", 1): 0})
unpack = Unpacker(DEFINITION).unpack

Shown = tuple[int, str | None]
"""The winner's offset and its text; None where it deletes."""


@dataclass(frozen=True)
class Record:
    key: str
    partition: int
    offset: int
    timestamp_ms: int
    at: int
    text: str | None


@dataclass
class Log:
    """Random records of two partitions, as they are appended to a tier."""

    tier: HotTier
    draw: random.Random
    records: list[Record] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0, 0])

    def append(self, count: int) -> None:
        batch = []
        for partition in (0, 1):
            new = [self._record(partition) for _ in range(count)]
            keys: list[bytes | None] = [json.dumps({"k": one.key}).encode() for one in new]
            values = [None if one.text is None else json.dumps({"text": one.text}).encode() for one in new]
            offsets = [one.offset for one in new]
            chunk = RecordChunk("t", partition, keys, values, offsets, [one.timestamp_ms for one in new])
            headers = [(("at", str(one.at).encode()),) for one in new]
            decoded = decoder_for(DEFINITION).decode(keys, values, headers.__getitem__)
            assert not decoded.bad
            batch.append((TopicRecords.of(chunk), decoded))
            self.records += new
        self.tier.append(batch, seam_of(self.ends), {})

    def _record(self, partition: int) -> Record:
        draw, offset = self.draw, self.ends[partition]
        self.ends[partition] += 1
        text = None if draw.random() < 0.3 else f"{partition}@{offset}"
        return Record(draw.choice(KEYS), partition, offset, draw.randrange(3), draw.randrange(-9, 9), text)

    def winners(self, first: list[int]) -> dict[str, Shown]:
        best: dict[tuple[str, int], Record] = {}
        greatest_ms, times = [-1, -1], {}
        for one in self.records:
            greatest_ms[one.partition] = max(greatest_ms[one.partition], one.timestamp_ms)
            times[one.partition, one.offset] = greatest_ms[one.partition]
            known = best.get((one.key, one.partition))
            if one.offset >= first[one.partition] and (known is None or one.at >= known.at):
                best[one.key, one.partition] = one
        of_keys = sorted(
            best.values(), key=lambda one: (one.at, times[one.partition, one.offset], one.partition)
        )
        return {one.key: (one.offset, one.text) for one in of_keys}


def seam_of(offsets: list[int]) -> Seam:
    return Seam({("t", partition): offset for partition, offset in enumerate(offsets)})


def looked_up(view: HotView, seam: Seam) -> dict[str, Shown]:
    found = view.lookup(0, b"", seam)
    assert all(row is not None for row in found.values())
    return {
        name_of(key): (row.offset, unpack(row.payload)[0] if row.payload else None)
        for key, row in found.items()
        if row is not None
    }


def scanned(view: HotView, seam: Seam) -> dict[str, Shown]:
    table = view.scan(0, seam)
    assert len(set(table.column(KEY).to_pylist())) == table.num_rows
    return {
        name_of(row[KEY]): (row["_kafka_offset"], unpack(row[PAYLOAD])[0] if row[PAYLOAD] else None)
        for row in table.to_pylist()
    }


def name_of(key: bytes) -> str:
    return next(name for name in KEYS if encode_one(DEFINITION, [name]) == key)


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[HotTier]:
    opened = HotTier.open(tmp_path / "hot", DEFINITION, START, ManualClock())
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(4))
def test_the_highest_sequence_from_any_seam_on_wins(
    tier: HotTier, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: random records in appends, generations and merges; every look is compared at random seams.

    Deletes are records without a value, whose sequence is in a header.
    """
    monkeypatch.setattr(tier_module, "GENERATIONS_MAX", 3)
    draw = random.Random(seed)
    log = Log(tier, draw)
    reader = HotReader.open(tier.folder, DEFINITION)
    merges = 0
    for _ in range(60):
        log.append(draw.choice([1, 2, 5]))
        if draw.random() < 0.4:
            tier.seal()
        if draw.random() < 0.5:
            before = tier.generations
            for _ in range(draw.choice([1, 10])):
                tier.merge_some()
            merges += tier.generations < before
        with reader.view() as view:
            for first in ([0, 0], *([draw.randrange(end + 1) for end in log.ends] for _ in range(4))):
                expected, seam = log.winners(first), seam_of(first)
                assert looked_up(view, seam) == expected
                assert scanned(view, seam) == expected
    assert merges > 3
    reader.close()
