"""Lag in seconds, and for how long the log keeps what waits: the rule, and how it is asked and shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from thermocline.cli.status_report import shown_headroom, shown_lag
from thermocline.kafka import standing as standing_module
from thermocline.kafka.facts import TopicConfig, TopicRetention
from thermocline.kafka.standing import oldest_after, standing_at
from thermocline.process.metrics import REGISTRY, forget_standing, show_standing
from thermocline.rules.definition import LiveTable
from thermocline.rules.headroom import (
    Headroom,
    Kept,
    Limit,
    RecordTime,
    Standing,
    Stretch,
    TimeFrom,
    standing_of,
)
from thermocline.rules.seam import Seam

NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
A_WEEK = Kept(TopicRetention(7 * DAY_MS, False, None))
FOR_EVER = Kept(TopicRetention(None, False, None))


def ago(ms: int, given_by: TimeFrom = TimeFrom.PRODUCER) -> RecordTime:
    return RecordTime(NOW_MS - ms, given_by)


def of_one(stretch: Stretch, kept: Kept, record_bytes: float | None = None) -> Standing:
    return standing_of({("t", 0): stretch}, {"t": kept}, NOW_MS, record_bytes)


def seconds(standing: Standing) -> tuple[float | None, Limit, float | None]:
    said = standing.document(NOW_MS)
    return said["ingest_lag_seconds"], standing.headroom.limit, said["headroom_seconds"]


def test_the_lag_is_the_age_of_the_oldest_of_the_first_records_that_wait() -> None:
    stretches = {
        ("t", 0): Stretch(0, 5, 9, ago(30_000)),
        ("t", 1): Stretch(0, 5, 9, ago(90_000, TimeFrom.APPEND)),
        ("t", 2): Stretch(0, 9, 9),
    }
    said = standing_of(stretches, {"t": FOR_EVER}, NOW_MS).document(NOW_MS + 1_000)
    assert said == {
        "ingest_lag_seconds": 91.0,
        "lag_time_from": "append",
        "headroom_seconds": None,
        "headroom_limit": "none",
        "retention_seconds": None,
    }


def test_where_nothing_waits_the_lag_is_0_and_the_headroom_is_all_of_the_retention() -> None:
    standing = of_one(Stretch(0, 9, 9), A_WEEK)
    assert seconds(standing) == (0.0, Limit.TIME, 604_800.0)
    assert standing.document(NOW_MS + DAY_MS)["headroom_seconds"] == 604_800.0, "as time passes, too"


def test_a_record_from_the_future_has_no_lag_and_gains_no_headroom() -> None:
    assert seconds(of_one(Stretch(0, 5, 9, ago(-DAY_MS)), A_WEEK)) == (0.0, Limit.TIME, 604_800.0)


def test_what_waits_has_what_its_age_leaves_of_the_retention() -> None:
    standing = of_one(Stretch(0, 5, 9, ago(6 * DAY_MS)), A_WEEK)
    assert seconds(standing) == (518_400.0, Limit.TIME, 86_400.0)
    assert standing.document(NOW_MS + HOUR_MS)["headroom_seconds"] == 82_800.0
    assert standing.document(NOW_MS)["retention_seconds"] == 604_800.0
    late = of_one(Stretch(0, 5, 9, ago(8 * DAY_MS)), A_WEEK)
    assert seconds(late) == (691_200.0, Limit.TIME, 0.0)


def test_a_time_that_is_not_known_makes_no_number_and_is_not_taken_for_unlimited() -> None:
    assert seconds(of_one(Stretch(0, 5, 9), A_WEEK)) == (None, Limit.UNKNOWN, None)
    assert seconds(of_one(Stretch(0, 5, 9), FOR_EVER)) == (None, Limit.NONE, None)


def test_what_was_dropped_already_has_no_headroom() -> None:
    assert seconds(of_one(Stretch(6, 5, 9, ago(1_000)), A_WEEK)) == (1.0, Limit.GONE, 0.0)


def by_size(bytes_max: int | None) -> Kept:
    return Kept(TopicRetention(None, True, None, bytes_max=bytes_max))


def test_a_log_limited_by_size_keeps_as_many_records_as_fit() -> None:
    """1,000 of 100 bytes fit; 400 wait; 600 more are appended in a minute."""
    waiting = Stretch(0, 100, 500, ago(1_000), offsets_per_second=10)
    standing = of_one(waiting, by_size(100_000), record_bytes=100)
    assert seconds(standing) == (1.0, Limit.SIZE, 60.0)
    assert standing.document(NOW_MS)["retention_seconds"] == 100.0
    assert standing.document(NOW_MS + 20_000)["headroom_seconds"] == 40.0


def test_a_log_that_has_dropped_records_keeps_as_many_as_it_has() -> None:
    """9,000 of 10,000 offsets lie before the seam."""
    compressed = Stretch(50_000, 59_000, 60_000, ago(1_000), offsets_per_second=10)
    assert seconds(of_one(compressed, by_size(100_000), record_bytes=100)) == (1.0, Limit.SIZE, 900.0)
    assert seconds(of_one(compressed, by_size(None))) == (1.0, Limit.SIZE, 900.0)


def test_a_log_that_does_not_grow_drops_nothing_for_its_size() -> None:
    still = Stretch(50_000, 59_000, 60_000, ago(1_000), offsets_per_second=0)
    assert seconds(of_one(still, by_size(100_000))) == (1.0, Limit.NONE, None)


def test_a_young_log_whose_records_nobody_measured_has_an_unknown_headroom_by_size() -> None:
    young = Stretch(0, 100, 500, ago(1_000), offsets_per_second=10)
    assert seconds(of_one(young, by_size(100_000))) == (1.0, Limit.UNKNOWN, None)
    assert seconds(of_one(Stretch(9, 100, 500, ago(1_000)), by_size(100_000))) == (1.0, Limit.UNKNOWN, None)


def test_a_compacted_topic_has_until_ingest_would_stop_for_its_tombstones() -> None:
    kept = Kept(TopicRetention(None, False, 0), DAY_MS, behind_since_ms=NOW_MS - 6 * HOUR_MS)
    assert seconds(of_one(Stretch(0, 5, 9, ago(HOUR_MS)), kept)) == (3600.0, Limit.COMPACTION, 64_800.0)
    appended = Stretch(0, 5, 9, ago(HOUR_MS, TimeFrom.APPEND))
    assert seconds(of_one(appended, kept)) == (3600.0, Limit.COMPACTION, 82_800.0)
    assert seconds(of_one(Stretch(0, 9, 9), kept)) == (0.0, Limit.COMPACTION, 86_400.0)


def test_the_least_of_all_limits_and_partitions_counts() -> None:
    both = Kept(TopicRetention(7 * DAY_MS, False, 0), DAY_MS, NOW_MS - HOUR_MS)
    stretches = {("t", 0): Stretch(0, 5, 9, ago(HOUR_MS)), ("u", 0): Stretch(0, 5, 9, ago(6 * DAY_MS))}
    least = standing_of(stretches, {"t": both, "u": A_WEEK}, NOW_MS)
    assert seconds(least) == (518_400.0, Limit.COMPACTION, 82_800.0)


class Answers:
    """A log of two partitions, at its end in one of them."""

    retention = TopicRetention(DAY_MS, False, None)
    config = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=False)

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        return Seam.of({topics[0]: {0: 10, 1: 0}}), Seam.of({topics[0]: {0: 50, 1: 7}})

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        return dict.fromkeys(topics, self.config)

    def retentions(self, topics: Sequence[str]) -> dict[str, TopicRetention]:
        return dict.fromkeys(topics, self.retention)

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        ago_seconds = (NOW_MS - epoch_ms) // 1000
        return Seam.of({topics[0]: {300: {0: 20, 1: 7}, 3600: {0: 14, 1: 0}}[ago_seconds]})


DEFINITION = LiveTable.build(
    name="t", identifier="a.t", topics=["t"], key=["k"], columns={"k": "string", "v": "long"}
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Seam]:
    """Where the first records were asked for; each is an hour old."""
    seen: list[Seam] = []

    def first_times(_: Mapping[str, Any], start: Seam, *__: Any) -> dict[tuple[str, int], RecordTime]:
        seen.append(start)
        return {(topic, partition): ago(HOUR_MS) for topic, partition, _ in start.items()}

    monkeypatch.setattr(standing_module, "first_times", first_times)
    return seen


def look(log: Answers, seam: Seam, has_read: bool = True, record_bytes: float | None = None) -> Standing:
    clock = ManualClock(NOW_MS)
    at: Any = SimpleNamespace(
        seam=seam, has_read=has_read, drained_ms=NOW_MS - 2 * HOUR_MS, watermark_ms=-1, tombstones_since_ms={}
    )
    fake: Any = log
    return standing_at(fake, {}, DEFINITION, at, clock, record_bytes)


def test_only_partitions_that_are_behind_are_read_from(asked: list[Seam]) -> None:
    assert seconds(look(Answers(), Seam.of({"t": {0: 50, 1: 3}}))) == (3600.0, Limit.TIME, 82_800.0)
    assert asked == [Seam.of({"t": {1: 3}})]


def test_a_partition_that_the_seam_does_not_know_waits_from_its_first_offset(asked: list[Seam]) -> None:
    assert seconds(look(Answers(), Seam.of({"t": {1: 7}})))[0] == 3600.0
    assert asked == [Seam.of({"t": {0: 10}})]


def test_nothing_is_read_where_nothing_waits(asked: list[Seam]) -> None:
    assert seconds(look(Answers(), Seam.of({"t": {0: 50, 1: 7}}))) == (0.0, Limit.TIME, 86_400.0)
    assert asked == []


@pytest.mark.usefixtures("asked")
def test_a_log_grows_as_fast_as_in_the_faster_of_two_stretches_of_time() -> None:
    """30 offsets in five minutes, 36 in an hour; 40 offsets are kept, and 30 wait."""
    log = Answers()
    log.retention = TopicRetention(None, True, None, bytes_max=1)
    assert seconds(look(log, Seam.of({"t": {0: 20, 1: 7}}))) == (3600.0, Limit.SIZE, 100.0)


@pytest.mark.usefixtures("asked")
def test_tombstones_count_once_the_table_has_rows() -> None:
    log = Answers()
    log.retention = TopicRetention(None, False, 0)
    log.config = TopicConfig(is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=False)
    seam = Seam.of({"t": {0: 50, 1: 3}})
    assert seconds(look(log, seam)) == (3600.0, Limit.COMPACTION, 79_200.0)
    assert seconds(look(log, seam, has_read=False)) == (3600.0, Limit.NONE, None)


@pytest.mark.usefixtures("asked")
def test_a_position_beyond_the_ends_that_were_asked_for_is_not_behind() -> None:
    clock = ManualClock()
    ends = Seam.of({"t": {0: 50}})
    assert oldest_after({}, ends, Seam.of({"t": {0: 55}}), clock).lag_seconds(NOW_MS) == 0.0
    assert oldest_after({}, ends, Seam.of({"t": {0: 49}}), clock).lag_seconds(NOW_MS) == 3600.0


def test_metrics_show_what_is_known_and_nothing_of_a_table_that_nobody_looks_at() -> None:
    def shown(name: str) -> float | None:
        return REGISTRY.get_sample_value(name, {"table": "headroom"})

    show_standing("headroom", of_one(Stretch(0, 5, 9, ago(6 * DAY_MS)), A_WEEK), NOW_MS)
    assert shown("thermocline_ingest_lag_seconds") == 518_400
    assert shown("thermocline_headroom_seconds") == 86_400
    assert shown("thermocline_retention_seconds") == 604_800
    show_standing("headroom", of_one(Stretch(0, 9, 9), FOR_EVER), NOW_MS)
    assert shown("thermocline_ingest_lag_seconds") == 0
    assert math.isnan(shown("thermocline_headroom_seconds") or 0)
    forget_standing("headroom")
    assert shown("thermocline_headroom_seconds") is None


def test_people_are_told_in_units_that_they_read() -> None:
    def entry(headroom: Headroom) -> dict[str, Any]:
        return Standing(of_one(Stretch(0, 5, 9, ago(1_500)), FOR_EVER).oldest, headroom).document(NOW_MS)

    assert shown_lag(entry(Headroom(Limit.NONE))) == "1.5, by producer"
    assert shown_lag({}) == shown_headroom({}) == "unknown"
    assert shown_headroom(entry(Headroom(Limit.NONE))) == "unlimited"
    assert shown_headroom(entry(Headroom(Limit.UNKNOWN))) == "unknown"
    assert shown_headroom(entry(Headroom(Limit.TIME, 7 * DAY_MS))) == "7.0 d (time)"
    assert shown_headroom(entry(Headroom(Limit.TIME, 47 * HOUR_MS))) == "47.0 h (time)"
    assert shown_headroom(entry(Headroom(Limit.SIZE, 90_000))) == "90 s (size)"
