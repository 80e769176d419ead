"""Structs, lists and maps, hot and cold alike: by examples, and by values of random types against a model."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import DataFile
from thermocline.iceberg.rewrite import NotARewrite, RowSums, column_ids
from thermocline.rules.column_types import ColumnType
from thermocline.rules.comparable import nested_as_bytes
from thermocline.rules.decode import (
    Decoded,
    Stage,
    Unpacker,
    decoder_for,
    json_row,
    natural_values,
    pack_rows,
    records_table,
    unpack_arrays,
)
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable

COLUMNS = {
    "address": "struct<city: string, zip: int, since: timestamp, price: decimal(4,1)>",
    "tags": "list<string>",
    "scores": "map<string, double>",
    "deep": "list<struct<of: map<string, list<uuid>>, text: json, at: timestamptz epoch ms>>",
}
BAD = Stage.CONTRACT
ID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"

CASES: list[tuple[str, str, Any]] = [
    ("address", '{"city":"Oslo","zip":1}', {"city": "Oslo", "zip": 1, "since": None, "price": None}),
    ("address", "{}", {"city": None, "zip": None, "since": None, "price": None}),
    ("address", "null", None),
    (
        "address",
        '{"zip":2,"other":{"a":[1]},"city":null}',
        {"city": None, "zip": 2, "since": None, "price": None},
    ),
    ("address", '{"City":"Oslo"}', {"city": None, "zip": None, "since": None, "price": None}),
    ("address", '{"zip":1,"zip":2}', {"city": None, "zip": 2, "since": None, "price": None}),
    ("address", '{"\\u007aip":1}', {"city": None, "zip": 1, "since": None, "price": None}),
    (
        "address",
        '{"price":"1.50","since":"2024-02-29T00:00:00"}',
        {
            "city": None,
            "zip": None,
            "since": datetime(2024, 2, 29, tzinfo=UTC).replace(tzinfo=None),
            "price": Decimal("1.5"),
        },
    ),
    ("address", '{"price":1.25}', BAD),
    ("address", '{"price":[]}', BAD),
    ("address", '{"since":"2024-02-29T00:00:00Z"}', BAD),
    ("address", '{"zip":"1"}', BAD),
    ("address", '{"zip":1.0}', BAD),
    ("address", '{"zip":2147483648}', BAD),
    ("address", '{"zip":"1","zip":2}', BAD),
    ("address", '["Oslo",1]', BAD),
    ("address", '"Oslo"', BAD),
    ("address", "[]", BAD),
    ("address", "false", BAD),
    ("tags", "[]", []),
    ("tags", '["a",null,""]', ["a", None, ""]),
    ("tags", "[1]", BAD),
    ("tags", '["a",[]]', BAD),
    ("tags", "{}", BAD),
    ("tags", '"a"', BAD),
    ("tags", '{"0":"a"}', BAD),
    ("tags", "[" * 400 + "]" * 400, BAD),
    ("scores", "{}", {}),
    ("scores", '{"b":1,"a":null,"":-0.0}', {"": -0.0, "a": None, "b": 1.0}),
    ("scores", '{"a":1,"a":2}', {"a": 2.0}),
    ("scores", '{"a":null,"a":"x"}', BAD),
    ("scores", '{"a":"1"}', BAD),
    ("scores", '{"a":1e999}', BAD),
    ("scores", "[]", BAD),
    ("scores", '[["a",1]]', BAD),
    ("deep", "[null,{}]", [None, {"of": None, "text": None, "at": None}]),
    (
        "deep",
        f'[{{"of":{{"y":null,"x":["{ID}",null]}},"text":{{"b": [1]}},"at":0}}]',
        [
            {
                "of": {"x": [UUID(ID), None], "y": None},
                "text": '{"b": [1]}',
                "at": datetime(1970, 1, 1, tzinfo=UTC),
            }
        ],
    ),
    ("deep", '[{"of":{"x":["no"]}}]', BAD),
    ("deep", '[{"of":{"x":{}}}]', BAD),
    ("deep", '[{"at":"1970-01-01T00:00:00Z"}]', BAD),
    ("deep", '[{"at":9223372036854775807}]', BAD),
    ("deep", "[[]]", BAD),
]


def table_of(columns: dict[str, Any], **settings: Any) -> LiveTable:
    return LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["t"],
        key=["id"],
        key_format="string",
        columns={"id": "string", **columns},
        **settings,
    )


TABLE = table_of(COLUMNS)


@pytest.mark.parametrize(("column", "token", "expected"), CASES, ids=[f"{c} {t}"[:60] for c, t, _ in CASES])
def test_a_nested_value_decodes_by_the_record_rule(column: str, token: str, expected: Any) -> None:
    decoded = decoder_for(TABLE).decode([b"k"], [f'{{"{column}":{token}}}'.encode()])
    if expected is BAD:
        (bad,) = decoded.bad
        assert bad.stage is BAD
        assert bad.reason.startswith(f"{column} ({COLUMNS[column]}")
    else:
        assert repr(decoded.columns[column]) == repr([expected])


def test_bad_nested_values_touch_no_neighbours_and_good_ones_are_the_same_hot_and_cold() -> None:
    values = [f'{{"{column}":{token}}}'.encode() for column, token, _ in CASES]
    decoded = decoder_for(TABLE).decode([b"k"] * len(values), values)
    assert decoded.good == [index for index, case in enumerate(CASES) if case[2] is not BAD]
    same_hot_and_cold(TABLE, decoded)


def test_a_path_into_a_structs_source_reads_beside_it() -> None:
    table = table_of(COLUMNS | {"city": {"type": "string", "path": "address.city"}})
    values = [b'{"address":{"city":"Oslo"}}', b'{"address":{"city":1}}', b'{"address":null}', b"{}"]
    decoded = decoder_for(table).decode([b"k"] * 4, values)
    assert (decoded.good, [bad.index for bad in decoded.bad]) == ([0, 2, 3], [1])
    assert decoded.columns["city"] == ["Oslo", None, None]
    assert [one and one["city"] for one in decoded.columns["address"]] == ["Oslo", None, None]


NAMED = "list<struct<größe: double, 日本: map<string, struct<ключ: decimal(4,1)>>, zip: int>>"
NAMED_VALUE = '[{"größe":1.5,"日本":{"é":{"ключ":2.5}},"zip":7},{"gr\\u00f6\\u00dfe":2},{"日本":{"é":{}}}]'
NAMED_NATURAL = [
    {"größe": 1.5, "日本": {"é": {"ключ": Decimal("2.5")}}, "zip": 7},
    {"größe": 2.0, "日本": None, "zip": None},
    {"größe": None, "日本": {"é": {"ключ": None}}, "zip": None},
]
NAMED_BAD = [
    '[{"größe":"x"}]',
    '[{"日本":{"é":{"ключ":"x"}}}]',
    '[{"日本":{"é":{"ключ":1.25}}}]',
    '[{"日本":[]}]',
]


@pytest.mark.parametrize("around", ["plain", "json_schema", "debezium", "maxwell"])
def test_a_field_of_a_struct_whose_name_is_not_ascii_is_read_and_a_wrong_type_of_it_is_bad(
    around: str,
) -> None:
    settings: dict[str, Any] = {"format": around} if around == "json_schema" else {"envelope": around}
    key_format = "string" if around in ("plain", "json_schema") else "json"
    table = LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["t"],
        key=["id"],
        key_format=key_format,
        columns={"id": "string", "v": NAMED, "w": "struct<é: string>"},
        **settings,
    )
    rows = [f'{{"v":{value},"w":{{"é":"ja"}}}}' for value in (NAMED_VALUE, *NAMED_BAD)]
    written = {
        "plain": "%s",
        "json_schema": "\0\0\0\0\1%s",
        "debezium": '{"op":"c","after":%s}',
        "maxwell": '{"type":"insert","data":%s}',
    }
    values = [(written[around] % row).encode() for row in rows]
    key = b"k" if key_format == "string" else b'{"id":"k"}'
    registry = _JsonRegistry() if around == "json_schema" else None
    stored = table.to_json()
    decoded = decoder_for(table, registry).decode([key] * len(values), values)
    payloads = pack_rows(table, decoded)
    # Each reader has names of its own, as in a process that only reads.
    unpacked = Unpacker(LiveTable.from_json(stored, "t")).unpack(payloads[0])
    assert unpacked == (NAMED_NATURAL, {"é": "ja"})
    as_columns = unpack_arrays(
        LiveTable.from_json(stored, "t"), pa.array(payloads, pa.large_binary()), ["v", "w"]
    )
    assert as_columns["w"].to_pylist() == [{"é": "ja"}]
    assert as_columns["v"].to_pylist()[0][0]["größe"] == 1.5
    assert decoded.columns["v"] == [NAMED_NATURAL]
    assert decoded.columns["w"] == [{"é": "ja"}]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(n, BAD) for n in (1, 2, 3, 4)]
    same_hot_and_cold(table, decoded)


class _JsonRegistry:
    def of(self, id_: SchemaId) -> WriterSchema:
        return WriterSchema(("{}",), kind="JSON")


def spelled(value: object) -> str:
    """A value's text, in which 0.0 is not -0.0, nor 1 True; whoever made a time has it in the same UTC."""
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def same_hot_and_cold(table: LiveTable, decoded: Decoded) -> None:
    """The hot tier's payloads, one by one and as columns, and a Parquet file have the decoded values."""
    names = [column.name for column in table.value_columns]
    count = len(decoded.good)
    rows = records_table(table, decoded, "t", 0, range(max(decoded.good) + 1), [0] * (max(decoded.good) + 1))
    payloads = pack_rows(table, decoded)
    wanted = list(zip(*(decoded.columns[name] for name in names), strict=True))
    assert spelled([Unpacker(table).unpack(payload) for payload in payloads]) == spelled(wanted)
    hot = unpack_arrays(table, pa.array(payloads, pa.large_binary()), names)
    file = pa.BufferOutputStream()
    pq.write_table(rows.select(names), file)
    cold = pq.read_table(pa.BufferReader(file.getvalue()))
    for column in table.value_columns:
        array = rows.column(column.name).combine_chunks()
        assert hot[column.name].equals(array)
        assert hot[column.name].type == cold.column(column.name).type == column.type.arrow
        found = natural_values(column.type, cold.column(column.name))
        assert spelled(found) == spelled(decoded.columns[column.name])
        assert len(found) == count


