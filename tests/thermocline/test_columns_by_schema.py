"""Tables of a route with the columns of their records' schemas: which record says them, and what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.thermocline.registered import Registered, framed
from thermocline.errors import ConfigInvalid, RegistryUnreachable
from thermocline.ingest.batch.read_task import RangesReader, ReadReport, ReadTask
from thermocline.ingest.batch.source import Together
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.contract.in_file import with_evolved
from thermocline.rules.contract.modes import Contract
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import canonical
from thermocline.rules.recognise import Unrecognised
from thermocline.rules.routes.by_schema import ByFirst, by_first
from thermocline.rules.routes.directory import Beginning, Directory
from thermocline.rules.routes.own_columns import FirstSchema, OwnColumns
from thermocline.rules.seam import Seam
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.settings import Settings, load_settings
from thermocline.settings.route import DirectorySettings

CONFIG = """
[kafka]
bootstrap_servers = "broker:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[registry]
url = "http://127.0.0.1:9"

[routes.events]
topics = ["events"]
by = {{ header = "type" }}
table = "app.events_{{}}"
columns = "schema"
{more}
"""
KEY = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
BUYER = {"type": "record", "name": "Buyer", "fields": [{"name": "mail", "type": ["null", "string"]}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "doc": "when it came"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "buyer", "type": BUYER},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "password", "type": "string"},
    ],
}
FIRST = FirstSchema("events", 0, 7, framed(2, b""), framed(1, b""))
EMPTY = Contract()


def loaded(folder: Path, more: str = 'format = "avro"') -> Settings:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(more=more))
    return load_settings(file)


def problem_of(folder: Path, more: str) -> str:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(folder, more)
    (problem,) = refused.value.problems
    return problem


def directory(folder: Path, more: str = 'format = "avro"') -> LiveTable:
    return loaded(folder, more).table("events").definition("events")


def found(
    folder: Path,
    schemas: Mapping[SchemaId, Any],
    more: str = 'format = "avro"',
    first: FirstSchema = FIRST,
    kind: str = "AVRO",
    contract: Contract = EMPTY,
) -> ByFirst:
    """What a first record says, by the settings of its route."""
    settings = loaded(folder, more)
    definition = settings.table("events").definition("events")
    return by_first(
        definition, settings.routes["events"].key, contract, first, Registered(dict(schemas), kind)
    )


def why_not(folder: Path, schemas: Mapping[SchemaId, Any], more: str = 'format = "avro"', **rest: Any) -> str:
    with pytest.raises(Unrecognised) as refused:
        found(folder, schemas, more, **rest)
    return str(refused.value)


# The columns


def test_columns_key_and_comments_are_those_of_the_schemas(tmp_path: Path) -> None:
    said = found(tmp_path, {1: KEY, 2: ORDER})
    assert said.own == OwnColumns(
        ("id",),
        {
            "id": "long",
            "at": {"type": "timestamptz", "comment": "when it came"},
            "price": "decimal(12,2)",
            "buyer": "struct<mail: string>",
            "tags": "list<string>",
            "password": "string",
        },
    )
    assert list(said.left_out) == []


def test_a_routed_table_has_them_with_the_other_options_of_the_route(tmp_path: Path) -> None:
    settings = loaded(tmp_path, 'format = "avro"\nbuckets = 3\ncontract = "evolve"')
    own = OwnColumns(
        ("id",), {"id": "long", "at": "timestamptz", "mail": {"type": "string", "path": ["_mail"]}}
    )
    table = settings.with_routed("events", ["order"], {"order": own}).table("events_order")
    definition = table.definition("events_order")
    assert (definition.identifier, definition.key, definition.buckets) == ("app.events_order", ("id",), 3)
    assert {one.name: str(one) for one in definition.columns}["at"] == "timestamptz"
    assert definition.columns_by_schema
    assert definition.contract == Contract.parse("evolve")
    assert OwnColumns.of(LiveTable.from_json(definition.to_json(), "events_order")).to_dict() == {
        "key": ["id"],
        "columns": {
            "id": {"type": "long"},
            "at": {"type": "timestamptz"},
            "mail": {"type": "string", "path": ["_mail"]},
        },
    }


@pytest.mark.parametrize(
    ("more", "key", "columns"),
    [
        ('key_format = "string"', ("key",), {"key": "string", "id": "long"}),
        ('key_format = "uuid"', ("key",), {"key": "uuid", "id": "long"}),
        ('key_format = "string"\nkey = ["id"]', ("id",), {"id": "string"}),
        ('key_format = "long"\nkey = ["order_id"]', ("order_id",), {"order_id": "long", "id": "long"}),
        ('key_from = "value"\nkey = ["id"]', ("id",), {"id": "long"}),
        ('key_from = "value"\nkey = []', (), {"id": "long"}),
    ],
)
def test_a_plain_key_has_the_routes_name_and_its_formats_type_or_is_in_the_value(
    tmp_path: Path, more: str, key: tuple[str, ...], columns: dict[str, str]
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    said = found(
        tmp_path, {2: schema}, f'format = "avro"\n{more}', msgspec.structs.replace(FIRST, key_head=b"")
    )
    assert (said.own.key, dict(said.own.columns)) == (key, columns)
    own = {"order": said.own}
    table = loaded(tmp_path, f'format = "avro"\n{more}').with_routed("events", ["order"], own)
    assert table.table("events_order").definition("events_order").key == key


def test_a_named_key_is_the_whole_key_of_the_schema_in_the_routes_order(tmp_path: Path) -> None:
    both = {"type": "record", "name": "K", "fields": [{"name": n, "type": "int"} for n in ("a", "b")]}
    said = found(tmp_path, {1: both, 2: ORDER}, 'format = "avro"\nkey = ["b", "a"]')
    assert said.own.key == ("b", "a")
    assert list(said.own.columns)[:3] == ["b", "a", "id"]
    assert why_not(tmp_path, {1: both, 2: ORDER}, 'format = "avro"\nkey = ["a"]') == (
        "the key in its schema is a, b, and the route's is a"
    )


def test_the_message_that_a_record_of_protobuf_names_is_the_one_that_counts(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message A { int64 a = 1; } message B { string id = 1; repeated int32 n = 2; }'
    schema = WriterSchema(kind="PROTOBUF", descriptors=canonical(compiled({"m.proto": text}, "m.proto")))
    first = FirstSchema("events", 0, 7, framed(2, b"\x02\x02"))
    more = 'format = "protobuf"\nkey_format = "string"'
    said = found(tmp_path, {2: schema}, more, first)
    assert dict(said.own.columns) == {"key": "string", "id": "string", "n": "list<int>"}
    beyond = msgspec.structs.replace(first, value_head=framed(2, b"\x02\x08"))
    assert "it has no message at 4" in why_not(tmp_path, {2: schema}, more, first=beyond)


def test_json_schema_declares_columns_too(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "description": "how many"}}}
    more = 'format = "json_schema"\nkey_format = "int"\nkey = ["id"]'
    said = found(tmp_path, {2: schema}, more, kind="JSON")
    assert dict(said.own.columns) == {"id": "int", "n": {"type": "long", "comment": "how many"}}


def test_what_the_contract_says_a_table_never_gains_it_does_not_begin_with(tmp_path: Path) -> None:
    contract = Contract.parse(
        {"mode": "evolve", "columns": {"password": "ignore", "tags": "evolve", "id": "stop"}}
    )
    said = found(tmp_path, {1: KEY, 2: ORDER}, contract=contract)
    assert list(said.own.columns) == ["id", "at", "price", "buyer", "tags"]
    assert list(said.left_out) == ["password: the contract says ignore"]


EVENT = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "after", "type": ["null", {"type": "record", "name": "R", "fields": KEY["fields"]}]},
    ],
}
JSON_OBJECT = '{"type":"object","properties":{"a":{"type":"integer"}}}'
DELETED = {
    "type": "record",
    "name": "D",
    "fields": [{"name": "__deleted", "type": "string"}, *ORDER["fields"]],
}


@pytest.mark.parametrize(
    ("schemas", "why"),
    [
        ({1: {**KEY, "fields": [{"name": "id", "type": "double"}]}, 2: ORDER}, "the key's id is double"),
        ({1: KEY, 2: EVENT}, 'its schema asks for envelope = "debezium", and the route has "plain"'),
        ({1: KEY, 2: DELETED}, 'its schema has "__deleted", which says that a row is gone'),
        (
            {1: KEY, 2: {"type": "record", "name": "N", "fields": []}},
            "the schemas of the values declare no fields",
        ),
        (
            {1: KEY, 2: WriterSchema((JSON_OBJECT,), kind="JSON")},
            'its schema asks for format = "json_schema"',
        ),
        ({1: WriterSchema(("{}",), kind="XML"), 2: ORDER}, "schema 1 is of a kind that is not read, XML"),
        ({1: KEY}, "no schema has the id 2"),
    ],
)
def test_schemas_that_are_not_those_of_a_table_say_why(
    tmp_path: Path, schemas: dict[SchemaId, Any], why: str
) -> None:
    assert why_not(tmp_path, schemas).startswith(why)


# The settings


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('format = "json"', 'columns = "schema" needs format = avro or json_schema or protobuf'),
        ('format = "avro"\nkey_format = "json"', 'columns = "schema" needs key_format = avro or '),
        (
            'format = "avro"\nvalue_schema_file = "x.avsc"',
            'columns = "schema" can\'t be used with value_schema_',
        ),
        ('format = "avro"\nkey_from = "value"', "key is missing: it names fields of the value"),
        ('format = "avro"\nentity = ["id"]', "entity needs key"),
        ('format = "avro"\ncontract = "evolv"', 'contract is "evolv", not evolve or '),
        ('format = "avro"\ncontract = { removed_fields = "evolve" }', "contract.removed_fields can't be"),
    ],
)
def test_what_no_schema_could_say_is_a_problem_of_the_route(tmp_path: Path, more: str, problem: str) -> None:
    assert problem_of(tmp_path, more).startswith(f"routes.events: {problem}")


def test_columns_are_a_section_or_that_word_and_without_it_a_route_has_a_key(tmp_path: Path) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text(CONFIG.format(more='format = "avro"').replace('"schema"', '"schemas"'))
    with pytest.raises(ConfigInvalid, match=r'routes.events.columns: columns is "schemas", not a section'):
        load_settings(file)
    file.write_text(CONFIG.format(more='format = "avro"').replace('"schema"', '{ id = "int" }'))
    with pytest.raises(ConfigInvalid, match=r"routes\.events: key is missing"):
        load_settings(file)


def test_a_directory_finds_values_where_its_tables_do(tmp_path: Path) -> None:
    found = directory(tmp_path, 'format = "avro"\nkey = ["region"]\nsequence_by = ["at"]')
    assert found.fields_in_key == frozenset({("region",)})
    assert (found.columns_by_schema, found.sequence_by) == (True, ())
    assert directory(tmp_path, 'format = "avro"\nkey_format = "int"').key == ("record_key",)


def test_the_columns_of_the_table_are_those_that_the_file_wants_whatever_it_began_with(
    tmp_path: Path,
) -> None:
    settings = loaded(tmp_path)
    own = OwnColumns(("id",), {"id": "long", "a": "int"})
    wanted = settings.with_routed("events", ["o"], {"o": own}).table("events_o").definition("events_o")
    now = OwnColumns(("id",), {"id": "long", "a": "long", "b": "string"})
    table = settings.with_routed("events", ["o"], {"o": now}).table("events_o").definition("events_o")
    assert wanted.differences(table)
    assert with_evolved(wanted, table).differences(table) == ()
    assert with_evolved(wanted, table, drop=["b"]).row_schema.names == ["id", "a"]
    evolving = replace(wanted, contract=Contract.parse("evolve"))
    changed = plan_alteration(table, with_evolved(evolving, table)).changes
    assert len(changed) == 1, "the contract alone"


# The first record


def chunk(*values: bytes | None, partition: int = 0, offset: int = 0, types: str = "a") -> RecordChunk:
    """Records with a header ``type``, a letter each, all with the key's schema 1."""
    count = len(values)

    class Typed(RecordChunk):
        def headers_of(self, index: int) -> list[tuple[str, bytes | None]] | None:
            return [("type", (types * count)[index].encode())]

    offsets = list(range(offset, offset + count))
    return Typed("events", partition, [framed(1, b"\x02")] * count, list(values), offsets, [0] * count)


