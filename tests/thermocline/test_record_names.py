"""Records that are routed by the name of their type, as the schemas of their writers declare it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.thermocline.registered import Registered, framed
from tests.thermocline.test_avro import written
from thermocline.errors import ConfigInvalid, RegistryUnreachable
from thermocline.rules.decode import decoder_for, text_reader_for
from thermocline.rules.decode.directory import DirectoryDecoder
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import canonical
from thermocline.rules.routing import Condition, Source
from thermocline.schemas.protobuf_compiler import compiled

BY = {"schema": "name"}
FIELDS = [{"name": "v", "type": "string"}]
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}
LINE = {"type": "record", "name": "shop.Line", "fields": FIELDS}
GUID = UUID("0f0e0d0c-0b0a-0908-0706-050403020100")
PROTO = 'syntax = "proto3"; package shop; message Order { message Line { string v = 1; } string v = 1; }'


def table(format_: str = "avro", **options: Any) -> LiveTable:
    given = {"where": {**BY, "is": "shop.Order"}, "key_format": "int", "format": format_} | options
    return LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], columns={"id": "int", "v": "string"}, **given
    )


def names(
    format_: str, registry: Registered, *values: bytes | None, headers: Any = None
) -> tuple[list[str | None], set[int], list[int]]:
    """The texts, those that can't be told, and the bad records."""
    source = Source.parse(BY)
    reader = text_reader_for(table(format_), [source], registry)
    found = reader.read([b""] * len(values), values, headers or (lambda _: None))
    return list(found.of[source].values), set(found.of[source].untold), sorted(found.bad)


def test_of_avro_it_is_the_full_name_of_the_record() -> None:
    registry = Registered({1: ORDER, GUID: LINE, 3: "string", 4: [ORDER, LINE], 5: ["null", ORDER]})
    ids: list[SchemaId] = [1, GUID, 3, 4, 5, 1]
    found = names("avro", registry, *(framed(id_, b"") for id_ in ids))
    assert found == (["shop.Order", "shop.Line", None, None, None, "shop.Order"], set(), [])
    assert registry.asked.count(1) == 1


def test_of_protobuf_it_is_that_of_the_message_and_of_json_schema_the_title() -> None:
    descriptors = canonical(compiled({"m.proto": PROTO}, "m.proto"))
    registry = Registered({1: WriterSchema(kind="PROTOBUF", descriptors=descriptors)})
    values = [framed(1, b"\x00"), framed(1, b"\x04\x00\x00"), framed(1, b"\x02\x08")]
    assert names("protobuf", registry, *values) == (["shop.Order", "shop.Order.Line", None], {2}, [2])
    titled = Registered(
        {1: {"title": "Order", "type": "object"}, 2: {"type": "object"}, 3: {"title": 5}}, "JSON"
    )
    values = [framed(id_, b"{}") for id_ in (1, 2, 3)]
    assert names("json_schema", titled, *values) == (["Order", None, None], set(), [])


def test_what_names_no_schema_can_not_be_told_and_is_bad_but_for_tombstones() -> None:
    registry = Registered({1: ORDER, 2: WriterSchema(("{}",), kind="JSON")})
    values = [None, b"", b"text", framed(9, b""), framed(2, b""), b"\x00\xff\xff\xff\xff", framed(1, b"")]
    found = names("avro", registry, *values)
    assert found == ([None] * 6 + ["shop.Order"], {0, 1, 2, 3, 4, 5}, [2, 3, 4, 5])


def test_a_header_may_name_the_schema_also_of_an_empty_value() -> None:
    head = [("__value_schema_id", framed(1, b""))]
    registry = Registered({1: ORDER})
    assert names("avro", registry, b"", b"body", headers=lambda _: head) == (["shop.Order"] * 2, set(), [])


def test_records_of_several_types_are_each_of_one_table() -> None:
    registry = Registered({1: ORDER, 2: LINE})
    decoder = decoder_for(table(), registry)
    body = written(ORDER, {"v": "x"})
    values = [framed(1, body), framed(2, body), None, framed(1, b"\xff"), framed(7, body)]
    found = decoder.decode([number.to_bytes(4) for number in range(5)], values)
    assert (found.good, found.tombstones, list(found.filtered)) == ([0, 2], [False, True], [1])
    assert [(one.index, str(one.stage)) for one in found.bad] == [(3, "decode"), (4, "decode")]


def test_a_directory_finds_a_value_for_each_type() -> None:
    definition = table(where=(), values_at=BY)
    decoder = decoder_for(definition, Registered({1: ORDER, 2: LINE}))
    assert isinstance(decoder, DirectoryDecoder)
    decoder.admission = decoder.admission.__class__(tables_max=9)
    decoder.decode([b""] * 3, [framed(1, b""), framed(2, b""), framed(1, b"")])
    assert decoder.came == {"shop.Order", "shop.Line"}
    assert LiveTable.from_json(definition.to_json(), "t") == definition


def test_while_the_registry_does_not_answer_no_record_is_anybodys() -> None:
    class Away:
        def of(self, id_: SchemaId) -> WriterSchema:
            raise RegistryUnreachable(url="http://registry", detail=str(id_))

    with pytest.raises(RegistryUnreachable):
        decoder_for(table(), Away()).decode([b"\x00" * 4], [framed(1, b"")])


@pytest.mark.parametrize(
    "options", [{"format_": "json"}, {"format_": "string"}, {"value_schema": '{"type":"string"}'}]
)
def test_values_that_name_no_schema_have_no_such_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match="where looks at the schema name, but the values name no schema"):
        table(**options)


def test_it_is_written_in_one_way() -> None:
    read = Condition.parse({**BY, "is": "a"})
    assert Condition.parse(read.declared) == read
    assert str(read) == 'schema name in "a"'
    with pytest.raises(ValueError, match='schema is "subject", not "name"'):
        Source.parse({"schema": "subject"})
