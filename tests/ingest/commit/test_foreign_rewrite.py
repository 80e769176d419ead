"""What others commit after our newest snapshot: a rewrite that is proved is taken over, anything else stops.

With a small JVM, through the same Iceberg operations as an engine's maintenance.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from thermocline.errors import ForeignSnapshot, OwnerLost, StorageFailed
from thermocline.iceberg.catalog import (
    SUMMARY_TAKEN_OVER,
    current_state,
    load_table,
    open_catalog,
    summary_of,
)
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import local_path, plan_files
from thermocline.iceberg.lineage import Link, lineage
from thermocline.iceberg.rewrite import NotARewrite, Rewrite, check_same_rows, resume_state
from thermocline.ingest.claim.ownership import Claim
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Outcome, Rejected, landed
from thermocline.ingest.commit.content_files import ContentFiles
from thermocline.ingest.replay.evidence import unbroken
from thermocline.process.clock import SystemClock
from thermocline.upsert.bucket_task import BucketResult
from thermocline.upsert.files_by_bucket import by_bucket
from thermocline.verify.structure import structure_findings

pytestmark = pytest.mark.jvm

Edit = Callable[[pa.Table], pa.Table]


@pytest.fixture
def ingest(tmp_path: Path, jvm: Any) -> Iterator[Ingest]:
    made = Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed=3)
    for _ in range(4):
        commit(made)
    yield made
    made.owned.release()


def commit(ingest: Ingest) -> None:
    change, after = ingest.batch()
    landed(ingest.owned.committer.commit(*ingest.planned, change))
    ingest.expected = after
    assert ingest.rows() == after


def rewrite(ingest: Ingest, edit: Edit = lambda rows: rows, change: TableChange | None = None) -> int:
    """Another writer's rewrite of the whole table, in which every file's rows are edited first; its id."""
    table = ingest.java_table()
    update = table.newRewrite()
    update.validateFromSnapshot(table.currentSnapshot().snapshotId())
    changed = _edited(ingest, edit) if change is None else change
    ContentFiles(ingest.jvm, table.specs()).hand_over(changed, update)
    update.commit()
    return int(table.currentSnapshot().snapshotId())


def _edited(ingest: Ingest, edit: Edit) -> TableChange:
    parts = []
    for part in ingest.rewrite().files:
        (written,) = part.added
        rows = edit(pq.read_table(local_path(written.path), partitioning=None))
        path = f"{ingest.owned.table.location()}/data/bucket={part.bucket}/{uuid.uuid4()}.parquet"
        schema = ingest.definition.table_schema
        pq.write_table(rows.cast(schema), local_path(path), row_group_size=5)
        size = Path(local_path(path) or "").stat().st_size
        added = replace(written, path=path, rows=rows.num_rows, file_bytes=size)
        parts.append(BucketResult(part.bucket, (added,), removed=part.removed))
    return rewriting(ingest, parts)


def rewriting(ingest: Ingest, parts: list[BucketResult]) -> TableChange:
    return replace(TableChange.carrying_on(ingest.owned.state), kind="rewrite", files=parts)


def claim(ingest: Ingest) -> Claim:
    ingest.owned.release()
    return Claim.of(ingest.settings, NAME, SystemClock())


def proved(ingest: Ingest) -> Rewrite:
    table = load_table(open_catalog(ingest.settings.catalog), NAME, "app.profiles")
    _, found = resume_state(table, ingest.definition, NAME)
    assert found is not None
    return found


def error_of(outcome: Outcome) -> Exception:
    assert isinstance(outcome, Rejected), outcome
    return outcome.error


def codes(ingest: Ingest) -> set[str]:
    table = load_table(open_catalog(ingest.settings.catalog), NAME, "app.profiles")
    found = list(structure_findings(table, ingest.definition, lambda *_: None))
    print(*found, sep="\n")
    return {one.code for one in found}


def backwards(rows: pa.Table) -> pa.Table:
    return rows.take(pa.array(range(rows.num_rows)[::-1]))


def one_missing(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def one_doubled_for_another(rows: pa.Table) -> pa.Table:
    """Of a rewrite with more rows than it replaces, Iceberg's own library says that it is none."""
    return pa.concat_tables([rows.slice(1), rows.slice(1, 1)])