def read(folder: Path, known: Directory, *chunks: RecordChunk, schemas: Any = None) -> ReadReport:
    """What a read task reports of some chunks."""
    nowhere: Any = None
    registry: Any = Registered({1: KEY, 2: ORDER, 3: ORDER}) if schemas is None else schemas
    admission = known.admission((), tables_max=9)
    task = ReadTask(directory(folder), {}, nowhere, nowhere, "", {"events": "id"}, registry, None, admission)
    reader = RangesReader(task, [OffsetRange("events", 0, 0, 9)], Together())
    report = ReadReport([])
    for one in chunks:
        reader.take(one, report)
    reader.end(report)
    return report


def test_the_first_record_in_the_log_says_a_values_schema(tmp_path: Path) -> None:
    chunks = [
        chunk(framed(3, b""), framed(2, b""), partition=1, offset=4),
        chunk(framed(2, b""), framed(3, b""), types="ab", offset=8),
        chunk(framed(3, b""), offset=10),
    ]
    report = read(tmp_path, Directory(), *chunks)
    assert report.first_schemas == {
        "a": FirstSchema("events", 0, 8, framed(2, b""), framed(1, b"")),
        "b": FirstSchema("events", 0, 9, framed(3, b""), framed(1, b"")),
    }
    assert report.new_values == ["a", "b"]


