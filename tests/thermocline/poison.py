"""The poison corpus: the record rule by examples. Whatever reads raw records must agree with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from thermocline.rules.definition import LiveTable

TOMBSTONE = "tombstone"
KEY, DECODE, CONTRACT = "key", "decode", "contract"

POISONED = LiveTable.build(
    name="poisoned",
    identifier="app.poisoned",
    topics=["poisoned"],
    key=["app_id", "user_id"],
    entity=["app_id", "user_id"],
    columns={
        "app_id": "int",
        "user_id": "string",
        "small": "int",
        "large": "long",
        "text": "string",
        "ratio": "double",
        "price": "decimal(10,2)",
        "active": "boolean",
        "day": "date",
        "at": "timestamptz",
        "at_ms": {"type": "timestamptz", "epoch": "ms"},
        "local": "timestamp",
        "local_us": {"type": "timestamp", "epoch": "us"},
        "id": "uuid",
        "raw": "binary",
        "clock": "time",
        "clock_ms": {"type": "time", "epoch": "ms"},
    },
    require_fields=False,  # many cases have no column's field, but another one
)

GOOD_KEY = b'{"app_id":7,"user_id":"u1"}'


@dataclass(frozen=True, slots=True)
class Case:
    """One record: ``expected`` is its value columns that are not null, ``TOMBSTONE``, or the bad stage.

    ``key_columns`` are those of a good row.
    """

    name: str
    key: bytes | None
    value: bytes | None
    expected: dict[str, Any] | str
    key_columns: tuple[int, str] = (7, "u1")


def _value(name: str, value: bytes | None, expected: dict[str, Any] | str) -> Case:
    return Case(name, GOOD_KEY, value, expected)


def _key(name: str, key: bytes | None, expected: tuple[int, str] | str) -> Case:
    if isinstance(expected, str):
        return Case(name, key, b"{}", expected)
    return Case(name, key, b"{}", {}, expected)


def _column(column: str, good: dict[str, Any], bad: list[str]) -> list[Case]:
    """Cases of one column's JSON token."""
    goods = [_value(f"{column} {token}", _object(column, token), {column: good[token]}) for token in good]
    bads = [_value(f"{column} {token}", _object(column, token), CONTRACT) for token in bad]
    return [*goods, *bads]


def _object(column: str, token: str) -> bytes:
    return b'{"' + column.encode() + b'":' + token.encode() + b"}"


def _nested(levels: int, field: bytes = b"other") -> bytes:
    return b'{"' + field + b'":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def _named(name: str, before: bytes = b"") -> bytes:
    return b'{"text":"a",' + before + b'"' + name.encode() + b'":1' + b"}" * (1 + before.count(b"{"))


def _nested_objects(levels: int) -> bytes:
    return b'{"other":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def _local(*parts: int) -> datetime:
    """A time without a zone."""
    return datetime(*parts, tzinfo=UTC).replace(tzinfo=None)  # type: ignore[misc, arg-type]


