"""A table that is damaged on purpose: verify names what was done, and finds nothing in one that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.verify.damage import Damage, Json, kept_as_it_was, part
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.files import DataFile, local_path, plan_files
from thermocline.iceberg.sparse_index import FOOTER_KEY
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.commit.content_files import ContentFiles
from thermocline.ingest.table.alter import commit_alteration
from thermocline.ingest.table.resume import rebase_onto
from thermocline.process.clock import SystemClock
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of
from thermocline.verify.finding import Finding
from thermocline.verify.structure import structure_findings

pytestmark = pytest.mark.jvm

SEAM, READ, APPLIED = "thermocline.seam", "thermocline.records-read", "thermocline.records-applied"


class Damaged:
    """A table of ours after some batches, two owners and an alteration; and what is done to it."""

    def __init__(self, folder: Path, jvm: Any, version: int) -> None:
        self.ingest = Ingest(settings_of(folder, "sqlite:///catalog.db", version), jvm, seed=7)
        self.damage = Damage(self.load, self.ingest.definition, folder / "catalog.db")
        for _ in range(4):
            self.commit_batch()
        self.ingest.take_over()
        self._alter()
        for _ in range(4):
            self.commit_batch()

    def commit_batch(self) -> None:
        change, self.ingest.expected = self.ingest.batch()
        assert isinstance(self.ingest.owned.committer.commit(*self.ingest.planned, change), Landed)
        assert self.ingest.rows() == self.ingest.expected

    def commit(self, *parts: Any, **changes: Any) -> None:
        self.damage.commit(self.ingest.owned.committer, self.damage.change(*parts, **changes))

    def findings(self) -> list[Finding]:
        return list(
            structure_findings(self.load(), self.damage.definition, lambda _what, _done, _total: None)
        )

    def codes(self) -> set[str]:
        found = self.findings()
        print(*found, sep="\n")
        return {one.code for one in found}

    def file_with_deletes(self) -> DataFile:
        return max(self.damage.files(), key=lambda file: file.deletes.cardinality if file.deletes else 0)

    def dead_row(self, is_key_live: bool) -> tuple[DataFile, int]:
        """A deleted row whose key is live elsewhere, or nowhere."""
        live = self.damage.live_keys()
        for file in self.damage.files():
            keys = self.damage.keys(file)
            for position in self.damage.deleted(file):
                if (keys[position] in live) is is_key_live:
                    return file, position
        raise AssertionError("no such row")

    def live_row(self) -> tuple[DataFile, int]:
        return next(iter(self.damage.live_keys().values()))

    def set_deletes(self, file: DataFile, positions: BitMap, **changes: Any) -> None:
        """Other deletes in place of those that a data file has."""
        before = {file.path: file.deletes} if file.deletes else {}
        self.commit(part(file.bucket, None, self.damage.deletes({file.path: positions}), before), **changes)

    def load(self) -> Any:
        return load_table(open_catalog(self.ingest.settings.catalog), NAME, "app.profiles")

    def _alter(self) -> None:
        before = self.damage.definition
        columns = {column.name: column.type.declared for column in before.columns}
        wanted = LiveTable.build(
            name=NAME,
            identifier=before.identifier,
            topics=before.topics,
            key=before.key,
            entity=before.entity,
            buckets=before.buckets,
            format_version=before.format_version,
            columns={**columns, "score": "double"},
        )
        planned = plan_alteration(before, wanted, self.ingest.owned.table.metadata.last_column_id)
        commit_alteration(self.ingest.owned, planned, "earliest")
        self.ingest.definition = self.damage.definition = planned.definition
        self.ingest.refresh()


@pytest.fixture(scope="module", params=[3, 2], ids=["v3", "v2"])
def whole(request: pytest.FixtureRequest, jvm: Any, tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged(tmp_path_factory.mktemp("damaged"), jvm, request.param)


@pytest.fixture
def table(whole: Damaged) -> Iterator[Damaged]:
    """The table, which is as it was before after each test."""
    with whole.damage.undone():
        yield whole


@pytest.mark.full
def test_in_a_table_that_nobody_damaged_nothing_is_found(table: Damaged) -> None:
    files = table.damage.files()
    assert sum(file.deletes.cardinality for file in files if file.deletes) > 2, "too little to find"
    assert table.codes() == set()


@pytest.mark.full
def test_the_removal_of_a_files_deletes_is_found(table: Damaged) -> None:
    file = table.file_with_deletes()
    assert file.deletes is not None
    table.commit(part(file.bucket, None, {}, {file.path: file.deletes}))
    found = table.findings()
    assert {"deletes-lost", "rows-not-accounted"} <= {one.code for one in found}
    (lost,) = (one for one in found if one.code == "deletes-lost")
    assert f"{file.deletes.cardinality} rows of {file.path}" in lost.what


def test_a_row_that_comes_back_where_its_tombstone_had_deleted_it_is_found(table: Damaged) -> None:
    file, position = table.dead_row(is_key_live=False)
    table.set_deletes(file, table.damage.deleted(file) - BitMap([position]))
    assert table.codes() == {"deletes-lost", "rows-not-accounted"}


@pytest.mark.full
def test_deletes_that_are_as_many_as_before_and_others_are_found(table: Damaged) -> None:
    file = table.file_with_deletes()
    gone = table.damage.deleted(file)
    live = next(at for at in range(file.rows) if at not in gone)
    table.set_deletes(file, (gone - BitMap([gone[0]])) | BitMap([live]))
    assert "deletes-lost" in table.codes()


@pytest.mark.full
def test_a_row_that_is_added_again_is_found_with_its_key(table: Damaged) -> None:
    file, position = table.live_row()
    rows = table.damage.rows(file, [position])
    table.commit(part(file.bucket, table.damage.written(file.bucket, rows)))
    found = {one.code: one for one in table.findings()}
    assert found.keys() == {"rows-not-accounted", "row-behind-seam"}
    key = dict(zip(("user_id", "key"), rows.select(["user_id", "key"]).to_pylist()[0].values(), strict=True))
    assert found["row-behind-seam"].key == key


def test_an_old_value_in_place_of_the_new_one_is_found(table: Damaged) -> None:
    """Method: as a correct batch of one record would do it, and accounted for as one, but for the seam."""
    old_file, old_position = table.dead_row(is_key_live=True)
    key = table.damage.keys(old_file)[old_position]
    new_file, new_position = table.damage.live_keys()[key]
    added = table.damage.written(old_file.bucket, table.damage.rows(old_file, [old_position]))
    positions = table.damage.deleted(new_file) | BitMap([new_position])
    before = {new_file.path: new_file.deletes} if new_file.deletes else {}
    deletes = table.damage.deletes({new_file.path: positions})
    done = part(old_file.bucket, added, deletes, before)
    table.commit(done, accounting=Accounting(read=1, applied=1))
    assert table.codes() == {"row-behind-seam", "seam-not-joined"}


def test_a_row_that_is_removed_is_found(table: Damaged) -> None:
    file, position = table.live_row()
    table.set_deletes(file, table.damage.deleted(file) | BitMap([position]))
    assert table.codes() == {"rows-not-accounted"}


@pytest.mark.full
def test_a_seam_that_is_another_one_in_the_property_is_found(table: Damaged) -> None:
    def move(metadata: Json) -> None:
        metadata["properties"][SEAM] = table.ingest.owned.state.seam.advanced({(NAME, 0): 10_000}).to_json()

    table.damage.edit_metadata(move)
    assert table.codes() == {"seam-copy-differs"}


@pytest.mark.full
def test_a_seam_that_is_another_one_in_the_newest_summary_is_found(table: Damaged) -> None:
    for by, codes in ((-1, {"seam-copy-differs", "seam-not-joined"}), (+1, {"seam-copy-differs"})):
        with table.damage.undone():
            table.damage.edit_summaries(partial(move_newest, by))
            assert table.codes() - {"row-beyond-seam"} == codes


@pytest.mark.full
def test_a_row_beyond_the_seam_is_found(table: Damaged) -> None:
    """Method: the seam goes back in the summary and in its copy, and so that its counts would fit."""
    state = table.ingest.owned.state

    def move(metadata: Json) -> None:
        summary = metadata["snapshots"][-1]["summary"]
        by = -state.counts["read"]
        moved(summary, by)
        metadata["properties"][SEAM] = summary[SEAM]
        for kind in ("records", "total-records"):
            for name, count in state.counts.items():
                was = int(summary[f"thermocline.{kind}-{name}"])
                summary[f"thermocline.{kind}-{name}"] = str(was - count)

    table.damage.edit_metadata(move)
    assert table.codes() == {"row-beyond-seam", "rows-not-accounted"}


@pytest.mark.full
@pytest.mark.parametrize("by", [-1, 1])
def test_a_seam_that_is_another_one_in_an_old_summary_is_found(table: Damaged, by: int) -> None:
    table.damage.edit_summaries(lambda summaries: moved(summaries[3], by))
    assert "seam-not-joined" in table.codes()


@pytest.mark.full
def test_a_missing_or_a_changed_file_is_found_once(table: Damaged) -> None:
    file = table.file_with_deletes()
    assert file.deletes is not None
    for path in (file.path, file.deletes.path):
        with kept_as_it_was(path) as local:
            local.unlink()
            (missing,) = table.findings()
            assert (missing.code, path in missing.what) == ("file-missing", True)
        with kept_as_it_was(path) as local:
            local.write_bytes(local.read_bytes() + b"more")
            assert "file-differs" in table.codes()
    with kept_as_it_was(file.path) as local:
        local.write_bytes(bytes(file.bytes))
        assert table.codes() == {"file-unreadable"}


@pytest.mark.full
def test_a_missing_manifest_is_found(table: Damaged) -> None:
    loaded = table.load()
    for snapshot in loaded.snapshots()[-2:]:
        manifest = snapshot.manifests(loaded.io)[-1]
        for path in (manifest.manifest_path, snapshot.manifest_list):
            with kept_as_it_was(path) as local:
                local.unlink()
                assert "file-unreadable" in table.codes()
    assert table.codes() == set()


def test_files_of_a_snapshot_that_is_expired_meanwhile_may_be_gone(table: Damaged) -> None:
    """Method: a file that only old snapshots need is deleted, and these expire after the table was loaded."""
    loaded = table.load()
    newest = loaded.current_snapshot().snapshot_id
    still = {file.deletes.path for file in table.damage.files() if file.deletes}
    old = [one for one in loaded.snapshots() if one.snapshot_id != newest]
    path = next(
        file.deletes.path
        for snapshot in old
        for file in plan_files(loaded, snapshot.snapshot_id)
        if file.deletes and file.deletes.path not in still
    )

    def expire(metadata: Json) -> None:
        metadata["snapshots"] = [one for one in metadata["snapshots"] if one["snapshot-id"] == newest]

    with kept_as_it_was(path) as local:
        local.unlink()
        assert table.codes() == {"file-missing"}
        table.damage.edit_metadata(expire)
        assert list(structure_findings(loaded, table.damage.definition, lambda *_: None)) == []
        assert table.codes() == set()


@pytest.mark.full
def test_a_snapshot_of_another_writer_is_found(table: Damaged) -> None:
    table.ingest.java_table().newAppend().commit()
    assert table.codes() == {"snapshot-foreign"}


@pytest.mark.full
def test_deletes_of_another_writer_are_found(table: Damaged) -> None:
    """Method: equality deletes, which are bound to no data file, and which we neither write nor read."""
    file, java = table.damage.files()[0], table.ingest.java_table()
    deletes = {
        "spec-id": 0,
        "content": "equality-deletes",
        "file-path": f"{java.location()}/data/equality.parquet",
        "file-format": "parquet",
        "partition": [file.bucket],
        "file-size-in-bytes": 100,
        "record-count": 1,
        "equality-ids": [1],
    }
    delta = java.newRowDelta()
    ContentFiles(table.ingest.jvm, java.specs()).give(
        delta, "RowDelta", "addDeletes", "DeleteFile", [deletes]
    )
    delta.commit()
    assert {"deletes-foreign", "snapshot-foreign"} <= table.codes()


@pytest.mark.full
def test_a_table_that_went_back_on_the_record_is_whole_again(table: Damaged) -> None:
    """Goal: rebase --onto gives up what others wrote, and leaves a table in which nothing is found."""
    ours = table.ingest.owned.state.snapshot_id
    table.ingest.owned.release()
    table.ingest.java_table().newAppend().commit()
    foreign = table.ingest.java_table().currentSnapshot().snapshotId()
    assert rebase_onto(table.ingest.settings, NAME, ours, [f"current={foreign}"], SystemClock())
    assert table.codes() == set()


@pytest.mark.full
@pytest.mark.parametrize("name", [READ, APPLIED, "thermocline.total-records-read"])
@pytest.mark.parametrize("index", [2, -1])
def test_a_count_that_was_changed_is_found(table: Damaged, name: str, index: int) -> None:
    def change(summaries: list[Json]) -> None:
        summaries[index][name] = str(int(summaries[index][name]) + 1)

    table.damage.edit_summaries(change)
    assert "accounting-open" in table.codes()


@pytest.mark.full
def test_counts_that_add_up_and_are_not_what_happened_are_found(table: Damaged) -> None:
    """Method: what one batch applied becomes superseded, there and in all totals from there on."""

    def change(summaries: list[Json]) -> None:
        count = int(summaries[2][APPLIED])
        names = ["thermocline.records-"] + ["thermocline.total-records-"] * len(summaries[2:])
        for name, summary in zip(names, [summaries[2], *summaries[2:]], strict=True):
            summary[f"{name}applied"] = str(int(summary[f"{name}applied"]) - count)
            summary[f"{name}superseded"] = str(int(summary[f"{name}superseded"]) + count)

    table.damage.edit_summaries(change)
    assert table.codes() == {"rows-not-accounted"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("thermocline.batch-id", None, "batch-repeated"),
        ("thermocline.epoch", "0", "epoch-back"),
        ("thermocline.definition-version", "1", "definition-version-differs"),
        ("thermocline.cluster-id", "another", "seam-not-joined"),
        ("thermocline.topic-ids", '{"profiles": "another"}', "seam-not-joined"),
        ("thermocline.watermark-ms", "soon", "summary-unreadable"),
        ("thermocline.drained-ms", "-5", "summary-unreadable"),
    ],
)
def test_a_summary_that_says_something_else_is_found(
    table: Damaged, name: str, value: str | None, code: str
) -> None:
    def change(summaries: list[Json]) -> None:
        summaries[-2][name] = value or summaries[-4][name]

    table.damage.edit_summaries(change)
    assert code in table.codes()


@pytest.mark.full
def test_a_summary_without_one_of_its_fields_is_found(table: Damaged) -> None:
    table.damage.edit_summaries(lambda summaries: summaries[2].pop("thermocline.epoch"))
    assert table.codes() == {"summary-unreadable"}


def test_an_acceptance_that_does_not_say_what_moved_is_found(table: Damaged) -> None:
    note = {"seam_before": {NAME: {"0": 1}}, "seam_after": {NAME: {"0": 5}}}
    table.commit(summary={"thermocline.accepted": json.dumps(note)})
    assert table.codes() == {"seam-not-joined"}


@pytest.mark.full
def test_two_sets_of_deletes_for_a_file_are_found(table: Damaged) -> None:
    file = table.file_with_deletes()
    gone = table.damage.deleted(file)
    live = next(at for at in range(file.rows) if at not in gone)
    deletes = table.damage.deletes({file.path: gone | BitMap([live])})
    table.commit(part(file.bucket, None, deletes))
    assert "two-deletes-for-a-file" in table.codes()


@pytest.mark.full
def test_deletes_that_are_not_what_the_manifest_says_are_found(table: Damaged) -> None:
    file = table.file_with_deletes()
    gone = table.damage.deleted(file)
    assert file.deletes is not None
    (written,) = table.damage.deletes({file.path: gone}).values()
    with table.damage.undone():
        wrong = replace(written, cardinality=written.cardinality + 1)
        table.commit(part(file.bucket, None, {file.path: wrong}, {file.path: file.deletes}))
        assert "deletes-unreadable" in table.codes()
    with table.damage.undone():
        table.set_deletes(file, gone | BitMap([file.rows]))
        assert "deletes-unreadable" in table.codes()
    with table.damage.undone(), kept_as_it_was(file.deletes.path) as local:
        content = bytearray(local.read_bytes())
        middle = file.deletes.offset + file.deletes.length // 2
        content[middle - 8 : middle + 8] = bytes(16)
        local.write_bytes(content)
        assert table.codes() <= {"deletes-unreadable"}


@pytest.mark.full
def test_a_row_in_another_bucket_is_found(table: Damaged) -> None:
    file, position = table.live_row()
    rows = table.damage.rows(file, [position])
    other = 1 - bucket_of(table.damage.definition, rows.column("user_id")[0].as_py())
    table.commit(part(other, table.damage.written(other, rows)))
    found = {one.code: one for one in table.findings()}
    assert "row-misplaced" in found
    assert found["row-misplaced"].key is not None


@pytest.mark.full
def test_a_file_that_is_not_sorted_is_found(table: Damaged) -> None:
    """Goal: lookups rely on the order, so that they would miss rows that a scan finds."""
    file = max(table.damage.files(), key=lambda one: one.rows)
    rows = table.damage.rows(file)
    order = list(reversed(range(rows.num_rows)))
    table.commit(part(file.bucket, table.damage.written(file.bucket, rows.take(order))))
    assert "file-unsorted" in table.codes()


@pytest.mark.full
def test_an_index_that_is_not_that_of_its_file_is_found(table: Damaged) -> None:
    file = max(table.damage.files(), key=lambda one: one.rows)
    rows = table.damage.rows(file)
    written = table.damage.written(file.bucket, rows)
    other = pq.read_metadata(local_path(table.damage.written(file.bucket, rows.slice(1)).path)).metadata
    path = local_path(written.path)
    content = pq.read_table(path, partitioning=None)
    wrong = {FOOTER_KEY: other[FOOTER_KEY.encode()]}
    pq.write_table(content.replace_schema_metadata(wrong), path)
    table.commit(part(file.bucket, replace(written, file_bytes=Path(path or "").stat().st_size)))
    assert "file-unsorted" in table.codes()


def move_newest(by: int, summaries: list[Json]) -> None:
    moved(summaries[-1], by)


def moved(summary: Json, by: int) -> None:
    """Move the seam in a summary."""
    seam = json.loads(summary[SEAM])
    seam[NAME]["0"] += by
    summary[SEAM] = json.dumps(seam)
