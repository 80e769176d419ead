from __future__ import annotations

import io
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.thermocline.profiles import PROFILES
from thermocline.errors import BadParameter, NotReady
from thermocline.iceberg import leases
from thermocline.iceberg.leases import write_lease
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode import arrow_array, json_row
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read.encode import READ_POINT_METADATA, encoded
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.extract import Extract, conformed
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted


def _profile(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _value(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


def _extracted(
    table: ServedTable, columns: list[str] | None = None, where: str | None = None
) -> tuple[list[dict[str, Any]], ReadPoint]:
    extract = table.extract(Wanted(columns, where), table.reader.end())
    try:
        rows = [row for batch in extract.batches() for row in batch.to_pylist()]
    finally:
        extract.close()
    assert extract.rows == len(rows)
    return rows, extract.read_point


def _as_json(rows: list[dict[str, Any]], definition: LiveTable) -> dict[tuple[Any, ...], Any]:
    uuids = [column.name for column in definition.columns if column.type.kind is Kind.UUID]
    for row in rows:
        row.update({name: UUID(bytes=row[name]) for name in uuids if row[name] is not None})
    decoded = [msgspec.json.decode(json_row(row)) for row in rows]
    keyed = {tuple(row[name] for name in definition.key): row for row in decoded}
    assert len(keyed) == len(rows), "a row came twice"
    return keyed


def test_every_extract_equals_a_plain_replay_and_the_lookups(
    served: Callable[..., tuple[Any, ServedTable]], seed: int
) -> None:
    """Random records and commits at random seams; extracts, replays and lookups of all users agree."""
    chance = random.Random(seed)
    world, table = served()
    for step in range(4):
        for _ in range(300):
            number = chance.randrange(30)
            value = None if chance.random() < 0.25 else _value(f"{step} {chance.random()}")
            world.produce(_profile(f"u{number}", f"k{chance.randrange(15)}"), value, partition=number % 3)
        world.tail()
        if step != 2:
            seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
            world.commit(Seam.of({"profiles": seam}))
            world.publish()
            table.refresh()
        rows, read_point = _extracted(table)
        found = _as_json(rows, world.definition)
        assert read_point == ReadPoint(world.newest, world.seam, world.end)
        assert found == world.rows()
        entities = [entity_of(world.definition, {"app_id": "7", "user_id": f"u{n}"}) for n in range(30)]
        look, results = table.reader.lookup(entities)
        assert look.read_point == read_point
        looked_up = [row for rows in results for row in msgspec.json.decode(rows)]
        assert {tuple(row[name] for name in world.definition.key): row for row in looked_up} == found


def test_partial_updates_are_filled_from_the_rows_below_as_lookups_are(
    served: Callable[..., tuple[Any, ServedTable]], seed: int
) -> None:
    """Random records that set some columns, over random seams; extracts of all columns and of one agree."""
    chance = random.Random(seed)
    world, table = served(replace(PROFILES, partial_updates=True))
    for step in range(5):
        for _ in range(120):
            number = chance.randrange(9)
            value = dict(
                chance.sample(list(_value(f"{step} {chance.random()}").items()), chance.randrange(3))
            )
            value = {name: chance.choice([one, None]) for name, one in value.items()}
            deletes = chance.random() < 0.2
            key = _profile(f"u{number}", f"k{chance.randrange(9)}")
            world.produce(key, None if deletes else value, partition=number % 3)
        world.tail()
        if step % 2:
            seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
            world.commit(Seam.of({"profiles": seam}))
            world.publish()
            table.refresh()
        rows, _ = _extracted(table)
        assert _as_json(rows, world.definition) == world.rows()
        only, _ = _extracted(table, ["value"])
        assert Counter(row["value"] for row in only) == Counter(row["value"] for row in world.rows().values())
        entities = [entity_of(world.definition, {"app_id": "7", "user_id": f"u{n}"}) for n in range(9)]
        _, results = table.reader.lookup(entities)
        looked_up = [row for rows in results for row in msgspec.json.decode(rows)]
        assert {tuple(row[name] for name in world.definition.key): row for row in looked_up} == world.rows()


ORDERED = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=["app_id", "user_id", "key"],
    entity=["app_id", "user_id"],
    columns={
        "app_id": "int",
        "user_id": "string",
        "key": "string",
        "value": "string",
        "at": "timestamptz",
        "version": "string",
    },
    delete_when={"path": "op", "values": ["D"]},
    sequence_by=["at", "version"],
    buckets=4,
)


def test_columns_that_order_records_decide_at_every_seam(
    served: Callable[..., tuple[Any, ServedTable]], seed: int
) -> None:
    """Goal: an older event loses against rows, hot records and deletes, wherever the seam lies between them.

    Method: random events of few keys that come in any order and to any partition, where two of one sequence
    come to one partition; commits by the tasks of ingest at random seams; extracts, lookups and a dict agree.
    """
    chance = random.Random(seed)
    world, table = served(ORDERED)
    for step in range(10):
        for _ in range(60):
            partition = chance.randrange(3)
            value = {
                "at": f"2026-01-02T03:04:05.{chance.randrange(1, 40):06}Z",
                "version": f"{'ab'[chance.randrange(2)]}{partition}",
                "value": f"{step} {chance.random()}",
                **({"op": "D"} if chance.random() < 0.4 else {}),
            }
            world.produce(_profile(f"u{chance.randrange(4)}", f"k{chance.randrange(6)}"), value, partition)
            if chance.random() < 0.2:
                world.tail()
        world.tail()
        if step % 3:
            seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
            world.commit(Seam.of({"profiles": seam}))
            world.publish()
            table.refresh()
        rows, _ = _extracted(table)
        assert _as_json(rows, world.definition) == world.rows()
        only, _ = _extracted(table, ["value"])
        assert Counter(row["value"] for row in only) == Counter(row["value"] for row in world.rows().values())
        some, _ = _extracted(table, where="user_id = 'u1' AND version < 'b'")
        assert _as_json(some, world.definition) == {
            key: row for key, row in world.rows().items() if row["user_id"] == "u1" and row["version"] < "b"
        }
        entities = [entity_of(world.definition, {"app_id": "7", "user_id": f"u{n}"}) for n in range(4)]
        _, results = table.reader.lookup(entities)
        looked_up = [row for rows in results for row in msgspec.json.decode(rows)]
        assert {tuple(row[name] for name in world.definition.key): row for row in looked_up} == world.rows()


def test_an_extract_does_not_move_with_what_comes_after_it_began(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served()
    world.produce(_profile("u1", "before"), _value("x"))
    world.tail()
    extract = table.extract(Wanted(), table.reader.end())
    expected = world.rows()
    world.produce(_profile("u1", "after"), _value("x"))
    world.produce(_profile("u1", "before"), None)
    world.tail()
    world.commit()
    world.publish()
    table.refresh()
    rows = [row for batch in extract.batches() for row in batch.to_pylist()]
    extract.close()
    assert _as_json(rows, world.definition) == expected


def test_columns_come_in_the_order_asked_for_and_provenance_only_by_name(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served()
    world.produce(_profile("u1", "cold"), _value("x"))
    world.commit()
    world.publish()
    table.refresh()
    world.produce(_profile("u1", "hot"), _value("y"), partition=2)
    world.tail()
    rows, _ = _extracted(table, ["value", "_kafka_offset", "_kafka_partition", "_kafka_topic"])
    assert sorted(tuple(row.values()) for row in rows) == [("x", 0, 0, "profiles"), ("y", 0, 2, "profiles")]
    assert list(rows[0]) == ["value", "_kafka_offset", "_kafka_partition", "_kafka_topic"]
    assert table.extract(Wanted(("key",)), table.reader.end()).schema.names == ["key"]


def test_an_empty_table_gives_a_stream_without_rows(served: Callable[..., tuple[Any, ServedTable]]) -> None:
    _, table = served()
    assert _extracted(table)[0] == []


EVERY_KIND = LiveTable.build(
    name="kinds",
    identifier="app.kinds",
    topics=["profiles"],
    key=["id", "day", "tag"],
    entity=["id"],
    columns={
        "flag": "boolean",
        "tag": "binary",
        "day": "date",
        "id": "uuid",
        "price": "decimal(10,2)",
        "ratio": "double",
        "count": "long",
        "other": "uuid",
        "raw": "binary",
        "at": {"type": "timestamptz", "epoch": "ms"},
    },
    buckets=2,
)


def test_values_of_every_kind_are_equal_from_cold_and_from_hot(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served(EVERY_KIND)
    key = {"id": "6f1c7c0e-3f0a-4c4e-9a53-0d2f7f2f9d11", "day": "2026-02-28", "tag": "AAH/"}
    value = {
        "flag": True,
        "price": "12.30",
        "ratio": 0.1,
        "count": 2**53 + 1,
        "other": "00000000-0000-0000-0000-0000000000ff",
        "raw": "AAE=",
        "at": 1_700_000_000_123,
    }
    shown = {**key, **value, "at": "2023-11-14T22:13:20.123000Z"}
    world.produce(key, value)
    world.produce({**key, "tag": ""}, {})
    world.tail()
    columns = [*world.definition.table_schema.names]
    hot, _ = _extracted(table, columns)
    world.commit()
    world.publish()
    table.refresh()
    from_cold, _ = _extracted(table, columns)
    assert sorted(hot, key=itemgetter("tag")) == sorted(from_cold, key=itemgetter("tag"))
    cold = _as_json(_extracted(table)[0], world.definition)
    assert cold[(key["id"], key["day"], key["tag"])] == shown
    entity = entity_of(world.definition, {"id": key["id"]})
    (rows,) = table.reader.lookup((entity,))[1]
    assert msgspec.json.decode(rows) == [cold[place] for place in sorted(cold)]


# The names of DuckDB's virtual columns, and those that the extract's own queries use.
NAMES_OF_OTHERS = LiveTable.build(
    name="names",
    identifier="app.names",
    topics=["profiles"],
    key=["file", "position"],
    entity=["file"],
    columns={
        "file": "string",
        "file_row_number": "int",
        "FILE_INDEX": "int",
        "position": "int",
        "filename": "string",
        "rowid": "long",
        "hot": "string",
        "c": "string",
        "d": "string",
        "f": "string",
        "Deleted_0": "int",
        "c0": "int",
        "n0": "int",
        "payload": "string",
    },
    buckets=2,
)


@pytest.mark.parametrize("format_version", [2, 3])
def test_columns_named_as_duckdbs_own_change_no_row(
    served: Callable[..., tuple[Any, ServedTable]], format_version: int, seed: int
) -> None:
    """Goal: whatever the columns are named, deleted rows stay away, and no live row is lost or repeated.

    Method: random upserts and tombstones over several commits, so that a bucket has several files with
    deletes. The values are small numbers, which may be taken for positions and file numbers.
    """
    chance = random.Random(seed)
    definition = replace(NAMES_OF_OTHERS, format_version=format_version)
    world, table = served(definition)
    names = [column.name for column in definition.value_columns]
    numbers = {column.name for column in definition.columns if column.type.kind in (Kind.INT, Kind.LONG)}
    for step in range(5):
        for _ in range(120):
            key = {"file": f"f{chance.randrange(6)}", "position": chance.randrange(20)}
            digits = {name: chance.randrange(4) for name in names}
            row = {name: digit if name in numbers else str(digit) for name, digit in digits.items()}
            world.produce(key, None if chance.random() < 0.25 else row)
        world.tail()
        if step < 4:
            world.commit()
            world.publish()
            table.refresh()
        rows, _ = _extracted(table)
        assert _as_json(rows, definition) == world.rows()
        some, _ = _extracted(table, ["FILE_INDEX", "position", "file_row_number", "file"])
        assert _as_json(some, definition) == {
            key: {name: row[name] for name in some[0]} for key, row in world.rows().items()
        }
    deleted_in = {file.data.bucket: 0 for file in table.reader.cold.index.files}
    for file in table.reader.cold.index.files:
        deleted_in[file.data.bucket] += file.data.deletes is not None
    assert min(deleted_in.values()) > 1


def test_a_file_whose_columns_stand_in_another_order_is_read_by_their_names(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    """Method: another writer has rewritten every second file, with its columns in reverse order."""
    world, table = served()
    for text in ("old", "new"):
        for number in range(40):
            world.produce(_profile(f"u{number % 7}", f"{text} k{number // 3}"), _value(f"{text} {number}"))
        world.produce(_profile("u1", "old k0"), None)
        world.commit()
    for file in world.snapshots[world.newest][::2]:
        rows = pq.ParquetFile(file.path).read()
        pq.write_table(rows.select(rows.column_names[::-1]), file.path)
    world.publish()
    world.tail()
    table.refresh()
    assert _as_json(_extracted(table)[0], world.definition) == world.rows()


@pytest.mark.parametrize("format_name", ["arrow", "parquet"])
def test_streams_can_be_read_back_and_carry_the_read_point(
    served: Callable[..., tuple[Any, ServedTable]], format_name: str
) -> None:
    world, table = served()
    for number in range(20):
        world.produce(_profile(f"u{number}", "k"), _value("x"))
    world.tail()
    extract = table.extract(Wanted(), table.reader.end())
    content = b"".join(encoded(extract, format_name))
    extract.close()
    if format_name == "arrow":
        read = pa.ipc.open_stream(content).read_all()
    else:
        read = pq.read_table(io.BytesIO(content))
    assert read.num_rows == 20
    assert ReadPoint.parse(read.schema.metadata[READ_POINT_METADATA.encode()].decode()) == extract.read_point


def test_an_extract_without_a_tailer_ends_in_not_ready(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.serving.read.tables.SEAL_WAIT_SECONDS", 0.05)
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    with pytest.raises(NotReady, match="seal"):
        table.extract(Wanted(("key",)), world.seam)
    table.close()


def test_a_hot_tier_that_does_not_reach_back_is_refused_and_released(new_world: Callable[..., Any]) -> None:
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()

    class Beyond:
        start = end = Seam.of({"profiles": {0: 5}})
        source = table.reader.cold.index.source
        definition_json = table.reader.cold.index.definition_json
        complete_from_ms = 0
        closed = False

        def close(self) -> None:
            self.closed = True

    hot: Any = Beyond()
    with pytest.raises(NotReady, match="beyond the snapshot"):
        Extract(table.reader.cold, hot, Selection.of(table.definition, Wanted()), 0.0, world.folder / "spill")
    assert hot.closed
    table.close()


def test_an_extract_that_takes_long_leases_its_snapshot_until_it_is_closed(
    served: Callable[..., tuple[Any, ServedTable]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASED_AFTER_SECONDS", 0.0)
    is_written = threading.Event()

    def written(*arguments: Any) -> None:
        write_lease(*arguments)
        is_written.set()

    monkeypatch.setattr(leases, "write_lease", written)
    world, table = served()
    location = table.reader.cold.index.location
    extract = table.extract(Wanted(), table.reader.end())
    assert is_written.wait(60)
    leased = leases.leased_snapshots(world.io, location, world.clock.now_ms())
    assert leased == {extract.read_point.snapshot_id}
    extract.close()
    assert not leases.leased_snapshots(world.io, location, world.clock.now_ms())


def test_wrong_columns_are_refused(new_world: Callable[..., Any]) -> None:
    definition = new_world().definition
    with pytest.raises(BadParameter):
        Selection.of(definition, Wanted(["key", "nope"]))
    with pytest.raises(BadParameter, match="twice"):
        Selection.of(definition, Wanted(["key", "key"]))
    with pytest.raises(BadParameter, match="no column"):
        Selection.of(definition, Wanted([]))


def test_an_extract_never_ends_before_what_lookups_have_shown(
    served: Callable[..., tuple[Any, ServedTable]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: while the hot tier is read again, extracts are refused as lookups are.

    Method: lookups have seen a record; then the tier begins again at the seam, and has nothing yet.
    """
    monkeypatch.setattr("thermocline.serving.read.tables.SEAL_WAIT_SECONDS", 2.0)
    world, table = served()
    first = world.seam
    world.produce(_profile("u1", "k"), _value("seen"))
    world.tail()
    floor = table.reader.end()
    leases = set((world.hot_folder / "leases").iterdir())
    with world.lock:
        world.restart_tailer(first, may_continue=False)
    with pytest.raises(NotReady, match="behind earlier answers"):
        table.reader.end()
    with pytest.raises(NotReady, match="behind earlier answers"):
        table.extract(Wanted(("key",)), floor)
    assert set((world.hot_folder / "leases").iterdir()) == leases
    world.tail()
    assert table.extract(Wanted(("key",)), floor).read_point.end == floor


def test_an_extract_that_fails_to_begin_lets_go_of_its_pin(
    served: Callable[..., tuple[Any, ServedTable]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, table = served()
    leases = set((world.hot_folder / "leases").iterdir())
    monkeypatch.setattr("thermocline.serving.read.table_at.Extract", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        table.extract(Wanted(("key",)), world.seam)
    assert set((world.hot_folder / "leases").iterdir()) == leases


def test_uuids_within_a_column_that_another_writer_stored_as_such_are_ours(tmp_path: Path) -> None:
    """DuckDB gives the text of Parquet's UUIDs; of a file of ours it gives their bytes."""
    of = ColumnType.parse("list<struct<id: uuid, at: timestamptz, price: decimal(4,2)>>")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    ours = arrow_array(of, [[{"id": UUID(int=5), "at": at, "price": Decimal("1.50")}, None], None, []])
    items = ours.flatten()
    ids = pa.ExtensionArray.from_storage(pa.uuid(), items.field(0))
    theirs = pa.ListArray.from_arrays(
        ours.offsets,
        pa.StructArray.from_arrays(
            [ids, items.field(1), items.field(2)], ["id", "at", "price"], mask=items.is_null()
        ),
        mask=ours.is_null(),
    )
    for name, stored in (("ours", ours), ("theirs", theirs)):
        pq.write_table(pa.table({"v": stored}), tmp_path / name)
        found = duckdb.read_parquet(str(tmp_path / name)).to_arrow_table().column("v").combine_chunks()
        assert conformed(found, of.arrow, of).equals(ours)
