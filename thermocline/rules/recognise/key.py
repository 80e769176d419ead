"""The key of a proposed table: columns of the records' keys, or fields of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from thermocline.rules.column_types import ColumnType
from thermocline.rules.columns import COLUMN_NAME
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition.options import ENVELOPED_FORMATS
from thermocline.rules.recognise.fields import Field
from thermocline.rules.recognise.known_schemas import KnownSchemas
from thermocline.rules.recognise.records import SampledRecord, counted_of, headers_of
from thermocline.rules.recognise.values import Documents, Unrecognised, spelled

__all__ = ["Key", "KeyColumn", "key_of_records", "key_of_values"]

_PK: Final = "pk."
"""What Maxwell's keys have before the names of the columns."""
_MATCHED: Final = ("int", "long", "string", "uuid")
"""Types of fields that a plain key may repeat."""
_NAMES: Final = ("id", "key", "record_key")
"""For a plain key that no field repeats: the first that no field of the value has."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key, and the field that it is read from."""

    name: str
    field: Field
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """How records are identified.

    ``repeated`` are fields of the value that say what the key says, ``differing`` those that have a name of
    the key's fields and say something else. ``said`` is what was found, in words; ``spellings`` counts keys
    that are written in more than one way.
    """

    format: str
    columns: tuple[KeyColumn, ...]
    said: str
    is_in_value: bool = False
    repeated: AbstractSet[str] = frozenset()
    differing: AbstractSet[str] = frozenset()
    spellings: int = 0
    candidates: tuple[str, ...] = ()


def key_of_values(values: Documents, names: Sequence[str]) -> Key:
    """The key in fields of the value; without any, every record adds a row. Raises `Unrecognised`."""
    if values.envelope != "plain":
        why = "change events are identified by the keys of their records, not by fields"
        raise Unrecognised(why, "leave --key out")
    fields = {one.name: one for one in values.fields}
    for name in names:
        if name not in fields or fields[name].type is None:
            known = ", ".join(fields) or "none"
            raise Unrecognised(f"the value has no field {name} to be a key; it has {known}", "correct --key")
    columns = tuple(KeyColumn(name, fields[name], (name,)) for name in names)
    if names:
        return Key("", columns, f"fields of the value: {', '.join(names)}", is_in_value=True)
    candidates = tuple(
        one.name for one in values.fields if one.is_always_there and one.type and _can_be_key(one.type)
    )
    said = "the records have no key, so every record adds a row"
    return Key("", (), said, is_in_value=True, candidates=candidates)


def key_of_records(
    records: Sequence[SampledRecord],
    keys: Documents,
    values: Documents,
    schemas: Mapping[SchemaId, WriterSchema],
    topic: str,
) -> Key:
    """The key in the records' keys. Raises `Unrecognised`."""
    known = ENVELOPED_FORMATS.get(values.envelope)
    if known is not None and (keys.single is not None or keys.format not in known):
        why = f"the values are change events of {values.envelope}, but the keys are no objects ({keys.said})"
        raise Unrecognised(why, "have the connector write the keys as it writes the values, and repeat this")
    if keys.single is not None:
        return _plain(records, keys, keys.single, values, schemas, topic)
    if values.envelope == "maxwell":
        fields = [one for one in keys.fields if one.name.startswith(_PK)]
        columns = [KeyColumn(one.name.removeprefix(_PK), one, (one.name,)) for one in fields]
        names = {column.name for column in columns}
        return _checked(Key(keys.format, tuple(columns), keys.said, repeated=names))
    fields = [one for one in keys.fields if one.type is not None]
    often = [one for one in fields if _is_in_most(one, keys)]
    columns = [KeyColumn(one.name, one, (one.name,)) for one in often]
    names = {one.name for one in often}
    differing = _differing(keys, values, names)
    said = f"{keys.said}, with {', '.join(one.name for one in often)}"
    found = Key(keys.format, tuple(columns), said, repeated=names - differing, differing=differing)
    return _checked(replace(found, spellings=_spellings(records, keys)))


def _checked(key: Key) -> Key:
    if not key.columns:
        raise Unrecognised(
            "the keys have no fields that identify a row", "name fields of the value: --key FIELD"
        )
    return key


def _can_be_key(type_: str) -> bool:
    return ColumnType.parse(type_).entry.key is not None


