"""Judging a replay by evidence, and taking records out of the companion table. Without Kafka and Java."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from ingest.judgement import (
    COMPLETE,
    NEVER,
    Candidate,
    Ground,
    Heard,
    History,
    Origin,
    Outcome,
    Verdict,
    judge_by_log,
    judge_by_place,
    judge_by_table,
)
from ingest.quarantine import (
    SCHEMA,
    Seen,
    create_quarantine,
    keep_files,
    open_quarantine,
    read_rows,
    remove,
    write_quarantine_file,
)
from ingest.replay import Replayed
from thermocline.catalog import open_catalog
from thermocline.errors import ExitCode
from thermocline.log import TopicConfig
from thermocline.seam import Seam
from thermocline.settings import CatalogSettings

T = "profiles"
DAY_MS = 86_400_000
KEPT = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=True)
COMPACTED = TopicConfig(is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=True)
PRODUCERS_TIME = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=False)
COMPACTED_PRODUCERS_TIME = TopicConfig(
    is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=False
)
NO_HISTORY = History([], [])
# The candidate: offset 50 of partition 0, appended at 5,000.
ORIGIN = Origin(T, 0, 50, 5_000)
CANDIDATE = Candidate(ORIGIN, b"key")
ALONE = Heard(last=[ORIGIN], is_there=True, bad_after=None)


def ground(
    config: TopicConfig = KEPT,
    starts: Mapping[int, int] | None = None,
    history: History = NO_HISTORY,
    now_ms: int = 6_000,
    complete_since_ms: Mapping[int, int] | None = None,
    has_key: bool = True,
) -> Ground:
    since = {0: COMPLETE, 1: COMPLETE} if complete_since_ms is None else complete_since_ms
    return Ground(
        has_key=has_key,
        seam=Seam.of({T: {0: 100, 1: 100}}),
        history=history,
        topic_ids={T: "id"},
        configs={T: config},
        starts=Seam.of({T: {0: 0, 1: 0} if starts is None else starts}),
        now_ms=now_ms,
        complete_since_ms={(T, partition): ms for partition, ms in since.items()},
    )


def outcome(verdict: Verdict | None) -> Outcome | None:
    return None if verdict is None else verdict.outcome


def by_log(
    on: Ground, heard: Heard = ALONE, row: Origin | None = None, candidate: Candidate = CANDIDATE
) -> tuple[Outcome, str]:
    verdict = judge_by_log(candidate, row, heard, on)
    return verdict.outcome, verdict.why


def test_the_newest_of_its_key_in_a_whole_log_is_applied() -> None:
    assert by_log(ground())[0] == Outcome.APPLIED
    assert by_log(ground(), row=Origin(T, 0, 49, 4_999))[0] == Outcome.APPLIED
    assert by_log(ground(), row=Origin(T, 1, 99, 4_999))[0] == Outcome.APPLIED


def test_a_newer_record_in_the_log_supersedes_whatever_it_was() -> None:
    for newer in (Origin(T, 0, 51, 5_000), Origin(T, 1, 3, 5_001)):
        assert by_log(ground(), Heard([ORIGIN, newer], True, None))[0] == Outcome.SUPERSEDED


def test_a_record_of_another_partition_counts_by_its_time_and_by_its_batch() -> None:
    """Goal: across commits the later one wins, as in ingest; where time says otherwise, nothing is decided.

    Method: the candidate was read by the second batch; the table's row or the log's last record is of the
    first, the second or the third one, and older or newer.
    """
    seams = [Seam.of({T: {0: 40, 1: 20}}), Seam.of({T: {0: 60, 1: 30}}), Seam.of({T: {0: 100, 1: 100}})]
    on = ground(history=History(seams, [None] * 3))
    expected = {
        (19, 4_999): Outcome.APPLIED,
        (19, 5_001): Outcome.REFUSED,
        (29, 4_999): Outcome.APPLIED,
        (29, 5_001): Outcome.SUPERSEDED,
        (30, 4_999): Outcome.REFUSED,
        (30, 5_001): Outcome.SUPERSEDED,
    }
    for (offset, timestamp_ms), verdict in expected.items():
        other = Origin(T, 1, offset, timestamp_ms)
        assert by_log(on, Heard([ORIGIN, other], True, None))[0] == verdict
        by_row = judge_by_table(CANDIDATE, other, on) or judge_by_log(CANDIDATE, other, ALONE, on)
        assert by_row.outcome == verdict


def test_a_record_of_another_log_or_beyond_the_seam_is_refused() -> None:
    assert judge_by_place(ORIGIN, "id", ground()) is None
    assert outcome(judge_by_place(ORIGIN, "another id", ground())) == Outcome.REFUSED
    assert outcome(judge_by_place(Origin("other", 0, 1, 5_000), "id", ground())) == Outcome.REFUSED
    assert outcome(judge_by_place(Origin(T, 0, 100, 5_000), "id", ground())) == Outcome.REFUSED
    assert outcome(judge_by_place(ORIGIN, "id", ground(starts={1: 0}))) == Outcome.REFUSED


def test_the_tables_row_decides_where_it_is_the_record_or_a_newer_one() -> None:
    assert outcome(judge_by_table(CANDIDATE, ORIGIN, ground())) == Outcome.ALREADY_APPLIED
    for newer in (Origin(T, 0, 51, 5_000), Origin(T, 1, 3, 5_001)):
        assert outcome(judge_by_table(CANDIDATE, newer, ground())) == Outcome.SUPERSEDED
    for older in (None, Origin(T, 0, 49, 5_000), Origin(T, 1, 99, 4_999)):
        assert judge_by_table(CANDIDATE, older, ground()) is None


def test_a_row_that_does_not_fit_the_log_is_no_proof_of_either() -> None:
    """Goal: rows of a topic's earlier life may carry higher offsets, which must not settle a record."""
    another = Origin(T, 0, 50, 100)
    assert outcome(judge_by_table(CANDIDATE, another, ground())) == Outcome.REFUSED
    earlier_life = Origin(T, 0, 80, 100)
    assert judge_by_table(CANDIDATE, earlier_life, ground()) is None
    assert by_log(ground(), row=earlier_life)[0] == Outcome.REFUSED


