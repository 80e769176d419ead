from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from tests.partition_spec import partition_spec_of
from thermocline.errors import ConfigInvalid
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode import Stage
from thermocline.rules.definition import PROVENANCE, LiveTable, OnError, problems_of_new_names

SETTINGS: dict[str, Any] = {
    "name": "profiles",
    "identifier": "app.profiles",
    "topics": ["profiles"],
    "key": ["app_id", "user_id", "key"],
    "entity": ["app_id", "user_id"],
    "columns": {
        "value": "string",
        "app_id": "int",
        "user_id": "string",
        "key": "string",
        "price": "decimal(10,2)",
        "updated_at": {"type": "timestamptz", "epoch": "ms"},
    },
}
PROFILES = LiveTable.build(**SETTINGS)
EVENTS = LiveTable.build(**SETTINGS | {"key": [], "entity": [], "key_from": "value"})


def problems_of(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as raised:
        LiveTable.build(**SETTINGS | changes)
    return raised.value.problems


@pytest.mark.parametrize(
    "text",
    [
        *(kind for kind in Kind if kind not in (Kind.DECIMAL, Kind.STRUCT, Kind.LIST, Kind.MAP)),
        *("decimal(38,38)", "decimal(10,2)", "list<string>", "map<string, list<timestamptz epoch ms>>"),
        "struct<Street: string, no: list<struct<of: decimal(3,1), a b: map<string, json>>>>",
        "list<" * 16 + "int" + ">" * 16,
    ],
)
def test_a_type_reads_back_from_what_it_declares(text: str) -> None:
    parsed = ColumnType.parse(text)
    assert ColumnType.parse(parsed.declared) == parsed
    assert str(parsed) == text


def test_an_epoch_reads_back_from_what_it_declares() -> None:
    parsed = ColumnType.parse({"type": "timestamptz", "epoch": "us"})
    assert (parsed.kind, parsed.epoch) == (Kind.TIMESTAMPTZ, "us")
    assert ColumnType.parse(parsed.declared) == parsed


def test_a_nested_type_may_be_spelled_with_any_blanks_and_capitals() -> None:
    parsed = ColumnType.parse(" STRUCT < a:LIST<Decimal( 3 , 1 )>,b :map<STRING,int> >")
    assert str(parsed) == "struct<a: list<decimal(3,1)>, b: map<string, int>>"


def test_fields_within_columns_have_the_ids_that_follow_and_keep_them() -> None:
    """Those of one level come first: so Iceberg numbers a new table, and an added column."""
    columns = {"app_id": "int", "a": "struct<x: list<int>, y: map<string, int>>", "b": "list<string>"}
    built = LiveTable.build(**SETTINGS | {"key": ["app_id"], "entity": [], "columns": columns})
    schema = built.iceberg_schema()
    assert [(column.field_id, column.nested_ids) for column in built.columns] == [
        (1, ()),
        (2, (8, 9, 10, 11, 12)),
        (3, (13,)),
    ]
    assert [schema.find_column_name(number) for number in range(1, 14)] == [
        *("app_id", "a", "b", *PROVENANCE),
        *("a.x", "a.y", "a.x.element", "a.y.key", "a.y.value", "b.element"),
    ]
    moved = replace(
        built,
        columns=tuple(replace(c, nested_ids=tuple(n + 50 for n in c.nested_ids)) for c in built.columns),
    )
    assert LiveTable.from_json(moved.to_json(), built.name) == moved
    with pytest.raises(ConfigInvalid, match="1 ids for the fields within it"):
        LiveTable.from_json(
            moved.to_json().replace("[63]", "[63,64]").replace('"ids":[58,59,60,61,62]', '"ids":[58]'), "t"
        )


def test_a_column_has_no_name_that_iceberg_has_for_a_field_within_another() -> None:
    columns = SETTINGS["columns"] | {"a": "struct<b: list<int>>", "A.B": "int", "a.b.element": "int"}
    assert problems_of(columns=columns) == (
        'the column "A.B" has the name of a field within a',
        'the column "a.b.element" has the name of a field within a',
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("strin", 'did you mean "string"?'),
        ("decimal", "decimal(10,2)"),
        ("decimal(39,2)", "1 to 38"),
        ("decimal(2,3)", "scale"),
        ("decimal(0,0)", "1 to 38"),
        ({"type": "timestamptz", "epoch": "ns"}, "not one of s, ms, us"),
        ({"type": "string", "epoch": "ms"}, "belongs to date and time and timestamptz"),
        ("list", '"list": nested types are spelled'),
        ("array<int>", '"array<int>": nested types are spelled'),
        ("array(int)", "nested types are spelled"),
        ("row(a int)", "nested types are spelled"),
        ("lists", "known: "),
        ("bigint", '"bigint" is not a column type; here it is "long"'),
        ("VARCHAR(20)", '"VARCHAR(20)" is not a column type; here it is "string"'),
        ("text", 'here it is "string"'),
        ("float", 'here it is "double"'),
        ("datetime", 'here it is "timestamp", or "timestamptz" where the values have a zone'),
        ("list<bigint>", '"bigint" is not a column type; here it is "long"'),
        ("list<lists>", '"lists" is not a column type; known: '),
        ("list<strin>", 'did you mean "string"?'),
        ("list<int>>", 'did you mean "int"?'),
        ("list<int, int>", "not of the form list<string>"),
        ("list<>", '"" is not a column type'),
        ("map<string>", "not of the form map<string, double>"),
        ("map<int, int>", "the keys of a map can't be a int"),
        ("map<list<string>, int>", "the keys of a map can't be a list<string>"),
        ("struct<>", '"" is no field of a struct'),
        ("struct<street>", '"street" is no field of a struct'),
        ("struct<a.b: int>", '"a.b: int" is no field of a struct'),
        ("struct<a: int, A: int>", 'two fields of a struct are called "a" but for case'),
        ("list<" * 17 + "int" + ">" * 17, "more than 16 levels"),
        ("list<date epoch ms>", 'the epoch "ms" is not one of d'),
        ({"type": "list<date>", "epoch": "d"}, "within it, times as numbers are spelled"),
        ({"type": "list", "element": "string"}, "is not of the form"),
        ({"street": "string"}, "nested types are spelled"),
        ({"kind": "string"}, "form"),
        ({"epoch": "ms"}, "form"),
    ],
)
def test_a_bad_type_says_what_is_wrong(text: Any, says: str) -> None:
    (problem,) = problems_of(columns=SETTINGS["columns"] | {"value": text})
    assert problem.startswith("column value: ")
    assert says in problem


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"key": [], "entity": []}, 'needs key_from = "value"'),
        ({"key": [], "key_from": "value"}, "must be the first columns of key"),
        (
            {"key": [], "entity": [], "key_from": "value", "suppress_unchanged": True},
            "suppress_unchanged needs a key",
        ),
        ({"key": ["app_id", "app_id"], "entity": ["app_id"]}, "twice"),
        ({"key": ["app_id", "usr_id"], "entity": ["app_id"]}, 'did you mean "user_id"?'),
        (
            {"key": ["app_id", "price"], "entity": ["app_id"]},
            "price is decimal(10,2), but a key can only have",
        ),
        (
            {"key": ["app_id", "updated_at"], "entity": ["app_id"]},
            "updated_at is timestamptz epoch ms, but a key can only have",
        ),
        ({"entity": ["user_id"]}, "must be the first columns of key"),
        ({"entity": ["app_id", "user_id", "key", "value"]}, "must be the first columns of key"),
        ({"columns": SETTINGS["columns"] | {"_key": "string"}}, '"_key" is reserved'),
        ({"columns": SETTINGS["columns"] | {"bucket": "string"}}, '"bucket" is reserved'),
        (
            {"columns": SETTINGS["columns"] | {"Value": "string"}},
            'two column names differ only in case: "value"',
        ),
        ({"columns": SETTINGS["columns"] | {'a"b': "string"}}, "quotes"),
        ({"columns": SETTINGS["columns"] | {"": "string"}}, "empty"),
        ({"identifier": "profiles"}, "namespace.table"),
        ({"identifier": "app."}, "namespace.table"),
        ({"topics": []}, "at least one topic"),
        ({"topics": ["a", "a"]}, "each once"),
        ({"topics": ["a b"]}, '"a b" is not a topic name'),
        ({"buckets": 0}, "1 to 4096"),
        ({"buckets": 4097}, "1 to 4096"),
        ({"format_version": 1}, "format_version is 1, not 2 or 3"),
        ({"format": "csv"}, 'format is "csv", not json or string'),
        ({"key_format": "avsc"}, 'key_format is "avsc", not json or string'),
        ({"key_format": "string"}, 'key_format = "string" fills one column from the key, but it has'),
        ({"key_format": "json", "key_from": "value"}, "can't be set with key_from"),
        (
            {"format": "string", "key_format": "json"},
            'format = "string" fills one column from the value, but it has',
        ),
        (
            {"delete_when": {"header": "h", "values": ["D"]}, "key_from": "value"},
            "delete_when needs key_from",
        ),
        (
            {"key": [], "entity": [], "key_from": "value", "partial_updates": True},
            "partial_updates needs a key",
        ),
        (
            {"columns": {"app_id": "int", "user_id": "string", "key": "string"}, "partial_updates": True},
            "partial_updates needs a column that is read from the value",
        ),
        (
            {
                "columns": {
                    "app_id": "int",
                    "user_id": "string",
                    "key": "string",
                    "trace": {"type": "string", "header": "trace"},
                },
                "partial_updates": True,
            },
            "partial_updates needs a column that is read from the value",
        ),
        (
            {
                "columns": {"app_id": "int", "user_id": "string", "key": "string", "text": "string"},
                "format": "string",
                "key_format": "json",
                "partial_updates": True,
            },
            "in string, no column can be left out",
        ),
        ({"envelope": "canal"}, 'envelope is "canal", not plain or debezium or maxwell'),
        (
            {"envelope": "maxwell", "partial_updates": True},
            "partial_updates can't be used with Maxwell's events",
        ),
        ({"envelope": "debezium", "key_from": "value"}, 'envelope = "debezium" needs key_from = "key"'),
        ({"sequence_by": ["user_id"]}, "sequence_by has the key column user_id"),
        ({"sequence_by": ["valeu"]}, 'sequence_by has "valeu", which is not declared; did you mean "value"?'),
        ({"sequence_by": ["value", "value"]}, "names a column twice"),
        (
            {"sequence_by": ["value"], "partial_updates": True},
            "sequence_by can't be combined with partial_updates yet",
        ),
        ({"sequence_by": ["value"], "envelope": "debezium"}, "read it from the event or a header"),
        ({"sequence_by": ["value"], "tombstone_retention_hours": 0}, "is 0, but must be from 1 to 87600"),
        ({"tombstone_retention_hours": 24}, "tombstone_retention_hours needs sequence_by"),
        (
            {"key": [], "entity": [], "key_from": "value", "sequence_by": ["value"]},
            "sequence_by needs a key",
        ),
        (
            {
                "columns": {"app_id": "int", "user_id": "string", "key": "string", "value": "double"},
                "sequence_by": ["value"],
            },
            "is double, but sequence_by takes only",
        ),
        (
            {
                "columns": {
                    "app_id": "int",
                    "user_id": "string",
                    "key": "string",
                    "lsn": {"type": "long", "event": "source.lsn"},
                }
            },
            'column lsn is read from the event, which needs envelope = "debezium"',
        ),
        ({"key_from": "header"}, "not key or value"),
        ({"on_error": "ignore"}, 'on_error is "ignore", not fail or quarantine or skip'),
        ({"on_error": {"decode": "ignore"}}, 'on_error.decode is "ignore", not fail or quarantine or skip'),
        ({"on_error": {"decod": "skip"}}, 'did you mean "decode"?'),
    ],
)
def test_a_bad_definition_says_what_is_wrong(changes: dict[str, Any], says: str) -> None:
    (problem,) = problems_of(**changes)
    assert says in problem


