"""Snapshots of real tables, committed through Iceberg's Java library: what is listed of their files."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap

from thermocline.errors import ForeignSnapshot
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.deletes import read_deletes, write_deletes
from thermocline.iceberg.files import DataFile, Deletes, local_path, plan_files
from thermocline.iceberg.manifests import DELETED_PATH_FIELD_ID
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Committer, Landed
from thermocline.ingest.commit.content_files import ContentFiles, deletes_json
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.commit.java_metadata import JavaMetadata
from thermocline.ingest.table.create import create_java_table
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import buckets
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task
from thermocline.upsert.files_by_bucket import by_bucket
from thermocline.upsert.tiers import FANOUT

pytestmark = pytest.mark.jvm

IO = PyArrowFileIO()
Rows = dict[str, str]


class Lake:
    """One table, changed by bucket tasks and commits alone: no broker and no Spark."""

    def __init__(self, jvm: Any, folder: Path, format_version: int) -> None:
        self.jvm = jvm
        self.definition = LiveTable.build(
            name="profiles",
            identifier="app.profiles",
            topics=["profiles"],
            key=["key"],
            columns={"key": "string", "value": "string"},
            buckets=2,
            format_version=format_version,
        )
        settings = CatalogSettings(
            name="lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse")
        )
        self.catalog = open_catalog(settings, may_create=True)
        self.catalog.create_namespace("app")
        java_catalog = JavaCatalog(jvm, settings)
        self.seam = Seam.of({"profiles": {0: 0}})
        create_java_table(java_catalog, self.definition, self._change())
        self.java_table = java_catalog.load(self.definition.identifier)
        seen = load_table(self.catalog, "profiles", "app.profiles")
        self.committer = Committer(JavaMetadata(jvm, lambda: self.java_table), "profiles", 1, seen)
        taken = self.committer.take_ownership(0)
        assert isinstance(taken, Landed)
        self.snapshot_id = taken.snapshot_id
        self.expected: Rows = {}

    def upsert(self, batch: Mapping[str, str | None]) -> None:
        offset = self.seam["profiles", 0]
        keys = [f'{{"key":"{key}"}}'.encode() for key in batch]
        values = [None if value is None else f'{{"value":"{value}"}}'.encode() for value in batch.values()]
        decoded = decoder_for(self.definition).decode(keys, values)
        offsets = range(offset, offset + len(batch))
        records = records_table(self.definition, decoded, "profiles", 0, offsets, [0] * len(batch))
        of_bucket = buckets(self.definition, records.column("key"))
        files = by_bucket(self.files())
        done = [
            run_bucket_task(
                IO, self.definition, f"{self.java_table.location()}/data", b, files.get(b, ()), some
            )
            for b in range(2)
            if (some := records.filter(pa.array(of_bucket == b))).num_rows
        ]
        before, self.seam = self.seam, Seam.of({"profiles": {0: offset + len(batch)}})
        landed = self.committer.commit(self.snapshot_id, before, self._change(done))
        assert isinstance(landed, Landed), landed
        self.snapshot_id = landed.snapshot_id
        for key, value in batch.items():
            self.expected.pop(key, None) if value is None else self.expected.update({key: value})

    def files(self) -> tuple[DataFile, ...]:
        return plan_files(load_table(self.catalog, "profiles", "app.profiles"), self.snapshot_id, "profiles")

    def commit_by_others(self, change: Callable[[Any, ContentFiles], object]) -> None:
        self.java_table.refresh()
        delta = self.java_table.newRowDelta()
        change(delta, ContentFiles(self.jvm, self.java_table.specs()))
        delta.commit()
        self.snapshot_id = self.java_table.currentSnapshot().snapshotId()

    def our_rows(self) -> Rows:
        rows: list[tuple[str, str]] = []
        for file in self.files():
            deleted = read_deletes(IO, file.deletes) if file.deletes else BitMap()
            columns = pq.read_table(local_path(file.path), partitioning=None).select(["key", "value"])
            kept = [place for place in range(file.rows) if place not in deleted]
            rows += [
                (row["key"], row["value"]) for row in columns.take(pa.array(kept, pa.int64())).to_pylist()
            ]
        return unique(rows)

    def rows_by_pyiceberg(self) -> Rows:
        table = load_table(self.catalog, "profiles", "app.profiles")
        return unique([(row["key"], row["value"]) for row in table.scan().to_arrow().to_pylist()])

    def rows_by_java(self) -> Rows:
        self.java_table.refresh()
        records = self.jvm.org.apache.iceberg.data.IcebergGenerics.read(self.java_table).build().iterator()
        rows = []
        while records.hasNext():
            record = records.next()
            rows.append((record.getField("key"), record.getField("value")))
        return unique(rows)

    def _change(self, files: list[BucketResult] | None = None) -> TableChange:
        return TableChange(
            self.seam, "cluster", {"profiles": "id"}, watermark_ms=0, drained_ms=0, files=files or ()
        )


def unique(rows: list[tuple[str, str]]) -> Rows:
    assert len(dict(rows)) == len(rows), "a key twice"
    return dict(rows)


@pytest.fixture
def new_lake(jvm: Any, tmp_path: Path) -> Callable[[int], Lake]:
    return lambda format_version: Lake(jvm, tmp_path, format_version)


@pytest.mark.parametrize("format_version", [2, 3])
def test_every_reader_finds_what_the_replay_of_the_batches_gives(
    new_lake: Callable[[int], Lake], format_version: int
) -> None:
    """Goal: rows that a batch replaces are gone for us, PyIceberg and Iceberg's Java readers.

    Method: random batches over few keys, so that most data files gather deletes several times; a dict
    replays them. No data file ever has more than one file of deletes: each new one replaces the one before.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    lake = new_lake(format_version)
    for number, size in enumerate(chance.sample([3, 3, 3, 20, 20, 20], 6)):
        keys = [f"k{chance.randrange(40)}" for _ in range(size)]
        lake.upsert({key: None if chance.random() < 0.3 else f"v{number}" for key in keys})
        assert lake.our_rows() == lake.expected
        assert lake.rows_by_java() == lake.expected
        assert lake.rows_by_pyiceberg() == lake.expected
    for number in range(FANOUT):  # a batch that merges all files leaves none with deletes; the next ones do
        if any(file.deletes for file in lake.files()):
            break
        lake.upsert({next(iter(lake.expected)): f"again {number}"})
    with_deletes = [file for file in lake.files() if file.deletes]
    assert with_deletes
    formats = {file.deletes.format for file in with_deletes if file.deletes}
    assert formats == {"parquet" if format_version == 2 else "puffin"}
    lake.java_table.refresh()
    summary = lake.java_table.currentSnapshot().summary()
    deleted = sum(file.deletes.cardinality for file in with_deletes if file.deletes)
    assert int(summary.get("total-position-deletes")) == deleted
    assert int(summary.get("total-records")) - deleted == len(lake.expected)
    if format_version == 2:
        assert int(summary.get("total-delete-files")) == len(with_deletes)
        java_files = [file for file in java_deletes(lake) if file.referencedDataFile() is None]
        assert java_files == []