def test_a_table_without_a_key_takes_what_it_does_not_have() -> None:
    without_key = ground(has_key=False)
    assert outcome(judge_by_table(CANDIDATE, None, without_key)) == Outcome.APPLIED
    assert outcome(judge_by_table(CANDIDATE, ORIGIN, without_key)) == Outcome.ALREADY_APPLIED
    assert outcome(judge_by_table(CANDIDATE, Origin(T, 0, 50, 1), without_key)) == Outcome.REFUSED


def test_a_log_that_is_cut_past_the_record_is_refused_and_one_cut_up_to_it_is_not() -> None:
    not_seen = Heard([ORIGIN], None, None)
    assert by_log(ground(starts={0: 51, 1: 0}), not_seen)[0] == Outcome.APPLIED
    assert by_log(ground(starts={0: 52, 1: 0}), not_seen)[0] == Outcome.REFUSED
    # Not even a row that is older proves what was in the part that is gone.
    assert by_log(ground(starts={0: 52, 1: 0}), not_seen, Origin(T, 0, 3, 30))[0] == Outcome.REFUSED


def test_a_record_that_the_log_does_not_show_any_more_is_refused() -> None:
    """Goal: after an unclean election other records stand at the offsets of lost ones."""
    assert by_log(ground(), Heard([ORIGIN], False, None))[0] == Outcome.REFUSED
    assert by_log(ground(), Heard([ORIGIN], None, None))[0] == Outcome.REFUSED
    assert by_log(ground(COMPACTED), Heard([ORIGIN], None, None))[0] == Outcome.APPLIED


