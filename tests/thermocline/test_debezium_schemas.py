"""Debezium's change events in Avro and JSON Schema, as the converters of Kafka Connect write them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from tests.thermocline.alone import alone_and_together_are_the_same
from tests.thermocline.registered import Registered, framed
from tests.thermocline.test_avro import events, spoiled, written
from thermocline.rules.decode import Decoded, Stage, decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.definition import UNAVAILABLE, LiveTable

FUZZED, FUZZED_FULL = 5_000, 200_000


def meant(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name}


def optional(name: str, type_: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type_], "default": None}


DECIMAL = {
    "type": "bytes", "scale": 2, "precision": 8, "connect.version": 1, "logicalType": "decimal",
    "connect.name": "org.apache.kafka.connect.data.Decimal",
}  # fmt: skip
VARIABLE = {
    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.version": 1, "connect.name": "io.debezium.data.VariableScaleDecimal",
}  # fmt: skip
VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": {"type": "int", "connect.default": 0}, "default": 0},
        optional("name", "string"),
        optional("bio", "string"),
        optional("born", meant("int", "io.debezium.time.Date")),
        optional("price", DECIMAL),
        optional("any_price", VARIABLE),
        optional("changed", meant("long", "io.debezium.time.MicroTimestamp")),
        optional("exact", meant("long", "io.debezium.time.NanoTimestamp")),
        optional("coarse", meant("long", "io.debezium.time.Timestamp")),
        optional("zoned", meant("string", "io.debezium.time.ZonedTimestamp")),
        optional("at", meant("long", "io.debezium.time.MicroTime")),
        optional("photo", "bytes"),
        optional("uid", meant("string", "io.debezium.data.Uuid")),
        optional("active", "boolean"),
        optional("tags", {"type": "array", "items": ["null", "string"]}),
        optional("extra", meant("string", "io.debezium.data.Json")),
        optional("days", {"type": "array", "items": ["null", meant("int", "io.debezium.time.Date")]}),
        optional("notes", {"type": "array", "items": ["null", meant("string", "io.debezium.data.Json")]}),
    ],
    "connect.name": "shop.public.customers.Value",
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.customers",
    "fields": [
        optional("before", VALUE),
        optional("after", "Value"),
        {
            "name": "source",
            "type": {
                "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
                "fields": [{"name": "version", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}],
            },
        },
        {"name": "op", "type": "string"},
        optional("ts_ms", "long"),
    ],
    "connect.name": "shop.public.customers.Envelope",
}  # fmt: skip
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
HEARTBEAT = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
TRANSACTION = {
    "type": "record",
    "name": "TransactionMetadataValue",
    "fields": [{"name": "status", "type": "string"}, {"name": "id", "type": "string"}],
}
ODD_OP = {"type": "record", "name": "Odd", "fields": [{"name": "op", "type": "int"}]}
SCHEMAS: dict[SchemaId, Any] = {1: KEY, 2: ENVELOPE, 3: HEARTBEAT, 4: TRANSACTION, 5: ODD_OP}
PARSED = {number: fastavro.parse_schema(json.loads(json.dumps(one))) for number, one in SCHEMAS.items()}
REGISTRY = Registered(SCHEMAS)
COLUMNS: dict[str, Any] = {
    "id": "int",
    "name": "string",
    "bio": "string",
    "born": "date",
    "price": "decimal(8,2)",
    "any_price": "decimal(12,3)",
    "changed": {"type": "timestamptz", "epoch": "us"},
    "exact": "timestamptz",
    "coarse": "timestamptz",
    "zoned": "timestamptz",
    "photo": "binary",
    "uid": "uuid",
    "active": "boolean",
    "tags": "json",
    "extra": "json",
}


def customers(format_: str = "avro", columns: dict[str, Any] = COLUMNS) -> LiveTable:
    return LiveTable.build(
        name="customers", identifier="app.customers", topics=["shop.public.customers"], key=["id"],
        envelope="debezium", format=format_, columns=columns,
    )  # fmt: skip


def row(**fields: Any) -> dict[str, Any]:
    return {"id": 7} | fields


def event(op: str, after: Any = None, before: Any = None) -> bytes:
    source = {"version": "3.6.3", "lsn": 24_023_128}
    return body(2, {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1})


def body(number: int, value: Any) -> bytes:
    return framed(number, written(PARSED[number], value))


def decode(*values: bytes | None, columns: dict[str, Any] = COLUMNS) -> Decoded:
    decoder = decoder_for(customers(columns=columns), REGISTRY)
    return decoder.decode([body(1, {"id": 7})] * len(values), values)


def test_each_operation_gives_the_row_after_it_or_its_end() -> None:
    decoded = decode(
        event("r", row(name="Ann")),
        event("c", row(name="Ann")),
        event("u", row(name="Anna"), row(name="Ann")),
        event("d", None, row(name="Anna", bio=UNAVAILABLE)),
        None,
        b"",
    )
    assert decoded.bad == []
    assert decoded.tombstones == [False, False, False, True, True, True]
    assert decoded.columns["id"] == [7] * 6
    assert decoded.columns["name"] == ["Ann", "Ann", "Anna", None, None, None]


def test_the_position_in_the_databases_log_orders_changes_and_deletes() -> None:
    columns: dict[str, Any] = {"id": "int", "name": "string", "lsn": {"type": "long", "event": "source.lsn"}}
    ordered = replace(customers(columns=columns), sequence_by=("lsn",))
    nowhere = body(2, {"before": None, "after": row(), "source": {"version": "", "lsn": None}, "op": "c"})
    values = [event("c", row(name="Ann")), event("d", None, row(name="Ann")), nowhere, None]
    decoded = decoder_for(ordered, REGISTRY).decode([body(1, {"id": 7})] * 4, values)
    assert decoded.tombstones == [False, True]
    assert decoded.columns == {"id": [7, 7], "name": ["Ann", None], "lsn": [24_023_128] * 2}
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(2, Stage.CONTRACT), (3, Stage.CONTRACT)]


def test_nothing_of_the_row_that_a_delete_brings_along_counts() -> None:
    decoded = decode(event("d", row(bio=UNAVAILABLE, price=Decimal("123456.00"))), event("c", row()))
    assert decoded.bad == []
    assert decoded.tombstones == [True, False]
    assert all(values[0] is None for name, values in decoded.columns.items() if name != "id")


def test_types_are_read_by_what_connect_calls_them() -> None:
    decoded = decode(
        event(
            "c",
            row(
                born=7_300, price=Decimal("9.50"), any_price={"scale": 1, "value": b"\x01\x00"},
                changed=1_700_000_000_123_456, exact=1_700_000_000_123_456_000, coarse=1_700_000_000_123,
                zoned="2026-01-01T10:00:00.5+02:00", photo=b"\x00\xff", uid=str(UUID(int=10)), active=True,
                tags=["a", None], extra='{"a": 1}',
            ),
        )
    )  # fmt: skip
    assert decoded.bad == []
    moment = datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)
    assert {name: values[0] for name, values in decoded.columns.items()} == {
        "id": 7, "name": None, "bio": None, "born": date(1989, 12, 27), "price": Decimal("9.50"),
        "any_price": Decimal("25.600"), "changed": moment, "exact": moment,
        "coarse": moment.replace(microsecond=123_000), "zoned": datetime(2026, 1, 1, 8, 0, 0, 500_000, UTC),
        "photo": b"\x00\xff", "uid": UUID(int=10), "active": True, "tags": '["a",null]',
        "extra": '"{\\"a\\": 1}"',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "type_", "value"),
    [
        ("born", "int", 1),
        ("at", "long", 1),
        ("at", "timestamptz", 1),
        ("changed", "long", 1),
        ("changed", {"type": "timestamptz", "epoch": "ms"}, 1),
        ("exact", {"type": "timestamptz", "epoch": "us"}, 1),
        ("exact", "timestamptz", 1_001),
        ("zoned", "timestamptz", "2026-01-01T10:00:00"),
        ("any_price", "decimal(4,2)", {"scale": 3, "value": b"\x01"}),
        ("any_price", "decimal(4,2)", {"scale": -(2**31), "value": b"\x01"}),
        ("any_price", "decimal(4,2)", {"scale": 2**31 - 1, "value": b"\x01"}),
        ("any_price", "string", {"scale": 0, "value": b"\x01"}),
        ("uid", "uuid", "none"),
    ],
)
def test_what_is_not_exactly_the_columns_type_is_bad(column: str, type_: Any, value: Any) -> None:
    decoded = decode(event("c", row(**{column: value})), columns={"id": "int", column: type_})
    assert [bad.stage for bad in decoded.bad] == [Stage.CONTRACT]


@pytest.mark.parametrize(
    ("value", "stage", "why"),
    [
        (event("t"), Stage.DECODE, "TRUNCATE"),
        (event("m"), Stage.DECODE, "op is not one of"),
        (event("c"), Stage.DECODE, "without the row"),
        (body(3, {"ts_ms": 1}), Stage.DECODE, "op is not one of"),
        (body(4, {"status": "BEGIN", "id": "571"}), Stage.DECODE, "op is not one of"),
        (body(5, {"op": 1}), Stage.DECODE, "_op"),
        (event("c", row())[:-3], Stage.DECODE, "ends before"),
        (event("c", row()) + b"\x00", Stage.DECODE, "follow its end"),
        (framed(9, b""), Stage.DECODE, "no schema has the id 9"),
        (event("u", row(bio=UNAVAILABLE)), Stage.CONTRACT, "bio: the change did not touch"),
        (event("u", row(photo=UNAVAILABLE.encode())), Stage.CONTRACT, "photo: the change"),
        (event("u", row(tags=[UNAVAILABLE])), Stage.CONTRACT, "tags: the change"),
        (event("u", row(extra=UNAVAILABLE)), Stage.CONTRACT, "extra: the change"),
    ],
)
def test_what_is_no_change_of_one_row_is_bad(value: bytes, stage: Stage, why: str) -> None:
    decoded = decode(event("c", row()), value, None)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, stage)]
    assert why in decoded.bad[0].reason
    assert decoded.good == [0, 2]


def test_arrays_of_dates_and_of_json_that_the_event_leaves_out_are_not_taken_for_values() -> None:
    columns = {"id": "int", "days": "list<date>", "notes": "list<json>"}
    decoded = decode(
        event("u", row(days=[0, 95], notes=["{}"])),
        event("u", row(days=list(UNAVAILABLE.encode()))),
        event("u", row(notes=[UNAVAILABLE])),
        columns=columns,
    )
    assert decoded.columns["days"] == [[date(1970, 1, 1), date(1970, 4, 6)]]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, Stage.CONTRACT), (2, Stage.CONTRACT)]


def test_a_placeholder_of_the_connectors_own_is_not_taken_for_a_value() -> None:
    columns = {"id": "int", "name": "string", "photo": "binary", "days": "list<date>", "tags": "list<string>"}
    table = replace(
        customers(columns=columns), unavailable_value_placeholder="__unverändert__", partial_updates=True
    )
    text = "__unverändert__"
    signed = [95, 95, 117, 110, 118, 101, 114, -61, -92, 110, 100, 101, 114, 116, 95, 95]
    values = [
        event("u", row(name=text, photo=text.encode(), days=signed, tags=[text])),
        event("u", row(name="X191bnZlcsOkbmRlcnRfXw==", photo=UNAVAILABLE.encode(), tags=["a"])),
        event("c", row(name=text)),
    ]
    decoded = decoder_for(table, REGISTRY).decode([body(1, {"id": 7})] * 3, values)
    assert [set(absent) for absent in decoded.absent or ()] == [
        {"name", "photo", "days", "tags"},
        {"name", "photo"},
    ]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(2, Stage.CONTRACT)]


def test_an_array_that_the_event_leaves_out_is_not_taken_for_its_items() -> None:
    columns = {"id": "int", "tags": "list<string>"}
    decoded = decode(event("u", row(tags=["a", None])), event("u", row(tags=[UNAVAILABLE])), columns=columns)
    assert decoded.columns["tags"] == [["a", None]]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, Stage.CONTRACT)]


@pytest.mark.parametrize("named", ["by headers", "by the definition"])
def test_a_key_is_read_by_its_own_schema_and_an_event_by_its_own(named: str) -> None:
    """Neither says in its bytes which schema it has, and neither can be read by the other's."""
    columns = {"id": "int", "name": "string"}
    key, value = body(1, {"id": 7})[5:], event("c", row(name="Ann"))[5:]
    if named == "by headers":
        heads = [("__value_schema_id", framed(2, b"")), ("__key_schema_id", framed(1, b""))]
        decoded = decoder_for(customers(columns=columns), REGISTRY).decode([key], [value], lambda _: heads)
    else:
        table = LiveTable.build(
            name="customers", identifier="app.customers", topics=["t"], key=["id"], envelope="debezium",
            format="avro", columns=columns, key_schema=json.dumps(KEY), value_schema=json.dumps(ENVELOPE),
        )  # fmt: skip
        decoded = decoder_for(table).decode([key], [value])
    assert decoded.bad == []
    assert decoded.columns == {"id": [7], "name": ["Ann"]}