DOCUMENTS = [
    _value("empty value", b"", TOMBSTONE),
    _value("null value", None, TOMBSTONE),
    _value("an empty object", b"{}", {}),
    _value("whitespace around", b' \t\r\n{ "text" : "a" }\n', {"text": "a"}),
    _value("a newline inside", b'{"text":\n"a"}', {"text": "a"}),
    _value("only a blank", b" ", DECODE),
    _value("only a newline", b"\n", DECODE),
    _value("a zero byte", b"\x00", DECODE),
    _value("two documents", b'{"text":"a"}{"text":"b"}', DECODE),
    _value("two documents with a blank", b'{"text":"a"} {"text":"b"}', DECODE),
    _value("two documents with a newline", b'{"text":"a"}\n{"text":"b"}', DECODE),
    _value("a document and a half", b'{"text":"a"}\n{"text":', DECODE),
    _value("half a document", b'{"text":"a"', DECODE),
    _value("the other half", b'"text":"a"}', DECODE),
    _value("half a string", b'{"text":"a', DECODE),
    _value("the word null", b"null", DECODE),
    _value("an array", b'[{"text":"a"}]', DECODE),
    _value("an empty array", b"[]", DECODE),
    _value("a string", b'"a"', DECODE),
    _value("a number", b"1", DECODE),
    _value("true", b"true", DECODE),
    _value("garbage", b"\xde\xad\xbe\xef", DECODE),
    _value("a schema registry's prefix", b'\x00\x00\x00\x00\x01{"text":"a"}', DECODE),
    _value("a zero byte after", b'{"text":"a"}\x00', DECODE),
    _value("a form feed before", b'\x0c{"text":"a"}', DECODE),
    _value("a no-break space before", b'\xc2\xa0{"text":"a"}', DECODE),
    _value("a byte order mark", b'\xef\xbb\xbf{"text":"a"}', DECODE),
    _value("UTF-16", '{"text":"a"}'.encode("utf-16-le"), DECODE),
    _value("UTF-16 with its mark", '{"text":"a"}'.encode("utf-16"), DECODE),
    _value("a trailing comma", b'{"text":"a",}', DECODE),
    _value("a leading comma", b'{,"text":"a"}', DECODE),
    _value("two commas", b'{"text":"a",,"small":1}', DECODE),
    _value("no comma", b'{"text":"a" "small":1}', DECODE),
    _value("a comment", b'{"text":"a"}// so', DECODE),
    _value("a comment inside", b'{/* so */"text":"a"}', DECODE),
    _value("single quotes", b"{'text':'a'}", DECODE),
    _value("a name without quotes", b'{text:"a"}', DECODE),
    _value("a number for a name", b'{1:"a"}', DECODE),
    _value("a capital True", b'{"active":True}', DECODE),
    _value("half a word", b'{"active":tru}', DECODE),
]

UNICODE = [
    _value("text beyond ASCII", '{"text":"ä€😀"}'.encode(), {"text": "ä€😀"}),
    _value("an escaped pair", b'{"text":"\\ud83d\\ude00"}', {"text": "😀"}),
    _value("an escaped zero", b'{"text":"a\\u0000b"}', {"text": "a\x00b"}),
    _value("an escaped name", b'{"\\u0074ext":"a"}', {"text": "a"}),
    _value("a delete character", b'{"text":"\x7f"}', {"text": "\x7f"}),
    _value("a line separator", '{"text":"\u2028"}'.encode(), {"text": "\u2028"}),
    _value("a noncharacter", '{"text":"\uffff"}'.encode(), {"text": "\uffff"}),
    _value("a lone high surrogate", b'{"text":"\\ud800"}', DECODE),
    _value("a lone low surrogate", b'{"text":"\\udc00"}', DECODE),
    _value("surrogates the wrong way", b'{"text":"\\udc00\\ud800"}', DECODE),
    _value("a high surrogate and a letter", b'{"text":"\\ud800\\u0041"}', DECODE),
    _value("a lone surrogate, ignored", b'{"other":"\\ud800"}', DECODE),
    _value("a lone surrogate, ignored deeper", b'{"other":[{"x":"a\\udfff"}]}', DECODE),
    _value("a lone surrogate in a name", b'{"\\ud800":1}', DECODE),
    _value("a lone surrogate in a deeper name", b'{"other":{"\\ud800":1}}', DECODE),
    _value("an escaped backslash before ud800", b'{"text":"\\\\ud800"}', {"text": "\\ud800"}),
    _value("invalid UTF-8", b'{"text":"\xff"}', DECODE),
    _value("invalid UTF-8, ignored", b'{"other":"\xff"}', DECODE),
    _value("invalid UTF-8, ignored deeper", b'{"other":[{"x":"\xc3("}]}', DECODE),
    _value("invalid UTF-8 in a name", b'{"\xff":1}', DECODE),
    _value("half a character", b'{"other":"\xe2\x82"}', DECODE),
    _value("an overlong zero", b'{"other":"\xc0\x80"}', DECODE),
    _value("an encoded surrogate", b'{"other":"\xed\xa0\x80"}', DECODE),
    _value("beyond Unicode", b'{"other":"\xf4\x90\x80\x80"}', DECODE),
    _value("a newline in a string", b'{"text":"a\nb"}', DECODE),
    _value("a tab in a string", b'{"text":"a\tb"}', DECODE),
    _value("a zero byte in a string", b'{"text":"a\x00b"}', DECODE),
    _value("a control character, ignored", b'{"other":"a\x01b"}', DECODE),
    _value("a newline in a name", b'{"a\nb":1}', DECODE),
    _value("an unknown escape", b'{"text":"\\x41"}', DECODE),
    _value("an unknown escape, ignored", b'{"other":"\\q"}', DECODE),
    _value("half an escape", b'{"text":"\\u12"}', DECODE),
]