@pytest.mark.parametrize("name", ["$path", "$partition", "$FILE_MODIFIED_TIME", "$row_id", "$"])
def test_a_new_column_may_not_be_named_as_trinos_hidden_ones(name: str) -> None:
    (problem,) = problems_of_new_names([*SETTINGS["columns"], name, f"a{name}"])
    assert problem.startswith(f'the column name "{name}" begins with "$"')
    assert "Trino" in problem


def test_a_definition_with_such_a_name_can_still_be_read() -> None:
    definition = LiveTable.build(**SETTINGS | {"columns": SETTINGS["columns"] | {"$path": "string"}})
    assert LiveTable.from_json(definition.to_json(), "profiles") == definition


@pytest.mark.parametrize("kind", ["double", "boolean", "decimal(5,0)", "timestamptz"])
def test_a_key_column_that_has_no_exact_order_in_every_engine_is_refused(kind: str) -> None:
    (problem,) = problems_of(columns=SETTINGS["columns"] | {"user_id": kind})
    assert f"is {kind}, but a key can only have" in problem


def test_all_problems_are_told_at_once() -> None:
    problems = problems_of(columns={"app_id": "itn"}, buckets=0, topics=[])
    assert len(problems) == 5


def test_no_entity_means_the_whole_key() -> None:
    table = LiveTable.build(**SETTINGS | {"entity": []})
    assert table.entity == table.key
    assert table.bucket_column.name == "key"


