"""The log's identity, and whether compaction may have dropped a tombstone that was not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from thermocline.errors import LogReplaced, ReadPointGone, TombstonesGone, TopicCompacted
from thermocline.iceberg.catalog import SnapshotState
from thermocline.kafka.facts import TopicConfig, TopicFacts, TopicRetention, config_of
from thermocline.rules.definition import LiveTable
from thermocline.rules.identity import (
    KEPT_MS_MIN,
    check_identity,
    check_log,
    check_not_compacted,
    check_not_superseded,
    check_tombstones,
)
from thermocline.rules.seam import Seam

DEFINITION = LiveTable.build(
    name="t", identifier="a.t", topics=["a", "b"], key=["k"], columns={"k": "string", "v": "long"}
)
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
    config_of: Mapping[str, TopicConfig] = field(default_factory=dict)
    young: Seam = field(default_factory=Seam)
    times_asked: int = 0
    """For the configurations of topics."""

    def starts(self, topics: Sequence[str]) -> Seam:
        return Seam({(topic, 0): 0 for topic in topics})

    def ends(self, topics: Sequence[str]) -> Seam:
        return Seam({(topic, 0): 20 for topic in topics})

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        return self.starts(topics), self.ends(topics)

    def cluster_id(self) -> str:
        return self.cluster

    def describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        return {topic: TopicFacts(self.ids[topic], 1) for topic in topics}

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        self.times_asked += 1
        return {topic: self.config_of.get(topic, self.config) for topic in topics}

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        assert epoch_ms == NOON_MS - DAY_MS
        return self.young


@dataclass
class At:
    seam: Seam
    drained_ms: int
    watermark_ms: int = -1
    tombstones_since_ms: Mapping[str, int] = field(default_factory=dict)
    cluster_id: str = "c"
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    has_read: bool = True


def stop_of(
    answers: Answers, at: At, end: int = 20, now_ms: int = NOON_MS, topics: Sequence[str] = ("a",)
) -> TombstonesGone | None:
    try:
        ends = Seam({(topic, 0): end for topic in topics})
        check_tombstones(DEFINITION, at, ends, answers, now_ms)  # type: ignore[arg-type]
    except TombstonesGone as error:
        return error
    return None


LATE = At(Seam({("a", 0): 10}), NOON_MS - DAY_MS - 1)


def test_another_cluster_and_all_other_topics_are_named() -> None:
    with pytest.raises(LogReplaced) as cluster:
        check_identity("t", "before", {}, Answers(), ["a"])  # type: ignore[arg-type]
    assert cluster.value.resume == "thermocline ingest rebase t --fact cluster=c --to earliest"
    with pytest.raises(LogReplaced) as topics:
        check_identity("t", "c", {"a": "8", "b": "9"}, Answers(), ["a", "b"])  # type: ignore[arg-type]
    assert topics.value.tokens == ("topic:a=1", "topic:b=2")
    assert "a (id 1, before 8), b (id 2, before 9)" in topics.value.what


def test_a_topic_that_the_snapshot_does_not_know_is_new() -> None:
    check_identity("t", "c", {"a": "1"}, Answers(), ["a", "b"])  # type: ignore[arg-type]


def test_partial_updates_are_not_read_from_topics_that_are_compacted() -> None:
    partial, at = replace(DEFINITION, partial_updates=True), At(Seam({("a", 0): 10, ("b", 0): 10}), NOON_MS)
    check_log("t", at, Answers(), DEFINITION, NOON_MS)  # type: ignore[arg-type]
    check_log("t", at, Answers(config=DELETED), partial, NOON_MS)  # type: ignore[arg-type]
    with pytest.raises(TopicCompacted) as stop:
        check_log("t", at, Answers(config=DELETED, config_of={"b": COMPACTED}), partial, NOON_MS)  # type: ignore[arg-type]
    assert stop.value.topics == ("b",)
    ordered = replace(DEFINITION, sequence_by=("v",))
    check_log("t", at, Answers(config=DELETED), ordered, NOON_MS)  # type: ignore[arg-type]
    with pytest.raises(TopicCompacted):
        check_log("t", at, Answers(config=COMPACTED), ordered, NOON_MS)  # type: ignore[arg-type]


@pytest.mark.parametrize("partial_updates", [False, True])
def test_the_topics_are_asked_once_for_how_they_are_kept(partial_updates: bool) -> None:
    answers = Answers(config=DELETED)
    definition = replace(DEFINITION, partial_updates=partial_updates)
    check_log("t", At(Seam({("a", 0): 3}), NOON_MS), answers, definition, NOON_MS)  # type: ignore[arg-type]
    assert answers.times_asked == 1


def test_behind_for_longer_than_tombstones_live_stops_with_the_time() -> None:
    stop = stop_of(Answers(), LATE)
    assert stop is not None
    assert (stop.topics, stop.kept_ms) == (("a",), (DAY_MS,))
    assert stop.tokens == ("tombstones:a=2026-09-20T14:13:19.999Z",)
    assert "1 day, 0:00:00" in stop.what


def test_every_topic_that_is_late_is_a_fact_and_accepting_one_absolves_no_other() -> None:
    """Goal: a topic stops by its own retention, whatever was accepted of another one before."""
    answers = Answers(config_of={"b": replace(COMPACTED, delete_retention_ms=2 * DAY_MS)})
    at = At(Seam({("a", 0): 10, ("b", 0): 10}), drained_ms=NOON_MS - 3 * DAY_MS // 2)
    stop = stop_of(answers, at, topics="ab")
    assert stop is not None
    assert [fact.partition("=")[0] for fact in stop.tokens] == ["tombstones:a"]

    at.tombstones_since_ms = {"a": NOON_MS}
    assert stop_of(answers, at, topics="ab") is None
    later = stop_of(answers, at, now_ms=NOON_MS + DAY_MS, topics="ab")
    assert later is not None
    assert later.topics == ("b",)
    both = stop_of(answers, at, now_ms=NOON_MS + DAY_MS + 1, topics="ab")
    assert both is not None
    assert both.tokens == (
        "tombstones:a=2026-09-21T14:13:20.000Z",
        "tombstones:b=2026-09-20T02:13:20.000Z",
    )


def test_what_was_accepted_by_a_clock_that_was_fast_does_not_count() -> None:
    assert stop_of(Answers(), replace(LATE, tombstones_since_ms={"a": NOON_MS + 1})) is not None


@pytest.mark.parametrize("retention_ms", [0, 100, KEPT_MS_MIN])
def test_a_retention_that_no_batch_could_keep_to_counts_as_ten_minutes(retention_ms: int) -> None:
    """Goal: after accepting, ingest goes on, however short the retention."""
    answers = Answers(config=replace(COMPACTED, delete_retention_ms=retention_ms))
    assert stop_of(answers, At(LATE.seam, NOON_MS - KEPT_MS_MIN)) is None
    late = stop_of(answers, At(LATE.seam, NOON_MS - KEPT_MS_MIN - 1))
    assert late is not None
    assert "0:10:00" in late.what


@pytest.mark.parametrize(
    ("lag_ms", "since_ms", "transactional", "young", "is_refused"),
    [
        (
            DAY_MS,
            0,
            True,
            None,
            False,
        ),  # what is beyond the seam is all too young: the gaps are transactions'
        (DAY_MS, DAY_MS, True, None, True),
        (DAY_MS, 0, False, None, True),
        (DAY_MS, DAY_MS, False, 20, False),  # by the broker's times, what is beyond the end is
        (DAY_MS, DAY_MS, False, 21, True),
        (0, 0, True, 20, True),
    ],
)
def test_gaps_before_an_end_that_is_not_the_logs_are_explained_or_refused(
    lag_ms: int, since_ms: int, transactional: bool, young: int | None, is_refused: bool
) -> None:
    answers: Any = Lagging(
        config=replace(APPENDED, is_log_append_time=young is not None),
        young=Seam({("a", 0): young or 0}),
        lag_ms=lag_ms,
    )
    definition = LiveTable.build(
        name="t",
        identifier="a.t",
        topics=["a"],
        key=["id"],
        columns={"id": "int"},
        transactional=transactional,
    )
    at = At(Seam({("a", 0): 10}), NOON_MS - since_ms)

    def check(gaps: set[tuple[str, int]], log_end: int) -> None:
        ends = (Seam({("a", 0): 20}), Seam({("a", 0): log_end}))
        check_not_superseded(definition, at, *ends, gaps, answers, NOON_MS)

    check(set(), 30)
    check({("a", 0)}, 20)
    with pytest.raises(ReadPointGone) if is_refused else nullcontext():
        check({("a", 0)}, 30)


@dataclass
class Lagging(Answers):
    lag_ms: int = 0

    def retentions(self, topics: Sequence[str]) -> dict[str, TopicRetention]:
        kept = TopicRetention(None, False, self.lag_ms, backdated_ms_max=0)
        return dict.fromkeys(topics, kept)

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        return self.young


def checked(has_key: bool, read: int) -> TombstonesGone | None:
    """What the whole check says of a table that is late."""
    state = SnapshotState(
        snapshot_id=1,
        seam=LATE.seam,
        epoch=1,
        batch_id="b",
        cluster_id="c",
        topic_ids={"a": "1"},
        definition_version=1,
        watermark_ms=-1,
        timestamp_ms=0,
        totals={"read": read},
        drained_ms=LATE.drained_ms,
    )
    try:
        check_log("t", state, Answers(), table_of(has_key), NOON_MS)  # type: ignore[arg-type]
    except TombstonesGone as error:
        return error
    return None


def table_of(has_key: bool) -> LiveTable:
    return LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["a"],
        key=["user"] if has_key else [],
        key_from="value",
        columns={"user": "string", "plan": "string"},
    )


def test_where_no_row_can_have_missed_its_tombstone_nothing_stops() -> None:
    """Goal: neither a table without a key, nor one that has read nothing yet, is asked to accept a loss."""
    assert checked(has_key=True, read=10) is not None
    assert checked(has_key=False, read=10) is None
    assert checked(has_key=True, read=0) is None


def test_not_longer_behind_than_they_live_nothing_waiting_or_no_compaction_go_on() -> None:
    assert stop_of(Answers(), At(LATE.seam, NOON_MS - DAY_MS)) is None
    assert stop_of(Answers(), LATE, end=10) is None
    assert stop_of(Answers(config=DELETED), LATE) is None


def test_a_topic_whose_configuration_may_not_be_seen_counts_as_compacted() -> None:
    unseen = replace(config_of({}), is_hidden=True)
    stop = stop_of(Answers(config=unseen), LATE)
    assert stop is not None
    assert "if they are not compacted, grant the user of [kafka.client] DESCRIBE_CONFIGS on a" in stop.next
    with pytest.raises(TopicCompacted, match="not allowed to see whether") as compacted:
        check_not_compacted(replace(DEFINITION, partial_updates=True), Answers(config=unseen))  # type: ignore[arg-type]
    assert compacted.value.next.startswith("grant the user of [kafka.client] DESCRIBE_CONFIGS on a, b")


def test_a_watermark_counts_only_where_the_broker_sets_the_times() -> None:
    at = At(LATE.seam, LATE.drained_ms, watermark_ms=NOON_MS - 1)
    assert stop_of(Answers(config=APPENDED), at) is None
    assert stop_of(Answers(config=COMPACTED), at) is not None


def test_a_young_record_at_the_seam_shows_that_all_behind_it_are_young() -> None:
    def young_from(offset: int) -> Answers:
        return Answers(config=APPENDED, young=Seam({("a", 0): offset}))

    assert stop_of(young_from(10), LATE) is None
    assert stop_of(young_from(11), LATE) is not None
