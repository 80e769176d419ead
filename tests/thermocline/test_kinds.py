"""Every kind of column through every reader and writer, with values written by hand.

A kind that one of them leaves out fails here, or where the module is imported, and not in somebody's extract.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from docs.generate import COLUMN_TYPES
from thermocline.errors import BadParameter, ConfigInvalid
from thermocline.iceberg.data_file import write_data_file
from thermocline.rules.column_types import TYPES, ColumnType, Kind, Packing, Token, for_every
from thermocline.rules.decode import Unpacker, decoder_for, pack_rows, records_table, unpack_arrays
from thermocline.rules.decode.arrow import arrow_array, natural_values
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import decode_arrays, decode_one, encode_one, encode_table, parse_value
from thermocline.rules.protobuf_schema import message_called, packed_schema
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.serving.cold.reader import natural
from thermocline.serving.read.lines import encode_csv, encode_json_lines
from thermocline.serving.where.expression import expression_of
from thermocline.serving.where.sql import parse_where
from thermocline.views import fields
from thermocline.views.readable import unreadable_in_sql


@dataclass(frozen=True)
class Names:
    """What the type is called: by Arrow, Iceberg, DuckDB and Trino, and its JSON schema."""

    arrow: str
    iceberg: str
    duckdb: str
    trino: str
    json_schema: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A value of a type.

    ``sent`` is its JSON token in a record, ``given`` the one in answers, ``csv`` what CSV has. ``where`` is a
    condition that is true of it. ``avro`` is a type and a value that fastavro writes, ``protobuf`` a field's
    type and a value, ``text`` what a header or a plain key has; ``key`` its bytes in a key, in hexadecimal.
    None: it can't be.
    """

    type: str
    value: Any
    sent: str
    given: str
    csv: str
    where: str | None
    avro: tuple[Any, Any] | None
    protobuf: tuple[str, Any] | None
    text: bytes | None
    key: str | None

    @property
    def of(self) -> ColumnType:
        return ColumnType.parse(self.type)


