"""A table gets another number of buckets between batches, on a real catalog, against a plain dict."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from tests.ingest.small_ingest import NAME, Ingest, Key, settings_of
from tests.maintenance.kept import Inline, Kept, kept_up
from tests.tier import is_full
from thermocline.errors import AlterationRefused, ForeignSnapshot
from thermocline.iceberg.catalog import definition_of
from thermocline.iceberg.data_file import WrittenFile, write_data_file
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import listed_files, local_path, plan_files
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.commit.content_files import ContentFiles
from thermocline.ingest.table.alter import commit_alteration
from thermocline.ingest.table.resume import rebase_onto
from thermocline.maintenance import merge
from thermocline.maintenance.measure import Measurer
from thermocline.maintenance.plan import Costs, Reads, plan_of
from thermocline.maintenance.run import OwnedTable
from thermocline.process.clock import SystemClock
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.bucket_change import FACTOR_MAX
from thermocline.rules.keys import buckets as buckets_of
from thermocline.rules.keys import encode_one
from thermocline.upsert.bucket_task import BucketResult
from thermocline.upsert.files_by_bucket import by_bucket
from thermocline.verify.history import histories_of
from thermocline.verify.structure import structure_findings

pytestmark = pytest.mark.jvm

STEPS_MAX = 60
BUCKETS = (4, 16, 2, 6, 3) if is_full() else (4, 2, 6)


@pytest.fixture
def kept(tmp_path: Path, jvm: Any, request: pytest.FixtureRequest) -> Iterator[Kept]:
    format_version = getattr(request, "param", 3)
    settings = settings_of(tmp_path, "sqlite:///catalog.db", format_version)
    with kept_up(Ingest(settings, jvm, seed=format_version)) as kept:
        yield kept


def alter(kept: Kept, buckets: int) -> None:
    """As ``table alter`` does, once it owns the table."""
    ingest, current = kept.ingest, kept.site.definition
    files = dict(Counter(file.part.of for file in ingest.files()))
    wanted = replace(current, buckets=buckets, file_buckets=None)
    planned = plan_alteration(current, wanted, ingest.owned.table.metadata.last_column_id, files)
    commit_alteration(ingest.owned, planned, "earliest")
    ingest.refresh()
    ingest.definition = ingest.owned.definition = definition_of(ingest.owned.table, NAME)
    assert ingest.definition == planned.definition
    kept.site = OwnedTable.of(ingest.owned, Inline(ingest.jvm))


def step(kept: Kept) -> None:
    """A batch and a turn; after each, rows, files and where they are must be as they should."""
    kept.clock.advance(31)
    for act in (kept.batch, kept.turn):
        act()
        kept.ingest.definition = kept.site.definition
        assert kept.ingest.rows() == kept.ingest.expected
        carried = {bucket: files for bucket, files in kept.site.position.files.items() if files}
        assert {
            bucket: sorted(files, key=lambda file: file.path) for bucket, files in carried.items()
        } == by_bucket(kept.ingest.files())
    check_deletes_are_listed_with_their_files(kept.ingest.owned.table)
    assert kept.site.definition == definition_of(kept.ingest.owned.table, NAME)


def check_structure(kept: Kept) -> None:
    """As `verify` does: also that each row is in its bucket, by the number of its file."""
    found = structure_findings(kept.ingest.owned.table, kept.site.definition, lambda *_: None)
    assert list(found) == []


def check_deletes_are_listed_with_their_files(table: Table) -> None:
    """Other readers find deletes by the partition that a manifest lists them in."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    listed = [one for manifest in snapshot.manifests(table.io) for one in listed_files(table.io, manifest)]
    place = {one.path: (one.spec_id, one.bucket) for one in listed if one.content == "data"}
    for one in listed:
        assert one.referenced is None or place[one.referenced] == (one.spec_id, one.bucket)


def numbers(kept: Kept) -> set[int]:
    return {file.part.of for file in kept.ingest.files()}