def test_a_definition_reads_back_from_its_json() -> None:
    text = PROFILES.to_json()
    assert LiveTable.from_json(text, "profiles") == PROFILES
    assert LiveTable.from_json(text, "other").name == "other"
    assert LiveTable.from_json(text, "other").to_json() == text
    assert "profiles" not in text.replace("app.profiles", "").replace('["profiles"]', "")


def test_a_definition_stored_before_there_were_field_ids_reads_as_numbered_by_place() -> None:
    """A table of the first release carries exactly this text; it must mean what it meant then."""
    stored = (
        '{"buckets":16,"columns":[{"name":"value","type":"string"},{"name":"app_id","type":"int"},'
        '{"name":"user_id","type":"string"},{"name":"key","type":"string"},'
        '{"name":"price","type":"decimal(10,2)"},'
        '{"epoch":"ms","name":"updated_at","type":"timestamptz"}],"entity":["app_id","user_id"],'
        '"format":"json","format_version":3,"identifier":"app.profiles","key":["app_id","user_id","key"],'
        '"key_from":"key","on_error":"quarantine","topics":["profiles"],"transactional":false,"version":1}'
    )
    assert LiveTable.from_json(stored, "profiles") == PROFILES
    assert [column.field_id for column in PROFILES.columns] == [1, 2, 3, 4, 5, 6]
    assert PROFILES.provenance_id == 7


