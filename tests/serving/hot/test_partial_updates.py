"""Records that set only some columns, in the hot tier: over chains, seams, generations and merges."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from thermocline.kafka.facts import RecordChunk, TopicRecords
from thermocline.rules.decode import Unpacker, decoder_for, json_row
from thermocline.rules.definition import ABSENT, KEY, TOMBSTONE, LiveTable
from thermocline.rules.keys import encode_one
from thermocline.rules.seam import Seam
from thermocline.serving.cold.reader import Entity
from thermocline.serving.cold.row_json import RowJson
from thermocline.serving.hot import tier as tier_module
from thermocline.serving.hot.record import KEY_BYTES_MAX, HotRow, stored_records
from thermocline.serving.hot.scan import PAYLOAD
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.view import HotReader, HotView

DEFINITION = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["t"],
    key=["k"],
    columns={"v": "long", "k": "string", "w": "string", "x": "timestamptz", "y": "list<string>"},
    buckets=1,
    partial_updates=True,
)
COLUMNS = ("v", "w", "x", "y")
# One is stored as a beginning and a hash.
KEYS = ("a", "b", "c", "long" * KEY_BYTES_MAX)
NULLS: dict[str, object] = dict.fromkeys(COLUMNS)
unpack = Unpacker(DEFINITION).unpack

Sets = dict[str, object]


@dataclass
class Record:
    """Sets some columns, to null too; ``sets`` None is a tombstone."""

    key: str
    partition: int
    offset: int
    timestamp_ms: int
    sets: Sets | None


@dataclass
class Chains:
    """Random records of two partitions, as they are appended to a tier."""

    tier: HotTier
    draw: random.Random
    wanders: bool
    records: list[Record] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0, 0])

    def append(self, count: int) -> None:
        batch = []
        for partition in (0, 1):
            chunk = RecordChunk("t", partition, [], [], [], [])
            for _ in range(count):
                record = self._record(partition)
                self.records.append(record)
                chunk.keys.append(json.dumps({"k": record.key}).encode())
                chunk.values.append(None if record.sets is None else json.dumps(record.sets).encode())
                chunk.offsets.append(record.offset)
                chunk.timestamps_ms.append(record.timestamp_ms)
            batch.append((TopicRecords.of(chunk), decoder_for(DEFINITION).decode(chunk.keys, chunk.values)))
        self.tier.append(batch, self.seam(self.ends), {})

    def _record(self, partition: int) -> Record:
        draw, offset = self.draw, self.ends[partition]
        self.ends[partition] += 1
        key = draw.choice(KEYS if self.wanders else KEYS[partition::2])
        names = draw.sample(COLUMNS, draw.choice([0, 1, 1, 2, 2, 3, 4]))
        values: Sets = {"v": offset, "w": f"w{offset}", "x": f"2026-01-01T00:00:{offset % 60:02}Z"}
        values["y"] = [f"y{offset}", None][: draw.randrange(3)]
        sets: Sets = {name: draw.choice([values[name], values[name], None]) for name in names}
        return Record(key, partition, offset, draw.randrange(3), None if draw.random() < 0.15 else sets)

    def seam(self, offsets: list[int]) -> Seam:
        return Seam({("t", partition): offset for partition, offset in enumerate(offsets)})

    def hot(self, first: list[int]) -> dict[str, tuple[int, Sets | None]]:
        """By key, the winner's offset and the columns that its partition's records set from ``first`` on."""
        states: dict[tuple[str, int], tuple[Record, Sets | None]] = {}
        greatest_ms, times = [-1, -1], {}
        for one in self.records:
            greatest_ms[one.partition] = max(greatest_ms[one.partition], one.timestamp_ms)
            times[one.partition, one.offset] = greatest_ms[one.partition]
            if one.offset >= first[one.partition]:
                _, before = states.get((one.key, one.partition), (one, {}))
                after = None if one.sets is None else (NULLS if before is None else before) | one.sets
                states[one.key, one.partition] = (one, after)
        winners: dict[str, tuple[Record, Sets | None]] = {}

        def rank(one: tuple[Record, Sets | None]) -> tuple[int, int]:
            return times[one[0].partition, one[0].offset], one[0].partition

        for last, state in sorted(states.values(), key=rank):
            winners[last.key] = (last, state)
        return {key: (last.offset, state) for key, (last, state) in winners.items()}

    def rows(self, end: list[int]) -> dict[str, Sets]:
        """The rows after all records before ``end``, each key's in the order of its one partition."""
        rows: dict[str, Sets] = {}
        for one in self.records:
            if one.offset >= end[one.partition]:
                continue
            if one.sets is None:
                rows.pop(one.key, None)
            else:
                rows[one.key] = rows.get(one.key, NULLS) | one.sets
        return rows


