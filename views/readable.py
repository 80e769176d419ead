"""The records that SQL in Trino can read exactly as ``thermocline.rules.decode`` does."""

from __future__ import annotations

from collections.abc import Iterator

from thermocline.rules.column_types import Kind
from thermocline.rules.definition import BINARY_ENCODINGS, Column, LiveTable
from thermocline.views import fields

__all__ = ["is_plain_key", "unreadable_in_sql"]


def unreadable_in_sql(definition: LiveTable) -> str | None:
    """Why no view can read the table's records, or None where one can: a view is exact, or there is none."""
    return next(_reasons(definition), None)


def _reasons(definition: LiveTable) -> Iterator[str]:
    if definition.topic_patterns:  # safety: patterns-in-sql
        yield "its topics come and go, and SQL names each topic"
    if definition.envelope != "plain":
        yield f'records in envelope = "{definition.envelope}" can\'t be read in SQL'
    if definition.delete_when is not None:
        yield "what delete_when says can't be read in SQL"
    if definition.route:  # safety: routes-in-sql
        yield "what where says can't be read in SQL"
    if definition.merging.problem_in_sql:  # safety: ordered-views
        yield definition.merging.problem_in_sql
    if definition.format != "json":
        yield f'values in format = "{definition.format}" can\'t be read in SQL'
    if definition.key_from == "key" and definition.key_format != "json" and not is_plain_key(definition):
        types = ", ".join(str(column.type) for column in definition.key_columns)
        yield f'keys in key_format = "{definition.key_format}" can\'t be read in SQL as {types}'
    if definition.binary_encoding != BINARY_ENCODINGS[0]:  # safety: encoding-in-sql
        yield f'bytes with binary_encoding = "{definition.binary_encoding}" can\'t be read in SQL'
    yield from filter(None, map(_unreadable, definition.columns))


def _unreadable(column: Column) -> str | None:
    """Why SQL can't read a column out of a record, or None where it can."""
    if column.event:
        return f"column {column.name} comes from the event around the row"
    if column.header:
        return f"column {column.name} comes from a header"
    if column.topic:
        return f"column {column.name} comes from the topic's name"
    return fields.unreadable(column)  # safety: nested-in-sql


def is_plain_key(definition: LiveTable) -> bool:
    """Whether the record's key is the text of the key column."""
    if definition.key_from != "key" or definition.key_format != "string":
        return False
    return all(
        column.type.kind is Kind.STRING for column in definition.columns if column.name in definition.key
    )