FIELDS = [
    _value("unknown fields", b'{"other":{"a":[1,null,"x"]},"text":"a","more":1.5}', {"text": "a"}),
    _value("a field in other case", b'{"Text":"a"}', {}),
    _value("null columns", b'{"text":null,"small":null,"price":null,"at":null,"raw":null}', {}),
    _value("key columns in the value", b'{"app_id":9,"user_id":"u9","text":"a"}', {"text": "a"}),
    _value("bad key columns in the value", b'{"app_id":"x","user_id":null,"text":"a"}', {"text": "a"}),
    _value("duplicate names", b'{"text":"a","text":"b"}', {"text": "b"}),
    _value("a duplicate spelled otherwise", b'{"text":"a","\\u0074ext":"b"}', {"text": "b"}),
    _value("a duplicate after a wrong type", b'{"text":1,"text":"b"}', {"text": "b"}),
    _value("a duplicate after an array", b'{"small":[1],"small":2}', {"small": 2}),
    _value("a duplicate of a wrong type", b'{"text":"a","text":1}', CONTRACT),
    _value("a duplicate null", b'{"text":"a","text":null}', {}),
    _value("a wrong type, then garbage", b'{"text":1,]', DECODE),
    _value("huge numbers, ignored", b'{"other":1e999,"more":' + b"9" * 6000 + b"}", {}),
    _value("a bad number, ignored", b'{"other":01}', DECODE),
    _value("NaN, ignored", b'{"other":NaN}', DECODE),
    _value("minus Infinity, ignored", b'{"other":-Infinity}', DECODE),
    _value("100 levels, ignored", _nested(100), {}),
    _value("100 levels of objects, ignored", _nested_objects(100), {}),
    _value("500 levels, ignored", _nested(500), {}),
    _value("500 levels of objects, ignored", _nested_objects(500), {}),
    _value("501 levels, ignored", _nested(501), DECODE),
    _value("501 levels of objects, ignored", _nested_objects(501), DECODE),
    _value("900 levels, ignored", _nested(900), DECODE),
    _value("100,000 levels, ignored", _nested(100_000), DECODE),
    _value("100,000 levels of objects, ignored", _nested_objects(100_000), DECODE),
    _value("100,000 levels that never end", b'{"other":' + b"[" * 100_000, DECODE),
    _value("100 levels in a column", _nested(100, b"text"), CONTRACT),
    _value("100,000 levels in a column", _nested(100_000, b"text"), DECODE),
    _value("only a string, of brackets", b'"' + b"[" * 1001 + b'"', DECODE),
    _value("only a string, of brackets, that never ends", b'"' + b"[" * 1001, DECODE),
    _value("only strings, of brackets", b'"' + b"[" * 600 + b'""' + b"{" * 600 + b'"', DECODE),
    _value("a number of 100,000 digits, ignored", b'{"other":' + b"9" * 100_000 + b"}", {}),
    _value("a fraction of 100,000 digits, ignored", b'{"other":0.' + b"9" * 100_000 + b"}", {}),
    _value("quotes that never end, deep", b'{"other":' + b"[" * 600 + b'"' + b'\\"' * 300_000, DECODE),
    _value("quotes that never end, in a name", b'{"' + b'\\"' * 300_000, DECODE),
    _value("a name of 50,000 letters, ignored", _named("n" * 50_000), {"text": "a"}),
    _value("a name of 50,001 letters, ignored", _named("n" * 50_001), DECODE),
    _value("a name of 50,000 long letters, ignored", _named("é" * 50_000), {"text": "a"}),
    _value("a name of 50,001 long letters, ignored", _named("é" * 50_001), DECODE),
    _value("a name of 25,000 pairs of units, ignored", _named("\U0001f600" * 25_000), {"text": "a"}),
    _value("a name of 25,001 pairs of units, ignored", _named("\U0001f600" * 25_001), DECODE),
    _value("a name of 50,000 escapes, ignored", _named("\\u0061" * 50_000), {"text": "a"}),
    _value("a name of 50,001 escapes, ignored", _named("\\u0061" * 50_001), DECODE),
    _value("a name of 50,001 letters, deeper", _named("n" * 50_001, b'"other":{"more":{'), DECODE),
    _value("a long way to a colon", b'{"other":["a",' + b"1," * 25_001 + b'":b"]}', {}),
    _value("a string of 50,001 letters", b'{"text":"' + b"n" * 50_001 + b'"}', {"text": "n" * 50_001}),
    _value("brackets in strings", b'{"text":"' + b"[" * 2000 + b'"}', {"text": "[" * 2000}),
    _value("brackets after quotes", b'{"text":"' + b'\\"[' * 2000 + b'"}', {"text": '"[' * 2000}),
    _value("many brackets side by side", b'{"other":[' + b"[]," * 2000 + b"[]]}", {}),
]

