"""Columns matched by field id: what is nested is rebuilt in Arrow and in SQL, to the same values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from thermocline.rules.column_types import ColumnType
from thermocline.rules.columns import Column
from thermocline.rules.field_ids import matches, named_by
from thermocline.serving.read.stored_columns import fitted_sql


def column(name: str, text: str, field_id: int, nested: tuple[int, ...] = ()) -> Column:
    return Column(name, ColumnType.parse(text), field_id, nested_ids=nested)


def field(of: Column) -> pa.Field:
    return pa.field(of.name, of.numbered_type.arrow, metadata={"PARQUET:field_id": str(of.field_id)})


STORED = column(
    "before",
    "struct<x: int, l: list<struct<p: int>>, m: map<string, struct<q: decimal(4,1)>>, gone: string>",
    1,
    (2, 3, 4, 5, 6, 7, 8, 9, 10),
)
# The field "gone" is another one than the stored one of that name.
WANTED = column(
    "after",
    "struct<gone: string, l: list<struct<z: string, p: long>>,"
    " m: map<string, struct<q: decimal(9,1), r: date>>, x: long>",
    1,
    (20, 3, 4, 2, 6, 21, 7, 8, 9, 10, 22),
)
VALUES: list[Any] = [
    {"x": 1, "l": [{"p": 3}, None], "m": [("k", {"q": Decimal("1.5")}), ("n", None)], "gone": "old"},
    None,
    {"x": None, "l": None, "m": None, "gone": None},
    {"x": 2, "l": [], "m": [], "gone": "old"},
]
EXPECTED: list[Any] = [
    {
        "gone": None,
        "l": [{"z": None, "p": 3}, None],
        "m": [("k", {"q": Decimal("1.5"), "r": None}), ("n", None)],
        "x": 1,
    },
    None,
    {"gone": None, "l": None, "m": None, "x": None},
    {"gone": None, "l": [], "m": [], "x": 2},
]


def stored(*columns: Column, **values: list[Any]) -> pa.Table:
    schema = pa.schema(map(field, columns))
    return pa.table([pa.array(values[one.name], one.type) for one in schema], schema=schema)


@pytest.mark.parametrize("start", [0, 1])
def test_what_is_nested_is_found_by_field_id_at_every_level(start: int) -> None:
    rows = stored(STORED, before=VALUES).slice(start)
    known = matches(rows.schema, [field(WANTED)])
    found = named_by(rows, known)
    assert found.schema.names == ["after"]
    assert found.schema.field("after").type == field(WANTED).type
    assert found.column("after").to_pylist() == EXPECTED[start:]


def test_the_sql_of_an_extract_rebuilds_what_is_nested_in_the_same_way() -> None:
    rows = stored(STORED, before=VALUES)
    match = matches(rows.schema, [field(WANTED)])["after"]
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        sql = fitted_sql("before", match, WANTED.numbered_type)
        found = connection.sql(f"SELECT {sql} AS after FROM rows").to_arrow_table()
    values = found.column("after").combine_chunks().cast(WANTED.type.arrow).to_pylist()
    assert values == EXPECTED


def test_a_column_that_was_added_again_under_the_name_of_a_dropped_one_is_another() -> None:
    dropped, again, kept = column("a", "int", 1), column("a", "int", 3), column("b", "int", 2)
    rows = stored(dropped, kept, a=[1], b=[2])
    renamed = column("c", "int", 2)
    assert named_by(rows, matches(rows.schema, map(field, [again, renamed]))).to_pydict() == {"c": [2]}


def test_a_file_without_field_ids_is_read_by_name() -> None:
    rows = pa.table({"a": [1], "b": [2]})
    known = matches(rows.schema, map(field, [column("b", "long", 7), column("z", "long", 8)]))
    assert named_by(rows, known).to_pydict() == {"b": [2]}
