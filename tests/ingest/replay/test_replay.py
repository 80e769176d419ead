"""Judging a replay by evidence, and taking records out of the companion table. Without Kafka and Java."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.ingest.one_bucket import DEFINITION, IO, OneBucketTable, records_of
from tests.ingest.random_history import DEFINITION as KEYED
from tests.ingest.random_history import (
    EARLIER,
    WIDENED,
    RandomHistory,
    Record,
    Surroundings,
    content_of,
    reading_of_seams,
)
from tests.tier import quick_or_full
from tests.upsert.test_probe import Reads
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.iceberg.lineage import Link
from thermocline.iceberg.reading import Reading, reading_of
from thermocline.ingest.quarantine import (
    SCHEMA,
    SeenRecords,
    create_quarantine,
    keep_files,
    open_quarantine,
    read_rows,
    remove,
    write_quarantine_file,
)
from thermocline.ingest.replay.evidence import LogEvidence, drained, live_rows, unbroken
from thermocline.ingest.replay.judgement import (
    Candidate,
    CandidateEvidence,
    Found,
    Judgement,
    Origin,
    Outcome,
    TableContext,
    batch_before,
    judge_by_log,
    judge_by_place,
    judge_by_table,
    newest_first,
)
from thermocline.ingest.replay.replay import Replayed
from thermocline.kafka.facts import TopicConfig
from thermocline.rules.column_types import ColumnType
from thermocline.rules.columns import Column
from thermocline.rules.fold import fold
from thermocline.rules.keys import decode_one
from thermocline.rules.merging import Append, BySequence, LastWins, Merging, Partial
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings

T = "profiles"
DAY_MS = 86_400_000
KEPT = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=True)
COMPACTED = TopicConfig(is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=True)
PRODUCERS_TIME = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=False)
COMPACTED_PRODUCERS_TIME = TopicConfig(
    is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=False
)
NOTHING = reading_of_seams([])
# The candidate: offset 50 of partition 0, appended at 5,000, of the batch that the second snapshot made.
ORIGIN = Origin(T, 0, 50, 5_000, "id")
CANDIDATE = Candidate(ORIGIN, b"key")
SEAMS = [Seam.of({T: {0: 40, 1: 20}}), Seam.of({T: {0: 60, 1: 30}}), Seam.of({T: {0: 100, 1: 100}})]
READING = reading_of_seams(SEAMS)
ALL_YOUNG = {0: 0, 1: 0}


def evidence(
    *others: Origin,
    is_there: bool | None = True,
    hiding: Origin | None = None,
    are_tombstones: bool = False,
) -> CandidateEvidence:
    return CandidateEvidence(
        [Found(ORIGIN, False), *(Found(other, are_tombstones) for other in others)], is_there, hiding
    )


ALONE = evidence()


KEYED_ROWS = LastWins()
A_COLUMN = (Column("changed", ColumnType.parse("long"), 9),)
SOME_COLUMNS, BY_A_COLUMN = Partial(A_COLUMN), BySequence(A_COLUMN)


def context(
    config: TopicConfig = KEPT,
    starts: Mapping[int, int] | None = None,
    reading: Reading = READING,
    drained_ms: Sequence[int | None] | None = None,
    now_ms: int = 6_000,
    merging: Merging = KEYED_ROWS,
    is_keyed_by_value: bool = False,
    young_from: Mapping[int, int] | None = None,
) -> TableContext:
    return TableContext(
        merging=merging,
        is_keyed_by_value=is_keyed_by_value,
        seam=SEAMS[-1],
        reading=reading,
        drained_ms=drained_ms or [None] * len(reading.definitions),
        topic_ids={T: "id"},
        configs={T: config},
        starts=Seam.of({T: {0: 0, 1: 0} if starts is None else starts}),
        now_ms=now_ms,
        young_from={(T, partition): offset for partition, offset in (young_from or {}).items()},
    )


def outcome(verdict: Judgement | None) -> Outcome | None:
    return None if verdict is None else verdict.outcome


def by_log(on: TableContext, said: CandidateEvidence = ALONE, row: Origin | None = None) -> Outcome:
    return judge_by_log(CANDIDATE, row, said, on).outcome


def test_the_newest_of_its_key_in_a_whole_log_is_applied() -> None:
    assert by_log(context()) == Outcome.APPLIED
    assert by_log(context(), row=Origin(T, 0, 49, 4_999)) == Outcome.APPLIED
    assert by_log(context(), row=Origin(T, 1, 19, 9_000)) == Outcome.APPLIED


def test_a_newer_record_in_the_log_supersedes_whatever_it_was() -> None:
    cut_and_compacted = context(COMPACTED, {0: 60, 1: 60})
    for newer in (Origin(T, 0, 51, 5_000), Origin(T, 1, 30, 1)):
        assert by_log(context(), evidence(newer)) == Outcome.SUPERSEDED
        assert by_log(cut_and_compacted, evidence(newer, is_there=None)) == Outcome.SUPERSEDED


def test_a_record_of_another_partition_counts_by_its_batch_and_then_by_its_time() -> None:
    """Goal: across commits the later one wins whatever the times say, as in ingest; within one, the fold."""
    expected = {
        (19, 4_999): Outcome.APPLIED,
        (19, 5_001): Outcome.APPLIED,
        (29, 4_999): Outcome.APPLIED,
        (29, 5_001): Outcome.SUPERSEDED,
        (30, 4_999): Outcome.SUPERSEDED,
        (30, 5_001): Outcome.SUPERSEDED,
    }
    for (offset, timestamp_ms), verdict in expected.items():
        other = Origin(T, 1, offset, timestamp_ms)
        assert by_log(context(), evidence(other), row=other) == verdict


def test_between_partitions_of_a_compacted_log_times_count_only_where_none_was_dropped() -> None:
    """Method: another partition had come to 4,800 with that batch, as the snapshot says, or to 9,000."""
    other = Origin(T, 1, 29, 4_800)
    for greatest_ms, expected in ((4_800, Outcome.APPLIED), (9_000, Outcome.REFUSED)):
        times = [PartitionTimes(), *[PartitionTimes({(T, 0): 5_000, (T, 1): greatest_ms})] * 2]
        on = context(COMPACTED_PRODUCERS_TIME, reading=replace(READING, partition_times=times))
        on = replace(on, drained_ms=[5_900] * 3)
        assert by_log(on, evidence(other), row=other) == expected


def test_a_newer_record_that_sets_only_some_columns_settles_nothing() -> None:
    """Goal: what the record set, and none did since, is lost neither by settling it nor by overwriting."""
    on, newer = context(merging=SOME_COLUMNS), Origin(T, 0, 51, 5_001)
    assert judge_by_table(CANDIDATE, newer, on) is None
    for is_partial, expected in ((True, Outcome.REFUSED), (False, Outcome.SUPERSEDED)):
        said = CandidateEvidence([Found(ORIGIN, False), Found(newer, False, is_partial)], True, None)
        assert by_log(on, said, row=newer) == expected


def test_a_record_that_sets_only_some_columns_is_not_applied_over_a_rivals() -> None:
    candidate, on = replace(CANDIDATE, is_partial=True), context(merging=SOME_COLUMNS)
    for other, expected in ((Origin(T, 1, 19, 1), Outcome.APPLIED), (Origin(T, 1, 29, 1), Outcome.REFUSED)):
        assert judge_by_log(candidate, other, evidence(other), on).outcome == expected


def test_a_rival_of_its_batch_that_lost_itself_does_not_supersede() -> None:
    """Goal: by producers' times the record may hide an older one of its partition that beat the rival.

    The rival would win then, and the table does not have it: nobody can settle that by leaving it as it is.
    """
    rival, earlier = Origin(T, 1, 29, 5_001), Origin(T, 0, 45, 9_000)
    on = context(PRODUCERS_TIME)
    assert by_log(on, evidence(rival), row=rival) == Outcome.SUPERSEDED
    assert by_log(on, evidence(rival), row=earlier) == Outcome.REFUSED
    assert by_log(on, evidence(rival), row=None) == Outcome.REFUSED
    assert by_log(on, evidence(rival, are_tombstones=True), row=None) == Outcome.SUPERSEDED
    assert by_log(on, evidence(rival, are_tombstones=True), row=earlier) == Outcome.REFUSED


def test_a_record_of_another_log_or_beyond_the_seam_is_refused() -> None:
    assert judge_by_place(ORIGIN, context()) is None
    assert outcome(judge_by_place(Origin(T, 0, 50, 5_000, "another id"), context())) == Outcome.REFUSED
    assert outcome(judge_by_place(Origin("other", 0, 1, 5_000, "id"), context())) == Outcome.REFUSED
    assert outcome(judge_by_place(Origin(T, 0, 100, 5_000, "id"), context())) == Outcome.REFUSED
    assert outcome(judge_by_place(ORIGIN, context(starts={1: 0}))) == Outcome.REFUSED
    assert outcome(judge_by_place(ORIGIN, context(merging=BY_A_COLUMN))) == Outcome.REFUSED


def test_the_tables_row_decides_where_it_is_the_record_or_a_newer_one_of_its_partition() -> None:
    newer = Origin(T, 0, 51, 5_000)
    assert outcome(judge_by_table(CANDIDATE, Origin(T, 0, 50, 5_000), context())) == Outcome.ALREADY_APPLIED
    assert outcome(judge_by_table(CANDIDATE, newer, context())) == Outcome.SUPERSEDED
    for other in (None, Origin(T, 0, 49, 5_000), Origin(T, 1, 99, 9_000)):
        assert judge_by_table(CANDIDATE, other, context()) is None
    # By producers' times, a row of the topic's earlier life is no older than what came after.
    assert judge_by_table(CANDIDATE, newer, context(PRODUCERS_TIME)) is None


def test_a_row_that_does_not_fit_the_log_is_no_proof_of_either() -> None:
    """Goal: rows of a topic's earlier life may carry higher offsets, which must not settle a record."""
    another = Origin(T, 0, 50, 100)
    assert outcome(judge_by_table(CANDIDATE, another, context())) == Outcome.REFUSED
    for earlier_life in (Origin(T, 0, 80, 100), Origin(T, 1, 20, 100)):
        assert judge_by_table(CANDIDATE, earlier_life, context()) is None
        assert by_log(context(), row=earlier_life) == Outcome.REFUSED
    shown = Origin(T, 1, 20, 100)
    assert by_log(context(), evidence(shown), row=shown) == Outcome.APPLIED
    assert by_log(context(), evidence(Origin(T, 1, 20, 101)), row=shown) == Outcome.REFUSED


