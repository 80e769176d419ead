"""Histories at random against a plain replay, and the proof that they would find what is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.broken import broken
from tests.simulation.edges import simulated
from tests.simulation.history import from_text
from tests.simulation.runner import run_histories, run_many
from tests.tier import is_full, quick_or_full
from thermocline.iceberg import catalog
from thermocline.ingest.batch import bad_records, plan
from thermocline.ingest.claim import reconcile
from thermocline.ingest.commit.commit import Committer
from thermocline.ingest.owner import table_batch
from thermocline.rules import identity, seam
from thermocline.upsert import files_by_bucket

# Some 8 ms each on an idle core.
HISTORIES = quick_or_full(3_000, 10_000)
# The same each time, so that a change is what turns them red; `python -m tests.simulation` draws others.
SEEDS = (1, 2) if is_full() else (1,)
# The slowest of the broken lines below is found within some three hundred.
BROKEN_HISTORIES_MAX = 3_000
CHUNK = 20
# Ten thousand take five minutes beside other tests, and twice as long on a slow machine.
SECONDS_MAX = 3_600

# What must have happened in that many histories, or they prove nothing.
EVENTS = """
AddPartition Append ClockJump ClusterDown Compact DeliverLate Expire LoseEnd ReplaceCluster ReplaceTopic
Rewrite Rollback SetProperty Tag Trim Resume landed taken crashed expired gap CreateTopic DeleteTopic
"deleted drained" "deleted unread" "stopped topic-deleted" "resumed topic-deleted" "tailer topic-missing"
"landed with rows" "late swap landed" "late swap refused" "bad record" "transaction committed"
"transaction aborted" "record compacted" "tombstone dropped" "foreign append" "foreign replace" "rolled back"
"rewrite taken over" "partial record" "passed over"
"alter add: done" "alter drop: done" "alter widen: done" "alter rename: done" "alter swap: done"
"alter order: done" "columns taken up" "answers with other columns"
"unknown settled as landed" "unknown settled as not landed" "unknown settled as unproven"
"stopped owner-lost" "stopped commit-unknown" "stopped foreign-snapshot" "stopped offsets-gone"
"stopped log-replaced: end" "stopped log-replaced: topics" "stopped log-replaced: cluster"
"stopped tombstones-gone" "resumed offsets-gone" "resumed log-replaced: end"
"resumed log-replaced: topics" "resumed log-replaced: cluster" "resumed foreign-snapshot"
"resumed tombstones-gone" "facts differ" "error commit-rejected"
"error catalog-unreachable" "error kafka-unreachable" "compared with all records" "serves at the end"
"""
# A process dies, pauses and is refused before each of these.
EDGES = """
"log cluster_id" "log describe" "log names" "log starts" "log ends" "log read" "data write" "deletes write"
"metadata load" "metadata write" publish "catalog load" "store write" "store delete"
"""


def words(text: str) -> list[str]:
    """Words, or what stands in quotes."""
    parts = text.replace("\n", " ").split('"')
    return [word for at, part in enumerate(parts) for word in ([part] if at % 2 else part.split())]


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_repeated_resurrected_or_stale_in_any_history(seed: int) -> None:
    """Goal: what the product promises, whatever happens in whatever order. Oracle: a replay into dicts."""
    print(f"seed {seed}")
    report = run_many(seed, HISTORIES, processes=2)
    print("\n".join(report.lines()))
    assert not report.failures
    edges = [f"{kind} before {edge}" for kind in ("crash", "pause", "error") for edge in words(EDGES)]
    assert [event for event in [*words(EVENTS), *edges] if not report.counts[event]] == []


BROKEN: dict[str, tuple[Callable[..., Any], str, str, set[str]]] = {
    "a stale owner commits": (
        Committer._check,
        "if epoch != plan.epoch:",
        "if False:",
        {"stale-owner", "rollback-undone", "two-owners"},
    ),
    "an unknown commit's files are deleted": (
        table_batch._run,
        "raise error  # its files",
        "delete_files(owner.table.io, written_paths(result.buckets)); raise error  #",
        {"file-missing", "deleted-under-way"},
    ),
    "a lost commit is not looked for": (
        Committer._look_for,
        "if not tried:",
        "if True:",
        {"file-missing"},
    ),
    "a landed commit is settled as not landed": (
        reconcile.verdict_of,
        "return Resolution.LANDED",
        "pass",
        {"file-missing"},
    ),
    "what nobody can prove is settled as not landed": (
        reconcile.verdict_of,
        "else Resolution.UNPROVEN",
        "else Resolution.NOT_LANDED",
        {"file-missing"},
    ),
    "a rollback is not seen": (
        catalog.is_rolled_back,
        "return is_other_seam or",
        "return False and",
        {"rollback-undone"},
    ),
    "a topic recreated is read on": (
        identity.check_identity,
        "if replaced:",
        "if False:",
        {"accounting-open", "row-extra", "row-missing", "row-stale", "no-progress"},
    ),
    "lost tombstones are passed over": (
        identity.check_tombstones,
        "if late:",
        "if False:",
        {"row-extra"},
    ),
    "two owners have one epoch": (
        Committer.take_ownership,
        "max(epoch_seen, epoch_floor) + 1",
        "max(epoch_seen, epoch_floor)",
        {"two-owners"},
    ),
    "bad records are not kept": (
        bad_records.settle_bad_records,
        "keep_files(quarantine, paths)",
        "pass",
        {"bad-record-lost"},
    ),
    "an owner forgets the files that it added": (
        files_by_bucket._after,
        "for one in done.added",
        "for one in ()",
        {"files-differ"},
    ),
    "the counts of the table's life are lost": (
        Committer._build,
        "before.totals",
        "{}",
        {"accounting-open"},
    ),
    "a new partition is left out": (
        plan.with_new_partitions,
        "(topic, p) not in seam",
        "(topic, p) not in seam and False",
        {"no-progress"},
    ),
    "a gap is not seen": (seam.check_against_log, "if gaps:", "if False:", {"no-progress"}),
}


def test_each_line_is_there_to_be_broken() -> None:
    for function, line, instead, _ in BROKEN.values():
        with broken(function, line, instead):
            pass


@pytest.mark.full
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_found(name: str) -> None:
    function, line, instead, kinds = BROKEN[name]
    with broken(function, line, instead):
        for first in range(0, BROKEN_HISTORIES_MAX, CHUNK):
            report = run_histories(9, first, CHUNK, is_served=False)
            if report.failures:
                assert report.failures[0].kind in kinds, report.failures[0]
                return
    pytest.fail(f"not found in {BROKEN_HISTORIES_MAX} histories")


KEPT = {
    "rolled back to what an owner was about to take the table on": """\
