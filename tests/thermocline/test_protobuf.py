"""Protobuf by the record rule, in bytes that the library writes and that are spoiled here."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import json_format

from tests.thermocline.alone import alone_and_together_are_the_same
from tests.thermocline.registered import Registered, framed
from thermocline.errors import ConfigInvalid
from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.rules.decode import Decoded, Stage, Unpacker, decoder_for, pack_rows, records_table
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import canonical, message_at, message_called, packed_schema
from thermocline.schemas.protobuf_compiler import compiled, compiled_file

FUZZED, FUZZED_FULL = 5_000, 200_000
GUID = UUID("89791762-2336-186f-9674-299b90a8e2e7")
ROW = """
syntax = "proto3";
package app;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
enum Suit { CLUBS = 0; HEARTS = 1; }
message Key { int32 app_id = 1; string user_id = 2; }
message Row {
  string text = 1 [(confluent.field_meta).doc = "a text"];
  optional string maybe = 2;
  int32 small = 3;
  sint64 large = 4;
  uint64 huge = 5;
  double ratio = 6;
  bool active = 7;
  bytes raw = 8;
  Suit suit = 9;
  google.protobuf.Timestamp at = 10;
  google.type.Date day = 11;
  confluent.type.Decimal price = 12;
  google.protobuf.StringValue wrapped = 13;
  google.protobuf.Int64Value wrapped_number = 14;
  repeated int32 numbers = 15;
  map<string, int64> counts = 16;
  Row inner = 17;
  oneof either { string left = 18; Key right = 19; }
  google.protobuf.Struct any = 20;
  google.protobuf.Duration took = 21;
  int64 at_ms = 22;
  float single = 23;
  map<bool, Suit> suits = 24;
  google.type.TimeOfDay clock = 25;
}
message Outer { message First { string a = 1; } message Second { string b = 1; } }
message Mapped { map<string, string> m = 1; message Inner { string a = 1; } }
"""
OLD = """
syntax = "proto2";
package old;
enum Mark { NONE = 0; SOME = 1; }
enum Suit { CLUBS = 1; HEARTS = 2; }
message Row {
  optional string text = 1;
  required int32 small = 2;
  optional Suit suit = 3;
  optional int32 five = 4 [default = 5];
  optional group Group = 5 { optional Suit suit = 1; }
  repeated Suit suits = 6;
  map<string, Mark> by_name = 7;
  extensions 100 to 200;
}
"""
ALL = {
    "text": "string", "maybe": "string", "small": "int", "large": "long", "huge": "long", "ratio": "double",
    "active": "boolean", "raw": "binary", "suit": "string", "at": "timestamptz", "day": "date",
    "price": "decimal(10,2)", "wrapped": "string", "wrapped_number": "long", "numbers": "json",
    "counts": "json",
    "inner": "json", "deep": {"type": "string", "path": "inner.inner.text"}, "left": "string",
    "user": {"type": "string", "path": "right.user_id"}, "any": "json", "took": "json",
    "at_ms": {"type": "timestamptz", "epoch": "ms"}, "single": "double", "suits": "json", "absent": "string",
}  # fmt: skip
EMPTY: dict[str, Any] = dict.fromkeys(ALL) | {
    "text": "", "small": 0, "large": 0, "huge": 0, "ratio": 0.0, "active": False, "raw": b"", "suit": "CLUBS",
    "numbers": "[]", "counts": "{}", "suits": "{}", "single": 0.0, "at_ms": datetime(1970, 1, 1, tzinfo=UTC),
}  # fmt: skip


@cache
def descriptors(text: str) -> bytes:
    return compiled({"test.proto": text}, "test.proto")


@cache
def message(name: str, text: str = ROW) -> Any:
    return message_called(descriptors(text), name)


def row(**fields: Any) -> Any:
    return message("app.Row")(**fields)


def body(**fields: Any) -> bytes:
    content: bytes = row(**fields).SerializeToString()
    return content


def events(
    columns: dict[str, Any], text: str | None = ROW, name: str | None = "app.Row", **options: Any
) -> LiveTable:
    """A table without a key, of records that a schema wrote."""
    return LiveTable.build(
        name="events", identifier="app.events", topics=["events"], key=[], key_from="value",
        format="protobuf", columns=columns,
        value_schema=None if text is None else packed_schema(descriptors(text)),
        value_message=name if text is not None else None, **options,
    )  # fmt: skip


def decode(columns: dict[str, Any], *values: bytes, **options: Any) -> Decoded:
    return decoder_for(events(columns, **options)).decode([None] * len(values), values)


def only(columns: dict[str, Any], value: bytes, **options: Any) -> dict[str, Any]:
    decoded = decode(columns, value, **options)
    assert decoded.bad == []
    return {name: values[0] for name, values in decoded.columns.items()}


def test_fields_that_are_not_there_are_null_where_the_schema_can_tell_and_defaults_where_not() -> None:
    assert only(ALL, b"") == EMPTY


def full_row() -> Any:
    one = row(
        text="ä€😀", maybe="", small=-(2**31), large=-(2**63), huge=2**63 - 1, ratio=0.1, active=True,
        raw=b"\x00\xff", suit="HEARTS", price={"value": b"\xff\x38", "precision": 3, "scale": 2},
        day={"year": 2024, "month": 2, "day": 29}, wrapped={"value": ""}, wrapped_number={"value": 7},
        numbers=[3, -1], counts={"b": 2, "a": 2**62}, right={"user_id": "u1"}, at_ms=1_500, single=0.5,
        suits={True: 1, False: 0}, inner={"text": "i", "inner": {"text": "ii", "raw": b"\x01"}},
    )  # fmt: skip
    one.at.seconds, one.at.nanos = 1_700_000_000, 123_456_000
    one.inner.at.nanos = 5
    one.took.seconds = 3
    one.any.update({"z": 1.5, "a": [None, True, {"b": "c"}]})
    return one


def test_each_type_is_read_as_the_columns_type() -> None:
    found = only(ALL, full_row().SerializeToString())
    inner, counts = json.loads(found["inner"]), found["counts"]
    found |= {"inner": None, "counts": None}
    assert found == EMPTY | {
        "text": "ä€😀", "maybe": "", "small": -(2**31), "large": -(2**63), "huge": 2**63 - 1, "ratio": 0.1,
        "active": True, "raw": b"\x00\xff", "suit": "HEARTS", "price": Decimal("-2.00"),
        "day": date(2024, 2, 29),
        "at": datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC), "wrapped": "", "wrapped_number": 7,
        "numbers": "[3,-1]", "deep": "ii", "user": "u1", "at_ms": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "single": 0.5, "any": '{"a":[null,true,{"b":"c"}],"z":1.5}', "took": '{"seconds":3,"nanos":0}',
        "suits": '{"false":"CLUBS","true":"HEARTS"}',
    } | {"inner": None, "counts": None}  # fmt: skip
    assert counts == '{"a":4611686018427387904,"b":2}'
    assert list(inner) == [field.name for field in message("app.Row").DESCRIPTOR.fields]
    assert (inner["text"], inner["maybe"], inner["at"], inner["inner"]["raw"]) == (
        "i", None, "1970-01-01T00:00:00.000000005Z", "AQ==",
    )  # fmt: skip


NESTED = {
    "inner": "struct<text: string, maybe: string, at: timestamptz, numbers: list<long>, absent: int>",
    "numbers": "list<int>",
    "counts": "map<string, long>",
    "right": "struct<app_id: int>",
    "wrapped": "string",
}


def test_json_is_taken_within_lists_structs_and_maps() -> None:
    one = message("app.Row")(inner={"numbers": [7, 8]}, counts={"a": 2**62}, numbers=[3, -1])
    columns = {
        "inner": "struct<numbers: json, at: json>",
        "numbers": "list<json>",
        "counts": "map<string, json>",
    }
    assert only(columns, one.SerializeToString()) == {
        "inner": {"numbers": "[7,8]", "at": None},
        "numbers": ["3", "-1"],
        "counts": {"a": "4611686018427387904"},
    }


def test_messages_repeated_fields_and_maps_are_structs_lists_and_maps() -> None:
    one = full_row()
    one.inner.ClearField("at")  # which has nanoseconds
    full = only(NESTED, one.SerializeToString())
    assert full == {
        "inner": {"text": "i", "maybe": None, "at": None, "numbers": [], "absent": None},
        "numbers": [3, -1],
        "counts": {"a": 2**62, "b": 2},
        "right": {"app_id": 0},
        "wrapped": "",
    }
    assert list(full["counts"]) == ["a", "b"]
    nothing = only(NESTED, b"")
    assert nothing == {"inner": None, "numbers": [], "counts": {}, "right": None, "wrapped": None}
    table = events(NESTED)
    decoded = decoder_for(table).decode([None] * 2, [body(inner={"text": "i", "at": {"seconds": 5}}), b""])
    assert decoded.columns["inner"][0] == {
        "text": "i", "maybe": None, "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), "numbers": [],
        "absent": None,
    }  # fmt: skip
    records_table(table, decoded, "t", 3, range(2), [0] * 2)
    rows = list(zip(*decoded.columns.values(), strict=True))
    assert list(map(Unpacker(table).unpack, pack_rows(table, decoded))) == rows


@pytest.mark.parametrize(
    ("column", "type_", "value"),
    [
        ("numbers", "list<string>", body()),
        ("numbers", "map<string, int>", body()),
        ("text", "list<string>", body(text="a")),
        ("counts", "list<long>", body()),
        ("counts", "map<string, string>", body()),
        ("counts", "struct<a: long>", body()),
        ("suits", "map<string, string>", body()),
        ("inner", "map<string, string>", body(inner={})),
        ("inner", "struct<text: int>", body(inner={})),
        ("inner", "struct<huge: long>", body(inner={"huge": 2**64 - 1})),
        ("inner", "struct<ratio: double>", body(inner={"ratio": float("inf")})),
    ],
)
def test_what_a_nested_column_can_not_have_is_bad(column: str, type_: str, value: bytes) -> None:
    (bad,) = decode({column: type_}, value).bad
    assert (bad.stage, bad.reason.startswith(f"{column} (")) == (Stage.CONTRACT, True)


def test_good_records_survive_arrow_and_the_hot_tiers_payload() -> None:
    table = events(ALL)
    decoded = decoder_for(table).decode([None] * 2, [full_row().SerializeToString(), b""])
    records_table(table, decoded, "t", 3, range(2), [0] * 2)
    rows = list(zip(*decoded.columns.values(), strict=True))
    assert list(map(Unpacker(table).unpack, pack_rows(table, decoded))) == rows


@pytest.mark.parametrize(
    ("column", "type_", "value"),
    [
        ("small", "string", body()),
        ("small", "double", body()),
        ("large", "int", body(large=1)),
        ("text", "int", body()),
        ("text", "binary", body()),
        ("raw", "string", body()),
        ("suit", "int", body()),
        ("suit", "string", b"\x48\x09"),
        ("numbers", "int", body()),
        ("counts", "string", body()),
        ("at", "long", body(at={"seconds": 1})),
        ("at", "timestamptz", body(at={"nanos": 1})),
        ("at", "timestamptz", body(at={"nanos": -1_000})),
        ("at", "timestamptz", body(at={"seconds": 2**60})),
        ("at", {"type": "timestamptz", "epoch": "ms"}, body(at={"seconds": 1})),
        ("at_ms", "timestamptz", body()),
        ("at_ms", {"type": "timestamptz", "epoch": "s"}, body(at_ms=2**62)),
        ("day", "date", body(day={"year": 2024})),
        ("clock", "time", body(clock={"hours": 24})),
        ("clock", "time", body(clock={"hours": -1, "minutes": 60})),
        ("clock", "time", body(clock={"hours": 9, "minutes": 60})),
        ("clock", "time", body(clock={"hours": 23, "minutes": 59, "seconds": 60})),
        ("clock", "time", body(clock={"nanos": 1})),
        ("clock", "timestamptz", body(clock={"hours": 9})),
        ("day", "date", body(day={"year": 2023, "month": 2, "day": 29})),
        ("took", "long", body(took={"seconds": 1})),
        ("took", "timestamptz", body(took={"seconds": 1})),
        ("price", "decimal(2,1)", body(price={"value": b"\x01", "scale": 2})),
        ("price", "decimal(2,1)", body(price={})),
        ("price", "decimal(2,1)", body(price={"value": b"\x01", "scale": -(2**31)})),
        ("huge", "long", body(huge=2**63)),
        ("ratio", "double", body(ratio=float("nan"))),
        ("single", "double", body(single=float("-inf"))),
        ("inner", "json", body(inner={"ratio": float("inf")})),
        ("inner", "json", body(inner={"at": {"nanos": -1}})),
        ("inner", "string", body(inner={})),
        ("wrapped", "long", body(wrapped={"value": "1"})),
        ("text", "uuid", body(text="none")),
        ("raw", "uuid", body(raw=b"1")),
        ("a", {"type": "string", "path": "text.a"}, body()),
        ("a", {"type": "string", "path": "numbers.a"}, body()),
        ("a", {"type": "string", "path": "counts.a"}, body()),
    ],
)
def test_another_type_than_the_columns_is_bad(column: str, type_: Any, value: bytes) -> None:
    decoded = decode({column: type_}, value)
    assert [bad.stage for bad in decoded.bad] == [Stage.CONTRACT]
    assert decoded.bad[0].reason.startswith(f"{column} (")


def test_times_are_the_same_alone_and_among_others_and_a_bad_one_is_bad_alone() -> None:
    chance = random.Random(7)
    seconds = [-62_135_596_801, -62_135_596_800, -1, 0, 253_402_300_799, 253_402_300_800, 2**62, -(2**63)]
    seconds += [chance.randrange(-62_135_596_800, 253_402_300_800) for _ in range(200)]
    times = [(one, chance.choice([0, 1_000, 999_999_000, 1, -1_000, 10**9])) for one in seconds]
    alone = [decode({"at": "timestamptz"}, body(at={"seconds": s, "nanos": n})) for s, n in times]
    values = [body(at={"seconds": s, "nanos": n}) for s, n in times]
    good = [place for place, one in enumerate(alone) if not one.bad]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = [epoch + timedelta(seconds=times[one][0], microseconds=times[one][1] // 1_000) for one in good]
    together = decode({"at": "timestamptz"}, *values)
    assert (together.good, together.columns["at"]) == (good, expected)
    good_alone = decode({"at": "timestamptz"}, *[values[one] for one in good], b"")
    assert (good_alone.bad, good_alone.columns["at"]) == ([], [*expected, None])
    is_time = [-62_135_596_800 <= s < 253_402_300_800 and n in (0, 1_000, 999_999_000) for s, n in times]
    assert [place for place, one in enumerate(is_time) if one] == good


def test_a_message_of_another_type_that_is_not_there_is_null() -> None:
    assert only({"at": "long", "inner": "string", "took": "timestamptz"}, b"") == {
        "at": None, "inner": None, "took": None,
    }  # fmt: skip


def test_uuids_are_text_or_sixteen_bytes() -> None:
    columns = {"text": "uuid", "raw": "uuid"}
    assert only(columns, body(text=str(GUID), raw=GUID.bytes)) == {"text": GUID, "raw": GUID}


@pytest.mark.parametrize(
    "value",
    [
        body(text="a")[:-1],
        body(text="a") + b"\x00",
        body(text="a") + b"\x0a",
        body(text="a") + b"\xff" * 20,
        b"\x0a\x01\xff",  # not UTF-8, though no column asks
        b"\x8a\x01" * 3,
        b"\x0c",  # the end of a group that never began
        b"\x0f",  # a wire type that there is not
    ],
)
def test_what_is_no_message_of_the_schema_is_bad_as_a_whole(value: bytes) -> None:
    decoded = decode({"small": "int"}, body(small=1), value, body(small=2))
    assert decoded.columns == {"small": [1, 2]}
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, Stage.DECODE)]


def test_a_message_that_is_nested_too_deeply_is_bad() -> None:
    inner = b""
    for _ in range(150):
        inner = b"\x8a\x01" + length(len(inner)) + inner
    decoded = decode({"inner": "json"}, inner)
    assert [bad.stage for bad in decoded.bad] == [Stage.DECODE]


def length(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + length(number >> 7)


def test_unknown_fields_are_ignored_and_a_field_of_another_type_is_one() -> None:
    assert only({"text": "string"}, body(text="a") + b"\xc2\x3e\x01x" + b"\x08\x01") == {"text": "a"}


BY_NAME_OF_9 = b"\x3a\x05\x0a\x01a\x10\x09"


def test_before_proto3_what_is_not_there_is_null_and_what_is_no_text_or_symbol_is_bad() -> None:
    columns = {
        "text": "string",
        "small": "int",
        "suit": "string",
        "five": "int",
        "group": "json",
        "suits": "json",
    }
    columns["by_name"] = "json"
    options: dict[str, Any] = {"text": OLD, "name": "old.Row"}
    lists = {"suits": "[]", "by_name": "{}"}
    assert only(columns, b"", **options) == dict.fromkeys(columns) | lists
    good = message("old.Row", OLD)(text="a", small=1, suit="HEARTS", five=6, group={"suit": "CLUBS"})
    assert only(columns, good.SerializeToString(), **options) == {
        "text": "a", "small": 1, "suit": "HEARTS", "five": 6, "group": '{"suit":"CLUBS"}',
    } | lists  # fmt: skip
    hidden = [
        b"\x18\x09",
        b"\x18\x01\x18\x09",
        b"\x2b\x08\x09\x2c",
        b"\x30\x09",
        b"\x3a\x05\x0a\x01a\x10\x09",
    ]
    no_text_among_names = b"\x3a\x05\x0a\x01a\x10\x01\x3a\x05\x0a\x01\xff\x10\x01"
    decoded = decode(columns, b"\x0a\x01\xff", *hidden, no_text_among_names, b"\x18\x02", **options)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [
        (0, Stage.DECODE), *((index, Stage.CONTRACT) for index in range(1, 6)), (6, Stage.DECODE),
    ]  # fmt: skip


def registry() -> Registered:
    one = WriterSchema(kind="PROTOBUF", descriptors=canonical(descriptors(ROW)))
    old = WriterSchema(kind="PROTOBUF", descriptors=canonical(descriptors(OLD)))
    return Registered({7: one, GUID: one, 8: old, 9: WriterSchema(kind="PROTOBUF", descriptors=b"\xff")})


def zigzag(*numbers: int) -> bytes:
    return b"".join(length(2 * number if number >= 0 else -2 * number - 1) for number in numbers)


@pytest.mark.parametrize(
    ("id_", "indexes", "name", "column"),
    [
        (7, (1, 1), "app.Row", "text"),
        (GUID, (1, 1), "app.Row", "text"),
        (8, (0,), "old.Row", "text"),
        (8, (1, 0), "old.Row", "text"),
        (7, (2, 2, 0), "app.Outer.First", "a"),
        (7, (2, 2, 1), "app.Outer.Second", "b"),
    ],
)
def test_each_record_says_which_message_of_which_schema_it_is(
    id_: SchemaId, indexes: tuple[int, ...], name: str, column: str
) -> None:
    """Before the body, and in a header; then even a body without bytes is one."""
    content = message(name, OLD if id_ == 8 else ROW)(**{column: "x"}).SerializePartialToString()
    head = framed(id_, zigzag(*indexes))
    table = events({column: "string"}, None)
    decoded = decoder_for(table, registry()).decode([None], [head + content])
    assert (decoded.bad, decoded.columns) == ([], {column: ["x"]})
    headers = [("__value_schema_id", head)]
    decoded = decoder_for(table, registry()).decode([None] * 2, [content, b""], lambda _: headers)
    assert decoded.columns[column] == ["x", None if id_ == 8 else ""]


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"", "it is empty"),
        (framed(7, b""), "does not say which message"),
        (framed(7, b"\x80" * 10), "does not say which message"),
        (framed(7, zigzag(2, 1)), "does not say which message"),
        (framed(7, zigzag(-1)), "by -1 numbers"),
        (framed(7, zigzag(1_000)), "by 1,000 numbers"),
        (framed(7, zigzag(1, -1)), "by the number -1"),
        (framed(7, zigzag(1, 5)), "no message at 5"),
        (framed(7, zigzag(2, 2, 2)), "no message at 2.2"),
        (framed(7, zigzag(2, 3, 1)), "maps come before its message at 3.1"),
        (framed(9, b"\x00"), "not a set of descriptors"),
        (framed(10, b"\x00"), "no schema has the id 10"),
    ],
)
def test_what_names_no_message_is_bad(head: bytes, why: str) -> None:
    decoded = decoder_for(events({"text": "string"}, None), registry()).decode([None], [head])
    assert [bad.stage for bad in decoded.bad] == [Stage.DECODE]
    assert why in decoded.bad[0].reason


def test_a_message_whose_fields_are_all_defaults_is_a_key_and_a_row_and_only_null_deletes() -> None:
    """Such a message has no bytes at all."""
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], format="protobuf", key=["app_id"],
        columns={"app_id": "int", "text": "string"}, key_schema=packed_schema(descriptors(ROW)),
        value_schema=packed_schema(descriptors(ROW)), key_message="app.Key", value_message="app.Row",
    )  # fmt: skip
    decoded = decoder_for(table).decode([b"", b"\x08\x07", None], [b"", None, b""])
    assert decoded.columns == {"app_id": [0, 7], "text": ["", None]}
    assert decoded.tombstones == [False, True]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(2, Stage.KEY)]


def test_a_key_that_the_writers_schema_lacks_is_bad() -> None:
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], format="protobuf", key=["k"], key_from="value",
        columns={"k": "string", "text": "string"}, value_schema=packed_schema(descriptors(ROW)),
        value_message="app.Row",
    )  # fmt: skip
    decoded = decoder_for(table).decode([None], [body(text="a")])
    assert [(bad.stage, bad.reason) for bad in decoded.bad] == [(Stage.KEY, "k (string): missing")]


def test_a_symbol_by_its_path_says_that_a_record_deletes() -> None:
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], format="protobuf", key=["k"], key_format="string",
        columns={"k": "string", "text": "string"}, delete_when={"path": "suit", "values": ["HEARTS"]},
        value_schema=packed_schema(descriptors(ROW)), value_message="app.Row",
    )  # fmt: skip
    decoded = decoder_for(table).decode([b"a"] * 2, [body(suit="HEARTS"), body(text="x")])
    assert decoded.tombstones == [True, False]


@pytest.mark.parametrize("count", [FUZZED, pytest.param(FUZZED_FULL, marks=pytest.mark.full)])
def test_malformed_records_are_good_or_bad_alone_as_together(count: int) -> None:
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    chance = random.Random(seed)
    contents = [full_row().SerializeToString(), body(text="a", suit=1), b"", body(inner={"numbers": [1]})]
    old = message("old.Row", OLD)(
        text="a", small=1, suit="HEARTS", group={"suit": "CLUBS"}
    ).SerializeToString()
    whole = [framed(chance.choice(IDS), zigzag(1, 1)) + one for one in contents] + [
        framed(8, b"\x00") + old
    ] * 2
    decoder = decoder_for(events(ALL, None), registry())
    for first in range(0, count, 500):
        values = [spoiled(chance, chance.choice(whole)) for _ in range(first, min(first + 500, count))]
        alone_and_together_are_the_same(decoder, None, values)


IDS: Sequence[SchemaId] = (7, GUID)


def spoiled(chance: random.Random, value: bytes) -> bytes:
    written = bytearray(value)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(written) + 1)
        match chance.randrange(5):
            case 0:
                written[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del written[at : at + chance.randint(1, 5)]
            case 2:
                written[at:at] = length(
                    chance.choice([0, 1, 2**31, 2**63, 2**64 - 1, chance.getrandbits(20)])
                )
            case 3:
                written[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                written += written[at:]
    return bytes(written)


def test_json_columns_say_what_the_librarys_own_json_says() -> None:
    """But for 64-bit integers, which are numbers here, and fields that have defaults or are not there."""
    one = full_row()
    for name in ("price", "day", "took", "inner", "maybe"):  # which the library says otherwise, or not at all
        one.ClearField(name)
    ours = json.loads(only({"inner": "json"}, row(inner=one).SerializeToString())["inner"])
    theirs = json_format.MessageToDict(
        one, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    for name in ("large", "huge", "at_ms", "wrapped_number"):
        theirs[name] = int(theirs[name])
    theirs["counts"] = {name: int(number) for name, number in theirs["counts"].items()}
    found = {name: value for name, value in ours.items() if value is not None}
    assert found == theirs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("message {", "Expected message name"),
        ('syntax = "proto3"; import "gone.proto"; message M {}', "gone.proto"),
        ('syntax = "proto3"; message M { Nobody n = 1; }', "Nobody"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_what_the_compiler_says(text: str, why: str) -> None:
    with pytest.raises(SchemaInvalid, match=why):
        compiled({"bad.proto": text}, "bad.proto")


@pytest.mark.parametrize(
    "name",
    ["../escaped.proto", "/escaped.proto", "a/../../b.proto", "a b.proto", "", ".", "a" * 256, "confluent"],
)
def test_a_file_that_a_schema_refers_to_stays_in_its_folder(name: str) -> None:
    with pytest.raises(SchemaInvalid, match="by the name"):
        compiled({name: "", "main.proto": ""}, "main.proto")


def test_schemas_that_differ_only_in_what_reading_does_not_need_are_equal() -> None:
    spread = ROW.replace('[(confluent.field_meta).doc = "a text"]', "").replace(
        "message Key", "// a key\nmessage Key"
    )
    assert packed_schema(descriptors(spread)) == packed_schema(descriptors(ROW))


def test_a_file_may_be_text_beside_what_it_imports_or_descriptors(tmp_path: Path) -> None:
    (tmp_path / "money.proto").write_text('syntax = "proto3"; message Money { int64 cents = 1; }')
    main = tmp_path / "bill.proto"
    main.write_text('syntax = "proto3"; import "money.proto"; message Bill { Money sum = 1; }')
    content = compiled_file(main)
    (tmp_path / "bill.desc").write_bytes(content)
    assert compiled_file(tmp_path / "bill.desc") == content
    bill = message_called(content, "")
    assert bill(sum={"cents": 5}).SerializeToString() == b"\x0a\x02\x08\x05"


def test_a_definition_carries_its_schemas_and_says_what_is_wrong_with_one() -> None:
    table = events(ALL)
    assert LiveTable.from_json(table.to_json(), "events") == table
    assert not table.needs_registry
    assert events(ALL, None).needs_registry
    assert "message" not in events(ALL, None).to_json()
    with pytest.raises(ConfigInvalid, match="which of its messages is meant"):
        events(ALL, ROW, None)
    with pytest.raises(ConfigInvalid, match=r"it has no message app\.Nobody"):
        events(ALL, ROW, "app.Nobody")
    with pytest.raises(ConfigInvalid, match="value_message needs a Protobuf value_schema_file"):
        LiveTable.build(
            name="t", identifier="app.t", topics=["t"], key=["k"], columns={"k": "int"}, value_message="M"
        )


def test_the_place_of_a_message_is_its_place_in_the_file() -> None:
    assert message_at(descriptors(ROW), (1,)).DESCRIPTOR.full_name == "app.Row"
