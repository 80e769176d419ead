"""``suppress_unchanged``: a row that is there already is neither written nor deleted; all others are."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.ingest.one_bucket import IO, OneBucketTable
from tests.upsert.test_probe import Reads
from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import local_path
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_table
from thermocline.upsert.bucket_task import run_bucket_task
from thermocline.upsert.files_by_bucket import after_commit, by_bucket

COLUMNS = {
    "id": "long",
    "text": "string",
    "whole": "int",
    "large": "long",
    "real": "double",
    "price": "decimal(10,2)",
    "flag": "boolean",
    "day": "date",
    "moment": "timestamptz",
    "token": "uuid",
    "blob": "binary",
    "local": "timestamp",
    "many": "list<struct<real: double, when: timestamptz>>",
    "map": "map<string, double>",
}
TOMBSTONE = None
Row = dict[str, Any]
Changes = Sequence[tuple[int, Row | None]]


def definition_of(columns: Mapping[str, str], key: Sequence[str] = ("id",)) -> LiveTable:
    return LiveTable.build(
        name="profiles",
        identifier="app.profiles",
        topics=["profiles"],
        key=list(key),
        columns=columns,
        buckets=1,
        suppress_unchanged=True,
    )


DEFINITION = definition_of(COLUMNS)
SMALL = definition_of({"id": "long", "text": "string"})


def records_of(definition: LiveTable, changes: Changes, first_offset: int = 0) -> pa.Table:
    """Records as decoding gives them; a row is {column: value}, and columns that it lacks are null."""
    rows = [{"id": key, **(row or {})} for key, row in changes]
    columns = {
        column.name: pa.array([row.get(column.name) for row in rows], column.type.arrow)
        for column in definition.columns
    }
    count = len(rows)
    table = pa.table(
        {
            **columns,
            "_kafka_topic": pa.array(["profiles"] * count, pa.string()),
            "_kafka_partition": pa.array([0] * count, pa.int32()),
            "_kafka_offset": pa.array(range(first_offset, first_offset + count), pa.int64()),
            "_kafka_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "_tombstone": pa.array([row is TOMBSTONE for _, row in changes], pa.bool_()),
        }
    )
    return table.append_column("_key", encode_table(definition, table)).cast(definition.records_schema)


def live_rows(table: OneBucketTable) -> pa.Table:
    parts = []
    for file in table.files.get(0, ()):
        deleted = read_deletes(IO, file.deletes) if file.deletes else ()
        # Without the row IDs that files have once they were merged.
        columns = table.definition.table_schema.names
        stored = pq.read_table(local_path(file.path), columns=columns, partitioning=None)
        parts.append(
            stored.take(pa.array([p for p in range(stored.num_rows) if p not in deleted], pa.int64()))
        )
    return pa.concat_tables(parts) if parts else table.definition.table_schema.empty_table()


@pytest.fixture
def table(tmp_path: Path) -> OneBucketTable:
    return OneBucketTable(tmp_path, SMALL)


# Few keys and few values, so that most records repeat what is there, in every type and with nulls; 0.0 and
# -0.0 are equal numbers and different values.
_row = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from(["", "a", "a\x00"]),
        "whole": st.sampled_from([0, -1]),
        "real": st.sampled_from([0.0, -0.0, float("nan")]),
        "blob": st.sampled_from([b"", b"\x00"]),
    },
)
_changes = st.lists(st.tuples(st.integers(0, 3), st.none() | _row), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(_changes, min_size=1, max_size=8))
@example(batches=[[(1, {})], [(2, {})], [(0, {}), (3, {})], [(0, None)], [(0, {})]])
def test_a_replay_says_what_is_live_what_is_written_and_what_is_unchanged(batches: list[Changes]) -> None:
    """Goal: exactly the winners that change nothing are left out, and counted.

    Method: a dict holds each key's row and the offset that wrote it. What a batch's winners find there says
    whether they change it; the files must hold the dict's rows, each once, with the dict's offsets.
    """
    expected: dict[int, tuple[str, int]] = {}
    offset = 0
    with tempfile.TemporaryDirectory() as folder:
        table = OneBucketTable(Path(folder), DEFINITION)
        for changes in batches:
            records = records_of(DEFINITION, changes, offset)
            winners = {key: (row, offset + place) for place, (key, row) in enumerate(changes)}
            offset += len(changes)
            unchanged = 0
            for key, (row, at) in winners.items():
                # NaN equals NaN, and 0.0 does not equal -0.0, as their texts do and don't.
                before, after = (
                    expected.get(key, (None,))[0],
                    None if row is None else repr(sorted(row.items())),
                )
                unchanged += before == after
                if after is None:
                    expected.pop(key, None)
                elif before != after:
                    expected[key] = (after, at)

            done = table.run(records)

            assert (done.unchanged, done.applied) == (unchanged, len(winners) - unchanged)
            if unchanged == len(winners):
                assert (done.added, done.deletes, done.replaced) == ((), {}, {})
            rows = live_rows(table).to_pylist()
            assert len(rows) == len(expected)
            found = {
                row["id"]: (
                    repr(
                        sorted((n, row[n]) for n in ("text", "whole", "real", "blob") if row[n] is not None)
                    ),
                    row["_kafka_offset"],
                )
                for row in rows
            }
            assert found == expected


def test_a_replayed_record_leaves_its_row_though_the_same_was_there(table: OneBucketTable) -> None:
    """Goal: by its row, a later replay of an older record knows that this one was applied."""
    table.run(records_of(SMALL, [(1, {"text": "a"})], first_offset=4))
    again = records_of(SMALL, [(1, {"text": "a"})], first_offset=7)
    done = run_bucket_task(IO, SMALL, table.location, 0, table.files[0], again, is_replay=True)
    table.files = after_commit(table.files, [done])
    assert (done.applied, done.unchanged) == (1, 0)
    assert [row["_kafka_offset"] for row in live_rows(table).to_pylist()] == [7]


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [
        ("text", "a", "b"),
        ("whole", 1, 2),
        ("large", 1, 2**40),
        ("real", 0.5, 0.25),
        ("real", 0.0, -0.0),
        ("price", "1.50", "1.51"),
        ("flag", True, False),
        ("day", 1, 2),
        ("moment", 1, 2),
        ("token", b"0123456789abcdef", b"0123456789abcdeF"),
        ("blob", b"a", b"b"),
        ("local", 1, 2),
        ("many", [{"real": 0.0, "when": 5}, None], [{"real": -0.0, "when": 5}, None]),
        ("many", [{"real": None, "when": 5}], [None]),
        ("many", [], [None]),
        ("map", {"a": 1.0}, {"a": 1.0, "b": None}),
        ("map", {}, {"a": None}),
    ],
)
def test_each_type_is_compared(tmp_path: Path, name: str, value: object, other: object) -> None:
    kind = DEFINITION.row_schema.field(name).type
    one, two = (
        pa.scalar(v).cast(kind).as_py() if pa.types.is_decimal(kind) else pa.scalar(v, kind).as_py()
        for v in (value, other)
    )
    table = OneBucketTable(tmp_path, DEFINITION)
    table.run(records_of(DEFINITION, [(1, {name: one}), (2, {name: one}), (3, {})]))
    done = table.run(records_of(DEFINITION, [(1, {name: one}), (2, {name: two}), (3, {name: one})], 10))
    assert (done.unchanged, done.applied) == (1, 2)
    assert {row["id"]: row[name] for row in live_rows(table).to_pylist()} == {1: one, 2: two, 3: one}


def test_a_tombstone_for_a_live_row_of_nulls_deletes_it(table: OneBucketTable) -> None:
    table.run(records_of(SMALL, [(1, {})]))
    done = table.run(records_of(SMALL, [(1, TOMBSTONE)], 1))
    assert (done.applied, done.unchanged) == (1, 0)
    assert live_rows(table).num_rows == 0


def test_the_same_row_again_after_its_deletion_is_written(table: OneBucketTable) -> None:
    row = {"text": "a"}
    table.run(records_of(SMALL, [(1, row), (2, row)]))
    table.run(records_of(SMALL, [(1, TOMBSTONE)], 2))
    done = table.run(records_of(SMALL, [(1, row), (2, row)], 3))
    assert (done.applied, done.unchanged) == (1, 1)
    assert sorted(live_rows(table)["_kafka_offset"].to_pylist()) == [1, 3]


def test_a_key_that_is_live_twice_is_mended_by_the_same_row(tmp_path: Path) -> None:
    """Another writer's doing; both rows go, and the new one stands alone."""
    one, two = OneBucketTable(tmp_path, SMALL), OneBucketTable(tmp_path, SMALL)
    one.run(records_of(SMALL, [(1, {"text": "a"})]))
    two.run(records_of(SMALL, [(1, {"text": "a"})]))
    one.files = by_bucket([*one.files[0], *two.files[0]])
    done = one.run(records_of(SMALL, [(1, {"text": "a"})], 7))
    assert (done.applied, done.unchanged) == (1, 0)
    assert live_rows(one)["_kafka_offset"].to_pylist() == [7]


