"""Debezium's change events, as its PostgreSQL connector and Kafka Connect's JsonConverter write them."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.errors import AlterationRefused, ConfigInvalid
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.decode import Decoded, Stage, decoder_for, records_table
from thermocline.rules.definition import UNAVAILABLE, LiveTable
from thermocline.rules.fold import fold

CUSTOMERS = LiveTable.build(
    name="customers",
    identifier="app.customers",
    topics=["shop.public.customers"],
    key=["id"],
    envelope="debezium",
    columns={
        "id": "int",
        "name": "string",
        "photo": "binary",
        "born": {"type": "date", "epoch": "d"},
        "changed": {"type": "timestamptz", "epoch": "us"},
        "notes": "json",
        "tags": "list<string>",
        "sizes": "list<long>",
        "owners": "list<uuid>",
        "labels": "map<string, string>",
    },
)
ANN = {"id": 7, "name": "Ann", "born": 7_300, "changed": 1_700_000_000_000_000, "notes": {"a": 1}}
SOURCE = {"version": "3.6.3", "connector": "postgresql", "name": "shop", "lsn": 24023128, "snapshot": "false"}
KEY_SCHEMA = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}]}


def event(op: str | None, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1, "transaction": None}


def encoded(document: Any, with_schema: bool) -> bytes:
    whole = {"schema": KEY_SCHEMA, "payload": document} if with_schema else document
    return json.dumps(whole, separators=(",", ":")).encode()


def decode(*records: tuple[Any, Any], with_schema: bool = False) -> Decoded:
    keys = [encoded({"id": key}, with_schema) for key, _ in records]
    values = [None if value is None else encoded(value, with_schema) for _, value in records]
    return decoder_for(CUSTOMERS).decode(keys, values)


@pytest.mark.parametrize("with_schema", [False, True])
def test_each_operation_gives_the_row_after_it_or_its_end(with_schema: bool) -> None:
    changed = ANN | {"name": "Anna"}
    decoded = decode(
        (7, event("r", after=ANN)),
        (7, event("c", after=ANN)),
        (7, event("u", before=ANN, after=changed)),
        (7, event("d", before=changed)),
        (7, None),
        with_schema=with_schema,
    )
    assert decoded.bad == []
    assert decoded.tombstones == [False, False, False, True, True]
    assert decoded.columns["id"] == [7] * 5
    assert decoded.columns["name"] == ["Ann", "Ann", "Anna", None, None]
    assert decoded.columns["born"][0] == date(1989, 12, 27)
    assert decoded.columns["changed"][0] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert decoded.columns["notes"][0] == '{"a":1}'


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize(
    ("value", "stage"),
    [
        (event("t"), Stage.DECODE),
        (event("m"), Stage.DECODE),
        (event(None, after=ANN), Stage.DECODE),
        (event("c", before=ANN), Stage.DECODE),
        (event("c", after=[]), Stage.DECODE),
        (event("c", after=ANN | {"name": 5}), Stage.CONTRACT),
        (event("c", after=ANN | {"born": 10**9}), Stage.CONTRACT),
        ({"ts_ms": 1}, Stage.DECODE),  # a heartbeat
        ({"status": "BEGIN", "id": "571", "event_count": None}, Stage.DECODE),  # of a transaction
        ({"source": SOURCE, "databaseName": "shop", "ddl": "ALTER TABLE", "tableChanges": []}, Stage.DECODE),
        ({}, Stage.DECODE),
        ([], Stage.DECODE),
        ({"op": 1}, Stage.DECODE),
        ({"payload": 1}, Stage.DECODE),
    ],
)
def test_what_is_no_change_of_one_row_is_bad(value: Any, stage: Stage, with_schema: bool) -> None:
    decoded = decode((1, event("c", after=ANN)), (7, value), (3, None), with_schema=with_schema)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, stage)]
    assert decoded.good == [0, 2]


def test_a_truncate_which_has_no_key_says_what_it_is() -> None:
    (bad,) = decoder_for(CUSTOMERS).decode([None], [encoded(event("t"), with_schema=False)]).bad
    assert (bad.stage, "TRUNCATE" in bad.reason) == (Stage.DECODE, True)


def test_with_partial_updates_a_value_that_is_not_there_is_absent_and_all_others_are_set() -> None:
    """Also one inside an object, in base64, and of a type that is no text; numbers beside it stay exact."""
    columns: dict[str, str | dict[str, str]] = {
        "id": "int",
        "born": {"type": "date", "epoch": "d"},
        "photo": "binary",
        "price": "decimal(38,20)",
        "city": {"type": "string", "path": "address.city"},
        "street": {"type": "string", "path": "address.street"},
    }
    table = LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["id"], envelope="debezium", columns=columns,
        partial_updates=True,
    )  # fmt: skip
    after = (
        b'{"id": 7, "born": "__debezium_unavailable_value", "photo": "%s", "price": 0.12345678901234567891,'
        b' "address": {"city": "Oslo", "street": "__debezium_unavailable_value"}}'
        % base64.b64encode(UNAVAILABLE.encode())
    )
    values = [b'{"op": "u", "after": %s}' % after, b'{"op": "u", "after": {"id": 7}}', b'{"op": "d"}']
    decoded = decoder_for(table).decode([b'{"id": 7}'] * 3, values)
    assert decoded.bad == []
    assert decoded.absent == [("born", "photo", "street"), (), ()]
    assert decoded.tombstones == [False, False, True]
    assert decoded.columns["price"] == [Decimal("0.12345678901234567891"), None, None]
    assert decoded.columns["city"] == ["Oslo", None, None]
    assert decoded.columns["born"] == decoded.columns["photo"] == decoded.columns["street"] == [None] * 3


@pytest.mark.parametrize("is_ordering", [False, True])
def test_a_delete_is_bad_for_a_column_of_its_event_only_where_that_orders_it(is_ordering: bool) -> None:
    """Else the row would stay, and a replay of the delete could come before that of the row's own record."""
    table = LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["id"], envelope="debezium",
        columns={"id": "int", "lsn": {"type": "int", "event": "source.lsn"}},
        sequence_by=["lsn"] if is_ordering else [],
    )  # fmt: skip
    source = {**SOURCE, "lsn": 2**40}
    values = [
        encoded({**event("d", before={"id": 7}), "source": source}, with_schema=False),
        encoded({**event("c", after={"id": 7}), "source": source}, with_schema=False),
    ]
    decoded = decoder_for(table).decode([b'{"id": 7}'] * 2, values)
    assert [bad.index for bad in decoded.bad] == ([0, 1] if is_ordering else [1])
    if not is_ordering:
        assert decoded.tombstones == [True]


