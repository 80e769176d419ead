"""Values of a sample: their envelope, and the fields of the rows in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from thermocline.rules.avro_schema import AvroType, SchemaInvalid, parse_schema
from thermocline.rules.connect_schema import parse_connect_schema
from thermocline.rules.decode.connect import unwrapped
from thermocline.rules.decode.framing import SchemaId, message_indexes
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.recognise.fields import Field, merged, seen_fields
from thermocline.rules.recognise.json_schema_fields import parse_json_schema
from thermocline.rules.recognise.parts import Form, Number, Part, document_of
from thermocline.rules.recognise.records import counted_of
from thermocline.rules.recognise.schema_fields import declared_fields, docs_of, record_at, type_of

__all__ = ["Documents", "Unrecognised", "documents_of_keys", "documents_of_values"]

DELETED: Final = "__deleted"
"""The field in which Debezium's ``ExtractNewRecordState`` says that a row is gone."""
SCHEMAS_MAX: Final = 50  # of one sample, beside the records
_MAXWELL: Final = ("insert", "update", "delete", "bootstrap-insert", "bootstrap-start", "bootstrap-complete")
_DEBEZIUM_OPS: Final = ("c", "u", "r", "d", "t", "m")
_WORDS: Final = {
    "json": "JSON objects",
    "json_schema": "JSON with a schema's id",
    "avro": "Avro with a schema's id",
    "protobuf": "Protobuf with a schema's id",
    "string": "text",
    "int": "integers of 4 bytes",
    "long": "integers of 8 bytes",
    "uuid": "UUIDs",
    "bytes": "bytes of no format that is known here",
}
_SINGLE: Final = {"string": "string", "int": "int", "long": "long", "uuid": "uuid", "bytes": "binary"}


class Unrecognised(ValueError):
    """Why no definition can be proposed, as a sentence; ``remedy`` is what would help.

    ``needs_registry``: knowing the schemas that records name would.
    """

    def __init__(self, why: str, remedy: str, needs_registry: bool = False) -> None:
        super().__init__(why)
        self.remedy = remedy
        self.needs_registry = needs_registry


@dataclass(frozen=True, slots=True)
class Documents:
    """Keys, or values: the fields of the objects that they are.

    ``single`` is the field, without a name, that they are as a whole, instead. ``rows`` are the JSON objects
    that fields were seen in, aligned with the records; None for other formats. ``said`` is what they are, in
    words. ``is_declared``: schemas beside the documents say the types.
    """

    format: str
    fields: Sequence[Field] = ()
    single: Field | None = None
    envelope: str = "plain"
    rows: Sequence[Mapping[str, Any] | None] | None = None
    notes: tuple[str, ...] = ()
    said: str = ""
    deletes: bool = False
    is_declared: bool = False
    part: Part | None = field(default=None, repr=False)


def documents_of_values(part: Part, schemas: Mapping[SchemaId, WriterSchema]) -> Documents:
    """What the values are. Raises `Unrecognised`."""
    return _documents(part, schemas, "values")


def documents_of_keys(part: Part, schemas: Mapping[SchemaId, WriterSchema]) -> Documents:
    """What the keys are. Raises `Unrecognised`."""
    return _documents(part, schemas, "keys")


def _documents(part: Part, schemas: Mapping[SchemaId, WriterSchema], of: str) -> Documents:
    if part.is_named:
        why = f"the {of} seem to name schemas of a registry, and none is known"
        raise Unrecognised(why, "give the URL of the schema registry", needs_registry=True)
    if part.format in _SINGLE:
        return _plain(part, of)
    is_declared = part.ids and not part.bodies  # by schemas alone
    if part.format in ("avro", "protobuf") or is_declared:
        return _typed(part, schemas, of)
    return _json(part, of)


def _plain(part: Part, of: str) -> Documents:
    evidence = _seen(part, of)
    notes: tuple[str, ...] = ()
    if part.format == "bytes":
        notes = ("if they are Avro or Protobuf without a schema's id: set format, and value_schema_file",)
        if of == "keys":
            notes = ('keys of 16 bytes may be UUIDs: a column of type "uuid" reads them as such',)
    elif part.format == "string" and of == "values" and (fields := _separated(part.bodies)):
        notes = (
            f"each has {fields} fields with separators between, as in CSV: the column has the whole line",
        )
    if part.forms.get(Form.NAMED):
        notes += ("they may also be documents that name schemas, which only a registry tells",)
    single = Field("", _SINGLE[part.format], evidence, notes)
    return Documents(part.format, single=single, said=evidence, part=part)