def test_java_takes_our_position_deletes_for_those_of_one_data_file(new_lake: Callable[[int], Lake]) -> None:
    """Equal bounds of the path say so to readers that do not know the field for it, such as older ones."""
    lake = new_lake(2)
    lake.upsert(dict.fromkeys("abcdefghijkl", "1"))
    lake.upsert({"a": "2", "b": None, "c": None})
    path_field = lake.jvm.org.apache.iceberg.MetadataColumns.DELETE_FILE_PATH
    found = java_deletes(lake)
    assert found
    for file in found:
        low, high = (
            lake.jvm.org.apache.iceberg.types.Conversions.fromByteBuffer(
                path_field.type(), bounds.get(path_field.fieldId())
            ).toString()
            for bounds in (file.lowerBounds(), file.upperBounds())
        )
        assert low == high == file.referencedDataFile()


def java_deletes(lake: Lake) -> list[Any]:
    """The delete files of the current snapshot, as Iceberg's own planning finds them."""
    lake.java_table.refresh()
    found: dict[str, Any] = {}
    tasks = lake.java_table.newScan().includeColumnStats().planFiles().iterator()
    while tasks.hasNext():
        for file in tasks.next().deletes():
            found[file.location()] = file
    return list(found.values())


def placed(file: DataFile) -> dict[str, Any]:
    """Where a manifest lists its deletes: in a table that has one partition spec."""
    return {"spec-id": 0, "partition": [file.part.number]}


