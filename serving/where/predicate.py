"""Conditions on the columns of a row: the few kinds that there are, with values of the columns' types.

Each is true, false or unknown, as in SQL: what compares null is unknown, and only rows for which the whole
is true are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from thermocline.rules.definition import Column

Operator = Literal["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Value:
    """A natural value of a column's type, never null."""

    of: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a value, or with another column of the same type."""

    column: Column
    operator: Operator
    operand: Value | Column


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether a column's value is one of several, at least one."""

    column: Column
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Whether all of a text matches: ``%`` is any text, ``_`` any one character, the rest itself."""

    column: Column
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null; never unknown."""

    column: Column


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of unknown, unknown."""

    condition: Predicate


@dataclass(frozen=True, slots=True)
class Every:
    """Whether all of several, at least one, are true."""

    conditions: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Whether any of several, at least one, is true."""

    conditions: tuple[Predicate, ...]


Predicate: TypeAlias = Comparison | OneOf | Like | IsNull | Not | Every | Either


def columns_of(predicate: Predicate) -> Iterator[str]:
    """The names of the columns that it looks at, some of them maybe twice."""
    match predicate:
        case Not(condition):
            yield from columns_of(condition)
        case Every(conditions) | Either(conditions):
            for condition in conditions:
                yield from columns_of(condition)
        case Comparison(column, _, Column() as other):
            yield from (column.name, other.name)
        case _:
            yield predicate.column.name