def test_an_altered_table_keeps_its_field_ids() -> None:
    """A column that was added to an existing table comes after provenance, wherever it is declared."""
    first, *others = PROFILES.columns
    added = replace(first, name="added", field_id=11)
    altered = replace(PROFILES, columns=(first, added, *others), version=2)
    assert LiveTable.from_json(altered.to_json(), "profiles") == altered
    schema = altered.iceberg_schema()
    assert (schema.find_field("added").field_id, schema.find_field("_kafka_topic").field_id) == (11, 7)
    assert altered.table_schema.field("added").metadata == {b"PARQUET:field_id": b"11"}
    (partition,) = partition_spec_of(altered).fields
    assert schema.find_column_name(partition.source_id) == "user_id"
    renumbered = LiveTable.build(
        **SETTINGS | {"columns": {"value": "string", "added": "string"} | SETTINGS["columns"]}
    )
    assert altered.differences(renumbered) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("skip", dict.fromkeys(Stage, "skip")),
        ({}, dict.fromkeys(Stage, "quarantine")),
        (
            {"key": "fail", "contract": "skip"},
            {Stage.KEY: "fail", Stage.DECODE: "quarantine", Stage.CONTRACT: "skip"},
        ),
    ],
)
def test_each_stage_of_bad_records_has_its_own_fate(text: Any, expected: dict[Stage, str]) -> None:
    table = LiveTable.build(**SETTINGS | {"on_error": text})
    assert {stage: table.on_error.of(stage) for stage in Stage} == expected
    assert OnError.parse(table.on_error.declared) == table.on_error
    assert LiveTable.from_json(table.to_json(), "profiles") == table


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": 2},
        {"transactional": True},
        {"suppress_unchanged": True},
        {"on_error": {"key": "fail"}},
    ],
)
def test_each_choice_is_stored_and_tells_definitions_apart(changes: dict[str, Any]) -> None:
    table = LiveTable.build(**SETTINGS | changes)
    assert LiveTable.from_json(table.to_json(), "profiles") == table
    (difference,) = PROFILES.differences(table)
    assert difference.startswith(f"{next(iter(changes))} is ")


