"""The poison corpus of Avro: the record rule by examples, in bytes that are written here by hand."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.thermocline.poison import CONTRACT, DECODE, KEY, TOMBSTONE
from thermocline.rules.definition import LiveTable

SCHEMA = {
    "type": "record",
    "name": "Row",
    "namespace": "poisoned",
    "fields": [
        {"name": "small", "type": ["null", "int"]},
        {"name": "large", "type": ["null", "long", "int"]},
        {"name": "text", "type": ["null", "string"]},
        {"name": "ratio", "type": ["null", "double", "float"]},
        {"name": "active", "type": ["null", "boolean"]},
        {"name": "raw", "type": ["null", "bytes", {"type": "fixed", "name": "Three", "size": 3}]},
        {"name": "suit", "type": ["null", {"type": "enum", "name": "Suit", "symbols": ["CLUBS", "HEARTS"]}]},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
                {
                    "type": "fixed",
                    "name": "Money",
                    "size": 4,
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 2,
                },
            ],
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {
            "name": "at",
            "type": [
                "null",
                {"type": "long", "logicalType": "timestamp-millis"},
                {"type": "long", "logicalType": "timestamp-micros"},
                {"type": "long", "logicalType": "timestamp-nanos"},
                {"type": "long", "logicalType": "local-timestamp-micros"},
                "string",
            ],
        },
        {
            "name": "at_ms",
            "type": ["null", "long", "int", {"type": "long", "logicalType": "timestamp-millis"}],
        },
        {
            "name": "id",
            "type": [
                "null",
                {"type": "string", "logicalType": "uuid"},
                {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"},
            ],
        },
        {
            "name": "doc",
            "type": [
                "null",
                "Row",
                {"type": "array", "items": ["null", "int", "string"]},
                {"type": "map", "values": "double"},
                {"type": "array", "items": "null"},
                {"type": "long", "logicalType": "timestamp-nanos"},
                {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
                "string",
            ],
        },
        {
            "name": "address",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Address",
                    "fields": [{"name": "city", "type": ["null", "string"]}, {"name": "zip", "type": "int"}],
                },
                "string",
            ],
        },
        {
            "name": "ignored",
            "type": ["null", "string", {"type": "array", "items": {"type": "map", "values": "Row"}}],
        },
    ],
}
NAMES = [str(field["name"]) for field in SCHEMA["fields"]]  # type: ignore[index]
KEY_SCHEMA = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "app_id", "type": ["null", "int"]}, {"name": "user_id", "type": ["string", "int"]}],
}

AVRO_POISONED = LiveTable.build(
    name="avro_poisoned",
    identifier="app.avro_poisoned",
    topics=["avro_poisoned"],
    format="avro",
    key_schema=json.dumps(KEY_SCHEMA),
    value_schema=json.dumps(SCHEMA),
    key=["app_id", "user_id"],
    columns={
        "app_id": "int",
        "user_id": "string",
        "small": "int",
        "large": "long",
        "text": "string",
        "ratio": "double",
        "active": "boolean",
        "raw": "binary",
        "suit": "string",
        "price": "decimal(10,2)",
        "day": "date",
        "at": "timestamptz",
        "at_ms": {"type": "timestamptz", "epoch": "ms"},
        "id": "uuid",
        "doc": "json",
        "city": {"type": "string", "path": "address.city"},
        "address": "json",
        "missing": "string",
    },
)


@dataclass(frozen=True, slots=True)
class AvroCase:
    """One record: ``expected`` is its value columns that are not null, a tombstone, or the bad stage."""

    name: str
    key: bytes | None
    value: bytes | None
    expected: dict[str, Any] | str
    key_columns: tuple[int, str] = (7, "u1")


def number(value: int) -> bytes:
    """A variable-length zigzag number."""
    rest, written = (value << 1) ^ (value >> 63), bytearray()
    while rest > 127:
        written.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*written, rest])


def string(text: str | bytes) -> bytes:
    content = text.encode() if isinstance(text, str) else text
    return number(len(content)) + content


def body(**fields: bytes) -> bytes:
    """A record in which a field is its union's branch and its value, and all others are null."""
    return b"".join(fields.get(name, b"\x00") for name in NAMES)


def branch(index: int, value: bytes) -> bytes:
    return number(index) + value


