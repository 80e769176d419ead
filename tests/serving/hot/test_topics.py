"""Topics that come to a tier and leave it: the rest of it is kept, and each snapshot counts its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from tests.serving.hot_log import DEFINITION, FakeLog, check
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of, encode_one
from thermocline.rules.seam import Seam
from thermocline.serving.hot import tier as tier_module
from thermocline.serving.hot.compatibility import incompatibility
from thermocline.serving.hot.leases import ReaderLease
from thermocline.serving.hot.manifest import read_manifest
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.tier_folder import Below
from thermocline.serving.hot.topics import numbered
from thermocline.serving.hot.view import HotReader
from thermocline.serving.store.fed_by import FedBy

A, B, C = ("a", 0), ("b", 0), ("c", 0)
KEY = (1, "u", "k")


def snapshot(version: int, ids: dict[str, str], seam: dict[tuple[str, int], int]) -> Below:
    """One whose definition names these topics."""
    definition = replace(DEFINITION, topics=tuple(ids), version=version)
    return Below(definition, Seam(seam), FedBy("cluster", ids).to_text(), 0)


FIRST = snapshot(1, {"a": "1", "b": "2"}, {A: 0, B: 0})
WITH_C = snapshot(2, {"a": "1", "b": "2", "c": "3"}, {A: 0, B: 0, C: 0})
WITHOUT_A = snapshot(3, {"b": "2", "c": "3"}, {B: 0, C: 0})


@dataclass
class World:
    """A tier under one snapshot after the other, its log and a reader."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    log: FakeLog = field(default_factory=lambda: FakeLog({A: [], B: []}, {A: 0, B: 0}))

    def __post_init__(self) -> None:
        self.tier = self.opened(FIRST)
        self.reader = HotReader.open(self.folder, FIRST.definition)

    def opened(self, below: Below) -> HotTier:
        definition, source = below.definition, below.source
        return HotTier.open(self.folder, definition, below.seam, self.clock, source=source)

    def reopened(self, below: Below) -> None:
        self.tier.close()
        self.tier = self.opened(below)

    def follow(self, below: Below) -> None:
        """As a tailer does, which then reads the new topics from the seam on."""
        self.tier.follow(below.definition, below.source)
        new = {(t, p): at for t, p, at in below.seam.items() if (t, p) not in self.tier.end}
        if new:
            self.tier.extend(Seam(new))
        for place in new:
            self.log.partitions.setdefault(place, [])
            self.log.ends.setdefault(place, 0)

    def add(self, place: tuple[str, int], value: str, key: tuple[int, str, str] = KEY) -> None:
        self.clock.advance(1)
        self.log.add(place, key, value, round(1000 * self.clock.monotonic()))
        reading = {one: self.log.partitions[one] for one in self.log.partitions if one in self.tier.end}
        ends = {one: self.log.ends[one] for one in reading}
        FakeLog(reading, ends).feed(self.tier, reached_at=self.clock.monotonic())

    def of(self, below: Below) -> dict[str, int]:
        """The offsets that win for a snapshot, by topic; a lookup, a scan and a pin say the same."""
        topics, bucket = below.definition.topics, bucket_of(DEFINITION, "u")
        with self.reader.view(topics) as view:
            assert incompatibility(below, view) is None
            assert set(view.end.topics) <= set(topics)
            rows = view.lookup(bucket, encode_one(DEFINITION, (1, "u")), below.seam)
            found = {row.topic: row.offset for row in rows.values() if row is not None}
            scanned = view.scan(bucket, below.seam).to_pylist()
            check(view, self.of_topics(topics), below.seam, random.Random(0))
        assert {row["_kafka_topic"]: row["_kafka_offset"] for row in scanned} == found
        return found

    def of_topics(self, topics: tuple[str, ...]) -> FakeLog:
        """What the log has of these."""
        places = [place for place in self.log.partitions if place[0] in topics]
        return FakeLog({one: self.log.partitions[one] for one in places}, self.log.ends)

    def problem(self, below: Below) -> str | None:
        with self.reader.view(below.definition.topics) as view:
            return incompatibility(below, view)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    one = World(tmp_path / "hot")
    yield one
    one.tier.close()