@pytest.mark.parametrize("kept", [pytest.param(2, marks=pytest.mark.full), 3], indirect=True)
def test_a_table_gets_more_and_fewer_buckets_between_batches_and_says_the_same_all_the_while(
    kept: Kept,
) -> None:
    """Goal: no row is lost, doubled or brought back, in no state in between; and the change ends by itself.

    Method: batches change and delete rows of files of both numbers, also of files that a rewrite reads.
    """
    old_deletes = steps = 0
    seen: dict[int, dict[Key, str]] = {}
    for buckets in BUCKETS:
        before = kept.site.definition
        for _ in range(3):
            step(kept)
            seen[kept.ingest.owned.state.snapshot_id] = dict(kept.ingest.expected)
        alter(kept, buckets)
        is_raised = buckets > before.buckets
        assert kept.site.definition.buckets == (before.buckets if is_raised else buckets)
        assert kept.site.definition.buckets_written == buckets
        with pytest.raises(AlterationRefused, match="under way"):
            alter(kept, 1)
        step(kept)
        check_structure(kept)
        while numbers(kept) != {buckets} or kept.site.definition.buckets != buckets:
            step(kept)
            old_deletes += sum(
                file.deletes is not None and file.part.of != buckets for file in kept.ingest.files()
            )
            steps += 1
            assert steps < STEPS_MAX
        check_structure(kept)
    assert steps > 5
    assert old_deletes, "a batch deleted rows of a file of before"
    specs = kept.ingest.owned.table.specs()
    assert [str(spec.fields[0].transform) for spec in specs.values()] == [
        f"bucket[{count}]" for count in dict.fromkeys((2, *BUCKETS))
    ]
    assert kept.upkeep.done.dropped == kept.upkeep.done.failures == 0
    for snapshot_id, rows in seen.items():  # as a pinned view reads it
        scanned = kept.ingest.owned.table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        assert {(row["user_id"], row["key"]): row["value"] for row in scanned} == rows


def raised(kept: Kept, buckets: int) -> None:
    """A whole change to more buckets, with batches meanwhile."""
    alter(kept, buckets)
    for _ in range(STEPS_MAX):
        if kept.site.definition.buckets == buckets:
            return
        step(kept)
    raise AssertionError("the change did not end")


def test_a_table_that_goes_back_to_before_its_buckets_were_raised_is_whole_and_goes_on(kept: Kept) -> None:
    """Method: another program rolls the table back, and `ingest rebase --onto` goes on from there."""
    kept.batches(4)
    ours, expected = kept.ingest.owned.state.snapshot_id, dict(kept.ingest.expected)
    raised(kept, 8)
    kept.ingest.owned.release()
    kept.ingest.java_table().manageSnapshots().rollbackTo(ours).commit()

    assert rebase_onto(kept.ingest.settings, NAME, ours, [f"current={ours}"], SystemClock())

    kept.ingest.take_over()
    kept.ingest.refresh()
    kept.site = OwnedTable.of(kept.ingest.owned, Inline(kept.ingest.jvm))
    kept.ingest.definition, kept.ingest.expected = kept.site.definition, expected
    assert (kept.site.definition.buckets, kept.site.definition.buckets_written) == (2, 8)
    for _ in range(STEPS_MAX):
        if kept.site.definition.buckets == 8:
            break
        step(kept)
    assert numbers(kept) == {8}