@dataclass(frozen=True)
class Model:
    """Values of a type, each as JSON in, as natural value, and as JSON out; and its type in Avro."""

    text: str
    avro: Any
    values: st.SearchStrategy[tuple[str, Any, Any]]


def scalar(
    text: str, avro: Any, values: st.SearchStrategy[Any], spell: Callable[[Any], Any], out: Any = None
) -> Model:
    out = out or spell
    return Model(text, avro, values.map(lambda value: (json.dumps(spell(value)), value, out(value))))


NAIVE = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)).map(  # noqa: DTZ001
    lambda value: value.replace(fold=0)
)
AWARE = NAIVE.map(lambda value: value.replace(tzinfo=UTC))
TIMES = st.times().map(lambda value: value.replace(fold=0))
MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
SCALARS = [
    scalar("int", "int", st.integers(-(2**31), 2**31 - 1), int),
    scalar("long", "long", st.integers(-(2**63), 2**63 - 1), int),
    scalar("string", "string", st.text(), str),
    scalar("double", "double", st.floats(allow_nan=False, allow_infinity=False), float),
    scalar("boolean", "boolean", st.booleans(), bool),
    scalar(
        "decimal(10,2)",
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        st.integers(-(10**10) + 1, 10**10 - 1).map(lambda number: Decimal(number).scaleb(-2)),
        str,
    ),
    scalar("date", {"type": "int", "logicalType": "date"}, st.dates(), date.isoformat),
    scalar(
        "timestamptz",
        {"type": "long", "logicalType": "timestamp-micros"},
        AWARE,
        lambda value: value.isoformat().replace("+00:00", "Z"),
    ),
    scalar("timestamp", {"type": "long", "logicalType": "local-timestamp-micros"}, NAIVE, datetime.isoformat),
    scalar("time", {"type": "long", "logicalType": "time-micros"}, TIMES, time.isoformat),
    scalar("uuid", {"type": "string", "logicalType": "uuid"}, st.uuids(), str),
    scalar("binary", "bytes", st.binary(max_size=9), lambda value: base64.b64encode(value).decode()),
    scalar("json", "long", st.integers(-9, 9).map(str), int, str),
]