def test_a_file_from_before_an_alteration_has_null_and_narrower_values(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path, definition_of({"id": "long", "whole": "int", "price": "decimal(6,2)"}))
    table.run(records_of(table.definition, [(key, {"whole": 5}) for key in range(3)]))
    wanted = definition_of({"id": "long", "whole": "long", "price": "decimal(10,2)", "added": "string"})
    altered = table.definition = plan_alteration(table.definition, wanted).definition
    changes: Changes = [(0, {"whole": 5}), (1, {"whole": 2**40}), (2, {"whole": 5, "added": "x"})]
    done = table.run(records_of(altered, changes, 10))
    assert (done.unchanged, done.applied) == (1, 2)


def test_a_table_of_keys_alone_suppresses_what_is_there(tmp_path: Path) -> None:
    keys = definition_of({"id": "long"})
    table = OneBucketTable(tmp_path, keys)
    table.run(records_of(keys, [(1, {})]))
    done = table.run(records_of(keys, [(1, {}), (2, {})], 1))
    assert (done.unchanged, done.applied) == (1, 1)


def test_values_are_read_only_where_a_record_finds_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: suppression reads the values of few row groups, a bounded number of bytes at a time."""
    table = OneBucketTable(tmp_path, SMALL)
    table.run(records_of(SMALL, [(key, {"text": str(key)}) for key in range(30 * ROW_GROUP_ROWS)]))
    changed = [4 * ROW_GROUP_ROWS + 1, 9 * ROW_GROUP_ROWS + 1, 20 * ROW_GROUP_ROWS + 1]
    reads = Reads(monkeypatch)
    monkeypatch.setattr("thermocline.upsert.stored_rows.BYTES_AT_ONCE", 1)
    done = table.run(
        records_of(
            SMALL, [(changed[0], TOMBSTONE), *((key, {"text": str(key)}) for key in changed[1:])], 10**6
        )
    )
    assert (done.unchanged, done.applied) == (2, 1)
    assert reads.calls == [([4, 9, 20], ["id"]), ([9], ["text"]), ([20], ["text"])]
