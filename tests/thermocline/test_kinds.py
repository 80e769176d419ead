"""Every kind of column through every reader and writer, with values written by hand.

A kind that is left out of one of them fails here, and not in somebody's extract.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thermocline.errors import BadParameter, ConfigInvalid
from thermocline.rules.column_types import TYPES, ColumnType, Kind
from thermocline.rules.decode import Unpacker, decoder_for, pack_rows, records_table, unpack_arrays
from thermocline.rules.decode.arrow import arrow_array, natural_values
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition.options import ONE_COLUMN
from thermocline.rules.hot_columns import hot_columns, unservable
from thermocline.rules.keys import decode_one, encode_one
from thermocline.serving.read.lines import encode_csv, encode_json_lines
from thermocline.serving.trino.blocks import as_served, block
from thermocline.serving.where.expression import expression_of
from thermocline.serving.where.sql import parse_where
from thermocline.views import fields, render_server
from thermocline.views.readable import unreadable_in_sql


class Case(NamedTuple):
    """``sent`` is a JSON token in a record, ``given`` what is given out in JSON, ``csv`` in CSV.

    ``where`` is a condition that is true of the value. ``avro`` is a type of Avro, and a value of it that
    fastavro writes. None: there is no such thing for the kind.
    """

    type: str
    value: Any
    sent: str
    given: str
    csv: str
    where: str | None
    avro: tuple[Any, Any] | None


GUID = UUID("89791762-2336-186f-9674-299b90a8e2e7")
AT = datetime(2026, 1, 2, 3, 4, 5, 600_000, UTC)
CASES: dict[Kind, Case] = {
    Kind.INT: Case("int", -(2**31), "-2147483648", "-2147483648", "-2147483648", "v < 0", ("int", -(2**31))),
    Kind.LONG: Case("long", 2**63 - 1, str(2**63 - 1), str(2**63 - 1), str(2**63 - 1), "v > 0", ("long", 2**63 - 1)),
    Kind.STRING: Case("string", 'a"b', '"a\\"b"', '"a\\"b"', '"a""b"', "v = 'a\"b'", ("string", 'a"b')),
    Kind.DOUBLE: Case("double", -0.5, "-5e-1", "-0.5", "-0.5", "v = -0.5", ("double", -0.5)),
    Kind.DECIMAL: Case(
        "decimal(9,7)", Decimal("0.0000001"), "1e-7", '"0.0000001"', "0.0000001", "v = 0.0000001",
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 7}, Decimal("0.0000001")),
    ),
    Kind.BOOLEAN: Case("boolean", True, "true", "true", "true", "v", ("boolean", True)),
    Kind.DATE: Case(
        "date", date(1, 1, 1), '"0001-01-01"', '"0001-01-01"', "0001-01-01", "v = '0001-01-01'",
        ({"type": "int", "logicalType": "date"}, date(1, 1, 1)),
    ),
    Kind.TIME: Case(
        "time", time(23, 59, 59, 500_000), '"23:59:59.5"', '"23:59:59.500000"', '"23:59:59.500000"',
        "v > '23:59:59'", ({"type": "long", "logicalType": "time-micros"}, time(23, 59, 59, 500_000)),
    ),
    Kind.TIMESTAMPTZ: Case(
        "timestamptz", AT, '"2026-01-02T05:04:05.6+02:00"', '"2026-01-02T03:04:05.600000Z"',
        '"2026-01-02T03:04:05.600000Z"', "v < '2026-01-03T00:00:00Z'",
        ({"type": "long", "logicalType": "timestamp-micros"}, AT),
    ),
    Kind.TIMESTAMP: Case(
        "timestamp", AT.replace(tzinfo=None), '"2026-01-02T03:04:05.6"', '"2026-01-02T03:04:05.600000"',
        '"2026-01-02T03:04:05.600000"', "v < '2026-01-03T00:00:00'",
        ({"type": "long", "logicalType": "local-timestamp-micros"}, AT.replace(tzinfo=None)),
    ),
    Kind.UUID: Case("uuid", GUID, f'"{GUID}"', f'"{GUID}"', f'"{GUID}"', f"v = '{GUID}'", ({"type": "string", "logicalType": "uuid"}, GUID)),
    Kind.BINARY: Case("binary", b"\x00\xff", '"AP8="', '"AP8="', '"AP8="', "v = 'AP8='", ("bytes", b"\x00\xff")),
    Kind.JSON: Case("json", '{"a":1}', '{"a":1}', '"{\\"a\\":1}"', '"{""a"":1}"', "v LIKE '%a%'", ({"type": "map", "values": "int"}, {"a": 1})),
    Kind.STRUCT: Case(
        "struct<at: time, n: int>", {"at": time(1, 2, 3), "n": None}, '{"at":"01:02:03","n":null}',
        '{"at":"01:02:03","n":null}', '"{""at"":""01:02:03"",""n"":null}"', None,
        (
            {
                "type": "record", "name": "S", "fields": [
                    {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
                    {"name": "n", "type": ["null", "int"]},
                ],
            },
            {"at": time(1, 2, 3), "n": None},
        ),
    ),
    Kind.LIST: Case("list<int>", [1, None], "[1,null]", "[1,null]", '"[1,null]"', None, ({"type": "array", "items": ["int", "null"]}, [1, None])),
    Kind.MAP: Case("map<string, double>", {"a": 0.5}, '{"a":0.5}', '{"a":0.5}', '"{""a"":0.5}"', None, ({"type": "map", "values": "double"}, {"a": 0.5})),
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", Kind)


def table(kind: Kind, **settings: Any) -> LiveTable:
    given = {
        "key": ["id"],
        "key_format": "string",
        "columns": {"id": "string", "v": CASES[kind].type},
        **settings,
    }
    return LiveTable.build(name="t", identifier="app.t", topics=["t"], **given)


def natural(kind: Kind, array: pa.Array) -> Any:
    (value,) = natural_values(ColumnType.parse(CASES[kind].type), array)
    return fields_of(value)


def fields_of(value: Any) -> Any:
    """A struct's natural value as a dict."""
    return (
        {name: getattr(value, name) for name in value.__struct_fields__}
        if hasattr(value, "__struct_fields__")
        else value
    )


