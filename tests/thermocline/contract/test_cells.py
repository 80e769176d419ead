"""Each cell of the table in docs/formats/contracts.md: a kind of change, in a format, under a mode.

Goal: the page says what happens. Method: the page's own table is read; each cell is tried with a schema that
makes that change, and records of it.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.changing_writer import ChangingWriter
from tests.thermocline.registered import Registered
from thermocline.errors import ConfigInvalid
from thermocline.rules.bad_codes import BadCode, coded
from thermocline.rules.contract.changes import judged_parts, modes_of, schema_changes
from thermocline.rules.contract.evolving import evolved
from thermocline.rules.contract.modes import Contract, Kind, Mode
from thermocline.rules.contract.sampled import JsonFields, SampledFields
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.record import Decoded, Stage
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import canonical
from thermocline.schemas.protobuf_compiler import compiled

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "contracts.md"
HEAD = {"avro": b"\x00\x00\x00\x00\x01", "json_schema": b"\x00\x00\x00\x00\x01"}
HEAD["protobuf"] = HEAD["avro"] + b"\x00"
COLUMNS = {"id": "string", "count": "int", "size": "long", "at": "struct<x: int>"}


@dataclass(frozen=True)
class Cell:
    kind: Kind
    format: str
    mode: Mode
    said: str
    is_default: bool

    def __str__(self) -> str:
        return f"{self.kind}-{self.format}-{self.mode}"


def cells() -> Iterator[Cell]:
    kind = ""
    for line in PAGE.read_text().split("## Each kind of change")[1].split("## How")[0].splitlines():
        columns = [one.strip() for one in line.strip("|").split("|")]
        if len(columns) != 6 or not re.search("`(avro|json)`", columns[1]):
            continue
        kind = columns[0].partition(":")[0].strip("`") or kind
        for format_ in re.findall(r"\w+", columns[1]):
            for mode, said in zip(Mode, columns[2:], strict=True):
                yield Cell(Kind(kind), format_, mode, said.removesuffix("*"), said.endswith("*"))


CELLS = list(cells())


def table(format_: str, contract: Any, columns: dict[str, str] | None = None, **options: Any) -> LiveTable:
    return LiveTable.build(
        name="orders",
        identifier="app.orders",
        topics=["orders"],
        key=["id"],
        format=format_,
        columns=columns or COLUMNS,
        contract=contract,
        **({"key_from": "value"} | options),
    )


# By kind: the fields of the writer's schema, and its value.
FULL: dict[str, Any] = {"id": "string", "count": "int", "size": "long", "at": {"x": "int"}}
VALUE: dict[str, Any] = {"id": "a", "count": 1, "size": 2, "at": {"x": 3}}
CHANGED: dict[Kind, tuple[dict[str, Any], dict[str, Any]]] = {
    Kind.NEW_COLUMNS: (FULL | {"plan": "string"}, VALUE | {"plan": "gold"}),
    Kind.NEW_FIELDS: (FULL | {"at": {"x": "int", "y": "int"}}, VALUE | {"at": {"x": 3, "y": 4}}),
    Kind.WIDER_TYPES: (FULL | {"count": "long"}, VALUE | {"count": 2**40}),
    Kind.NARROWER_TYPES: (FULL | {"size": "int"}, VALUE),
    Kind.REMOVED_FIELDS: (
        {name: type_ for name, type_ in FULL.items() if name != "size"},
        {name: one for name, one in VALUE.items() if name != "size"},
    ),
    Kind.MADE_OPTIONAL: (FULL, VALUE),
    Kind.MADE_REQUIRED: (FULL, VALUE),
}


class Requiring(ChangingWriter):
    """A writer whose key is always there, unless that is what changed."""

    optional: tuple[str, ...] = ()

    def registered(self) -> tuple[str, str]:
        kind, text = super().registered()
        needed = [name for name in self.fields if name not in self.optional]
        if kind == "PROTOBUF":
            return kind, text.replace("optional string id", "string id") if "id" in needed else text
        schema = json.loads(text)
        if kind == "JSON":
            return kind, json.dumps(schema | {"required": needed})
        for field in schema["fields"] if "id" in needed else ():
            if field["name"] == "id":
                field |= {"type": "string"}
                del field["default"]
        return kind, json.dumps(schema)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_cell_of_the_page_is_what_happens(cell: Cell) -> None:
    assert (Contract().mode_of(cell.kind, "x", cell.format) is cell.mode) == cell.is_default
    if cell.said == "–":
        with pytest.raises(ConfigInvalid) as caught:
            table(cell.format, {cell.kind: cell.mode})
        ((problem),) = caught.value.problems
        assert problem.startswith(f'contract.{cell.kind} can\'t be "{cell.mode}": ')
        return
    definition = table(cell.format, {cell.kind: cell.mode})
    if cell.format == "json":
        happens_in_json(cell, definition)
    else:
        happens(cell, definition)


def test_the_page_has_every_kind_format_and_mode_once() -> None:
    formats = ("avro", "protobuf", "json_schema", "json")
    wanted = sorted((kind, of, mode) for kind in Kind for of in formats for mode in Mode)
    assert sorted((one.kind, one.format, one.mode) for one in CELLS) == wanted


def happens(cell: Cell, definition: LiveTable) -> None:
    fields, value = CHANGED[cell.kind]
    writer = Requiring(cell.format, random.Random(0), fields=fields)
    writer.optional = ("id",) if cell.kind is Kind.MADE_OPTIONAL else ()
    schema, record = schema_of(writer), HEAD[cell.format] + encoded(writer, value)
    (part,) = judged_parts(definition)
    changes = schema_changes(definition, part, schema, HEAD[cell.format])
    met = [(change.kind, mode) for change, mode in modes_of(definition, changes, part)]
    assert met == ([] if cell.kind is Kind.MADE_REQUIRED else [(cell.kind, cell.mode)])
    decoded = decode(definition, schema, record)
    match cell.said:
        case "added" | "widened":
            alteration = evolved(definition, changes).alteration
            assert alteration is not None
            after = decode(alteration.definition, schema, record)
            assert {name: one[0] for name, one in after.columns.items()} == value
        case "left out":
            assert {name: one[0] for name, one in decoded.columns.items()} == VALUE
            name = "plan" if cell.kind is Kind.NEW_COLUMNS else "at.y"
            found = UnreadFields(definition, Registered({1: schema})).of([record])
            assert (found.values, dict(found.names)) == (1, {name: 1})
        case "bad" | "stops":
            assert [one.stage for one in decoded.bad] == [Stage.CONTRACT]
            assert decoded.good == []
            if cell.kind is not Kind.WIDER_TYPES:  # there, the value does not fit anyway
                assert coded(decoded.bad[0].reason, definition) == (BadCode.SCHEMA_CHANGED, None)
        case "value bad":
            assert [one.stage for one in decoded.bad] == [Stage.CONTRACT]
            assert coded(decoded.bad[0].reason, definition)[1] == "count"
        case "fits" | "null":
            assert {name: one[0] for name, one in decoded.columns.items()} == {"size": None, **value}
        case "null bad":
            assert decoded.bad == []
            without = {name: one for name, one in value.items() if name != "id"}
            refused = decode(definition, schema, HEAD[cell.format] + encoded(writer, without))
            assert [one.stage for one in refused.bad] == [Stage.KEY]
        case other:
            raise AssertionError(other)


def schema_of(writer: ChangingWriter) -> WriterSchema:
    kind, text = writer.registered()
    if kind == "PROTOBUF":
        return WriterSchema(kind=kind, descriptors=canonical(compiled({"value.proto": text}, "value.proto")))
    return WriterSchema((text,), kind=kind)


def encoded(writer: ChangingWriter, value: dict[str, Any]) -> bytes:
    if writer.format != "avro":
        return writer.encoded(1, value)[len(HEAD[writer.format]) :]
    sink = io.BytesIO()
    whole = {name: value.get(name) for name in writer.fields}
    fastavro.schemaless_writer(sink, fastavro.parse_schema(json.loads(writer.registered()[1])), whole)
    return sink.getvalue()


def decode(definition: LiveTable, schema: WriterSchema, record: bytes) -> Decoded:
    return decoder_for(definition, Registered({1: schema})).decode([None], [record])


def happens_in_json(cell: Cell, definition: LiveTable) -> None:
    _, value = CHANGED[cell.kind]
    if cell.said == "null bad":
        value = {name: one for name, one in value.items() if name != "id"}
    decoded = decoder_for(definition).decode([None], [json.dumps(value).encode()])
    match cell.said:
        case "added":
            sampled = SampledFields().plus(
                [JsonFields(definition).of([json.dumps(value).encode()] * 64)] * 16, definition
            )
            alteration = evolved(definition, list(sampled.changes(definition))).alteration
            assert alteration is not None
            after = decoder_for(alteration.definition).decode([None], [json.dumps(value).encode()])
            assert {name: one[0] for name, one in after.columns.items()} == value
        case "left out":
            assert {name: one[0] for name, one in decoded.columns.items()} == VALUE
        case "value bad" | "null bad":
            stage = Stage.KEY if cell.said == "null bad" else Stage.CONTRACT
            assert [one.stage for one in decoded.bad] == [stage]
        case "fits" | "null":
            assert {name: one[0] for name, one in decoded.columns.items()} == {"size": None, **value}
        case other:
            raise AssertionError(other)
