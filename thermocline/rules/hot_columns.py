"""A table's hot rows as Trino's Thrift connector sees them: names and types of table and columns.

`serving.trino` declares them, and the views of `views.render_server` read them. The connector takes names of
small letters, digits and underscores only, and few types: what it lacks goes as text or as a number, and the
view casts it back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.rules.column_types import HotForm
    from thermocline.rules.definition import Column, LiveTable

__all__ = [
    "ASKED",
    "DELETED",
    "GROUP",
    "HIDDEN",
    "SCANS",
    "SCHEMA",
    "SERVERS",
    "SERVER_TABLE",
    "SNAPSHOT",
    "HotColumn",
    "group_of",
    "hot_columns",
    "hot_name",
    "hot_table",
    "kept_columns",
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
SERVERS: Final = "h_servers"
"""Hidden: `group_of` the servers that answer the view."""
HIDDEN: Final = (SNAPSHOT, ASKED, SCANS, SERVERS)

SERVER_TABLE: Final = "h_server"
"""Not a live table: its one row says the server's group, for who makes views."""
GROUP: Final = "answers_as"

_PLAIN: Final = re.compile(r"(?!h_)[a-z][a-z0-9_]*")
_DIGEST_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True)
class HotColumn:
    """A column: its name there, what the connector has of its values, and the declared column."""

    name: str
    form: HotForm
    column: Column

    @property
    def type(self) -> str:
        """The connector's type."""
        return self.form.type

    @property
    def takes_conditions(self) -> bool:
        """Whether a condition on it comes through as one on the declared value."""
        return self.form.condition is not None


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
        HotColumn(_name(column.name, place), column.type.entry.hot, column)
        for place, column in enumerate(definition.columns)
        if column.type.entry.hot is not None
    )


def group_of(servers: Iterable[str]) -> int:
    """A number for the servers that answer together, by name, whatever their order; never 0.

    The view has it, and the servers: so that no server answers a query whose other calls may meet one that
    it does not know of.
    """
    named = sorted(set(servers))
    return int.from_bytes(hashlib.sha256(" ".join(named).encode()).digest()[:7], "big") + 1


def kept_columns(definition: LiveTable) -> dict[str, str]:
    """With partial updates, by value column the name of one that says whether no hot record sets it.

    The cold row has its value then; it is null where there is none. Without them empty.
    """
    if not definition.merging.is_partial:
        return {}
    places = {column.name: place for place, column in enumerate(definition.columns)}
    return {column.name: f"h_k{places[column.name]}" for column in definition.value_columns}


def unservable(definition: LiveTable) -> str | None:
    """Why the hot rows can't be laid over the table in Trino, or None where they can."""
    if definition.merging.problem_over_rows:  # safety: hot-view-unservable
        return definition.merging.problem_over_rows
    nested = next((one.name for one in definition.columns if one.type.entry.hot is None), None)
    return None if nested is None else f"Trino's Thrift connector has no type for the nested column {nested}"


def _name(column: str, place: int) -> str:
    return column if _PLAIN.fullmatch(column) else f"h_c{place}"
