"""Which columns a record leaves as they are, in other formats than JSON."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from tests.thermocline import test_debezium_protobuf, test_debezium_schemas
from tests.thermocline.registered import Registered, framed
from tests.thermocline.test_avro import written
from thermocline.rules.decode import Decoded, Stage, decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import UNAVAILABLE, LiveTable
from thermocline.rules.protobuf_schema import message_at
from thermocline.schemas.protobuf_compiler import compiled

COLUMNS: dict[str, Any] = {
    "id": "string",
    "n": "int",
    "ratio": "double",
    "city": {"type": "string", "path": "address.city"},
    "zip": {"type": "string", "path": "address.zip"},
}
CITY = {"type": "record", "name": "City", "fields": [{"name": "city", "type": ["null", "string"]}]}
ZIP = {"type": "record", "name": "Zip", "fields": [{"name": "zip", "type": "string"}]}
AVRO: dict[SchemaId, Any] = {
    1: {"type": "record", "name": "R", "fields": []},
    2: {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "int"]}]},
    3: {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "address", "type": ["null", CITY, ZIP]},
            {"name": "ratio", "type": ["int", "double", "null"]},
        ],
    },
    4: {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]},
}
PROTOBUF = """
syntax = "proto3";
message R {
  optional int32 n = 1;
  Address address = 2;
  double ratio = 3;
  optional string id = 4;
  message Address { optional string city = 1; }
}
"""


def table(format_: str, **options: Any) -> LiveTable:
    return LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], format=format_, partial_updates=True,
        columns=COLUMNS, **{"key_format": "string"} | options,
    )  # fmt: skip


def avro(number: int, value: dict[str, Any]) -> bytes:
    return framed(number, written(fastavro.parse_schema(json.loads(json.dumps(AVRO[number]))), value))


def left_and_set(decoded: Decoded) -> list[tuple[set[str], dict[str, Any]]]:
    """Of each row, which columns it leaves as they are, and what it sets the others to."""
    assert decoded.absent is not None
    rows = []
    for place, absent in enumerate(decoded.absent):
        row = {name: values[place] for name, values in decoded.columns.items() if name != "id"}
        assert all(row[name] is None for name in absent)
        rows.append((set(absent), {name: value for name, value in row.items() if name not in absent}))
    return rows


def test_what_the_schema_of_an_avro_record_lacks_stays_and_null_is_null() -> None:
    values = [
        avro(1, {}),
        avro(2, {"n": 5}),
        avro(2, {"n": None}),
        avro(3, {"address": ("City", {"city": "Oslo"}), "ratio": 0.5}),
        avro(3, {"address": ("City", {"city": None}), "ratio": None}),
        avro(3, {"address": ("Zip", {"zip": "0150"}), "ratio": 1.5}),
        avro(3, {"address": None, "ratio": None}),
        avro(3, {"address": None, "ratio": 1}),
        None,
    ]
    decoded = decoder_for(table("avro"), Registered(AVRO)).decode([b"a"] * len(values), values)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(7, Stage.CONTRACT)]  # an int is no double
    assert left_and_set(decoded) == [
        ({"n", "ratio", "city", "zip"}, {}),
        ({"ratio", "city", "zip"}, {"n": 5}),
        ({"ratio", "city", "zip"}, {"n": None}),
        ({"n", "zip"}, {"ratio": 0.5, "city": "Oslo"}),
        ({"n", "zip"}, {"ratio": None, "city": None}),
        ({"n", "city"}, {"ratio": 1.5, "zip": "0150"}),
        ({"n"}, {"ratio": None, "city": None, "zip": None}),
        (set(), {"n": None, "ratio": None, "city": None, "zip": None}),
    ]


def test_what_is_not_there_in_a_protobuf_record_stays_and_fields_without_presence_are_set() -> None:
    descriptors = compiled({"r.proto": PROTOBUF}, "r.proto")
    of = message_at(descriptors, (0,))
    registry = Registered({7: WriterSchema(kind="PROTOBUF", descriptors=descriptors)})
    messages = [of(), of(n=0, ratio=0.5), of(address={}), of(address={"city": ""})]
    values = [*[framed(7, b"\x00" + one.SerializeToString()) for one in messages], None]
    decoded = decoder_for(table("protobuf"), registry).decode([b"a"] * len(values), values)
    assert decoded.bad == []
    assert left_and_set(decoded) == [
        ({"n", "city", "zip"}, {"ratio": 0.0}),
        ({"city", "zip"}, {"n": 0, "ratio": 0.5}),
        ({"n", "city", "zip"}, {"ratio": 0.0}),
        ({"n", "zip"}, {"ratio": 0.0, "city": ""}),
        (set(), {"n": None, "ratio": None, "city": None, "zip": None}),
    ]


def test_a_key_in_the_value_is_never_left_out() -> None:
    options = {"key_from": "value", "key_format": None}
    decoder = decoder_for(table("avro", **options), Registered(AVRO))
    decoded = decoder.decode([None] * 2, [avro(2, {"n": 5}), avro(4, {"id": "a"})])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, Stage.KEY)]
    assert (decoded.columns["id"], left_and_set(decoded)) == (["a"], [({"n", "ratio", "city", "zip"}, {})])
    descriptors = compiled({"r.proto": PROTOBUF}, "r.proto")
    of = message_at(descriptors, (0,))
    registry = Registered({7: WriterSchema(kind="PROTOBUF", descriptors=descriptors)})
    values = [framed(7, b"\x00" + one.SerializeToString()) for one in (of(n=5), of(id="a"))]
    decoded = decoder_for(table("protobuf", **options), registry).decode([None] * 2, values)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, Stage.KEY)]


def test_json_behind_the_id_of_a_schema_is_as_json_is() -> None:
    values = [{}, {"n": 5}, {"n": None, "address": {}}, {"address": {"city": "Oslo"}}, {"address": None}]
    texts = [json.dumps(value).encode() for value in values]
    plain = decoder_for(table("json")).decode([b"a"] * len(values), texts)
    registry = Registered({7: {}}, "JSON")
    decoded = decoder_for(table("json_schema"), registry).decode(
        [b"a"] * len(values), [framed(7, text) for text in texts]
    )
    assert decoded == plain
    assert left_and_set(decoded)[1] == ({"ratio", "city", "zip"}, {"n": 5})


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_a_value_that_a_change_event_leaves_out_stays_and_all_others_are_set(format_: str) -> None:
    of: Any = {"avro": test_debezium_schemas, "protobuf": test_debezium_protobuf}[format_]
    columns = {"id": "int", "name": "string", "photo": "binary", "tags": "list<string>", "none": "string"}
    definition = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], format=format_, envelope="debezium",
        columns=columns, partial_updates=True,
    )  # fmt: skip
    registry = test_debezium_schemas.REGISTRY if format_ == "avro" else test_debezium_protobuf.registry()
    key = of.body(1, {"id": 7}) if format_ == "avro" else of.body(1, id=7)
    values = [
        of.event("u", of.row(name="Ann", photo=UNAVAILABLE.encode(), tags=["a"])),
        of.event("u", of.row(name=UNAVAILABLE, tags=[UNAVAILABLE])),
        of.event("d", of.row(name=UNAVAILABLE)),
    ]
    decoded = decoder_for(definition, registry).decode([key] * len(values), values)
    assert decoded.bad == []
    assert left_and_set(decoded) == [
        ({"photo"}, {"name": "Ann", "tags": ["a"], "none": None}),
        ({"name", "tags"}, {"photo": None, "none": None}),
        (set(), {"name": None, "photo": None, "tags": None, "none": None}),
    ]


def test_a_row_that_got_another_key_is_bad_without_all_of_its_values() -> None:
    """As in JSON: its large value is that of the row with the former key."""
    of = test_debezium_schemas
    definition = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], envelope="debezium", format="avro",
        partial_updates=True, columns={"id": "int", "name": "string"},
    )  # fmt: skip
    values = [of.event(op, of.row(name=UNAVAILABLE)) for op in ("c", "u")]
    decoded = decoder_for(definition, of.REGISTRY).decode([of.body(1, {"id": 7})] * 2, values)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, Stage.CONTRACT)]
    assert decoded.absent == [("name",)]
