"""Avro against the poison corpus, against another reader of it, and against bytes of any kind."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from tests.thermocline.alone import alone_and_together_are_the_same
from tests.thermocline.avro_poison import (
    AVRO_CASES,
    AVRO_POISONED,
    GOOD,
    GOOD_KEY,
    AvroCase,
    number,
    string,
)
from tests.thermocline.poison import TOMBSTONE
from tests.thermocline.registered import Registered, framed
from thermocline.errors import ConfigInvalid
from thermocline.rules.avro_schema import SchemaInvalid, parse_schema, schema_text
from thermocline.rules.decode import (
    Decoded,
    Stage,
    Unpacker,
    decoder_for,
    pack_rows,
    records_table,
    unpack_arrays,
)
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable

DECODER = decoder_for(AVRO_POISONED)
NULLS = dict.fromkeys(column.name for column in AVRO_POISONED.value_columns)
FUZZED, FUZZED_FULL = 5_000, 200_000


def is_bad(case: AvroCase) -> bool:
    return isinstance(case.expected, str) and case.expected in set(Stage)


def row_at(decoded: Decoded, place: int) -> dict[str, Any]:
    return {name: decoded.columns[name][place] for name in NULLS if decoded.columns[name][place] is not None}


def test_the_poison_corpus_names_each_case_once() -> None:
    assert len({case.name for case in AVRO_CASES}) == len(AVRO_CASES)


@pytest.mark.parametrize("case", AVRO_CASES, ids=lambda case: case.name)
def test_a_record_decodes_by_the_record_rule(case: AvroCase) -> None:
    decoded = DECODER.decode([case.key], [case.value])
    assert len(decoded.good) + len(decoded.bad) == 1
    if decoded.bad:
        assert decoded.bad[0].reason
        assert str(decoded.bad[0].stage) == case.expected
        return
    assert (decoded.columns["app_id"][0], decoded.columns["user_id"][0]) == case.key_columns
    found = TOMBSTONE if decoded.tombstones[0] else row_at(decoded, 0)
    assert repr(found) == repr(case.expected)  # the type, a decimal's scale and the sign of zero count too


def test_poison_never_touches_its_neighbours() -> None:
    """Every case stands between two good records, all in one chunk; the good ones stay whole and in place."""
    mixed = [record for case in AVRO_CASES for record in (GOOD, case)] + [GOOD]
    decoded = DECODER.decode([case.key for case in mixed], [case.value for case in mixed])
    bad = {record.index: str(record.stage) for record in decoded.bad}
    assert sorted([*decoded.good, *bad]) == list(range(len(mixed)))
    assert bad == {i: case.expected for i, case in enumerate(mixed) if is_bad(case)}
    for position, index in enumerate(decoded.good):
        expected = mixed[index].expected
        assert decoded.tombstones[position] == (expected == TOMBSTONE)
        assert row_at(decoded, position) == (expected if isinstance(expected, dict) else {})


def test_every_good_record_of_the_corpus_survives_arrow_and_the_hot_tiers_payload() -> None:
    good = [case for case in AVRO_CASES if not is_bad(case)]
    decoded = DECODER.decode([case.key for case in good], [case.value for case in good])
    table = records_table(AVRO_POISONED, decoded, "t", 3, range(len(good)), [0] * len(good))
    kept = [not tombstone for tombstone in decoded.tombstones]
    live = [payload for payload in pack_rows(AVRO_POISONED, decoded) if payload]
    expected = [[v for v, keep in zip(decoded.columns[name], kept, strict=True) if keep] for name in NULLS]
    assert list(map(Unpacker(AVRO_POISONED).unpack, live)) == list(zip(*expected, strict=True))
    arrays = unpack_arrays(AVRO_POISONED, pa.array(live, pa.binary()), NULLS)
    assert arrays == {name: table[name].filter(pa.array(kept)).combine_chunks() for name in NULLS}


@pytest.mark.parametrize("count", [FUZZED, pytest.param(FUZZED_FULL, marks=pytest.mark.full)])
def test_malformed_records_are_bad_and_take_no_good_ones_down(count: int) -> None:
    """Never an exception, and good + bad = given: what the corpus has, with bytes of it changed."""
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    chance = random.Random(seed)
    bodies = [case.value for case in AVRO_CASES if case.value is not None and len(case.value) < 1_000]
    for first in range(0, count, 500):
        values = [spoiled(chance, chance.choice(bodies)) for _ in range(first, min(first + 500, count))]
        chunk = [value for bad in values for value in (GOOD.value, bad)]
        decoded = DECODER.decode([GOOD_KEY] * len(chunk), chunk)
        assert sorted([*decoded.good, *(bad.index for bad in decoded.bad)]) == list(range(len(chunk)))
        places = {index: place for place, index in enumerate(decoded.good)}
        assert all(row_at(decoded, places[index]) == GOOD.expected for index in range(0, len(chunk), 2))
        records_table(AVRO_POISONED, decoded, "t", 0, range(len(chunk)), [0] * len(chunk))
        pack_rows(AVRO_POISONED, decoded)
        alone_and_together_are_the_same(DECODER, GOOD_KEY, values)


def spoiled(chance: random.Random, value: bytes) -> bytes:
    written = bytearray(value or b"\x00")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(written) + 1)
        match chance.randrange(5):
            case 0:
                written[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del written[at : at + chance.randint(1, 5)]
            case 2:
                written[at:at] = number(
                    chance.choice([0, -1, 1, 2**31, 2**62, -(2**63), chance.getrandbits(20)])
                )
            case 3:
                written[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                written += written[at:]
    return bytes(written)


LOGICAL: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
    {"type": "string", "logicalType": "uuid"},
]


class AnySchema:
    """Random schemas, and values of theirs."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.named = 0

    def name(self) -> str:
        self.named += 1
        return f"N{self.named}"

    def type(self, depth: int) -> Any:
        plain: list[Any] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string", *LOGICAL]
        match self.chance.randrange(12 if depth < 4 else 7):
            case 7:
                items = self.type(depth + 1)
                return {"type": "array", "items": "int" if items == "null" else items}
            case 8:
                return {"type": "map", "values": self.type(depth + 1)}
            case 9:
                return self.record(depth + 1)
            case 10:
                return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
            case 11:
                return {"type": "fixed", "name": self.name(), "size": self.chance.randint(1, 20)}
            case 0 | 1:
                other = self.type(depth + 1)
                branches = ["null", "int" if isinstance(other, list) or other == "null" else other]
                self.chance.shuffle(branches)
                return branches
        return self.chance.choice(plain)

    def record(self, depth: int) -> Any:
        fields = [{"name": f"f{n}", "type": self.type(depth)} for n in range(self.chance.randint(1, 5))]
        # What takes bytes, so that an array of these is not one of nothing.
        return {"type": "record", "name": self.name(), "fields": [*fields, {"name": "last", "type": "int"}]}

    def value(self, of: Any) -> Any:
        chance = self.chance
        if isinstance(of, list):
            return self.value(chance.choice(of))
        if isinstance(of, dict) and "logicalType" in of:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
                milliseconds=chance.randint(-(10**13), 10**13)
            )
            return {
                "date": date(1970, 1, 1) + timedelta(days=chance.randint(-10_000, 10_000)),
                "time-millis": moment.time().replace(microsecond=chance.randrange(1_000) * 1_000),
                "time-micros": moment.time(),
                "timestamp-millis": moment,
                "timestamp-micros": moment + timedelta(microseconds=chance.randrange(10**6)),
                "local-timestamp-micros": moment.replace(tzinfo=None),
                "decimal": Decimal(chance.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-4),
                "uuid": UUID(bytes=chance.randbytes(16)),
            }[of["logicalType"]]
        plain_values: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: chance.random() < 0.5,
            "int": lambda: chance.choice([0, -1, 2**31 - 1, -(2**31), chance.randint(-1_000, 1_000)]),
            "long": lambda: chance.choice([0, 63, 64, 2**63 - 1, -(2**63), chance.getrandbits(50)]),
            "float": lambda: chance.choice([0.0, -1.5, 1024.25]),
            "double": lambda: chance.uniform(-1e9, 1e9),
            "bytes": lambda: chance.randbytes(chance.choice([0, 3, 70, 200])),
            "string": lambda: chance.choice(["", "a", "äöü€😀", "n" * 63, "n" * 64, "n" * 9_000]),
            "fixed": lambda: chance.randbytes(of["size"]),
            "enum": lambda: chance.choice(of["symbols"]),
            "array": lambda: [self.value(of["items"]) for _ in range(chance.randrange(4))],
            "map": lambda: {
                chance.choice("abcdef"): self.value(of["values"]) for _ in range(chance.randrange(4))
            },
        }
        kind = of if isinstance(of, str) else of["type"]
        if kind in plain_values:
            return plain_values[kind]()
        return {field["name"]: self.value(field["type"]) for field in of["fields"]}


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.full)])
def test_records_of_any_schema_are_read_as_fastavro_reads_them(count: int) -> None:
    """Each field as a ``json`` column, and each plain one as its own; a field in turn is left aside."""
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    made = AnySchema(random.Random(seed))
    for _ in range(count):
        schema = made.record(0)
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        rows = [made.value(schema) for _ in range(3)]
        bodies = [written(parsed, row) for row in rows]
        names = [field["name"] for field in schema["fields"]]
        asked = [name for name in names if made.chance.random() < 0.7] or names
        table = events({f"{name}_": {"type": "json", "path": name} for name in asked}, schema)
        decoded = decoder_for(table).decode([None] * 3, bodies)
        assert decoded.bad == [], schema
        for place, content in enumerate(bodies):
            row: Any = fastavro.schemaless_reader(io.BytesIO(content), parsed, None)
            for name in asked:
                text = decoded.columns[f"{name}_"][place]
                assert (text and json.loads(text)) == plain(row[name]), (schema, name)


