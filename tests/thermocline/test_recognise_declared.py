"""Definitions proposed by schemas alone: Avro, Protobuf, JSON Schema, and subjects of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.thermocline.registry_server import RegistryServer
from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.recognise import (
    DeclaredSchema,
    Proposal,
    SampledRecord,
    Topic,
    Unrecognised,
    proposed_by_declared,
    proposed_by_schemas,
    read_by,
)
from thermocline.rules.recognise.json_schema_fields import parse_json_schema
from thermocline.schemas.registry import SchemaRegistry
from thermocline.schemas.sources import NoSuchSchema, schema_named

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "order_id", "type": "long", "doc": "its number"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {
            "name": "buyer",
            "type": {
                "type": "record",
                "name": "Buyer",
                "fields": [{"name": "mail", "type": ["null", "string"]}],
            },
        },
    ],
}
TOPIC = Topic("orders")


def types_of(found: Proposal) -> dict[str, str]:
    return {column.name: column.type for column in found.columns}


def json_schema(schema: Any) -> DeclaredSchema:
    return DeclaredSchema("orders.json", WriterSchema((json.dumps(schema),), kind="JSON"), is_framed=False)


def fields_of(**properties: Any) -> dict[str, str | None]:
    """The types of properties, by name."""
    schema = parse_json_schema(json.dumps({"type": "object", "properties": properties}))
    return {field.name: field.type for field in schema.fields()}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.start()
    yield server
    server.stop()


# JSON Schema


def test_the_types_of_json_schema() -> None:
    found = fields_of(
        n={"type": "integer"},
        huge={"type": "integer", "maximum": 2**64},
        small={"type": "integer", "connect.type": "int32"},
        x={"type": "number"},
        b={"type": "boolean"},
        s={"type": "string"},
        at={"type": "string", "format": "date-time"},
        day={"type": "string", "format": "date"},
        id={"type": "string", "format": "uuid"},
        clock={"type": "string", "format": "time"},
        raw={"type": "string", "contentEncoding": "base64"},
        maybe={"type": ["null", "integer"]},
        either={"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
        number={"anyOf": [{"type": "integer"}, {"type": "number"}]},
        several={"type": ["integer", "string"]},
        word={"enum": ["a", "b", None]},
        fixed={"const": 7},
        nothing={"type": "null"},
        anything={},
        never=False,
    )
    assert found == {
        "n": "long",
        "huge": "decimal(38,0)",
        "small": "int",
        "x": "double",
        "b": "boolean",
        "s": "string",
        "at": "timestamptz",
        "day": "date",
        "id": "uuid",
        "clock": "string",
        "raw": "binary",
        "maybe": "long",
        "either": "date",
        "number": "double",
        "several": "json",
        "word": "string",
        "fixed": "long",
        "nothing": None,
        "anything": "json",
        "never": "json",
    }


def test_what_is_nested_in_json_schema() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": ["string", "null"]}}}
    found = fields_of(
        place=inner,
        places={"type": "array", "items": inner},
        tags={"type": "array", "items": {"type": "string"}},
        pair={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
        by_name={"type": "object", "additionalProperties": {"type": "number"}},
        open={"type": "object"},
        mixed={**inner, "additionalProperties": {"type": "string"}},
        odd={"type": "object", "properties": {"X": {"type": "integer"}, "x": {"type": "integer"}}},
        both={"allOf": [inner, {"properties": {"z": {"type": "boolean"}}}]},
    )
    assert found == {
        "place": "struct<x: long, y: string>",
        "places": "list<struct<x: long, y: string>>",
        "tags": "list<string>",
        "pair": "json",
        "by_name": "map<string, double>",
        "open": "json",
        "mixed": "json",
        "odd": "json",
        "both": "struct<x: long, y: string, z: boolean>",
    }


def test_references_are_followed_within_the_document_and_end_where_they_come_back() -> None:
    schema = {
        "$ref": "#/$defs/Order",
        "$defs": {
            "Order": {
                "type": "object",
                "properties": {
                    "id": {"$ref": "#/$defs/Id"},
                    "buyer": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Person"}]},
                    "parent": {"$ref": "#/$defs/Order"},
                    "loop": {"$ref": "#/$defs/Loop"},
                    "elsewhere": {"$ref": "https://example.com/other.json"},
                },
            },
            "Id": {"type": "integer"},
            "Person": {"type": "object", "properties": {"id": {"$ref": "#/$defs/Id"}}},
            "Loop": {"$ref": "#/$defs/Loop"},
        },
    }
    found = {field.name: field.type for field in parse_json_schema(json.dumps(schema)).fields()}
    assert found["id"] == "long"
    assert found["buyer"] == "struct<id: long>"
    assert found["loop"] == found["elsewhere"] == "json"
    assert found["parent"] == (
        "struct<id: long, buyer: struct<id: long>, parent: json, loop: json, elsewhere: json>"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"type":"string"}', "no properties"),
        ('{"$ref":"#"}', "no properties"),
        ('{"type":"object"}', "no properties"),
    ],
)
def test_what_declares_no_properties_is_refused(text: str, why: str) -> None:
    with pytest.raises(SchemaInvalid, match=why):
        parse_json_schema(text)


def types_in(schema: Any) -> dict[str, str | None]:
    return {field.name: field.type for field in parse_json_schema(json.dumps(schema)).fields()}


def test_what_stands_beside_a_reference_or_alternatives_holds_too() -> None:
    """Each of three places has one of the properties: the root, what it refers to, and parts of both."""
    schema = {
        "$ref": "#/$defs/base",
        "properties": {"own": {"type": "string"}},
        "allOf": [{"properties": {"part": {"type": "boolean"}}}],
        "$defs": {
            "base": {
                "properties": {"id": {"type": "integer"}},
                "allOf": [{"properties": {"far": {"type": "number"}}}],
            }
        },
    }
    assert types_in(schema) == {"own": "string", "id": "long", "part": "boolean", "far": "double"}
    either = {"oneOf": [{"properties": {"b": {"type": "integer"}}}, {"properties": {"c": {"type": "null"}}}]}
    inner = {"type": "object", "properties": {"a": {"type": "string"}}, **either}
    assert types_in({"properties": {"x": inner}}) == {"x": "json"}, "two objects, which have a alike"


def test_alternatives_of_what_is_required_are_one_object() -> None:
    properties = {"mail": {"type": "string"}, "phone": {"type": "string"}}
    either = {"anyOf": [{"required": ["mail"]}, {"required": ["phone"]}]}
    schema = {"type": "object", "properties": properties, **either}
    assert types_in(schema) == {"mail": "string", "phone": "string"}
    assert types_in({"properties": {"x": schema}}) == {"x": "struct<mail: string, phone: string>"}


def test_references_are_followed_where_they_are_pointers_and_are_anything_where_not() -> None:
    schema = {
        "properties": {
            "item": {"$ref": "#/$defs/of%20lists/oneOf/1"},
            "named": {"$ref": "#place"},
            "beyond": {"$ref": "#/$defs/of lists/oneOf/7"},
        },
        "$defs": {
            "of lists": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "place": {"$anchor": "place", "type": "string"},
        },
    }
    assert types_in(schema) == {"item": "long", "named": "json", "beyond": "json"}


def test_null_is_told_in_each_of_the_ways_that_there_are() -> None:
    ways: dict[str, Any] = {
        "types": {"type": ["string", "null"]},
        "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "const": {"oneOf": [{"type": "string"}, {"const": None}]},
        "enum": {"enum": ["a", None]},
        "openapi": {"type": "string", "nullable": True},
        "by reference": {"anyOf": [{"$ref": "#/properties/plain"}, {"type": "null"}]},
        "plain": {"type": "string"},
    }
    schema = {"properties": ways, "required": list(ways)}
    fields = parse_json_schema(json.dumps(schema)).fields()
    assert {field.name: field.type for field in fields} == dict.fromkeys(ways, "string")
    assert [field.name for field in fields if field.is_always_there] == ["plain"]


def test_a_few_lines_that_mean_endless_values_are_refused() -> None:
    names = [f"l{level}" for level in range(5)]  # 20 values each, and so 160,000 in the last
    schema = {
        "properties": {"x": {"$ref": "#/$defs/l0"}},
        "$defs": {
            name: {"type": "object", "properties": {f"p{n}": {"$ref": f"#/$defs/{below}"} for n in range(20)}}
            for name, below in pairwise(names)
        },
    }
    with pytest.raises(SchemaInvalid, match="more than 100,000 values"):
        parse_json_schema(json.dumps(schema)).fields()
    deep = '{"anyOf":[' * 900 + '{"type":"integer"}' + "]}" * 900
    with pytest.raises(SchemaInvalid, match=r"too deep|not JSON"):
        parse_json_schema(f'{{"properties":{{"x":{deep}}}}}').fields()


def test_descriptions_evidence_and_what_a_type_loses_are_told() -> None:
    schema = {
        "properties": {
            "n": {"type": "integer", "description": "its number"},
            "x": {"type": ["number", "null"]},
            "place": {"type": "object", "properties": {"x": {"type": "integer"}}},
            "shut": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "additionalProperties": False,
            },
            "at": {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp"},
        },
        "required": ["n", "x"],
    }
    fields = {field.name: field for field in parse_json_schema(json.dumps(schema)).fields()}
    assert (fields["n"].doc, fields["n"].evidence, fields["n"].is_always_there) == (
        "its number",
        "integer",
        True,
    )
    assert (fields["x"].evidence, fields["x"].is_always_there) == ("number or null", False)
    assert fields["place"].notes == (
        "fields that the schema doesn't declare are not kept; json would keep all",
    )
    assert fields["shut"].notes == ()
    assert 'epoch = "ms"' in fields["at"].notes[0]


def test_a_json_schema_of_values_makes_a_table_that_reads_its_documents() -> None:
    schema = json_schema(
        {
            "properties": {
                "id": {"type": "string"},
                "at": {"type": "string", "format": "date-time"},
                "buyer": {"type": "object", "properties": {"mail": {"type": "string"}}},
            }
        }
    )
    found = proposed_by_declared(TOPIC, None, schema, ["id"])
    assert (found.key, dict(found.options)) == (("id",), {"key_from": "value"})
    assert types_of(found) == {"id": "string", "at": "timestamptz", "buyer": "struct<mail: string>"}
    document = b'{"id":"o1","at":"2026-01-05T10:00:00Z","buyer":{"mail":"a@b"}}'
    read = read_by(found.definition("orders", "app.orders"), [SampledRecord(None, document)], {})
    assert (read.records, read.bad) == (1, 0)


def test_debeziums_events_are_told_by_a_json_schema() -> None:
    row = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    schema = json_schema({"properties": {"before": row, "after": row, "op": {"type": "string"}}})
    key = json_schema({"properties": {"id": {"type": "integer"}}})
    found = proposed_by_declared(TOPIC, key, schema)
    assert (found.key, found.options["envelope"]) == (("id",), "debezium")
    assert types_of(found) == {"id": "long", "name": "string"}


# Keys


def test_a_plain_key_is_one_column_and_no_key_is_every_record_a_row() -> None:
    avro = DeclaredSchema("order.avsc", WriterSchema((json.dumps(ORDER),)), is_framed=False)
    plain = proposed_by_declared(TOPIC, "string", avro)
    assert (plain.key, plain.options["key_format"]) == (("id",), "string")
    none = proposed_by_declared(TOPIC, None, avro)
    assert (none.key, none.options["key_from"]) == ((), "value")
    with pytest.raises(Unrecognised, match="no field nothing"):
        proposed_by_declared(TOPIC, None, avro, ["nothing"])


def test_the_fields_of_the_keys_schema_are_the_key_and_no_columns_twice() -> None:
    key = {"type": "record", "name": "K", "fields": [{"name": "order_id", "type": "long"}]}
    found = proposed_by_declared(
        TOPIC,
        DeclaredSchema("k.avsc", WriterSchema((json.dumps(key),)), is_framed=False),
        DeclaredSchema("v.avsc", WriterSchema((json.dumps(ORDER),)), is_framed=False),
    )
    assert found.key == ("order_id",)
    assert list(types_of(found)) == ["order_id", "at", "price", "buyer"]
    assert json.loads(found.options["key_schema"]) == key


# Files


def test_an_avro_file_is_the_schema_of_all_records(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    named = schema_named(str(tmp_path / "order.avsc"), None)
    found = proposed_by_declared(TOPIC, "string", DeclaredSchema(named.called, named.schema, False))
    assert types_of(found) == {
        "id": "string",
        "order_id": "long",
        "at": "timestamptz",
        "price": "decimal(12,2)",
        "buyer": "struct<mail: string>",
    }
    assert dict(found.findings)["values"] == "Avro, of order.avsc"
    (order_id,) = [one for one in found.columns if one.name == "order_id"]
    assert (order_id.comment, order_id.evidence) == ("its number", "long in order.avsc")
    body = io.BytesIO()
    row = {"order_id": 7, "at": 0, "price": b"\x01", "buyer": {"mail": None}}
    fastavro.schemaless_writer(body, fastavro.parse_schema(ORDER), row)
    definition = found.definition("orders", "app.orders")
    assert read_by(definition, [SampledRecord(b"k", body.getvalue())], {}).bad == 0


def test_a_protobuf_file_has_its_message_named_and_its_comments_kept(tmp_path: Path) -> None:
    (tmp_path / "shop.proto").write_text(
        'syntax = "proto3"; package shop;\n'
        'import "google/protobuf/timestamp.proto";\n'
        "message Buyer { string mail = 1; }\n"
        "message Order {\n"
        "  // its number\n"
        "  int64 order_id = 1;\n"
        "  google.protobuf.Timestamp at = 2; // when it was made\n"
        "  repeated Buyer buyers = 3;\n"
        "  message Line { string sku = 1; // what\n }\n"
        "  map<string, Line> lines = 4;\n"
        "}\n"
    )
    path = str(tmp_path / "shop.proto")
    with pytest.raises(NoSuchSchema, match=r"shop.Buyer, shop.Order; say it as shop.proto#MESSAGE"):
        schema_named(path, None)
    named = schema_named(f"{path}#shop.Order", None)
    assert {name: said for name, said in named.docs.items() if name.startswith("shop.")} == {
        "shop.Order": {"order_id": "its number", "at": "when it was made"},
        "shop.Order.Line": {"sku": "what"},
    }
    found = proposed_by_declared(
        TOPIC, None, DeclaredSchema(named.called, named.schema, False, named.docs), ["order_id"]
    )
    assert types_of(found) == {
        "order_id": "long",
        "at": "timestamptz",
        "buyers": "list<struct<mail: string>>",
        "lines": "map<string, struct<sku: string>>",
    }
    definition = found.definition("orders", "app.orders")
    assert {one.name: one.comment for one in definition.columns if one.comment} == {
        "order_id": "its number",
        "at": "when it was made",
    }
    assert found.options["value_message"] == "shop.Order"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.avsc", "{", "no schema that can be used"),
        ("a.avsc", '{"type":"nothing"}', "no schema that can be used"),
        ("a.json", '{"type":"string"}', "declares no properties"),
        ("a.proto", "message", "no schema that can be used"),
        ("gone.avsc", None, "No such file"),
        ("no-such-subject", None, "no registry is configured"),
    ],
)
def test_what_is_no_schema_says_why(tmp_path: Path, name: str, content: str | None, why: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(NoSuchSchema, match=why):
        schema_named(str(tmp_path / name), None)


def test_a_json_file_with_a_record_of_avro_is_avro(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    assert schema_named(str(tmp_path / "order.json"), None).schema.kind == "AVRO"


# The registry


def test_a_subject_says_what_init_says_of_an_empty_topic(registry: RegistryServer) -> None:
    registry.add(3, ORDER)
    registry.schemas["/subjects/orders-value/versions/latest"] = {"id": 3}
    asked = SchemaRegistry(registry.url)
    named = schema_named("orders-value", asked)
    assert named.called == "schema 3 of orders-value"
    found = proposed_by_declared(TOPIC, None, DeclaredSchema(named.called, named.schema), ["order_id"])
    by_init = proposed_by_schemas(TOPIC, None, 3, {3: asked.of(3)}, ["order_id"])
    ours, theirs = (one.definition("orders", "app.orders").to_json() for one in (found, by_init))
    assert ours == theirs
    assert json.loads(ours).get("value_schema") is None
    with pytest.raises(NoSuchSchema, match="has no such subject"):
        schema_named("others-value", asked)


def test_a_json_schema_of_the_registry_proposes_columns_for_an_empty_topic(registry: RegistryServer) -> None:
    schema = {"properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}
    registry.add(5, schema, schemaType="JSON")
    schemas: dict[SchemaId, WriterSchema] = {5: SchemaRegistry(registry.url).of(5)}
    found = proposed_by_schemas(TOPIC, None, 5, schemas, ["id"])
    assert (types_of(found), found.options["format"]) == ({"id": "long", "at": "string"}, "json_schema")