GOOD_KEY = branch(1, number(7)) + branch(0, string("u1"))
GOOD = AvroCase("good", GOOD_KEY, body(text=branch(1, string("fine"))), {"text": "fine"})


def _value(name: str, value: bytes | None, expected: dict[str, Any] | str) -> AvroCase:
    return AvroCase(name, GOOD_KEY, value, expected)


def _key(name: str, key: bytes | None, expected: tuple[int, str] | str) -> AvroCase:
    if isinstance(expected, str):
        return AvroCase(name, key, body(), expected)
    return AvroCase(name, key, body(), {}, expected)


def _column(column: str, name: str, written: bytes, expected: Any) -> AvroCase:
    """A case of one column; what is no stage is its value."""
    is_bad = isinstance(expected, str) and expected in (CONTRACT, DECODE)
    good = {} if expected is None else {column: expected}
    return _value(f"{column}: {name}", body(**{column: written}), expected if is_bad else good)


def _double(value: float) -> bytes:
    return struct.pack("<d", value)


def _linked(levels: int) -> bytes:
    """Rows within each other, the innermost without any."""
    before, behind = b"\x00" * NAMES.index("doc"), b"\x00" * (len(NAMES) - NAMES.index("doc") - 1)
    return (before + b"\x02") * levels + body() + behind * levels


def _row_in_row() -> str:
    nulls = dict.fromkeys(NAMES)
    return json.dumps({**nulls, "doc": nulls}, separators=(",", ":"))


HUGE = 2**62

# fmt: off
BODIES = [
    _value("no value", None, TOMBSTONE),
    _value("an empty value", b"", TOMBSTONE),
    _value("nulls alone", body(), {}),
    _value("one byte", b"\x00", DECODE),
    _value("a byte too few", body()[:-1], DECODE),
    _value("a byte too many", body() + b"\x00", DECODE),
    _value("two records", body() + body(), DECODE),
    _value("a JSON object", b'{"text":"a"}', DECODE),
    _value("a registry's prefix", b"\x00\x00\x00\x00\x01" + body(), DECODE),
    _value("half a string", body(ignored=branch(1, string("abcdef")))[:-2], DECODE),
    _value("half a string that a column asks for", body()[:2] + b"\x02\x0cab", DECODE),
    _value("half a double", b"\x00" * 3 + b"\x02" + b"\x00" * 7, DECODE),
    _value("a branch that is not there", body(small=number(2)), DECODE),
    _value("a branch below all", body(small=number(-1)), DECODE),
    _value("a huge branch", body(small=number(HUGE)), DECODE),
    _value("a number without end", body(small=b"\x02" + b"\xff" * 40), DECODE),
    _value("a number of 11 bytes", body(large=b"\x02" + b"\x80" * 10 + b"\x00"), DECODE),
    _value("a number of 65 bits", body(large=b"\x02" + b"\x80" * 9 + b"\x02"), DECODE),
    _value("a number in more bytes than it needs", body(large=b"\x02\x82\x00"), {"large": 1}),
    _value("a huge string", body(text=b"\x02" + number(HUGE)), DECODE),
    _value("a string of a negative length", body(text=b"\x02" + number(-1)), DECODE),
    _value("a string that goes back", body(text=b"\x02" + number(-5) + b"abc"), DECODE),
    _value("a huge ignored string", body(ignored=b"\x02" + number(HUGE)), DECODE),
    _value("an ignored string of a negative length", body(ignored=b"\x02" + number(-2)), DECODE),
    _value("a huge array, ignored", body(ignored=b"\x04" + number(HUGE)), DECODE),
    _value("a huge array", body(doc=branch(2, number(HUGE))), DECODE),
    _value("a huge array of nothing", body(doc=branch(4, number(HUGE) + b"\x00")), DECODE),
    _value("an array of one nothing", body(doc=branch(4, number(1) + b"\x00")), DECODE),
    _value("an array of no nothing", body(doc=branch(4, b"\x00")), {"doc": "[]"}),
    _value("a huge map", body(doc=branch(3, number(HUGE))), DECODE),
    _value("a block that is longer than it says", body(doc=branch(2, number(-1) + number(1) + b"\x02\x02\x00")), DECODE),
    _value("a block that is shorter than it says", body(doc=branch(2, number(-1) + number(3) + b"\x02\x02\x00")), DECODE),
    _value("a block that says how long it is", body(doc=branch(2, number(-1) + number(2) + b"\x02\x02\x00")), {"doc": "[1]"}),
    _value("a block of a negative size", body(doc=branch(2, number(-1) + number(-2) + b"\x02\x02\x00")), DECODE),
    _value("rows in rows", _linked(2), {"doc": _row_in_row()}),
    _value("rows in rows, too deep", _linked(101), DECODE),
    _value("rows in rows, far too deep", _linked(100_000), DECODE),
    _value("rows in rows without end", b"\x00" * NAMES.index("doc") + (b"\x02" + b"\x00" * NAMES.index("doc")) * 100_000, DECODE),
    _value("maps in arrays, ignored", body(ignored=branch(2, number(1) + number(1) + string("a") + body() + b"\x00\x00")), {}),
    _value("maps in arrays that break off, ignored", body(ignored=branch(2, number(1) + number(1) + string("a"))), DECODE),
    _value("deep rows, ignored", body(ignored=branch(2, number(1) + number(1) + string("a") + _linked(101) + b"\x00\x00")), DECODE),
]

