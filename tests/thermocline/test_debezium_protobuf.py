"""Debezium's change events in Protobuf, of schemas as Confluent's ``ProtobufConverter`` makes them.

Method: a schema as `ProtobufData.fromConnectSchema` writes one for Debezium's PostgreSQL connector, with
``optional.for.nullables=true``: the row is a message within the envelope's.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from tests.thermocline.alone import alone_and_together_are_the_same
from tests.thermocline.registered import Registered, framed
from tests.thermocline.test_avro import spoiled
from thermocline.rules.decode import Decoded, Stage, decoder_for
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import UNAVAILABLE, LiveTable
from thermocline.rules.protobuf_schema import message_at
from thermocline.schemas.protobuf_compiler import compiled

FUZZED, FUZZED_FULL = 5_000, 200_000
ENVELOPE = """
syntax = "proto3";
package shop.public.customers;
import "confluent/type/decimal.proto";
message Envelope {
  Value before = 1;
  Value after = 2;
  Source source = 3;
  string op = 4;
  optional int64 ts_ms = 5;
  message Value {
    int32 id = 1;
    optional string name = 2;
    optional bytes photo = 3;
    optional confluent.type.Decimal price = 4;
    optional int64 changed = 5;
    repeated string tags = 6;
  }
  message Source { string version = 1; optional int64 lsn = 2; }
}
"""
KEY = """
syntax = "proto3";
package shop.public.customers;
message Key { int32 id = 1; }
"""
HEARTBEAT = """
syntax = "proto3";
message Heartbeat { int64 ts_ms = 1; }
"""
TEXTS = {1: KEY, 2: ENVELOPE, 3: HEARTBEAT}
COLUMNS: dict[str, Any] = {
    "id": "int",
    "name": "string",
    "photo": "binary",
    "price": "decimal(8,2)",
    "changed": {"type": "timestamptz", "epoch": "us"},
    "tags": "list<string>",
}


@cache
def descriptors(number: int) -> bytes:
    return compiled({"schema.proto": TEXTS[number]}, "schema.proto")


@cache
def registry() -> Registered:
    return Registered(
        {number: WriterSchema(kind="PROTOBUF", descriptors=descriptors(number)) for number in TEXTS}
    )


def body(number: int, **fields: Any) -> bytes:
    content: bytes = message_at(descriptors(number), (0,))(**fields).SerializeToString()
    return framed(number, b"\x00" + content)


def event(op: str, after: Any = None, before: Any = None) -> bytes:
    return body(2, op=op, after=after, before=before, source={"version": "3.6.3", "lsn": 1}, ts_ms=1)


def row(**fields: Any) -> dict[str, Any]:
    return {"id": 7} | fields


def customers(**options: Any) -> LiveTable:
    return LiveTable.build(
        name="customers", identifier="app.customers", topics=["shop.public.customers"], key=["id"],
        envelope="debezium", format="protobuf", columns=COLUMNS, **options,
    )  # fmt: skip


def decode(*values: bytes | None, **options: Any) -> Decoded:
    decoder = decoder_for(customers(**options), registry())
    return decoder.decode([body(1, id=7)] * len(values), values)


def test_each_operation_gives_the_row_after_it_or_its_end() -> None:
    decoded = decode(
        event("r", row(name="Ann")),
        event("c", row()),
        event("u", row(name="", price={"value": b"\x03\xb6", "scale": 2}, changed=5, tags=["a"]), row()),
        event("d", None, row(name=UNAVAILABLE)),
        None,
    )
    assert decoded.bad == []
    assert decoded.tombstones == [False, False, False, True, True]
    changed = datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    assert decoded.columns == {
        "id": [7] * 5,
        "name": ["Ann", None, "", None, None],
        "photo": [None] * 5,
        "price": [None, None, Decimal("9.50"), None, None],
        "changed": [None, None, changed, None, None],
        "tags": [[], [], ["a"], None, None],
    }


@pytest.mark.parametrize(
    ("value", "stage", "why"),
    [
        (event("t"), Stage.DECODE, "TRUNCATE"),
        (event("m"), Stage.DECODE, "op is not one of"),
        (event("c"), Stage.DECODE, "without the row"),
        (body(2), Stage.DECODE, "op is not one of"),
        (body(3, ts_ms=1), Stage.DECODE, "op is not one of"),
        (b"", Stage.DECODE, "is empty"),
        (event("c", row())[:-1], Stage.DECODE, "not Protobuf by its schema"),
        (framed(9, b"\x00"), Stage.DECODE, "no schema has the id 9"),
        (event("c", row(price={"value": b"\x01", "scale": 3})), Stage.CONTRACT, "price"),
        (event("u", row(name=UNAVAILABLE)), Stage.CONTRACT, "name: the change did not touch"),
        (event("u", row(photo=UNAVAILABLE.encode())), Stage.CONTRACT, "photo: the change"),
        (event("u", row(tags=[UNAVAILABLE])), Stage.CONTRACT, "tags: the change"),
    ],
)
def test_what_is_no_change_of_one_row_is_bad(value: bytes, stage: Stage, why: str) -> None:
    decoded = decode(event("c", row()), value, None)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, stage)]
    assert why in decoded.bad[0].reason
    assert decoded.good == [0, 2]


def test_nothing_of_the_row_that_a_delete_brings_along_counts() -> None:
    decoded = decode(event("d", row(name=UNAVAILABLE, price={"value": b"\x01", "scale": 3})))
    assert (decoded.bad, decoded.tombstones, decoded.columns["name"]) == ([], [True], [None])


@pytest.mark.parametrize("count", [FUZZED, pytest.param(FUZZED_FULL, marks=pytest.mark.full)])
def test_malformed_events_are_good_or_bad_alone_as_together(count: int) -> None:
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    chance = random.Random(seed)
    whole = [
        event("c", row(name="Ann", tags=["a", UNAVAILABLE], price={"value": b"\x01", "scale": 3})),
        event("u", row(photo=UNAVAILABLE.encode(), changed=10**15), row()),
        event("d", None, row()),
        body(3, ts_ms=1),
    ]
    decoder = decoder_for(customers(), registry())
    for first in range(0, count, 500):
        values = [spoiled(chance, chance.choice(whole)) for _ in range(first, min(first + 500, count))]
        alone_and_together_are_the_same(decoder, body(1, id=7), values)
