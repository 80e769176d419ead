"""Codes of reasons why records are bad: what a reason says without what the record has.

A reason is made for whoever wrote the record, and may quote it. A code and a column's name never do, so they
can be shown to whoever may not read the rows, and records that are bad in the same way have the same.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["MEANINGS", "BadCode", "coded"]


class BadCode(StrEnum):
    """What is wrong with a record."""

    NO_KEY = "no-key"
    EMPTY_VALUE = "empty-value"
    NOT_JSON = "not-json"
    NOT_AN_EVENT = "not-an-event"
    NO_FIELD = "no-field"
    MISSING = "missing"
    WRONG_TYPE = "wrong-type"
    WRONG_VALUE = "wrong-value"
    DELETE_WHEN = "delete-when"
    WHERE = "where"
    SCHEMA = "schema"
    SCHEMA_CHANGED = "schema-changed"
    TOO_LARGE = "too-large"
    TOO_DEEP = "too-deep"
    OTHER = "other"


MEANINGS: Final = {
    BadCode.NO_KEY: "the record has no key",
    BadCode.EMPTY_VALUE: "the value is empty",
    BadCode.NOT_JSON: "key or value is not one JSON object",
    BadCode.NOT_AN_EVENT: "the value is no change event with a row",
    BadCode.NO_FIELD: "the value has none of the table's fields",
    BadCode.MISSING: "what the column is read from is missing or null",
    BadCode.WRONG_TYPE: "what the column is read from has another type",
    BadCode.WRONG_VALUE: "what the column is read from is no value of its type",
    BadCode.DELETE_WHEN: "the field that says whether it is a delete can't be read",
    BadCode.WHERE: "the text that says whose record it is can't be read",
    BadCode.SCHEMA: "it can't be read by its schema",
    BadCode.SCHEMA_CHANGED: "its schema has changes that the table's contract refuses",
    BadCode.TOO_LARGE: "the record is larger than record_bytes_max",
    BadCode.TOO_DEEP: "the value is nested too deeply",
    BadCode.OTHER: "another reason",
}
"""What each code means, in words."""

_OF_RECORDS: Final = (
    (re.compile(r"the record has no key|the record's key is empty"), BadCode.NO_KEY),
    (re.compile(r"the value is empty"), BadCode.EMPTY_VALUE),
    (re.compile(r"not one JSON object"), BadCode.NOT_JSON),
    (re.compile(r"not a change |a change event with op |a change of type "), BadCode.NOT_AN_EVENT),
    (re.compile(r"the value has none of the table's fields"), BadCode.NO_FIELD),
    (re.compile(r"delete_when \("), BadCode.DELETE_WHEN),
    (re.compile(r"where \("), BadCode.WHERE),
    (re.compile(r"[\d,]+ bytes, more than record_bytes_max"), BadCode.TOO_LARGE),
    (re.compile(r"nested more than "), BadCode.TOO_DEEP),
    (re.compile(r"the contract refuses schema "), BadCode.SCHEMA_CHANGED),
    (re.compile(r"(no|its writer's|the) schema |schema \d+ |not \w+ by its schema"), BadCode.SCHEMA),
    (re.compile(r"the header that names its schema "), BadCode.SCHEMA),
    (re.compile(r"it (begins with the byte|is empty, not with|is too short for) "), BadCode.SCHEMA),
    (re.compile(r"it names (its|a) message by "), BadCode.SCHEMA),
)
_OF_COLUMNS: Final = (
    (re.compile(r"missing|Expected .*, got `null`|the change did not touch this value"), BadCode.MISSING),
    (re.compile(r"Expected .*, got |the record has a "), BadCode.WRONG_TYPE),
)


def coded(reason: str, definition: LiveTable) -> tuple[BadCode, str | None]:
    """The code of a reason, and the column of the table that it is about, if it is about one."""
    for pattern, code in _OF_RECORDS:
        if pattern.match(reason):
            return code, None
    column = _column_of(reason, definition)
    if column is None:
        return BadCode.OTHER, None
    _, _, rest = reason[len(column) :].partition(": ")
    for pattern, code in _OF_COLUMNS:
        if pattern.match(rest):
            return code, column
    return BadCode.WRONG_VALUE, column


def _column_of(reason: str, definition: LiveTable) -> str | None:
    """The column whose name a reason begins with, as all do that are about one."""
    named = [
        column.name
        for column in definition.columns
        if reason.startswith((f"{column.name} (", f"{column.name}: "))  # safety: bad-codes-name-columns
    ]
    return max(named, key=len, default=None)