def test_what_orders_a_delete_is_read_though_another_column_of_its_event_is_wrong() -> None:
    table = LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["id"], envelope="debezium", sequence_by=["lsn"],
        columns={
            "id": "int",
            "lsn": {"type": "long", "event": "source.lsn"},
            "tx": {"type": "int", "event": "source.txId"},
        },
    )  # fmt: skip
    source = {**SOURCE, "lsn": 5, "txId": 2**40}
    values = [
        encoded({**event("d", before={"id": 7}), "source": source}, with_schema=False),
        encoded({**event("c", after={"id": 7}), "source": source}, with_schema=False),
    ]
    decoded = decoder_for(table).decode([b'{"id": 7}'] * 2, values)
    assert (decoded.good, decoded.tombstones, decoded.columns["lsn"]) == ([0], [True], [5])
    assert decoded.bad[0].reason.startswith("tx (int")


def test_with_partial_updates_a_row_that_got_another_key_is_bad_without_all_of_its_values() -> None:
    """Its large value is that of the row with the former key: null would be a guess."""
    columns = {"id": "int", "bio": "string"}
    table = LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["id"], envelope="debezium", columns=columns,
        partial_updates=True,
    )  # fmt: skip
    keys = [encoded({"id": key}, with_schema=False) for key in (1, 1, 2, 2)]
    events = [
        event("d", before={"id": 1}),
        None,
        event("c", after={"id": 2, "bio": UNAVAILABLE}),
        event("u", after={"id": 2, "bio": UNAVAILABLE}),
    ]
    values = [None if one is None else encoded(one, with_schema=False) for one in events]
    decoded = decoder_for(table).decode(keys, values)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(2, Stage.CONTRACT)]
    assert "bio" in decoded.bad[0].reason
    assert (decoded.good, decoded.absent) == ([0, 1, 3], [(), (), ("bio",)])