def test_a_table_without_a_key_takes_what_it_does_not_have() -> None:
    without_key = context(merging=Append())
    assert outcome(judge_by_table(CANDIDATE, None, without_key)) == Outcome.APPLIED
    assert outcome(judge_by_table(CANDIDATE, ORIGIN, without_key)) == Outcome.ALREADY_APPLIED
    assert outcome(judge_by_table(CANDIDATE, Origin(T, 0, 50, 1), without_key)) == Outcome.REFUSED


def test_without_a_snapshot_from_before_the_record_it_is_refused() -> None:
    """Goal: where snapshots are expired or the table was rebased, nothing says what was read after it."""
    for reading in (NOTHING, reading_of_seams(SEAMS[1:])):
        assert by_log(context(reading=reading)) == Outcome.REFUSED
        assert by_log(context(reading=reading), evidence(Origin(T, 1, 99, 9_000))) == Outcome.REFUSED


def test_a_log_that_is_cut_past_the_record_is_refused_and_one_cut_up_to_it_is_not() -> None:
    not_seen = evidence(is_there=None)
    assert by_log(context(starts={0: 51, 1: 0}), not_seen) == Outcome.APPLIED
    assert by_log(context(starts={0: 52, 1: 0}), not_seen) == Outcome.REFUSED
    # Not even a row that is older proves what was in the part that is gone.
    assert by_log(context(starts={0: 52, 1: 0}), not_seen, Origin(T, 0, 3, 30)) == Outcome.REFUSED