History(Surroundings(partitions=(1, 1), records_max=100), (
    Ingest(owner=0, fault=None, answer=None),
    Produce(records=((0, 0, 0), (1, 1, 0)), slot=None),
    Ingest(owner=1, fault=Fault("pause", 1, 2, "metadata load"), answer=None),
    Ingest(owner=0, fault=None, answer=None),
    Rollback(back=0),
))""",
    "a tailer that slept had a row before the table had one": """\
History(Surroundings(partitions=(1, 2), is_compacted=True, records_max=100, is_served=True), (
    Ingest(owner=0, fault=Fault("pause", 0, 5, "metadata load"), answer=Answer("late", 0)),
    Produce(records=((6, 6, 0),), slot=None),
    Tail(rounds=3, fault=None),
    Produce(records=((6, 6, 1),), slot=None),
    Compact(place=6, spared=0, drops=True),
    Advance(seconds=1800),
    Ingest(owner=0, fault=None, answer=None),
    Advance(seconds=1900),
    Follow(fault=Fault("pause", 7, 3)),
    Compact(place=6, spared=0, drops=True),
    Tail(rounds=1, fault=Fault("error", 0)),
    Tail(rounds=2, fault=None),
))""",
    "a tailer that slept had rows before the table had any": """\
History(Surroundings(partitions=(1, 1), is_compacted=True, records_max=5, is_served=True), (
    Ingest(owner=0, fault=None, answer=None),
    Ingest(owner=2, fault=None, answer=None),
    Produce(records=((7, 7, 0),), slot=None),
    Tail(rounds=1, fault=None),
    Produce(records=((7, 7, 1),), slot=None),
    Compact(place=7, spared=0, drops=True),
    Advance(seconds=3700),
    Compact(place=7, spared=0, drops=True),
    Extract(worker=1, fault=Fault("pause", 10, 5)),
))""",
    "a tailer began below an empty table that had rows by then": """\
