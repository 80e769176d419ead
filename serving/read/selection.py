"""A selection of an extract: columns, rows that match a condition, and at most so many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.errors import BadParameter
from thermocline.rules.definition import PROVENANCE
from thermocline.serving.read.caller import Action
from thermocline.serving.where.key_range import KeyRange
from thermocline.serving.where.predicate import Every, columns_of
from thermocline.serving.where.sql import parse_where

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.read.caller import Caller
    from thermocline.serving.read.wanted import Wanted
    from thermocline.serving.where.predicate import Predicate


@dataclass(frozen=True, slots=True)
class Selection:
    """What is `Wanted`, checked against a table's definition.

    ``read`` are the columns, and then those that only the condition looks at.
    """

    columns: tuple[str, ...]
    read: tuple[str, ...]
    predicate: Predicate | None
    keys: KeyRange
    limit: int | None

    @classmethod
    def of(cls, definition: LiveTable, wanted: Wanted) -> Selection:
        """Without columns, it has the declared ones; provenance only where it is named.

        Raises:
            BadParameter: a name is neither a declared column nor one of provenance.
            BadParameter: a column is named twice, or none is.
            BadParameter: as `parse_where`; or the limit is negative.
            BadParameter: changes are asked for with a limit, or without a key column.
            NotPermitted: the caller may not read the table, or asks for changes and sees only some rows.
        """
        wanted.caller.check(Action.READ, definition.name)
        if wanted.limit is not None and wanted.limit < 0:
            raise BadParameter(name="limit", problem="it is a number of rows, 0 or more")
        columns = _columns(definition, wanted.columns)
        if wanted.since is not None:
            _check_changes(definition, columns, wanted.limit)
            # Of a row that they don't see, they would be told that it is gone.
            wanted.caller.check_sees_all(definition.name, "read changes of it")
        where = wanted.where
        predicate = parse_where(definition, where) if isinstance(where, str) else where
        predicate = _within_scope(definition, predicate, wanted.caller)
        looked_at = () if predicate is None else columns_of(predicate)
        read = tuple(dict.fromkeys((*columns, *looked_at)))
        return cls(columns, read, predicate, KeyRange.of(definition, predicate), wanted.limit)


def _within_scope(definition: LiveTable, predicate: Predicate | None, caller: Caller) -> Predicate | None:
    """The condition, for the rows that a caller sees."""
    scope = caller.scopes.get(definition.name)
    if scope is None:
        return predicate
    seen = parse_where(definition, scope)
    return seen if predicate is None else Every((seen, predicate))  # safety: caller-scope


def _check_changes(definition: LiveTable, columns: Sequence[str], limit: int | None) -> None:
    """Makes sure that all changes are given, and each with its key. Raises `BadParameter`."""
    if limit is not None:
        raise BadParameter(name="limit", problem="it can't be combined with since")
    for name in definition.key:
        if name not in columns:
            problem = f"with since, it names every key column, and {name} is missing"
            raise BadParameter(name="columns", problem=problem)


def _columns(definition: LiveTable, wanted: Sequence[str] | None) -> tuple[str, ...]:
    declared = tuple(column.name for column in definition.columns)
    if wanted is None:
        return declared
    if not wanted:
        raise BadParameter(name="columns", problem="it names no column; leave it out for all")
    for place, name in enumerate(wanted):
        if name not in (*declared, *PROVENANCE):
            raise BadParameter.unknown_column(definition.name, name, declared, PROVENANCE)
        if name in wanted[:place]:
            raise BadParameter(name="columns", problem=f"it names {name} twice")
    return tuple(wanted)