def stored(kind: Kind) -> pa.Array:
    """The value as an Arrow column, as JSON decoding gives it."""
    decoded = decoder_for(table(kind)).decode([b"a"], [b'{"v":' + CASES[kind].sent.encode() + b"}"])
    assert decoded.bad == []
    return arrow_array(ColumnType.parse(CASES[kind].type), decoded.columns["v"])


def test_every_kind_has_its_entry_and_its_case() -> None:
    assert set(TYPES) == set(CASES) == set(Kind)


@every_kind
def test_json_is_read_and_null_is_null(kind: Kind) -> None:
    decoded = decoder_for(table(kind)).decode(
        [b"a", b"b"], [b'{"v":' + CASES[kind].sent.encode() + b"}", b'{"v":null}']
    )
    assert decoded.bad == []
    assert [fields_of(one) for one in decoded.columns["v"]] == [CASES[kind].value, None]


@every_kind
def test_the_hot_tiers_payload_gives_it_back_one_by_one_and_all_at_once(kind: Kind) -> None:
    definition = table(kind)
    decoded = decoder_for(definition).decode(
        [b"a", b"b"], [b'{"v":' + CASES[kind].sent.encode() + b"}", b'{"v":null}']
    )
    payloads = pack_rows(definition, decoded)
    unpack = Unpacker(definition).unpack
    assert [fields_of(unpack(one)[0]) for one in payloads] == [CASES[kind].value, None]
    arrays = unpack_arrays(definition, pa.array(payloads, pa.large_binary()), ["v"])
    assert natural(kind, arrays["v"].slice(0, 1)) == CASES[kind].value
    assert arrays["v"].null_count == 1