def test_files_of_both_numbers_are_rewritten_by_others_and_a_keys_history_is_told_through_all(
    kept: Kept,
) -> None:
    """Method: between alteration and end, another program rewrites the table by its newest partition spec."""
    for _ in range(4):
        step(kept)
    alter(kept, 4)
    kept.batch()
    ingest = kept.ingest
    table, io, definition = ingest.java_table(), ingest.owned.table.io, ingest.definition
    parts = []
    for old in ingest.rewrite().files:
        rows = pa.concat_tables([ingest.live_rows(file) for file in old.removed]).sort_by("_key")
        of_bucket = buckets_of(definition, rows.column("user_id"), 4)
        for number in set(of_bucket.tolist()):
            path = f"{ingest.owned.table.location()}/data/theirs-{uuid.uuid4()}.parquet"
            some, part = rows.filter(pa.array(of_bucket == number)), FileBucket(number, 4)
            added = write_data_file(io, path, definition, some, part)
            removed = old.removed if number == min(of_bucket) else ()
            parts.append(BucketResult(old.bucket, (added,), removed=removed))
    change = replace(TableChange.carrying_on(ingest.owned.state), kind="rewrite", files=parts)
    update = table.newRewrite()
    update.validateFromSnapshot(table.currentSnapshot().snapshotId())
    ContentFiles(ingest.jvm, table.specs()).hand_over(change, update)
    update.commit()

    ingest.take_over()
    ingest.refresh()
    kept.site = OwnedTable.of(ingest.owned, Inline(ingest.jvm))
    assert numbers(kept) == {4}
    step(kept)
    assert kept.site.definition.buckets == 4
    step(kept)
    keys = {key: encode_one(kept.site.definition, key) for key in ingest.expected}
    told = histories_of(ingest.owned.table, None, lambda _: iter(()), kept.site.definition, [*keys.values()])
    for key, encoded in keys.items():
        assert any("is live" in line for line in told[encoded]), key


def test_a_change_ends_where_a_file_of_another_engine_is_too_large_to_be_sorted_in_memory(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "SORTED_ROWS_MAX", 3)
    kept.batches(4)
    change = kept.ingest.rewrite()
    parts = [replace(part, added=tuple(map(unsorted, part.added))) for part in change.files]
    assert max(file.rows for part in parts for file in part.added) > 2 * merge.SORTED_ROWS_MAX
    assert isinstance(kept.site.land(replace(change, files=parts)), Landed)
    kept.ingest.refresh()
    raised(kept, 4)
    assert kept.upkeep.done.failures == 0
    check_structure(kept)


def unsorted(file: WrittenFile) -> WrittenFile:
    """The rows the other way round, and without the index of ours."""
    path = local_path(file.path) or ""
    rows = pq.read_table(path, partitioning=None).replace_schema_metadata()
    pq.write_table(rows.take(pa.array(range(len(rows)))[::-1]), path, row_group_size=4)
    return replace(file, file_bytes=Path(path).stat().st_size)


def test_while_buckets_change_every_file_of_before_is_wanted_and_counted(kept: Kept) -> None:
    kept.batches(6)
    files = len(kept.ingest.files())
    alter(kept, 4)
    measured = Measurer(kept.site.definition).measure(kept.ingest.owned.table, kept.clock.now_ms())
    assert measured.older_files == files
    plan = plan_of(measured, 1 << 20, Reads(scans_per_hour=0, lookups_per_hour=0), Costs())
    assert sum(len(task.files) for task in plan.wanted) == files
    assert all(task.is_forced and "from 2 to 4 buckets" in task.reason for task in plan.wanted)
    assert plan.debt_seconds == 0 < plan.bucket_change_seconds


def test_files_that_are_in_several_buckets_are_not_read(kept: Kept) -> None:
    """A definition that says more buckets than the files have, as no change of ours leaves it."""
    kept.batches(2)
    table = kept.ingest.owned.table
    with pytest.raises(ForeignSnapshot, match="of 2, and the table has 4"):
        plan_files(table, kept.ingest.owned.state.snapshot_id, NAME, buckets=4)


def test_an_empty_table_changes_at_once(kept: Kept) -> None:
    alter(kept, 8)
    assert (kept.site.definition.buckets, kept.site.definition.file_buckets) == (8, 8)
    for _ in range(3):
        step(kept)
    assert numbers(kept) == {8}


def test_other_numbers_are_refused_with_the_nearest_that_are_not(kept: Kept) -> None:
    for wanted, nearest in ((3, "1 and 4"), (2 * FACTOR_MAX + 1, f"{2 * FACTOR_MAX}")):
        with pytest.raises(AlterationRefused, match=f"nearest: {nearest}"):
            alter(kept, wanted)
    assert isinstance(kept.site.land(kept.ingest.batch()[0]), Landed)
