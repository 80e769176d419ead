"""Keys and values with their schema beside them, as Kafka Connect's JsonConverter writes them."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from thermocline.errors import ConfigInvalid
from thermocline.rules.decode import Decoded, Stage, decoder_for
from thermocline.rules.definition import LiveTable

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
MONEY = {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}
VARIABLE = {
    "type": "struct",
    "name": f"{DATA}VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)
LOCAL = MOMENT.replace(tzinfo=None)
CLOCK = time(9, 33, 0, 123_000)
ID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


def named(type_: str, name: str = "") -> dict[str, Any]:
    return {"type": type_, "optional": True} | ({"name": name} if name else {})


def struct(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [type_ | {"field": name} for name, type_ in fields.items()]}


def table(columns: dict[str, Any], **settings: Any) -> LiveTable:
    return LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], columns={"id": "int", **columns}, **settings
    )


def whole(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def decode(definition: LiveTable, *values: bytes | None) -> Decoded:
    return decoder_for(definition).decode([b'{"id":1}'] * len(values), values)


# What is written, its declared type, the column's type, and the column's value.
GOOD: list[tuple[Any, Any, Any, Any]] = [
    ("1234", MONEY, "decimal(10,2)", Decimal("-26588.24")),
    ("B88=", MONEY, "decimal(10,2)", Decimal("19.99")),
    (19.99, MONEY, "decimal(10,2)", Decimal("19.99")),
    ({"scale": 3, "value": "B88="}, VARIABLE, "decimal(10,3)", Decimal("1.999")),
    ("19.99", named("string"), "decimal(10,2)", Decimal("19.99")),
    (19.5, named("double"), "decimal(10,2)", Decimal("19.50")),
    (19_782, named("int32", f"{CONNECT}Date"), "date", date(2024, 2, 29)),
    (19_782, named("int32", f"{TIME}Date"), "date", date(2024, 2, 29)),
    (19_782, named("int32", f"{TIME}Date"), {"type": "date", "epoch": "d"}, date(2024, 2, 29)),
    (19_782, named("int32", f"{CONNECT}Date"), {"type": "date", "epoch": "d"}, date(2024, 2, 29)),
    (1_709_209_815_250, named("int64", f"{CONNECT}Timestamp"), "timestamptz", MOMENT),
    (1_709_209_815_250, named("int64", f"{TIME}Timestamp"), "timestamptz", MOMENT),
    (1_709_209_815_250, named("int64", f"{TIME}Timestamp"), "timestamp", LOCAL),
    (1_709_209_815_250_000, named("int64", f"{TIME}MicroTimestamp"), "timestamptz", MOMENT),
    (1_709_209_815_250_000, named("int64", f"{TIME}MicroTimestamp"), "timestamp", LOCAL),
    (1_709_209_815_250_000_000, named("int64", f"{TIME}NanoTimestamp"), "timestamptz", MOMENT),
    (
        1_709_209_815_250_000,
        named("int64", f"{TIME}MicroTimestamp"),
        {"type": "timestamp", "epoch": "us"},
        LOCAL,
    ),
    (1_709_209_815_250, named("int64"), {"type": "timestamptz", "epoch": "ms"}, MOMENT),
    (3_600_000, named("int64", f"{TIME}NanoTime"), "json", "3600000"),
    (34_380_123, named("int32", f"{CONNECT}Time"), "time", CLOCK),
    (34_380_123, named("int32", f"{TIME}Time"), "time", CLOCK),
    (34_380_123_000, named("int64", f"{TIME}MicroTime"), "time", CLOCK),
    (34_380_123_000_000, named("int64", f"{TIME}NanoTime"), "time", CLOCK),
    (34_380_123, named("int32", f"{CONNECT}Time"), {"type": "time", "epoch": "ms"}, CLOCK),
    (34_380_123, named("int32", f"{TIME}Time"), {"type": "time", "epoch": "ms"}, CLOCK),
    (34_380_123_000, named("int64", f"{TIME}MicroTime"), {"type": "time", "epoch": "us"}, CLOCK),
    (34_380_123, named("int32"), {"type": "time", "epoch": "ms"}, CLOCK),
    ("09:33:00.123", named("string"), "time", CLOCK),
    ("09:33:00+01:00", named("string", f"{TIME}ZonedTime"), "string", "09:33:00+01:00"),
    (2024, named("int32", f"{TIME}Year"), "int", 2024),
    ("2024-02-29T13:30:15.25+01:00", named("string", f"{TIME}ZonedTimestamp"), "timestamptz", MOMENT),
    (
        "2024-02-29T12:30:15.25Z",
        named("string", f"{TIME}ZonedTimestamp"),
        "string",
        "2024-02-29T12:30:15.25Z",
    ),
    ("AQL/", named("bytes"), "binary", b"\1\2\xff"),
    ("high", named("string", f"{DATA}Enum"), "string", "high"),
    (ID, named("string", f"{DATA}Uuid"), "uuid", UUID(ID)),
    (ID, named("string", f"{DATA}Uuid"), "string", ID),
    ('{"a": [1]}', named("string", f"{DATA}Json"), "json", '{"a": [1]}'),
    ('{"a": [1]}', named("string", f"{DATA}Json"), "string", '{"a": [1]}'),
    ({"a": 1}, struct(a=named("int32")), "json", '{"a": 1}'),
    (7, named("int16"), "int", 7),
    (7, named("int64"), "double", 7.0),
    (True, named("boolean"), "boolean", True),
    ({"é": "B88="}, struct(é=MONEY), "struct<é: decimal(10,2), b: int>", {"é": Decimal("19.99"), "b": None}),
    (["B88=", None], {"type": "array", "items": MONEY}, "list<decimal(10,2)>", [Decimal("19.99"), None]),
    (
        {"a": 19_782},
        {"type": "map", "keys": named("string"), "values": named("int32", f"{TIME}Date")},
        "map<string, date>",
        {"a": date(2024, 2, 29)},
    ),
]
# The same, and what the reason says.
BAD: list[tuple[Any, Any, Any, str]] = [
    ("B88=", MONEY, "decimal(10,1)", "does not fit decimal(10,1) without rounding"),
    ("19.99", MONEY, "decimal(10,2)", "not padded base64"),
    ("B88=", MONEY, "string", "a value of type decimal(38,2)"),
    ("B88=", MONEY, "double", "a value of type decimal(38,2)"),
    ({"scale": 3, "value": "B88="}, VARIABLE, "string", "VariableScaleDecimal"),
    (19_782, named("int32", f"{TIME}Date"), "int", f"a value of type {TIME}Date"),
    (19_782, named("int32", f"{TIME}Date"), "timestamptz", f"a value of type {TIME}Date"),
    (1_709_209_815_250, named("int64", f"{CONNECT}Timestamp"), "timestamp", "a timestamptz takes it"),
    (1_709_209_815_250_000_001, named("int64", f"{TIME}NanoTimestamp"), "timestamptz", "with nanoseconds"),
    (
        1_709_209_815_250,
        named("int64", f"{TIME}Timestamp"),
        {"type": "timestamp", "epoch": "us"},
        f"{TIME}Timestamp",
    ),
    (
        1_709_209_815_250,
        named("int64", f"{CONNECT}Timestamp"),
        {"type": "timestamptz", "epoch": "us"},
        "Timestamp",
    ),
    (1_709_209_815_250, named("int64", f"{TIME}MicroTimestamp"), "long", f"{TIME}MicroTimestamp"),
    (3_600_000, named("int32", f"{CONNECT}Time"), "int", f"{CONNECT}Time"),
    (3_600_000, named("int32", f"{TIME}Time"), "int", f"{TIME}Time"),
    (3_600_000, named("int64", f"{TIME}MicroTime"), "long", f"{TIME}MicroTime"),
    ("2024-02-29T12:30:15.25Z", named("string", f"{TIME}ZonedTimestamp"), "timestamp", "ZonedTimestamp"),
    ("09:33:00Z", named("string", f"{TIME}ZonedTime"), "time", "not a time of day of the form HH:MM:SS"),
    (86_400_000, named("int32", f"{CONNECT}Time"), "time", "not a time of day from 00:00:00"),
    (-1, named("int64", f"{TIME}MicroTime"), "time", "not a time of day from 00:00:00"),
    (34_380_123_000_001, named("int64", f"{TIME}NanoTime"), "time", "with nanoseconds"),
    (34_380_123, named("int32", f"{TIME}Time"), {"type": "time", "epoch": "us"}, f"{TIME}Time"),
    (34_380_123_000, named("int64", f"{TIME}MicroTime"), "timestamp", f"{TIME}MicroTime"),
    (1_709_209_815_250, named("int64", f"{CONNECT}Timestamp"), "time", f"{CONNECT}Timestamp"),
    ("AQL_", named("bytes"), "binary", "not padded base64"),
    ("AQL/", named("bytes"), "string", "a value of type bytes"),
    ("AQL/", named("bytes"), "decimal(10,2)", "a value of type bytes"),
    ('{"a": [1', named("string", f"{DATA}Json"), "json", "truncated"),
    ({"é": "B88="}, struct(é=MONEY), "struct<é: string>", "a value of type decimal(38,2)"),
    (["B88="], {"type": "array", "items": MONEY}, "decimal(10,2)", "not a decimal number"),
]


def decoded_in(around: str, declared: Any, column: Any, *written: Any) -> Decoded:
    """Rows of one column, flattened or in Debezium's change events."""
    row = struct(v=declared)
    if around == "plain":
        values = [whole(row, {"v": one}) for one in written]
    else:
        event = struct(after=row, op=named("string"))
        values = [whole(event, {"op": "c", "after": {"v": one}}) for one in written]
    return decode(table({"v": column}, envelope=around), *values)


