"""Fields that a writer's schema declares and that no column is read from: by path, once for each schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.thermocline.registered import Registered, framed
from thermocline.errors import RegistryUnreachable
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.decode.unread import Sampled, UnreadFields
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import canonical
from thermocline.rules.unread_paths import UnreadPaths
from thermocline.schemas.protobuf_compiler import compiled

TREE: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "plan", "type": ["null", "string"]},
        {
            "name": "address",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Address",
                    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "string"}],
                },
            ],
        },
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "price", "type": "double"},
                        {"name": "parts", "type": {"type": "map", "values": "Item"}},
                    ],
                },
            },
        },
        {"name": "extra", "type": {"type": "map", "values": "Address"}},
    ],
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Row {
  string name = 1;
  google.protobuf.StringValue plan = 2;
  Address address = 3;
  repeated Item items = 4;
  map<string, Address> extra = 5;
  google.protobuf.Timestamp at = 6;
}
message Address { string city = 1; string zip = 2; }
message Item { string sku = 1; double price = 2; map<string, Item> parts = 3; }
message Event { Row before = 1; Row after = 2; }
"""
ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": ["string", "null"]}}}
JSON: dict[str, Any] = {
    "$defs": {
        "address": ADDRESS,
        "item": {
            "properties": {
                "sku": {"type": "string"},
                "price": {"type": "number"},
                "parts": {"type": "object", "additionalProperties": {"$ref": "#/$defs/item"}},
            }
        },
    },
    "allOf": [{"properties": {"plan": {"type": "string"}}}],
    "properties": {
        "name": {"type": "string"},
        "address": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/address"}]},
        "items": {"type": ["array", "null"], "items": {"$ref": "#/$defs/item"}},
        "extra": {"type": "object", "additionalProperties": {"$ref": "#/$defs/address"}},
    },
}
COLUMNS: dict[str, Any] = {
    "id": "int",
    "name": "string",
    "city": {"type": "string", "path": "address.city"},
    "items": "list<struct<sku: string>>",
    "extra": "map<string, struct<zip: string>>",
}
UNREAD = ["plan", "address.zip", "items.price", "items.parts", "extra.city"]


def table(format_: str, **settings: Any) -> LiveTable:
    columns = settings.pop("columns", COLUMNS)
    return LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], columns=columns, format=format_, **settings
    )


def avro(schema: Any = TREE) -> WriterSchema:
    return WriterSchema((json.dumps(schema),))


def protobuf() -> WriterSchema:
    return WriterSchema(kind="PROTOBUF", descriptors=canonical(compiled({"t.proto": PROTO}, "t.proto")))


def json_schema() -> WriterSchema:
    return WriterSchema((json.dumps(JSON),), kind="JSON")


def head(id_: int, *messages: int) -> bytes:
    return b"\x00" + id_.to_bytes(4) + bytes(messages)


def test_a_schema_of_any_format_is_told_by_the_paths_that_no_column_is_read_from() -> None:
    """``items.parts`` holds items again: what nothing is read from is not looked into."""
    assert UnreadPaths(table("avro", key_format="json")).of(avro()) == tuple(UNREAD)
    message = UnreadPaths(table("protobuf", key_format="json")).of(protobuf(), head(1, 0))
    assert message == (*UNREAD, "at")
    of_json = UnreadPaths(table("json_schema", key_format="json")).of(json_schema())
    assert of_json is not None
    assert sorted(of_json) == sorted(UNREAD)


def test_what_is_read_whole_is_read_with_all_that_is_in_it() -> None:
    columns = {
        "id": "int",
        "address": "json",
        "items": "json",
        "city": {"type": "string", "path": "address.city"},
    }
    assert UnreadPaths(table("avro", key_format="json", columns=columns)).of(avro()) == (
        "name",
        "plan",
        "extra",
    )
    columns = {
        "id": "int",
        "a": {"type": "struct<sku: string>", "path": "x.a"},
        "b": {"type": "int", "path": "x.b"},
    }
    paths = UnreadPaths(table("avro", key_format="json", columns=columns))
    assert [paths.is_read(path) for path in ("x", "x.a.sku", "x.a.sku.y", "x.b")] == [True] * 4
    assert [paths.is_read(path) for path in ("y", "x.c", "x.a.price")] == [False] * 3