def test_a_record_that_the_log_does_not_show_any_more_is_refused() -> None:
    """Goal: after an unclean election other records stand at the offsets of lost ones.

    On a compacted topic, what took the record's place may be gone, too.
    """
    assert by_log(context(), evidence(is_there=False)) == Outcome.REFUSED
    assert by_log(context(), evidence(Origin(T, 0, 51, 5_000), is_there=False)) == Outcome.REFUSED
    assert by_log(context(), evidence(is_there=None)) == Outcome.REFUSED
    compacted = context(COMPACTED, young_from=ALL_YOUNG)
    assert by_log(compacted) == Outcome.APPLIED
    assert by_log(compacted, evidence(is_there=None)) == Outcome.REFUSED


def test_another_partition_that_lost_what_was_read_with_the_record_or_later_is_refused() -> None:
    for config in (KEPT, PRODUCERS_TIME):
        assert by_log(context(config, {0: 0, 1: 20})) == Outcome.APPLIED
        assert by_log(context(config, {0: 0, 1: 21})) == Outcome.REFUSED


def test_a_partition_that_joined_later_must_be_there_from_its_start() -> None:
    """Goal: its records were read after the record whatever their times, but those of before it joined."""
    reading = reading_of_seams([Seam.of({T: {0: 40}}), *SEAMS[1:]])
    other = Origin(T, 1, 3, 1)
    assert by_log(context(reading=reading), evidence(other)) == Outcome.APPLIED
    assert by_log(context(reading=reading, starts={0: 0, 1: 1})) == Outcome.REFUSED
    seams = [Seam.of({T: {0: 40}}), Seam.of({T: {0: 60}}), SEAMS[2]]
    reading = reading_of_seams(seams)
    assert by_log(context(reading=reading), evidence(other)) == Outcome.SUPERSEDED
    joined = reading_of_seams(seams, Seam.of({T: {1: 10}}))
    assert by_log(context(reading=joined), evidence(other)) == Outcome.APPLIED
    assert by_log(context(reading=joined, starts={0: 0, 1: 10})) == Outcome.APPLIED