@pytest.mark.parametrize("around", ["plain", "debezium"])
@pytest.mark.parametrize(("written", "declared", "column", "expected"), GOOD)
def test_a_value_means_what_its_schema_declares(
    written: Any, declared: Any, column: Any, expected: Any, around: str
) -> None:
    decoded = decoded_in(around, declared, column, written, None)
    assert decoded.bad == []
    assert repr(decoded.columns["v"]) == repr([expected, None])


@pytest.mark.parametrize("around", ["plain", "debezium"])
@pytest.mark.parametrize(("written", "declared", "column", "reason"), BAD)
def test_a_value_that_contradicts_its_column_is_bad_and_null_is_null(
    written: Any, declared: Any, column: Any, reason: str, around: str
) -> None:
    decoded = decoded_in(around, declared, column, written, None)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, Stage.CONTRACT)]
    assert reason in decoded.bad[0].reason
    assert decoded.columns["v"] == [None]


ROW = struct(id=named("int32"), name=named("string"), paid=MONEY)
DELETE = b'{"schema":null,"payload":null}'


def test_flattened_events_are_read_without_their_schemas_and_a_null_payload_deletes() -> None:
    definition = table({"name": "string", "paid": "decimal(10,2)"})
    ann, bare = {"id": 1, "name": "Ann", "paid": "B88="}, {"id": 1, "name": "Bob", "paid": 2.5}
    decoded = decode(
        definition,
        whole(ROW, ann),
        json.dumps(bare).encode(),
        whole(None, bare),
        whole({}, bare),
        DELETE,
        whole(ROW, None),
        None,
    )
    assert decoded.bad == []
    assert decoded.tombstones == [False] * 4 + [True] * 3
    assert decoded.columns["name"] == ["Ann", "Bob", "Bob", "Bob", None, None, None]
    assert decoded.columns["paid"][:4] == [Decimal("19.99"), *[Decimal("2.50")] * 3]


