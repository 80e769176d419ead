"""A table's hot rows as Trino's Thrift connector sees them: names and types of table and columns.

`serving.trino` declares them, and the views of `views.render_server` read them. The connector takes names of
small letters, digits and underscores only, and few types: what it lacks goes as text or as a number, and the
view casts it back.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.rules.column_types import Kind

if TYPE_CHECKING:
    from thermocline.rules.definition import Column, LiveTable

__all__ = [
    "ASKED",
    "DELETED",
    "HIDDEN",
    "SCANS",
    "SCHEMA",
    "SNAPSHOT",
    "HotColumn",
    "hot_columns",
    "hot_name",
    "hot_table",
    "unservable",
]

SCHEMA: Final = "live"
"""The one schema of the catalog."""
DELETED: Final = "h_deleted"
"""Whether the last record deletes the row: its other columns but the key are null then."""
SNAPSHOT: Final = "h_snapshot"
"""Hidden: the snapshot that the hot rows are laid over. A scan must ask for one."""
ASKED: Final = "h_asked"
"""Hidden: the query's own time in microseconds, by which all of its scans find the same state."""
SCANS: Final = "h_scans"
"""Hidden: how many scans one use of the view has."""
HIDDEN: Final = (SNAPSHOT, ASKED, SCANS)

_PLAIN: Final = re.compile(r"(?!h_)[a-z][a-z0-9_]*")
_DIGEST_CHARACTERS: Final = 8
_TYPES: Final = {
    Kind.INT: "integer",
    Kind.LONG: "bigint",
    Kind.STRING: "varchar",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.DATE: "date",
    Kind.TIMESTAMPTZ: "bigint",
    Kind.TIMESTAMP: "bigint",
    Kind.DECIMAL: "varchar",
    Kind.UUID: "varchar",
    Kind.BINARY: "varchar",
    Kind.JSON: "varchar",
}
_CONDITIONS: Final = frozenset({Kind.INT, Kind.LONG, Kind.STRING, Kind.DATE})


@dataclass(frozen=True, slots=True)
class HotColumn:
    """A column: its name there, the connector's type, and the declared column."""

    name: str
    type: str
    column: Column

    @property
    def takes_conditions(self) -> bool:
        """Whether a condition on it comes through as one on the declared value."""
        return self.column.type.kind in _CONDITIONS


def hot_table(definition: LiveTable) -> str:
    """The table's name, another one for each version: Trino keeps what it knows of a table for minutes."""
    return f"{hot_name(definition.name)}_d{definition.version}"


def hot_name(table: str) -> str:
    """What the names of all versions of a table begin with, before ``_d`` and the version."""
    if _PLAIN.fullmatch(table):
        return table
    digest = hashlib.sha256(table.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"t_{re.sub('[^a-z0-9_]', '_', table.lower())}_{digest}"


def hot_columns(definition: LiveTable) -> tuple[HotColumn, ...]:
    """The declared columns, in their order, of a table that `unservable` has nothing against."""
    return tuple(
        HotColumn(_name(column.name, place), _TYPES[column.type.kind], column)
        for place, column in enumerate(definition.columns)
    )


def unservable(definition: LiveTable) -> str | None:
    """Why the hot rows can't be laid over the table in Trino, or None where they can."""
    if definition.partial_updates:  # safety: hot-view-unservable
        return "records that set only some columns (partial_updates) need the rows below them"
    if definition.sequence_by:
        return "records that columns order (sequence_by) need the rows below them"
    nested = next((one.name for one in definition.columns if one.type.kind not in _TYPES), None)
    return None if nested is None else f"Trino's Thrift connector has no type for the nested column {nested}"


def _name(column: str, place: int) -> str:
    return column if _PLAIN.fullmatch(column) else f"h_c{place}"