def test_a_compacted_log_tells_of_deletions_for_as_long_as_it_keeps_tombstones() -> None:
    """Goal: all that was read with the record or later is known to be young, by its offset."""
    assert by_log(context(COMPACTED, young_from={0: 51, 1: 20})) == Outcome.APPLIED
    for too_late in ({0: 52, 1: 20}, {0: 51, 1: 21}, {0: 51}, {}):
        assert by_log(context(COMPACTED, young_from=too_late)) == Outcome.REFUSED


def test_producers_times_do_not_make_a_record_young() -> None:
    """Goal: what follows is as old as since when the table last held all of the log without it."""
    config = COMPACTED_PRODUCERS_TIME
    seams = [Seam.of({T: {0: 10, 1: 0}}), *SEAMS]
    assert by_log(context(config)) == Outcome.REFUSED
    drained = context(
        config,
        reading=reading_of_seams(seams),
        drained_ms=[None, 4_000, None, None],
        now_ms=4_000 + DAY_MS - 1,
    )
    assert by_log(drained) == Outcome.APPLIED
    before = context(
        config, reading=reading_of_seams(seams), drained_ms=[4_000, None, 9_000, 9_000], now_ms=4_000 + DAY_MS
    )
    assert by_log(before) == Outcome.REFUSED
    # A partition joined the table after that time: its records may be older.
    joined = [Seam.of({T: {0: 40}}), SEAMS[2]]
    late = context(config, reading=reading_of_seams(joined), drained_ms=[4_000, 5_000])
    assert by_log(late) == Outcome.REFUSED


def test_a_bad_record_or_one_beyond_the_seam_may_have_taken_a_tombstones_place_by_compaction() -> None:
    hidden = evidence(hiding=Origin(T, 0, 70, 5_500))
    assert by_log(context(COMPACTED, young_from=ALL_YOUNG), hidden) == Outcome.REFUSED


def test_compaction_by_another_key_than_the_tables_is_refused() -> None:
    on = context(COMPACTED, young_from=ALL_YOUNG, is_keyed_by_value=True)
    assert by_log(on) == Outcome.REFUSED
    assert by_log(context(is_keyed_by_value=True)) == Outcome.APPLIED


