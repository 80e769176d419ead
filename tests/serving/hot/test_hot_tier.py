"""What the hot tier promises, promise by promise; ``test_hot_model`` tries their combinations."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.serving.hot_log import (
    DEFINITION,
    PLACES,
    START,
    FakeLog,
    check,
    generation_files,
    pinned_generations,
)
from thermocline.errors import NotReady
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of, encode_one
from thermocline.rules.seam import Seam
from thermocline.serving.hot import disk, manifest, tier, tier_folder, view
from thermocline.serving.hot import pinned as pinned_module
from thermocline.serving.hot import refused as refused_module
from thermocline.serving.hot.generation import Generation
from thermocline.serving.hot.leases import TIMEOUT_SECONDS, ReaderLease
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.record import KEY_BYTES_MAX, LONG_KEY_PREFIX_BYTES
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.view import HotReader

P0, P1, OTHER = PLACES
KEY = (1, "u", "k")


class World:
    """A tier, its log and a reader."""

    def __init__(self, folder: Path, definition: LiveTable = DEFINITION) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.log = FakeLog()
        self.tier = HotTier.open(folder, definition, START, self.clock)
        self.reader = HotReader.open(folder, definition)

    def add(self, place: tuple[str, int] = P0, key: tuple[int, str, str] = KEY, value: str | None = "v",
            timestamp_ms: int = 0) -> None:  # fmt: skip
        self.log.add(place, key, value, timestamp_ms)
        self.log.feed(self.tier, reached_at=self.clock.monotonic())

    def tend_after(self, seconds: float, newest: Seam | None = None) -> None:
        self.clock.advance(seconds)
        self.tier.tend(newest)

    def check(self, seam: Seam = START) -> None:
        with self.reader.view() as view:
            check(view, self.log, seam, random.Random(0))

    def reopen(self, start: Seam = START, definition: LiveTable = DEFINITION) -> None:
        self.tier.close()
        self.tier = HotTier.open(self.folder, definition, start, self.clock)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "hot")


@pytest.fixture(autouse=True)
def close(world: World) -> object:
    yield
    world.tier.close()


def offsets(world: World, seam: Seam) -> dict[str, int | None]:
    with world.reader.view() as view:
        found = view.lookup(bucket_of(DEFINITION, "u"), encode_one(DEFINITION, (1, "u")), seam)
    return {key.decode("latin1")[-3:-2]: row and row.offset for key, row in found.items()}


def refused(world: World, first: Seam, end: Seam, each: int = 100) -> list[tuple[int, int]]:
    with world.reader.view() as view:
        return [(one.partition, one.offset) for one in view.refused(DEFINITION, first, end, each).listed]


def test_refused_records_are_kept_with_their_reasons_over_generations_and_merges(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a bad record before each seal, and then two of the generations are merged."""
    monkeypatch.setattr(tier, "GENERATIONS_MAX", 3)
    for _ in range(4):
        world.log.add(P0, KEY, "v", 0, is_bad=True)
        world.add(P1)
        world.tier.seal()
    for _ in range(20):
        world.tier.merge_some()
    assert world.tier.generations < 5
    end = Seam({P0: 104, P1: 104, OTHER: 100})
    assert refused(world, START, end) == [(0, 103), (0, 102), (0, 101), (0, 100)]
    assert refused(world, START, end, 2) == [(0, 103), (0, 102)]
    world.log.add(P1, KEY, "v", 0, is_bad=True)
    world.add(P1)
    assert refused(world, START, world.tier.end, 1) == [(0, 103), (1, 104)], "no partition hides another"
    assert refused(world, Seam({P0: 101}), Seam({P0: 103})) == [(0, 102), (0, 101)]
    with world.reader.view() as one_view:
        (newest,), _ = one_view.refused(DEFINITION, START, end, 1)
    assert (newest.topic, newest.stage) == (P0[0], "key")
    assert newest.reason
    world.check()


