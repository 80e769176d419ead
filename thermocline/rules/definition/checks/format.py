"""Checks of how records are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.rules.column_types import Kind
from thermocline.rules.definition.options import (
    BINARY_ENCODINGS,
    ENVELOPED_FORMATS,
    ENVELOPES,
    FILE_FORMATS,
    FORMATS,
    JSON_FORMATS,
    KEY_SOURCES,
    ONE_COLUMN,
    UNAVAILABLE,
    placeholder_bytes,
)

if TYPE_CHECKING:
    from thermocline.rules.columns import Column
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems"]


def problems(table: LiveTable, key_format: str | None) -> Iterator[str]:
    """What is wrong with the options of `FormatOptions`; ``key_format`` as it is given."""
    yield from _choices(table)
    yield from _headers(table)
    yield from _topics(table)
    yield from _formats(table, key_format)
    yield from _deletes(table)
    yield from _schemas(table)
    yield from _events(table)
    yield from _placeholder(table)
    yield from _encoding(table)
    if table.record_bytes_max < 1:
        yield "record_bytes_max must be at least 1"


def _choices(table: LiveTable) -> Iterator[str]:
    choices = {"format": FORMATS, "key_format": FORMATS, "key_from": KEY_SOURCES, "envelope": ENVELOPES}
    for field, known in choices.items():
        if field == "key_format" and table.key_format == table.format:
            continue
        if getattr(table, field) not in known:
            yield f'{field} is "{getattr(table, field)}", not {" or ".join(known)}'


def _headers(table: LiveTable) -> Iterator[str]:
    kinds = (*ONE_COLUMN["string"], Kind.BINARY)
    for column in table.columns:
        if column.header and column.name in table.key:
            yield f"the key column {column.name} can't come from a header: use the key or the value"
        if column.header and (column.type.kind not in kinds or column.type.epoch is not None):
            yield f"column {column.name} is {column.type}, but a header can only fill {', '.join(kinds)}"


def _topics(table: LiveTable) -> Iterator[str]:
    kinds = tuple(kind for kind in ONE_COLUMN["string"] if kind is not Kind.BINARY)
    for column in table.columns:
        if column.topic and (column.type.kind not in kinds or column.type.epoch is not None):
            can_fill = f"a topic's name can only fill {', '.join(kinds)}"
            yield f"column {column.name} is {column.type}, but {can_fill}"
    in_key = [column for column in table.columns if column.name in table.key]
    if in_key and all(column.topic for column in in_key):
        yield "the key needs a column of the record: the topic's name alone would make one row of each topic"


def _formats(table: LiveTable, key_format: str | None) -> Iterator[str]:
    in_key = table.key_from == "key"
    known = ENVELOPED_FORMATS.get(table.envelope)
    if known and not (in_key and {table.format, table.key_format} <= set(known)):
        needs = f'key_from = "key", and keys and values in {" or ".join(known)}'
        yield f'envelope = "{table.envelope}" needs {needs}'
    if key_format is not None and not in_key:
        yield f'key_format can\'t be set with key_from = "{table.key_from}": keys are not read'
    if in_key:
        columns = tuple(one for one in table.columns if one.name in table.key and one.is_in_row)
        yield from _one_column("key", table.key_format, columns)
    in_value = table.value_columns if in_key else table.columns
    in_value = tuple(column for column in in_value if column.is_in_row)
    yield from _one_column("value", table.format, in_value)


def _one_column(part: str, format_: str, columns: Sequence[Column]) -> Iterator[str]:
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


def _deletes(table: LiveTable) -> Iterator[str]:
    if table.delete_when is None:
        return
    if table.key_from != "key" or table.envelope != "plain":
        yield 'delete_when needs key_from = "key" and envelope = "plain"'
    if table.delete_when.path and table.format in ONE_COLUMN:
        yield f'delete_when has a path, but format = "{table.format}" has no fields: use a header'


def _schemas(table: LiveTable) -> Iterator[str]:
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


def _events(table: LiveTable) -> Iterator[str]:
    for column in table.columns:
        if column.event and column.name in table.key:
            yield f"the key column {column.name} can't come from the event: use the key"
        elif column.event and table.envelope != "debezium":
            yield f'column {column.name} is read from the event, which needs envelope = "debezium"'


def _placeholder(table: LiveTable) -> Iterator[str]:
    setting = table.unavailable_value_placeholder
    if setting != UNAVAILABLE and table.envelope != "debezium":
        yield 'unavailable_value_placeholder needs envelope = "debezium"'
    try:
        is_empty = not placeholder_bytes(setting)
    except ValueError:
        yield f'unavailable_value_placeholder is "{setting}", but what follows hex: is not hexadecimal'
    else:
        if is_empty:
            yield "unavailable_value_placeholder can't be empty: every empty value would count as unavailable"


def _encoding(table: LiveTable) -> Iterator[str]:
    if table.binary_encoding not in BINARY_ENCODINGS:
        yield f'binary_encoding is "{table.binary_encoding}", not {" or ".join(BINARY_ENCODINGS)}'
    in_keys = table.key_from == "key" and table.key_format in JSON_FORMATS
    is_json = table.envelope != "maxwell" and (in_keys or table.format in JSON_FORMATS)
    if table.binary_encoding != BINARY_ENCODINGS[0] and not is_json:
        yield "binary_encoding only applies to bytes in JSON, and not to Maxwell's events"
