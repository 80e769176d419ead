from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.partition_spec import partition_spec_of
from tests.serving.conftest import rows_of
from thermocline.iceberg.catalog import DEFINITION_PROPERTY, SnapshotState
from thermocline.iceberg.files import plan_files
from thermocline.iceberg.sparse_index import SparseIndex, load_sparse_index
from thermocline.rules.column_types import ColumnType
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.seam import Seam
from thermocline.serving.cold import folder as cold_folder
from thermocline.serving.cold.folder import GRACE_SECONDS, MANIFEST, FileFacts, latest, publish
from thermocline.serving.cold.index import ColdIndex
from thermocline.serving.cold.reader import ColdReader, Entity
from thermocline.serving.cold.row_json import RowJson
from thermocline.serving.hot.file_version import file_version
from thermocline.serving.hot.pinned import PinnedHot
from thermocline.serving.hot.scan import SCHEMA
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.look import ColdSide
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.wanted import Wanted


def _profile(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _value(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


def _latest(world: Any, previous: ColdIndex | None = None) -> ColdIndex:
    index = latest(world.cold_folder, "profiles", previous)
    assert index is not None
    return index


def _committed(world: Any, value: str) -> None:
    for number in range(40):
        world.produce(_profile(f"u{number}", "k"), _value(value))
    world.commit()
    world.publish()


def test_there_is_no_index_before_the_first_one(tmp_path: Path) -> None:
    assert latest(tmp_path, "profiles") is None
    assert file_version(tmp_path / MANIFEST) is None


def test_an_index_says_what_its_snapshot_holds(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _committed(world, "one")
    world.produce(_profile("u1", "k"), None)
    world.commit()
    world.publish()
    index = _latest(world)
    assert (index.snapshot_id, index.seam, index.rows) == (2, world.end, 39)
    assert index.definition == world.definition
    assert {file.data for file in index.files} == set(world.snapshots[2])


def test_a_new_snapshot_reads_only_its_new_files(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world()
    _committed(world, "one")
    before = _latest(world)
    read: list[str] = []

    def noted(io: Any, path: str, *rest: Any) -> SparseIndex:
        read.append(path)
        return load_sparse_index(io, path, *rest)

    monkeypatch.setattr(cold_folder, "load_sparse_index", noted)
    _committed(world, "two")
    new = {file.path for file in world.snapshots[2]} - {file.path for file in world.snapshots[1]}
    assert set(read) == new
    known = {file.data.path: file.sparse for file in before.files}
    assert all(file.sparse is known.get(file.data.path, file.sparse) for file in _latest(world, before).files)


def test_a_buckets_fingerprint_changes_with_its_files_and_its_deletes_only(
    new_world: Callable[..., Any],
) -> None:
    world = new_world()
    _committed(world, "one")
    before = _latest(world).fingerprints
    world.produce(_profile("u1", "k"), None)
    world.commit()
    world.publish()
    after = _latest(world).fingerprints
    bucket = Entity.of(world.definition, (7, "u1")).bucket
    assert {number for number in before if before[number] != after[number]} == {bucket}


def test_a_fingerprint_is_of_all_that_a_definition_says_of_rows_and_not_of_its_version(
    new_world: Callable[..., Any],
) -> None:
    """A catalog that was restored from a backup may give a version that was there to another definition."""
    world = new_world()
    _committed(world, "one")
    before = _latest(world).fingerprints
    world.alter(replace(world.definition, version=2, topics=("profiles", "more")))
    world.publish()
    assert _latest(world).fingerprints == before
    added = Column("note", ColumnType.parse("string"), 99)
    world.alter(replace(world.definition, columns=(*world.definition.columns, added)))
    assert world.definition.version == 2
    world.publish()
    after = _latest(world).fingerprints
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_an_index_never_goes_back(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _committed(world, "one")
    _committed(world, "two")
    index = _latest(world)
    stamp = file_version(world.cold_folder / MANIFEST)
    assert not world.publish(snapshot_id=1)
    assert not world.publish(snapshot_id=2)
    assert file_version(world.cold_folder / MANIFEST) == stamp
    assert _latest(world, index) is index


def test_the_index_of_a_recreated_table_begins_again(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _committed(world, "one")
    _committed(world, "two")
    world.table_uuid = uuid4()
    assert world.publish(snapshot_id=1)
    assert _latest(world).snapshot_id == 1


def test_unused_files_go_after_the_grace_period_and_not_before(new_world: Callable[..., Any]) -> None:
    """The second snapshot drops all files of the first, as a compaction does."""
    world = new_world()
    _committed(world, "one")
    files = world.cold_folder / "files"
    first = set(files.iterdir())
    long_ago = next(iter(first)).stat().st_mtime - 2 * GRACE_SECONDS
    for path in first:
        os.utime(path, (long_ago, long_ago))
    world.snapshots[1] = ()
    _committed(world, "two")
    assert first <= set(files.iterdir())
    for path in first:
        os.utime(path, (long_ago, long_ago))
    _committed(world, "three")
    assert not first & set(files.iterdir())


def test_publishers_at_the_same_time_leave_one_whole_index(new_world: Callable[..., Any]) -> None:
    world = new_world()
    for number in range(8):
        world.produce(_profile(f"u{number}", "k"), _value("x"))
        world.commit()
    threads = [threading.Thread(target=world.publish, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _latest(world).snapshot_id == 8


def test_a_footer_that_is_gone_is_read_from_the_data_file(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _committed(world, "one")
    index = _latest(world)
    for path in (world.cold_folder / "files").glob("*.footer"):
        path.unlink()
    assert len(rows_of(ColdReader(world.io), index, Entity.of(world.definition, (7, "u1")))) == 1


def test_a_column_that_a_file_lacks_reads_as_null(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _committed(world, "one")
    for file in world.snapshots[1]:
        table = pq.read_table(file.path, partitioning=None).drop_columns(["value"])
        pq.write_table(table, file.path)
    for path in (world.cold_folder / "files").iterdir():
        path.unlink()
    (world.cold_folder / "manifest.msgpack").unlink()
    world.publish()
    (row,) = rows_of(ColdReader(world.io), _latest(world), Entity.of(world.definition, (7, "u1")))
    assert row[:4] == (7, "u1", "k", None)


def test_files_of_another_writer_are_read_exactly(tmp_path: Path) -> None:
    """A real PyIceberg table: its files have no index, are not sorted, and have Parquet's own UUIDs."""
    definition = LiveTable.build(
        name="devices",
        identifier="app.devices",
        topics=["devices"],
        key=["id", "slot"],
        entity=["id"],
        columns={"id": "uuid", "slot": "int", "note": "string"},
        buckets=3,
    )
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("app")
    table = catalog.create_table(
        "app.devices",
        definition.iceberg_schema(),
        partition_spec=partition_spec_of(definition),
        properties={DEFINITION_PROPERTY: definition.to_json()},
    )
    ids = [uuid4() for _ in range(50)]
    rows: list[tuple[UUID, int, str]] = [(ids[(7 * n) % 50], n % 3, f"note {n}") for n in range(150)]
    arrow = table.schema().as_arrow()
    values: dict[str, list[Any]] = {name: [None] * len(rows) for name in arrow.names}
    values |= {
        "id": [row[0].bytes for row in rows],
        "slot": [row[1] for row in rows],
        "note": [row[2] for row in rows],
    }
    arrays = [pa.array(values[f.name], getattr(f.type, "storage_type", f.type)).cast(f.type) for f in arrow]
    table.append(pa.Table.from_arrays(arrays, schema=arrow))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(plan_files(table, snapshot.snapshot_id)) == 3
    state = SnapshotState(snapshot.snapshot_id, Seam(), 1, "b", "c", {}, 1, 0, snapshot.timestamp_ms)
    publish(tmp_path / "cold", table, definition, state)
    index = latest(tmp_path / "cold", "devices")
    assert index is not None
    reader = ColdReader(table.io)
    for device in ids:
        found = sorted(rows_of(reader, index, Entity.of(definition, (device,))))
        assert found == sorted(row for row in rows if row[0] == device)
    extract = Extract(
        ColdSide(index, reader, RowJson(definition)),
        _Nothing(index),
        Selection.of(definition, Wanted(arrow.names[:3])),
        0.0,
        tmp_path,
    )
    extracted = [tuple(row.values()) for batch in extract.batches() for row in batch.to_pylist()]
    assert sorted(extracted) == sorted((row[0].bytes, *row[1:]) for row in rows)


class _Nothing(PinnedHot):
    """A hot tier that holds nothing."""

    def __init__(self, index: ColdIndex) -> None:
        self.start = self.end = Seam()
        self.topics = frozenset(index.definition.topics)
        self.source, self.definition_json = index.source, index.definition_json
        self.complete_from_ms = 0

    def scan(self, *_: Any) -> pa.Table:
        return SCHEMA.empty_table()


@pytest.mark.parametrize("suffix", [".facts", ".footer"])
@pytest.mark.parametrize("is_new_snapshot", [True, False])
def test_index_files_that_a_crash_of_the_machine_left_empty_are_written_again(
    new_world: Callable[..., Any], suffix: str, is_new_snapshot: bool
) -> None:
    world = new_world()
    _committed(world, "one")
    for path in (world.cold_folder / "files").glob(f"*{suffix}"):
        path.write_bytes(b"")
    if is_new_snapshot:
        world.produce(_profile("u99", "k"), _value("two"))
        world.commit()
    assert world.publish() == is_new_snapshot
    index = _latest(world)
    assert all(path.stat().st_size for path in (world.cold_folder / "files").iterdir())
    assert len(rows_of(ColdReader(world.io), index, Entity.of(world.definition, (7, "u1")))) == 1


def test_a_kept_index_with_fewer_keys_than_row_groups_is_made_again(new_world: Callable[..., Any]) -> None:
    """As an earlier release took it from a file that another writer had merged."""
    world = new_world()
    _committed(world, "one")
    for path in (world.cold_folder / "files").glob("*.facts"):
        facts = msgspec.msgpack.decode(path.read_bytes(), type=FileFacts)
        path.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(facts, first_keys=[])))
    world.publish()
    assert all(len(file.sparse.first_keys) == len(file.sparse.rows) for file in _latest(world).files)


def test_an_unused_file_that_is_gone_is_not_made_again(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _committed(world, "one")
    files = world.cold_folder / "files"
    first = set(files.iterdir())
    for path in first:
        path.unlink()
    world.snapshots[1] = ()
    _committed(world, "two")
    assert not first & set(files.iterdir())