@every_kind
def test_a_data_file_gives_it_back(kind: Kind) -> None:
    definition = table(kind)
    decoded = decoder_for(definition).decode([b"a"], [b'{"v":' + CASES[kind].sent.encode() + b"}"])
    records = records_table(definition, decoded, "t", 0, [0], [0])
    sink = io.BytesIO()
    pq.write_table(records.select(["v"]), sink)
    read = pq.read_table(sink).column("v").combine_chunks()
    assert natural(kind, read.cast(ColumnType.parse(CASES[kind].type).arrow)) == CASES[kind].value
    assert str(definition.iceberg_schema().find_type("v"))


@every_kind
def test_it_is_given_out_as_json_and_csv(kind: Kind) -> None:
    columns = [column for column in table(kind).columns if column.name == "v"]
    batch = pa.record_batch([stored(kind)], names=["v"])
    assert b"".join(encode_json_lines(columns, [batch])) == b'{"v":' + CASES[kind].given.encode() + b"}\n"
    assert b"".join(encode_csv(columns, [batch])) == b'"v"\r\n' + CASES[kind].csv.encode() + b"\r\n"
    assert columns[0].type.json_schema


@every_kind
def test_a_condition_and_duckdb_know_it(kind: Kind) -> None:
    if CASES[kind].where is None:
        with pytest.raises(BadParameter):  # nested columns are not compared
            parse_where(table(kind), "v = '1'")
        return
    predicate = parse_where(table(kind), str(CASES[kind].where))
    rows = duckdb.from_arrow(pa.table({"v": stored(kind)}))
    assert rows.filter(expression_of(predicate, {"v": "v"})).fetchall()
    assert not rows.filter(~expression_of(predicate, {"v": "v"})).fetchall()
    declared = duckdb.sql(f"SELECT CAST(NULL AS {ColumnType.parse(CASES[kind].type).duckdb})")
    assert declared is not None
    assert declared.types == rows.types


@every_kind
def test_avro_is_read(kind: Kind) -> None:
    assert CASES[kind].avro is not None
    type_, value = CASES[kind].avro or ("", None)
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": type_}]}
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"v": value})
    definition = table(kind, format="avro", value_schema=json.dumps(schema))
    decoded = decoder_for(definition).decode([b"a"], [sink.getvalue()])
    assert decoded.bad == []
    assert fields_of(decoded.columns["v"][0]) == CASES[kind].value


@every_kind
def test_plain_keys_and_headers_take_what_the_definition_lets_them(kind: Kind) -> None:
    if kind not in ONE_COLUMN["string"]:
        return
    text = json.loads(CASES[kind].sent) if CASES[kind].sent.startswith('"') else CASES[kind].sent
    if kind is Kind.DECIMAL:
        text = "0.0000001"
    columns = {"id": "string", "v": {"type": CASES[kind].type, "header": "h"}}
    headers = [("h", str(text).encode())]
    decoded = decoder_for(table(kind, columns=columns)).decode([b"a"], [b"{}"], lambda _: headers)
    assert (decoded.bad, decoded.columns["v"]) == ([], [CASES[kind].value])


@every_kind
def test_a_key_sorts_by_it_or_the_definition_refuses_it(kind: Kind) -> None:
    if TYPES[kind].key is None:
        with pytest.raises(ConfigInvalid, match="but a key can only have"):
            table(kind, key=["v"], columns={"v": CASES[kind].type}, key_format="json")
        return
    keyed = table(kind, key=["v"], columns={"v": CASES[kind].type}, key_format="json")
    assert decode_one(keyed, encode_one(keyed, [CASES[kind].value])) == (CASES[kind].value,)


@every_kind
def test_trino_reads_it_from_kafka_and_from_the_server_or_is_told_that_it_cannot(kind: Kind) -> None:
    definition = table(kind)
    (column,) = (one for one in definition.columns if one.name == "v")
    if unreadable_in_sql(definition) is None:
        assert "found" in fields.value(column, "found", "text")
    if unservable(definition) is not None:
        assert column.type.fields
        return
    hot = next(one for one in hot_columns(definition) if one.column == column)
    assert block(as_served(stored(kind), column.type), hot.type)
    assert render_server._value(column.type, "found")
