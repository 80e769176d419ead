"""The definition of a live table: its topics, columns, key, entity and bucket, and the schemas that follow.

The definition is written into the table as JSON and read back from there by every room, so that all of
them mean the same thing by a record, a key and a bucket. ``LiveTable.build`` checks one that a person
wrote; ``LiveTable.from_json`` reads the one that a table carries.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final, Literal

import pyarrow as pa
from pyiceberg import types
from pyiceberg.schema import Schema

from thermocline.errors import ConfigInvalid, first_line
from thermocline.rules.avro_schema import SchemaInvalid, schema_text
from thermocline.rules.column_types import TYPES, ColumnType, Kind, closest
from thermocline.rules.nested_types import names_within

__all__ = [
    "ABSENT",
    "BINARY_ENCODINGS",
    "BUCKET_FIELD",
    "JSON_FORMATS",
    "KEY",
    "ONE_COLUMN",
    "PARTITION_TIME",
    "PROVENANCE",
    "SEQUENCE",
    "TOMBSTONE",
    "TOMBSTONE_RETENTION_HOURS",
    "UNAVAILABLE",
    "Column",
    "DeleteRule",
    "LiveTable",
    "OnError",
    "OnErrorMode",
    "placeholder_bytes",
    "problems_of_new_names",
    "spelled_schema",
    "with_next_ids",
]

PROVENANCE: Final = ("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp")
TOMBSTONE: Final = "_tombstone"
KEY: Final = "_key"
ABSENT: Final = "_absent"
SEQUENCE: Final = "_sequence"
PARTITION_TIME: Final = "_partition_time"
BUCKET_FIELD: Final = "bucket"

SCHEMA_FORMATS: Final = ("avro", "json_schema", "protobuf")
"""What is read by the schemas of writers."""
FORMATS: Final = ("json", "string", "int", "long", "uuid", "bytes", *SCHEMA_FORMATS)
JSON_FORMATS: Final = ("json", "json_schema")
"""In which a key or a value is a JSON object."""
FILE_FORMATS: Final = ("avro", "protobuf")
"""Of which a file may have the one schema of all records."""
PARTIAL_FORMATS: Final = ("json", "json_schema", "avro", "protobuf")
"""In which a record can leave a column out."""
EMPTY_FORMATS: Final = ("protobuf",)
"""In which no bytes at all are a value: one whose fields have their defaults."""
# What a record's key or value is as a whole, and which column it can be then.
ONE_COLUMN: Final[dict[str, tuple[Kind, ...]]] = {
    "string": (
        Kind.STRING,
        Kind.INT,
        Kind.LONG,
        Kind.DATE,
        Kind.TIMESTAMPTZ,
        Kind.TIMESTAMP,
        Kind.UUID,
        Kind.DECIMAL,
    ),
    "int": (Kind.INT, Kind.LONG),
    "long": (Kind.LONG,),
    "uuid": (Kind.UUID,),
    "bytes": (Kind.BINARY, Kind.UUID),
}
ENVELOPES: Final = ("plain", "debezium", "maxwell")
ENVELOPED_FORMATS: Final = {"debezium": ("json", "json_schema", "avro", "protobuf"), "maxwell": ("json",)}
KEY_SOURCES: Final = ("key", "value")
SEQUENCE_KINDS: Final = (Kind.INT, Kind.LONG, Kind.DATE, Kind.TIMESTAMPTZ, Kind.TIMESTAMP, Kind.STRING)
"""What records can be ordered by: types whose values have one order, the same in every program."""
TOMBSTONE_RETENTION_HOURS: Final = 168
"""A week, as Kafka keeps records by default: what comes later than that is rarely waited for."""
TOMBSTONE_RETENTION_HOURS_MAX: Final = 87_600  # ten years
BINARY_ENCODINGS: Final = ("base64", "base64-url-safe", "hex")
"""In which JSON has bytes; as Debezium's ``binary.handling.mode`` calls them."""
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""By default, what Debezium writes in place of a value that a change left alone, and that was not logged."""
RECORD_BYTES_MAX: Final = 33_554_432
"""32 times what a batch of Kafka's has by default; decoded, a record takes several times as much memory."""
FORMAT_VERSIONS: Final = (2, 3)
BUCKETS_MAX: Final = 4096  # beyond it, a commit of every bucket writes more files than a manifest should list
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
COLUMN_NAME: Final = re.compile(r"""[^"'`\\\x00-\x1f\x7f]+""")  # what SQL and JSON spell without escapes
# Trino adds hidden columns with such names to each Iceberg table ("$path", "$partition"), and a later release
# may add more. Iceberg's own metadata columns begin with "_".
TRINO_PREFIX: Final = "$"


