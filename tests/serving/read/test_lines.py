"""CSV and JSON lines: rows as lookups show them, told apart from null, and compressed where asked."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zstandard
from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

from thermocline.cli.sql_formats import text_of
from thermocline.rules.definition import LiveTable
from thermocline.serving.read.encode import encoded
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.lines import encode_csv
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted

EVERY = LiveTable.build(
    name="every",
    identifier="app.every",
    topics=["profiles"],
    key=["id", "tag"],
    entity=["id"],
    columns={
        "tag": "binary",
        "id": "uuid",
        "a, name": "string",
        "flag": "boolean",
        "day": "date",
        "price": "decimal(30,10)",
        "ratio": "double",
        "count": "long",
        "at": "timestamptz",
        "local": "timestamp",
        "clock": "time",
        "raw": "json",
        "inner": "struct<city: string, at: timestamptz, ids: list<uuid>>",
        "amounts": "map<string, list<decimal(28,18)>>",
    },
    buckets=2,
)
ID = "6f1c7c0e-3f0a-4c4e-9a53-0d2f7f2f9d11"
FULL = {
    "a, name": 'say "hi",\r\nü',
    "flag": True,
    "day": "0001-01-01",
    "price": "0.0000000001",
    "ratio": 0.1,
    "count": 2**53 + 1,
    "at": "0001-01-01T00:00:00.000007Z",
    "local": "2026-01-02T03:04:05",
    "clock": "09:33:00.000007",
    "raw": {"a": ["b", 1.50]},
    "inner": {"city": 'a "b"', "at": "2026-01-02T03:04:05Z", "ids": [ID, None]},
    "amounts": {"a": ["0", "1.2e-7", None], "b": None},
}
EMPTY = {"a, name": "", "at": "2026-01-02T03:04:05.100000Z", "clock": "00:00:00"}
ROWS = {"AAH/": FULL, "": EMPTY, "eA==": {}}


@pytest.fixture
def table(served: Callable[..., tuple[Any, ServedTable]]) -> Callable[[bool], ServedTable]:
    """A table with three rows, committed or not."""

    def make(is_cold: bool) -> ServedTable:
        world, table = served(EVERY)
        for tag, value in ROWS.items():
            world.produce({"id": ID, "tag": tag}, value)
        world.tail()
        if is_cold:
            world.commit()
            world.publish()
            table.refresh()
        return table

    return make


def _written(table: ServedTable, format_name: str, wanted: Wanted, coding: str | None = None) -> bytes:
    extract = table.extract(wanted, table.reader.end())
    try:
        return b"".join(encoded(extract, format_name, coding))
    finally:
        extract.close()


def _looked_up(table: ServedTable) -> list[bytes]:
    (rows,) = table.reader.lookup((entity_of(EVERY, {"id": ID}),))[1]
    return [bytes(row) for row in msgspec.json.decode(rows, type=list[msgspec.Raw])]


@pytest.mark.parametrize("is_cold", [True, False])
def test_json_lines_are_the_rows_of_lookups_byte_by_byte(
    table: Callable[[bool], ServedTable], is_cold: bool
) -> None:
    made = table(is_cold)
    lines = _written(made, "jsonl", Wanted()).splitlines()
    assert sorted(lines) == sorted(_looked_up(made))
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("is_cold", [True, False])
def test_csv_says_what_json_says_and_tells_null_from_nothing(
    table: Callable[[bool], ServedTable], is_cold: bool
) -> None:
    made = table(is_cold)
    content = _written(made, "csv", Wanted())
    names = [column.name for column in EVERY.columns]
    (header, *rows) = csv.reader(io.StringIO(content.decode(), newline=""))
    assert header == names
    assert content.count(b"\r\n") == 1 + len(ROWS) + 1  # one is within a value
    found = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
    for shown in map(msgspec.json.decode, _looked_up(made)):
        row = found[shown["tag"]]
        for name, value in shown.items():
            if name in ("inner", "amounts", "flag", "count", "ratio"):
                assert (msgspec.json.decode(row[name]) if row[name] else None) == value, name
            else:
                assert row[name] == (value or ""), name
    options = ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    read = read_csv(
        io.BytesIO(content),
        convert_options=options,
        parse_options=ParseOptions(newlines_in_values=True),
    ).to_pylist()
    assert {row["a, name"] for row in read} == {FULL["a, name"], "", None}


@pytest.mark.parametrize("is_cold", [True, False])
def test_decimals_are_written_in_plain_notation_with_all_their_places(
    table: Callable[[bool], ServedTable], is_cold: bool
) -> None:
    made = table(is_cold)
    amounts = b'{"a":["0.000000000000000000","0.000000120000000000",null],"b":null}'
    lines = _written(made, "jsonl", Wanted(["price", "amounts"])).splitlines()
    (line,) = [line for line in lines if b'"price":null' not in line]
    assert line == b'{"price":"0.0000000001","amounts":' + amounts + b"}"
    (looked_up,) = [row for row in _looked_up(made) if b'"price":null' not in row]
    assert b'"price":"0.0000000001"' in looked_up
    assert b'"amounts":' + amounts in looked_up
    csv_lines = _written(made, "csv", Wanted(["price", "amounts"])).splitlines()
    assert b'0.0000000001,"' + amounts.replace(b'"', b'""') + b'"' in csv_lines
    assert text_of(Decimal("0E-18")) == "0.000000000000000000"  # the cell of a result of SQL


def test_an_extract_without_rows_is_a_header_or_nothing(table: Callable[[bool], ServedTable]) -> None:
    none = Wanted(["id", "a, name"], "flag AND NOT flag")
    assert _written(table(False), "csv", none) == b'"id","a, name"\r\n'
    assert _written(table(False), "jsonl", none) == b""


def test_a_compressed_stream_is_whole_or_can_be_told_to_be_cut(
    table: Callable[[bool], ServedTable],
) -> None:
    made = table(True)
    plain = _written(made, "csv", Wanted())
    packed = {coding: _written(made, "csv", Wanted(), coding) for coding in ("gzip", "zstd")}
    for cut in (0, 1, 20):
        gzip, zstd = zlib.decompressobj(wbits=31), zstandard.ZstdDecompressor().decompressobj()
        opened = gzip.decompress(packed["gzip"][: len(packed["gzip"]) - cut])
        unpacked = zstd.decompress(packed["zstd"][: len(packed["zstd"]) - cut])
        assert (gzip.eof, zstd.eof) == (cut == 0, cut == 0)
        assert cut or opened == unpacked == plain


def test_csv_spells_doubles_as_the_page_says() -> None:
    ratio = next(column for column in EVERY.given_columns if column.name == "ratio")
    batch = pa.record_batch({"ratio": pa.array([1.0, 1e16, 0.1])})
    assert b"".join(encode_csv([ratio], [batch])) == b'"ratio"\r\n1\r\n1e+16\r\n0.1\r\n'


COINS = LiveTable.build(
    name="coins",
    identifier="app.coins",
    topics=["profiles"],
    key=["id"],
    columns={
        "id": "string",
        "coins": "decimal(28,18)",
        "rate": "decimal(12,8)",
        "sum": "decimal(9,2)",
        "n": "list<decimal(20,10)>",
        "by": "map<string, struct<at: decimal(7,7), all: list<decimal(7,7)>>>",
    },
    buckets=2,
)
SENT = {
    "w1": {"coins": 0, "rate": "0", "sum": "0", "n": ["0", "0.0000000001", None, 1]},
    "w2": {"coins": "0.000000000000000001", "rate": "-1.2E-7", "by": {"a": {"at": 0, "all": ["1E-7"]}}},
    "w3": {"coins": 1.5, "rate": 12.5, "sum": 1e3},
}
AS_JSON = [
    (
        b'{"id":"w1","coins":"0.000000000000000000","rate":"0.00000000","sum":"0.00",'
        b'"n":["0.0000000000","0.0000000001",null,"1.0000000000"],"by":null}'
    ),
    (
        b'{"id":"w2","coins":"0.000000000000000001","rate":"-0.00000012","sum":null,'
        b'"n":null,"by":{"a":{"at":"0.0000000","all":["0.0000001"]}}}'
    ),
    b'{"id":"w3","coins":"1.500000000000000000","rate":"12.50000000","sum":"1000.00","n":null,"by":null}',
]
AS_CSV = [
    (
        b'"w1",0.000000000000000000,0.00000000,0.00,'
        b'"[""0.0000000000"",""0.0000000001"",null,""1.0000000000""]",'
    ),
    b'"w2",0.000000000000000001,-0.00000012,,,"{""a"":{""at"":""0.0000000"",""all"":[""0.0000001""]}}"',
    b'"w3",1.500000000000000000,12.50000000,1000.00,,',
]


@pytest.mark.parametrize("is_cold", [True, False])
def test_decimals_have_all_digits_of_their_scale_and_no_exponent(
    served: Callable[..., tuple[Any, ServedTable]], is_cold: bool
) -> None:
    world, table = served(COINS)
    for key, value in SENT.items():
        world.produce({"id": key}, value)
    world.tail()
    if is_cold:
        world.commit()
        world.publish()
        table.refresh()
    entities = tuple(entity_of(COINS, {"id": key}) for key in SENT)
    rows = b"".join(table.reader.lookup(entities)[1])
    assert rows == b"[" + b"][".join(AS_JSON) + b"]"
    assert sorted(_written(table, "jsonl", Wanted()).splitlines()) == AS_JSON
    header, *lines = _written(table, "csv", Wanted()).split(b"\r\n")
    assert (header, sorted(lines)) == (b'"id","coins","rate","sum","n","by"', [b"", *AS_CSV])


def test_csv_of_small_decimals_is_csv_in_all_its_other_columns() -> None:
    """Rows with such decimals are written by code of ours, the others by Arrow's."""
    names = ("a, name", "flag", "day", "ratio", "count", "price")
    columns = [next(column for column in EVERY.given_columns if column.name == name) for name in names]
    values = (
        ['say "hi",\r\nü', "", None],
        [True, False, None],
        [date(1, 1, 1), date(9999, 12, 31), None],
        [1.0, 1e16, None],
        [-(2**63), 0, None],
        [Decimal("1E-10"), Decimal(-12), None],
    )
    arrays = [pa.array(of, column.type.arrow) for of, column in zip(values, columns, strict=True)]
    assert b"".join(encode_csv(columns, [pa.record_batch(arrays, list(names))])).decode() == (
        '"a, name","flag","day","ratio","count","price"\r\n'
        '"say ""hi"",\r\nü",true,0001-01-01,1,-9223372036854775808,0.0000000001\r\n'
        '"",false,9999-12-31,1e+16,0,-12.0000000000\r\n'
        ",,,,,\r\n"
    )