def check(chains: Chains, view: HotView, first: list[int]) -> None:
    """Lookups and scans say what the dicts do, and over the rows at the seam they are the rows of now."""
    hits = view.lookup(0, b"", chains.seam(first))
    found = {_name(key): None if row is None else (row.offset, _sets(row)) for key, row in hits.items()}
    expected = chains.hot(first)
    shown = {key: None if state is None else (at, _shown(state)) for key, (at, state) in expected.items()}
    assert found == shown
    assert _scanned(view, chains.seam(first)) == {key: one and one[1] for key, one in shown.items()}
    if not chains.wanders:
        cold = chains.rows(first)
        for key, row in hits.items():
            assert (None if row is None else _overlaid(_name(key), row, cold)) == chains.rows(
                chains.ends
            ).get(_name(key))


def _overlaid(key: str, row: HotRow, cold: dict[str, Sets]) -> Sets:
    form, entity = RowJson(DEFINITION), Entity.of(DEFINITION, [key])
    below = json.dumps({"k": key, **cold[key]}).encode() if key in cold else None
    fields: Sets = json.loads(form.hot(entity, encode_one(DEFINITION, [key]), row, below))
    assert fields.pop("k") == key
    return fields


def _sets(row: HotRow) -> Sets:
    values = dict(zip(COLUMNS, unpack(row.payload), strict=True))
    kept = [COLUMNS[place] for place in row.kept]
    sets: Sets = json.loads(json_row({name: value for name, value in values.items() if name not in kept}))
    return sets


def _scanned(view: HotView, seam: Seam) -> dict[str, Sets | None]:
    table = view.scan(0, seam)
    assert len(set(table.column(KEY).to_pylist())) == table.num_rows
    found: dict[str, Sets | None] = {}
    for row in table.to_pylist():
        values = dict(zip(COLUMNS, unpack(row[PAYLOAD]), strict=True)) if row[PAYLOAD] else NULLS
        sets = {name: value for name, value in values.items() if name not in row[ABSENT]}
        found[_name(row[KEY])] = None if row[TOMBSTONE] else json.loads(json_row(sets))
    return found


def _shown(state: Sets) -> Sets:
    """As declared, so that it compares."""
    return {name: state[name] for name in COLUMNS if name in state}


def _name(key: bytes) -> str:
    return next(name for name in KEYS if encode_one(DEFINITION, [name]) == key)


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[HotTier]:
    opened = HotTier.open(tmp_path / "hot", DEFINITION, Seam({("t", 0): 0, ("t", 1): 0}), ManualClock())
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(6))
def test_partial_records_are_laid_over_each_other_whatever_the_seam(
    tier: HotTier, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: random chains in appends, generations and merges; every look is compared at random seams."""
    monkeypatch.setattr(tier_module, "GENERATIONS_MAX", 3)
    draw = random.Random(seed)
    chains = Chains(tier, draw, wanders=seed % 2 == 0)
    reader = HotReader.open(tier.folder, DEFINITION)
    merges = 0
    for _ in range(60):
        chains.append(draw.choice([1, 2, 5]))
        if draw.random() < 0.4:
            tier.seal()
        if draw.random() < 0.5:
            before = tier.generations
            for _ in range(draw.choice([1, 10])):
                tier.merge_some()
            merges += tier.generations < before
        with reader.view() as view:
            for first in ([0, 0], *([draw.randrange(end + 1) for end in chains.ends] for _ in range(4))):
                check(chains, view, first)
    assert merges > 3
    reader.close()


def test_whole_records_of_a_partial_table_are_stored_as_in_any_other() -> None:
    plain = replace(DEFINITION, partial_updates=False)
    values: list[bytes | None] = [b'{"v": 1, "w": "w", "x": null, "y": null}']
    records = TopicRecords.of(RecordChunk("t", 0, [b'{"k": "a"}'], values, [7], [0]))
    stored = [
        list(stored_records(one, 0, records, decoder_for(one).decode(records.keys, values), [0]))
        for one in (DEFINITION, plain)
    ]
    assert stored[0] == stored[1]