def test_a_key_is_read_by_its_own_schema_and_a_value_by_its_own() -> None:
    """Here the same number is a day in the key and milliseconds in the value."""
    definition = LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["t"],
        key=["day"],
        columns={"day": "date", "seen": "timestamptz"},
    )
    key = whole(struct(day=named("int32", f"{CONNECT}Date")), {"day": 1})
    value = whole(struct(day=named("int32"), seen=named("int64", f"{CONNECT}Timestamp")), {"seen": 1})
    wrong = whole(struct(day=named("int64", f"{CONNECT}Timestamp")), {"day": 1})
    missing = whole(struct(day=named("int64", f"{CONNECT}Timestamp")), {"day": None})
    keys = [key, b'{"day":"1970-01-03"}', DELETE, wrong, missing]
    decoded = decoder_for(definition).decode(keys, [value, None, value, value, value])
    assert decoded.columns["day"] == [date(1970, 1, 2), date(1970, 1, 3)]
    assert decoded.columns["seen"] == [datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC), None]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(n, Stage.KEY) for n in (2, 3, 4)]
    assert decoded.bad[0].reason == "the record has no key"


def test_a_tombstone_of_the_converter_deletes_in_change_events_too() -> None:
    decoded = decode(table({"name": "string"}, envelope="debezium"), DELETE, b'{"op":"t"}')
    assert (decoded.tombstones, [bad.index for bad in decoded.bad]) == ([True], [1])


