"""What Confluent's own serializers write, in each format and with schemas named in both ways.

Recorded from ``ProtobufSerializer``, ``JSONSerializer`` and ``AvroSerializer`` of confluent-kafka 2.16.1 with
its mock registry; in mode "header" with ``header_schema_id_serializer``.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.thermocline.registered import Registered
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import descriptors_of

RECORDED = [json.loads(line) for line in (Path(__file__).parent / "confluent.jsonl").read_text().splitlines()]
FORMATS = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one['name']}-{one['mode']}")
def test_a_record_of_confluents_serializers_is_read(one: dict[str, Any]) -> None:
    columns = {"name": "string"} | ({"n": "int", "at": "timestamptz"} if one["name"] == "proto" else {})
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=[], key_from="value", format=FORMATS[one["type"]],
        columns=columns,
    )  # fmt: skip
    headers = [(name, base64.b64decode(value)) for name, value in one["headers"]]
    assert bool(headers) == (one["mode"] == "header")
    schema = schema_of(one)
    registry = Registered({one["id"]: schema, UUID(one["guid"]): schema})
    decoded = decoder_for(table, registry).decode([None], [base64.b64decode(one["body"])], lambda _: headers)
    assert decoded.bad == []
    assert registry.asked == [UUID(one["guid"]) if headers else one["id"]]
    expected = {
        "name": ["Bob" if one["name"] == "flat" else "Ann"],
        "n": [5],
        "at": [datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)],
    }
    assert decoded.columns == {name: expected[name] for name in columns}


def schema_of(one: dict[str, Any]) -> WriterSchema:
    if one["type"] == "PROTOBUF":
        return WriterSchema(kind="PROTOBUF", descriptors=descriptors_of({"schema.proto": one["schema"]}))
    return WriterSchema((one["schema"],), kind=one["type"])