def test_times_that_the_database_has_without_a_zone_may_stay_without_one() -> None:
    zoned = decode(event("c", row(exact=5_000, coarse=7))).columns
    columns = {"id": "int", "exact": "timestamp", "coarse": "timestamp"}
    local = decode(event("c", row(exact=5_000, coarse=7)), columns=columns).columns
    for name in ("exact", "coarse"):
        assert local[name] == [zoned[name][0].replace(tzinfo=None)]


def test_a_text_that_only_holds_the_placeholder_is_a_text() -> None:
    assert decode(event("u", row(name=f"about {UNAVAILABLE}"))).columns["name"] == [f"about {UNAVAILABLE}"]


def test_events_in_json_schema_are_what_they_are_in_json() -> None:
    """Method: events recorded from Debezium and PostgreSQL; see `test_debezium`."""
    recorded = (Path(__file__).parent / "debezium.jsonl").read_text().splitlines()
    parts = [[None if part is None else json.loads(part) for part in json.loads(line)] for line in recorded]
    bare = [[one["payload"] if one and "payload" in one else one for one in both] for both in parts]
    plain = [
        [None if one is None else json.dumps(one, separators=(",", ":")).encode() for one in both]
        for both in bare
    ]
    columns = COLUMNS | {"born": {"type": "date", "epoch": "d"}}
    for name in ("any_price", "exact", "coarse"):
        columns.pop(name)
    expected = decoder_for(customers("json", columns)).decode(
        [key for key, _ in plain], [value for _, value in plain]
    )
    schemas = Registered({1: {}, 2: {}}, "JSON")
    found = decoder_for(customers("json_schema", columns), schemas).decode(
        [key and framed(1, key) for key, _ in plain], [value and framed(2, value) for _, value in plain]
    )
    assert found == expected
    assert len(found.good) > 10