def _separated(texts: Sequence[bytes | None]) -> int:
    """How many fields each line has, where all have the same number of separators; else 0."""
    for separator in (b",", b";", b"\t", b"|"):
        counts = {text.count(separator) for text in texts if text}
        if len(counts) == 1 and (count := counts.pop()):
            return count + 1
    return 0


def _json(part: Part, of: str) -> Documents:
    payloads, schema_of = unwrapped(part.bodies)
    found = [document_of(text) if text else None for text in payloads]
    objects = [one for one in found if one is not None]
    if not objects:
        raise Unrecognised(
            f"no {of[:-1]} is a JSON object with fields", "write some records, and repeat this"
        )
    envelope = _envelope_seen(objects) if of == "values" else "plain"
    inner = {"debezium": "after", "maxwell": "data"}.get(envelope)
    rows = [_inner(one, inner) for one in found]
    there = [row for row in rows if row is not None]
    with_schema = [text for index in range(len(payloads)) if (text := schema_of(index))]
    declared = _declared_beside(with_schema, inner) if with_schema else []
    said = _seen(part, of)
    if envelope != "plain":
        said += f"; {_ENVELOPED[envelope]} in {counted_of(_events(objects, envelope), len(objects))}"
    if with_schema:
        said += f"; with a schema beside {counted_of(len(with_schema), len(objects))}"
    has_deleted = envelope == "plain" and _says_deleted(there)
    fields = declared or seen_fields(there)
    return Documents(
        part.format,
        fields=[one for one in fields if not (has_deleted and one.name == DELETED)],
        envelope=envelope,
        rows=rows,
        said=said,
        deletes=has_deleted,
        is_declared=bool(declared),
        part=part,
    )


_ENVELOPED: Final = {"debezium": "Debezium's change events", "maxwell": "Maxwell's change events"}


def _inner(document: dict[str, Any] | None, name: str | None) -> dict[str, Any] | None:
    if document is None or name is None:
        return document
    inner = document.get(name)
    return inner if isinstance(inner, dict) else None


def _envelope_seen(objects: Sequence[Mapping[str, Any]]) -> str:
    """The envelope of at least half of the values. Raises `Unrecognised` for one that is not read here."""
    kinds = Counter(_kind_of(one) for one in objects)
    kind, count = kinds.most_common(1)[0]
    if kind == "canal" and count * 2 >= len(objects):
        why = "the values are Canal's events, of which one has several rows, and these are not read"
        raise Unrecognised(
            why, "write the changes with Debezium or Maxwell; see docs/formats/change-events.md"
        )
    return kind if kind in _ENVELOPED and count * 2 >= len(objects) else "plain"


def _events(objects: Sequence[Mapping[str, Any]], envelope: str) -> int:
    return sum(_kind_of(one) == envelope for one in objects)


def _kind_of(one: Mapping[str, Any]) -> str:
    if one.get("op") in _DEBEZIUM_OPS and ("after" in one or "before" in one):
        return "debezium"
    if one.get("type") in _MAXWELL and isinstance(one.get("data"), dict):
        return "maxwell"
    if isinstance(one.get("data"), list) and "isDdl" in one and "pkNames" in one:
        return "canal"
    return "plain"


def _says_deleted(rows: Sequence[Mapping[str, Any]]) -> bool:
    said = [row[DELETED] for row in rows if DELETED in row]
    return bool(said) and all(one in ("true", "false") for one in said)


def _declared_beside(texts: Sequence[bytes], inner: str | None) -> list[Field]:
    """The fields that schemas beside the documents declare; none where these declare no rows."""
    found: list[tuple[str, Sequence[Field]]] = []
    for text in list(dict.fromkeys(reversed(texts)))[:SCHEMAS_MAX]:
        try:
            declared = parse_connect_schema(text)
        except SchemaInvalid:
            continue
        record = None if declared is None else record_at(declared, *([inner] if inner else []))
        if record is not None:
            found.append(("the schema beside it", declared_fields(record, {})))
    return merged(found)


