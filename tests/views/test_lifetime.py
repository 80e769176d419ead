"""Until when a view may answer: never longer than the log surely holds what the view shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.views.live_table import CLUSTER, DAY_MS
from thermocline.iceberg.catalog import SnapshotState
from thermocline.kafka.facts import TIMESTAMP_MS_MAX, TopicConfig, TopicRetention
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.views.facts import TableFacts
from thermocline.views.lifetime import lifetime

NOW = 1_000 * DAY_MS
INTERVAL_MS = 60_000
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
BEHIND = Seam({("t", 0): 20})
KEPT = TopicRetention(kept_ms=7 * DAY_MS, is_limited_by_size=False, compaction_lag_ms=None)
FOR_EVER = replace(KEPT, kept_ms=None)
NOT_BACKDATED = replace(KEPT, backdated_ms_max=0)
BY_PRODUCER = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=False)
APPENDED = replace(BY_PRODUCER, is_log_append_time=True)
COMPACTED = replace(BY_PRODUCER, is_compacted=True)


def facts(
    config: TopicConfig = APPENDED,
    retention: TopicRetention = KEPT,
    ends: Seam = BEHIND,
    shows_transactions: bool = False,
    **state: Any,
) -> TableFacts:
    definition = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], columns={"id": "int", "value": "string"}
    )
    known = SnapshotState(
        snapshot_id=1,
        seam=Seam({("t", 0): 10}),
        epoch=1,
        batch_id="",
        cluster_id=CLUSTER,
        topic_ids={},
        definition_version=1,
        watermark_ms=-1,
        timestamp_ms=NOW,
        drained_ms=NOW - DAY_MS,
    )
    known, configs, retentions = replace(known, **state), {"t": config}, {"t": retention}
    return TableFacts(definition, known, ends, configs, retentions, NOW, shows_transactions)


def test_retention_counts_from_when_the_table_last_held_the_whole_log() -> None:
    life = lifetime(facts(), INTERVAL_MS)
    assert life.until_ms == NOW - DAY_MS + 7 * DAY_MS - HOUR_MS
    assert "retention.ms of topic t" in life.because


def test_a_table_that_holds_the_whole_log_counts_from_the_look() -> None:
    life = lifetime(facts(ends=Seam({("t", 0): 10})), INTERVAL_MS)
    assert life.until_ms == NOW + 7 * DAY_MS - HOUR_MS


@pytest.mark.parametrize(("config", "since"), [(APPENDED, NOW - HOUR_MS), (BY_PRODUCER, NOW - DAY_MS)])
def test_only_the_brokers_own_times_make_it_later(config: TopicConfig, since: int) -> None:
    life = lifetime(facts(config, NOT_BACKDATED, watermark_ms=NOW - HOUR_MS), INTERVAL_MS)
    assert life.until_ms == since + 7 * DAY_MS - HOUR_MS


def test_times_in_the_future_do_not_make_it_later() -> None:
    life = lifetime(facts(watermark_ms=NOW + DAY_MS, drained_ms=NOW + DAY_MS), INTERVAL_MS)
    assert life.until_ms == NOW + 7 * DAY_MS - HOUR_MS


def test_a_short_retention_gives_up_a_tenth_of_it() -> None:
    retention = replace(KEPT, kept_ms=10 * MINUTE_MS)
    life = lifetime(facts(retention=retention, drained_ms=NOW), INTERVAL_MS)
    assert life.until_ms == NOW + 9 * MINUTE_MS


@pytest.mark.parametrize("backdated_ms_max", [None, 7 * DAY_MS, 8 * DAY_MS])
def test_times_that_producers_give_promise_nothing(backdated_ms_max: int | None) -> None:
    """A record that is as old as the retention when it comes may go at once, however drained the table is."""
    retention = replace(KEPT, backdated_ms_max=backdated_ms_max)
    for ends in (BEHIND, Seam({("t", 0): 10})):
        life = lifetime(facts(BY_PRODUCER, retention, ends), INTERVAL_MS)
        assert life.until_ms == NOW + 3 * INTERVAL_MS
        assert "retention.ms of topic t, which promises no time" in life.because
    assert lifetime(facts(BY_PRODUCER, FOR_EVER), INTERVAL_MS).until_ms is None


def test_a_bound_of_how_old_they_may_be_leaves_the_rest_of_the_retention() -> None:
    life = lifetime(facts(BY_PRODUCER, replace(KEPT, backdated_ms_max=2 * DAY_MS)), INTERVAL_MS)
    assert life.until_ms == NOW - DAY_MS + 5 * DAY_MS - HOUR_MS
    assert "retention.ms of topic t (432,000,000 ms" in life.because


def test_records_of_a_transaction_may_have_waited_in_the_log() -> None:
    """Nobody saw them when the table held all that could be seen."""
    life = lifetime(facts(shows_transactions=True), INTERVAL_MS)
    assert life.until_ms == NOW - DAY_MS + 7 * DAY_MS - HOUR_MS - 15 * MINUTE_MS


def test_a_topic_limited_by_size_gives_three_commit_intervals_from_the_look() -> None:
    life = lifetime(facts(retention=replace(KEPT, is_limited_by_size=True)), INTERVAL_MS)
    assert life.until_ms == NOW + 3 * INTERVAL_MS
    assert "retention.bytes" in life.because


def test_tombstones_end_it_where_they_go_sooner() -> None:
    life = lifetime(facts(COMPACTED, FOR_EVER), INTERVAL_MS)
    assert life.until_ms == NOW - DAY_MS + DAY_MS - HOUR_MS
    assert "delete.retention.ms" in life.because


def test_tombstones_whose_loss_was_accepted_do_not_end_it() -> None:
    life = lifetime(facts(COMPACTED, FOR_EVER, tombstones_since_ms={"t": NOW - HOUR_MS}), INTERVAL_MS)
    assert life.until_ms == NOW - HOUR_MS + DAY_MS - HOUR_MS


def test_a_table_that_has_read_nothing_misses_no_tombstone() -> None:
    assert lifetime(facts(COMPACTED, FOR_EVER, totals={"read": 0}), INTERVAL_MS).until_ms is None


def test_a_topic_that_keeps_everything_ends_nothing() -> None:
    assert lifetime(facts(retention=FOR_EVER), INTERVAL_MS).until_ms is None


def test_a_view_with_ends_goes_before_compaction_takes_what_a_later_record_replaced() -> None:
    """Such a view does not see the later record."""
    compacted = replace(FOR_EVER, compaction_lag_ms=0)
    assert lifetime(facts(retention=compacted), INTERVAL_MS).until_ms is None
    life = lifetime(facts(retention=compacted), INTERVAL_MS, reads_to=NOW)
    assert life.until_ms == NOW, "a topic without a lag promises no time at all"
    life = lifetime(facts(retention=replace(compacted, compaction_lag_ms=DAY_MS)), INTERVAL_MS, reads_to=NOW)
    assert life.until_ms == NOW + DAY_MS - HOUR_MS


@pytest.mark.parametrize(
    ("backdated_ms_max", "kept"),
    [(None, 0), (DAY_MS, DAY_MS - HOUR_MS), (3 * DAY_MS, 0)],
)
def test_the_lag_of_compaction_goes_by_producers_times_too(backdated_ms_max: int | None, kept: int) -> None:
    lagging = replace(FOR_EVER, compaction_lag_ms=2 * DAY_MS, backdated_ms_max=backdated_ms_max)
    life = lifetime(facts(BY_PRODUCER, lagging), INTERVAL_MS, reads_to=NOW)
    assert life.until_ms == NOW + kept


def test_what_a_transaction_wrote_may_be_older_than_the_ends_that_it_waited_behind() -> None:
    lagging = replace(FOR_EVER, compaction_lag_ms=DAY_MS)
    life = lifetime(facts(retention=lagging, shows_transactions=True), INTERVAL_MS, reads_to=NOW)
    assert life.until_ms == NOW + DAY_MS - HOUR_MS - 15 * MINUTE_MS


def test_a_retention_beyond_the_calendar_ends_with_it() -> None:
    life = lifetime(facts(retention=replace(KEPT, kept_ms=(1 << 63) - 1)), INTERVAL_MS)
    assert life.until_ms == TIMESTAMP_MS_MAX