OnErrorMode = Literal["fail", "quarantine", "skip"]
ON_ERROR_MODES: Final[dict[str, OnErrorMode]] = {"fail": "fail", "quarantine": "quarantine", "skip": "skip"}
OnErrorText = str | Mapping[str, str]
DeleteText = Mapping[str, str | Sequence[str]]
ColumnText = str | Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``field_id`` is what Iceberg knows it by, whatever it is called.

    ``nested_ids`` are those of the fields within its type, in the order of `ColumnType.with_ids`.
    ``path`` leads to its value in a record: the names of the objects around it, then its own. Or it is the
    value of a ``header``, or at a path in the change ``event`` around the row.
    """

    name: str
    type: ColumnType
    field_id: int
    path: tuple[str, ...] = ()
    header: str = ""
    nested_ids: tuple[int, ...] = ()
    event: tuple[str, ...] = ()

    @property
    def numbered_type(self) -> ColumnType:
        """Its type with the ids of the fields within it."""
        return self.type.with_ids(iter(self.nested_ids))

    @property
    def read_from(self) -> tuple[str, ...]:
        """Where its value stands in a record or an event: its path, or the field of its name."""
        return self.event or self.path or (self.name,)

    @property
    def is_in_row(self) -> bool:
        """Whether it is read from the row that a record has, not from a header or the event around it."""
        return not self.header and not self.event

    def __str__(self) -> str:
        """Its type, and where it is read from, unless from the field of its name."""
        return f"{self.type}{self.origin and ' from '}{self.origin}"

    @property
    def origin(self) -> str:
        """Where it is read from, in words; empty for the field of its name."""
        if self.header:
            return f"header {_spelled(self.header)}"
        if self.event:
            return f"the event's {_spelled(self.event)}"
        return _spelled(self.path) if self.path else ""


@dataclass(frozen=True, slots=True)
class OnError:
    """What becomes of bad records, by the stage at which they fail."""

    key: OnErrorMode = "quarantine"
    decode: OnErrorMode = "quarantine"
    contract: OnErrorMode = "quarantine"

    @classmethod
    def parse(cls, text: OnErrorText) -> OnError:
        """Reads one word for all stages, or ``{"key": "fail", "contract": "skip"}``; the rest: quarantine.

        Raises:
            ValueError: with one plain sentence, when a stage or a word is none of ours.
        """
        modes = dict.fromkeys(ON_ERROR_STAGES, text) if isinstance(text, str) else text
        for stage, mode in modes.items():
            if stage not in ON_ERROR_STAGES:
                raise ValueError(f'on_error has the stage "{stage}"{closest(stage, ON_ERROR_STAGES)}')
            if mode not in ON_ERROR_MODES:
                place = "on_error" if isinstance(text, str) else f"on_error.{stage}"
                raise ValueError(f'{place} is "{mode}", not {" or ".join(ON_ERROR_MODES)}')
        return cls(**{stage: ON_ERROR_MODES[mode] for stage, mode in modes.items()})

    @property
    def declared(self) -> str | dict[str, str]:
        """What ``parse`` reads back to an equal value: one word where all stages have it."""
        modes = {stage: str(self.of(stage)) for stage in ON_ERROR_STAGES}
        return self.key if len(set(modes.values())) == 1 else modes

    def of(self, stage: str) -> OnErrorMode:
        """What becomes of records that are bad at that stage, one of ``decode.Stage``."""
        mode: OnErrorMode = getattr(self, stage)
        return mode

    def __str__(self) -> str:
        declared = self.declared
        if isinstance(declared, str):
            return declared
        return ", ".join(f"{mode} for {stage}" for stage, mode in declared.items())


ON_ERROR_STAGES: Final = tuple(OnError.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Which records delete a row, beside those without a value: by a field of the value, or a header."""

    values: tuple[str, ...]
    path: tuple[str, ...] = ()
    header: str = ""

    @classmethod
    def parse(cls, text: DeleteText) -> DeleteRule:
        """Reads ``{ path = "op", values = ["D"] }`` or ``{ header = "op", values = ["D"] }``.

        Raises:
            ValueError: with one plain sentence.
        """
        given, header = text.get("values", ()), text.get("header", "")
        values = (given,) if isinstance(given, str) else tuple(given)
        path = _parse_path(text["path"]) if "path" in text else ()
        if text.keys() - {"values", "path", "header"} or not values or bool(path) == bool(header):
            spelled = json.dumps(dict(text), ensure_ascii=False)
            raise ValueError(
                f'{spelled} is not of the form {{ path = "op", values = ["D"] }}, or with a header'
            )
        return cls(values, path, str(header))

    @property
    def declared(self) -> dict[str, str | list[str]]:
        """What ``parse`` reads back to an equal rule."""
        origin: dict[str, str | list[str]] = (
            {"path": list(self.path)} if self.path else {"header": self.header}
        )
        return origin | {"values": list(self.values)}

    def __str__(self) -> str:
        return _spelled(self.declared)


