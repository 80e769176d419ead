"""A selection of an extract: columns, rows that match a condition, and at most so many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.errors import BadParameter, NotPermitted
from thermocline.rules.definition import PROVENANCE
from thermocline.serving.read.sight import sight_of
from thermocline.serving.where.key_range import KeyRange
from thermocline.serving.where.predicate import Every, columns_of
from thermocline.serving.where.sql import parse_where

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.read.caller import Caller
    from thermocline.serving.read.sight import Sight
    from thermocline.serving.read.wanted import Wanted
    from thermocline.serving.where.predicate import Predicate


@dataclass(frozen=True, slots=True)
class Selection:
    """What is `Wanted`, checked against a table's definition.

    ``read`` are the columns, and then those that only the condition looks at. ``scope`` is
    true of the rows that the caller sees; the ``predicate`` says so, too.
    """

    columns: tuple[str, ...]
    read: tuple[str, ...]
    predicate: Predicate | None
    keys: KeyRange
    limit: int | None
    scope: Predicate | None = None

    @classmethod
    def of(cls, definition: LiveTable, wanted: Wanted) -> Selection:
        """Without columns, it has the declared ones; provenance only where it is named.

        Raises:
            BadParameter: a name is neither a declared column nor one of provenance.
            BadParameter: a column is named twice, or none is.
            BadParameter: as `parse_where`; or the limit is negative.
            BadParameter: changes are asked for with a limit, or without a key column.
            NotPermitted: the caller asks for changes, and the key does not say which rows they see.
        """
        sight = sight_of(wanted.caller, definition)
        if wanted.limit is not None and wanted.limit < 0:
            raise BadParameter(name="limit", problem="it is a number of rows, 0 or more")
        columns = _columns(sight.definition, wanted.columns)
        if wanted.since is not None:
            _check_changes(definition, columns, wanted.limit)
            _check_scope_of_changes(definition, sight, wanted.caller)
        where = wanted.where
        predicate = parse_where(sight.definition, where) if isinstance(where, str) else where
        predicate = _within(sight, predicate)
        looked_at = () if predicate is None else columns_of(predicate)
        read = tuple(dict.fromkeys((*columns, *looked_at)))
        keys = KeyRange.of(definition, predicate)
        return cls(columns, read, predicate, keys, wanted.limit, sight.predicate)


def _within(sight: Sight, predicate: Predicate | None) -> Predicate | None:
    """The condition, for the rows that a caller sees."""
    seen = sight.predicate
    if seen is None:
        return predicate
    return seen if predicate is None else Every((seen, predicate))  # safety: caller-scope


def _check_scope_of_changes(definition: LiveTable, sight: Sight, caller: Caller) -> None:
    """Makes sure that the key says whether a row is seen: of one that is not, its going must not be told."""
    if definition.has_key and any(column.name not in definition.key for column, _ in sight.scope):
        detail = "read changes of it: which rows they see does not follow from the key"
        # safety: caller-scope-of-changes
        raise NotPermitted(caller=caller.name, table=definition.name, detail=detail)


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