def test_an_older_row_of_the_same_partition_does_not_vouch_for_the_record() -> None:
    """Goal: a row may stay as it is though something newer was read (``suppress_unchanged``)."""
    row = Origin(T, 0, 30, 4_000)
    assert by_log(context(starts={0: 0, 1: 21}), row=row) == Outcome.REFUSED
    assert by_log(context(COMPACTED), row=row) == Outcome.REFUSED


def test_of_what_may_hide_others_the_last_of_each_partition_is_kept() -> None:
    """Goal: a hot key that is always bad takes no memory."""
    evidence = LogEvidence(last={b"key": {ORIGIN.place: Found(ORIGIN, False)}})
    for offset in (49, 70, 60):
        evidence.hide(b"key", Origin(T, 0, offset, 5_000))
    assert evidence.of(CANDIDATE).hiding == Origin(T, 0, 70, 5_000)
    assert len(evidence.hiding[b"key"]) == 1
    evidence.hiding[b"key"] = {ORIGIN.place: Origin(T, 0, 49, 5_000)}
    assert evidence.of(CANDIDATE).hiding is None, "what came before the record hides nothing after it"


def test_of_the_tables_rows_a_bounded_number_of_bytes_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: each key's row says where it comes from, however many row groups hold one."""
    one_bucket = replace(DEFINITION, buckets=1)
    table = OneBucketTable(tmp_path, one_bucket)
    count = 20 * ROW_GROUP_ROWS
    table.upsert([(offset, (offset, "u", "k"), "v") for offset in range(count)])
    asked = records_of([(0, (key, "u", "k"), "v") for key in (5 * ROW_GROUP_ROWS, count - 1, count, 7)])
    reads = Reads(monkeypatch)
    monkeypatch.setattr("thermocline.upsert.stored_rows.BYTES_AT_ONCE", 1)
    found = live_rows(IO, one_bucket, table.files, asked)
    assert sorted(origin.offset for origin in found.values()) == [7, 5 * ROW_GROUP_ROWS, count - 1]
    assert all(decode_one(one_bucket, key)[0] == origin.offset for key, origin in found.items())
    assert [groups for groups, columns in reads.calls if "_kafka_offset" in columns] == [[0], [5], [19]]


# Random histories

PLAIN = Surroundings(partitions=1)
ALL_SURROUNDINGS = {
    "plain": PLAIN,
    "plain, broker's times": Surroundings(partitions=1, is_append_time=True),
    "partitions": Surroundings(),
    "partitions, broker's times": Surroundings(is_append_time=True),
    "cut": Surroundings(is_cut=True),
    "cut, broker's times": Surroundings(is_cut=True, is_append_time=True),
    "expired": Surroundings(is_expired=True),
    "expired, broker's times": Surroundings(is_expired=True, is_append_time=True),
    "joined": Surroundings(joins_later=True),
    "joined, cut": Surroundings(joins_later=True, is_cut=True),
    "suppressed, cut": Surroundings(suppresses=True, is_cut=True),
    "suppressed, broker's times": Surroundings(suppresses=True, is_append_time=True),
    "compacted": Surroundings(is_compacted=True),
    "compacted, broker's times": Surroundings(is_compacted=True, is_append_time=True),
    "late": Surroundings(partitions=1, is_late=True),
    "late, partitions": Surroundings(is_late=True),
    "late, partitions, broker's times": Surroundings(is_late=True, is_append_time=True),
    "late, all at once": Surroundings(
        is_late=True, is_append_time=True, is_cut=True, is_expired=True, suppresses=True, is_rebased=True
    ),
    "altered": Surroundings(partitions=1, is_altered=True),
    "altered, broker's times": Surroundings(partitions=1, is_altered=True, is_append_time=True),
    "altered, partitions": Surroundings(is_altered=True),
    "altered, partitions, broker's times": Surroundings(is_altered=True, is_append_time=True),
    "altered, suppressed": Surroundings(is_altered=True, suppresses=True),
    "altered, cut": Surroundings(is_altered=True, is_cut=True),
    "altered, compacted": Surroundings(is_altered=True, is_compacted=True, is_append_time=True),
    "rebased": Surroundings(is_rebased=True),
    "rebased, broker's times": Surroundings(is_rebased=True, is_append_time=True),
    "all at once": Surroundings(
        is_append_time=True, is_cut=True, is_expired=True, suppresses=True, is_compacted=True, is_rebased=True
    ),
    "all at once, altered": Surroundings(
        is_append_time=True,
        is_cut=True,
        is_expired=True,
        suppresses=True,
        is_compacted=True,
        is_rebased=True,
        is_altered=True,
    ),
}
HISTORIES = quick_or_full(30, 100)


