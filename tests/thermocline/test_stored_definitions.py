"""Definitions as tables carry them: by literal texts, which tables out there have."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from thermocline.rules.definition import LiveTable

BASE: dict[str, Any] = {
    "name": "t",
    "identifier": "app.t",
    "topics": ["t"],
    "key": ["id"],
    "columns": {"id": "int", "v": "string"},
}
# Messages app.K, of an int32 id, and app.V, of a string v.
SCHEMA = "CjcKB2EucHJvdG8SA2FwcCIPCgFLEgoKAmlkGAEgASgFIg4KAVYSCQoBdhgBIAEoCWIGcHJvdG8z"
STORED: list[tuple[dict[str, Any], str]] = [
    (
        {},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "entity": ["id"],
            "buckets": 4,
            "format_version": 2,
            "transactional": True,
            "suppress_unchanged": True,
            "on_error": "fail",
        },
        '{"buckets":4,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":2,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"fail","provenance_id":3,"suppress_unchanged":true,"topics":["t"],"transactional":true,"version":1}',
    ),
    (
        {
            "key": ["a", "id"],
            "entity": ["a"],
            "columns": {
                "a": "int",
                "id": "string",
                "v": {"type": "decimal(8,2)", "path": "x.y"},
                "h": {"type": "string", "header": "H"},
                "m": {"type": "timestamptz", "epoch": "ms"},
            },
            "on_error": {"key": "fail", "contract": "skip"},
        },
        '{"buckets":16,"columns":[{"id":1,"name":"a","type":"int"},{"id":2,"name":"id","type":"string"},{"id":3,"name":"v","path":["x","y"],"type":"decimal(8,2)"},{"header":"H","id":4,"name":"h","type":"string"},{"epoch":"ms","id":5,"name":"m","type":"timestamptz"}],"entity":["a"],"format":"json","format_version":3,"identifier":"app.t","key":["a","id"],"key_from":"key","on_error":{"contract":"skip","decode":"quarantine","key":"fail"},"provenance_id":6,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"key": [], "key_from": "value", "format": "json"},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":[],"format":"json","format_version":3,"identifier":"app.t","key":[],"key_from":"value","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "key_format": "string",
            "columns": {"id": "string", "v": "json"},
            "delete_when": {"path": "op", "values": ["D"]},
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"string"},{"id":2,"name":"v","type":"json"}],"delete_when":{"path":["op"],"values":["D"]},"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_format":"string","key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"contract": {"columns": {"v": {"new_columns": "ignore"}}, "evolve_after": 50, "mode": "evolve"}},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"contract":{"columns":{"v":{"new_columns":"ignore"}},"evolve_after":50,"mode":"evolve"},"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"partial_updates": True, "require_fields": False, "record_bytes_max": 1000},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","partial_updates":true,"provenance_id":3,"record_bytes_max":1000,"require_fields":false,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"columns": {"id": "int", "v": "string", "n": "long"}, "sequence_by": ["n"]},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"},{"id":3,"name":"n","type":"long"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":4,"sequence_by":["n"],"suppress_unchanged":false,"tombstone_retention_hours":168,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "columns": {"id": "int", "v": "string", "n": "long"},
            "sequence_by": ["n"],
            "tombstone_retention_hours": 24,
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"},{"id":3,"name":"n","type":"long"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":4,"sequence_by":["n"],"suppress_unchanged":false,"tombstone_retention_hours":24,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "envelope": "debezium",
            "columns": {"id": "int", "v": "string", "lsn": {"type": "long", "event": "source.lsn"}},
            "sequence_by": ["lsn"],
            "unavailable_value_placeholder": "hex:00",
            "binary_encoding": "hex",
        },
        '{"binary_encoding":"hex","buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"},{"event":["source","lsn"],"id":3,"name":"lsn","type":"long"}],"entity":["id"],"envelope":"debezium","format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":4,"sequence_by":["lsn"],"suppress_unchanged":false,"tombstone_retention_hours":168,"topics":["t"],"transactional":false,"unavailable_value_placeholder":"hex:00","version":1}',
    ),
    (
        {
            "format": "avro",
            "key_format": "json",
            "value_schema": '{"type":"record","name":"R","fields":[{"name":"v","type":"string"}]}',
            "schema_framed": True,
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"avro","format_version":3,"identifier":"app.t","key":["id"],"key_format":"json","key_from":"key","on_error":"quarantine","provenance_id":3,"schema_framed":true,"suppress_unchanged":false,"topics":["t"],"transactional":false,"value_schema":"{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[{\\"name\\":\\"v\\",\\"type\\":\\"string\\"}]}","version":1}',
    ),
    (
        {"buckets": 4, "file_buckets": 8, "version": 3, "provenance_id": 9, "field_ids": {"id": 1, "v": 5}},
        '{"buckets":4,"columns":[{"id":1,"name":"id","type":"int"},{"id":5,"name":"v","type":"string"}],"entity":["id"],"file_buckets":8,"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":9,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":3}',
    ),
    (
        {"columns": {"id": "int", "s": "struct<a: int, b: list<string>>"}},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"ids":[7,8,9],"name":"s","type":"struct<a: int, b: list<string>>"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"format": "protobuf"},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"protobuf","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"topics": ["t", "log.1"], "topic_patterns": [r"log\.\d+"], "version": 2},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topic_patterns":["log\\\\.\\\\d+"],"topics":["t","log.1"],"transactional":false,"version":2}',
    ),
    (
        {"envelope": "maxwell"},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"envelope":"maxwell","format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "format": "protobuf",
            "key_schema": SCHEMA,
            "key_message": "app.K",
            "value_schema": SCHEMA,
            "value_message": "app.V",
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"protobuf","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","key_message":"app.K","key_schema":"CjcKB2EucHJvdG8SA2FwcCIPCgFLEgoKAmlkGAEgASgFIg4KAVYSCQoBdhgBIAEoCWIGcHJvdG8z","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"value_message":"app.V","value_schema":"CjcKB2EucHJvdG8SA2FwcCIPCgFLEgoKAmlkGAEgASgFIg4KAVYSCQoBdhgBIAEoCWIGcHJvdG8z","version":1}',
    ),
    (
        {
            "format": "protobuf",
            "key_format": "avro",
            "key_schema": '{ "type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}] }',
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"protobuf","format_version":3,"identifier":"app.t","key":["id"],"key_format":"avro","key_from":"key","key_schema":"{\\"type\\":\\"record\\",\\"name\\":\\"K\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"int\\"}]}","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "delete_when": {"header": "op", "values": "D"},
            "columns": {"id": "int", "v": {"type": "string", "header": "Hé"}},
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"header":"H\\u00e9","id":2,"name":"v","type":"string"}],"delete_when":{"header":"op","values":["D"]},"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "topics": ["b", "a"],
            "key_from": "value",
            "format": "json_schema",
            "on_error": {"key": "skip", "decode": "skip", "contract": "skip"},
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json_schema","format_version":3,"identifier":"app.t","key":["id"],"key_from":"value","on_error":"skip","provenance_id":3,"suppress_unchanged":false,"topics":["b","a"],"transactional":false,"version":1}',
    ),
    (
        {"key_format": "uuid", "format": "bytes", "columns": {"id": "uuid", "v": "binary"}},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"uuid"},{"id":2,"name":"v","type":"binary"}],"entity":["id"],"format":"bytes","format_version":3,"identifier":"app.t","key":["id"],"key_format":"uuid","key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {"key_format": "json", "format": "json"},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "key": ["c", "b", "a"],
            "entity": ["c", "b"],
            "columns": {
                "a": "long",
                "b": "date",
                "c": "uuid",
                "w": {"type": "timestamp", "epoch": "us"},
                "d": {"type": "date", "epoch": "d", "path": ["x.y", "z"]},
                "e": "map<string, timestamptz epoch ms>",
                "f": "boolean",
                "g": "double",
            },
            "suppress_unchanged": True,
        },
        '{"buckets":16,"columns":[{"id":1,"name":"a","type":"long"},{"id":2,"name":"b","type":"date"},{"id":3,"name":"c","type":"uuid"},{"epoch":"us","id":4,"name":"w","type":"timestamp"},{"epoch":"d","id":5,"name":"d","path":["x.y","z"],"type":"date"},{"id":6,"ids":[13,14],"name":"e","type":"map<string, timestamptz epoch ms>"},{"id":7,"name":"f","type":"boolean"},{"id":8,"name":"g","type":"double"}],"entity":["c","b"],"format":"json","format_version":3,"identifier":"app.t","key":["c","b","a"],"key_from":"key","on_error":"quarantine","provenance_id":9,"suppress_unchanged":true,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "envelope": "debezium",
            "partial_updates": True,
            "key_format": "avro",
            "format": "avro",
            "columns": {"id": "int", "v": "string", "op": {"type": "string", "event": "op"}},
            "transactional": True,
            "require_fields": False,
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"},{"event":["op"],"id":3,"name":"op","type":"string"}],"entity":["id"],"envelope":"debezium","format":"avro","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","partial_updates":true,"provenance_id":4,"require_fields":false,"suppress_unchanged":false,"topics":["t"],"transactional":true,"version":1}',
    ),
    (
        {
            "key": ["id"],
            "entity": ["id"],
            "columns": {
                "id": "int",
                "v": {"type": "list<struct<a: int>>", "path": "v"},
                "s": "struct<x: string>",
            },
            "field_ids": {"id": 1, "v": 2, "s": 7},
            "nested_ids": {"v": [10, 11], "s": [12]},
            "provenance_id": 3,
            "version": 12,
            "buckets": 8,
            "file_buckets": 8,
        },
        '{"buckets":8,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"ids":[10,11],"name":"v","type":"list<struct<a: int>>"},{"id":7,"ids":[12],"name":"s","type":"struct<x: string>"}],"entity":["id"],"file_buckets":8,"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":12}',
    ),
    (
        {
            "key": [],
            "key_from": "value",
            "format": "avro",
            "value_schema": '{"type":"record","name":"R","fields":[{"name":"id","type":"int"},{"name":"v","type":"string"}]}',
            "buckets": 1,
            "on_error": "skip",
            "record_bytes_max": 1,
        },
        '{"buckets":1,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":[],"format":"avro","format_version":3,"identifier":"app.t","key":[],"key_from":"value","on_error":"skip","provenance_id":3,"record_bytes_max":1,"suppress_unchanged":false,"topics":["t"],"transactional":false,"value_schema":"{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"int\\"},{\\"name\\":\\"v\\",\\"type\\":\\"string\\"}]}","version":1}',
    ),
    (
        {
            "binary_encoding": "base64-url-safe",
            "columns": {"id": "int", "v": "binary"},
            "envelope": "debezium",
            "unavailable_value_placeholder": "ähm",
        },
        '{"binary_encoding":"base64-url-safe","buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"binary"}],"entity":["id"],"envelope":"debezium","format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"unavailable_value_placeholder":"\\u00e4hm","version":1}',
    ),
    (
        {
            "columns_by_schema": True,
            "format": "avro",
            "key_format": "json",
            "where": {"schema": "name", "is": "a"},
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"columns_by_schema":true,"entity":["id"],"format":"avro","format_version":3,"identifier":"app.t","key":["id"],"key_format":"json","key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1,"where":[{"in":["a"],"schema":"name"}]}',
    ),
    (
        {"values_at": {"field": "x.y"}},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"values_at":{"field":["x","y"]},"version":1}',
    ),
    (
        {
            "columns": {"id": "int", "v": "string", "day": {"type": "date", "topic": "log\\.(.*)"}},
            "where": [
                {"header": "h", "matches": "a.*", "not": True},
                {"field": "x.y", "in": ["b", "a"]},
            ],
            "unless": [[{"topic": "(.).*", "is": "z"}], []],
            "delete_unmatched": True,
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"},{"id":3,"name":"day","topic":"log\\\\.(.*)","type":"date"}],"delete_unmatched":true,"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":4,"suppress_unchanged":false,"topics":["t"],"transactional":false,"unless":[[],[{"in":["z"],"topic":"(.).*"}]],"version":1,"where":[{"field":["x","y"],"in":["a","b"]},{"header":"h","matches":"a.*","not":true}]}',
    ),
    (
        {
            "sequence_by": ["n", "m"],
            "columns": {
                "id": "int",
                "v": "string",
                "n": {"type": "long", "header": "n"},
                "m": {"type": "timestamptz", "event": ["ts.ms"], "epoch": "ms"},
            },
            "envelope": "debezium",
            "tombstone_retention_hours": 87600,
            "format_version": 2,
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"},{"header":"n","id":3,"name":"n","type":"long"},{"epoch":"ms","event":["ts.ms"],"id":4,"name":"m","type":"timestamptz"}],"entity":["id"],"envelope":"debezium","format":"json","format_version":2,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":5,"sequence_by":["n","m"],"suppress_unchanged":false,"tombstone_retention_hours":87600,"topics":["t"],"transactional":false,"version":1}',
    ),
    (
        {
            "format": "json",
            "tombstone_retention_hours": 168,
            "require_fields": True,
            "record_bytes_max": 33554432,
            "binary_encoding": "base64",
            "unavailable_value_placeholder": "__debezium_unavailable_value",
            "envelope": "plain",
            "delete_when": None,
            "key_schema": None,
            "schema_framed": False,
            "partial_updates": False,
            "sequence_by": [],
        },
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
]


@pytest.mark.parametrize(("settings", "text"), STORED)
def test_a_definition_is_stored_as_it_always_was_and_read_back(settings: dict[str, Any], text: str) -> None:
    table = LiveTable.build(**(BASE | settings))
    assert table.to_json() == text
    assert LiveTable.from_json(text, "t") == table


def test_every_option_is_in_one_of_the_texts() -> None:
    stored = {option for _, text in STORED for option in json.loads(text)}
    assert stored == {option.name for option in fields(LiveTable)} - {"name"}