@pytest.mark.parametrize("count", [FUZZED, pytest.param(FUZZED_FULL, marks=pytest.mark.full)])
def test_malformed_events_are_good_or_bad_alone_as_together(count: int) -> None:
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    chance = random.Random(seed)
    whole = [
        event("c", row(name="Ann", tags=["a", UNAVAILABLE], any_price={"scale": 3, "value": b"\x01"})),
        event("u", row(bio=UNAVAILABLE, changed=10**15), row()),
        event("d", None, row()),
        body(3, {"ts_ms": 1}),
    ]
    decoder = decoder_for(customers(), REGISTRY)
    for first in range(0, count, 500):
        values = [spoiled(chance, chance.choice(whole)) for _ in range(first, min(first + 500, count))]
        alone_and_together_are_the_same(decoder, body(1, {"id": 7}), values)


def test_flattened_events_have_these_types_too() -> None:
    """As `ExtractNewRecordState` leaves them, without an envelope."""
    table = events({"born": "date", "changed": "timestamptz"}, None)
    value = written(fastavro.parse_schema(json.loads(json.dumps(VALUE))), row(born=1, changed=5))
    decoded = decoder_for(table, Registered({6: VALUE})).decode([None], [framed(6, value)])
    assert decoded.columns == {"born": [date(1970, 1, 2)], "changed": [datetime(1970, 1, 1, 0, 0, 0, 5, UTC)]}