def _typed(part: Part, schemas: Mapping[SchemaId, WriterSchema], of: str) -> Documents:
    """Documents that are read by the schemas of their writers."""
    parsed = list(_READERS[part.format](part, schemas))
    if not parsed:
        remedy = "correct the schemas in the registry, or write other records"
        raise Unrecognised(f"the schemas of the {of} can't be used", remedy)
    is_debezium = of == "values" and all(one.is_event for one in parsed)
    said = f"{_seen(part, of)}, of {', '.join(one.name for one in parsed)}"
    if parsed[0].single is not None:
        return Documents(part.format, single=parsed[0].single, said=said, part=part)
    fields = merged((one.name, one.rows() if is_debezium else one.fields()) for one in parsed)
    if not fields:
        why = f"the schemas of the {of} declare no fields"
        raise Unrecognised(why, "write records that have some, and repeat this")
    has_deleted = not is_debezium and any(one.name == DELETED for one in fields)
    return Documents(
        part.format,
        fields=[one for one in fields if not (has_deleted and one.name == DELETED)],
        envelope="debezium" if is_debezium else "plain",
        said=said + ("; Debezium's change events" if is_debezium else ""),
        deletes=has_deleted,
        part=part,
    )


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A schema: the fields of its documents, and of the row in each, if they are change events."""

    name: str
    fields: Callable[[], list[Field]]
    rows: Callable[[], list[Field]] = list
    is_event: bool = False
    single: Field | None = None


def _avro(part: Part, schemas: Mapping[SchemaId, WriterSchema]) -> Iterator[_Parsed]:
    for id_ in part.ids:
        try:
            parsed = parse_schema(schemas[id_].texts)
            docs = docs_of(schemas[id_].texts[-1])
        except (ValueError, RecursionError):
            continue
        yield _of_avro(part.name_of(id_), parsed, docs)


def _of_avro(name: str, parsed: AvroType, docs: Mapping[str, Mapping[str, str]]) -> _Parsed:
    record, after = record_at(parsed), record_at(parsed, "after")
    if record is None:
        single = Field("", type_of(parsed), f"{parsed} in {name}")
        return _Parsed(name, list, single=single)
    return _Parsed(
        name,
        lambda: declared_fields(record, docs),
        lambda: declared_fields(after, docs) if after is not None else [],
        after is not None and "op" in dict(record.fields),
    )


def _protobuf(part: Part, schemas: Mapping[SchemaId, WriterSchema]) -> Iterator[_Parsed]:
    from thermocline.rules.protobuf_schema import (  # noqa: PLC0415  (few need it; takes long to load)
        message_at,
        message_called,
    )
    from thermocline.rules.recognise.message_fields import (  # noqa: PLC0415  (the same)
        message_at_field,
        message_fields,
    )

    for id_ in part.ids:
        known = schemas[id_]
        try:
            if known.message is not None:
                message = message_called(known.descriptors, known.message).DESCRIPTOR
            else:
                indexes = message_indexes((part.heads or {})[id_])
                message = message_at(known.descriptors, indexes).DESCRIPTOR
        except ValueError:
            continue
        after = message_at_field(message, "after")
        yield _Parsed(
            part.name_of(id_),
            lambda message=message: message_fields(message, part.docs),  # type: ignore[misc]
            lambda after=after: message_fields(after, part.docs) if after is not None else [],  # type: ignore[misc]
            after is not None and "op" in message.fields_by_name,
        )


def _json_schema(part: Part, schemas: Mapping[SchemaId, WriterSchema]) -> Iterator[_Parsed]:
    for id_ in part.ids:
        try:
            parsed = parse_json_schema(schemas[id_].texts[-1])
            after = parsed.at("after")
            fields = parsed.fields()
            rows = after.fields() if after is not None else []
        except (ValueError, IndexError):
            continue
        is_event = after is not None and "op" in parsed.names
        yield _Parsed(part.name_of(id_), partial(list, fields), partial(list, rows), is_event)


_READERS: Final[Mapping[str, Callable[[Part, Mapping[SchemaId, WriterSchema]], Iterator[_Parsed]]]] = {
    "avro": _avro,
    "protobuf": _protobuf,
    "json": _json_schema,
    "json_schema": _json_schema,
}


def _seen(part: Part, of: str) -> str:
    """What documents are, in words, and how many of those that were seen."""
    words = _WORDS[part.format]
    if not part.is_framed:
        words = words.removesuffix(" with a schema's id")
    return f"{words}: {counted_of(part.matching, part.present)} {of}" if part.present else words


def spelled(value: object) -> str | None:
    """A value as a plain key would have it; None for what is no text and no number."""
    if isinstance(value, bool) or not isinstance(value, Number | str | int):
        return None
    return str(value)
