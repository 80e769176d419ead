"""Definitions as tables carry them: by literal texts, which tables out there have."""

from __future__ import annotations

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
        {"envelope": "maxwell"},
        '{"buckets":16,"columns":[{"id":1,"name":"id","type":"int"},{"id":2,"name":"v","type":"string"}],"entity":["id"],"envelope":"maxwell","format":"json","format_version":3,"identifier":"app.t","key":["id"],"key_from":"key","on_error":"quarantine","provenance_id":3,"suppress_unchanged":false,"topics":["t"],"transactional":false,"version":1}',
    ),
]


@pytest.mark.parametrize(("settings", "text"), STORED)
def test_a_definition_is_stored_as_it_always_was_and_read_back(settings: dict[str, Any], text: str) -> None:
    table = LiveTable.build(**(BASE | settings))
    assert table.to_json() == text
    assert LiveTable.from_json(text, "t") == table
