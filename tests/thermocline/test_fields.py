"""Values without any of the table's fields, and records that are too large."""

from __future__ import annotations

from typing import Any

import pytest

from tests.thermocline.registered import Registered, framed
from thermocline.rules.decode import Stage, decoder_for
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.schemas.protobuf_compiler import compiled

KEY = b'{"id":1}'


def table(columns: dict[str, Any] | None = None, **settings: Any) -> LiveTable:
    return LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["t"],
        key=["id"],
        columns={"id": "int", **({"name": "string", "plan": "string"} if columns is None else columns)},
        **settings,
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"Name":"Ann"}', '"Name"; column name is read from "name", and case counts'),
        (b'{"x":1,"y":2}', '"x", "y"'),
        (b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}', '"a", "b", "c", "d", "e", ...'),
    ],
)
def test_a_value_with_none_of_the_fields_is_bad(value: bytes, reason: str) -> None:
    (bad,) = decoder_for(table()).decode([KEY], [value]).bad
    assert (bad.stage, bad.reason) == (
        Stage.CONTRACT,
        f"the value has none of the table's fields, but {reason}",
    )


@pytest.mark.parametrize("value", [b"{}", b'{"name":null}', b'{"plan":null,"x":1}', b" { } ", b'{"id":1}'])
def test_an_empty_object_and_a_null_field_make_a_row_of_nulls(value: bytes) -> None:
    decoded = decoder_for(table()).decode([KEY], [value])
    assert (decoded.bad, decoded.columns) == ([], {"id": [1], "name": [None], "plan": [None]})


def test_any_value_is_taken_where_the_table_says_so_or_reads_no_field() -> None:
    records = [KEY], [b'{"x":1}']
    assert decoder_for(table(require_fields=False)).decode(*records).bad == []
    assert decoder_for(table({})).decode(*records).bad == []
    assert decoder_for(table({"source": {"type": "string", "header": "source"}})).decode(*records).bad == []


def test_a_partial_update_of_no_column_is_bad_and_a_change_event_without_the_columns_too() -> None:
    (bad,) = decoder_for(table(partial_updates=True)).decode([KEY], [b'{"x":1}']).bad
    assert bad.reason == 'the value has none of the table\'s fields, but "x"'
    event = b'{"op":"c","after":{"Id":1,"NAME":"Ann"}}'
    (bad,) = decoder_for(table(envelope="debezium")).decode([KEY], [event]).bad
    assert bad.reason.endswith('but "Id", "NAME"; column id is read from "id", and case counts')


def test_a_record_that_is_too_large_is_bad_and_no_other() -> None:
    value = b'{"name":"' + b"x" * 89 + b'"}'
    decoded = decoder_for(table(record_bytes_max=108)).decode(
        [KEY, KEY, KEY], [value, b'{"name":"a"}', value + b" "]
    )
    assert decoded.columns["name"] == ["x" * 89, "a"]
    (bad,) = decoded.bad
    assert (bad.index, bad.stage) == (2, Stage.DECODE)
    assert bad.reason == "109 bytes, more than record_bytes_max = 108"


def test_tables_without_these_settings_are_stored_as_before() -> None:
    assert "require_fields" not in table().to_json()
    stored = table(require_fields=False, record_bytes_max=7).to_json()
    assert LiveTable.from_json(stored, "t") == table(require_fields=False, record_bytes_max=7)


AVRO_OTHER = {"type": "record", "name": "Other", "fields": [{"name": "Name", "type": "string"}]}
AVRO_OURS = {"type": "record", "name": "Ours", "fields": [{"name": "name", "type": "string"}]}
AVRO_EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "op", "type": "string"}, {"name": "after", "type": ["null", AVRO_OTHER]}],
}
ANN = b"\x06Ann"
NONE_BUT_NAME = (
    'the value has none of the table\'s fields, but "Name"; column name is read from "name", and case counts'
)


def test_an_avro_record_with_none_of_the_fields_is_bad_and_not_its_neighbour_of_another_type() -> None:
    registry = Registered({1: [AVRO_OURS, AVRO_OTHER]})
    values = [framed(1, b"\x02" + ANN), framed(1, b"\x00" + ANN)]
    decoder = decoder_for(table(format="avro", key_format="json"), registry)
    decoded = decoder.decode([KEY, b'{"id":2}'], values)
    assert [(one.index, one.reason) for one in decoded.bad] == [(0, NONE_BUT_NAME)]
    assert decoded.columns == {"id": [2], "name": ["Ann"], "plan": [None]}
    anything = decoder_for(table(format="avro", key_format="json", require_fields=False), registry).decode(
        [KEY], values[:1]
    )
    assert (anything.bad, anything.columns) == ([], {"id": [1], "name": [None], "plan": [None]})


def test_an_avro_change_event_of_another_table_is_bad() -> None:
    decoder = decoder_for(
        table(format="avro", key_format="json", envelope="debezium"), Registered({1: AVRO_EVENT})
    )
    decoded = decoder.decode([KEY, KEY], [framed(1, b"\x02c\x02" + ANN), framed(1, b"\x02d\x00")])
    assert [(one.index, one.reason) for one in decoded.bad] == [(0, NONE_BUT_NAME)]
    assert decoded.tombstones == [True]  # the delete, which has no row


PROTOBUF = """
syntax = "proto3";
message Other { string Name = 1; }
message Ours { string name = 1; }
message Event { string op = 1; Other after = 2; }
"""


def test_a_protobuf_message_with_none_of_the_fields_is_bad() -> None:
    descriptors = compiled({"schema.proto": PROTOBUF}, "schema.proto")
    registry = Registered({1: WriterSchema(kind="PROTOBUF", descriptors=descriptors)})
    ann = b"\x0a\x03Ann"
    values = [framed(1, b"\x00" + ann), framed(1, b"\x02\x02" + ann)]  # messages 0 and 1
    decoded = decoder_for(table(format="protobuf", key_format="json"), registry).decode(
        [KEY, b'{"id":2}'], values
    )
    assert [(one.index, one.reason) for one in decoded.bad] == [(0, NONE_BUT_NAME)]
    assert (decoded.columns["id"], decoded.columns["name"]) == ([2], ["Ann"])
    event = framed(1, b"\x02\x04" + b"\x0a\x01c\x12\x05" + ann)
    decoder = decoder_for(table(format="protobuf", key_format="json", envelope="debezium"), registry)
    delete = framed(1, b"\x02\x04" + b"\x0a\x01d")
    decoded = decoder.decode([KEY, KEY], [event, delete])
    assert [(one.index, one.reason) for one in decoded.bad] == [(0, NONE_BUT_NAME)]
    assert decoded.tombstones == [True]