GUID = UUID("89791762-2336-186f-9674-299b90a8e2e7")
AT = datetime(2026, 1, 2, 3, 4, 5, 600_000, UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
LOCAL_FIRST = datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)
DAY = {"type": "int", "logicalType": "date"}
CLOCK = {"type": "long", "logicalType": "time-micros"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL_MICROS = {"type": "long", "logicalType": "local-timestamp-micros"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 7}
PAIR = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "day", "type": DAY}, {"name": "n", "type": ["null", "int"]}],
}
PAIR_SCHEMA = {
    "type": "object",
    "properties": {
        "day": {"type": ["string", "null"], "format": "date"},
        "n": {"type": ["integer", "null"], "format": "int32"},
    },
    "required": ["day", "n"],
    "additionalProperties": False,
}
NAMES = {
    Kind.INT: Names("int32", "int", "INTEGER", "integer", {"type": "integer", "format": "int32"}),
    Kind.LONG: Names("int64", "long", "BIGINT", "bigint", {"type": "integer", "format": "int64"}),
    Kind.STRING: Names("string", "string", "VARCHAR", "varchar", {"type": "string"}),
    Kind.DOUBLE: Names("double", "double", "DOUBLE", "double", {"type": "number", "format": "double"}),
    Kind.DECIMAL: Names(
        "decimal128(9, 7)",
        "decimal(9, 7)",
        "DECIMAL(9,7)",
        "decimal(9, 7)",
        {"type": "string", "format": "decimal"},
    ),
    Kind.BOOLEAN: Names("bool", "boolean", "BOOLEAN", "boolean", {"type": "boolean"}),
    Kind.DATE: Names("date32[day]", "date", "DATE", "date", {"type": "string", "format": "date"}),
    Kind.TIME: Names(
        "time64[us]",
        "time",
        "TIME",
        "time(6)",
        {"type": "string", "pattern": r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"},
    ),
    Kind.TIMESTAMPTZ: Names(
        "timestamp[us, tz=UTC]",
        "timestamptz",
        "TIMESTAMP WITH TIME ZONE",
        "timestamp(6) with time zone",
        {"type": "string", "format": "date-time"},
    ),
    Kind.TIMESTAMP: Names(
        "timestamp[us]",
        "timestamp",
        "TIMESTAMP",
        "timestamp(6)",
        {
            "type": "string",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
        },
    ),
    Kind.UUID: Names(
        "fixed_size_binary[16]",
        "uuid",
        "BLOB",
        "uuid",
        {"type": "string", "format": "uuid"},
    ),
    Kind.BINARY: Names(
        "binary",
        "binary",
        "BLOB",
        "varbinary",
        {"type": "string", "contentEncoding": "base64"},
    ),
    Kind.JSON: Names(
        "string", "string", "VARCHAR", "varchar", {"type": "string", "contentMediaType": "application/json"}
    ),
    Kind.STRUCT: Names(
        "struct<day: date32[day], n: int32>",
        "struct<7: day: optional date, 8: n: optional int>",
        'STRUCT("day" DATE, n INTEGER)',
        'row("day" date, "n" integer)',
        PAIR_SCHEMA,
    ),
    Kind.LIST: Names(
        "list<element: int32>",
        "list<int>",
        "INTEGER[]",
        "array(integer)",
        {"type": "array", "items": {"type": ["integer", "null"], "format": "int32"}},
    ),
    Kind.MAP: Names(
        "map<string, double>",
        "map<string, double>",
        "MAP(VARCHAR, DOUBLE)",
        "map(varchar, double)",
        {"type": "object", "additionalProperties": {"type": ["number", "null"], "format": "double"}},
    ),
}
CASES = [
    Case("int", -(2**31), "-2147483648", "-2147483648", "-2147483648", "v < 0", ("int", -(2**31)), ("sint32", -(2**31)), b"-2147483648", "00000000"),
    Case("int", 2**31 - 1, "2147483647", "2147483647", "2147483647", "v = 2147483647", ("int", 2**31 - 1), ("int32", 2**31 - 1), b"2147483647", "ffffffff"),
    Case("long", -(2**63), "-9223372036854775808", "-9223372036854775808", "-9223372036854775808", "v = -9223372036854775808", ("long", -(2**63)), ("sint64", -(2**63)), b"-9223372036854775808", "0000000000000000"),
    Case("long", 2**63 - 1, "9223372036854775807", "9223372036854775807", "9223372036854775807", "v > 9223372036854775806", ("long", 2**63 - 1), ("uint64", 2**63 - 1), b"9223372036854775807", "ffffffffffffffff"),
    Case("string", 'a"b', '"a\\"b"', '"a\\"b"', '"a""b"', "v = 'a\"b'", ("string", 'a"b'), ("string", 'a"b'), b'a"b', "6122620001"),
    Case("string", "", '""', '""', '""', "v = ''", ("string", ""), ("string", ""), b"", "0001"),
    Case("string", "\x00é😀", '"\\u0000é😀"', '"\\u0000é😀"', '"\x00é😀"', "v LIKE '%😀'", ("string", "\x00é😀"), ("string", "\x00é😀"), "\x00é😀".encode(), "00ffc3a9f09f98800001"),
    Case("double", -0.5, "-5e-1", "-0.5", "-0.5", "v = -0.5", ("double", -0.5), ("float", -0.5), None, None),
    Case("double", 1.7976931348623157e308, "1.7976931348623157e308", "1.7976931348623157e308", "1.7976931348623157e+308", "v > 1e308", ("double", 1.7976931348623157e308), ("double", 1.7976931348623157e308), None, None),
    Case("decimal(9,7)", Decimal("0.0000001"), "1e-7", '"0.0000001"', "0.0000001", "v = 0.0000001", (PRICE, Decimal("0.0000001")), ("confluent.type.Decimal", {"value": b"\x01", "scale": 7}), b"0.0000001", None),
    Case("decimal(9,7)", Decimal("-99.9999999"), '"-99.9999999"', '"-99.9999999"', "-99.9999999", "v < -99", (PRICE, Decimal("-99.9999999")), ("confluent.type.Decimal", {"value": b"\xc4\x65\x36\x01", "scale": 7}), b"-99.9999999", None),
    Case("boolean", True, "true", "true", "true", "v", ("boolean", True), ("bool", True), None, None),
    Case("boolean", False, "false", "false", "false", "v = FALSE", ("boolean", False), ("bool", False), None, None),
    Case("date", date(1, 1, 1), '"0001-01-01"', '"0001-01-01"', "0001-01-01", "v = '0001-01-01'", (DAY, date(1, 1, 1)), ("google.type.Date", {"year": 1, "month": 1, "day": 1}), b"0001-01-01", "7ff506c6"),
    Case("date", date(9999, 12, 31), '"9999-12-31"', '"9999-12-31"', "9999-12-31", "v > '9999-12-30'", (DAY, date(9999, 12, 31)), ("google.type.Date", {"year": 9999, "month": 12, "day": 31}), b"9999-12-31", "802cc0a0"),
    Case("time", time(0), '"00:00:00"', '"00:00:00"', '"00:00:00"', "v = '00:00:00'", (CLOCK, time(0)), ("google.type.TimeOfDay", {"nanos": 0}), b"00:00:00", None),
    Case("time", time(7, 8, 9, 500_000), '"07:08:09.5"', '"07:08:09.500000"', '"07:08:09.500000"', "v > '07:08:09.499999'", (CLOCK, time(7, 8, 9, 500_000)), ("google.type.TimeOfDay", {"hours": 7, "minutes": 8, "seconds": 9, "nanos": 500_000_000}), b"07:08:09.5", None),
    Case("time", time(23, 59, 59, 999_999), '"23:59:59.999999"', '"23:59:59.999999"', '"23:59:59.999999"', "v = '23:59:59.999999'", (CLOCK, time(23, 59, 59, 999_999)), ("google.type.TimeOfDay", {"hours": 23, "minutes": 59, "seconds": 59, "nanos": 999_999_000}), b"23:59:59.999999", None),
    Case("timestamptz", AT, '"2026-01-02T05:04:05.6+02:00"', '"2026-01-02T03:04:05.600000Z"', '"2026-01-02T03:04:05.600000Z"', "v < '2026-01-03T00:00:00Z'", (MICROS, AT), ("google.protobuf.Timestamp", {"seconds": 1_767_323_045, "nanos": 600_000_000}), b"2026-01-02T03:04:05.6Z", None),
    Case("timestamptz", LAST, '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59.999999Z"', "v = '9999-12-31T23:59:59.999999Z'", (MICROS, LAST), ("google.protobuf.Timestamp", {"seconds": 253_402_300_799, "nanos": 999_999_000}), b"9999-12-31T23:59:59.999999Z", None),
    Case("timestamp", LOCAL_FIRST, '"0001-01-01T00:00:00"', '"0001-01-01T00:00:00"', '"0001-01-01T00:00:00"', "v = '0001-01-01T00:00:00'", (LOCAL_MICROS, LOCAL_FIRST), None, b"0001-01-01T00:00:00", None),
    Case("timestamp", AT.replace(tzinfo=None), '"2026-01-02T03:04:05.6"', '"2026-01-02T03:04:05.600000"', '"2026-01-02T03:04:05.600000"', "v < '2026-01-03T00:00:00'", (LOCAL_MICROS, AT.replace(tzinfo=None)), None, b"2026-01-02T03:04:05.600000", None),
    Case("uuid", GUID, f'"{str(GUID).upper()}"', f'"{GUID}"', f'"{GUID}"', f"v = '{GUID}'", ({"type": "string", "logicalType": "uuid"}, GUID), ("bytes", GUID.bytes), str(GUID).encode(), "897917622336186f9674299b90a8e2e7"),
    Case("binary", b"\x00\xff", '"AP8="', '"AP8="', '"AP8="', "v = 'AP8='", ("bytes", b"\x00\xff"), ("bytes", b"\x00\xff"), b"\x00\xff", "00ffff0001"),
    Case("binary", b"", '""', '""', '""', "v = ''", ("bytes", b""), ("bytes", b""), b"", "0001"),
    Case("json", '{"a":1}', '{"a":1}', '"{\\"a\\":1}"', '"{""a"":1}"', "v LIKE '%a%'", ({"type": "map", "values": "int"}, {"a": 1}), ("map<string, sint32>", {"a": 1}), None, None),
    Case("struct<day: date, n: int>", {"day": date(2026, 1, 2), "n": None}, '{"day":"2026-01-02","x":1}', '{"day":"2026-01-02","n":null}', '"{""day"":""2026-01-02"",""n"":null}"', None, (PAIR, {"day": date(2026, 1, 2), "n": None}), ("Pair", {"day": {"year": 2026, "month": 1, "day": 2}}), None, None),
    Case("list<int>", [1, 2], "[1,2]", "[1,2]", '"[1,2]"', None, ({"type": "array", "items": ["int", "null"]}, [1, 2]), ("repeated sint32", [1, 2]), None, None),
    Case("list<time>", [time(1, 2, 3), time(4, 5, 6, 7)], '["01:02:03","04:05:06.000007"]', '["01:02:03","04:05:06.000007"]', '"[""01:02:03"",""04:05:06.000007""]"', None, ({"type": "array", "items": CLOCK}, [time(1, 2, 3), time(4, 5, 6, 7)]), ("repeated google.type.TimeOfDay", [{"hours": 1, "minutes": 2, "seconds": 3}, {"hours": 4, "minutes": 5, "seconds": 6, "nanos": 7_000}]), None, None),
    Case("map<string, double>", {"a": 0.5, "b": 1.0}, '{"b":1,"a":0.5}', '{"a":0.5,"b":1.0}', '"{""a"":0.5,""b"":1.0}"', None, ({"type": "map", "values": "double"}, {"a": 0.5, "b": 1.0}), ("map<string, double>", {"a": 0.5, "b": 1.0}), None, None),
]  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type} {case.sent}")
every_kind = pytest.mark.parametrize("kind", Kind)


