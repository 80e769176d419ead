"""A definition, proposed for a topic by a sample of its records, with the evidence for each part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from thermocline.rules.column_types import TYPES, ColumnType
from thermocline.rules.columns import BUCKET_FIELD, COLUMN_NAME, COMMENT_CHARACTERS_MAX
from thermocline.rules.decode.framing import KEY_HEADER, VALUE_HEADER, SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import last_header
from thermocline.rules.recognise.declared import DeclaredSchema, declared_options, declared_part
from thermocline.rules.recognise.fields import Field
from thermocline.rules.recognise.key import Key, key_of_records, key_of_values
from thermocline.rules.recognise.parts import Part, recognised_part, schema_ids
from thermocline.rules.recognise.records import SampledRecord, Topic
from thermocline.rules.recognise.unknown import ENTITY, unknowns
from thermocline.rules.recognise.values import (
    DELETED,
    Documents,
    Unrecognised,
    documents_of_keys,
    documents_of_values,
)
from thermocline.text.shown import json_text

__all__ = [
    "LeftOut",
    "Proposal",
    "ProposedColumn",
    "proposed",
    "proposed_by_declared",
    "proposed_by_schemas",
    "seem_to_name_schemas",
    "wanted_schemas",
]

COLUMNS_MAX: Final = 200
"""Of a table that nobody has looked at: the rest of the fields are named, and can be added."""
_KEY_ID: Final = 1
_VALUE_ID: Final = 2
"""Ids of schemas that no record names, to tell them apart here."""
Schemas = Mapping[SchemaId, WriterSchema]


@dataclass(frozen=True, slots=True)
class ProposedColumn:
    """A column; ``path`` is where its field is, empty for the field of its name.

    ``comment`` is what a schema says of it, on one line.
    """

    name: str
    type: str
    evidence: str
    notes: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    comment: str = ""

    @property
    def declared(self) -> str | dict[str, str | list[str]]:
        """As definitions are written."""
        beside: dict[str, str | list[str]] = {"path": list(self.path)} if self.path else {}
        if self.comment:
            beside["comment"] = self.comment
        return {"type": self.type, **beside} if beside else self.type


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A field that is no column, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was recognised. ``options`` are those of a definition, without its name and place.

    ``findings`` are labels, such as ``keys``, and what was found there; ``unknown`` are sentences about what
    the records don't tell.
    """

    topic: str
    key: tuple[str, ...]
    columns: tuple[ProposedColumn, ...]
    left_out: tuple[LeftOut, ...]
    options: Mapping[str, Any]
    findings: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]

    def with_known_entity(self) -> Proposal:
        """The same where somebody has said the entity."""
        return replace(self, unknown=tuple(one for one in self.unknown if one != ENTITY))

    def definition(self, name: str, identifier: str, entity: Sequence[str] = ()) -> LiveTable:
        """The definition, checked as any that a person writes. Raises `ConfigInvalid`."""
        return LiveTable.build(
            name=name,
            identifier=identifier,
            topics=[self.topic],
            key=self.key,
            entity=tuple(entity),
            columns={column.name: column.declared for column in self.columns},
            **self.options,
        )


def wanted_schemas(records: Sequence[SampledRecord]) -> list[SchemaId]:
    """The schemas that the records may name: what to ask a registry for before anything is recognised."""
    keys, values = _texts(records)
    return list(dict.fromkeys([*schema_ids(*keys), *schema_ids(*values)]))


def seem_to_name_schemas(records: Sequence[SampledRecord]) -> bool:
    """Whether most keys or values look as if they named schemas, of which none is known here."""
    return any(recognised_part(texts, headers, {}).is_named for texts, headers in _texts(records))


def proposed(
    topic: Topic, records: Sequence[SampledRecord], schemas: Schemas, key: Sequence[str] = ()
) -> Proposal:
    """A definition for the records of a topic. ``key`` names fields of the value, where no key is to be read.

    Raises `Unrecognised`.
    """
    keys, values = _texts(records)
    parts = recognised_part(keys[0], keys[1], schemas), recognised_part(values[0], values[1], schemas)
    if not parts[1].present:
        why = "all records that were looked at are without a value, so nothing says what a row has"
        if not records:
            why = "the topic is empty, so nothing says what a record is"
        raise Unrecognised(why, "write some records, and repeat this")
    return _proposal(topic, records, parts, schemas, key)


def proposed_by_schemas(
    topic: Topic,
    key_id: SchemaId | None,
    value_id: SchemaId | None,
    schemas: Schemas,
    key: Sequence[str] = (),
) -> Proposal:
    """A definition for a topic without records, by the schemas that a registry has for it.

    Raises `Unrecognised`.
    """
    if value_id is None or (key_id is None and not key):
        lacks = "value" if value_id is None else "key"
        why = f"the topic is empty, and no registry has a schema {topic.name}-{lacks}"
        raise Unrecognised(why, "write some records, and repeat this")
    of_key = None if key_id is None else DeclaredSchema(f"schema {key_id}", schemas[key_id])
    return proposed_by_declared(topic, of_key, DeclaredSchema(f"schema {value_id}", schemas[value_id]), key)