def another(column: str, value: Any) -> Edit:
    def edit(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index(column)
        values = [value, *rows.column(column).to_pylist()[1:]]
        return rows.set_column(
            at, rows.schema.field(column), pa.array(values, rows.schema.field(column).type)
        )

    return edit


def test_a_rewrite_is_taken_over_by_the_next_owner(ingest: Ingest) -> None:
    """Method: the files are no longer in the order of keys, and have no index in their footer."""
    ours, seam = ingest.planned
    foreign = rewrite(ingest, backwards)
    with pytest.raises(ForeignSnapshot) as unproved:
        current_state(ingest.owned.table.refresh(), NAME)
    assert unproved.value.next.startswith(f"thermocline ingest run {NAME}\n"), "not to give it up"

    ingest.take_over()

    assert ingest.rows() == ingest.expected
    current = ingest.owned.table.current_snapshot()
    assert current is not None
    assert current.parent_snapshot_id == foreign
    assert ingest.owned.state.seam == seam
    assert summary_of(current)[SUMMARY_TAKEN_OVER] == str(foreign)
    for _ in range(3):
        commit(ingest)
    assert codes(ingest) == set()
    assert [link.snapshot_id for link in unbroken(ingest.owned.table)][-5:-3] == [ours, current.snapshot_id]


def test_a_rewrite_is_taken_over_by_the_owner_that_met_it_and_several_at_once(ingest: Ingest) -> None:
    change, _ = ingest.batch()
    first = rewrite(ingest)
    met = error_of(ingest.owned.committer.commit(*ingest.planned, change))
    assert isinstance(met, ForeignSnapshot)
    table = load_table(open_catalog(ingest.settings.catalog), NAME, "app.profiles")
    files = by_bucket(plan_files(table, first)).items()
    again = [
        BucketResult(bucket, part.added, removed=tuple(some))
        for (bucket, some), part in zip(files, ingest.rewrite().files, strict=True)
    ]
    second = rewrite(ingest, change=rewriting(ingest, again))

    found = proved(ingest)
    assert found == Rewrite(ingest.planned[0], (first, second))
    epoch = ingest.owned.committer.epoch
    assert isinstance(ingest.owned.committer.take_over(found), Landed)

    ingest.refresh()
    assert ingest.owned.state.epoch == epoch
    commit(ingest)
    assert codes(ingest) == set()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (one_missing, "another number of rows"),
        (one_doubled_for_another, "other rows"),
        (another("value", "x"), "other rows"),
        (another("value", None), "other rows"),
        (another("key", "x"), "other rows"),
        (another("_kafka_offset", 1 << 40), "other rows"),
        (another("_kafka_topic", "x"), "other rows"),
    ],
)
def test_a_rewrite_that_is_none_stops_ingest(ingest: Ingest, edit: Edit, words: str) -> None:
    ours = ingest.planned[0]
    foreign = rewrite(ingest, edit)
    with pytest.raises(ForeignSnapshot, match=words) as stop:
        ingest.take_over()
    assert (stop.value.snapshot_id, stop.value.onto, stop.value.given_up) == (foreign, ours, (str(foreign),))
    assert "ingest rebase" in stop.value.next
    assert ingest.java_table().currentSnapshot().snapshotId() == foreign


def test_rows_in_a_file_of_another_bucket_stop_ingest(ingest: Ingest) -> None:
    parts = ingest.rewrite().files
    added = [part.added for part in parts]
    swapped = [
        replace(part, added=tuple(replace(file, part=FileBucket(part.bucket, 2)) for file in one))
        for part, one in zip(parts, reversed(added), strict=True)
    ]
    rewrite(ingest, change=rewriting(ingest, swapped))
    with pytest.raises(ForeignSnapshot, match="other"):
        ingest.take_over()


def test_files_with_columns_of_other_ids_stop_ingest(ingest: Ingest) -> None:
    """Other readers go by a column's id, and would see nothing in it."""
    change = _edited(ingest, lambda rows: rows)
    for part in change.files:
        path = Path(local_path(part.added[0].path) or "")
        rows = pq.read_table(path, partitioning=None)
        bare = pa.schema([field.remove_metadata() for field in rows.schema])
        pq.write_table(rows.cast(bare), path)
        object.__setattr__(part.added[0], "file_bytes", path.stat().st_size)
    rewrite(ingest, change=change)
    with pytest.raises(ForeignSnapshot, match="other columns"):
        ingest.take_over()