@pytest.mark.parametrize(
    "left_out",
    [
        {"name": UNAVAILABLE},
        {"photo": base64.b64encode(UNAVAILABLE.encode()).decode()},
        {"notes": UNAVAILABLE},
        {"tags": [UNAVAILABLE]},
        {"sizes": list(UNAVAILABLE.encode())},
        {"owners": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]},
        {"labels": {UNAVAILABLE: UNAVAILABLE}},
        {"name": json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":"))},
        {"notes": [UNAVAILABLE]},
        {"notes": {UNAVAILABLE: UNAVAILABLE}},
        {"notes": list(UNAVAILABLE.encode())},
    ],
)
def test_a_value_that_the_event_leaves_out_is_not_taken_for_a_text(left_out: dict[str, Any]) -> None:
    (bad,) = decode((7, event("u", after=ANN | left_out))).bad
    assert bad.stage is Stage.CONTRACT
    assert next(iter(left_out)) in bad.reason
    document = encoded(event("u", after=ANN | left_out), with_schema=False)
    beside_what_no_column_reads = document.replace(b'"after":{', b'"after":{"other":1e400,')
    assert decoder_for(CUSTOMERS).decode([b'{"id":7}'], [beside_what_no_column_reads]).bad == [bad]
    inside = {"name": f"about {UNAVAILABLE}", "other": UNAVAILABLE, "sizes": [*UNAVAILABLE.encode(), 1]}
    assert decode((7, event("u", after=ANN | inside))).columns["name"] == [inside["name"]]


CUSTOM = "__ungeändert/1__"
CUSTOM_FORMS: list[tuple[str, str]] = [
    ("name", '"__ungeändert/1__"'),
    ("name", '"__unge\\u00e4ndert\\/1__"'),
    ("name", '"X191bmdlw6RuZGVydC8xX18="'),  # binary.handling.mode = base64
    ("name", '"5f5f756e6765c3a46e646572742f315f5f"'),  # hex
    ("photo", '"X191bmdlw6RuZGVydC8xX18="'),
    ("photo", '"__ungeändert/1__"'),
    ("tags", '[ "__ungeändert/1__" ]'),
    ("sizes", "[95,95,117,110,103,101,-61,-92,110,100,101,114,116,47,49,95,95]"),
    ("sizes", "[95, 95, 117, 110, 103, 101, 195, 164, 110, 100, 101, 114, 116, 47, 49, 95, 95]"),
    ("sizes", "[ 95.0 ,95.0,117,110,103,101,195,164,110,100,101,114,116,47,49,95,95]"),
    (
        "tags",
        '["95","95","117","110","103","101","-61","-92","110","100","101","114","116","47","49","95","95"]',
    ),
    ("owners", '[ "45cfdabd-8445-36bb-82bb-d3b96287c2ca" ]'),
    ("labels", '{"__ungeändert/1__": "__ungeändert/1__"}'),
    ("name", '"{\\"__ungeändert/1__\\": \\"__ungeändert/1__\\"}"'),
    ("notes", '[ "__ungeändert/1__" ]'),
    ("name", '"__debezium_unavailable_value"'),
    ("sizes", f"{list(UNAVAILABLE.encode())}"),
]