def test_where_more_records_were_refused_than_are_kept_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: two are kept of four generations' records; of the ranges of the rest, two are merged."""
    monkeypatch.setattr(refused_module, "KEPT_MAX", 2)
    monkeypatch.setattr(tier, "GENERATIONS_MAX", 2)
    for _ in range(3):
        for _ in range(2):
            for _ in range(3):
                world.log.add(P0, KEY, "v", 0, is_bad=True)
            world.log.feed(world.tier, reached_at=world.clock.monotonic())
        world.tier.seal()
    for _ in range(20):
        world.tier.merge_some()
    assert world.tier.generations < 4
    with world.reader.view() as one_view:
        listed, unlisted = one_view.refused(DEFINITION, START, world.tier.end, 100)
        _, some = one_view.refused(DEFINITION, Seam({P0: 104}), Seam({P0: 110}), 100)
        _, none = one_view.refused(DEFINITION, Seam({P0: 106}), Seam({P0: 108}), 100)
    assert [one.offset for one in listed] == [113, 112, 107, 106, 101, 100]
    ranges = [(one.topic, one.partition, one.offset_first, one.offset_last) for one in unlisted]
    assert sorted(ranges) == [(*P0, 102, 105), (*P0, 108, 111), (*P0, 114, 117)]
    assert sorted((one.offset_first, one.offset_last) for one in some) == [(104, 105), (108, 109)]
    assert list(none) == []


def test_records_before_the_seam_never_count(world: World) -> None:
    world.add(value="old")
    assert offsets(world, START) == {"k": 100}
    assert offsets(world, Seam({P0: 101, P1: 100, OTHER: 100})) == {}


def test_each_partition_has_its_own_seam(world: World) -> None:
    world.add(P0, timestamp_ms=9)
    world.add(P1, timestamp_ms=1)
    assert offsets(world, Seam({P0: 101, P1: 100, OTHER: 100})) == {"k": 100}
    world.check(Seam({P0: 101, P1: 100, OTHER: 100}))


def test_a_tombstone_is_a_winner(world: World) -> None:
    world.add(value="v")
    world.tier.seal()
    world.add(value=None)
    assert offsets(world, START) == {"k": None}


def test_within_a_partition_the_offset_decides_even_if_time_went_back(world: World) -> None:
    world.add(value="first", timestamp_ms=50)
    world.tier.seal()
    world.add(value="second", timestamp_ms=10)
    assert offsets(world, START) == {"k": 101}


def test_over_partitions_the_time_decides_and_then_topic_and_partition(world: World) -> None:
    world.add(P1, value=None, timestamp_ms=50)
    world.add(P0, value="earlier", timestamp_ms=10)
    assert offsets(world, START) == {"k": None}
    world.add(P0, value="same time, lower partition", timestamp_ms=50)
    assert offsets(world, START) == {"k": None}
    world.add(OTHER, value="same time, lower topic", timestamp_ms=50)
    assert offsets(world, START) == {"k": None}
    world.add(OTHER, value="later", timestamp_ms=51)
    assert offsets(world, START) == {"k": 101}


def test_an_end_covers_bad_records_and_holes_too(world: World) -> None:
    world.log.add(P0, KEY, "v", 0, is_bad=True)
    world.log.skip(P0)
    world.log.feed(world.tier)
    with world.reader.view() as view:
        assert view.end[P0] == 102


def test_a_view_stays_as_it_was_entered(world: World) -> None:
    world.add(value="before")
    with world.reader.view() as view:
        end = view.end
        world.add(value="after")
        world.tier.seal()
        world.add(value="after the seal")
        assert view.end == end
        check(view, world.log, START, random.Random(0))
    world.check()


def test_the_age_is_that_of_the_partition_that_is_longest_behind(world: World) -> None:
    with world.reader.view() as view:
        assert view.age_seconds(5.0) == float("inf")
    world.tier.append([], START, {P0: 1.0, P1: 3.0, OTHER: 2.0})
    world.tier.seal()
    with world.reader.view() as view:
        assert view.age_seconds(5.0) == 4.0