def test_a_foreign_commit_without_a_replace_operation_stops_ingest(ingest: Ingest) -> None:
    ingest.java_table().newAppend().commit()
    with pytest.raises(ForeignSnapshot, match="no rewrite by its own account"):
        ingest.take_over()


def test_an_append_below_a_rewrite_stops_ingest(ingest: Ingest) -> None:
    ingest.java_table().newAppend().commit()
    rewrite(ingest)
    with pytest.raises(ForeignSnapshot, match="no rewrite by its own account"):
        ingest.take_over()


def test_a_rewrite_on_top_of_a_rollback_stops_ingest(ingest: Ingest) -> None:
    """Goal: a commit is not given up in silence. Method: it left the seam where it was."""
    before, rows = ingest.planned, dict(ingest.expected)
    landed(ingest.owned.committer.commit(*before, TableChange.carrying_on(ingest.owned.state)))
    ingest.java_table().manageSnapshots().rollbackTo(before[0]).commit()
    rewrite(ingest)
    with pytest.raises(ForeignSnapshot, match="not what was last committed") as stop:
        ingest.take_over()
    assert stop.value.onto == before[0]
    assert rows == ingest.expected


def test_a_rollback_to_a_rewrite_that_was_taken_over_stops_ingest(ingest: Ingest) -> None:
    foreign = rewrite(ingest)
    ingest.take_over()
    ingest.refresh()
    commit(ingest)
    ingest.java_table().manageSnapshots().rollbackTo(foreign).commit()
    with pytest.raises(ForeignSnapshot, match="not what was last committed"):
        ingest.take_over()


def test_a_table_that_is_rolled_back_after_a_rewrite_was_proved_is_not_taken(ingest: Ingest) -> None:
    foreign = rewrite(ingest)
    found, committer = proved(ingest), ingest.owned.committer
    assert isinstance(committer.take_over(found), Landed)
    ingest.java_table().manageSnapshots().rollbackTo(foreign).commit()
    assert isinstance(error_of(committer.take_over(found)), ForeignSnapshot)


def test_a_rewrite_with_another_schema_stops_ingest(ingest: Ingest) -> None:
    table = ingest.java_table()
    table.updateSchema().addColumn("foreign_one", table.schema().findType("value")).commit()
    rewrite(ingest)
    with pytest.raises(ForeignSnapshot, match="another schema"):
        ingest.take_over()


@pytest.mark.parametrize(("column", "says"), [("key", "not in buckets of user_id"), ("user_id", "of 3, and")])
def test_a_rewrite_into_other_partitions_is_none(ingest: Ingest, column: str, says: str) -> None:
    """Another program changed the table's partitioning, to another column or a number that does not nest."""
    java, bucket = ingest.java_table(), ingest.jvm.org.apache.iceberg.expressions.Expressions.bucket
    java.updateSpec().removeField("bucket").addField("theirs", bucket(column, 3)).commit()
    java.refresh()
    old = ingest.files()[0]
    files, update = ContentFiles(ingest.jvm, java.specs()), java.newRewrite()
    fields = {"content": "data", "file-path": old.path, "file-format": "parquet", "record-count": old.rows}
    fields["file-size-in-bytes"] = old.bytes
    was, now = {"spec-id": 0, "partition": [old.part.number]}, {"spec-id": 1, "partition": [0]}
    files.give(update, "RewriteFiles", "deleteFile", "DataFile", [fields | was])
    files.give(update, "RewriteFiles", "addFile", "DataFile", [fields | now | {"file-path": f"{old.path}-2"}])
    update.commit()
    table = load_table(open_catalog(ingest.settings.catalog), NAME, "app.profiles")
    *_, ours, theirs = lineage(table)
    with pytest.raises(NotARewrite, match=says):
        check_same_rows(table, ingest.definition, ours, (theirs,))


