"""The log's identity, and whether compaction may have dropped a tombstone that was not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from thermocline.errors import ClusterReplaced, TombstonesGone, TopicReplaced
from thermocline.identity import check_identity, check_tombstones
from thermocline.log import UNKNOWN_CONFIG, TopicConfig, TopicFacts
from thermocline.seam import Seam

DAY_MS = 86_400_000
NOON_MS = 1_790_000_000_000
COMPACTED = TopicConfig(is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=False)
DELETED = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=False)
APPENDED = TopicConfig(is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=True)


@dataclass
class Answers:
    """What a cluster says; the real one's part is in tests/behaviour."""

    cluster: str = "c"
    ids: dict[str, str] = field(default_factory=lambda: {"a": "1", "b": "2"})
    config: TopicConfig = COMPACTED
    young: Seam = field(default_factory=Seam)

    def cluster_id(self) -> str:
        return self.cluster

    def describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        return {topic: TopicFacts(self.ids[topic], 1) for topic in topics}

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        return dict.fromkeys(topics, self.config)

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        assert epoch_ms == NOON_MS - DAY_MS
        return self.young


@dataclass
class At:
    seam: Seam
    drained_ms: int
    watermark_ms: int = -1


def stop_of(answers: Answers, at: At, end: int = 20) -> TombstonesGone | None:
    try:
        check_tombstones("t", at, Seam({("a", 0): end}), answers, NOON_MS)  # type: ignore[arg-type]
    except TombstonesGone as error:
        return error
    return None


LATE = At(Seam({("a", 0): 10}), NOON_MS - DAY_MS - 1)


def test_another_cluster_and_all_other_topics_are_named() -> None:
    with pytest.raises(ClusterReplaced) as cluster:
        check_identity("t", "before", {}, Answers(), ["a"])  # type: ignore[arg-type]
    assert cluster.value.resume == "thermocline ingest rebase t --fact cluster=c --to earliest"
    with pytest.raises(TopicReplaced) as topics:
        check_identity("t", "c", {"a": "8", "b": "9"}, Answers(), ["a", "b"])  # type: ignore[arg-type]
    assert topics.value.tokens == ("topic:a=1", "topic:b=2")
    assert "a (id 1, before 8), b (id 2, before 9)" in topics.value.what


def test_a_topic_that_the_snapshot_does_not_know_is_new() -> None:
    check_identity("t", "c", {"a": "1"}, Answers(), ["a", "b"])  # type: ignore[arg-type]


def test_behind_for_longer_than_tombstones_live_stops_with_the_time() -> None:
    stop = stop_of(Answers(), LATE)
    assert stop is not None
    assert (stop.topics, stop.delete_retention_ms) == (("a",), DAY_MS)
    assert stop.tokens == ("tombstones-since=2026-09-20T14:13:19.999Z",)
    assert "1 day, 0:00:00" in stop.what


def test_not_longer_behind_than_they_live_nothing_waiting_or_no_compaction_go_on() -> None:
    assert stop_of(Answers(), At(LATE.seam, NOON_MS - DAY_MS)) is None
    assert stop_of(Answers(), LATE, end=10) is None
    assert stop_of(Answers(config=DELETED), LATE) is None


def test_a_topic_whose_configuration_may_not_be_seen_counts_as_compacted() -> None:
    assert stop_of(Answers(config=UNKNOWN_CONFIG), LATE) is not None


def test_a_watermark_counts_only_where_the_broker_sets_the_times() -> None:
    at = At(LATE.seam, LATE.drained_ms, watermark_ms=NOON_MS - 1)
    assert stop_of(Answers(config=APPENDED), at) is None
    assert stop_of(Answers(config=COMPACTED), at) is not None


def test_a_young_record_at_the_seam_shows_that_all_behind_it_are_young() -> None:
    def young_from(offset: int) -> Answers:
        return Answers(config=APPENDED, young=Seam({("a", 0): offset}))

    assert stop_of(young_from(10), LATE) is None
    assert stop_of(young_from(11), LATE) is not None
