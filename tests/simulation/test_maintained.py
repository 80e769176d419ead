"""Maintenance in histories: it hurts no reader, deletes nothing that is needed, leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from tests.simulation.broken import broken
from tests.simulation.edges import simulated
from tests.simulation.history import from_text
from tests.simulation.runner import run_histories, run_many
from tests.simulation.test_simulation import SECONDS_MAX, words
from thermocline.maintenance import expiring, expiry, landing, orphans, sweep
from thermocline.maintenance.rewriting import Rewriting

# With those that `test_simulation` has, and that it has more of with --full, ten thousand.
HISTORIES: Final = 10_000
SEED: Final = 31
# Twice as many as the one takes that is found last.
BROKEN_HISTORIES_MAX: Final = 300
CHUNK: Final = 10

# What must have happened in that many histories, or they prove nothing.
EVENTS: Final = """
landed "landed with rows" taken crashed "late swap landed" "late swap refused" "bad record"
"foreign append" "foreign replace" "rewrite taken over" "rolled back" LoseEnd ReplaceTopic ReplaceCluster
"upkeep rewrites" "upkeep dropped" "upkeep expired" "upkeep swept_files" "upkeep orphans"
leased read "read when expired" "nothing left" "compared with all records"
"rewrite failed: EngineFailed" "rewrite failed: OSError" "rewrite failed: ValueError" "expire failed: OSError"
"expire failed: CommitRejected" "sweep failed: OSError" "orphans failed: OSError" "plan failed: OSError"
"unknown settled as landed" "unknown settled as not landed" "stopped owner-lost" "stopped commit-unknown"
"crash before publish" "crash before store delete" "crash before data write" "pause before publish"
"pause before store delete" "pause before store read" "pause before store list" "pause before store write"
"""


@pytest.mark.full
@pytest.mark.timeout(SECONDS_MAX)
def test_maintenance_hurts_no_reader_and_leaves_nothing_in_any_history() -> None:
    """Goal: what maintenance promises, whatever happens meanwhile. Oracle: `tests.simulation.keeper`."""
    report = run_many(SEED, HISTORIES, processes=2, is_maintained=True)
    print("\n".join(report.lines()))
    assert not report.failures
    assert [event for event in words(EVENTS) if not report.counts[event]] == []


BROKEN: Final[dict[str, tuple[Callable[..., Any], str, str, set[str]]]] = {
    "files that the table has are swept": (
        sweep.sweep,
        "kept = reachable_from(io, table.snapshots(), stop=stop).places()",
        "kept = set()",
        {"file-missing"},
    ),
    "files of snapshots that expired lately are swept": (
        sweep.sweep,
        "expired_snapshots(waiting).values()",
        "()",
        {"swept-early"},
    ),
    "a lease keeps nothing": (
        expiring._old,
        "leased = leased_snapshots(io, location, now_ms)",
        "leased = frozenset()",
        {"leased-expired"},
    ),
    "a tag keeps nothing": (expiry._kept, "kept.add(ref.snapshot_id)", "pass", {"tagged-expired"}),
    "young snapshots expire": (
        expiry.expirable,
        "min(until_ms, at_least_ms))",
        "now_ms)",
        {"young-expired", "leased-expired"},
    ),
    "late deletes do not follow their rows": (
        landing.landing,
        "_moved(io, done, late) if late else {}",
        "{}",
        {"upkeep-failed"},
    ),
    "files of a rewrite with an unknown outcome are deleted": (
        Rewriting._commit,
        "raise error  # its files may be part",
        "delete_files(io, change.paths()); raise error  #",
        {"file-missing", "deleted-under-way"},
    ),
    "orphans stay": (
        orphans.remove_orphans,
        "delete_files(table.io, _until_stopped([orphan.path for orphan in due], stop))",
        "0",
        {"files-left"},
    ),
}


def test_each_line_is_there_to_be_broken() -> None:
    for function, line, instead, _ in BROKEN.values():
        with broken(function, line, instead):
            pass


@pytest.mark.full
@pytest.mark.parametrize("name", BROKEN)
def test_broken_maintenance_is_found(name: str) -> None:
    function, line, instead, kinds = BROKEN[name]
    with broken(function, line, instead):
        for first in count(0, CHUNK):
            assert first < BROKEN_HISTORIES_MAX, "not found"
            report = run_histories(SEED, first, CHUNK, is_served=False, is_maintained=True)
            if report.failures:
                assert report.failures[0].kind in kinds, report.failures[0]
                return


KEPT: Final = {
    "an expiry landed long after it was noted": """\
History(Surroundings(is_maintained=True), (
    Ingest(owner=2, fault=Fault('crash', 1, 0, 'publish')),
    Advance(seconds=50000),
    Ingest(owner=0),
    Turn(owner=0, fault=Fault('pause', 7, 4)),
    Advance(seconds=1900),
    Turn(owner=0),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
))""",
    "a sweep waited for its turn while snapshots expired": """\
History(Surroundings(records_max=5, is_maintained=True), (
    Produce(records=((8, 8, 1),)),
    Ingest(owner=0),
    Turn(owner=0),
    Advance(seconds=2000),
    Turn(owner=0),
    Work(owner=0, is_task=False, fault=Fault('error', 1, 0, 'store delete')),
    Work(owner=0, is_task=False),
))""",
    "deletes went that a rewrite was reading, since a batch had replaced them": """\
History(Surroundings(partitions=(1, 1), is_merging=True, records_max=4, is_maintained=True), (
    Produce(records=((1, 1, 0), (0, 0, 0), (8, 8, 1), (0, 0, 0), (2, 2, 0))),
    Ingest(owner=0),
    Ingest(owner=0),
    Turn(owner=0),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
    Turn(owner=0),
    Produce(records=((0, 0, 1), (8, 8, 1), (1, 1, 0))),
    Ingest(owner=0),
    Produce(records=((2, 2, 1), (0, 0, 1), (1, 1, 0))),
    Ingest(owner=0),
    Advance(seconds=2000),
    Turn(owner=0),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
    Turn(owner=0),
    Advance(seconds=2000),
    Turn(owner=0),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=False),
    Work(owner=0, is_task=True),
    Turn(owner=0),
))""",
}


@pytest.mark.parametrize("name", KEPT)
def test_a_history_that_was_kept(name: str) -> None:
    with simulated():
        assert from_text(KEPT[name]).run()["upkeep swept_files"]