def test_a_table_without_a_key_identifies_rows_by_their_place_in_the_log() -> None:
    assert (PROFILES.has_key, PROFILES.identity) == (True, PROFILES.key)
    assert (EVENTS.has_key, EVENTS.key, EVENTS.entity) == (False, (), ())
    assert EVENTS.identity == ("_kafka_topic", "_kafka_partition", "_kafka_offset")
    assert [(column.name, column.type.kind) for column in EVENTS.key_columns] == [
        ("_kafka_topic", Kind.STRING),
        ("_kafka_partition", Kind.INT),
        ("_kafka_offset", Kind.LONG),
    ]
    assert EVENTS.value_columns == EVENTS.columns
    assert LiveTable.from_json(EVENTS.to_json(), "profiles") == EVENTS


def test_a_table_without_a_key_has_no_identifier_and_is_bucketed_by_the_logs_partition() -> None:
    schema = EVENTS.iceberg_schema()
    assert schema.identifier_field_names() == set()
    assert not any(field.required for field in schema.fields)
    (field,) = partition_spec_of(EVENTS).fields
    assert schema.find_column_name(field.source_id) == "_kafka_partition"


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"columns":[1]}', '{"columns":[{"name":"a"}]}'])
def test_a_damaged_definition_is_a_named_error(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="profiles"):
        LiveTable.from_json(text, "profiles")


def test_equal_definitions_do_not_differ() -> None:
    assert PROFILES.differences(replace(PROFILES, name="x", identifier="y.z", version=9)) == ()


def test_differences_name_what_an_alteration_would_change() -> None:
    columns = {name: spec for name, spec in SETTINGS["columns"].items() if name != "price"}
    other = LiveTable.build(**SETTINGS | {"buckets": 8, "columns": columns | {"value": "long", "new": "int"}})
    assert PROFILES.differences(other) == (
        "buckets is 16, not 8",
        "column value is string, not long",
        "column price is decimal(10,2), not absent",
        "column new is absent, not int",
    )


def test_another_order_of_columns_is_a_difference() -> None:
    other = LiveTable.build(**SETTINGS | {"columns": dict(reversed(SETTINGS["columns"].items()))})
    (difference,) = PROFILES.differences(other)
    assert difference.startswith("the columns are ordered value, app_id")


def test_columns_are_told_apart_by_their_part() -> None:
    assert [column.name for column in PROFILES.key_columns] == ["app_id", "user_id", "key"]
    assert [column.name for column in PROFILES.value_columns] == ["value", "price", "updated_at"]
    assert PROFILES.bucket_column.name == "user_id"


def test_schemas_hold_the_declared_columns_first() -> None:
    names = list(SETTINGS["columns"])
    assert PROFILES.row_schema.names == names
    assert PROFILES.records_schema.names == [*names, *PROVENANCE, "_tombstone", "_key"]
    assert PROFILES.table_schema.names == [*names, *PROVENANCE]
    assert PROFILES.row_schema.field("price").type == pa.decimal128(10, 2)
    assert PROFILES.row_schema.field("updated_at").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("table", [PROFILES, EVENTS], ids=["with a key", "without"])
def test_the_data_files_schema_is_the_iceberg_schema_in_arrow(table: LiveTable) -> None:
    iceberg = schema_to_pyarrow(table.iceberg_schema())
    ours = table.table_schema
    assert ours.names == iceberg.names
    for field in ours:
        theirs = iceberg.field(field.name)
        assert field.metadata == theirs.metadata
        assert field.nullable == theirs.nullable
        assert str(field.type) == str(theirs.type).replace("large_", "")


def test_the_iceberg_table_is_identified_by_its_key_and_bucketed_by_its_entity() -> None:
    schema = PROFILES.iceberg_schema()
    assert schema.identifier_field_names() == {"app_id", "user_id", "key"}
    assert all(schema.find_field(name).required == (name in PROFILES.key) for name in schema.column_names)
    (field,) = partition_spec_of(PROFILES).fields
    assert (field.name, str(field.transform)) == ("bucket", "bucket[16]")
    assert schema.find_column_name(field.source_id) == "user_id"


def test_a_definition_travels_to_a_worker() -> None:
    assert PROFILES.records_schema is PROFILES.records_schema
    assert pickle.loads(pickle.dumps(PROFILES)) == PROFILES
    assert hash(PROFILES) == hash(LiveTable.build(**SETTINGS))