KEYS = [
    _key("a good key", GOOD_KEY, (7, "u1")),
    _key("an empty string in the key", b'{"app_id":7,"user_id":""}', (7, "")),
    _key("more fields in the key", b'{"app_id":7,"user_id":"u1","text":5,"x":[]}', (7, "u1")),
    _key("duplicate names in the key", b'{"app_id":"x","app_id":8,"user_id":"u1"}', (8, "u1")),
    _key("an escaped zero in the key", b'{"app_id":7,"user_id":"\\u0000"}', (7, "\x00")),
    _key("no key", None, KEY),
    _key("an empty key", b"", KEY),
    _key("a key of text", b"u1", KEY),
    _key("the word null as key", b"null", KEY),
    _key("an array as key", b'[7,"u1"]', KEY),
    _key("two keys", GOOD_KEY + GOOD_KEY, KEY),
    _key("half a key", GOOD_KEY[:-1], KEY),
    _key("a missing key column", b'{"app_id":7}', KEY),
    _key("no key columns", b"{}", KEY),
    _key("a null key column", b'{"app_id":7,"user_id":null}', KEY),
    _key("a duplicate null key column", b'{"app_id":7,"user_id":"u1","app_id":null}', KEY),
    _key("a number for a string in the key", b'{"app_id":7,"user_id":1}', KEY),
    _key("a string for an int in the key", b'{"app_id":"7","user_id":"u1"}', KEY),
    _key("1.0 for an int in the key", b'{"app_id":7.0,"user_id":"u1"}', KEY),
    _key("out of range in the key", b'{"app_id":2147483648,"user_id":"u1"}', KEY),
    _key("a lone surrogate in the key", b'{"app_id":7,"user_id":"\\ud800"}', KEY),
    _key("a lone surrogate, ignored in the key", b'{"app_id":7,"user_id":"u1","x":"\\ud800"}', KEY),
    _key("invalid UTF-8 in the key", b'{"app_id":7,"user_id":"\xff"}', KEY),
    _key("invalid UTF-8, ignored in the key", b'{"app_id":7,"user_id":"u1","x":"\xff"}', KEY),
    _key("a byte order mark in the key", b"\xef\xbb\xbf" + GOOD_KEY, KEY),
    _key("100,000 levels in the key", b'{"app_id":7,"user_id":"u1",' + _nested(100_000)[1:], KEY),
    _key("only a string, of brackets, as key", b'"' + b"[" * 1001 + b'"', KEY),
    _key("only a string, of brackets, that never ends, as key", b'"' + b"[" * 1001, KEY),
    _key("quotes that never end in the key", GOOD_KEY[:-1] + b',"' + b"[" * 600 + b'\\"' * 300_000, KEY),
    _key("a name of 50,001 letters in the key", _named("n" * 50_001, GOOD_KEY[1:-1] + b","), KEY),
    Case("a bad key of a tombstone", b"u1", None, KEY),
    Case("no key of a tombstone", None, None, KEY),
    Case("a bad key of a bad value", b"u1", b"garbage", KEY),
]