def test_equality_deletes_stop_ingest(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a writer who says that it only rewrote."""
    java = ingest.java_table()
    deletes = {
        "spec-id": 0,
        "content": "equality-deletes",
        "file-path": f"{java.location()}/data/equality.parquet",
        "file-format": "parquet",
        "partition": [0],
        "file-size-in-bytes": 100,
        "record-count": 1,
        "equality-ids": [1],
    }
    update = java.newRowDelta()
    ContentFiles(ingest.jvm, java.specs()).give(update, "RowDelta", "addDeletes", "DeleteFile", [deletes])
    update.commit()
    with pytest.raises(ForeignSnapshot, match="no rewrite by its own account"):
        ingest.take_over()
    monkeypatch.setattr(Link, "is_rewrite", True)
    with pytest.raises(ForeignSnapshot, match="equality_deletes of another writer"):
        ingest.take_over()


def test_files_that_are_gone_stop_ingest_and_a_store_that_is_away_is_waited_for(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = _edited(ingest, lambda rows: rows)
    rewrite(ingest, change=change)

    def away(*_: Any) -> None:
        raise TimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr("thermocline.iceberg.rewrite.open_input", away)
        with pytest.raises(StorageFailed):
            proved(ingest)
    Path(local_path(change.files[0].added[0].path) or "").unlink()
    with pytest.raises(ForeignSnapshot, match="can't be read"):
        ingest.take_over()


def test_what_comes_after_a_rewrite_was_proved_is_not_taken_over_with_it(ingest: Ingest) -> None:
    rewrite(ingest)
    found = proved(ingest)
    ingest.java_table().newAppend().commit()
    newest = ingest.java_table().currentSnapshot().snapshotId()

    assert isinstance(error_of(ingest.owned.committer.take_over(found)), ForeignSnapshot)
    epoch = ingest.owned.committer.epoch
    assert isinstance(error_of(ingest.owned.committer.take_ownership(epoch, onto=found)), ForeignSnapshot)
    assert ingest.java_table().currentSnapshot().snapshotId() == newest


def test_a_rewrite_that_comes_while_a_table_is_being_taken_is_proved_in_its_turn(ingest: Ingest) -> None:
    claimed = claim(ingest)
    assert claimed.state().snapshot_id == ingest.planned[0]
    foreign = rewrite(ingest)
    ingest.owned = claimed.take(ingest.jvm)
    assert claimed.rewrite is not None
    assert claimed.rewrite.others == (foreign,)
    assert ingest.rows() == ingest.expected

    claimed = claim(ingest)
    rewrite(ingest)
    claimed.state()
    ingest.java_table().newAppend().commit()
    with pytest.raises(ForeignSnapshot):
        claimed.take(ingest.jvm)


def test_a_stale_owner_does_not_take_a_rewrite_over(ingest: Ingest) -> None:
    stale = ingest.owned.committer
    ingest.take_over()
    rewrite(ingest)
    assert isinstance(error_of(stale.take_over(proved(ingest))), OwnerLost)


def test_snapshots_that_others_expire_stop_nobody(ingest: Ingest) -> None:
    """Goal: expiry makes no snapshot; also a rewrite that was taken over may be the oldest that is left."""
    ingest.java_table().expireSnapshots().expireOlderThan(1 << 60).retainLast(1).commit()
    ingest.take_over()
    commit(ingest)
    rewrite(ingest)
    ingest.take_over()
    assert ingest.rows() == ingest.expected
    ingest.java_table().expireSnapshots().expireOlderThan(1 << 60).retainLast(2).commit()
    ingest.take_over()
    commit(ingest)
    assert codes(ingest) == set()


def test_a_rewrite_without_the_snapshot_below_it_proves_nothing(ingest: Ingest) -> None:
    rewrite(ingest)
    ingest.java_table().expireSnapshots().expireOlderThan(1 << 60).retainLast(1).commit()
    with pytest.raises(ForeignSnapshot, match="not there any more") as stop:
        ingest.take_over()
    assert stop.value.onto == -1


def test_verify_finds_what_was_taken_for_a_rewrite_and_was_none(ingest: Ingest) -> None:
    ours = ingest.planned[0]
    foreign = rewrite(ingest, another("value", "x"))
    landed(ingest.owned.committer.take_over(Rewrite(ours, (foreign,))))
    assert codes(ingest) == {"snapshot-foreign"}