def test_every_kind_is_named_described_and_has_a_value_here() -> None:
    assert set(TYPES) == set(COLUMN_TYPES) == set(NAMES) == {case.of.kind for case in CASES} == set(Kind)


def test_a_mapping_that_leaves_a_kind_out_fails_where_it_is_made() -> None:
    some: dict[Kind, int] = {kind: 1 for kind in Kind if kind is not Kind.UUID}
    with pytest.raises(AssertionError, match="nothing is said of uuid"):
        for_every(Kind, some)
    assert for_every(Token, {token: str(token) for token in Token})[Token.TEXT] == "text"
    assert {entry.packing for entry in TYPES.values()} == set(Packing)


@every_kind
def test_a_type_has_its_name_in_every_language(kind: Kind) -> None:
    spelled = next(case.type for case in CASES if case.of.kind is kind)
    definition = table(spelled)
    column, names = definition.columns[1], NAMES[kind]
    assert str(ColumnType.parse(spelled).arrow) == names.arrow
    assert str(definition.iceberg_schema().find_type("v")) == names.iceberg
    assert column.type.trino == names.trino
    assert column.type.json_schema == names.json_schema
    empty = duckdb.sql(f"SELECT CAST(NULL AS {column.type.duckdb})")
    assert empty is not None
    assert list(map(str, empty.types)) == [names.duckdb]
    of_arrow = duckdb.from_arrow(pa.table({"v": pa.nulls(1, column.type.arrow)}))
    assert of_arrow.types == empty.types
    assert ColumnType.parse(column.type.declared) == column.type


