"""Columns as earlier versions of a table's definition had them, in a property of the table.

A schema of Iceberg tells which columns there were, but not where a record's value of a column that is gone
was read from, nor what a column was called in records. Where an alteration renames or drops some, all columns
are noted with the version that it ends; in between, schemas tell the rest (`definition_by`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import AlterationRefused
from thermocline.rules.definition.stored import columns_of, stored_columns

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType
    from thermocline.rules.columns import Column
    from thermocline.rules.definition import LiveTable

__all__ = ["EARLIER_COLUMNS_PROPERTY", "at_version", "dropped_paths", "up_to_version", "with_earlier_columns"]

EARLIER_COLUMNS_PROPERTY: Final = "thermocline.earlier-columns"
BYTES_MAX: Final = 128 << 10
"""The property is copied into each metadata file. None of it may go: old records would be read otherwise."""


def with_earlier_columns(properties: Mapping[str, str], ended: LiveTable) -> dict[str, str]:
    """What the table's properties say of earlier columns with those of the version that ends now.

    Raises `AlterationRefused` beyond a bound.
    """
    noted = {**_noted(properties), str(ended.version): stored_columns(ended.columns)}
    text = json.dumps(noted, separators=(",", ":"))
    if len(text) > BYTES_MAX:  # safety: earlier-columns-bounded
        problem = (
            "columns can't be renamed or dropped any more: what they were before each such change is noted in"
            f" the table, and the notes would take more than {BYTES_MAX:,} bytes"
        )
        raise AlterationRefused(table=ended.name, problems=(problem,))
    return {EARLIER_COLUMNS_PROPERTY: text}


def at_version(properties: Mapping[str, str], definition: LiveTable, version: int) -> LiveTable:
    """The definition with the columns of an earlier version, and maybe some that were added since."""
    noted = _noted(properties)
    ended = min((one for one in map(int, noted) if one >= version), default=None)  # safety: earlier-version
    return definition if ended is None else replace(definition, columns=columns_of(noted[str(ended)]))


def up_to_version(properties: Mapping[str, str], definition: LiveTable, version: int) -> Iterator[LiveTable]:
    """The same of all versions up to one, the oldest first."""
    earlier = sorted(one for one in map(int, _noted(properties)) if one < version)
    for one in (*earlier, version):
        yield at_version(properties, definition, one)


def dropped_paths(properties: Mapping[str, str], definition: LiveTable) -> frozenset[tuple[str, ...]]:
    """Where in records the values of dropped columns were, and of dropped fields within columns that stay."""
    now = {one.field_id: one for one in definition.columns}
    return frozenset(
        path
        for columns in _noted(properties).values()
        for then in columns_of(columns)
        if then.is_in_row
        for path in _dropped(then, now.get(then.field_id))
    )


def _dropped(then: Column, now: Column | None) -> Iterator[tuple[str, ...]]:
    if now is None:
        yield then.read_from
    else:
        yield from _dropped_within(then.numbered_type, now.numbered_type, now.read_from)


def _dropped_within(then: ColumnType, now: ColumnType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    by_id = {one.field_id: one for one in now.fields}
    for one in then.fields:
        at = (*path, one.name)
        if one.field_id not in by_id:
            yield at
        else:
            yield from _dropped_within(one.type, by_id[one.field_id].type, at)


def _noted(properties: Mapping[str, str]) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(properties.get(EARLIER_COLUMNS_PROPERTY, "{}"))
    return found