@pytest.mark.parametrize("name", ALL_SURROUNDINGS)
def test_a_replay_leaves_the_table_as_if_the_record_had_been_good_when_it_was_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whatever is lost, a replay neither applies nor drops a record wrongly.

    Where nothing is lost, there is one partition, and no other record of the quarantine can be read by now,
    it refuses nothing.
    """
    around, outcomes = ALL_SURROUNDINGS[name], Counter[Outcome]()
    for seed in range(HISTORIES):
        history = RandomHistory(seed, around)
        if history.candidate is None:
            continue
        verdict = history.verdict(monkeypatch)
        outcomes[verdict.outcome] += 1
        assert history.is_right(verdict, history.candidate), (verdict, history.candidate, history)
    assert min(outcomes[Outcome.APPLIED], outcomes[Outcome.SUPERSEDED]) > 0, outcomes
    if around.partitions == 1 and not around.is_late:
        assert not outcomes[Outcome.REFUSED]


@pytest.mark.parametrize("name", [name for name in ALL_SURROUNDINGS if "altered" in name or "late" in name])
def test_replays_of_one_key_leave_the_table_as_if_what_they_settle_had_been_good(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a record in quarantine decides nothing before it is replayed, and does from then on.

    Method: all of a history at once, and one by one in any order. Not one by one by producers' times in
    several partitions: a record may then be newer than one that is newer than a third, and older than that.
    """
    around = ALL_SURROUNDINGS[name]
    at_once, one_by_one = Counter[Outcome](), Counter[Outcome]()
    for seed in range(3 * HISTORIES):
        history = RandomHistory(seed, around)
        readable = history.readable()
        random.Random(seed).shuffle(readable)
        judged = history.replaying(monkeypatch).judge([history.kept(one) for one in readable])
        by_place = {(one.topic, one.offset): one for one in readable}
        settled = [
            by_place[origin.topic, origin.offset]
            for origin, verdict in judged.verdicts.items()
            if verdict.settles
        ]
        at_once.update(verdict.outcome for verdict in judged.verdicts.values())
        winners = fold(judged.applied).winners
        rows = [by_place[row["_kafka_topic"], row["_kafka_offset"]] for row in winners.to_pylist()]
        row = _row_of(rows[0]) if rows else history.row
        assert content_of(row) == content_of(history.table(settled)), (judged.verdicts, history)
        replayed: list[Record] = []
        for one in readable if around.partitions == 1 or around.is_append_time else ():
            (verdict,) = history.replaying(monkeypatch).judge([history.kept(one)]).verdicts.values()
            assert history.is_right(verdict, one, replayed), (verdict, one, replayed, history)
            one_by_one[verdict.outcome] += 1
            if verdict.settles:
                history.settled.append(one)
            if verdict.outcome is Outcome.APPLIED:
                replayed.append(one)
                history.row = _row_of(one)
    outcomes = at_once + one_by_one
    assert min(outcomes[Outcome.APPLIED], outcomes[Outcome.SUPERSEDED]) > 0, outcomes
    is_plain = around in (
        Surroundings(1, is_altered=True),
        Surroundings(is_append_time=True, is_altered=True),
        Surroundings(1, is_late=True),
    )
    if is_plain:
        assert not at_once[Outcome.REFUSED]
        assert bool(one_by_one[Outcome.REFUSED]) == around.is_late  # one that may be newer waits, too


def _row_of(applied: Record) -> Record | None:
    return None if applied.value is None else applied