@pytest.mark.parametrize(("column", "token"), CUSTOM_FORMS)
def test_a_placeholder_of_the_connectors_own_is_not_taken_for_a_value_in_any_form(
    column: str, token: str
) -> None:
    """Without the setting, such a text is a value; with it, Debezium's default still is a placeholder."""
    value = f'{{"op":"u","after":{{"id":7,"{column}":{token}}}}}'.encode()
    custom = replace(CUSTOMERS, unavailable_value_placeholder=CUSTOM, partial_updates=True)
    decoded = decoder_for(custom).decode([b'{"id":7}'], [value])
    assert (decoded.bad, decoded.absent) == ([], [(column,)])
    if UNAVAILABLE not in token and column == "name":
        (row,) = decoder_for(replace(CUSTOMERS)).decode([b'{"id":7}'], [value]).columns["name"]
        assert row == json.loads(token)


def test_a_placeholder_may_be_spelled_in_bytes() -> None:
    """One of its forms is base64 of the URL's alphabet, as binary.handling.mode = base64-url-safe has it."""
    table = replace(CUSTOMERS, unavailable_value_placeholder="hex:fbff", partial_updates=True)
    tokens = ["+/8=", "-_8=", "fbff", "hex:fbff"]
    values = [f'{{"op":"u","after":{{"name":"{token}"}}}}'.encode() for token in tokens]
    decoded = decoder_for(table).decode([b'{"id":7}'] * 4, values)
    assert [("name" in absent) for absent in decoded.absent or ()] == [True, True, True, False]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"unavailable_value_placeholder": ""}, "can't be empty"),
        ({"unavailable_value_placeholder": "hex:"}, "can't be empty"),
        ({"unavailable_value_placeholder": "hex:5"}, "not hexadecimal"),
        ({"unavailable_value_placeholder": "x", "envelope": "plain"}, 'needs envelope = "debezium"'),
    ],
)
def test_a_placeholder_that_can_be_none_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigInvalid, match=problem):
        LiveTable.build(
            name="t", identifier="a.t", topics=["t"], key=["id"], columns={"id": "int"},
            **({"envelope": "debezium"} | settings),
        )  # fmt: skip


def test_the_placeholder_is_part_of_the_definition() -> None:
    custom = replace(CUSTOMERS, unavailable_value_placeholder=CUSTOM)
    assert LiveTable.from_json(custom.to_json(), "customers") == custom
    assert "unavailable" not in CUSTOMERS.to_json()
    with pytest.raises(AlterationRefused, match="unavailable_value_placeholder can't become"):
        plan_alteration(CUSTOMERS, custom)


def test_a_key_that_has_a_payload_itself_is_taken_as_it_is() -> None:
    columns = {"payload": "string", "schema": "string", "text": "string"}
    definition = LiveTable.build(
        name="odd",
        identifier="app.odd",
        topics=["odd"],
        key=["payload", "schema"],
        envelope="debezium",
        columns=columns,
    )
    decoded = decoder_for(definition).decode([b'{"schema":"s","payload":"p"}'], [None])
    assert (decoded.columns["payload"], decoded.columns["schema"]) == (["p"], ["s"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just(UNAVAILABLE),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["op", "after", "payload", "id", "name", "schema"]), inner, max_size=4
        )
    ),
)


@given(st.lists(st.tuples(JSON, JSON | st.binary(max_size=20), st.booleans()), max_size=8))
def test_any_document_is_a_row_a_delete_or_bad(records: list[tuple[Any, Any, bool]]) -> None:
    """Goal: nothing raises, nothing is lost, and whatever stands in a record decides about that one alone."""

    def given_as(one: Any) -> bytes:
        return one if isinstance(one, bytes) else json.dumps(one).encode()

    keys = [given_as({"id": 1} if is_keyed else key) for key, _, is_keyed in records]
    values = [given_as(value) for _, value, _ in records]
    decoder = decoder_for(CUSTOMERS)
    together = decoder.decode(keys, values)
    assert sorted([*together.good, *(bad.index for bad in together.bad)]) == list(range(len(records)))
    alone = [decoder.decode([key], [value]) for key, value in zip(keys, values, strict=True)]
    assert [index for index, one in enumerate(alone) if one.good] == together.good