def test_a_table_whose_keys_are_in_the_values_takes_no_null_for_a_row() -> None:
    definition = table({"name": "string", "paid": "decimal(10,2)"}, key_from="value")
    decoded = decode(definition, whole(ROW, {"id": 7, "name": "Ann", "paid": "B88="}), DELETE)
    assert (decoded.columns["id"], decoded.columns["paid"]) == ([7], [Decimal("19.99")])
    assert [(bad.index, bad.reason) for bad in decoded.bad] == [(1, "the value is empty")]


def test_fields_of_these_names_stay_what_they_are_where_a_column_is_read_from_them() -> None:
    value = whole(ROW, {"name": "Ann"})
    by_path = table({"name": {"type": "string", "path": "payload.name"}})
    as_text = table({"schema": "json"})
    as_header = table({"schema": {"type": "string", "header": "schema"}, "name": "string"})
    assert decode(by_path, value).columns["name"] == ["Ann"]
    assert decode(as_text, value).columns["schema"] == [json.dumps(ROW)]
    assert decode(as_header, value).columns["name"] == ["Ann"]
    deleting = table({"name": "string"}, delete_when={"path": "payload.name", "values": ["Ann"]})
    assert decode(deleting, value).tombstones == [True]


def test_a_payload_may_say_that_its_record_deletes() -> None:
    deleting = table({"name": "string"}, delete_when={"path": "__deleted", "values": ["true"]})
    row = {"id": 1, "name": None, "__deleted": "true"}
    decoded = decode(deleting, whole(ROW, row), whole(ROW, row | {"name": "Ann", "__deleted": "false"}))
    assert (decoded.tombstones, decoded.columns["name"]) == ([True, False], [None, "Ann"])


def test_with_partial_updates_the_fields_of_the_payload_are_those_that_are_set() -> None:
    definition = table({"name": "string", "paid": "decimal(10,2)"}, partial_updates=True)
    decoded = decode(definition, whole(ROW, {"paid": "B88="}), whole(ROW, {"name": None}))
    assert decoded.absent == [("name",), ("paid",)]
    assert decoded.columns["paid"] == [Decimal("19.99"), None]


def test_what_an_event_says_around_its_row_is_read_by_the_schema_too() -> None:
    columns = {"seen": {"type": "timestamptz", "event": "ts"}, "name": "string"}
    event = struct(op=named("string"), after=ROW, ts=named("int64", f"{TIME}MicroTimestamp"))
    definition = table(columns, envelope="debezium")
    decoded = decode(definition, whole(event, {"op": "c", "after": {"name": "Ann"}, "ts": 1_000_000}))
    assert decoded.columns["seen"] == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "decimal"}, "no type of Kafka Connect"),
        ({"type": "struct", "fields": [{"type": "string"}]}, "no field is declared"),
        (struct(paid=named("bytes", f"{CONNECT}Decimal")), "no scale"),
        (struct(paid=named("string", f"{CONNECT}Decimal") | {"parameters": {"scale": "2"}}), "as string"),
        ({"type": "array"}, "no type of Kafka Connect"),
    ],
)
def test_a_row_whose_schema_is_none_is_bad_and_a_delete_is_not(schema: Any, reason: str) -> None:
    decoded = decode(table({"name": "string"}), whole(schema, {"name": "Ann"}), whole(schema, None))
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, Stage.DECODE)]
    assert reason in decoded.bad[0].reason
    assert decoded.tombstones == [True]


@pytest.mark.parametrize(
    "text",
    [
        b'{"schema":"v1","payload":{"name":"Ann"}}',
        b'{"schema":{},"payload":{"name":"Ann"},"id":1}',
        b'{"schema":{"type":"struct"}}',
        b'{"schema":' + b"[" * 501 + b"]" * 501 + b',"payload":{"name":"Ann"}}',
        b'{"schema":{},"payload":{"name":"A\xff"}}',
    ],
)
def test_what_only_looks_like_a_document_with_its_schema_is_not_taken_apart(text: bytes) -> None:
    assert "Ann" not in decode(table({"name": "string"}), text).columns["name"]


