"""Checks of a definition: a sentence for each problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.rules.column_types import TYPES, Kind, closest
from thermocline.rules.columns import spelled
from thermocline.rules.definition.options import (
    BINARY_ENCODINGS,
    BUCKETS_MAX,
    ENVELOPED_FORMATS,
    ENVELOPES,
    FILE_FORMATS,
    FORMAT_VERSIONS,
    FORMATS,
    JSON_FORMATS,
    KEY_SOURCES,
    ONE_COLUMN,
    PARTIAL_FORMATS,
    SEQUENCE_KINDS,
    TOMBSTONE_RETENTION_HOURS,
    TOMBSTONE_RETENTION_HOURS_MAX,
    TOPIC_NAME,
    UNAVAILABLE,
    placeholder_bytes,
)
from thermocline.rules.nested_types import names_within

if TYPE_CHECKING:
    from thermocline.rules.columns import Column
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems_of"]


def problems_of(table: LiveTable, declared: Sequence[str], key_format: str | None) -> Iterator[str]:
    """Every problem, not only the first; ``declared`` columns and ``key_format`` as they are given."""
    yield from _problems_of_nested_names(table.columns)
    yield from _problems_of_key(table, declared)
    yield from _problems_of_choices(table)
    yield from _problems_of_bounds(table)
    yield from _problems_of_headers(table)
    yield from _problems_of_formats(table, key_format)
    yield from _problems_of_deletes(table)
    yield from _problems_of_schemas(table)
    yield from _problems_of_partial_updates(table)
    yield from _problems_of_events(table)
    yield from _problems_of_placeholder(table)
    yield from _problems_of_encoding(table)
    yield from _problems_of_sequence(table)


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
        yield f"the key {spelled(table.key)} names a column twice"
    for name in dict.fromkeys(table.key):
        if name not in declared:
            yield f'the key column "{name}" is not declared{closest(name, declared)}'
    for column in table.columns:
        if column.name in table.key and column.type.entry.key is None:
            kinds = sorted(kind for kind, entry in TYPES.items() if entry.key)
            yield f"the key column {column.name} can't be a {column.type}: use {', '.join(kinds)}"
    if table.entity != table.key[: len(table.entity)]:
        yield f"the entity {spelled(table.entity)} must be the key's leading columns, {spelled(table.key)}"


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


def _problems_of_formats(table: LiveTable, key_format: str | None) -> Iterator[str]:
    in_key = table.key_from == "key"
    known = ENVELOPED_FORMATS.get(table.envelope)
    if known and not (in_key and {table.format, table.key_format} <= set(known)):
        needs = f'key_from = "key", and keys and values in {" or ".join(known)}'
        yield f'envelope = "{table.envelope}" needs {needs}'
    if key_format is not None and not in_key:
        yield f'key_format can\'t be set with key_from = "{table.key_from}": keys are not read'
    if in_key:
        columns = tuple(column for column in table.columns if column.name in table.key)
        yield from _problems_of_one_column("key", table.key_format, columns)
    in_value = table.value_columns if in_key else table.columns
    in_value = tuple(column for column in in_value if column.is_in_row)
    yield from _problems_of_one_column("value", table.format, in_value)


def _problems_of_headers(table: LiveTable) -> Iterator[str]:
    kinds = (*ONE_COLUMN["string"], Kind.BINARY)
    for column in table.columns:
        if column.header and column.name in table.key:
            yield f"the key column {column.name} can't come from a header: use the key or the value"
        if column.header and (column.type.kind not in kinds or column.type.epoch is not None):
            yield f"column {column.name} is {column.type}, but a header can only fill {', '.join(kinds)}"


def _problems_of_deletes(table: LiveTable) -> Iterator[str]:
    if table.delete_when is None:
        return
    if table.key_from != "key" or table.envelope != "plain":
        yield 'delete_when needs key_from = "key", which says whose row goes, and envelope = "plain"'
    if table.delete_when.path and table.format in ONE_COLUMN:
        yield f'delete_when has a path, but format = "{table.format}" has no fields: use a header'


def _problems_of_schemas(table: LiveTable) -> Iterator[str]:
    known = " or ".join(FILE_FORMATS)
    if table.value_schema is not None and table.format not in FILE_FORMATS:
        yield f'value_schema_file needs format = {known}, but it is "{table.format}"'
    if table.key_schema is not None and table.key_from != "key":
        yield "key_schema_file can't be used: keys are not read"
    elif table.key_schema is not None and table.key_format not in FILE_FORMATS:
        yield f'key_schema_file needs key_format = {known}, but it is "{table.key_format}"'
    if table.value_message and not (table.format == "protobuf" and table.value_schema):
        yield "value_message needs a Protobuf value_schema_file"
    if table.key_message and not (table.key_format == "protobuf" and table.key_schema):
        yield "key_message needs a Protobuf key_schema_file"
    if table.schema_framed and table.value_schema is None and table.key_schema is None:
        yield "schema_framed needs a value_schema_file or a key_schema_file"


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
        yield "partial_updates can't be used with Maxwell's events, which have whole rows"


def _problems_of_events(table: LiveTable) -> Iterable[str]:
    for column in table.columns:
        if column.event and column.name in table.key:
            yield f"the key column {column.name} can't come from the event: use the key"
        elif column.event and table.envelope != "debezium":
            yield f'column {column.name} comes from the event around the row: set envelope = "debezium"'


def _problems_of_placeholder(table: LiveTable) -> Iterable[str]:
    setting = table.unavailable_value_placeholder
    if setting != UNAVAILABLE and table.envelope != "debezium":
        yield 'unavailable_value_placeholder needs envelope = "debezium"'
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
        yield "binary_encoding only applies to bytes in JSON, and not to Maxwell's events"


def _problems_of_sequence(table: LiveTable) -> Iterable[str]:
    if not 1 <= table.tombstone_retention_hours <= TOMBSTONE_RETENTION_HOURS_MAX:
        hours = f"{table.tombstone_retention_hours}, not from 1 to {TOMBSTONE_RETENTION_HOURS_MAX}"
        yield f"tombstone_retention_hours is {hours}"
    if not table.sequence_by:
        if table.tombstone_retention_hours != TOMBSTONE_RETENTION_HOURS:
            yield "tombstone_retention_hours needs sequence_by"
        return
    if not table.has_key:
        yield "sequence_by needs a key: without one, each record is a row of its own"
    if table.partial_updates:
        yield "sequence_by can't be combined with partial_updates yet"
    if len(set(table.sequence_by)) < len(table.sequence_by):
        yield f"sequence_by {spelled(table.sequence_by)} names a column twice"
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
        yield f"column {column.name} is {column.type}, but sequence_by takes only {kinds}"
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
        yield f'{setting} = "{format_}" fills one column from the {part}, but it has {names}'
        return
    (column,) = columns
    if column.type.kind not in kinds or column.type.epoch is not None:
        taken = ", ".join(kinds)
        yield f'column {column.name} is {column.type}, but {setting} = "{format_}" can only fill {taken}'
    if column.path:
        yield f'column {column.name} has a path, but {setting} = "{format_}" has no fields'