KEYS = [
    _key("a good key", GOOD_KEY, (7, "u1")),
    _key("an empty string in the key", branch(1, number(-7)) + branch(0, string("")), (-7, "")),
    _key("no key", None, KEY),
    _key("an empty key", b"", KEY),
    _key("a null in the key", b"\x00" + branch(0, string("u1")), KEY),
    _key("another type in the key", branch(1, number(7)) + branch(1, number(1)), KEY),
    _key("a byte after the key", GOOD_KEY + b"\x00", KEY),
    _key("half a key", GOOD_KEY[:-1], KEY),
    _key("an int of 33 bits in the key", branch(1, number(2**31)) + branch(0, string("u1")), KEY),
    _key("no UTF-8 in the key", branch(1, number(7)) + branch(0, string(b"\xff")), KEY),
    AvroCase("a bad key of a tombstone", b"x", None, KEY),
    AvroCase("no key of a tombstone", None, None, KEY),
    AvroCase("a bad key of a bad value", b"x", b"garbage", KEY),
]

COLUMNS = [
    _column("small", "the largest", branch(1, number(2**31 - 1)), 2**31 - 1),
    _column("small", "the least", branch(1, number(-(2**31))), -(2**31)),
    _column("small", "33 bits", branch(1, number(2**31)), DECODE),
    _column("large", "the largest", branch(1, number(2**63 - 1)), 2**63 - 1),
    _column("large", "the least", branch(1, number(-(2**63))), -(2**63)),
    _column("large", "an int", branch(2, number(-3)), -3),
    _column("text", "empty", branch(1, string("")), ""),
    _column("text", "beyond ASCII", branch(1, string("ä€😀\x00")), "ä€😀\x00"),
    _column("text", "200 letters", branch(1, string("n" * 200)), "n" * 200),
    _column("text", "no UTF-8", branch(1, string(b"\xff")), DECODE),
    _column("text", "a surrogate", branch(1, string(b"\xed\xa0\x80")), DECODE),
    _column("ratio", "a double", branch(1, _double(-0.1)), -0.1),
    _column("ratio", "minus zero", branch(1, _double(-0.0)), -0.0),
    _column("ratio", "a float", branch(2, struct.pack("<f", 0.5)), 0.5),
    _column("ratio", "not a number", branch(1, _double(float("nan"))), CONTRACT),
    _column("ratio", "infinity", branch(1, _double(float("inf"))), CONTRACT),
    _column("ratio", "minus infinity, a float", branch(2, struct.pack("<f", float("-inf"))), CONTRACT),
    _column("active", "true", branch(1, b"\x01"), True),
    _column("active", "false", branch(1, b"\x00"), False),
    _column("active", "two", branch(1, b"\x02"), DECODE),
    _column("raw", "bytes", branch(1, string(b"\x00\xff")), b"\x00\xff"),
    _column("raw", "fixed", branch(2, b"abc"), b"abc"),
    _column("suit", "a symbol", branch(1, number(1)), "HEARTS"),
    _column("suit", "no symbol", branch(1, number(2)), DECODE),
    _column("suit", "a symbol below all", branch(1, number(-1)), DECODE),
    _column("price", "more digits that are zero", branch(1, string((1_500).to_bytes(2))), Decimal("1.50")),
    _column("price", "negative", branch(1, string((-1_230).to_bytes(2, signed=True))), Decimal("-1.23")),
    _column("price", "zero", branch(1, string(b"\x00")), Decimal("0.00")),
    _column("price", "a digit too many", branch(1, string((1_501).to_bytes(2))), CONTRACT),
    _column("price", "too large", branch(1, string((10**11).to_bytes(6))), CONTRACT),
    _column("price", "the largest", branch(1, string((10**11 - 10).to_bytes(6))), Decimal("99999999.99")),
    _column("price", "no bytes", branch(1, b"\x00"), CONTRACT),
    _column("price", "far too large", branch(1, string(b"\x7f" * 100_000)), CONTRACT),
    _column("price", "fixed", branch(2, (-150).to_bytes(4, signed=True)), Decimal("-1.50")),
    _column("day", "a day", branch(1, number(20_000)), date(2024, 10, 4)),
    _column("day", "before 1970", branch(1, number(-1)), date(1969, 12, 31)),
    _column("day", "after year 9999", branch(1, number(3_000_000)), CONTRACT),
    _column("day", "before year 1", branch(1, number(-1_000_000)), CONTRACT),
    _column("at", "milliseconds", branch(1, number(1_700_000_000_123)), datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
    _column("at", "microseconds", branch(2, number(-1)), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    _column("at", "nanoseconds that lose nothing", branch(3, number(-1_000)), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    _column("at", "nanoseconds", branch(3, number(1_001)), CONTRACT),
    _column("at", "a local time", branch(4, number(0)), CONTRACT),
    _column("at", "text", branch(5, string("2026-11-21T09:33:00Z")), CONTRACT),
    _column("at", "after year 9999", branch(1, number(10**15)), CONTRACT),
    _column("at", "far after year 9999", branch(1, number(2**63 - 1)), CONTRACT),
    _column("at_ms", "a number", branch(1, number(1_000)), datetime(1970, 1, 1, 0, 0, 1, 0, UTC)),
    _column("at_ms", "an int", branch(2, number(1)), datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)),
    _column("at_ms", "a moment already", branch(3, number(1)), CONTRACT),
    _column("id", "text", branch(1, string("F79C3E09-677c-4bbd-a479-3f349cb785e7")), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
    _column("id", "bytes", branch(2, bytes(range(16))), UUID(bytes=bytes(range(16)))),
    _column("id", "other text", branch(1, string("f79c3e09")), CONTRACT),
    _column("doc", "an array", branch(2, number(3) + b"\x00" + b"\x02\x09" + b"\x04" + string('"') + b"\x00"), '[null,-5,"\\""]'),
    _column("doc", "two blocks", branch(2, number(1) + b"\x00" + number(1) + b"\x02\x02" + b"\x00"), "[null,1]"),
    _column("doc", "a map by its names", branch(3, number(2) + string("z") + _double(1.5) + string("a") + _double(2.0) + b"\x00"), '{"a":2.0,"z":1.5}'),
    _column("doc", "a name twice", branch(3, number(2) + string("a") + _double(1.5) + string("a") + _double(2.0) + b"\x00"), '{"a":2.0}'),
    _column("doc", "infinity in a map", branch(3, number(1) + string("z") + _double(float("inf")) + b"\x00"), CONTRACT),
    _column("doc", "nanoseconds", branch(5, number(-1)), '"1969-12-31T23:59:59.999999999Z"'),
    _column("doc", "a decimal", branch(6, string((-1_500).to_bytes(2, signed=True))), '"-1.500"'),
    _column("doc", "a string", branch(7, string("null")), '"null"'),
    _value("a field of a record", body(address=branch(1, b"\x02" + string("Tokyo") + number(1))), {"city": "Tokyo", "address": '{"city":"Tokyo","zip":1}'}),
    _value("a null field of a record", body(address=branch(1, b"\x00" + number(1))), {"address": '{"city":null,"zip":1}'}),
    _value("no record where a path leads", body(address=branch(2, string("Tokyo"))), CONTRACT),
]
# fmt: on

AVRO_CASES = [*BODIES, *KEYS, *COLUMNS]