def with_one_row_deleted(lake: Lake) -> tuple[DataFile, Deletes]:
    """A file that has deletes of ours, and others for it, not committed yet."""
    lake.upsert(dict.fromkeys("abcdefghijkl", "1"))
    lake.upsert({"a": None})
    file = next(file for file in lake.files() if file.deletes)
    (second,) = write_deletes(
        IO, f"{lake.java_table.location()}/data/{uuid4()}", 2, {file.path: BitMap([1])}
    ).values()
    return file, second


def test_a_second_file_of_deletes_for_one_data_file_is_refused(new_lake: Callable[[int], Lake]) -> None:
    """Another writer's; one of the two would be left out, and a deleted row be there again."""
    lake = new_lake(2)
    file, second = with_one_row_deleted(lake)
    lake.commit_by_others(
        lambda delta, files: files.give(
            delta, "RowDelta", "addDeletes", "DeleteFile", [deletes_json(placed(file), file.path, second)]
        )
    )
    with pytest.raises(ForeignSnapshot, match="position_deletes of another writer"):
        lake.files()


def test_deletes_that_are_bound_to_no_file_are_refused(new_lake: Callable[[int], Lake]) -> None:
    lake = new_lake(2)
    file, second = with_one_row_deleted(lake)
    unbound = deletes_json(placed(file), file.path, second)
    for name in ("referenced-data-file", "lower-bounds", "upper-bounds"):
        del unbound[name]
    lake.commit_by_others(
        lambda delta, files: files.give(delta, "RowDelta", "addDeletes", "DeleteFile", [unbound])
    )
    with pytest.raises(ForeignSnapshot, match="position_deletes of another writer"):
        lake.files()


def test_deletes_with_equal_bounds_of_their_paths_are_bound_to_that_file(
    new_lake: Callable[[int], Lake],
) -> None:
    """As Spark leaves them where it rewrites deletes; different bounds say that there are several files."""
    lake = new_lake(2)
    lake.upsert(dict.fromkeys("abcdefghijkl", "1"))
    (file,) = lake.files()[:1]
    stem = f"{lake.java_table.location()}/data/{uuid4()}"
    (written,) = write_deletes(IO, stem, 2, {file.path: BitMap([0])}).values()
    bound = deletes_json(placed(file), file.path, written)
    del bound["referenced-data-file"]
    lake.commit_by_others(
        lambda delta, files: files.give(delta, "RowDelta", "addDeletes", "DeleteFile", [bound])
    )
    assert {one.path: one.deletes for one in lake.files()}[file.path] == written

    (written,) = write_deletes(IO, f"{stem}-2", 2, {file.path: BitMap([0])}).values()
    bound |= {"file-path": written.path, "lower-bounds": {"keys": [DELETED_PATH_FIELD_ID], "values": ["00"]}}
    lake.commit_by_others(
        lambda delta, files: files.give(delta, "RowDelta", "addDeletes", "DeleteFile", [bound])
    )
    with pytest.raises(ForeignSnapshot, match="position_deletes of another writer"):
        lake.files()


def test_equality_deletes_are_refused(new_lake: Callable[[int], Lake]) -> None:
    lake = new_lake(2)
    lake.upsert({"a": "1"})
    (file,) = lake.files()
    path = f"{lake.java_table.location()}/data/{uuid4()}.parquet"
    fields = [pa.field("key", pa.string(), False, {"PARQUET:field_id": "1"})]
    pq.write_table(pa.table([["a"]], pa.schema(fields)), local_path(path))
    equality = {
        "spec-id": 0,
        "content": "equality-deletes",
        "equality-ids": [1],
        "file-path": path,
        "file-format": "parquet",
        "partition": [file.bucket],
        "file-size-in-bytes": Path(str(local_path(path))).stat().st_size,
        "record-count": 1,
        "sort-order-id": 0,
    }
    lake.commit_by_others(
        lambda delta, files: files.give(delta, "RowDelta", "addDeletes", "DeleteFile", [equality])
    )
    with pytest.raises(ForeignSnapshot, match="equality_deletes of another writer") as foreign:
        lake.files()
    assert foreign.value.table == "profiles", "commands take the name that the configuration has"