def test_what_debezium_sent_gives_the_rows_that_postgresql_had() -> None:
    """Method: events recorded from Debezium 3.6.3 and PostgreSQL 18, of the statements below.

    A snapshot of customers 1 to 3; the name of 1 (its bio is not logged), name and price of 2, the id of 3
    (to 30); 4 inserted and deleted; 5, with a column that is new; REPLICA IDENTITY FULL; the name of 1 again;
    TRUNCATE. The long bio was made shorter. Compared with a SELECT just before TRUNCATE.
    """
    recorded = (Path(__file__).parent / "debezium.jsonl").read_text().splitlines()
    events = [[None if part is None else part.encode() for part in json.loads(line)] for line in recorded]
    definition = LiveTable.build(
        name="customers",
        identifier="app.customers",
        topics=["shop.public.customers"],
        key=["id"],
        envelope="debezium",
        columns={
            "id": "int",
            "name": "string",
            "bio": "string",
            "born": {"type": "date", "epoch": "d"},
            "price": "decimal(8,2)",
            "changed": {"type": "timestamptz", "epoch": "us"},
            "zoned": "timestamptz",
            "tags": "string",
            "photo": "binary",
            "uid": "uuid",
            "active": "boolean",
            "extra": "string",
        },
    )
    decoded = decoder_for(definition).decode([key for key, _ in events], [value for _, value in events])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(3, Stage.CONTRACT), (13, Stage.DECODE)]
    rows: dict[int, dict[str, Any]] = {}
    for place, is_delete in enumerate(decoded.tombstones):
        row = {name: values[place] for name, values in decoded.columns.items() if values[place] is not None}
        rows[row["id"]] = row
        if is_delete:
            del rows[row["id"]]
    assert rows == {
        1: {
            "id": 1,
            "name": "Annie",
            "bio": "a long text",
            "born": date(1989, 12, 27),
            "price": Decimal("9.50"),
            "changed": datetime(2026, 1, 1, 10, 0, 0, 123456, UTC),
            "zoned": datetime(2026, 1, 1, 8, 0, tzinfo=UTC),
            "tags": '{"a": [1, 2]}',
            "photo": b"\x00\xff",
            "uid": UUID(int=10),
            "active": True,
        },
        2: {"id": 2, "name": "Bobby", "price": Decimal("0.10")},
        30: {"id": 30, "name": "Cy", "active": False},
        5: {"id": 5, "name": "Eve", "extra": "more"},
    }


@pytest.mark.parametrize("seed", range(5))
def test_what_debezium_sent_gives_the_same_rows_in_any_order(seed: int) -> None:
    """Method: the events recorded from PostgreSQL, shuffled; the position in its log puts them in order."""
    recorded = (Path(__file__).parent / "debezium.jsonl").read_text().splitlines()
    pairs = [tuple(None if part is None else part.encode() for part in json.loads(line)) for line in recorded]
    lsn = {"type": "long", "event": "source.lsn"}
    definition = LiveTable.build(
        name="customers",
        identifier="app.customers",
        topics=["shop.public.customers"],
        key=["id"],
        envelope="debezium",
        columns={"id": "int", "name": "string", "lsn": lsn},
        sequence_by=["lsn"],
    )
    random.Random(seed).shuffle(pairs)
    decoded = decoder_for(definition).decode([key for key, _ in pairs], [value for _, value in pairs])
    without_value = {index for index, (_, value) in enumerate(pairs) if value is None}
    truncated = {index for index, (_, value) in enumerate(pairs) if value and b'"op":"t"' in value}
    assert {bad.index for bad in decoded.bad} == without_value | truncated
    offsets = range(len(pairs))
    winners = fold(records_table(definition, decoded, "shop.public.customers", 0, offsets, [0] * len(pairs)))
    rows = {row["id"]: row["name"] for row in winners.winners.to_pylist() if not row["_tombstone"]}
    assert rows == {1: "Annie", 2: "Bobby", 30: "Cy", 5: "Eve"}