def test_a_plain_format_and_its_column_must_fit() -> None:
    columns: dict[str, Any] = {"id": "double", "at": {"type": "timestamptz", "epoch": "ms"}}
    simple = {"columns": columns, "entity": []}
    problems = problems_of(**simple | {"key": ["at"], "key_format": "long", "format": "int"})
    assert [problem for problem in problems if "can only fill" in problem] == [
        'column at is timestamptz epoch ms, but key_format = "long" can only fill long',
        'column id is double, but format = "int" can only fill int, long',
    ]
    with_path = {"columns": {"id": "int", "n": {"type": "int", "path": "a.b"}}, "entity": [], "key": ["id"]}
    (problem,) = problems_of(**with_path | {"format": "int", "key_format": "int"})
    assert problem == 'column n has a path, but format = "int" has no fields'


def test_paths_and_the_keys_format_read_back_and_others_stay_as_they_were_stored() -> None:
    columns = {
        "id": "string",
        "city": {"type": "string", "path": "address.city"},
        "at": {"type": "timestamptz", "epoch": "ms", "path": ["a.b"]},
        "same": {"type": "string", "path": "same"},
    }
    choices = SETTINGS | {"columns": columns, "key": ["id"], "entity": []}
    table = LiveTable.build(**choices, key_format="string")
    assert LiveTable.from_json(table.to_json(), "profiles") == table
    assert [column.read_from for column in table.columns] == [
        ("id",), ("address", "city"), ("a.b",), ("same",)
    ]  # fmt: skip
    assert "key_format" not in PROFILES.to_json()
    assert "path" not in PROFILES.to_json()
    other = LiveTable.build(**choices | {"columns": columns | {"city": "string"}}, key_format="string")
    assert table.differences(other) == ('column city is string from ["address", "city"], not string',)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({"type": "string", "header": ""}, "needs the header's name"),
        ({"type": "string", "header": "h", "path": "a"}, "can't have a path"),
        ({"type": "boolean", "header": "h"}, "is boolean, but a header can only fill int"),
        (
            {"type": "timestamptz", "epoch": "ms", "header": "h"},
            "is timestamptz epoch ms, but a header can only fill",
        ),
    ],
)
def test_a_header_that_makes_no_column_is_refused(column: Any, says: str) -> None:
    (problem,) = problems_of(columns=SETTINGS["columns"] | {"value": column})
    assert says in problem


def test_a_header_is_no_key_and_is_stored() -> None:
    columns = {"id": {"type": "string", "header": "h"}, "n": {"type": "int", "header": "h"}, "text": "string"}
    (problem,) = problems_of(columns=columns, key=["id"], entity=[])
    assert problem == "the key column id can't come from a header: use the key or the value"
    table = LiveTable.build(
        **SETTINGS | {"columns": columns | {"id": "string"}, "key": ["id"], "entity": []}, format="string"
    )
    assert LiveTable.from_json(table.to_json(), "profiles") == table
    assert [column.header for column in table.columns] == ["", "h", ""]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"path": "op"}, "is not of the form"),
        ({"values": ["D"]}, "is not of the form"),
        ({"path": "op", "header": "op", "values": ["D"]}, "is not of the form"),
        ({"path": "op", "values": ["D"], "upserts": ["U"]}, "is not of the form"),
        ({"path": "a..b", "values": ["D"]}, "has a name that is empty"),
    ],
)
def test_a_rule_of_deletes_that_says_nothing_is_refused(rule: Any, says: str) -> None:
    (problem,) = problems_of(delete_when=rule)
    assert problem.startswith("delete_when: ")
    assert says in problem


@pytest.mark.parametrize(
    "rule",
    [
        {"path": "op", "values": "D"},
        {"path": ["a.b"], "values": ["D", "d"]},
        {"header": "h", "values": ["D"]},
    ],
)
def test_a_rule_of_deletes_reads_back(rule: Any) -> None:
    table = LiveTable.build(**SETTINGS, delete_when=rule)
    assert table.delete_when is not None
    assert LiveTable.from_json(table.to_json(), "profiles") == table
    assert "delete_when" not in PROFILES.to_json()
    assert len(table.differences(PROFILES)) == 1


@pytest.mark.parametrize("path", ["", "a..b", [], [""], 'a."b"'])
def test_a_path_that_leads_nowhere_is_refused(path: Any) -> None:
    (problem,) = problems_of(columns=SETTINGS["columns"] | {"value": {"type": "string", "path": path}})
    assert "has a name that is empty" in problem
