"""The definition of a live table: its topics, columns, key, entity and bucket, and the schemas that follow.

The definition is written into the table as JSON and read back from there by every room, so that all of
them mean the same thing by a record, a key and a bucket. ``LiveTable.build`` checks one that a person
wrote; ``LiveTable.from_json`` reads the one that a table carries.

``table`` has the struct. Its options are in ``source``, ``format``, ``row``, ``layout`` and ``policy``, each
with what is to be known of it (``option``); ``options`` has the values that there are, ``checks`` what can be
wrong, ``stored`` the table's property.
"""

from __future__ import annotations

import json
from dataclasses import fields

from thermocline.rules.columns import (
    ABSENT,
    BUCKET_FIELD,
    KEY,
    PARTITION_TIME,
    PROVENANCE,
    SEQUENCE,
    TOMBSTONE,
    Column,
    ColumnText,
    problems_of_new_names,
    with_next_ids,
)
from thermocline.rules.definition.options import (
    BINARY_ENCODINGS,
    EMPTY_FORMATS,
    JSON_FORMATS,
    ONE_COLUMN,
    RECORD_BYTES_MAX,
    SCHEMA_FORMATS,
    TOMBSTONE_RETENTION_HOURS,
    UNAVAILABLE,
    DeleteRule,
    DeleteText,
    OnError,
    OnErrorMode,
    OnErrorText,
    placeholder_bytes,
)
from thermocline.rules.definition.parsing import spelled_schema
from thermocline.rules.definition.table import LiveTable

__all__ = [
    "ABSENT",
    "BINARY_ENCODINGS",
    "BUCKET_FIELD",
    "EMPTY_FORMATS",
    "JSON_FORMATS",
    "KEY",
    "ONE_COLUMN",
    "PARTITION_TIME",
    "PROVENANCE",
    "RECORD_BYTES_MAX",
    "SCHEMA_FORMATS",
    "SEQUENCE",
    "TOMBSTONE",
    "TOMBSTONE_RETENTION_HOURS",
    "UNAVAILABLE",
    "Column",
    "ColumnText",
    "DeleteRule",
    "DeleteText",
    "LiveTable",
    "OnError",
    "OnErrorMode",
    "OnErrorText",
    "placeholder_bytes",
    "problems_of_new_names",
    "spelled_schema",
    "unknown_settings",
    "with_next_ids",
]


def unknown_settings(text: str) -> tuple[str, ...]:
    """The settings of a stored definition that this release does not know; none where it can't be parsed."""
    try:
        return tuple(sorted(json.loads(text).keys() - {option.name for option in fields(LiveTable)}))
    except (ValueError, AttributeError):
        return ()
