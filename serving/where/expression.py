"""A condition as DuckDB evaluates it: built of its expressions, with values as values, never as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any, Final

from duckdb import CoalesceOperator, ColumnExpression, ConstantExpression, Expression, FunctionExpression

from thermocline.rules.definition import Column
from thermocline.serving.where.predicate import (
    Comparison,
    Either,
    Every,
    IsNull,
    Like,
    Not,
    OneOf,
    Operator,
    Predicate,
    Value,
)

_OPERATORS: Final[Mapping[Operator, Callable[[Any, Any], Expression]]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_LIKE: Final = "~~"  # the function behind LIKE


def expression_of(predicate: Predicate, names: Mapping[str, str]) -> Expression:
    """The condition on a relation in which each column has the name that ``names`` gives it."""
    match predicate:
        case Not(condition):
            return ~expression_of(condition, names)
        case Every(conditions):
            return _joined(and_, [expression_of(one, names) for one in conditions])
        case Either(conditions):
            return _joined(or_, [expression_of(one, names) for one in conditions])
    column = ColumnExpression(names[predicate.column.name])
    match predicate:
        case Comparison(of, operator, operand):
            right = (
                ColumnExpression(names[operand.name])
                if isinstance(operand, Column)
                else _constant(of, operand)
            )
            return _OPERATORS[operator](column, right)
        case OneOf(of, values):
            return column.isin(*(_constant(of, value) for value in values))
        case Like(_, pattern):
            return FunctionExpression(_LIKE, column, ConstantExpression(pattern))
        case IsNull():
            # A plain IS NULL is answered from a row group's statistics. By these, DuckDB (2.0.0) takes a
            # column of text or bytes without a dictionary for all nulls where its values are all the same.
            return CoalesceOperator(column.isnull(), ConstantExpression(False))  # safety: where-null


def _constant(column: Column, value: Value) -> Expression:
    stored = column.type.stored
    return ConstantExpression(value.of if stored is None else stored(value.of))


def _joined(
    join: Callable[[Expression, Expression], Expression], several: Sequence[Expression]
) -> Expression:
    """Halves joined: DuckDB refuses expressions a thousand levels deep, as a long chain would be."""
    if len(several) == 1:
        return several[0]
    middle = len(several) // 2
    return join(_joined(join, several[:middle]), _joined(join, several[middle:]))