def plain(value: Any) -> Any:
    """As the ``json`` rule has it."""
    match value:
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return format(value, "f")
        case UUID():
            return str(value)
        case date() | clock_time():
            return value.isoformat()
    return value


def written(parsed: Any, row: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, parsed, row)
    return sink.getvalue()


def events(columns: dict[str, Any], schema: Any, **options: Any) -> LiveTable:
    """A table without a key, of records that a schema wrote."""
    return LiveTable.build(
        name="events",
        identifier="app.events",
        topics=["events"],
        key=[],
        key_from="value",
        format="avro",
        columns=columns,
        value_schema=None if schema is None else json.dumps(schema),
        **options,
    )


def test_a_field_that_the_writers_schema_lacks_is_null_and_bad_in_the_key() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], format="avro", key=["k"], key_from="value",
        columns={"k": "int", "b": "string"}, value_schema=json.dumps(schema),
    )  # fmt: skip
    (bad,) = decoder_for(table).decode([None], [number(1)]).bad
    assert (bad.stage, bad.reason) == (Stage.KEY, "k (int): missing")
    assert decoder_for(events({"a": "int", "b": "string"}, schema)).decode([None], [number(1)]).columns == {
        "a": [1],
        "b": [None],
    }


@pytest.mark.parametrize(
    ("column", "avro"),
    [
        ("int", "long"),
        ("int", "double"),
        ("int", {"type": "int", "logicalType": "date"}),
        ("long", "string"),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}),
        ("long", {"type": "long", "logicalType": "time-micros"}),
        ("double", "int"),
        ("double", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4}),
        ("decimal(10,2)", "double"),
        ("decimal(10,2)", "bytes"),
        ("string", "bytes"),
        ("string", "int"),
        ("string", {"type": "array", "items": "string"}),
        ("binary", "string"),
        ("binary", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4}),
        ("boolean", "int"),
        ("date", "int"),
        ("date", "string"),
        ("timestamptz", "long"),
        ("timestamptz", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("time", "int"),
        ("time", "string"),
        ("time", {"type": "long", "logicalType": "timestamp-micros"}),
        ("timestamp", {"type": "long", "logicalType": "time-micros"}),
        ("uuid", "string"),
        ("uuid", {"type": "fixed", "name": "F", "size": 16}),
    ],
)
def test_another_type_than_the_columns_is_bad_and_null_of_it_is_null(column: str, avro: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", avro]}]}
    made = AnySchema(random.Random(1))
    value = b"\x00" * 16 if avro == {"type": "fixed", "name": "F", "size": 16} else made.value(avro)
    content = written(fastavro.parse_schema(json.loads(json.dumps(schema))), {"a": value})
    decoded = decoder_for(events({"a": column}, schema)).decode([None] * 2, [content, b"\x00"])
    assert (decoded.good, decoded.columns) == ([1], {"a": [None]})
    assert decoded.bad[0].stage is Stage.CONTRACT
    assert decoded.bad[0].reason.startswith(f"a ({column}): the record has a ")


@pytest.mark.parametrize("avro", ["float", "double", ["null", "double"]])
def test_a_length_beyond_all_memory_is_bad_and_takes_nothing_down(avro: Any) -> None:
    fields = [{"name": "text", "type": "string"}, {"name": "a", "type": avro}]
    schema = {"type": "record", "name": "R", "fields": fields}
    whole = b"\x02t" + (b"\x02" if isinstance(avro, list) else b"") + bytes(4 if avro == "float" else 8)
    longest = b"\xfe" + b"\xff" * 8 + b"\x01"  # Long.MAX_VALUE
    decoded = decoder_for(events({"a": "double"}, schema)).decode([None] * 2, [longest, whole])
    assert (decoded.good, decoded.columns["a"]) == ([1], [0.0])
    assert decoded.bad[0].stage is Stage.DECODE


def test_a_wrong_type_in_a_record_that_breaks_off_is_no_matter_of_the_contract() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
    }
    decoded = decoder_for(events({"a": "string", "b": "string"}, schema)).decode(
        [None], [number(1) + b"\x08a"]
    )
    assert decoded.bad[0].stage is Stage.DECODE


