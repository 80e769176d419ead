"""The good records of a window of the log, as rows, read from undecoded Kafka tables: the record rule in SQL.

Each step is a named part of the query (WITH), on top of the one before: what of the log counts; then, of the
key and after it of the value, the document parsed once, its columns' tokens, their values, and the records in
which all is good. So a query by key parses no value of another key: Trino moves its condition down to where
good keys are picked. A view that reads the log twice names the last part twice, so both reads agree on what a
bad record is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from thermocline.rules.decode.connect import are_in_keys, are_in_values
from thermocline.rules.decode.fields import needed_fields
from thermocline.rules.definition import Column, LiveTable
from thermocline.views import sql
from thermocline.views.fields import objects_around, token, value
from thermocline.views.fields_document import document, with_a_field, without_schema
from thermocline.views.readable import is_plain_key
from thermocline.views.render_window import RECORD

__all__ = ["DELETED", "GOOD", "PLACE", "good_records"]

DELETED: Final = "_deleted"
GOOD: Final = "_good"
PLACE: Final = ("_topic", "_partition_id", "_partition_offset", "_timestamp")
"""Where a record stands in the log. No declared column begins with an underscore."""

_IS_TOMBSTONE: Final = "_message_length = 0"


@dataclass(frozen=True, slots=True)
class _Document:
    """A record's key or value, and what is read from it.

    ``text`` is its column in the log, ``read`` the expression that parses it; where ``may_lack`` holds, there
    need be none. ``good`` names the part with the records where it is good, which has the columns ``kept``.
    """

    name: str
    text: str
    read: str
    may_lack: str
    columns: Sequence[Column]
    good: str
    kept: Sequence[str]


def good_records(definition: LiveTable, records: str) -> list[str]:
    """The parts, the last of which is ``GOOD``: each good record's declared columns, ``PLACE``, ``DELETED``.

    ``records`` is a query that gives ``PLACE`` and ``RECORD``. A tombstone has only its key.
    """
    most = f"_key_length + _message_length <= {definition.record_bytes_max}"
    counted = sql.select(_LOGGED, f"(\n{records})") + f"\nWHERE {most}"  # safety: guard-record-bytes-max
    parts = [sql.part("_records", "What of the log counts, undecoded.", counted)]
    source, columns = "_records", _LOGGED
    if is_plain_key(definition):
        parts.append(_plain_key(definition))
        source, columns = _GOOD_KEYS, [*_LOGGED, *map(sql.name, definition.key)]
    for one in _documents(definition):
        parts += _read(one, definition.key, source, columns)
        source, columns = one.good, one.kept
    return parts


_GOOD_KEYS: Final = "_good_keys"
_EMPTY_KEY: Final = (
    "Kafka has a record of {definition.name} whose key is empty or missing, and Trino can't tell which: wait "
    "until ingest has committed it, or read hot rows from the server"
)
_LOGGED: Final[Sequence[str]] = (*PLACE, *RECORD)
_DOCUMENT: Final = """\
The %s, parsed by itself and once; NULL where it is not one JSON object by the record rule.
Checks that cost something stand behind cheap ones; what nests too deep for the parser never gets there."""
_TOKENS: Final = """\
Each column's token, as JSON text: strings with quotes, so that "5" is not 5. NULL for null or missing."""
_VALUES: Final = "Each column's value; NULL where its token is not one of the column's type."
_GOOD: Final = """\
Where the %s is good: it is read, no token is without its value, and no column of the table's key is NULL.
It is one expression, so that Trino does not take it apart and parse the document again for each part."""


def _documents(definition: LiveTable) -> list[_Document]:
    in_key = [column for column in definition.columns if column.name in definition.key]
    others = [column for column in definition.columns if column.name not in definition.key]
    has_key_document = definition.key_from == "key"
    value_document = _Document(
        name="value",
        text="_message",
        read=f"IF(_message_length > 0,\n{sql.indented(_value_read(definition))})",
        may_lack=_IS_TOMBSTONE if has_key_document else "false",
        columns=others if has_key_document else definition.columns,
        good=GOOD,
        kept=[*_names(definition.columns), f"{_IS_TOMBSTONE} AS {DELETED}", *PLACE],
    )
    if not has_key_document or is_plain_key(definition):
        return [value_document]
    key_document = _Document(
        name="key",
        text="_key",
        read=_key_read(definition),
        may_lack="false",
        columns=in_key,
        good=_GOOD_KEYS,
        kept=[*_LOGGED, *_names(in_key)],
    )
    return [key_document, value_document]