def test_a_change_event_is_looked_into_for_its_row() -> None:
    event = {"type": "record", "name": "E", "fields": [{"name": "after", "type": ["null", TREE]}]}
    columns = {name: COLUMNS[name] for name in ("id", "name", "city", "items", "extra")}
    columns["ts"] = {"type": "long", "event": "ts_ms"}
    events = table("avro", key_format="json", envelope="debezium", columns=columns)
    assert UnreadPaths(events).of(avro(event)) == tuple(UNREAD)
    assert UnreadPaths(events).of(avro()) is None, "an event without a row"
    messages = table("protobuf", key_format="json", envelope="debezium", columns=columns)
    assert UnreadPaths(messages).of(protobuf(), head(1, 2, 6)) == (*UNREAD, "at")


def test_a_schema_that_can_not_be_used_tells_nothing() -> None:
    paths = UnreadPaths(table("avro", key_format="json"))
    assert paths.of(WriterSchema(("no",))) is None
    assert paths.of(WriterSchema(problem="unknown")) is None
    assert paths.of(avro("string")) is None, "not a record"
    assert paths.of(WriterSchema(kind="JSON")) is None


def test_values_count_by_their_schema_which_is_asked_for_once() -> None:
    other = {**TREE, "fields": [*TREE["fields"], {"name": "new", "type": "int"}]}
    registry = Registered({1: TREE, 2: other}, "AVRO")
    fields = UnreadFields(table("avro", key_format="json"), registry)
    values = [framed(1, b"x"), framed(2, b"x"), framed(1, b"y"), None, b"", b"\x07", framed(9, b"x")]
    counts = dict.fromkeys(UNREAD, 3) | {"new": 1}
    assert fields.of(values) == Sampled(3, dict(sorted(counts.items())))
    headers = [("__value_schema_id", head(2))]
    assert fields.of([b"x"], headers_of=lambda _: headers).names == dict.fromkeys(sorted([*UNREAD, "new"]), 1)
    assert registry.asked == [1, 2, 9]


def test_a_header_counts_with_the_value_that_it_stands_beside() -> None:
    """Method: a sample takes every second value."""
    registry = Registered({1: TREE, 2: {"type": "record", "name": "R", "fields": []}}, "AVRO")
    fields = UnreadFields(table("avro", key_format="json"), registry)
    sampled = fields.of([b"x"] * 4, 2, lambda index: [("__value_schema_id", head(1 if index == 2 else 2))])
    assert sampled == Sampled(2, dict(sorted(dict.fromkeys(UNREAD, 1).items())))


def test_records_of_other_tables_do_not_count_and_headers_stay_with_their_values() -> None:
    registry = Registered({1: TREE, 2: {"type": "record", "name": "R", "fields": []}}, "AVRO")
    fields = UnreadFields(table("avro", key_format="json"), registry)
    sampled = fields.of(
        [b"x"] * 4,
        4,
        lambda index: [("__value_schema_id", head(2 if index == 3 else 1))],
        others=[0, 1],
    )
    assert sampled == Sampled(2, dict(sorted(dict.fromkeys(UNREAD, 1).items())))


def test_json_with_a_schema_is_told_by_both() -> None:
    fields = UnreadFields(table("json_schema", key_format="json"), Registered({1: JSON}, "JSON"))
    values = [framed(1, b'{"name":"a","undeclared":1}'), framed(1, b'{"plan":"x"}'), framed(1, b"null"), None]
    counts = dict.fromkeys(UNREAD, 2) | {"undeclared": 1}
    assert fields.of(values) == Sampled(2, dict(sorted(counts.items())))


def test_the_schema_of_the_definition_is_that_of_all_values() -> None:
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "plan", "type": "int"}]})
    own = table("avro", key_format="json", value_schema=schema, schema_framed=False)
    assert UnreadFields(own).of([b"\x02", None, b"\x04"]) == Sampled(2, {"plan": 2})


class Unreachable:
    def of(self, _: Any) -> WriterSchema:
        raise RegistryUnreachable(url="http://registry", detail="no")


@pytest.mark.parametrize("format_", ["avro", "protobuf", "json_schema"])
def test_counting_stops_nothing_where_the_registry_can_not_be_reached(format_: str) -> None:
    fields = UnreadFields(table(format_, key_format="json"), Unreachable())
    assert fields.of([framed(1, b"\x00{}")]).names == {}


def test_a_path_is_no_longer_told_once_a_column_is_read_from_it() -> None:
    fields = UnreadFields(table("avro", key_format="json"))
    assert [fields.is_read(path) for path in ("address.zip", "address.city", "name", "plan")] == [
        False,
        True,
        True,
        False,
    ]