def nullable(model: Model) -> st.SearchStrategy[tuple[str, Any, Any]]:
    return st.just(("null", None, None)) | model.values


def list_of(item: Model) -> Model:
    values = st.lists(nullable(item), max_size=4).map(
        lambda some: (
            f"[{','.join(one[0] for one in some)}]",
            [one[1] for one in some],
            [one[2] for one in some],
        )
    )
    return Model(f"list<{item.text}>", {"type": "array", "items": ["null", item.avro]}, values)


def map_of(item: Model) -> Model:
    def entries(some: dict[str, tuple[str, Any, Any]]) -> tuple[str, Any, Any]:
        text = ",".join(f"{json.dumps(key)}:{one[0]}" for key, one in some.items())
        ordered = sorted(some)
        return f"{{{text}}}", {key: some[key][1] for key in ordered}, {key: some[key][2] for key in ordered}

    values = st.dictionaries(st.text(max_size=3), nullable(item), max_size=4).map(entries)
    return Model(f"map<string, {item.text}>", {"type": "map", "values": ["null", item.avro]}, values)


def struct_of(items: list[Model]) -> Model:
    names = [f"f{place}" for place in range(len(items))]
    absent = ("", None, None)

    def fields(some: tuple[tuple[str, Any, Any], ...]) -> tuple[str, Any, Any]:
        text = ",".join(f'"{name}":{one[0]}' for name, one in zip(names, some, strict=True) if one[0])
        natural = {name: one[1] for name, one in zip(names, some, strict=True)}
        return f"{{{text}}}", natural, {name: one[2] for name, one in zip(names, some, strict=True)}

    values = st.tuples(*(st.just(absent) | nullable(item) for item in items)).map(fields)
    text = ", ".join(f"{name}: {item.text}" for name, item in zip(names, items, strict=True))
    inside = [{"name": name, "type": ["null", item.avro]} for name, item in zip(names, items, strict=True)]
    avro = {"type": "record", "name": f"r{abs(hash(text))}", "fields": inside}
    return Model(f"struct<{text}>", avro, values)