def test_days_since_1970_are_a_date_where_the_column_says_so() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    table = events({"a": {"type": "date", "epoch": "d"}}, schema)
    decoded = decoder_for(table).decode([None] * 2, [number(20_000), number(10**7)])
    assert decoded.columns == {"a": [date(2024, 10, 4)]}
    assert decoded.bad[0].stage is Stage.CONTRACT


def test_a_field_by_its_path_says_that_a_record_deletes() -> None:
    """Nothing else is looked at in such a record, not even whether its types are those of the columns."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "v", "type": "string"}, {"name": "op", "type": ["null", "string", "int"]}],
    }
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], format="avro", key=["k"], key_format="string",
        columns={"k": "string", "v": "int"}, delete_when={"path": "op", "values": ["D"]},
        value_schema=json.dumps(schema),
    )  # fmt: skip
    ops = [b"\x02" + string("D"), b"\x02" + string("U"), b"\x04" + number(1), b"\x00"]
    decoded = decoder_for(table).decode([b"a"] * 5, [*(string("x") + op for op in ops), string("x")])
    assert (decoded.good, decoded.tombstones) == ([0], [True])
    assert [bad.reason[:11] for bad in decoded.bad] == [
        "v (int): th",
        "delete_when",
        "v (int): th",
        "not Avro by",
    ]


@pytest.mark.parametrize("schema", ["string", {"type": "string"}, ["null", "string"]])
def test_a_key_that_is_no_record_is_its_one_column(schema: Any) -> None:
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], format="json", key_format="avro", key=["k"],
        columns={"k": "string", "b": "string"}, key_schema=json.dumps(schema),
    )  # fmt: skip
    key = written(fastavro.parse_schema(schema), "u1")
    assert decoder_for(table).decode([key], [b'{"b":"x"}']).columns == {"k": ["u1"], "b": ["x"]}


def test_a_schema_without_fields_makes_no_two_columns() -> None:
    decoded = decoder_for(events({"a": "string", "b": "string"}, "string")).decode([None], [string("a")])
    assert decoded.bad[0].stage is Stage.DECODE
    assert "has no fields" in decoded.bad[0].reason


GUID = UUID("89791762-2336-186f-9674-299b90a8e2e7")
BY_ID: dict[SchemaId, Any] = {
    7: {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
    8: {
        "type": "record",
        "name": "R",
        "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}],
    },
    GUID: {"type": "record", "name": "R", "fields": [{"name": "b", "type": ["null", "string"]}]},
    9: {"type": "record", "name": "R"},
}


def test_each_record_is_read_by_the_schema_of_its_writer() -> None:
    """Schemas take turns; what is not framed, or names an unknown schema, is bad for itself."""
    values = [
        framed(7, number(1)),
        framed(8, string("x") + number(2)),
        framed(GUID, b"\x02" + string("y")),
        b"\x00\x00\x00",
        framed(7, number(3)),
        b"\x02" + number(1),
        framed(9, b""),
        framed(99, b""),
        framed(2**31, b""),
        b"\x01" + b"\x00" * 15,
        framed(8, string("z")),
        framed(7, number(4)),
    ]
    registry = Registered(BY_ID)
    table = events({"a": "long", "b": "string"}, None)
    decoder = decoder_for(table, registry)
    decoded = decoder.decode([None] * len(values), values)
    for _ in range(2):
        decoded = decoder.decode([None] * len(values), values)
        assert decoded.good == [0, 1, 2, 4, 11]
        assert decoded.columns == {"a": [1, 2, None, 3, 4], "b": [None, "x", "y", None, None]}
    reasons = {bad.index: bad.reason for bad in decoded.bad}
    assert {bad.stage for bad in decoded.bad} == {Stage.DECODE}
    assert reasons[7] == "no schema has the id 99"
    assert reasons[8] == f"no schema has the id {2**31}"
    assert reasons[5] == "it begins with the byte 2, not with 0 or 1 and a schema's id"
    assert reasons[6].startswith("its writer's schema 9 can't be used: ")
    assert registry.asked.count(7) == 1  # an id means the same for ever
    assert registry.asked.count(99) == 3  # and one that is unknown may be known a moment later


def test_a_header_names_the_schema_and_nothing_stands_before_the_body_then() -> None:
    """Of keys and values apart; of several headers of one name the last counts; what names none is bad."""
    values = [number(1), number(2), framed(7, number(3)), number(4), number(5), string("x") + number(6), None]
    guid, seven = framed(GUID, b""), framed(7, b"")
    by_value = [guid, seven, None, b"\x02", seven + b"\0", framed(8, b""), b""]
    headers = [[("__value_schema_id", one), ("__key_schema_id", seven)] for one in by_value]
    headers[1].insert(0, ("__value_schema_id", guid))
    values[0] = b"\x02" + string("y")
    table = LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["t"],
        format="avro",
        key=["a"],
        columns={"a": "long", "b": "string"},
    )
    decoder = decoder_for(table, Registered(BY_ID))
    decoded = decoder.decode([number(index) for index in range(7)], values, headers.__getitem__)
    assert decoded.good == [0, 1, 2, 5, 6]
    assert decoded.columns == {"a": [0, 1, 2, 5, 6], "b": ["y", None, None, "x", None]}
    assert [bad.reason for bad in decoded.bad] == [
        "the header that names its schema begins with the byte 2, not with 0 or 1 and a schema's id",
        "the header that names its schema has 1 bytes too many",
    ]


def test_a_body_without_bytes_is_a_row_where_a_header_names_its_schema_and_else_deletes() -> None:
    nothing = WriterSchema((json.dumps({"type": "record", "name": "Nothing", "fields": []}),))
    table = LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["t"],
        format="avro",
        key_format="string",
        key=["a"],
        columns={"a": "string", "b": "string"},
    )
    named: list[tuple[str, bytes | None]] = [("__value_schema_id", framed(7, b""))]
    headers = [named, [], named]
    decoded = decoder_for(table, Registered({7: nothing})).decode(
        [b"x", b"y", b"z"], [b"", b"", None], headers.__getitem__
    )
    assert decoded.tombstones == [False, True, True]
    assert decoded.columns == {"a": ["x", "y", "z"], "b": [None, None, None]}


def test_with_a_schema_of_its_own_a_prefix_is_left_aside_only_where_the_definition_says_so() -> None:
    schema = BY_ID[7]
    plain_table, framed_table = events({"a": "int"}, schema), events({"a": "int"}, schema, schema_framed=True)
    values = [framed(7, number(1)), framed(GUID, number(2)), number(3)]
    assert decoder_for(plain_table).decode([None] * 3, values).columns == {"a": [3]}
    decoded = decoder_for(framed_table).decode([None] * 3, values)
    assert decoded.columns == {"a": [1, 2]}


def test_without_a_registry_records_that_need_one_stop_whoever_reads_them() -> None:
    decoder = decoder_for(events({"a": "int"}, None))
    with pytest.raises(ConfigInvalid, match="registry"):
        decoder.decode([None], [framed(7, number(1))])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "levels deep"),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "levels deep"),
        ("{}", "no type"),
        ('"Nobody"', "not declared"),
        ("[]", "a union is empty"),
        ('["null",["int"]]', "holds another one"),
        ('{"type":"record","name":"R"}', "no fields"),
        ('{"type":"record","fields":[]}', "no name"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "no field"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "two fields",
        ),
        ('{"type":"enum","name":"E"}', "symbols"),
        ('{"type":"fixed","name":"F","size":-1}', "whole number"),
        ('["null",{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "twice"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_reason(schema: str, why: str) -> None:
    with pytest.raises(SchemaInvalid, match=why):
        schema_text(schema)


def test_a_schema_that_makes_billions_of_values_of_no_bytes_is_refused() -> None:
    """Each record holds the one before twice; in the end 2^40 empty records, and not a byte of them."""
    inner: Any = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, 41):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}"}]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(SchemaInvalid, match="take no bytes"):
        parse_schema([json.dumps(inner)])


def test_names_are_found_by_their_namespaces_and_in_schemas_before() -> None:
    first = {"type": "record", "name": "a.b.Address", "fields": [{"name": "city", "type": "string"}]}
    second = {
        "type": "record",
        "name": "User",
        "namespace": "a.b",
        "fields": [{"name": "home", "type": "Address"}, {"name": "work", "type": ["null", "a.b.Address"]}],
    }
    found = parse_schema([json.dumps(first), json.dumps(second)])
    assert found.fields[0][1] is found.fields[1][1].branches[1]


def test_a_definition_carries_its_schemas_and_tables_without_one_are_as_before() -> None:
    assert LiveTable.from_json(AVRO_POISONED.to_json(), "avro_poisoned") == AVRO_POISONED
    assert not AVRO_POISONED.needs_registry
    assert events({"a": "int"}, None).needs_registry
    assert "schema" not in events({"a": "int"}, None).to_json()
    spread = json.dumps(json.loads(AVRO_POISONED.value_schema or ""), indent=2)
    assert schema_text(spread) == AVRO_POISONED.value_schema


def test_a_schema_where_none_is_read_by_it_is_a_problem() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        LiveTable.build(
            name="t",
            identifier="app.t",
            topics=["t"],
            key=["k"],
            columns={"k": "int", "v": "int"},
            value_schema='"int"',
            key_schema='"int"',
        )
    assert "value_schema_file needs format" in str(refused.value)
    assert "key_schema_file needs key_format" in str(refused.value)
    with pytest.raises(ConfigInvalid, match="schema_framed"):
        events({"a": "int"}, None, schema_framed=True)


def test_bytes_alone_are_bad_where_a_serializer_named_their_schema() -> None:
    """Java's writes them without their length: the first byte would be taken for it."""

    def read(value: bytes, schema: str | None) -> Decoded:
        table = LiveTable.build(
            name="t", identifier="app.t", topics=["t"], key=[], key_from="value", format="avro",
            columns={"a": "binary"}, value_schema=schema,
        )  # fmt: skip
        return decoder_for(table, Registered({1: "bytes"})).decode([None], [value])

    assert read(b"\x04ab", '"bytes"').columns["a"] == [b"ab"]
    (bad,) = read(framed(1, b"\x04ab"), None).bad
    assert (bad.stage, "bytes alone" in bad.reason) == (Stage.DECODE, True)