@every_case
def test_json_is_read_and_null_is_null(case: Case) -> None:
    assert of_json(case, case.sent, "null") == [case.value, None]


@every_case
def test_the_hot_tiers_payload_gives_it_back_one_by_one_and_all_at_once(case: Case) -> None:
    definition = table(case.type)
    decoded = decoder_for(definition).decode([b"a", b"b"], [record(case.sent), record("null")])
    payloads = pack_rows(definition, decoded)
    assert [Unpacker(definition).unpack(one)[0] for one in payloads] == [case.value, None]
    arrays = unpack_arrays(definition, pa.array(payloads, pa.large_binary()), ["v"])
    assert natural_values(case.of, arrays["v"]) == [case.value, None]


@every_case
def test_a_data_file_gives_it_back(case: Case, tmp_path: Path) -> None:
    definition = table(case.type)
    decoded = decoder_for(definition).decode([b"a", b"b"], [record(case.sent), record("null")])
    records = records_table(definition, decoded, "t", 0, [0, 1], [0, 0])
    path = str(tmp_path / "data.parquet")
    written = write_data_file(PyArrowFileIO(), path, definition, records)
    read = pq.read_table(path).column("v").combine_chunks()
    assert natural(definition.columns[1].type, read) == [case.value, None]
    assert (definition.columns[1].field_id not in written.lower_bounds) == (case.of.kind in WITHOUT_BOUNDS)