def proposed_by_declared(
    topic: Topic,
    of_key: DeclaredSchema | str | None,
    of_value: DeclaredSchema,
    key: Sequence[str] = (),
) -> Proposal:
    """A definition by schemas alone. Without fields of the value to be the ``key``, ``of_key`` says it.

    That is a schema, or one of `PLAIN_KEYS`; with neither, every record adds a row. Raises `Unrecognised`.
    """
    of_key = None if key else of_key
    parts = declared_part(of_key, _KEY_ID), declared_part(of_value, _VALUE_ID)
    given = {_KEY_ID: of_key, _VALUE_ID: of_value}
    schemas: dict[SchemaId, WriterSchema] = {
        id_: one.schema for id_, one in given.items() if isinstance(one, DeclaredSchema)
    }
    found = _proposal(topic, (), parts, schemas, key)
    read_by = {**dict(declared_options("key", of_key)), **dict(declared_options("value", of_value))}
    return replace(found, options={**found.options, **read_by})


def _texts(records: Sequence[SampledRecord]) -> tuple[Any, Any]:
    keys = [one.key for one in records], [last_header(one.headers, KEY_HEADER) for one in records]
    values = [one.value for one in records], [last_header(one.headers, VALUE_HEADER) for one in records]
    return keys, values


def _proposal(
    topic: Topic,
    records: Sequence[SampledRecord],
    parts: tuple[Part, Part],
    schemas: Schemas,
    wanted_key: Sequence[str],
) -> Proposal:
    values = documents_of_values(parts[1], schemas)
    key = _key(topic, records, parts[0], values, schemas, wanted_key)
    columns, left_out = _columns(key, values)
    found = Proposal(
        topic.name,
        tuple(column.name for column in columns[: len(key.columns)]),
        tuple(columns),
        tuple(left_out),
        _options(key, values),
        tuple(_findings(key, values)),
        tuple(unknowns(topic, records, key, values)),
    )
    _check_keys(found)
    return found


def _key(
    topic: Topic,
    records: Sequence[SampledRecord],
    part: Part,
    values: Documents,
    schemas: Schemas,
    wanted: Sequence[str],
) -> Key:
    if wanted:
        return key_of_values(values, wanted)
    if not part.format and not part.is_named:
        if values.envelope != "plain":
            why = "change events are rows only by their keys, and the records have none"
            raise Unrecognised(why, "have the connector write keys, and repeat this")
        return key_of_values(values, ())
    return key_of_records(records, documents_of_keys(part, schemas), values, schemas, topic.name)


def _check_keys(found: Proposal) -> None:
    for column in found.columns:
        entry = ColumnType.parse(column.type).entry
        if column.name in found.key and entry.key is None:
            known = ", ".join(sorted(kind for kind, one in TYPES.items() if one.key))
            found_type = f"the key's {column.name} is {column.type} ({column.evidence})"
            why = f"{found_type}, but a key can only have {known}"
            raise Unrecognised(why, "identify rows by other fields: --key FIELD,FIELD")


def _options(key: Key, values: Documents) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if values.format != "json":
        options["format"] = values.format
    if key.is_in_value:
        options["key_from"] = "value"
    elif key.format != values.format:
        options["key_format"] = key.format
    if values.envelope != "plain":
        options["envelope"] = values.envelope
    if values.deletes and not key.is_in_value:
        options["delete_when"] = {"path": [DELETED], "values": ["true"]}
    return options


def _findings(key: Key, values: Documents) -> Iterator[tuple[str, str]]:
    yield "values", values.said
    yield "key", key.said
    if values.deletes and not key.is_in_value:
        yield "deletes", f'"{DELETED}" says that a row is gone, as Debezium\'s flattened events have it'


def _columns(key: Key, values: Documents) -> tuple[list[ProposedColumn], list[LeftOut]]:
    left_out: list[LeftOut] = []
    taken: set[str] = set()
    columns = [_column(one.field.as_key(), _key_name(one.name, taken), one.path) for one in key.columns]
    in_key = {one.field.name for one in key.columns} if key.is_in_value else key.repeated
    fields = [values.single] if values.single is not None else values.fields
    for field in fields:
        if field.name and field.name in in_key:
            continue
        name = _free_name(_value_name(field, key), taken)
        if field.type is None:
            left_out.append(LeftOut(field.name, f"{field.evidence}, so its type is not known"))
        elif name is None:
            left_out.append(LeftOut(field.name, "no column can be called so, nor read by a path"))
        elif len(columns) >= COLUMNS_MAX:
            left_out.append(LeftOut(field.name, f"there are more than {COLUMNS_MAX} fields"))
        else:
            columns.append(_column(field, name, (field.name,) if field.name else (name,)))
    return columns, left_out


def _key_name(name: str, taken: set[str]) -> str:
    free = _free_name(name, taken)
    if free is None:
        raise Unrecognised(
            f"no column can be called {json_text(name)}, nor read by a path", "give the field another name"
        )
    return free


def _value_name(field: Field, key: Key) -> str:
    """The name for a column of the value: another one, if the key has a field of that name that differs."""
    if not field.name:
        return "value"
    return f"value_{field.name}" if field.name in key.differing else field.name


def _column(field: Field, name: str, path: tuple[str, ...]) -> ProposedColumn:
    assert field.type is not None
    comment = " ".join(field.doc.split())[:COMMENT_CHARACTERS_MAX]
    path = path if path != (name,) else ()
    return ProposedColumn(name, field.type, field.evidence, field.notes, path, comment)


def _free_name(name: str, taken: set[str]) -> str | None:
    """A column's name that is like a field's; None where no path could lead to it."""
    if not COLUMN_NAME.fullmatch(name):
        return None
    plain = name.lstrip("_$") or "field"
    plain = f"{plain}_" if plain == BUCKET_FIELD else plain
    free, number = plain, 2
    while free.casefold() in taken:
        free, number = f"{plain}_{number}", number + 1
    taken.add(free.casefold())
    return free