MODELS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.one_of(
        inner.map(list_of), inner.map(map_of), st.lists(inner, min_size=1, max_size=3).map(struct_of)
    ),
    max_leaves=5,
)


@given(st.data())
def test_values_of_any_type_are_those_of_a_plain_model_in_every_form(data: st.DataObject) -> None:
    """JSON in, natural values, payloads, Arrow, Parquet, JSON out; and the same values from Avro."""
    model = data.draw(MODELS)
    values = data.draw(st.lists(nullable(model), min_size=1, max_size=4))
    table = table_of({"v": model.text})
    assert LiveTable.from_json(table.to_json(), "t") == table
    decoded = decoder_for(table).decode(
        [b"k"] * len(values), [f'{{"v":{one[0]}}}'.encode() for one in values]
    )
    assert decoded.bad == []
    assert repr(decoded.columns["v"]) == repr([natural for _, natural, _ in values])
    same_hot_and_cold(table, decoded)
    assert repr([json.loads(json_row({"v": one}))["v"] for one in decoded.columns["v"]]) == repr(
        [out for _, _, out in values]
    )
    arrays = records_table(table, decoded, "t", 0, range(len(values)), [0] * len(values))
    of = ColumnType.parse(model.text)
    if of.fields:
        packed = nested_as_bytes(of, arrays.column("v").combine_chunks()).to_pylist()
        naturals = [repr(one) for one in decoded.columns["v"]]
        assert [[a == b for a in packed] for b in packed] == [[a == b for a in naturals] for b in naturals]
    if "json" not in model.text:  # which has no one type in Avro
        from_avro = decoded_from_avro(model, [natural for _, natural, _ in values])
        assert from_avro.bad == []
        assert spelled(from_avro.columns["v"]) == spelled(decoded.columns["v"])


def decoded_from_avro(model: Model, values: list[Any]) -> Decoded:
    avro = named_once(
        {"type": "record", "name": "Row", "fields": [{"name": "v", "type": ["null", model.avro]}]}, set()
    )
    parsed = fastavro.parse_schema(avro)
    of_avro = table_of({"v": model.text}, format="avro", value_schema=json.dumps(avro))
    return decoder_for(of_avro).decode([b"k"] * len(values), [written(parsed, {"v": one}) for one in values])


