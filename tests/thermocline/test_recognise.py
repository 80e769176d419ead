"""Recognition: what is proposed for records, with expected values by hand; odd input is never guessed at."""

from __future__ import annotations

import base64
import io
import json
import tomllib
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tier import quick_or_full
from thermocline.cli.init_file import table_text
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.protobuf_schema import canonical
from thermocline.rules.recognise import (
    Proposal,
    SampledRecord,
    Topic,
    Unrecognised,
    proposed,
    proposed_by_schemas,
    read_by,
    seem_to_name_schemas,
    wanted_schemas,
)
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.settings import TableSettings

READING = {
    "type": "record",
    "name": "app.Reading",
    "fields": [
        {"name": "sensor", "type": "string", "doc": 'which one\n[tables.evil]\nkey = ["x"]'},
        {"name": "count", "type": "int"},
        {"name": "degrees", "type": ["null", "float"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "site",
            "type": {"type": "record", "name": "Site", "fields": [{"name": "n", "type": "long"}]},
        },
        {"name": "odd", "type": ["null", "string", "long"]},
    ],
}
READ = {
    "sensor": "s1",
    "count": 1,
    "degrees": 1.5,
    "at": 0,
    "price": b"\x01",
    "tags": ["a"],
    "site": {"n": 1},
    "odd": 7,
}


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def body(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    return written.getvalue()


def named(id_: int, content: bytes) -> bytes:
    return b"\x00" + id_.to_bytes(4) + content


def avro(schema: Any) -> WriterSchema:
    return WriterSchema((json.dumps(schema),))


def proposal_of(
    records: Sequence[SampledRecord],
    schemas: dict[SchemaId, WriterSchema] | None = None,
    key: Sequence[str] = (),
    bad: int = 0,
    deletes: int = 0,
) -> Proposal:
    """The proposal, which is a definition that reads all records but so many."""
    found = proposed(Topic("t", 2), records, schemas or {}, key)
    reading = read_by(found.definition("x", "app.x"), records, schemas or {})
    assert (reading.bad, reading.deletes) == (bad, deletes), reading.reasons
    return found


def types_of(found: Proposal) -> dict[str, str]:
    return {column.name: column.type for column in found.columns}


def column(found: Proposal, name: str) -> Any:
    return next(one for one in found.columns if one.name == name)


def values(*rows: Any) -> list[SampledRecord]:
    """Records with these values, under plain keys."""
    return [SampledRecord(f"k{number}".encode(), text(row)) for number, row in enumerate(rows)]


# Keys


def test_an_object_in_the_key_is_the_key_in_its_order_and_a_repeated_field_is_no_column() -> None:
    found = proposal_of(
        [
            SampledRecord(b'{"app":7,"user":"a"}', b'{"user":"a","v":"x"}'),
            SampledRecord(b'{"app":7,"user":"b"}', b'{"user":"b","v":"y"}'),
            SampledRecord(b'{"app":7,"user":"b"}', None),
        ],
        deletes=1,
    )
    assert found.key == ("app", "user")
    assert types_of(found) == {"app": "long", "user": "string", "v": "string"}
    assert found.options == {}
    assert dict(found.findings) == {
        "values": "JSON objects: 2 of 2 values",
        "key": "JSON objects: 3 of 3 keys, with app, user",
    }
    assert not any(sentence.startswith("deletes:") for sentence in found.unknown)


def test_a_field_that_differs_from_the_keys_gets_a_column_of_its_own() -> None:
    found = proposal_of([SampledRecord(b'{"id":1}', b'{"id":2}'), SampledRecord(b'{"id":2}', b'{"id":2}')])
    assert found.key == ("id",)
    assert types_of(found) == {"id": "long", "value_id": "long"}
    assert column(found, "value_id").path == ("id",)


@pytest.mark.parametrize(
    ("keys", "key_format", "type_"),
    [
        ([b"u1", b"u2"], "string", "string"),
        ([b"1", b"2"], "string", "string"),
        ([(1).to_bytes(4), (2).to_bytes(4)], "int", "int"),
        ([(1).to_bytes(8), (-2).to_bytes(8, signed=True)], "long", "long"),
        ([b"\xff\xfe\x01" * 3, b"\xff\x00"], "bytes", "binary"),
    ],
)
def test_a_plain_key_is_one_column_of_its_format(keys: list[bytes], key_format: str, type_: str) -> None:
    found = proposal_of([SampledRecord(key, b'{"v":true}') for key in keys])
    assert (found.key, found.options) == (("id",), {"key_format": key_format})
    assert types_of(found) == {"id": type_, "v": "boolean"}


def test_a_plain_key_is_called_as_the_field_that_always_repeats_it_and_has_its_type() -> None:
    found = proposal_of([SampledRecord(b"%d" % n, text({"number": n, "n": "x"})) for n in (1, 2)])
    assert found.key == ("number",)
    assert types_of(found) == {"number": "long", "n": "string"}
    assert column(found, "number").evidence == 'text: 2 of 2 keys; as the value\'s "number" in 2 of 2'


def test_a_plain_key_that_one_record_repeats_may_be_chance() -> None:
    assert proposal_of([SampledRecord(b"1", b'{"n":1}')]).key == ("id",)


def test_a_plain_key_beside_a_field_called_id_gets_another_name() -> None:
    records = [SampledRecord(b"a", b'{"id":"x"}'), SampledRecord(b"b", b'{"id":"y"}')]
    found = proposal_of(records)
    assert (found.key, types_of(found)) == (("key",), {"key": "string", "id": "string"})


def test_keys_that_are_spelled_in_two_ways_are_told() -> None:
    found = proposal_of(
        [SampledRecord(b'{"a":1}', b'{"v":1}'), SampledRecord(b'{"a": 1}', b'{"v":1}', (), 1)]
    )
    assert [one for one in found.unknown if one.startswith("keys:")] == [
        (
            "keys: 1 are written in more than one way (blanks, or the order of fields), so their records may "
            "be in several partitions"
        )
    ]


def test_a_key_in_several_partitions_is_counted() -> None:
    found = proposal_of([SampledRecord(b"a", b'{"v":1}', (), part) for part in (0, 1)])
    assert any("1 of the 1 keys that were seen are in several" in one for one in found.unknown)


def test_records_without_keys_add_rows_unless_fields_are_named() -> None:
    records = [SampledRecord(None, b'{"id":1,"v":2.5}')]
    found = proposal_of(records)
    assert (found.key, found.options) == ((), {"key_from": "value"})
    assert any("all records have id" in one for one in found.unknown)
    found = proposal_of(records, key=["id"])
    assert (found.key, types_of(found)) == (("id",), {"id": "long", "v": "double"})


def test_a_time_in_a_key_stays_the_text_that_it_is() -> None:
    found = proposal_of([SampledRecord(b'{"day":"2026-01-05"}', b'{"v":"2026-01-05"}')])
    assert types_of(found) == {"day": "string", "v": "date"}


@pytest.mark.parametrize(
    ("record", "key", "why"),
    [
        (SampledRecord(b'{"a":true}', b'{"v":1}'), (), "a is boolean"),
        (SampledRecord(b"a", b'{"v":1}'), ("w",), "no field w to be a key; it has v"),
        (SampledRecord(b"a", None), (), "without a value"),
        (SampledRecord(None, b'{"op":"c","after":{"id":1}}'), (), "have none"),
        (SampledRecord(b"a", b'{"data":[{}],"isDdl":false,"pkNames":["id"],"type":"INSERT"}'), (), "Canal"),
        (SampledRecord(b"a", named(7, b"abcd")), (), "seem to name schemas"),
        (SampledRecord(b"{}", b'{"v":1}'), (), "no fields that identify a row"),
        (SampledRecord(b"k", b'{"op":"c","after":{"v":1}}'), (), "keys are no objects"),
        (SampledRecord(b'{"a\\"":1}', b'{"v":1}'), (), "no column can be called"),
    ],
)
def test_what_cannot_be_a_table_is_refused_with_the_reason(
    record: SampledRecord, key: tuple[str, ...], why: str
) -> None:
    with pytest.raises(Unrecognised, match=why) as caught:
        proposed(Topic("t"), [record], {}, key)
    assert caught.value.remedy


def test_an_empty_topic_is_refused() -> None:
    with pytest.raises(Unrecognised, match="empty"):
        proposed(Topic("t"), [], {})


# Types by what was seen


@pytest.mark.parametrize(
    ("seen", "type_"),
    [
        ([1, 2], "long"),
        ([2**63 - 1, -(2**63)], "long"),
        ([2**63, 1], "decimal(38,0)"),
        ([10**37], "decimal(38,0)"),
        ([10**38], "json"),
        ([1, 2.5], "double"),
        ([0.5, None], "double"),
        (["a", ""], "string"),
        ([True, False], "boolean"),
        ([True, 1], "json"),
        ([1, "1"], "json"),
        (["2026-01-05T10:00:00Z", "2026-01-05T10:00:00.5+02:00"], "timestamptz"),
        (["2026-01-05T10:00:00Z", "2026-01-05T10:00:00"], "string"),
        (["2026-01-05T10:00:00"], "timestamp"),
        (["2026-01-05"], "date"),
        (["2026-02-30"], "string"),
        (["00000000-0000-0000-0000-000000000001"], "string"),
        (["12:30:00"], "string"),
        (["17", "18"], "string"),
        ([1_700_000_000_000], "long"),
        ([["a"], [], [None]], "list<string>"),
        ([[1, 2]], "list<long>"),
        ([[1, "a"]], "json"),
        ([[{"a": 1}]], "json"),
        ([{"a": 1}], "json"),
        ([{}], "json"),
    ],
)
def test_a_type_is_never_narrower_than_what_was_seen(seen: list[Any], type_: str) -> None:
    found = proposal_of(values(*({"v": one} for one in seen)))
    assert types_of(found) == {"id": "string", "v": type_}


@pytest.mark.parametrize(
    ("number", "type_"),
    [
        (b"0.1234567890123456789", "decimal(38,19)"),
        (b"1e400", "json"),
        (b"1e300", "double"),
        (b"-0", "long"),
        (b"9" * 5_000, "json"),
        (b"1." + b"1" * 60, "json"),
    ],
)
def test_a_number_that_a_double_would_round_is_none(number: bytes, type_: str) -> None:
    found = proposal_of([SampledRecord(b"k", b'{"v":' + number + b"}")])
    assert types_of(found)["v"] == type_


def test_the_evidence_counts_what_was_seen_null_and_missing() -> None:
    found = proposal_of(values({"v": 1}, {"v": 2}, {"v": None}, {"w": "x"}))
    assert column(found, "v").evidence == "an integer in 2 of 4 records, null in 1, missing in 1"
    assert any(one.startswith("absent fields:") for one in found.unknown)


def test_integers_that_may_be_times_stay_integers_and_the_units_are_told() -> None:
    found = proposal_of(values({"v": 1_700_000_000_000}, {"v": 1_700_086_400_000}))
    assert column(found, "v").notes == (
        (
            "may be milliseconds since 1970 (2023-11-14 to 2023-11-15); then: "
            '{ type = "timestamptz", epoch = "ms" }'
        ),
    )


def test_an_object_is_json_and_the_struct_that_it_could_be_is_told() -> None:
    found = proposal_of(values({"v": {"city": "Oslo", "at": {"x": 1.5}}}))
    assert column(found, "v").notes[-1] == (
        'as columns within, of what was seen: "struct<city: string, at: struct<x: double>>"'
    )


def test_a_field_of_which_nothing_was_seen_is_left_out() -> None:
    found = proposal_of(values({"a": 1, "v": None, "w": []}))
    assert types_of(found) == {"id": "string", "a": "long"}
    assert [(one.name, one.why) for one in found.left_out] == [
        ("v", "null in 1 of 1 records, so its type is not known"),
        ("w", "an empty list in 1 of 1 records, so its type is not known"),
    ]


def test_names_that_no_column_may_have_are_read_by_a_path_or_left_out() -> None:
    found = proposal_of(values({"_id": 1, "bucket": 2, "a": 3, "A": 4, 'q"': 5, "$x": 6, "b.c": 7}))
    assert {one.name: one.path for one in found.columns} == {
        "id": (),
        "id_2": ("_id",),
        "bucket_": ("bucket",),
        "a": (),
        "A_2": ("A",),
        "x": ("$x",),
        "b.c": (),
    }
    assert [one.name for one in found.left_out] == ['q"']


def test_an_object_with_thousands_of_names_has_not_as_many_columns() -> None:
    found = proposal_of(values({f"n{number}": 1 for number in range(5_000)}))
    assert len(found.columns) <= 201


# Formats of values


def test_a_few_bad_records_do_not_change_what_most_are() -> None:
    records = [SampledRecord(b'{"id":%d}' % n, b'{"v":1}') for n in range(9)]
    odd = [SampledRecord(b"\xff\xfe", b"\xff"), SampledRecord(b'{"id":1}', b"not json")]
    found = proposal_of([*records, *odd], bad=2)
    assert (found.key, types_of(found)) == (("id",), {"id": "long", "v": "long"})
    assert dict(found.findings)["values"] == "JSON objects: 9 of 11 values"


@pytest.mark.parametrize(
    ("content", "format_", "type_"),
    [
        (b"dark", "string", "string"),
        (b"[1,2]", "string", "string"),
        (b"a,b,c", "string", "string"),
        (b"\xff\xfe\x00\x01\x02", "bytes", "binary"),
        ((7).to_bytes(8), "long", "long"),
    ],
)
def test_a_value_that_is_no_object_is_one_column(content: bytes, format_: str, type_: str) -> None:
    found = proposal_of([SampledRecord(b"k", content)])
    assert (found.options["format"], types_of(found)) == (format_, {"id": "string", "value": type_})


def test_lines_with_separators_are_told_to_be_one_column() -> None:
    found = proposal_of([SampledRecord(b"k", b"a,b,c"), SampledRecord(b"l", b"d,e,f")])
    assert "3 fields" in column(found, "value").notes[0]


def test_deeply_nested_and_endless_json_is_no_object() -> None:
    deep = b'{"v":' * 600 + b"1" + b"}" * 600
    assert (
        proposal_of([SampledRecord(b"k", deep), SampledRecord(b"l", b'{"v":')]).options["format"] == "string"
    )


# Change events


def test_debeziums_events_are_rows_after_the_change() -> None:
    found = proposal_of(
        [
            SampledRecord(b'{"id":1}', b'{"op":"c","before":null,"after":{"id":1,"name":"Ann"}}'),
            SampledRecord(b'{"id":1}', b'{"op":"d","before":{"id":1},"after":null}'),
            SampledRecord(b'{"id":1}', None),
        ],
        deletes=2,
    )
    assert (found.key, found.options) == (("id",), {"envelope": "debezium"})
    assert types_of(found) == {"id": "long", "name": "string"}
    assert any(one.startswith("times:") for one in found.unknown)


def test_types_of_debeziums_schemas_count() -> None:
    row = {
        "type": "struct",
        "optional": True,
        "field": "after",
        "fields": [
            {"field": "id", "type": "int32"},
            {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
            {"field": "day", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
            {"field": "seen", "type": "string", "name": "io.debezium.time.ZonedTimestamp", "optional": True},
            {
                "field": "total",
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "2", "connect.decimal.precision": "12"},
            },
        ],
    }
    schema = {"type": "struct", "fields": [row, {"field": "op", "type": "string"}]}
    after = {"id": 1, "at": 1, "day": 2, "seen": None, "total": base64.b64encode(b"\x07").decode()}
    key = {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}, "payload": {"id": 1}}
    event = {"schema": schema, "payload": {"op": "c", "after": after}}
    found = proposal_of([SampledRecord(text(key), text(event))])
    assert types_of(found) == {
        "id": "int",
        "at": "timestamp",
        "day": "date",
        "seen": "timestamptz",
        "total": "decimal(12,2)",
    }


def test_flattened_events_say_by_a_field_that_a_row_is_gone() -> None:
    found = proposal_of(
        [
            SampledRecord(b'{"id":1}', b'{"id":1,"n":"a","__deleted":"false"}'),
            SampledRecord(b'{"id":1}', b'{"id":1,"n":null,"__deleted":"true"}'),
        ],
        deletes=1,
    )
    assert found.options == {"delete_when": {"path": ["__deleted"], "values": ["true"]}}
    assert types_of(found) == {"id": "long", "n": "string"}


def test_maxwells_keys_are_columns_without_their_prefix() -> None:
    key, row = {"database": "d", "table": "t", "pk.id": 1}, {"id": 1, "n": "a"}
    found = proposal_of([SampledRecord(text(key), text({"type": "insert", "data": row}))])
    assert (found.key, found.options) == (("id",), {"envelope": "maxwell"})
    assert column(found, "id").path == ("pk.id",)
    assert types_of(found) == {"id": "long", "n": "string"}


def test_a_field_called_op_is_no_change_event() -> None:
    found = proposal_of(values({"op": "c", "v": 1}))
    assert (found.options["key_format"], "envelope" in found.options) == ("string", False)


# Schemas


def test_avro_has_the_types_of_its_schema_and_its_words_stay_one_line() -> None:
    records = [SampledRecord(b"s1", named(3, body(READING, READ))) for _ in range(2)]
    assert wanted_schemas(records) == [3]
    assert seem_to_name_schemas(records)
    found = proposal_of(records, {3: avro(READING)})
    assert (found.key, found.options) == (("sensor",), {"format": "avro", "key_format": "string"})
    assert types_of(found) == {
        "sensor": "string",
        "count": "int",
        "degrees": "double",
        "at": "timestamptz",
        "price": "decimal(9,2)",
        "tags": "list<string>",
        "site": "struct<n: long>",
        "odd": "json",
    }
    assert column(found, "count").evidence == "int in schema 3"


def test_a_schema_in_a_header_counts() -> None:
    header = (("__value_schema_id", named(3, b"")),)
    found = proposal_of([SampledRecord(b"k", body(READING, READ), header)], {3: avro(READING)})
    assert found.options["format"] == "avro"


def test_types_that_changed_from_schema_to_schema_take_both() -> None:
    def schema(type_: str, other: str) -> Any:
        fields = [{"name": "a", "type": type_}, {"name": "b", "type": other}]
        return {"type": "record", "name": "R", "fields": fields}

    old, new = schema("int", "string"), schema("long", "long")
    records = [
        SampledRecord(b"k", named(1, body(old, {"a": 1, "b": "x"}))),
        SampledRecord(b"k", named(2, body(new, {"a": 1, "b": 1}))),
    ]
    found = proposal_of(records, {1: avro(old), 2: avro(new)})
    assert types_of(found) == {"id": "string", "a": "long", "b": "json"}


def test_an_avro_key_that_is_one_value_is_one_column() -> None:
    records = [SampledRecord(named(1, body("string", "k")), named(3, body(READING, READ)))]
    found = proposal_of(records, {1: avro("string"), 3: avro(READING)})
    assert (found.key, found.options) == (("id",), {"format": "avro"})


def test_debezium_in_avro_is_told_by_its_schema() -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
    event = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    written = body(event, {"before": None, "after": {"id": 1}, "op": "c"})
    found = proposal_of([SampledRecord(b'{"id":1}', named(9, written))], {9: avro(event)})
    assert found.options == {"format": "avro", "key_format": "json", "envelope": "debezium"}
    assert found.key == ("id",)


def test_eight_bytes_that_begin_like_a_schemas_id_are_a_number_where_no_registry_knows_it() -> None:
    found = proposal_of([SampledRecord((1 << 30).to_bytes(8), b'{"v":1}')])
    assert found.options == {"key_format": "long"}
    assert column(found, "id").notes == (
        "they may also be documents that name schemas, which only a registry tells",
    )


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Status { OPEN = 0; PAID = 1; }
message Address { string city = 1; Address parent = 2; }
message Order {
  int32 pieces = 1;
  uint64 big = 2;
  Status status = 3;
  google.protobuf.Timestamp placed = 4;
  Address address = 5;
  repeated string tags = 6;
  map<string, double> scores = 7;
  map<int32, string> others = 8;
  google.protobuf.StringValue note = 9;
  bytes raw = 10;
}
"""


def test_protobuf_has_the_types_of_its_message() -> None:
    schema = WriterSchema(kind="PROTOBUF", descriptors=canonical(compiled({"o.proto": PROTO}, "o.proto")))
    records = [SampledRecord(b"o1", named(4, b"\x02\x02" + b"\x08\x03"))]
    found = proposal_of(records, {4: schema})
    assert found.options == {"format": "protobuf", "key_format": "string"}
    assert types_of(found) == {
        "id": "string",
        "pieces": "int",
        "big": "long",
        "status": "string",
        "placed": "timestamptz",
        "address": "struct<city: string, parent: json>",
        "tags": "list<string>",
        "scores": "map<string, double>",
        "others": "json",
        "note": "string",
        "raw": "binary",
    }


def test_json_that_names_a_schema_is_read_by_what_was_seen() -> None:
    records = [SampledRecord(b"k", named(5, b'{"v":1}'))]
    found = proposal_of(records, {5: WriterSchema(kind="JSON")})
    assert found.options == {"format": "json_schema", "key_format": "string"}
    assert types_of(found) == {"id": "string", "v": "long"}


def test_an_empty_topic_is_proposed_by_the_registrys_schemas_of_key_and_value() -> None:
    found = proposed_by_schemas(Topic("t"), 1, 3, {1: avro("string"), 3: avro(READING)})
    assert (found.key, found.options) == (("id",), {"format": "avro"})
    assert "sensor" in types_of(found)
    with pytest.raises(Unrecognised, match="no registry has a schema t-key"):
        proposed_by_schemas(Topic("t"), None, 3, {3: avro(READING)})
    found = proposed_by_schemas(Topic("t"), None, 3, {3: avro(READING)}, ["sensor"])
    assert (found.key, found.options) == (("sensor",), {"format": "avro", "key_from": "value"})


# The topic


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (Topic("t", kept_ms=604_800_000), "keeps records for 7 days"),
        (Topic("t", kept_ms=3_600_000), "keeps records for 1 hours"),
        (Topic("t", is_compacted=True), "is compacted"),
        (Topic("t"), "deletes no record for its age"),
        (Topic("t", is_hidden=True), "can't be read"),
    ],
)
def test_what_the_topic_keeps_is_told(topic: Topic, said: str) -> None:
    found = proposed(topic, values({"v": 1}), {})
    (sentence,) = [one for one in found.unknown if one.startswith("retention:")]
    assert said in sentence


# Anything at all

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "2026-01-05", "2026-01-05T10:00:00Z", "12:00:00", "1", "1.5", "\u2028"]),
)  # fmt: skip
NAMES = st.sampled_from(
    ["id", "key", "_id", "ID", "bucket", "value", "op", "after", "data", "type", "", 'q"', "a.b"]
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=5)
TEXTS = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.sampled_from([b"u1", b"u2", (7).to_bytes(4), (7).to_bytes(8), b"\x00\x00\x00\x00\x01abcd"]),
    OBJECTS.map(text),
    OBJECTS.map(lambda row: text({"op": "c", "after": row})),
    OBJECTS.map(lambda row: text({"type": "insert", "data": row})),
    OBJECTS.map(lambda row: text({"schema": None, "payload": row})),
    OBJECTS.map(lambda row: text({**row, "__deleted": "false"})),
)
RECORDS = st.lists(
    st.builds(SampledRecord, TEXTS, TEXTS, st.just(()), st.integers(0, 1)), min_size=1, max_size=6
)


@settings(max_examples=quick_or_full(100, 1_500))
@given(RECORDS, st.sampled_from([(), ("id",), ("id", "key")]))
def test_whatever_the_records_are_a_proposal_is_a_definition_and_its_text_says_it(
    records: list[SampledRecord], key: tuple[str, ...]
) -> None:
    try:
        found = proposed(Topic("t", 2), records, {}, key)
    except Unrecognised:
        return
    definition = found.definition("t", "app.t")
    reading = read_by(definition, records, {})
    assert reading.records == len(records)
    written = tomllib.loads(table_text(definition, found, "some records"))["tables"]["t"]
    assert TableSettings.model_validate(written).definition("t").to_json() == definition.to_json()