def test_a_header_that_names_a_schema_does_not_count_for_json() -> None:
    decoder = decoder_for(table({"name": "string"}))
    headers = [("__value_schema_id", b"\0\0\0\0\7"), ("__key_schema_id", b"\0\0\0\0\7")]
    decoded = decoder.decode([b'{"id":1}'], [b'{"name":"Ann"}'], lambda _: headers)
    assert decoded.columns["name"] == ["Ann"]


def test_each_row_is_read_by_its_own_schema_however_many_there_are() -> None:
    """More schemas than readers are kept, each with another scale; and again."""
    schemas = [struct(paid=MONEY | {"parameters": {"scale": str(scale)}}) for scale in range(120)]
    definition = table({"paid": "decimal(38,20)"})
    values = [whole(schema, {"paid": "ZA=="}) for schema in schemas[:20]] * 2  # 100
    decoded = decode(definition, *values, *[whole(schema, {"paid": None}) for schema in schemas])
    assert decoded.bad == []
    assert decoded.columns["paid"][:3] == [Decimal(100), Decimal(10), Decimal(1)]
    assert decoded.columns["paid"][20:23] == [Decimal(100), Decimal(10), Decimal(1)]


@pytest.mark.parametrize(
    ("encoding", "good", "bad"),
    [
        ("hex", "DEadbeef", "deadbee"),
        ("base64-url-safe", "3q2-7w==", "3q2+7w=="),
        ("base64", "3q2+7w==", "3q2-7w=="),
    ],
)
@pytest.mark.parametrize("around", ["plain", "debezium"])
def test_bytes_are_read_in_the_encoding_of_the_connector_unless_a_schema_declares_them(
    encoding: str, good: str, bad: str, around: str
) -> None:
    definition = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], envelope=around, binary_encoding=encoding,
        columns={"id": "binary", "v": "binary", "w": "list<struct<é: binary>>"},
    )  # fmt: skip
    assert LiveTable.from_json(definition.to_json(), "t") == definition

    def value(row: Any, schema: Any = None) -> bytes:
        event = row if around == "plain" else {"op": "c", "after": row}
        declared = schema if around == "plain" or schema is None else struct(after=schema)
        return json.dumps(event).encode() if schema is None else whole(declared, event)

    values = [
        value({"v": good, "w": [{"é": good}]}),
        value({"v": good}, struct(v=named("string"))),
        value({"v": "3q2+7w=="}, struct(v=named("bytes"))),
        value({"v": bad}),
        value({"w": [{"é": bad}]}),
    ]
    decoded = decoder_for(definition).decode([json.dumps({"id": good}).encode()] * 5, values)
    assert [(one.index, one.stage) for one in decoded.bad] == [(3, Stage.CONTRACT), (4, Stage.CONTRACT)]
    beef = bytes.fromhex("deadbeef")
    assert (decoded.columns["id"], decoded.columns["v"]) == ([beef] * 3, [beef] * 3)
    assert decoded.columns["w"] == [[{"é": beef}], None, None]


def test_bytes_in_another_encoding_name_the_setting() -> None:
    decoded = decode(table({"v": "binary"}), b'{"v":"deadbe"}', b'{"v":"3q2-7w=="}', b'{"v":"?"}')
    said = [re.findall('binary_encoding = "(.*)"', bad.reason) for bad in decoded.bad]
    assert said == [["hex"], ["base64-url-safe"], []]
    with pytest.raises(ConfigInvalid, match='binary_encoding is "b64", not base64 or base64-url-safe or hex'):
        table({"v": "binary"}, binary_encoding="b64")


def test_a_text_that_is_no_number_names_the_connectors_setting() -> None:
    definition = table({"paid": "decimal(10,2)", "all": "list<decimal(10,2)>"})
    decoded = decode(definition, b'{"paid":"B88="}', b'{"all":["B88="]}', b'{"paid":"ten"}')
    hints = ["decimal.handling.mode=string" in bad.reason for bad in decoded.bad]
    assert hints == [True, True, False]
