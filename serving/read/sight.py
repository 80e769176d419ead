"""A caller's sight of a table: its rows and columns without those that are not for them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thermocline.bounded import Bounded
from thermocline.errors import NotPermitted
from thermocline.process.logs import fields
from thermocline.rules.decode import json_row
from thermocline.rules.definition import PROVENANCE, Column, LiveTable
from thermocline.rules.keys import parse_value
from thermocline.serving.cold.entity_rows import NO_ROWS, JsonRows
from thermocline.serving.cold.row_json import row_form
from thermocline.serving.read.caller import WHOLE
from thermocline.serving.where.predicate import Comparison, Every, Predicate, Value

if TYPE_CHECKING:
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.read.caller import Caller, Part

__all__ = ["GrantProblem", "Sight", "Sights", "sight_of"]

log = logging.getLogger(__name__)

_SHOWN: Final = ("key", "entity", "columns")
"""Of a definition, what tells of nothing that its columns do not."""
_IDS: Final = frozenset({"id", "ids", "nested_ids"})
SIGHTS_KEPT_MAX: Final = 4_096
"""Of all tables and callers; each takes a few kilobytes."""


class GrantProblem(ValueError):
    """What is wrong with a grant, as a plain sentence."""


@dataclass(frozen=True)
class Sight:
    """The part of a table that a caller sees, by one of the table's definitions.

    ``definition`` has the columns that they see alone: what they name is looked for there, so that another
    column is to them as if it did not exist. ``scope`` are columns, seen or not, with the only value that
    they have in the rows that they see.
    """

    definition: LiveTable
    scope: tuple[tuple[Column, Any], ...] = ()
    has_all_columns: bool = True

    @classmethod
    def of(cls, definition: LiveTable, part: Part) -> Sight:
        """Raises `GrantProblem` where the part names what the table does not have."""
        if part == WHOLE:
            return cls(definition)
        by_name = {column.name: column for column in definition.given_columns}
        scope = tuple((_column(definition, by_name, name), text) for name, text in part.scope)
        values = tuple((column, _value(column, text)) for column, text in scope)
        if part.columns is None:
            return cls(definition, values)
        for name in part.columns:
            _column(definition, by_name, name)
        seen = {*definition.identity, *part.columns}
        columns = tuple(column for column in definition.columns if column.name in seen)
        # safety: sight-columns
        return cls(replace(definition, columns=columns), values, has_all_columns=False)

    @property
    def is_whole(self) -> bool:
        """Whether it is every row and column."""
        return self.has_all_columns and not self.scope

    @property
    def predicate(self) -> Predicate | None:
        """What is true of the rows that are seen; None: of all."""
        each = tuple(Comparison(column, "=", Value(value)) for column, value in self.scope)
        return Every(each) if each else None

    def definition_json(self) -> str:
        """The definition as a table carries it; where a part is seen, the key and the columns of it alone."""
        stored = self.definition.to_json()
        if self.is_whole:
            return stored
        shown = {name: part for name, part in json.loads(stored).items() if name in _SHOWN}
        return json.dumps(_without_ids(shown))

    def may_see(self, entity: Entity) -> bool:
        """Whether rows of that entity can be seen; where not, nothing of it is to be read."""
        values = entity.values
        return all(
            place >= len(values) or values[place] == value  # safety: sight-entity
            for place, value in self._by_place
        )

    def rows(self, rows: JsonRows) -> JsonRows:
        """Those of the rows of an entity that may be seen, with the columns that are."""
        if (self.has_all_columns and not self._texts) or rows == NO_ROWS:
            return rows
        found = msgspec.json.decode(rows, type=list[dict[str, msgspec.Raw]])
        kept = [
            {name: row[name] for name in self._names}
            for row in found
            if all(bytes(row[name]) == text for name, text in self._texts)  # safety: sight-rows
        ]
        return msgspec.json.encode(kept)

    @cached_property
    def _by_place(self) -> tuple[tuple[int, Any], ...]:
        """The columns of the scope that are in the key, by their place there."""
        places = {column.name: place for place, column in enumerate(self.definition.key_columns)}
        return tuple((places[column.name], value) for column, value in self.scope if column.name in places)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.definition.columns)

    @cached_property
    def _texts(self) -> tuple[tuple[str, bytes], ...]:
        """The scope as it stands in the JSON of rows, but for what all rows of an entity have in common."""
        entity = self.definition.entity
        return tuple((one.name, _json(one, value)) for one, value in self.scope if one.name not in entity)


class Sights:
    """What callers see, kept for as long as a table's definition stays. For one thread."""

    def __init__(self) -> None:
        self._kept: Bounded[tuple[str, Part], tuple[LiveTable, Sight]] = Bounded(SIGHTS_KEPT_MAX)

    def of(self, caller: Caller, definition: LiveTable) -> Sight:
        """Raises `NotPermitted` where their grant does not fit the table."""
        key = definition.name, caller.grant(definition.name).part
        known = self._kept.get(key)
        if known is None or known[0] is not definition:
            known = self._kept.put(key, (definition, sight_of(caller, definition)), 1)
        return known[1]


def sight_of(caller: Caller, definition: LiveTable) -> Sight:
    """What a caller sees of a table. Raises `NotPermitted` where their grant does not fit it."""
    try:
        return Sight.of(definition, caller.grant(definition.name).part)
    except GrantProblem as error:
        log.warning("a grant does not fit", extra=fields(caller=caller.name, detail=str(error)))
        detail = "read it: their grant does not fit the table"
        # safety: sight-fits
        raise NotPermitted(caller=caller.name, table=definition.name, detail=detail) from error


def _without_ids(part: Any) -> Any:
    """A definition without the numbers of fields: where some are missing, there are others."""
    match part:
        case dict():
            return {name: _without_ids(value) for name, value in part.items() if name not in _IDS}
        case list():
            return [_without_ids(one) for one in part]
    return part


def _column(definition: LiveTable, by_name: dict[str, Column], name: str) -> Column:
    if name not in by_name or name in PROVENANCE:
        raise GrantProblem(f'it names "{name}", which is no column of {definition.name}')
    return by_name[name]


def _value(column: Column, text: str) -> Any:
    if column.type.of_text is None or column.type.python is float:
        raise GrantProblem(f"its scope is on {column.name}, which is {column.type.with_article}")
    try:
        return parse_value(column, text)
    except ValueError as error:
        raise GrantProblem(f"its scope can't be read: {error}") from error


def _json(column: Column, value: Any) -> bytes:
    text = json_row(row_form([column])(value))
    (found,) = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).values()
    return bytes(found)