def test_a_topic_that_comes_counts_for_the_snapshots_that_name_it_alone(world: World) -> None:
    world.add(A, "before")
    records = world.tier.records
    world.follow(WITH_C)
    assert world.tier.records == records, "what is held is kept"
    world.add(C, "new")
    world.tier.seal()
    world.add(C, "newer")
    assert world.of(FIRST) == {"a": 0}
    assert world.of(WITH_C) == {"c": 1}


def test_before_a_topic_is_read_its_snapshot_has_to_wait(world: World) -> None:
    assert world.problem(WITH_C) is not None
    world.tier.follow(WITH_C.definition, WITH_C.source)
    assert world.problem(WITH_C) == "the hot tier is not read from c, which feeds the snapshot"
    assert world.problem(FIRST) is None
    world.tier.extend(Seam({C: 0}))
    assert world.problem(WITH_C) is None


def test_a_pin_is_of_the_topics_of_its_snapshot(world: World) -> None:
    world.follow(WITH_C)
    world.add(A, "old")
    world.add(C, "new")
    bucket = bucket_of(DEFINITION, "u")
    for below, expected in ((FIRST, {"a": 0}), (WITH_C, {"c": 0})):
        pin = hold(world.folder, "t", 1, below.seam, world.clock, below.definition.topics)
        world.clock.advance(1)
        world.tier.seal()
        with pin.open(0) as pinned:
            assert incompatibility(below, pinned) is None
            rows = pinned.scan(bucket, below.seam).to_pylist()
            assert {row["_kafka_topic"]: row["_kafka_offset"] for row in rows} == expected
            assert set(pinned.end.topics) == set(below.definition.topics)


def test_a_pin_whose_seal_came_before_a_topic_does_not_fit_its_snapshot(world: World) -> None:
    pin = hold(world.folder, "t", 1, WITH_C.seam, world.clock, WITH_C.definition.topics)
    world.clock.advance(1)
    world.tier.seal()
    world.follow(WITH_C)
    with pin.open(0) as pinned:
        assert incompatibility(WITH_C, pinned) is not None


def test_a_topic_that_left_is_kept_for_whoever_serves_a_snapshot_with_it(world: World) -> None:
    lease = ReaderLease.of_reader(world.folder, 2, WITH_C.seam)
    world.follow(WITH_C)
    world.add(A, "of a")
    world.follow(WITHOUT_A)
    world.add(B, "of b")
    for _ in range(3):
        world.clock.advance(1)
        lease.beat()
        world.tier.tend(Seam({B: 1, C: 0}))
    assert world.of(WITH_C) == {"b": 0}
    assert world.of(WITHOUT_A) == {"b": 0}
    assert world.tier.end == Seam({B: 1, C: 0})
    lease.serve(3, WITHOUT_A.seam)
    world.clock.advance(2)
    world.tier.tend(WITHOUT_A.seam)
    assert world.problem(WITH_C) is not None
    assert world.of(WITHOUT_A) == {"b": 0}
    lease.release()


def test_records_of_a_topic_that_left_are_kept_from_the_seam_that_is_served(world: World) -> None:
    lease = ReaderLease.of_reader(world.folder, 1, FIRST.seam)
    world.add(A, "of a")
    world.tier.seal()
    world.follow(WITHOUT_A)
    world.clock.advance(2)
    world.tier.tend(WITHOUT_A.seam)
    assert world.of(FIRST) == {"a": 0}
    lease.release()


def test_once_nobody_needs_a_topic_that_left_its_generations_go_and_its_number_is_given_again(
    world: World,
) -> None:
    world.add(A, "of a")
    world.follow(WITH_C)
    world.follow(WITHOUT_A)
    assert topics_of(world) == ("a", "b", "c")
    world.clock.advance(2)
    world.tier.tend(WITHOUT_A.seam)
    assert world.tier.topics == {"b", "c"}
    assert world.tier.records == 0
    with_d = snapshot(4, {"b": "2", "c": "3", "d": "4"}, {B: 0, C: 0, ("d", 0): 0})
    world.follow(with_d)
    assert topics_of(world) == ("d", "b", "c")
    world.add(("d", 0), "of d")
    assert world.of(with_d) == {"d": 0}