def test_a_reader_between_a_mark_and_its_manifest_answers_and_then_moves_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the moment at which the active generation names a manifest that isn't there yet is no gap.

    Method: publish the manifest only after the reader has met the mark twice.
    """
    world.add(value="before")
    waiting: list[tuple[Path, manifest.HotManifest]] = []
    monkeypatch.setattr(tier, "publish_manifest", lambda *arguments: waiting.append(arguments))
    world.tier.seal()
    world.check()
    world.check()
    manifest.publish_manifest(*waiting[0])
    world.add(value="after")
    world.check()


def test_a_tailer_that_dies_between_a_mark_and_its_manifest_is_continued(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(value="before")
    with monkeypatch.context() as patch:
        patch.setattr(tier, "publish_manifest", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.tier.seal()
    world.check()
    world.reopen()
    world.add(value="after")
    world.tier.seal()
    world.add(value="later")
    world.check()


@pytest.mark.parametrize("length", [KEY_BYTES_MAX - 12, KEY_BYTES_MAX - 11, KEY_BYTES_MAX - 10, 2000])
def test_keys_beyond_the_limit_of_lmdb_are_whole_and_apart(world: World, length: int) -> None:
    """Goal: rows whose keys differ only beyond what LMDB holds are told apart, and found by every prefix."""
    stem = "x" * length
    keys = [(1, "u", stem + end) for end in ("", "a", "b")]
    for number, key in enumerate(keys):
        world.add(key=key, value=f"v{number}")
        world.add(P1, key=key, value=f"w{number}", timestamp_ms=1)
    world.tier.seal()
    world.add(key=keys[1], value=None, timestamp_ms=2)
    world.check()
    bucket = bucket_of(DEFINITION, "u")
    whole = encode_one(DEFINITION, keys[2])
    prefixes = [whole[:cut] for cut in (0, 5, LONG_KEY_PREFIX_BYTES - 1, LONG_KEY_PREFIX_BYTES)]
    with world.reader.view() as view:
        for prefix in prefixes:
            assert len(view.lookup(bucket, prefix, START)) == 3
        for prefix in (whole[:-2], whole):
            if len(prefix) > LONG_KEY_PREFIX_BYTES:
                assert list(view.lookup(bucket, prefix, START)) == [whole]


def test_an_entity_longer_than_the_limit_is_found_and_no_other(world: World) -> None:
    user = "u" * 600
    world.add(key=(1, user, "a"))
    world.add(key=(1, user, "b"))
    world.add(key=(1, user + "2", "a"))
    bucket = bucket_of(DEFINITION, user)
    with world.reader.view() as view:
        assert len(view.lookup(bucket, encode_one(DEFINITION, (1, user)), START)) == 2


def test_old_generations_end_and_what_is_committed_is_evicted(world: World) -> None:
    world.add(value="committed")
    world.tend_after(tier.GENERATION_SECONDS_MAX)
    world.add(value="not committed")
    world.tend_after(1.0, START)
    assert world.tier.start == START
    seam = Seam({**dict.fromkeys(PLACES, 100), P0: 101})
    world.tend_after(1.0, seam)
    assert world.tier.start == seam
    with world.reader.view() as view:
        assert view.start == seam
    world.check(seam)


def test_a_reader_keeps_from_eviction_what_the_snapshot_it_serves_needs(world: World) -> None:
    lease = ReaderLease.of_reader(world.folder, 1, START)
    world.add()
    world.tend_after(tier.GENERATION_SECONDS_MAX)
    world.tend_after(1.0, world.tier.end)
    assert world.tier.start == START
    lease.serve(2, world.tier.end)
    world.tend_after(1.0, world.tier.end)
    assert world.tier.start == world.tier.end
    lease.release()


def test_a_lease_that_is_not_touched_times_out_by_the_tailers_own_clock(world: World) -> None:
    ReaderLease.of_reader(world.folder, 1, START)._released.set()  # its process is gone
    world.add()
    world.tend_after(tier.GENERATION_SECONDS_MAX)
    world.tend_after(TIMEOUT_SECONDS - 1, world.tier.end)
    assert world.tier.start == START
    world.tend_after(2.0, world.tier.end)
    assert world.tier.start == world.tier.end


def test_a_lease_outlives_a_disk_that_fails_now_and_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = ReaderLease.of_reader(world.folder, 1, START)
    touch, leases = disk.touch, lease.path.parent
    before = dict(disk.stamps(leases))[lease.path]

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "touch", fail)
    lease.beat()
    assert dict(disk.stamps(leases))[lease.path] == before
    monkeypatch.setattr(disk, "touch", touch)
    lease.beat()
    assert dict(disk.stamps(leases))[lease.path] != before
    lease.release()


def test_more_than_eight_generations_are_merged(world: World) -> None:
    for number in range(20):
        world.add(key=(1, "u", f"k{number % 3}"), value=f"v{number}")
        world.tier.seal()
    for _ in range(100):
        world.tier.merge_some()
    assert world.tier.generations == tier.GENERATIONS_MAX
    world.check()
    world.tend_after(1.0)
    assert len(list(world.folder.glob("*.mdb"))) == tier.GENERATIONS_MAX


def test_a_batch_larger_than_a_map_gets_a_generation_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add(value="before")
    monkeypatch.setattr(tier, "MAP_BYTES", 2 << 20)
    world.reopen(START.merged_max(world.tier.end), DEFINITION)  # begins nothing again; the map is as it was
    world.tier.seal()
    for number in range(20):
        world.log.add(P0, (1, "u", f"k{number}"), "x" * 1_000_000, 0)
    world.log.feed(world.tier)
    world.check()


def test_a_new_partition_is_taken_up_where_it_begins(world: World) -> None:
    world.add()
    world.tier.seal()
    new = ("profiles", 2)
    world.tier.extend(Seam({new: 7}))
    with world.reader.view() as view:
        assert (view.start[new], view.end[new]) == (7, 7)
        assert view.start[P0] == 100


def test_the_budget_and_a_disk_nearly_full_both_say_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not world.tier.is_full(1 << 30)
    assert world.tier.is_full(world.tier.hot_bytes)
    monkeypatch.setattr(tier, "DISK_FREE_BYTES_MIN", 1 << 60)
    assert world.tier.is_full(1 << 30)


def test_reopening_goes_on_where_it_ended(world: World) -> None:
    world.add(value="one")
    world.tier.seal()
    world.add(value="two")
    end = world.tier.end
    world.reopen()
    assert world.tier.end == end
    world.add(value="three")
    world.check()


def test_only_one_tailer_can_write(world: World) -> None:
    with pytest.raises(NotReady, match="another tailer"):
        HotTier.open(world.folder, DEFINITION, START, world.clock)


def altered(definition: LiveTable) -> LiveTable:
    return replace(definition, version=2, suppress_unchanged=not definition.suppress_unchanged)


def test_another_definition_begins_an_empty_tier_and_readers_notice(world: World) -> None:
    world.add()
    seam = Seam({**dict.fromkeys(PLACES, 100), P0: 101})
    world.reopen(seam, altered(DEFINITION))
    with world.reader.view() as view:
        assert view.definition_json == altered(DEFINITION).to_json()
        assert view.start == view.end == seam


def test_a_table_that_went_back_before_the_tier_begins_an_empty_one(world: World) -> None:
    world.add()
    earlier = Seam(dict.fromkeys(PLACES, 50))
    world.reopen(earlier)
    assert world.tier.start == world.tier.end == earlier
    with world.reader.view() as view:
        assert view.end == earlier


def test_generations_of_another_boot_are_discarded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add()
    monkeypatch.setattr(manifest, "boot_id", lambda: "another")
    monkeypatch.setattr(tier_folder, "boot_id", lambda: "another")
    with pytest.raises(NotReady):
        HotReader.open(world.folder, DEFINITION)
    world.reopen()
    assert world.tier.end == START
    assert len(list(world.folder.glob("*.mdb"))) == 1


def test_a_generation_that_cannot_be_opened_is_read_again(world: World) -> None:
    world.add()
    name = generation_files(world.folder)[0]
    world.reader.close()
    world.tier.close()
    name.write_bytes(b"not LMDB's" * 1000)
    world.tier = HotTier.open(world.folder, DEFINITION, START, world.clock)
    assert world.tier.end == START


def test_a_pin_reads_the_same_whatever_happens_later(world: World) -> None:
    """Goal: appends, merges, evictions and a restart of the tailer change nothing for a pin.

    Method: look after each; a pin's files must also stay on disk, for whoever opens them later.
    """
    world.add(value="pinned")
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(tier.SEAL_SECONDS_MIN)
    with pin.open(0) as pinned:
        end = world.tier.end
        lease, names = pinned_generations(world.folder)
        for number in range(12):
            world.add(value=f"later{number}")
            world.tier.seal()
        for _ in range(100):
            world.tier.merge_some()
        world.tier.evict(world.tier.end)
        world.reopen(world.tier.end)
        os.utime(lease, ns=(1, 1))
        world.tend_after(1.0, world.tier.end)
        assert pinned.end == end
        assert pinned.start == START
        check(pinned, world.log, START, random.Random(0))
        assert names <= {path.name for path in world.folder.glob("*.mdb")}
    world.tend_after(1.0, world.tier.end)
    assert not names & {path.name for path in world.folder.glob("*.mdb")}


def test_a_pin_is_sealed_for_at_once_where_there_are_few_generations_or_nothing_is_new(world: World) -> None:
    for number in range(4 * tier.GENERATIONS_FEW):
        is_cheap = number % 2 or world.tier.generations <= tier.GENERATIONS_FEW
        if not number % 2:
            world.add()
        pin = hold(world.folder, "profiles", 1, START, world.clock)
        world.tend_after(0.001)
        if is_cheap:
            assert pin.open(0).end == world.tier.end
        else:
            with pytest.raises(NotReady):
                pin.open(0)
            world.tier.seal()


def test_pins_share_a_seal_and_none_takes_one_made_before_it_asked(world: World) -> None:
    for _ in range(tier.GENERATIONS_FEW):
        world.add()
        world.tier.seal()
    world.add(value="one")
    first = hold(world.folder, "profiles", 1, START, world.clock)
    second = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(1.0)
    sealed = world.tier.generations
    third = hold(world.folder, "profiles", 1, START, world.clock)
    world.add(value="two")
    world.tend_after(0.5)
    assert world.tier.generations == sealed
    assert (
        first.open(0).end
        == second.open(0).end
        == Seam({**dict.fromkeys(PLACES, 100), P0: 101 + tier.GENERATIONS_FEW})
    )
    with pytest.raises(NotReady):
        third.open(0)
    fourth = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(0.5)
    assert fourth.open(0).end[P0] == 102 + tier.GENERATIONS_FEW
    first.release()
    second.release()
    fourth.release()


def test_a_pin_on_an_idle_table_gets_the_positions_without_another_generation(world: World) -> None:
    world.add()
    world.tier.seal()
    world.log.skip(P0)
    world.log.feed(world.tier)
    generations = world.tier.generations
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(1.0)
    with pin.open(0) as pinned:
        assert pinned.end[P0] == 102
        check(pinned, world.log, START, random.Random(0))
    assert world.tier.generations == generations


def test_a_pin_older_than_what_is_held_sees_that_it_cannot_be_read(world: World) -> None:
    world.add()
    world.tier.seal()
    world.tier.evict(world.tier.end)
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(1.0)
    with pin.open(0) as pinned:
        assert not START.at_least(pinned.start)


def test_a_pin_that_has_opened_keeps_its_files_and_no_later_record(world: World) -> None:
    """Goal: a caller that stops reading its extract does not stop eviction.

    Method: commit everything while a pin is open; only the generations that it named may stay, as files.
    """
    world.add(value="pinned")
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(tier.SEAL_SECONDS_MIN)
    with pin.open(0) as pinned:
        lease, names = pinned_generations(world.folder)
        world.add(value="later")
        world.tend_after(tier.GENERATION_SECONDS_MAX)
        os.utime(lease, ns=(1, 1))
        world.tend_after(1.0, world.tier.end)
        assert world.tier.start == world.tier.end
        on_disk = {path.name for path in world.folder.glob("*.mdb")}
        assert on_disk == names | {generation_files(world.folder)[-1].name}
        assert pinned.start == START


def test_a_pin_that_waits_for_its_seal_keeps_all_from_its_seam_on(world: World) -> None:
    world.add()
    world.tier.seal()
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(1.0, world.tier.end)
    assert world.tier.start == START
    pin.release()
    world.tend_after(1.0, world.tier.end)
    assert world.tier.start == world.tier.end


def test_generations_evicted_and_swept_before_a_pin_names_them_are_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a pin whose generations went between opening and naming them opens others instead.

    Method: evict and sweep in just that moment; the pin must look at the manifest again and notice.
    """
    world.add(value="evicted")
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    world.tend_after(tier.SEAL_SECONDS_MIN)
    open_generations = view.open_generations
    lost: list[str] = []

    def opened_and_gone(*arguments: Any) -> Any:
        generations = open_generations(*arguments)
        if not lost:
            lost.extend(generation.name for generation in generations)
            world.tier.evict(world.tier.end)
            world.tend_after(tier.UPKEEP_SECONDS)
        return generations

    monkeypatch.setattr(pinned_module, "open_generations", opened_and_gone)
    with pin.open(2.0 * tier.UPKEEP_SECONDS) as pinned:
        assert lost
        assert not set(lost) & pinned_generations(world.folder)[1]
        assert pinned.start == pinned.end == world.tier.end