def test_a_record_beyond_the_seam_that_made_compaction_drop_a_tombstone_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: keys that are equal as JSON and not in their bytes are compacted each by itself."""
    history = RandomHistory(0, Surroundings(partitions=1, is_append_time=True, is_compacted=True))
    spellings = (b'{"k":1}', b'{"k": 1}', b'{"k": 1}')
    bad, deleting, beyond = (
        Record("A", offset, offset + 1, "x" if offset != 1 else None, offset == 0, offset + 1, spelling)
        for offset, spelling in enumerate(spellings)
    )
    history.batches, history.candidate, history.first_known = [[bad, deleting]], bad, 0
    history.row, history.definitions = None, [KEYED] * 2
    history.seams, history.drained_ms = [Seam.of({"A": {0: 0}}), Seam.of({"A": {0: 2}})], [None, None]
    history.starts, history.ends, history.now_ms = Seam.of({"A": {0: 0}}), {("A", 0): 3}, 3
    history.log = {("A", 0): [bad, beyond]}
    assert history.verdict(monkeypatch).outcome == Outcome.REFUSED
    history.log, history.ends = {("A", 0): [bad, deleting]}, {("A", 0): 2}
    assert history.verdict(monkeypatch).outcome == Outcome.SUPERSEDED


def test_candidates_are_judged_as_ingest_would_have_had_them() -> None:
    """Goal: later batches first, and of one batch the last of each partition first, by its time."""
    of_the_later_batch = [Origin(T, 1, 40, 1), Origin(T, 0, 70, 1)]  # at one time, the greater partition
    of_the_earlier = [Origin(T, 1, 25, 9_000), Origin(T, 0, 55, 8_000)]
    before_these = [Origin(T, 1, 24, 9_999), Origin(T, 0, 50, 5_000)]
    expected = [*of_the_later_batch, *of_the_earlier, *before_these]
    shuffled = [Candidate(origin, b"key") for origin in reversed(expected)]
    assert [one.origin for one in newest_first(shuffled, READING, {})] == expected


def test_of_two_candidates_of_a_key_the_one_of_the_later_batch_is_applied_whatever_their_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = RandomHistory(0, Surroundings(is_altered=True))
    earlier, later = (
        Record(topic, 0, time_ms, "x", True, 1, b'{"k":1}', more=WIDENED)
        for topic, time_ms in (("A", 9), ("B", 1))
    )
    history.batches, history.row = [[earlier], [later]], None
    history.seams = [Seam({("A", 0): a, ("B", 0): b}) for a, b in ((0, 0), (1, 0), (1, 1))]
    history.drained_ms, history.definitions = [None] * 3, [EARLIER] * 3
    history.starts, history.ends = Seam({("A", 0): 0, ("B", 0): 0}), {("A", 0): 1, ("B", 0): 1}
    history.log = {("A", 0): [earlier], ("B", 0): [later]}
    judged = history.replaying(monkeypatch).judge([history.kept(one) for one in (earlier, later)])
    outcomes = {origin.topic: verdict.outcome for origin, verdict in judged.verdicts.items()}
    assert outcomes == {"A": Outcome.SUPERSEDED, "B": Outcome.APPLIED}


def test_a_history_begins_after_what_was_decoded_by_a_definition_that_is_not_known(
    quarantine: Table,
) -> None:
    """Goal: where it can't be known which records were good, a replay is refused."""
    steps = [({"a": {0: offset}}, {"a": "1"}, 1, False) for offset in (1, 2, 3)]
    assert len(after(quarantine, steps)) == 3
    snapshots = quarantine.metadata.snapshots
    snapshots[1] = snapshots[1].model_copy(update={"schema_id": 99})
    assert len(unbroken(quarantine)) == 1