History(Surroundings(partitions=(1, 1), is_compacted=True, records_max=5, is_served=True), (
    Produce(records=((5, 5, 0),), slot=None),
    Ingest(owner=0, fault=None, answer=None),
    Produce(records=((5, 5, 1),), slot=None),
    Tail(rounds=3, fault=Fault("pause", 0, 2)),
    Compact(place=5, spared=0, drops=True),
    Lookup(worker=0, users=3, key=10, refreshes=False, fault=None),
    Advance(seconds=3700),
    Compact(place=5, spared=0, drops=True),
    Tail(rounds=3, fault=Fault("pause", 5, 5)),
    Produce(records=((1, 1, 0), (0, 0, 0)), slot=None),
    Produce(records=((0, 0, 1), (2, 2, 0), (1, 1, 0)), slot=None),
    Follow(fault=None),
    Tail(rounds=1, fault=None),
    Refresh(worker=0, fault=Fault("pause", 2, 1)),
    Pass(seconds=1.1),
    Tail(rounds=1, fault=Fault("crash", 7)),
))""",
    "a tailer followed an empty table long after it had rows": """\
History(Surroundings(partitions=(1, 1), is_compacted=True, records_max=5, is_served=True), (
    Produce(records=((2, 2, 0), (10, 10, 2)), slot=None),
    Produce(records=((2, 2, 0), (0, 0, 2), (2, 2, 0), (0, 0, 0), (4, 4, 1)), slot=None),
    Ingest(owner=0, fault=None, answer=None),
    Tail(rounds=1, fault=Fault("pause", 6, 3)),
    Produce(records=((4, 4, 0),), slot=None),
    Ingest(owner=0, fault=None, answer=None),
    Produce(records=((4, 4, 1),), slot=None),
    Compact(place=4, spared=0, drops=True),
    Advance(seconds=3700),
    Compact(place=4, spared=0, drops=True),
    Tail(rounds=3, fault=Fault("pause", 0, 1)),
    Ingest(owner=0, fault=None, answer=None),
    Tail(rounds=1, fault=None),
    Follow(fault=None),
    Tail(rounds=2, fault=None),
    Refresh(worker=1, fault=None),
    Tail(rounds=1, fault=None),
))""",
    "a tailer was started again below a table that had gone past its tier": """\
History(Surroundings(partitions=(1, 1), is_compacted=True, records_max=100, is_served=True), (
    Reboot(damage=90),
    Produce(records=((2, 2, 0),), slot=None),
    Ingest(owner=0, fault=None, answer=None),
    Follow(fault=None),
    Tail(rounds=3, fault=Fault("crash", 6)),
    Refresh(worker=1, fault=None),
    Produce(records=((2, 2, 1),), slot=None),
    Compact(place=2, spared=0, drops=True),
    Advance(seconds=1800),
    Ingest(owner=0, fault=None, answer=None),
    Advance(seconds=1900),
    Follow(fault=Fault("crash", 9)),
    Compact(place=2, spared=0, drops=True),
    Tail(rounds=2, fault=None),
))""",
    "a rejected race had landed": """\
History(Surroundings(partitions=(1, 1), records_max=100), (
    Ingest(owner=0, fault=None, answer=None),
    Produce(records=((0, 0, 0), (1, 1, 0)), slot=None),
    Ingest(owner=0, fault=None, answer=Answer("raced", 0)),
    Produce(records=((0, 0, 1),), slot=None),
    Ingest(owner=0, fault=Fault("crash", 0, 0, "store write"), answer=Answer("late", 0)),
    Ingest(owner=1, fault=Fault("pause", 0, 1, "publish"), answer=None),
    DeliverLate(which=0),
    Expire(kept=1),
    Ingest(owner=2, fault=None, answer=None),
))""",
}


@pytest.mark.parametrize("name", KEPT)
def test_a_history_that_was_kept(name: str) -> None:
    with simulated():
        assert from_text(KEPT[name]).run()["landed"] > 1
