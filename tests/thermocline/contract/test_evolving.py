"""A table that takes up changes of its writers' schemas by itself: what it gains, and what its records mean.

Goal: whatever order a writer's schema gains, widens, loses and gets back fields in, the table comes to have a
column for each, and every record, older or newer, means the same row as by hand. Method: random schemas of a
writer in each format, records of each, decoded by the last definition and compared with plain dictionaries.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.changing_writer import FORMATS, ChangingWriter, meant
from tests.thermocline.registered import Registered
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.column_types import ColumnType
from thermocline.rules.contract.changes import SchemaChange, judged_parts, modes_of, schema_changes
from thermocline.rules.contract.evolving import evolved
from thermocline.rules.contract.in_file import with_evolved
from thermocline.rules.contract.modes import Kind, Mode
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable

HEAD = b"\x00\x00\x00\x00\x01"


def table(format_: str, contract: Any = "evolve", **columns: str) -> LiveTable:
    return LiveTable.build(
        name="orders",
        identifier="app.orders",
        topics=["orders"],
        key=["id"],
        key_format="string",
        format=format_,
        columns={"id": "string", **(columns or {"count": "int", "name": "string"})},
        contract=contract,
        require_fields=False,
    )


def taken_up(definition: LiveTable, schema: WriterSchema, head: bytes) -> LiveTable:
    """The definition after a schema was met, as the owner does it."""
    (part,) = judged_parts(definition)
    changes = schema_changes(definition, part, schema, head)
    wanted = [one for one, mode in modes_of(definition, changes, part) if mode is Mode.EVOLVE]
    alteration = evolved(definition, wanted).alteration
    return definition if alteration is None else alteration.definition


@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_that_evolved_reads_every_record_as_by_hand(format_: str) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    writer = ChangingWriter(format_, random.Random(seed), nests=True)
    definition = declared = table(format_)
    schemas: dict[Any, Any] = {}
    records: list[tuple[bytes, dict[str, Any]]] = []
    for id_ in range(1, 26):
        if id_ > 1:
            print(id_, writer.change())
        schemas[id_] = writer.schema()
        head = b"\x00" + id_.to_bytes(4) + (b"\x00" if format_ == "protobuf" else b"")
        definition = taken_up(definition, schemas[id_], head)
        records += [(writer.encoded(id_, value), value) for value in (writer.value() for _ in range(3))]
    decoded = decoder_for(definition, Registered(schemas)).decode(
        [str(number).encode() for number in range(len(records))], [value for value, _ in records]
    )
    assert decoded.bad == []
    names = [column.name for column in definition.columns if column.name != "id"]
    found = [
        dict(zip(names, row, strict=True)) for row in zip(*(decoded.columns[n] for n in names), strict=True)
    ]
    ever = {name: writer.ever[name] for name in names}
    assert found == [meant(value, ever) for _, value in records]
    assert {*names} == {*writer.ever}, "nothing is left out"
    assert with_evolved(declared, definition).differences(definition) == (), "the file need not be changed"


def new(name: str, type_: str = "string", **more: Any) -> SchemaChange:
    return SchemaChange(Kind.NEW_COLUMNS, (name,), name, after=ColumnType.parse(type_), **more)


def test_what_a_table_cannot_have_is_named_and_keeps_nothing_else_from_it() -> None:
    changes = [new("Name"), new("_kafka_offset"), new("bucket"), new("$path"), new("a'b"), new("plan")]
    found = evolved(table("avro"), changes)
    assert [str(one.column) for one in found.taken] == ["plan"]
    assert [(one.column, why) for one, why in found.passed_over] == [
        ("Name", "there is a column name already"),
        ("_kafka_offset", "the name is reserved"),
        ("bucket", "the name is reserved"),
        ("$path", "Trino has hidden columns with such names"),
        ("a'b", "a column can't have such a name"),
    ]


def test_what_was_dropped_comes_back_by_hand_alone() -> None:
    dropped = {("plan",), ("address", "zip"), ("place", "city")}
    field = SchemaChange(
        Kind.NEW_FIELDS, ("address", "zip"), "address", ("zip",), after=ColumnType.parse("int")
    )
    other = replace(field, path=("address", "no"), inside=("no",))
    definition = table("avro", count="int", address="struct<city: string>")
    found = evolved(definition, [new("plan"), new("place"), new("name"), field, other], 0, dropped)
    assert [change.path for change in found.taken] == [("name",), ("address", "no")]
    assert [change.path for change, _ in found.passed_over] == [("plan",), ("place",), ("address", "zip")]
    assert all("was dropped" in why for _, why in found.passed_over)
    wider = replace(field, kind=Kind.WIDER_TYPES, path=("plan",), column="plan", inside=())
    again = table("avro", count="int", plan="int")
    assert evolved(again, [replace(wider, after=ColumnType.parse("long"))], 0, dropped).taken


def test_a_table_gains_no_more_columns_than_it_may_have() -> None:
    definition = table("avro", {"new_columns": "evolve", "columns_max": 6})
    found = evolved(definition, [new("a"), new("b", "struct<x: int, y: int>"), new("c"), new("d"), new("e")])
    assert [one.column for one in found.taken] == ["a", "c", "d"]
    assert [why for _, why in found.passed_over] == [
        "the table would have 7 columns, more than columns_max",
        "the table would have 7 columns, more than columns_max",
    ]


def test_two_schemas_of_a_batch_that_differ_in_a_new_field_come_to_the_wider_type() -> None:
    narrow = WriterSchema(('{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}',))
    wide = WriterSchema(('{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}',))
    for schemas in ([narrow, wide], [wide, narrow]):
        definition = table("avro")
        for schema in schemas:
            definition = taken_up(definition, schema, HEAD)
        assert str(definition.columns[-1].type) == "long"


def test_the_file_counts_what_the_table_gained_only_while_it_lets_it_evolve() -> None:
    declared = table("avro")
    alteration = evolved(declared, [new("plan")]).alteration
    assert alteration is not None
    gained = replace(alteration.definition, contract=declared.contract)
    assert with_evolved(declared, gained) == replace(declared, columns=gained.columns)
    strict = table("avro", "ignore")
    assert with_evolved(strict, gained) == strict
    without = table("avro", {"mode": "evolve", "columns": {"plan": "ignore"}})
    assert with_evolved(without, gained) == without
    widened = table("avro", count="long", name="string")
    assert with_evolved(declared, widened).columns == widened.columns
    assert with_evolved(table("avro", {"wider_types": "stop"}), widened).columns == declared.columns


def test_a_field_that_is_to_be_dropped_is_not_what_the_table_gained() -> None:
    current = table("avro", address="struct<city: string, zip: list<struct<no: int, a: int>>>")
    declared = table("avro", address="struct<city: string, zip: list<struct<no: int>>>")
    assert with_evolved(declared, current).columns[1].type == current.columns[1].type
    assert with_evolved(declared, current, ["address.zip.element.a"]) == declared
    found = with_evolved(table("avro", address="struct<city: string>"), current, ["address.zip"])
    assert found == table("avro", address="struct<city: string>")
    planned = plan_alteration(current, found, 9, drop=["address.zip"])
    assert planned.changes == ("field address.zip is dropped: nothing shows its values any more",)
    by_itself = with_evolved(table("avro"), current, ["address.zip"])
    assert [str(one.type) for one in by_itself.columns][-1] == "struct<city: string>"


def test_what_the_file_renames_or_drops_is_not_what_the_table_gained() -> None:
    current = table("avro", count="int", name="string", more="string")
    renamed: Any = {"name": "string", "items": {"type": "int", "renamed_from": "count"}}
    found = with_evolved(table("avro", **renamed), current, drop=["more"])
    assert [one.name for one in found.columns] == ["id", "name", "items"]
    assert [one.name for one in with_evolved(table("avro", **renamed), current).columns] == [
        *("id", "name", "items", "more")
    ]
