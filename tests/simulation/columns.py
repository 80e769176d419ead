"""The columns of the table in histories in which they change, as the oracle reads them from its definition.

It shares no code with the definition's own reading, nor with what numbers and matches columns.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.faults import Violation
from tests.simulation.records import DEFINITIONS_MAX, PLAIN, More, Row

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.records import Fields

BY_HAND: Final = "somebody"
"""The process that alters the table."""
_INT_MAX: Final = (1 << 31) - 1


class SeenColumn(NamedTuple):
    """A column that is none of the plain ones, and the field of records that it is read from."""

    field_id: int
    name: str
    field: str
    is_int: bool


Columns = tuple[SeenColumn, ...]


@lru_cache(DEFINITIONS_MAX)
def columns_of(text: str) -> Columns:
    """Those of a definition, in its order."""
    return tuple(
        SeenColumn(one["id"], one["name"], one.get("path", [one["name"]])[0], one["type"] == "int")
        for one in json.loads(text)["columns"]
        if one["name"] not in PLAIN
    )


def decoded(fields: Fields, columns: Columns) -> More | None:
    """What a record has for these columns; None where it is bad by them."""
    found = {one.field_id: value for one in columns if (value := fields.get(one.field)) is not None}
    if any(one.is_int and found.get(one.field_id, 0) > _INT_MAX for one in columns):
        return None
    return tuple(sorted(found.items()))


def shown(row: Row, columns: Columns) -> Row:
    """A row as a table with these columns shows it, whatever its file has."""
    if not row.more:
        return row
    ids = {one.field_id for one in columns}
    return row._replace(more=tuple(one for one in row.more if one[0] in ids))


def named(row: Row, columns: Columns) -> tuple[tuple[str, int | None], ...]:
    """The values of these columns by their names, in alphabetical order; null where a row has none."""
    values = dict(row.more)
    return tuple(sorted((one.name, values.get(one.field_id)) for one in columns))


class SeenTable:
    """The columns of the table now, and what must be so when they change."""

    def __init__(self) -> None:
        self.columns: Columns = ()
        self._ids: set[int] = set()
        self._dropped: set[str] = set()

    def changed(self, text: str, by: str) -> bool:
        """The table has this definition; whether it took columns up by itself. Raises `Violation`."""
        columns = columns_of(text)
        if columns == self.columns:
            return False
        before, now = ({one.field_id: one for one in some} for some in (self.columns, columns))
        added = [one for one in columns if one.field_id not in before]
        self._check_added(added, is_by_hand=by.startswith(BY_HAND))
        for one in columns:
            then = before.get(one.field_id, one)
            if then.field != one.field or (one.is_int and not then.is_int):
                raise Violation("column-differs", f"{then} became {one}")
        self._ids |= now.keys()
        self._dropped |= {one.field for one in self.columns if one.field_id not in now}
        self._dropped -= {one.field for one in added}
        self.columns = columns
        return bool(added) and not by.startswith(BY_HAND)

    def _check_added(self, added: Collection[SeenColumn], is_by_hand: bool) -> None:
        for one in added:
            if one.field_id in self._ids:
                raise Violation("field-id-given-twice", f"{one}")
            if not is_by_hand and one.field in self._dropped:
                raise Violation("dropped-came-back", f"{one} was dropped by somebody")