def test_another_partition_that_is_cut_past_the_records_time_is_refused() -> None:
    cut = {0: 0, 1: 20}
    assert by_log(ground(starts=cut, complete_since_ms={1: 4_999}))[0] == Outcome.APPLIED
    assert by_log(ground(starts=cut, complete_since_ms={1: 5_000}))[0] == Outcome.REFUSED
    assert by_log(ground(starts=cut, complete_since_ms={1: NEVER}))[0] == Outcome.REFUSED
    # Producers' times say nothing of what was cut.
    assert by_log(ground(PRODUCERS_TIME, cut, complete_since_ms={1: 4_999}))[0] == Outcome.REFUSED


def test_what_was_cut_elsewhere_does_not_matter_where_it_had_been_committed_before_the_record() -> None:
    cut = {0: 0, 1: 20}
    seams = [Seam.of({T: {0: 40, 1: 20}}), Seam.of({T: {0: 100, 1: 100}})]
    assert by_log(ground(PRODUCERS_TIME, cut, History(seams, [None, None])))[0] == Outcome.APPLIED
    seams = [Seam.of({T: {0: 40, 1: 19}}), Seam.of({T: {0: 100, 1: 100}})]
    assert by_log(ground(PRODUCERS_TIME, cut, History(seams, [None, None])))[0] == Outcome.REFUSED


def test_a_compacted_log_tells_of_deletions_for_as_long_as_it_keeps_tombstones() -> None:
    assert by_log(ground(COMPACTED, now_ms=5_000 + DAY_MS - 1))[0] == Outcome.APPLIED
    assert by_log(ground(COMPACTED, now_ms=5_000 + DAY_MS))[0] == Outcome.REFUSED


def test_producers_times_do_not_make_a_record_young() -> None:
    """Goal: a record is as old as since when the table last held all of the log without it."""
    seams = [Seam.of({T: {0: 10, 1: 0}}), Seam.of({T: {0: 40, 1: 0}}), Seam.of({T: {0: 100, 1: 100}})]
    config = COMPACTED_PRODUCERS_TIME
    assert by_log(ground(config))[0] == Outcome.REFUSED
    drained = ground(config, history=History(seams, [None, 4_000, None]), now_ms=4_000 + DAY_MS - 1)
    assert by_log(drained)[0] == Outcome.APPLIED
    before = ground(config, history=History(seams, [4_000, None, 9_000]), now_ms=4_000 + DAY_MS)
    assert by_log(before)[0] == Outcome.REFUSED
    # The record came in with the very first snapshot that is left: nothing says since when it was there.
    assert by_log(ground(config, history=History(seams[2:], [5_000])))[0] == Outcome.REFUSED
    # The partition joined the table after that time: its records may be older.
    joined = [Seam.of({"other": {0: 10}}), Seam.of({T: {0: 100, 1: 100}})]
    assert by_log(ground(config, history=History(joined, [4_000, 5_000])))[0] == Outcome.REFUSED


def test_a_bad_record_after_it_may_have_taken_a_tombstones_place_by_compaction() -> None:
    hidden = Heard([ORIGIN], True, Origin(T, 0, 70, 5_500))
    assert by_log(ground(COMPACTED), hidden)[0] == Outcome.REFUSED
    assert by_log(ground(), hidden)[0] == Outcome.APPLIED


def test_an_older_row_of_the_same_partition_proves_that_nothing_newer_was_applied() -> None:
    row = Origin(T, 0, 30, 4_000)
    late = 5_000 + 2 * DAY_MS
    hidden = Heard([ORIGIN], True, Origin(T, 0, 70, 5_500))
    assert by_log(ground(COMPACTED, {0: 0, 1: 20}, now_ms=late), hidden, row)[0] == Outcome.APPLIED
    assert by_log(ground(COMPACTED, now_ms=late), ALONE, Origin(T, 1, 30, 4_000))[0] == Outcome.REFUSED
    # Unless the two may be of different logs.
    gone = Heard([ORIGIN], None, None)
    config = COMPACTED_PRODUCERS_TIME
    assert by_log(ground(config), gone, row)[0] == Outcome.REFUSED
    assert by_log(ground(COMPACTED, now_ms=late), gone, row)[0] == Outcome.APPLIED
    assert by_log(ground(COMPACTED, now_ms=late), gone, Origin(T, 0, 30, 5_001))[0] == Outcome.REFUSED