@every_case
def test_it_is_given_out_as_json_and_csv(case: Case) -> None:
    column = table(case.type).columns[1]
    batch = pa.record_batch([stored(case)], names=["v"])
    assert b"".join(encode_json_lines([column], [batch])).decode() == f'{{"v":{case.given}}}\n'
    assert b"".join(encode_csv([column], [batch])).decode() == f'"v"\r\n{case.csv}\r\n'
    token = json.loads(case.given)
    assert isinstance(token, JSON_TYPES[column.type.json_schema["type"]])


@every_case
def test_what_is_given_out_is_read_as_the_same(case: Case) -> None:
    if case.of.kind is not Kind.JSON:
        assert of_json(case, case.given) == [case.value]


@every_case
def test_a_condition_and_duckdb_know_it(case: Case) -> None:
    if case.where is None:
        with pytest.raises(BadParameter, match=r"only IS \[NOT\] NULL can be asked"):
            parse_where(table(case.type), "v = '1'")
        return
    rows = duckdb.from_arrow(pa.table({"v": stored(case)}))
    condition = expression_of(parse_where(table(case.type), case.where), {"v": "v"})
    assert len(rows.filter(condition).fetchall()) == 1
    assert rows.filter(~condition).fetchall() == []


@every_case
def test_avro_is_read(case: Case) -> None:
    assert case.avro is not None
    declared, value = case.avro
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": declared}]}
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"v": value})
    definition = table(case.type, format="avro", value_schema=json.dumps(schema))
    decoded = decoder_for(definition).decode([b"a"], [sink.getvalue()])
    assert (decoded.bad, decoded.columns["v"]) == ([], [case.value])


@every_case
def test_protobuf_is_read_or_refused(case: Case) -> None:
    declared, value = case.protobuf or ("google.protobuf.Timestamp", {"seconds": 1})
    schema = compiled_row(declared)
    row = message_called(schema, "Row")(v=value)
    definition = table(case.type, format="protobuf", value_schema=packed_schema(schema), value_message="Row")
    decoded = decoder_for(definition).decode([b"a"], [row.SerializeToString()])
    if case.protobuf is None:
        (bad,) = decoded.bad
        assert "the record has a value of type message google.protobuf.Timestamp" in bad.reason
    else:
        assert (decoded.bad, decoded.columns["v"]) == ([], [case.value])