@dataclass(frozen=True)
class LiveTable:
    """One live table's definition.

    ``columns`` stand in declared order; ``entity`` is a prefix of ``key``; ``version`` counts alterations.
    Both are empty for a table without a key, to which every record adds a row: where the record stands in the
    log identifies it. ``provenance_id`` is the first field id of the provenance columns. ``key_schema`` and
    ``value_schema`` are the schemas of all records, of Avro its text, of Protobuf its descriptors in base64,
    with the message that ``key_message`` and ``value_message`` name; where there is none, each record names
    its own; ``schema_framed``: records name one that is not looked at. ``buckets`` is how many units of work
    there are. ``file_buckets`` is into how many buckets new files are partitioned, in a table whose number
    was changed: a multiple of ``buckets`` while it is being raised, then the same. None: it was never
    changed. ``partial_updates``: a record may leave columns of its row as they are. ``sequence_by`` are the
    value columns that order a key's records; without them, it is their offsets. Then deletes are remembered
    for ``tombstone_retention_hours``. ``unavailable_value_placeholder`` as Debezium's connector has it;
    ``binary_encoding`` is that of bytes in JSON.
    ``require_fields``: a value that isn't empty has to have one of the
    columns' fields. A record of more than ``record_bytes_max`` bytes, key and value, is bad.
    """

    name: str
    identifier: str
    topics: tuple[str, ...]
    format: str
    key: tuple[str, ...]
    key_from: str
    key_format: str
    envelope: str
    delete_when: DeleteRule | None
    entity: tuple[str, ...]
    columns: tuple[Column, ...]
    buckets: int
    format_version: int
    on_error: OnError
    transactional: bool
    suppress_unchanged: bool
    provenance_id: int
    version: int = 1
    key_schema: str | None = None
    value_schema: str | None = None
    key_message: str | None = None
    value_message: str | None = None
    schema_framed: bool = False
    file_buckets: int | None = None
    partial_updates: bool = False
    sequence_by: tuple[str, ...] = ()
    tombstone_retention_hours: int = TOMBSTONE_RETENTION_HOURS
    unavailable_value_placeholder: str = UNAVAILABLE
    binary_encoding: str = BINARY_ENCODINGS[0]
    require_fields: bool = True
    record_bytes_max: int = RECORD_BYTES_MAX

    @classmethod
    def build(  # noqa: PLR0913  (a table has as many settings)
        cls,
        *,
        name: str,
        identifier: str,
        topics: Sequence[str],
        key: Sequence[str],
        columns: Mapping[str, ColumnText],
        entity: Sequence[str] = (),
        format: str = "json",  # noqa: A002  (the setting's name)
        key_from: str = "key",
        key_format: str | None = None,
        envelope: str = "plain",
        delete_when: DeleteText | None = None,
        buckets: int = 16,
        format_version: int = 3,
        on_error: OnErrorText = "quarantine",
        transactional: bool = False,
        suppress_unchanged: bool = False,
        key_schema: str | None = None,
        value_schema: str | None = None,
        key_message: str | None = None,
        value_message: str | None = None,
        schema_framed: bool = False,
        file_buckets: int | None = None,
        partial_updates: bool = False,
        sequence_by: Sequence[str] = (),
        tombstone_retention_hours: int = TOMBSTONE_RETENTION_HOURS,
        unavailable_value_placeholder: str = UNAVAILABLE,
        binary_encoding: str = BINARY_ENCODINGS[0],
        require_fields: bool = True,
        record_bytes_max: int = RECORD_BYTES_MAX,
        field_ids: Mapping[str, int] | None = None,
        nested_ids: Mapping[str, Sequence[int]] | None = None,
        provenance_id: int | None = None,
        version: int = 1,
    ) -> LiveTable:
        """A definition as a person writes it, checked; no ``entity`` means the whole key.

        Without field ids, columns are numbered from 1 in declared order, then provenance, then what is within
        columns: as in a new table.

        Raises:
            ConfigInvalid: with every problem found, not only the first.
        """
        problems: list[str] = []
        is_new = not field_ids
        field_ids = field_ids or {column: place for place, column in enumerate(columns, start=1)}
        parsed = tuple(_parse_columns(columns, field_ids, problems))
        parsed = _numbered_within(parsed) if is_new else _with_nested_ids(parsed, nested_ids or {})
        live_table = cls(
            name=name,
            identifier=identifier,
            topics=tuple(topics),
            format=format,
            key=tuple(key),
            key_from=key_from,
            key_format=format if key_format is None or key_from != "key" else key_format,
            envelope=envelope,
            delete_when=_parse_delete_when(delete_when, problems),
            entity=tuple(entity) or tuple(key),
            columns=parsed,
            buckets=buckets,
            format_version=format_version,
            on_error=_parse_on_error(on_error, problems),
            transactional=transactional,
            suppress_unchanged=suppress_unchanged,
            # safety: stored-provenance-id
            provenance_id=len(columns) + 1 if provenance_id is None else provenance_id,
            version=version,
            key_schema=_parse_schema("key", key_format or format, key_schema, key_message, problems),
            value_schema=_parse_schema("value", format, value_schema, value_message, problems),
            key_message=key_message,
            value_message=value_message,
            schema_framed=schema_framed,
            file_buckets=file_buckets,
            partial_updates=partial_updates,
            sequence_by=tuple(sequence_by),
            tombstone_retention_hours=tombstone_retention_hours,
            unavailable_value_placeholder=unavailable_value_placeholder,
            binary_encoding=binary_encoding,
            require_fields=require_fields,
            record_bytes_max=record_bytes_max,
        )
        problems += _problems_of_nested_names(parsed)
        problems += _problems_of_key(live_table, declared=list(columns))
        problems += _problems_of_choices(live_table)
        problems += _problems_of_bounds(live_table)
        problems += _problems_of_formats(live_table, key_format)
        problems += _problems_of_schemas(live_table)
        problems += _problems_of_partial_updates(live_table)
        problems += _problems_of_events(live_table)
        problems += _problems_of_placeholder(live_table)
        problems += _problems_of_encoding(live_table)
        problems += _problems_of_sequence(live_table)
        if problems:
            raise ConfigInvalid(of=f"of table {name}", problems=tuple(problems))
        return live_table

    @classmethod
    def from_json(cls, text: str, name: str) -> LiveTable:
        """The definition that a table carries, under the name that the configuration gives it.

        Raises:
            ConfigInvalid: when the text is not one that ``to_json`` wrote.
        """
        try:
            fields = json.loads(text)
            columns = {column.pop("name"): column for column in fields.pop("columns")}
            ids = {column: spec.pop("id") for column, spec in columns.items() if "id" in spec}
            within = {column: spec.pop("ids") for column, spec in columns.items() if "ids" in spec}
            types = {column: spec["type"] if len(spec) == 1 else spec for column, spec in columns.items()}
            # safety: stored-field-ids, stored-nested-ids
            return cls.build(name=name, columns=types, field_ids=ids, nested_ids=within, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"the definition stored in the table can't be read: {first_line(error)}"
            raise ConfigInvalid(of=f"of table {name}", problems=(problem,)) from error

    def to_json(self) -> str:
        """The definition as the table carries it: without its name, equal for equal definitions."""
        fields = {field: getattr(self, field) for field in _STORED_FIELDS}
        fields["on_error"] = self.on_error.declared
        # As tables have it that were made before there were others.
        if self.key_format == self.format:
            del fields["key_format"]
        if self.envelope == ENVELOPES[0]:
            del fields["envelope"]
        if self.delete_when is None:
            del fields["delete_when"]
        else:
            fields["delete_when"] = self.delete_when.declared
        # One that is kept says to programs before it that spec and bucket of a file are more than they know.
        schemas = ("key_schema", "value_schema", "key_message", "value_message", "schema_framed")
        for field in (*schemas, "file_buckets", "partial_updates", "sequence_by"):
            if not fields[field]:
                del fields[field]
        if not self.sequence_by:
            del fields["tombstone_retention_hours"]
        for field, default in _LEFT_OUT.items():
            if fields[field] == default:
                del fields[field]
        fields["columns"] = [
            {"name": column.name, **_stored_ids(column), **_declared(column)} for column in self.columns
        ]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    def differences(self, other: LiveTable) -> tuple[str, ...]:
        """What an alteration would have to change to make this definition the other; empty when nothing.

        The name, the identifier, the version and the field ids don't count: they say where a table is and how
        it came about, not what it is.
        """
        left_out = ("identifier", "version", "provenance_id", "columns", "buckets", "file_buckets")
        fields = [field for field in _STORED_FIELDS if field not in left_out]
        found = (
            []
            if self.buckets_written == other.buckets_written
            else [f"buckets is {self.buckets_written}, not {other.buckets_written}"]
        )
        found += [
            f"{field} is {_spelled_field(self, field)}, not {_spelled_field(other, field)}"
            for field in fields
            if getattr(self, field) != getattr(other, field)
        ]
        return (*found, *_differing_columns(self.columns, other.columns))

    @property
    def needs_registry(self) -> bool:
        """Whether only a schema registry knows the schemas of its records' writers."""
        in_keys = self.key_from == "key" and self.key_format in SCHEMA_FORMATS
        in_values = self.format in SCHEMA_FORMATS
        return (in_keys and self.key_schema is None) or (in_values and self.value_schema is None)

    @property
    def has_key(self) -> bool:
        """False for a table to which every record adds a row."""
        return bool(self.key)

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The names of the columns that identify a row: the key, or else topic, partition and offset."""
        return self.key or PROVENANCE[:3]  # safety: append-identity

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of ``identity``, in its order: what the bytes of a key are made of."""
        by_name = {column.name: column for column in (*self.columns, *self._provenance_columns)}
        return tuple(by_name[name] for name in self.identity)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """The declared columns outside the key, in declared order."""
        return tuple(column for column in self.columns if column.name not in self.key)

    @cached_property
    def sequence_columns(self) -> tuple[Column, ...]:
        """The columns of ``sequence_by``, in its order."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.sequence_by)

    @property
    def buckets_written(self) -> int:
        """Into how many buckets new files are partitioned: what the configuration calls ``buckets``."""
        return self.file_buckets or self.buckets

    @cached_property
    def bucket_column(self) -> Column:
        """The column that the table is partitioned by: the entity's last, or else the log's partition."""
        return self.key_columns[len(self.entity) - 1] if self.has_key else self._provenance_columns[1]

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The declared columns."""
        return pa.schema([(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def records_schema(self) -> pa.Schema:
        """Decoded records: the declared columns, where each came from, whether it deletes, and its key.

        With partial updates also the names of the columns that it leaves as they are; where columns order the
        records, their bytes (`thermocline.rules.sequence`).
        """
        provenance = list(zip(PROVENANCE, _PROVENANCE_ARROW, strict=True))
        ours = pa.schema([*provenance, (TOMBSTONE, pa.bool_()), (KEY, pa.binary())])
        absent = [(ABSENT, pa.list_(pa.string()))] if self.partial_updates else []
        sequence = [(SEQUENCE, pa.binary())] if self.sequence_by else []
        return pa.schema([*self.row_schema, *ours, *absent, *sequence])

    @cached_property
    def table_schema(self) -> pa.Schema:
        """A data file: the declared columns and provenance, with Iceberg's field ids; the key not null."""
        return pa.schema(
            pa.field(
                column.name,
                column.numbered_type.arrow,
                column.name not in self.key,
                {"PARQUET:field_id": str(column.field_id)},
            )
            for column in (*self.columns, *self._provenance_columns)
        )

    @property
    def given_columns(self) -> tuple[Column, ...]:
        """What can be asked for: the declared columns and provenance."""
        return (*self.columns, *self._provenance_columns)

    @cached_property
    def given_schema(self) -> pa.Schema:
        """What is given out of all columns: those of a data file, without field ids."""
        return pa.schema(
            pa.field(column.name, column.type.arrow, column.name not in self.key)
            for column in self.given_columns
        )

    def iceberg_schema(self) -> Schema:
        """The table's Iceberg schema, ordered as ``table_schema``; the key required and the identifier."""
        fields = [
            types.NestedField(
                column.field_id,
                column.name,
                column.numbered_type.iceberg,
                required=column.name in self.key,
            )
            for column in (*self.columns, *self._provenance_columns)
        ]
        identifier = [column.field_id for column in self.key_columns] if self.has_key else []
        return Schema(*fields, identifier_field_ids=identifier)

    @cached_property
    def _provenance_columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(name, ColumnType(kind), self.provenance_id + place)
            for place, (name, kind) in enumerate(zip(PROVENANCE, _PROVENANCE_KINDS, strict=True))
        )


_PROVENANCE_KINDS: Final = (Kind.STRING, Kind.INT, Kind.LONG, Kind.TIMESTAMPTZ)
_PROVENANCE_ARROW: Final = tuple(ColumnType(kind).arrow for kind in _PROVENANCE_KINDS)
_HEX: Final = "hex:"
_LEFT_OUT: Final = {
    "unavailable_value_placeholder": UNAVAILABLE,
    "binary_encoding": BINARY_ENCODINGS[0],
    "require_fields": True,
    "record_bytes_max": RECORD_BYTES_MAX,
}
_STORED_FIELDS: Final = tuple(sorted(set(LiveTable.__dataclass_fields__) - {"name"}))


def unknown_settings(text: str) -> tuple[str, ...]:
    """The settings of a stored definition that this release does not know; none where it can't be parsed."""
    try:
        return tuple(sorted(json.loads(text).keys() - {*_STORED_FIELDS}))
    except (ValueError, AttributeError):
        return ()


def placeholder_bytes(setting: str) -> bytes:
    """The bytes of Debezium's ``unavailable.value.placeholder``: those of a text, or spelled ``hex:...``.

    Raises `ValueError` where these are none.
    """
    return bytes.fromhex(setting.removeprefix(_HEX)) if setting.startswith(_HEX) else setting.encode()


def problems_of_new_names(names: Iterable[str]) -> Iterable[str]:
    """Why a table can't be given columns of these names, a sentence for each.

    A definition may have such a name: a table that got the column earlier is still read and written.
    """
    for name in names:
        if name.startswith(TRINO_PREFIX):
            yield (
                f'the column name "{name}" begins with "{TRINO_PREFIX}": Trino has hidden columns with such '
                "names, so the table's views could fail"
            )


def _parse_on_error(text: OnErrorText, problems: list[str]) -> OnError:
    try:
        return OnError.parse(text)
    except ValueError as error:
        problems.append(str(error))
        return OnError()


def _parse_schema(
    part: str, format_: str, text: str | None, message: str | None, problems: list[str]
) -> str | None:
    if text is None:
        return None
    try:
        return _parse_protobuf(text, message or "") if format_ == "protobuf" else schema_text(text)
    except SchemaInvalid as error:
        of = "Protobuf" if format_ == "protobuf" else "Avro"
        problems.append(f"the {part} schema is no schema of {of}: {error}")
        return text


def _parse_protobuf(text: str, message: str) -> str:
    from thermocline.rules import protobuf_schema  # noqa: PLC0415  (few tables need it; it takes long to load)

    descriptors = protobuf_schema.unpacked_schema(text)
    protobuf_schema.message_called(descriptors, message)
    return protobuf_schema.packed_schema(descriptors)


def _parse_delete_when(text: DeleteText | None, problems: list[str]) -> DeleteRule | None:
    try:
        return None if text is None else DeleteRule.parse(text)
    except ValueError as error:
        problems.append(f"delete_when: {error}")
        return None


def _declared(column: Column) -> dict[str, object]:
    declared = column.type.declared
    fields: dict[str, object] = dict(declared) if isinstance(declared, Mapping) else {"type": declared}
    origin: dict[str, object] = {"path": column.path, "header": column.header, "event": column.event}
    return fields | {name: value for name, value in origin.items() if value}


def _stored_ids(column: Column) -> dict[str, object]:
    return {"id": column.field_id} | ({"ids": column.nested_ids} if column.nested_ids else {})


def _numbered_within(columns: Sequence[Column]) -> tuple[Column, ...]:
    """New columns with ids for the fields within them: after those of all columns and of provenance."""
    ids = count(len(columns) + len(PROVENANCE) + 1)
    return tuple(with_next_ids(column, ids) for column in columns)


def with_next_ids(column: Column, ids: Iterator[int]) -> Column:
    """A column whose type's fields have the ids that come next."""
    return replace(column, nested_ids=tuple(next(ids) for _ in range(column.type.fields_within)))


def _with_nested_ids(
    columns: Sequence[Column], nested_ids: Mapping[str, Sequence[int]]
) -> tuple[Column, ...]:
    """Columns with the ids that are known. Raises `ValueError` where they are not those of its fields."""
    found = tuple(replace(column, nested_ids=tuple(nested_ids.get(column.name, ()))) for column in columns)
    for column in found:
        if len(column.nested_ids) != column.type.fields_within:
            raise ValueError(
                f"column {column.name} has {len(column.nested_ids)} ids for the fields within it"
            )
    return found


def _parse_column(name: str, text: ColumnText, field_id: int) -> Column:
    """What is said of a column: its type, and where it is read from."""
    if isinstance(text, str):
        return Column(name, ColumnType.parse(text), field_id)
    rest = {word: str(value) for word, value in text.items() if word not in ("path", "header", "event")}
    type_ = ColumnType.parse(rest["type"] if set(rest) == {"type"} else rest)
    header = str(text.get("header", ""))
    if "header" in text and ("path" in text or not header):
        raise ValueError("a header has a name, and a column that comes from it no path")
    if "event" in text and ("path" in text or header):
        raise ValueError("a column that comes from the event around the row has neither path nor header")
    path = _parse_path(text["path"]) if "path" in text else ()
    event = _parse_path(text["event"]) if "event" in text else ()
    return Column(name, type_, field_id, path if path != (name,) else (), header, event=event)


def _parse_path(path: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    for name in names or ("",):
        if not COLUMN_NAME.fullmatch(name):
            raise ValueError(
                f"the path {_spelled(path)} has a name that is empty, or has quotes, backslashes or control "
                'characters; it is of the form "address.city", or ["address", "city"] where names have dots'
            )
    return names


def _parse_columns(
    columns: Mapping[str, ColumnText], field_ids: Mapping[str, int], problems: list[str]
) -> Iterable[Column]:
    for name, text in columns.items():
        if name.startswith("_") or name == BUCKET_FIELD:
            problems.append(f'the column name "{name}" is reserved')
        if not COLUMN_NAME.fullmatch(name):
            problems.append(f"{_spelled(name)} is empty or has quotes, backslashes or control characters")
        try:
            yield _parse_column(name, text, field_ids[name])
        except ValueError as error:
            problems.append(f"column {name}: {error}")
    # Spark and Trino match names without regard to case.
    folded = Counter(name.casefold() for name in columns)
    problems += [f'two columns are called "{name}" but for case' for name, n in folded.items() if n > 1]


def _problems_of_nested_names(columns: Sequence[Column]) -> Iterable[str]:
    """Iceberg's names of fields within columns have dots, as a column's own name may have."""
    names = {column.name.casefold(): column.name for column in columns}
    for column in columns:
        for name in names_within(column.type, column.name):
            if name.casefold() in names:
                yield f'the column "{names[name.casefold()]}" has the name of a field within {column.name}'


def _problems_of_key(table: LiveTable, declared: Sequence[str]) -> Iterable[str]:
    if not table.has_key and table.key_from != "value":  # safety: append-needs-values
        yield (
            "the key is empty, so that every record adds a row: columns then come from the value alone, so "
            'set key_from = "value"'
        )
    if not table.has_key and table.suppress_unchanged:
        yield "suppress_unchanged needs a key: without one, no row replaces another"
    if len(set(table.key)) < len(table.key):
        yield f"the key {_spelled(table.key)} names a column twice"
    for name in dict.fromkeys(table.key):
        if name not in declared:
            yield f'the key column "{name}" is not declared{closest(name, declared)}'
    for column in table.columns:
        if column.name in table.key and column.type.entry.key is None:
            kinds = sorted(kind for kind, entry in TYPES.items() if entry.key)
            yield f"the key column {column.name} can't be a {column.type}: use {', '.join(kinds)}"
    if table.entity != table.key[: len(table.entity)]:
        yield f"the entity {_spelled(table.entity)} must be the key's leading columns, {_spelled(table.key)}"


def _problems_of_bounds(table: LiveTable) -> Iterator[str]:
    if table.record_bytes_max < 1:
        yield "record_bytes_max must be at least 1"


def _problems_of_choices(table: LiveTable) -> Iterable[str]:
    if "." not in table.identifier or "" in table.identifier.split("."):
        yield f'the identifier "{table.identifier}" is not of the form namespace.table'
    if not table.topics or len(set(table.topics)) < len(table.topics):
        yield "topics must name at least one topic, and each once"
    yield from (f'"{name}" is not a topic name' for name in table.topics if not TOPIC_NAME.fullmatch(name))
    if not 1 <= table.buckets <= BUCKETS_MAX:
        yield f"buckets is {table.buckets}, not from 1 to {BUCKETS_MAX}"
    elif table.buckets_written % table.buckets:
        yield f"file_buckets is {table.file_buckets}, no multiple of {table.buckets} buckets"
    if table.format_version not in FORMAT_VERSIONS:
        yield f"format_version is {table.format_version}, not {' or '.join(map(str, FORMAT_VERSIONS))}"
    choices = {"format": FORMATS, "key_format": FORMATS, "key_from": KEY_SOURCES, "envelope": ENVELOPES}
    for field, known in choices.items():
        if field == "key_format" and table.key_format == table.format:
            continue
        if getattr(table, field) not in known:
            yield f'{field} is "{getattr(table, field)}", not {" or ".join(known)}'


def _problems_of_formats(table: LiveTable, key_format: str | None) -> Iterable[str]:
    in_key = table.key_from == "key"
    for column in table.columns:
        if column.header and column.name in table.key:
            yield f"the key column {column.name} can't come from a header: use the key or the value"
        kinds = (*ONE_COLUMN["string"], Kind.BINARY)
        if column.header and (column.type.kind not in kinds or column.type.epoch is not None):
            yield f"a header makes no {column.type}, as column {column.name} is: use {', '.join(kinds)}"
    known = ENVELOPED_FORMATS.get(table.envelope)
    if known and not (in_key and {table.format, table.key_format} <= set(known)):
        needs = f'key_from = "key", and keys and values in {" or ".join(known)}'
        yield f'envelope = "{table.envelope}" needs {needs}'
    if table.delete_when is not None and not (in_key and table.envelope == "plain"):
        yield 'delete_when needs key_from = "key", which says whose row goes, and envelope = "plain"'
    if table.delete_when is not None and table.delete_when.path and table.format in ONE_COLUMN:
        yield f'delete_when has a path, and format = "{table.format}" has no fields: use a header'
    if key_format is not None and not in_key:
        yield f'key_format is "{key_format}", and key_from = "{table.key_from}" says that keys are not read'
    if in_key:
        columns = tuple(column for column in table.columns if column.name in table.key)
        yield from _problems_of_one_column("key", table.key_format, columns)
    in_value = table.value_columns if in_key else table.columns
    in_value = tuple(column for column in in_value if column.is_in_row)
    yield from _problems_of_one_column("value", table.format, in_value)


def _problems_of_schemas(table: LiveTable) -> Iterable[str]:
    if table.value_schema is not None and table.format not in FILE_FORMATS:
        yield f'value_schema_file is given, and format is "{table.format}", not "{" or ".join(FILE_FORMATS)}"'
    if table.key_schema is not None and (table.key_from != "key" or table.key_format not in FILE_FORMATS):
        why = f'key_format is "{table.key_format}"' if table.key_from == "key" else "keys are not read"
        yield f"key_schema_file is given, and {why}"
    for part in ("key", "value"):
        is_protobuf = getattr(table, "format" if part == "value" else "key_format") == "protobuf"
        if getattr(table, f"{part}_message") and not (is_protobuf and getattr(table, f"{part}_schema")):
            yield f"{part}_message is about a {part}_schema_file of Protobuf, and there is none"
    if table.schema_framed and table.value_schema is None and table.key_schema is None:
        yield "schema_framed is about a value_schema_file or a key_schema_file, and neither is given"


def _problems_of_partial_updates(table: LiveTable) -> Iterable[str]:
    if not table.partial_updates:
        return
    if not table.has_key:
        yield "partial_updates needs a key: without one, each record is a row of its own"
    elif all(column.header for column in table.value_columns):
        yield "partial_updates needs a column in the value, that a record could leave as it is"
    if table.format not in PARTIAL_FORMATS:
        known = " or ".join(PARTIAL_FORMATS)
        yield f"partial_updates needs values in {known}: in {table.format}, no column can be left out"
    if table.envelope == "maxwell":
        yield "partial_updates are not for Maxwell's events, which have whole rows"


def _problems_of_events(table: LiveTable) -> Iterable[str]:
    for column in table.columns:
        if column.event and column.name in table.key:
            yield f"the key column {column.name} can't come from the event: use the key"
        elif column.event and table.envelope != "debezium":
            yield f'column {column.name} comes from the event around the row: set envelope = "debezium"'


def _problems_of_placeholder(table: LiveTable) -> Iterable[str]:
    setting = table.unavailable_value_placeholder
    if setting != UNAVAILABLE and table.envelope != "debezium":
        yield 'unavailable_value_placeholder is about Debezium\'s events: set envelope = "debezium"'
    try:
        is_empty = not placeholder_bytes(setting)
    except ValueError:
        yield f'unavailable_value_placeholder is "{setting}", and what follows hex: is not hexadecimal'
    else:
        if is_empty:
            yield "unavailable_value_placeholder is empty, and would be taken for empty values"


def _problems_of_encoding(table: LiveTable) -> Iterable[str]:
    if table.binary_encoding not in BINARY_ENCODINGS:
        yield f'binary_encoding is "{table.binary_encoding}", not {" or ".join(BINARY_ENCODINGS)}'
    in_keys = table.key_from == "key" and table.key_format in JSON_FORMATS
    is_json = table.envelope != "maxwell" and (in_keys or table.format in JSON_FORMATS)
    if table.binary_encoding != BINARY_ENCODINGS[0] and not is_json:
        yield "binary_encoding is about bytes in JSON, not about other formats, nor Maxwell's events"


def _problems_of_sequence(table: LiveTable) -> Iterable[str]:
    if not 1 <= table.tombstone_retention_hours <= TOMBSTONE_RETENTION_HOURS_MAX:
        hours = f"{table.tombstone_retention_hours}, not from 1 to {TOMBSTONE_RETENTION_HOURS_MAX}"
        yield f"tombstone_retention_hours is {hours}"
    if not table.sequence_by:
        if table.tombstone_retention_hours != TOMBSTONE_RETENTION_HOURS:
            yield "tombstone_retention_hours is about tables with sequence_by, and there is none"
        return
    if not table.has_key:
        yield "sequence_by needs a key: without one, each record is a row of its own"
    if table.partial_updates:
        yield "sequence_by and partial_updates can't both be: of columns left out, order says nothing yet"
    if len(set(table.sequence_by)) < len(table.sequence_by):
        yield f"sequence_by {_spelled(table.sequence_by)} names a column twice"
    columns = {column.name: column for column in table.columns}
    for name in dict.fromkeys(table.sequence_by):
        if name not in columns:
            yield f'sequence_by has "{name}", which is not declared{closest(name, list(columns))}'
        elif name in table.key:
            yield f"sequence_by has the key column {name}, which is the same in all records of a key"
        else:
            yield from _problems_of_sequence_column(table, columns[name])


def _problems_of_sequence_column(table: LiveTable, column: Column) -> Iterable[str]:
    if column.type.kind not in SEQUENCE_KINDS:
        kinds = ", ".join(SEQUENCE_KINDS)
        yield f"sequence_by can't be a {column.type}, as column {column.name} is: use {kinds}"
    if column.is_in_row and table.envelope != "plain":
        yield (
            f"sequence_by has column {column.name}, which is read from the row, and deletes in "
            f'envelope = "{table.envelope}" have none: read it from the event or a header'
        )


def _problems_of_one_column(part: str, format_: str, columns: Sequence[Column]) -> Iterable[str]:
    kinds = ONE_COLUMN.get(format_)
    if kinds is None:
        return
    setting = "key_format" if part == "key" else "format"
    if len(columns) != 1:
        names = ", ".join(column.name for column in columns) or "none"
        yield f'{setting} = "{format_}" makes one column of the {part}, and it has {names}'
        return
    (column,) = columns
    if column.type.kind not in kinds or column.type.epoch is not None:
        yield (
            f'{setting} = "{format_}" makes no {column.type} of the {part}, as column {column.name} is: use '
            f"{', '.join(kinds)}"
        )
    if column.path:
        yield f'column {column.name} has a path, and {setting} = "{format_}" has no fields'


def _differing_columns(ours: Sequence[Column], others: Sequence[Column]) -> Iterable[str]:
    our_types, other_types = ({column.name: str(column) for column in side} for side in (ours, others))
    for name in dict.fromkeys([*our_types, *other_types]):
        left, right = our_types.get(name, "absent"), other_types.get(name, "absent")
        if left != right:
            yield f"column {name} is {left}, not {right}"
    if our_types == other_types and list(our_types) != list(other_types):
        yield f"the columns are ordered {', '.join(our_types)}, not {', '.join(other_types)}"


def _spelled_field(table: LiveTable, field: str) -> str:
    value = getattr(table, field)
    if isinstance(value, str) and field.endswith("_schema"):
        return spelled_schema(value)
    return _spelled(value.declared if isinstance(value, OnError | DeleteRule) else value)


def spelled_schema(text: str) -> str:
    """A schema's text, or as much of it as a sentence can hold."""
    return text if len(text) <= 60 else f"{text[:59]}…"


def _spelled(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