def test_what_names_no_known_schema_says_nothing(tmp_path: Path) -> None:
    garbage = [None, b"", b"text", framed(9, b""), b"\x00\xff\xff\xff\xff", framed(2, b"")]
    report = read(tmp_path, Directory(), chunk(*garbage, offset=3))
    assert report.first_schemas["a"].offset == 8
    nothing = read(tmp_path, Directory(), chunk(*garbage[:-1]))
    assert (nothing.first_schemas, nothing.new_values) == ({}, ["a"])


def test_values_with_a_table_or_a_schema_are_not_looked_at_again_but_those_that_wait_for_one_are(
    tmp_path: Path,
) -> None:
    since = Beginning(Seam({("events", 0): 0}))
    known = (
        Directory().with_table("a").without_table("b", "why", since, FIRST).without_table("c", "why", since)
    )
    registry = Registered({1: KEY, 2: ORDER})
    report = read(tmp_path, known, chunk(*[framed(2, b"")] * 3, types="abc"), schemas=registry)
    assert set(report.first_schemas) == {"c"}
    chosen = known.admission((), 3, chosen=("d",))
    assert chosen.unnamed == {"c", "d"}


def test_a_registry_that_does_not_answer_holds_the_batch_back(tmp_path: Path) -> None:
    class Away:
        def of(self, id_: SchemaId) -> WriterSchema:
            raise RegistryUnreachable(url="http://registry", detail=str(id_))

    with pytest.raises(RegistryUnreachable):
        read(tmp_path, Directory(), chunk(framed(2, b"")), schemas=Away())


def test_a_directory_keeps_what_was_noted_first_and_is_read_back(tmp_path: Path) -> None:
    since = Beginning(Seam({("events", 0): 7}))
    known = Directory().without_table("a", "no schema", since)
    known = known.without_table("a", "name taken", since, FIRST)
    assert known.failed["a"].first == FIRST
    later = msgspec.structs.replace(FIRST, offset=9, value_head=framed(3, b""))
    assert known.without_table("a", "again", since, later).failed["a"].first == FIRST
    own = OwnColumns(("id",), {"id": "long"})
    known = known.with_table("b", own)
    assert Directory.from_json(known.to_json()) == known
    assert Directory.from_json(known.with_table("a", own).to_json()).columns == {"a": own, "b": own}


def test_a_directory_of_tables_by_schema_is_told_from_others(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    of_route = settings.table("events")
    assert isinstance(of_route, DirectorySettings)
    assert json.loads(of_route.definition("events").to_json())["columns_by_schema"] is True