def _is_in_most(field: Field, keys: Documents) -> bool:
    """Whether at least half of the keys have a field; of those with schemas it is not counted."""
    rows = [row for row in keys.rows or () if row is not None]
    return sum(row.get(field.name) is not None for row in rows) * 2 >= len(rows)


def _differing(keys: Documents, values: Documents, names: AbstractSet[str]) -> set[str]:
    """The names that mean one thing in the key and another in the value."""
    if keys.rows is None or values.rows is None:
        return set()
    return {
        name
        for key, row in zip(keys.rows, values.rows, strict=True)
        if key is not None and row is not None
        for name in names
        if name in key and name in row and key[name] != row[name]
    }


def _spellings(records: Sequence[SampledRecord], keys: Documents) -> int:
    """How many keys are written in several ways, which Kafka may take to several partitions."""
    written: dict[str, set[bytes]] = {}
    for record, row in zip(records, keys.rows or (), strict=False):
        if row is not None and record.key is not None:
            written.setdefault(repr(sorted(row.items())), set()).add(record.key)
    return sum(len(texts) > 1 for texts in written.values())


def _plain(
    records: Sequence[SampledRecord],
    keys: Documents,
    single: Field,
    values: Documents,
    schemas: Mapping[SchemaId, WriterSchema],
    topic: str,
) -> Key:
    """A key that is one value: called as the field that repeats it, if one always does."""
    same, count = _same_field(records, keys, values, schemas, topic)
    if same is not None:
        evidence = f'{single.evidence}; as the value\'s "{same.name}" in {counted_of(count, count)}'
        type_ = same.type if keys.format == "string" else single.type
        field = replace(single, name=same.name, type=type_, evidence=evidence)
        return Key(keys.format, (KeyColumn(same.name, field),), keys.said, repeated={same.name})
    known = {one.name.casefold() for one in values.fields}
    name = next((one for one in _NAMES if one not in known), "record_key_")
    return Key(keys.format, (KeyColumn(name, single),), keys.said)


def _same_field(
    records: Sequence[SampledRecord],
    keys: Documents,
    values: Documents,
    schemas: Mapping[SchemaId, WriterSchema],
    topic: str,
) -> tuple[Field | None, int]:
    """The field of the value that says what the key says in all records that have both, and how many do."""
    names = _key_texts(records, keys)
    rows = values.rows if values.rows is not None else _decoded(records, values, schemas, topic)
    for field in values.fields:
        if field.type not in _MATCHED or not COLUMN_NAME.fullmatch(field.name):
            continue
        pairs = [
            (name, row[field.name])
            for name, row in zip(names, rows, strict=True)
            if name is not None and row is not None and field.name in row
        ]
        if len(pairs) > 1 and all(name == spelled(value) for name, value in pairs):
            return field, len(pairs)
    return None, 0


def _key_texts(records: Sequence[SampledRecord], keys: Documents) -> list[str | None]:
    if keys.format == "string":
        return [None if one.key is None else one.key.decode(errors="replace") for one in records]
    if keys.format in ("int", "long"):
        return [None if not one.key else str(int.from_bytes(one.key, signed=True)) for one in records]
    return [None] * len(records)


def _decoded(
    records: Sequence[SampledRecord],
    values: Documents,
    schemas: Mapping[SchemaId, WriterSchema],
    topic: str,
) -> list[Mapping[str, Any] | None]:
    """The fields of values that are read by schemas, as rows aligned with the records."""
    fields = [one for one in values.fields if one.type in _MATCHED and COLUMN_NAME.fullmatch(one.name)]
    found: list[Mapping[str, Any] | None] = [None] * len(records)
    if not fields or values.envelope != "plain":
        return found
    columns = {f"c{number}": {"type": str(one.type), "path": [one.name]} for number, one in enumerate(fields)}
    definition = LiveTable.build(
        name="sample",
        identifier="sample.sample",
        topics=[topic],
        key=[],
        key_from="value",
        columns=columns,
        format=values.format,
    )
    decoder = decoder_for(definition, KnownSchemas(schemas))
    texts = [one.value for one in records]
    decoded = decoder.decode([None] * len(texts), texts, lambda index: headers_of(records, index))
    for place, index in enumerate(decoded.good):
        found[index] = {
            one.name: str(decoded.columns[f"c{number}"][place]) for number, one in enumerate(fields)
        }
    return found