def named_once(schema: Any, known: set[str]) -> Any:
    """A schema that declares each of its records once."""
    if isinstance(schema, list):
        return [named_once(one, known) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        if schema["name"] in known:
            return schema["name"]
        known.add(schema["name"])
    inner = {key: named_once(schema[key], known) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        inner["fields"] = [one | {"type": named_once(one["type"], known)} for one in schema["fields"]]
    return schema | inner


def written(schema: Any, value: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema, value)
    return sink.getvalue()


def test_the_schema_of_answers_has_what_is_within_columns() -> None:
    of = ColumnType.parse("struct<a: list<int>, b: map<string, timestamptz>>")
    integers = {"type": ["array", "null"], "items": {"type": ["integer", "null"], "format": "int32"}}
    times = {"type": ["string", "null"], "format": "date-time"}
    assert of.json_schema == {
        "type": "object",
        "properties": {"a": integers, "b": {"type": ["object", "null"], "additionalProperties": times}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_a_rewrite_proves_what_is_within_columns_too(tmp_path: Path) -> None:
    """Method: files of the same rows, of another order of a map's entries, another value, and other ids."""
    table = table_of({"v": "struct<a: map<string, double>>"})
    decoded = decoder_for(table).decode([b"1", b"2"], [b'{"v":{"a":{"x":1,"y":-0.0}}}', b"{}"])
    rows = records_table(table, decoded, "t", 0, [0, 1], [0, 0]).select(table.table_schema.names)
    kept = rows.cast(table.table_schema)
    ids = column_ids(table.iceberg_schema())

    def sums(name: str, schema: pa.Schema, value: Any) -> Any:
        at = schema.get_field_index("v")
        changed = kept.set_column(at, schema.field("v"), pa.array([value, None], schema.field("v").type))
        pq.write_table(changed.cast(schema), tmp_path / name)
        file = DataFile((tmp_path / name).as_uri(), 0, 2, 0, part=FileBucket(0, 1))
        return RowSums(PyArrowFileIO(), table, ids).of([file])

    before = sums("before", table.table_schema, {"a": {"x": 1.0, "y": -0.0}})
    assert sums("other_order", table.table_schema, {"a": [("y", -0.0), ("x", 1.0)]}) == before
    assert sums("another_zero", table.table_schema, {"a": {"x": 1.0, "y": 0.0}}) != before
    bare = pa.schema([field.with_type(table.given_schema.field(field.name).type) for field in kept.schema])
    with pytest.raises(NotARewrite, match="other columns"):
        sums("other_ids", bare, {"a": {"x": 1.0, "y": -0.0}})
    with pytest.raises(ValueError, match="a key twice"):
        sums("a_key_twice", table.table_schema, {"a": [("x", 1.0), ("x", 1.0)]})


ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [
        {"name": "zip", "type": ["int", "string"]},
        {"name": "more", "type": {"type": "array", "items": "long"}},
    ],
}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
INTS, LONGS = {"type": "map", "values": "int"}, {"type": "map", "values": ["null", "long"]}


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


AVRO: list[tuple[str, Any, Any, Any]] = [
    ("struct<zip: int, city: string>", ADDRESS, {"zip": 7, "more": [1, 2]}, {"zip": 7, "city": None}),
    ("struct<zip: int>", ADDRESS, {"zip": "7", "more": []}, "zip: the record has a value of type string"),
    ("struct<zip: int>", INTS, {"zip": 7}, "a value of type map"),
    ("map<string, int>", ADDRESS, {"zip": 7, "more": []}, "a value of type record Address"),
    ("map<string, int>", INTS, {"b": 1, "a": 2}, {"a": 2, "b": 1}),
    ("map<string, int>", LONGS, {"b": None}, {"b": None}),
    ("map<string, int>", LONGS, {"b": 1}, "b: the record has a value of type long"),
    ("list<string>", array("string"), [], []),
    ("list<string>", "string", "a", "a value of type string"),
    ("list<double>", array("double"), [1.0, float("nan")], "1: JSON has no nan"),
    ("list<timestamp>", array(MOMENT), [datetime(1970, 1, 1, tzinfo=UTC)], "is a moment"),
    ("list<list<json>>", array(array(ADDRESS)), [[{"zip": "x", "more": [1]}]], [['{"zip":"x","more":[1]}']]),
    ("list<list<int>>", array(array(["int", "string"])), [[1], ["x"]], "1: 0: the record has a value of"),
]


@pytest.mark.parametrize(
    ("text", "schema", "value", "expected"), AVRO, ids=[f"{a[0]} {a[2]}"[:60] for a in AVRO]
)
def test_avro_records_arrays_and_maps_are_structs_lists_and_maps(
    text: str, schema: Any, value: Any, expected: Any
) -> None:
    row = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "v", "type": schema}, {"name": "w", "type": "long"}],
    }
    table = table_of({"v": text, "w": "long"}, format="avro", value_schema=json.dumps(row))
    content = written(fastavro.parse_schema(row), {"v": value, "w": 5})
    decoded = decoder_for(table).decode([b"k", b"k"], [content, content[:-1]])
    cut_off = decoded.bad[-1]
    assert (cut_off.index, cut_off.stage) == (1, Stage.DECODE), "what is no Avro is that first"
    if isinstance(expected, str):
        assert (decoded.bad[0].index, decoded.bad[0].stage) == (0, Stage.CONTRACT)
        assert expected in decoded.bad[0].reason
    else:
        assert (decoded.columns["v"], decoded.columns["w"]) == ([expected], [5])