def test_a_number_is_kept_as_long_as_a_merged_generation_has_records_of_its_topic(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "GENERATIONS_MAX", 2)
    world.add(A, "of a")
    world.tier.seal()
    world.follow(WITHOUT_A)
    world.add(B, "of b")
    world.clock.advance(2)
    world.tier.tend(Seam({B: 0, C: 0}))
    world.add(B, "more of b")
    world.tier.seal()
    for _ in range(20):
        world.tier.merge_some()
    assert world.tier.generations == 2
    with_d = snapshot(4, {"b": "2", "c": "3", "d": "4"}, {B: 0, C: 0, ("d", 0): 0})
    world.follow(with_d)
    assert topics_of(world) == ("a", "b", "c", "d")
    assert world.of(with_d) == {"b": 1}


def topics_of(world: World) -> tuple[str, ...]:
    found = read_manifest(world.folder)
    assert found is not None
    return found.topics


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_tier_on_disk_goes_on_where_topics_came_and_left_meanwhile(world: World, is_alone: bool) -> None:
    lease = ReaderLease.of_reader(world.folder, 2, WITH_C.seam if not is_alone else WITHOUT_A.seam)
    world.add(B, "of b")
    world.reopened(WITHOUT_A)
    world.log.partitions[C], world.log.ends[C] = [], 0
    assert world.tier.end == Seam({B: 1, C: 0})
    assert world.of(WITHOUT_A) == {"b": 0}
    world.add(C, "of c")
    world.reopened(WITHOUT_A)
    assert world.tier.end == Seam({B: 1, C: 1})
    assert world.of(WITHOUT_A) == {"c": 0}
    lease.release()


def test_a_topic_made_again_under_a_name_that_is_still_held_begins_the_tier_again(world: World) -> None:
    world.add(A, "before")
    world.follow(WITHOUT_A)
    again = snapshot(4, {"a": "9", "b": "2", "c": "3"}, {A: 0, B: 0, C: 0})
    world.reopened(again)
    assert world.tier.records == 0
    assert world.problem(again) is None
    assert world.problem(FIRST) is not None


def test_another_cluster_or_another_column_begins_it_again(world: World) -> None:
    world.add(B, "before")
    other = replace(FIRST, source=FedBy("another", {"a": "1", "b": "2"}).to_text())
    world.reopened(other)
    assert world.tier.records == 0
    world.add(B, "again")
    narrow: LiveTable = replace(FIRST.definition, suppress_unchanged=True)
    world.reopened(replace(other, definition=narrow))
    assert world.tier.records == 0


def test_where_a_topic_left_readers_are_not_told_that_it_makes_them_old(world: World) -> None:
    world.add(A, "of a")
    world.add(B, "of b")
    world.follow(WITH_C)
    world.follow(WITHOUT_A)
    world.clock.advance(100)
    ends = {B: world.log.ends[B], C: 0}
    now = world.clock.monotonic()
    world.tier.append([], Seam(ends), dict.fromkeys(ends, now))
    assert world.tier.age_seconds(now) == 0
    with world.reader.view(WITHOUT_A.definition.topics) as view:
        assert view.age_seconds(now) == 0
    with world.reader.view(FIRST.definition.topics) as view:
        assert view.age_seconds(now) > 99


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        ({"a", "b"}, ["a", "b", "c"], ("a", "b", "c")),
        ({"a", "b"}, ["b", "c"], ("a", "b", "c")),
        ({"b"}, ["b", "c"], ("c", "b")),
        ({"b"}, ["b"], ("", "b")),
        (set(), ["c", "d", "e"], ("c", "d", "e")),
    ],
)
def test_topics_keep_their_numbers_while_they_are_held(
    held: set[str], wanted: list[str], expected: tuple[str, ...]
) -> None:
    assert numbered(("a", "b"), held, wanted) == expected


def test_a_year_of_topics_leaves_a_tier_as_large_as_it_was(world: World) -> None:
    """A topic comes and one leaves each day, and what is read of them is committed."""
    sizes = []
    for day in range(365):
        ids = {f"d{one}": str(one) for one in range(day, day + 3)}
        below = snapshot(day + 2, ids, {(topic, 0): world.log.ends.get((topic, 0), 0) for topic in ids})
        world.follow(below)
        world.add((f"d{day}", 0), f"{day}")
        world.clock.advance(2)
        world.tier.tend(Seam({(topic, 0): world.log.ends[topic, 0] for topic in ids}))
        sizes.append((len(topics_of(world)), world.tier.generations, world.tier.hot_bytes))
    assert max(numbers for numbers, _, _ in sizes) <= 8
    assert sizes[-1] == sizes[10]