def _value_read(definition: LiveTable) -> str:
    read = document("_message", "_message_length")
    if are_in_values(definition):
        read = without_schema(read, "_message", _why_unreadable(definition))
    if needed := needed_fields(definition):
        read = with_a_field(read, list(needed))
    return read


def _key_read(definition: LiveTable) -> str:
    read = document("_key", "_key_length")
    return without_schema(read, "_key", _why_unreadable(definition)) if are_in_keys(definition) else read


def _why_unreadable(definition: LiveTable) -> str:
    identifier = definition.identifier
    return (
        f"records of {identifier} in Kafka have their schema beside them, as Kafka Connect writes them, and "
        f"SQL can't read by that: query {identifier}_cold, or have the views read hot rows from the server "
        '(hot = "server")'
    )


def _plain_key(definition: LiveTable) -> str:
    (key,) = definition.key
    reason = sql.literal(_EMPTY_KEY.format(definition=definition))
    good = (
        f"IF(_key_length > 0, from_utf8(to_utf8(_key)) = _key, "  # safety: guard-plain-key
        f"CAST(fail({reason}) AS boolean))"  # safety: guard-empty-key
    )
    query = sql.select([*_LOGGED, f"_key AS {sql.name(key)}"], "_records")
    return sql.part(_GOOD_KEYS, "The key is the column's text, in UTF-8.", f"{query}\nWHERE {good}")


def _read(one: _Document, key: Sequence[str], source: str, columns: Sequence[str]) -> list[str]:
    """The parts that read a document, on top of ``source``, whose columns they pass on."""
    parsed, is_read = f"_{one.name}_json", f"_is_{one.name}_read"
    names = [f"_{one.name}_{place}" for place in range(len(one.columns))]
    placed = list(zip(names, one.columns, strict=True))
    tokens = [f"{token(column, parsed)} AS {found}" for found, column in placed]
    around = {f"_{one.name}_around_{n}": text for n, text in enumerate(objects_around(one.columns, parsed))}
    tokens += [f"{text} AS {found}" for found, text in around.items()]
    values = [
        f"CAST({value(column, found, one.text)} AS {column.type.trino}) AS {sql.name(column.name)}"
        for found, column in placed
    ]
    problems = [
        f"{sql.name(column.name)} IS NULL"  # safety: guard-key
        if column.name in key
        else f"({found} IS NOT NULL AND {sql.name(column.name)} IS NULL)"  # safety: guard-value
        for found, column in placed
    ]
    problems += [
        f"({found} IS NOT NULL AND NOT starts_with({found}, '{{'))"  # safety: guard-object-around
        for found in around
    ]
    bad = sql.indented(" OR\n".join(problems or ["false"]))
    part_of = {step: f"_{one.name}_{step}" for step in ("document", "tokens", "values")}
    return [
        sql.part(
            part_of["document"],
            _DOCUMENT % one.name,
            sql.select([f"{one.read} AS {parsed}", *columns], source),
        ),
        sql.part(
            part_of["tokens"],
            _TOKENS,
            sql.select([*tokens, f"{parsed} IS NOT NULL AS {is_read}", *columns], part_of["document"]),
        ),
        sql.part(
            part_of["values"],
            _VALUES,
            sql.select([*values, *names, *around, is_read, *columns], part_of["tokens"]),
        ),
        sql.part(
            one.good,
            _GOOD % one.name,
            f"{sql.select(one.kept, part_of['values'])}\n"
            f"WHERE IF({one.may_lack} OR {is_read}, NOT (\n{bad}), false)",  # safety: guard-read
        ),
    ]


def _names(columns: Sequence[Column]) -> list[str]:
    return [sql.name(column.name) for column in columns]