COLUMNS = [
    *_column(
        "small",
        {"1": 1, "-1": -1, "0": 0, "-0": 0, "2147483647": 2**31 - 1, "-2147483648": -(2**31)},
        [
            *("1.0", "1e0", "1E0", "1.5", "-0.0", "2147483648", "-2147483649", "9223372036854775808"),
            *("18446744073709551616", "1e999", '"1"', '""', "true", "[]", "[1]", "{}", "9" * 400, "9" * 6000),
        ],
    ),
    *_column(
        "large",
        {"9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63), "9007199254740993": 2**53 + 1},
        ["9223372036854775808", "-9223372036854775809", "18446744073709551615", "1.0", "1e3", '"1"', "false"],
    ),
    *_column(
        "text", {'""': "", '"null"': "null", '"1"': "1"}, ["1", "0", "1.5", "true", "[]", '["a"]', "{}"]
    ),
    *_column(
        "ratio",
        {
            "1": 1.0,
            "-0": 0.0,
            "-0.0": -0.0,
            "1.5": 1.5,
            "1e3": 1000.0,
            "1E-3": 0.001,
            "1e-999": 0.0,
            "1.7976931348623157e308": 1.7976931348623157e308,
            "123456789012345678901": 123456789012345678901.0,
        },
        ["1e999", "-1e999", "1.8e308", "9" * 400, '"1"', '"NaN"', '"Infinity"', "true", "[]", "{}"],
    ),
    *_column(
        "price",
        {
            "1": Decimal("1.00"),
            "-1.5": Decimal("-1.50"),
            "1.50": Decimal("1.50"),
            "1e2": Decimal("100.00"),
            "1.000": Decimal("1.00"),
            "0e999": Decimal("0.00"),
            "1" + "0" * 400 + "e-400": Decimal("1.00"),
            "1." + "0" * 998: Decimal("1.00"),
            "-0": Decimal("0.00"),
            "99999999.99": Decimal("99999999.99"),
            '"12.34"': Decimal("12.34"),
            '"-7"': Decimal("-7.00"),
            "0.1": Decimal("0.10"),
            "10000000e-6": Decimal("10.00"),
        },
        [
            *("1.234", "0.001", "100000000", "999999999.99", "1e8", "1e999999999", "1e-999999999"),
            *(
                "1e99999999999999999999999",
                "9" * 400,
                '"NaN"',
                '"sNaN"',
                '"Infinity"',
                '"-Infinity"',
                '"1e999999999"',
            ),
            *("0e1000", "0e-1000", "1e0001", "1e-999", "-1e999", "1." + "0" * 999, "9" * 6000),
            *('""', '" 1"', '"1 "', '"1_000"', '"1,5"', '"+1"', '".5"', '"5."', '"01"', '"٣"', '"0x1"'),
            *("true", "[]", "{}", "[1]"),
        ],
    ),
    *_column("active", {"true": True, "false": False}, ["1", "0", '"true"', '""', "[]", "{}"]),
    *_column(
        "day",
        {
            '"2026-11-21"': date(2026, 11, 21),
            '"2024-02-29"': date(2024, 2, 29),
            '"0001-01-01"': date(1, 1, 1),
            '"9999-12-31"': date(9999, 12, 31),
        },
        [
            *(
                '"2026-02-30"',
                '"2026-02-29"',
                '"0000-01-01"',
                '"10000-01-01"',
                '"-0001-01-01"',
                '"2026-13-01"',
            ),
            *('"2026-00-01"', '"2026-1-1"', '"20261121"', '"2026-W47-6"', '"2026-325"', '"2026/11/21"', '""'),
            *(
                '" 2026-11-21"',
                '"2026-11-21 "',
                '"2026-11-21T00:00:00Z"',
                '"٢026-11-21"',
                "20261121",
                "20412",
                "[]",
            ),
        ],
    ),
    *_column(
        "at",
        {
            '"2026-11-21T09:33:00Z"': datetime(2026, 11, 21, 9, 33, tzinfo=UTC),
            '"2026-11-21T09:33:00.5Z"': datetime(2026, 11, 21, 9, 33, 0, 500_000, tzinfo=UTC),
            '"2026-11-21T09:33:00.123456Z"': datetime(2026, 11, 21, 9, 33, 0, 123_456, tzinfo=UTC),
            '"2026-11-21T09:33:00+05:30"': datetime(2026, 11, 21, 4, 3, tzinfo=UTC),
            '"2026-11-21T09:33:00.1-23:59"': datetime(2026, 11, 22, 9, 32, 0, 100_000, tzinfo=UTC),
            '"2026-11-21T09:33:00-00:00"': datetime(2026, 11, 21, 9, 33, tzinfo=UTC),
            '"0001-01-01T00:00:00Z"': datetime(1, 1, 1, tzinfo=UTC),
            '"9999-12-31T23:59:59.999999Z"': datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            '"1969-12-31T23:59:59.999999Z"': datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        },
        [
            *('"2026-11-21T09:33:00"', '"2026-11-21T09:33:00.5"', '"2026-11-21"', '"2026-12-31T23:59:60Z"'),
            *(
                '"2026-11-21T09:33:00.1234567Z"',
                '"2026-11-21T09:33:00.000000000Z"',
                '"2026-11-21T09:33:00.Z"',
            ),
            *('"2026-11-21T09:33:00,5Z"', '"0000-01-01T00:00:00Z"', '"10000-01-01T00:00:00Z"'),
            *(
                '"2026-02-30T00:00:00Z"',
                '"2026-11-21t09:33:00Z"',
                '"2026-11-21T09:33:00z"',
                '"2026-11-21 09:33:00Z"',
            ),
            *(
                '"2026-11-21_09:33:00Z"',
                '"2026-11-21T24:00:00Z"',
                '"2026-11-21T09:60:00Z"',
                '"2026-11-21T09:33Z"',
            ),
            *(
                '"20261121T093300Z"',
                '"2026-W47-6T09:33:00Z"',
                '"2026-11-21T09:33:00 Z"',
                '"2026-11-21T09:33:00ZZ"',
            ),
            *('"2026-11-21T09:33:00+0530"', '"2026-11-21T09:33:00+05"', '"2026-11-21T09:33:00+24:00"'),
            *('"2026-11-21T09:33:00+05:60"', '"2026-11-21T09:33:00+05:30:10"', '"2026-11-21T09:33:00UTC"'),
            *('"2026-11-21T09:33:00Z[UTC]"', '"0001-01-01T00:00:00+00:01"', '"9999-12-31T23:59:59-00:01"'),
            *(
                '"2026-11-21T09:33:00−05:30"',
                '"٢026-11-21T09:33:00Z"',
                '" 2026-11-21T09:33:00Z"',
                '""',
                '"now"',
            ),
            *("1763717580", "1763717580000", "1763717580.5", "true", "[]", "{}"),
        ],
    ),
    *_column(
        "at_ms",
        {
            "1763717580123": datetime(2025, 11, 21, 9, 33, 0, 123_000, tzinfo=UTC),
            "0": datetime(1970, 1, 1, tzinfo=UTC),
            "-1": datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
            "253402300799999": datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
            "-62135596800000": datetime(1, 1, 1, tzinfo=UTC),
        },
        [
            *("1763717580123.0", "1763717580123.5", "1e12", "253402300800000", "-62135596800001"),
            *("9223372036854775807", "9" * 30, '"1763717580123"', '"2026-11-21T09:33:00Z"', "true", "[]"),
        ],
    ),
    *_column(
        "local",
        {
            '"2026-11-21T09:33:00"': _local(2026, 11, 21, 9, 33),
            '"2026-11-21T09:33:00.5"': _local(2026, 11, 21, 9, 33, 0, 500_000),
            '"2026-11-21T09:33:00.123456"': _local(2026, 11, 21, 9, 33, 0, 123_456),
            '"2024-02-29T23:59:59"': _local(2024, 2, 29, 23, 59, 59),
            '"0001-01-01T00:00:00"': _local(1, 1, 1),
            '"9999-12-31T23:59:59.999999"': _local(9999, 12, 31, 23, 59, 59, 999_999),
            '"1969-12-31T23:59:59.999999"': _local(1969, 12, 31, 23, 59, 59, 999_999),
        },
        [
            *('"2026-11-21T09:33:00Z"', '"2026-11-21T09:33:00+00:00"', '"2026-11-21T09:33:00.5-01:00"'),
            *('"2026-11-21"', '"2026-11-21T09:33"', '"2026-11-21 09:33:00"', '"2026-11-21t09:33:00"'),
            *('"2026-11-21T24:00:00"', '"2026-11-21T09:60:00"', '"2026-12-31T23:59:60"'),
            *('"2026-02-29T00:00:00"', '"0000-01-01T00:00:00"', '"10000-01-01T00:00:00"'),
            *('"2026-11-21T09:33:00."', '"2026-11-21T09:33:00.1234567"', '"2026-11-21T09:33:00,5"'),
            *('"٢026-11-21T09:33:00"', '" 2026-11-21T09:33:00"', '"2026-11-21T09:33:00 "', '""', '"now"'),
            *("1763717580", "true", "[]", "{}"),
        ],
    ),
    *_column(
        "local_us",
        {
            "1763717580123456": _local(2025, 11, 21, 9, 33, 0, 123_456),
            "0": _local(1970, 1, 1),
            "-1": _local(1969, 12, 31, 23, 59, 59, 999_999),
            "253402300799999999": _local(9999, 12, 31, 23, 59, 59, 999_999),
            "-62135596800000000": _local(1, 1, 1),
        },
        ["253402300800000000", "-62135596800000001", "1.0", "1e15", '"0"', '"2026-11-21T09:33:00"', "true"],
    ),
    *_column(
        "clock",
        {
            '"09:33:00"': time(9, 33),
            '"09:33:00.5"': time(9, 33, 0, 500_000),
            '"09:33:00.123456"': time(9, 33, 0, 123_456),
            '"00:00:00"': time(),
            '"23:59:59.999999"': time(23, 59, 59, 999_999),
        },
        [
            *('"09:33"', '"9:33:00"', '"24:00:00"', '"09:60:00"', '"23:59:60"', '"T09:33:00"', '"093300"'),
            *('"09:33:00Z"', '"09:33:00+00:00"', '"09:33:00."', '"09:33:00.1234567"', '"09:33:00,5"'),
            *(
                '"2026-11-21T09:33:00"',
                '"٠9:33:00"',
                '" 09:33:00"',
                '"09:33:00 "',
                '""',
                "34380",
                "true",
                "[]",
            ),
        ],
    ),
    *_column(
        "clock_ms",
        {"0": time(), "34380123": time(9, 33, 0, 123_000), "86399999": time(23, 59, 59, 999_000)},
        [
            *("86400000", "-1", "34380123.0", "1e3", "9223372036854775807", "9" * 30),
            *('"34380123"', '"09:33:00"', "true", "[]"),
        ],
    ),
    *_column(
        "id",
        {
            '"f79c3e09-677c-4bbd-a479-3f349cb785e7"': UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
            '"F79C3E09-677C-4BBD-A479-3F349CB785E7"': UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
            '"00000000-0000-0000-0000-000000000000"': UUID(int=0),
        },
        [
            *(
                '"f79c3e09677c4bbda4793f349cb785e7"',
                '"{f79c3e09-677c-4bbd-a479-3f349cb785e7}"',
                '""',
                "1",
                "[]",
            ),
            *('"urn:uuid:f79c3e09-677c-4bbd-a479-3f349cb785e7"', '"f79c3e09-677c-4bbd-a479-3f349cb785e"'),
            *('"f79c3e0-9677c-4bbd-a479-3f349cb785e7"', '"g79c3e09-677c-4bbd-a479-3f349cb785e7"'),
            *('" f79c3e09-677c-4bbd-a479-3f349cb785e7"', '"f79c3e09-677c-4bbd-a479-3f349cb785e7\\n"'),
        ],
    ),
    *_column(
        "raw",
        {'""': b"", '"AAECAw=="': b"\x00\x01\x02\x03", '"+/+/"': b"\xfb\xff\xbf", '"YQ=="': b"a"},
        [
            *(
                '"YQ"',
                '"YQ="',
                '"YQ==="',
                '"YQ==YQ=="',
                '"-_-_"',
                '"YW Jj"',
                '"YWJj\\n"',
                '" YWJj"',
                '"YWJj="',
            ),
            *('"YR=="', '"Y"', '"="', '"===="', '"ä"', "1", "true", "[97]", "{}"),
        ],
    ),
    _value("NaN for a double", b'{"ratio":NaN}', DECODE),
    _value("Infinity for a double", b'{"ratio":Infinity}', DECODE),
    _value("minus Infinity for a double", b'{"ratio":-Infinity}', DECODE),
    _value("a leading zero", b'{"small":01}', DECODE),
    _value("a leading zero below zero", b'{"small":-01}', DECODE),
    _value("a leading plus", b'{"small":+1}', DECODE),
    _value("a leading point", b'{"ratio":.5}', DECODE),
    _value("a trailing point", b'{"ratio":1.}', DECODE),
    _value("a hexadecimal number", b'{"small":0x10}', DECODE),
    _value("an empty exponent", b'{"ratio":1e}', DECODE),
    _value("a leading zero of a decimal", b'{"price":01}', DECODE),
    _value("NaN for a decimal", b'{"price":NaN}', DECODE),
]

CASES = [*DOCUMENTS, *UNICODE, *FIELDS, *KEYS, *COLUMNS]