def test_the_exit_code_says_whether_records_stay() -> None:
    def code(*outcomes: Outcome) -> ExitCode:
        done = Replayed()
        done.note({Origin(T, 0, n, 0): Verdict(one, "") for n, one in enumerate(outcomes)})
        return done.exit_code

    assert code() == ExitCode.NOTHING_TO_DO
    assert code(Outcome.STILL_BAD, Outcome.STILL_BAD) == ExitCode.NOTHING_TO_DO
    assert code(Outcome.APPLIED, Outcome.SUPERSEDED, Outcome.ALREADY_APPLIED) == ExitCode.DONE
    assert code(Outcome.APPLIED, Outcome.STILL_BAD) == ExitCode.PARTLY_DONE
    assert code(Outcome.REFUSED) == ExitCode.PARTLY_DONE


# The companion table


def rows(*offsets: int, topic_id: str = "id", partition: int = 0) -> pa.Table:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    return pa.Table.from_pylist(
        [
            {
                "topic": T,
                "topic_id": topic_id,
                "partition": partition,
                "offset": offset,
                "timestamp": at,
                "stage": "decode",
                "reason": "why",
                "key": b"k%d" % offset,
                "value": None,
                "headers": [{"name": "h", "value": b"v"}],
            }
            for offset in offsets
        ],
        schema=SCHEMA,
    )


@pytest.fixture
def quarantine(tmp_path: Path) -> Table:
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse")
    catalog = open_catalog(settings, may_create=True)
    catalog.create_namespace_if_not_exists("app")
    create_quarantine(catalog, "app.profiles")
    return open_quarantine(catalog, T, "app.profiles")


def keep(quarantine: Table, *files: pa.Table) -> None:
    paths = [write_quarantine_file(quarantine.io, quarantine.location(), [file]) for file in files]
    keep_files(quarantine, paths)


def held(quarantine: Table) -> list[tuple[str, int, int]]:
    found = read_rows(quarantine, ("key",))
    return sorted((row["topic_id"], row["partition"], row["offset"]) for row in found)


def test_repeats_are_dropped_by_topic_id_partition_and_offset(quarantine: Table) -> None:
    keep(quarantine, rows(1, 2), rows(2, 3))
    keep(quarantine, rows(1, topic_id="earlier"), rows(1, partition=1))
    assert held(quarantine) == [("earlier", 0, 1), ("id", 0, 1), ("id", 0, 2), ("id", 0, 3), ("id", 1, 1)]


def test_removing_takes_every_repeat_and_nothing_else(quarantine: Table) -> None:
    keep(quarantine, rows(1, 2, 3), rows(4, 5))
    keep(quarantine, rows(2, 6), rows(7), rows(2, topic_id="earlier"))
    before = len(quarantine.metadata.snapshots)
    settled = Seen()
    for offset in (2, 7, 99):
        settled.add("id", 0, offset)

    remove(quarantine, settled)

    quarantine.refresh()
    left = [("earlier", 0, 2), ("id", 0, 1), ("id", 0, 3), ("id", 0, 4), ("id", 0, 5), ("id", 0, 6)]
    assert held(quarantine) == left
    assert len(quarantine.metadata.snapshots) == before + 1, "one commit, so a crash takes all or nothing"
    whole = quarantine.scan().to_arrow().sort_by("offset").to_pylist()
    assert [row["key"] for row in whole] == [b"k1", b"k2", b"k3", b"k4", b"k5", b"k6"]
    assert whole[0]["headers"] == [{"name": "h", "value": b"v"}]

    remove(quarantine, settled)
    quarantine.refresh()
    assert held(quarantine) == left