def test_only_the_brokers_times_say_from_where_on_records_are_young(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_append_time in (True, False):
        around = Surroundings(partitions=1, is_append_time=is_append_time, is_compacted=True)
        young = RandomHistory(0, around).replaying(monkeypatch).context().young_from
        assert bool(young) == is_append_time


def test_records_of_two_lives_of_a_topic_at_one_place_are_judged_each_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = (RandomHistory(seed, PLAIN) for seed in range(HISTORIES))
    history = next(one for one in chosen if one.candidate and one.table() != one.table([one.candidate]))
    kept = history.kept()
    judged = history.replaying(monkeypatch).judge([{**kept, "topic_id": "earlier"}, kept])
    by_life = {origin.topic_id: verdict.outcome for origin, verdict in judged.verdicts.items()}
    assert by_life == {"earlier": Outcome.REFUSED, kept["topic_id"]: Outcome.APPLIED}
    assert len(judged.settled()) == judged.applied.num_rows == 1
    assert (kept["topic_id"], 0, kept["offset"]) in judged.settled()


def test_the_exit_code_says_whether_records_stay() -> None:
    def code(*outcomes: Outcome) -> ExitCode:
        done = Replayed()
        done.note({Origin(T, 0, n, 0): Judgement(one, "") for n, one in enumerate(outcomes)})
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
    settled = SeenRecords()
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


# The table's history

Step = tuple[dict[str, dict[int, int]], dict[str, str], int, bool]


def after(table: Table, steps: Sequence[Step]) -> list[Link]:
    """Of a table whose snapshots had these seams, topic ids and drained times; True: by acceptance."""
    for number, (seam, topic_ids, drained_ms, is_accepted) in enumerate(steps):
        summary = {
            "thermocline.seam": Seam.of(seam).to_json(),
            "thermocline.epoch": "1",
            "thermocline.batch-id": str(number),
            "thermocline.cluster-id": "c",
            "thermocline.topic-ids": json.dumps(topic_ids),
            "thermocline.definition-version": "1",
            "thermocline.watermark-ms": "0",
            "thermocline.drained-ms": str(drained_ms),
        }
        accepted = {"thermocline.accepted": "{}"} if is_accepted else {}
        table.append(SCHEMA.empty_table(), snapshot_properties={**summary, **accepted})
    return unbroken(table)


def test_the_history_begins_where_the_table_went_on_with_another_log(quarantine: Table) -> None:
    """Goal: what was read before a topic was recreated or the log lost its end is not of this log."""
    a, b = {"a": "1"}, {"a": "1", "b": "1"}
    first = ({"a": {0: 5}, "b": {0: 9}}, b, 1, False)
    recreated = ({"a": {0: 5}, "b": {0: 9}}, {"a": "1", "b": "2"}, 2, False)
    assert len(after(quarantine, [first, recreated])) == 1
    assert len(after(quarantine, [first, ({"a": {0: 5}, "b": {0: 8}}, b, 2, False)])) == 1
    # A log that lost its end and grew again may end further on: the seam does not go back then.
    assert len(after(quarantine, [first, ({"a": {0: 6}, "b": {0: 9}}, b, 2, True)])) == 1
    assert len(after(quarantine, [({"a": {0: 6}}, a, 3, False), first])) == 1


def test_the_history_knows_from_where_a_topic_was_read_that_joined(quarantine: Table) -> None:
    a, b = {"a": "1"}, {"a": "1", "b": "1"}
    steps = [
        ({"a": {0: 5}}, a, 1, False),
        ({"a": {0: 5}, "b": {0: 700}}, b, 1, False),
        ({"a": {0: 8, 1: 6}, "b": {0: 800}}, b, 2, False),
    ]
    links = after(quarantine, steps)
    reading = reading_of(links, [DEFINITION] * 3, [], [], DEFINITION)
    assert {
        place: partition.begins for place, partition in reading.incarnations.items() if partition.first
    } == {
        ("a", 1): 0,
        ("b", 0): 700,
    }
    assert [reading.reached(1, place) for place in (("a", 0), ("a", 1), ("b", 0))] == [5, 0, 700]
    assert batch_before(Origin("b", 0, 699, 0), reading) is None, "it was never read"
    assert batch_before(Origin("b", 0, 700, 0), reading) == 1
    assert drained(links) == [None, None, 2], "a time that was there before is of an earlier snapshot"


def test_a_row_of_another_source_decides_nothing() -> None:
    assert outcome(judge_by_table(CANDIDATE, Origin("", -1, -1, -1), context())) == Outcome.REFUSED