def test_a_pin_that_fails_for_any_reason_is_released(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = hold(world.folder, "profiles", 1, START, world.clock)
    monkeypatch.setattr(pinned_module, "read_manifest", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pin.open(0)
    assert not list((world.folder / "leases").iterdir())


def test_records_of_another_source_are_not_taken_over(world: World) -> None:
    world.add()
    world.tier.close()
    world.tier = HotTier.open(world.folder, DEFINITION, START, world.clock, source="another topic")
    assert world.tier.end == START
    world.add()
    end = world.tier.end
    world.tier.close()
    world.tier = HotTier.open(world.folder, DEFINITION, START, world.clock, source="another topic")
    assert world.tier.end == end


def test_a_generation_that_is_missing_or_empty_is_read_again(world: World) -> None:
    for is_missing in (True, False):
        world.add()
        world.tier.seal()
        path = generation_files(world.folder)[0]
        world.reader.close()
        world.tier.close()
        path.unlink()
        if not is_missing:
            path.touch()
        world.tier = HotTier.open(world.folder, DEFINITION, START, world.clock)
        assert world.tier.end == START


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"pid": 1, "snapshot_id": 1, "seam": "no seam"}', b'{"pid": 1}']
)
def test_a_lease_that_cannot_be_read_is_removed(world: World, content: bytes) -> None:
    path = world.folder / "leases" / "broken.json"
    path.write_bytes(content)
    world.add()
    world.tend_after(1.0, world.tier.end)
    assert not path.exists()


def test_a_merge_waits_for_disk_and_counts_in_the_budget(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        world.add(value=f"v{number}")
        world.tier.seal()
    listed = world.tier.hot_bytes
    with monkeypatch.context() as patch:
        patch.setattr(tier, "DISK_FREE_BYTES_MIN", 1 << 60)
        world.tier.merge_some()
    assert world.tier.hot_bytes == listed
    world.tier.merge_some()
    (merged,) = {*world.folder.glob("*.mdb")} - {*generation_files(world.folder)}
    assert world.tier.hot_bytes == listed + Generation(merged, tier.MAP_BYTES, is_writer=True).used_bytes
