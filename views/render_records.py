"""The good records of a window of the log, as rows, read from undecoded Kafka tables: the record rule in SQL.

Each step is a named part of the query (WITH), on top of the one before: what of the log counts, each
document parsed once, the columns' tokens, their values, and the records of which all values are good. A view
that reads the log twice names the last part twice, so both reads agree on what a bad record is.
"""

from __future__ import annotations

from typing import Final

from thermocline.definition import Column, LiveTable
from views import sql
from views.fields import token, trino_type, value
from views.fields_document import document

__all__ = ["DELETED", "GOOD", "PLACE", "good_records"]

DELETED: Final = "_deleted"
GOOD: Final = "_good"
PLACE: Final = ("_topic", "_partition_id", "_partition_offset", "_timestamp")
"""Where a record stands in the log. No declared column begins with an underscore."""

_PLACE: Final = ", ".join(PLACE)


def good_records(definition: LiveTable, records: str) -> list[str]:
    """The parts, the last of which is ``GOOD``: each good record's declared columns, ``PLACE``, ``DELETED``.

    ``records`` is a query that gives ``PLACE`` and ``render_window.RECORD``. A tombstone has only its key.
    """
    return [
        sql.part("_records", "What of the log counts, undecoded.", records),
        sql.part("_documents", _DOCUMENTS, _documents(definition)),
        sql.part("_tokens", _TOKENS, _tokens(definition)),
        sql.part("_values", _VALUES, _values(definition)),
        sql.part(GOOD, _GOOD_RECORDS, _good(definition)),
    ]


_DOCUMENTS: Final = """\
Key and value, each parsed by itself and once; NULL where it is not one JSON object by the record rule.
Checks that cost something stand behind cheap ones; what nests too deep for the parser never gets there."""
_TOKENS: Final = """\
Each column's token, as JSON text: strings with quotes, so that "5" is not 5. NULL for null or missing."""
_VALUES: Final = "Each column's value; NULL where its token is not one of the column's type."
_GOOD_RECORDS: Final = """\
Good records: both documents are read, no token is without its value, and the key has no NULL. It is one
expression, so that Trino does not take it apart and parse the documents again for each part."""


def _documents(definition: LiveTable) -> str:
    value_document = sql.indented(document("_message", "_message_length"))
    documents = [f"IF(_message_length > 0,\n{value_document}) AS _value_json"]
    if definition.key_from == "key":
        documents.insert(0, f"{document('_key', '_key_length')} AS _key_json")
    columns = [*documents, f"_message_length = 0 AS {DELETED}", _PLACE, _texts(definition)]
    return sql.select(columns, "_records")


def _tokens(definition: LiveTable) -> str:
    documents = [
        "_key_json" if _is_in_key(definition, column) else "_value_json" for column in definition.columns
    ]
    tokens = [
        f"{token(column, parsed)} AS {_token(place)}"
        for place, (column, parsed) in enumerate(zip(definition.columns, documents, strict=True))
    ]
    is_read = "_value_json IS NOT NULL"
    if definition.key_from == "key":
        is_read = f"_key_json IS NOT NULL AND ({DELETED} OR {is_read})"
    return sql.select([*tokens, f"{is_read} AS _is_read", DELETED, _PLACE, _texts(definition)], "_documents")


def _values(definition: LiveTable) -> str:
    values = [
        f"CAST({value(column, _token(place), '_key' if _is_in_key(definition, column) else '_message')} "
        f"AS {trino_type(column.type)}) AS {sql.name(column.name)}"
        for place, column in enumerate(definition.columns)
    ]
    tokens = ", ".join(_token(place) for place in range(len(definition.columns)))
    return sql.select([*values, tokens, "_is_read", DELETED, _PLACE], "_tokens")


def _good(definition: LiveTable) -> str:
    problems = [
        f"{sql.name(column.name)} IS NULL"
        if column.name in definition.key
        else f"({_token(place)} IS NOT NULL AND {sql.name(column.name)} IS NULL)"
        for place, column in enumerate(definition.columns)
    ]
    names = ", ".join(sql.name(column.name) for column in definition.columns)
    good = sql.indented(" OR\n".join(problems))
    return f"{sql.select([names, DELETED, _PLACE], '_values')}\nWHERE IF(_is_read, NOT (\n{good}), false)"


def _token(place: int) -> str:
    return f"_c{place}"


def _texts(definition: LiveTable) -> str:
    return "_key, _message" if definition.key_from == "key" else "_message"


def _is_in_key(definition: LiveTable, column: Column) -> bool:
    return definition.key_from == "key" and column.name in definition.key
