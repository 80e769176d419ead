"""The runs of a table's lineage: a batch is one, a rewrite is one, and other commits are none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import CommitUnknown, EngineFailed
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.files import DataFile, Deletes
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.batch.plan import Batch
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.owner.lineage.happened import Committed, Happened, Volume, run_id_at
from thermocline.ingest.owner.lineage.observer import LineageObserver
from thermocline.ingest.owner.observers import Observers
from thermocline.kafka.facts import OffsetRange
from thermocline.rules.seam import Seam
from thermocline.upsert.bucket_task import BucketResult

NOW_MS = 1_700_000_000_000
RANGES = (OffsetRange("orders", 0, 3, 8),)
SEAM = Seam.of({"orders": {0: 8}})
BATCH = Batch(RANGES, SEAM, SEAM)


def written(path: str, rows: int, size: int) -> WrittenFile:
    return WrittenFile(path, size, rows, {}, {}, {})


DELETES = Deletes("d.puffin", "puffin", 0, 40, 3, 60)
PARTS = (
    BucketResult(
        0,
        added=(written("a", 7, 700), written("b", 2, 200)),
        removed=(DataFile("old", 0, 10, 1_000, DELETES), DataFile("older", 0, 1, 90)),
        carried=5,
    ),
    BucketResult(1, added=(written("c", 1, 100),)),
)
CHANGE = TableChange(
    SEAM,
    "cluster",
    {"orders": "id"},
    watermark_ms=1,
    drained_ms=1,
    accounting=Accounting(read=5, applied=4, superseded=1),
    files=PARTS,
    batch_id="6f1c53b5-9c9a-4f6a-8f56-3b7f3a9d2f10",
)
COMMITTED = Committed(
    snapshot_id=42,
    batch_id="6f1c53b5-9c9a-4f6a-8f56-3b7f3a9d2f10",
    seam=SEAM,
    records={
        "read": 5,
        "applied": 4,
        "superseded": 1,
        "unchanged": 0,
        "quarantined": 0,
        "skipped": 0,
        "filtered": 0,
    },
    written=Volume(rows=10, bytes=1_000, files=3),
    carried_rows=5,
    removed=Volume(rows=8, bytes=1_090, files=2),
)
LANDED = Landed(42, SEAM)


class Noted:
    """Takes note in place of a sender."""

    def __init__(self) -> None:
        self.happened: list[Happened] = []
        self.is_closed = False

    def put(self, *happened: Happened) -> None:
        self.happened += happened

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def observers(noted: Noted, clock: ManualClock) -> Observers:
    return Observers(LineageObserver(noted, clock))


def run_of(noted: Noted) -> str:
    (run,) = {one.run_id for one in noted.happened}
    return run


def test_a_batch_that_lands_is_a_run_from_its_plan_to_its_commit(
    observers: Observers, noted: Noted, clock: ManualClock
) -> None:
    with observers.batch(BATCH):
        clock.advance(2)
        observers.landed(LANDED, CHANGE)
    run = run_of(noted)
    assert noted.happened == [
        Happened("ingest", "START", run, NOW_MS, RANGES),
        Happened("ingest", "COMPLETE", run, NOW_MS + 2_000, RANGES, COMMITTED),
    ]


def test_a_batch_after_topics_came_or_left_names_those_of_the_table_then(
    observers: Observers, noted: Noted
) -> None:
    rotated: Any = SimpleNamespace(kind="alteration", definition=SimpleNamespace(topics=("b", "c")))
    observers.landed(LANDED, rotated)
    ended_with(EngineFailed(engine="spark", detail="away"), observers)
    assert [one.topics for one in noted.happened] == [("b", "c")] * 2


def ended_with(error: BaseException, observers: Observers) -> None:
    with pytest.raises(type(error)), observers.batch(BATCH):
        raise error


def test_a_batch_that_ends_with_an_error_failed_and_says_why(observers: Observers, noted: Noted) -> None:
    ended_with(EngineFailed(engine="spark", detail="a row of somebody"), observers)
    run = run_of(noted)
    assert noted.happened == [
        Happened("ingest", "START", run, NOW_MS, RANGES),
        Happened("ingest", "FAIL", run, NOW_MS, RANGES, error="engine-failed: a job of spark failed."),
    ]


def test_of_a_bug_only_its_kind_is_said(observers: Observers, noted: Noted) -> None:
    ended_with(ValueError("the row of ada"), observers)
    assert (noted.happened[-1].type, noted.happened[-1].error) == ("FAIL", "ValueError")


def test_a_batch_that_may_have_landed_did_not_fail(observers: Observers, noted: Noted) -> None:
    unknown = CommitUnknown(table="orders", batch_id="b", ranges="orders/0 [3, 8)", detail="no answer")
    for error in (unknown, KeyboardInterrupt()):
        ended_with(error, observers)
    assert [one.type for one in noted.happened] == ["START", "ABORT", "START", "ABORT"]
    assert len({one.run_id for one in noted.happened}) == 2


def test_an_error_after_the_commit_changes_nothing(observers: Observers, noted: Noted) -> None:
    def land_and_fail() -> None:
        with observers.batch(BATCH):
            observers.landed(LANDED, CHANGE)
            raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        land_and_fail()
    assert [one.type for one in noted.happened] == ["START", "COMPLETE"]


def test_a_rewrite_is_a_run_of_its_own_from_when_it_began(observers: Observers, noted: Noted) -> None:
    began_ms = NOW_MS - 90_000
    observers.landed(LANDED, replace(CHANGE, kind="rewrite", began_ms=began_ms))
    run = run_of(noted)
    assert noted.happened == [
        Happened("rewrite", "START", run, began_ms),
        Happened("rewrite", "COMPLETE", run, NOW_MS, committed=COMMITTED),
    ]


@pytest.mark.parametrize("change", [{"kind": "manifests"}, {"expired": (1, 2)}, {}], ids=str)
def test_commits_between_batches_that_move_no_row_are_no_runs(
    observers: Observers, noted: Noted, change: dict[str, Any]
) -> None:
    with observers.batch(BATCH):
        observers.landed(LANDED, CHANGE)
    before = list(noted.happened)
    observers.landed(LANDED, replace(CHANGE, files=(), **change))
    assert noted.happened == before


def test_the_ids_of_runs_are_uuids_that_sort_by_time() -> None:
    earlier, later, other = run_id_at(NOW_MS), run_id_at(NOW_MS + 1), run_id_at(NOW_MS + 1)
    assert earlier < later
    assert later != other
    assert earlier.startswith("018bcfe5-6800-7")
    assert (UUID(earlier).version, UUID(earlier).variant) == (7, "specified in RFC 4122")


def test_an_owner_that_ends_closes_what_sends(observers: Observers, noted: Noted) -> None:
    observers.end()
    assert noted.is_closed