@every_case
def test_a_header_has_it_or_the_definition_refuses_it(case: Case) -> None:
    columns = {"id": "string", "v": {"type": case.type, "header": "h"}}
    if case.text is None:
        with pytest.raises(ConfigInvalid, match="header"):
            table(case.type, columns=columns)
        return
    headers = [("h", case.text)]
    decoder = decoder_for(table(case.type, columns=columns))
    decoded = decoder.decode([b"a"], [b"{}"], lambda _: headers)
    assert (decoded.bad, decoded.columns["v"]) == ([], [case.value])


@every_case
def test_a_key_is_its_bytes_or_the_definition_refuses_it(case: Case) -> None:
    settings = {"key": ["v"], "columns": {"v": case.type}, "key_format": "json"}
    if case.key is None:
        with pytest.raises(ConfigInvalid, match="but a key can only have"):
            table(case.type, **settings)
        return
    keyed = table(case.type, **settings)
    key = encode_one(keyed, [case.value])
    assert key.hex() == case.key
    assert decode_one(keyed, key) == (case.value,)
    assert encode_table(keyed, pa.table({"v": stored(case)})).to_pylist() == [key]
    (values,) = decode_arrays(keyed, pa.array([key], pa.binary()))
    assert values.equals(stored(case))
    spelled = case.csv.strip('"').replace('""', '"')
    assert parse_value(keyed.columns[0], spelled) == case.value


@every_case
def test_a_plain_key_has_it_or_the_definition_refuses_it(case: Case) -> None:
    format_ = "bytes" if case.of.kind is Kind.BINARY else "string"
    settings = {"key": ["v"], "columns": {"v": case.type, "w": "int"}, "key_format": format_}
    if case.key is None or case.text is None:
        with pytest.raises(ConfigInvalid):
            table(case.type, **settings)
        return
    decoded = decoder_for(table(case.type, **settings)).decode([case.text], [b'{"w":1}'])
    assert (decoded.bad, decoded.columns["v"]) == ([], [case.value])


@every_case
def test_trino_reads_it_from_kafka_or_is_told_that_it_cannot(case: Case) -> None:
    definition = table(case.type)
    why = unreadable_in_sql(definition)
    if case.of.kind in (Kind.JSON, Kind.STRUCT, Kind.LIST, Kind.MAP):
        assert why is not None
        assert "column v" in why
        return
    assert why is None
    assert "found" in fields.value(definition.columns[1], "found", "text")


WITHOUT_BOUNDS = (Kind.BOOLEAN, Kind.UUID, Kind.BINARY, Kind.STRUCT, Kind.LIST, Kind.MAP)
JSON_TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": int, "number": float, "string": str, "boolean": bool, "array": list, "object": dict,
}  # fmt: skip


@cache
def compiled_row(declared: str) -> bytes:
    imports = (
        "confluent/type/decimal",
        "google/protobuf/timestamp",
        "google/type/date",
        "google/type/timeofday",
    )
    text = "".join(f'import "{one}.proto"; ' for one in imports)
    pair = "message Pair { google.type.Date day = 1; optional int32 n = 2; }"
    row = f"message Row {{ {declared} v = 1; }}"
    return compiled({"row.proto": f'syntax = "proto3"; {text} {pair} {row}'}, "row.proto")


def table(spelled: str, **settings: Any) -> LiveTable:
    given = {"key": ["id"], "key_format": "string", "columns": {"id": "string", "v": spelled}, **settings}
    return LiveTable.build(name="t", identifier="app.t", topics=["t"], buckets=1, **given)


def record(token: str) -> bytes:
    return f'{{"v":{token}}}'.encode()


def of_json(case: Case, *tokens: str) -> list[Any]:
    decoded = decoder_for(table(case.type)).decode([b"a"] * len(tokens), list(map(record, tokens)))
    assert decoded.bad == []
    return decoded.columns["v"]


def stored(case: Case) -> pa.Array:
    return arrow_array(case.of, [case.value])
