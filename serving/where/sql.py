"""Reads a condition in SQL: columns, values, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS NULL.

sqlglot parses the text; of its tree, only what is listed here is taken over. Everything else is refused,
whatever it means, and so is any property of a listed part that is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from thermocline.errors import BadParameter
from thermocline.rules.column_types import ColumnType, Token, for_every
from thermocline.rules.definition import PROVENANCE, Column, LiveTable
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

NAME: Final = "where"
LENGTH_MAX: Final = 16_384
"""Characters: a list of 400 UUIDs. It is parsed in less than a tenth of a second."""
DEPTH_MAX: Final = 50
"""Of conditions within each other: more than people write, and few enough for every parser's recursion."""
ALLOWED: Final = (
    "a condition has columns, values, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS [NOT] NULL, "
    "and nothing else"
)

_OPERATORS: Final[Mapping[type[exp.Expr], Operator]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_SWAPPED: Final[Mapping[Operator, Operator]] = {
    "=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip


def parse_where(definition: LiveTable, text: str) -> Predicate:
    """The condition that a caller writes in SQL, on columns of the table, provenance included.

    Names are as declared, case included, in double quotes where they are no plain words. Numbers stand for
    themselves; text, and what JSON spells as text (dates, times, UUIDs, binary), is in single quotes, spelled
    as in the rows of a lookup.

    Raises:
        BadParameter: it is no such condition, too long, or nested too deeply.
        BadParameter: a column is not the table's, or a value does not fit its column.
    """
    if len(text) > LENGTH_MAX:
        raise _refused(f"it has {len(text):,} characters, and at most {LENGTH_MAX:,} are read")
    try:
        text.encode()
        _check_depth(text)
        return _Reader(definition).condition(sqlglot.parse_one(text, into=exp.Condition), 0)
    except UnicodeEncodeError as error:
        raise _refused("it is not valid UTF-8") from error
    except SqlglotError as error:
        raise _refused(f"it can't be read as SQL{_place_of(error)}; {ALLOWED}") from error
    except RecursionError as error:  # a long chain of signs is a deep tree, also to show
        raise _too_deep() from error


class _Reader:
    def __init__(self, definition: LiveTable) -> None:
        self._table = definition.name
        self._declared = [column.name for column in definition.columns]
        self._columns = {column.name: column for column in definition.given_columns}

    def condition(self, node: exp.Expr, depth: int) -> Predicate:
        if depth > DEPTH_MAX:
            raise _too_deep()
        match node:
            case exp.Paren():
                return self.condition(_part(node), depth + 1)
            case exp.Not():
                return Not(self.condition(_part(node), depth + 1))
            case exp.And() | exp.Or():
                kind = Every if isinstance(node, exp.And) else Either
                return kind(tuple(self.condition(one, depth + 1) for one in _joined(node)))
            case exp.Column():
                return self._flag(node)
        return self._simple(node)

    def _simple(self, node: exp.Expr) -> Predicate:
        """A condition that has no others within it."""
        match node:
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._comparison(node)
            case exp.In():
                return self._one_of(node)
            case exp.Between():
                return self._between(node)
            case exp.Like():
                return self._like(node)
            case exp.Is(expression=exp.Null()):
                _check_parts(node, {"this", "expression"})
                return IsNull(self._column(node.this))
        raise _refused(f"{_shown(node)}: {ALLOWED}")

    def _flag(self, node: exp.Column) -> Predicate:
        column = self._column(node)
        if column.type.entry.token is not Token.TRUTH:
            raise _refused(f"{column.name} alone is no condition: it is a {column.type}")
        return Comparison(column, "=", Value(True))

    def _comparison(self, node: exp.Expr) -> Predicate:
        _check_parts(node, {"this", "expression"})
        operator = _OPERATORS[type(node)]
        left, right = node.this, node.expression
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            left, right, operator = right, left, _SWAPPED[operator]
        column = self._comparable(left)
        if not isinstance(right, exp.Column):
            return Comparison(column, operator, _value(column, right))
        other = self._comparable(right)
        if other.type.arrow != column.type.arrow:
            problem = f"it is a {column.type}, and {other.name} is a {other.type}: they can't be compared"
            raise _refused(f"{column.name}: {problem}")
        return Comparison(column, operator, other)

    def _one_of(self, node: exp.In) -> Predicate:
        _check_parts(node, {"this", "expressions"})
        column = self._comparable(node.this)
        if not node.expressions:
            raise _refused(f"{_shown(node)}: IN needs at least one value")
        return OneOf(column, tuple(_value(column, one) for one in node.expressions))

    def _between(self, node: exp.Between) -> Predicate:
        _check_parts(node, {"this", "low", "high"})
        column = self._comparable(node.this)
        low, high = (_value(column, node.args[name]) for name in ("low", "high"))
        return Every((Comparison(column, ">=", low), Comparison(column, "<=", high)))

    def _like(self, node: exp.Like) -> Predicate:
        _check_parts(node, {"this", "expression", "negate"})
        column, pattern = self._column(node.this), node.expression
        if column.type.python is not str:
            raise _refused(f"LIKE is for text, and {column.name} is a {column.type}")
        like = Like(column, _value(column, pattern).of)
        return Not(like) if node.args.get("negate") else like

    def _comparable(self, node: exp.Expr) -> Column:
        column = self._column(node)
        if column.type.fields:
            problem = f"it is a {column.type}, of which only IS [NOT] NULL can be asked"
            raise _refused(f"{column.name}: {problem}")
        return column

    def _column(self, node: exp.Expr) -> Column:
        if not isinstance(node, exp.Column):
            raise _refused(f"{_shown(node)} is no column; {ALLOWED}")
        _check_parts(node, {"this"})
        name = node.name
        if name not in self._columns:
            raise BadParameter.unknown_column(self._table, name, self._declared, PROVENANCE)
        return self._columns[name]


def _value(column: Column, node: exp.Expr) -> Value:
    """A literal as a value of the column's type."""
    match node:
        case exp.Null():
            hint = "nothing is equal to NULL; use IS NULL or IS NOT NULL"
            raise _refused(f"{_shown(node.parent or node)}: {hint}")
        case exp.Boolean():
            token, text = Token.TRUTH, str(node.this)
        case exp.Literal(is_string=True):
            token, text = Token.TEXT, node.name
        case exp.Literal():
            token, text = Token.NUMBER, node.name
        case exp.Neg(this=exp.Literal(is_string=False)):
            token, text = Token.NUMBER, f"-{node.this.name}"
        case _:
            raise _refused(f"{_shown(node)} is no value; {ALLOWED}")
    try:
        return Value(_read(column.type, token, text))
    except ValueError as error:
        problem = f"{column.name} is {column.type.with_article}, so {_shown(node)} is no value of it: {error}"
        raise _refused(problem) from None


def _read(of: ColumnType, token: Token, text: str) -> Any:
    if token is not of.entry.token:
        raise ValueError(_SPELLED[of.entry.token] if of.entry.token else "it has no values here")
    if token is Token.TRUTH:
        return text == "True"
    assert of.of_text is not None
    return of.of_text(text)


_SPELLED: Final[Mapping[Token, str]] = for_every(
    Token,
    {
        Token.NUMBER: "it is written as a number, without quotes",
        Token.TEXT: "it is written in single quotes",
        Token.TRUTH: "it is written TRUE or FALSE",
    },
)


def _check_depth(text: str) -> None:
    """Refuses what would take a parser, which calls itself for each level, too deep.

    Or too long: what stands in brackets behind a type, as in a call, is parsed twice, and so is what stands
    in brackets behind a type in it. No condition has a call.
    """
    signs = 0
    open_calls: list[bool] = []
    before: TokenType | None = None
    for token in sqlglot.tokenize(text):
        kind = token.token_type
        if kind in _OPENING:
            open_calls.append(kind is not TokenType.L_PAREN or before not in _BEFORE_PARENTHESES)
        elif kind in _CLOSING and open_calls:
            open_calls.pop()
        signs = signs + 1 if kind in _PREFIXES else 0
        if max(len(open_calls), signs) > DEPTH_MAX:
            raise _too_deep()
        if sum(open_calls) > CALLS_MAX:
            raise _refused(f"it has calls within calls; {ALLOWED}")
        before = kind


CALLS_MAX: Final = 3
"""Within each other."""
_PREFIXES: Final = (TokenType.NOT, TokenType.DASH, TokenType.PLUS)
_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET)
_BEFORE_PARENTHESES: Final = (
    None,
    TokenType.L_PAREN,
    TokenType.COMMA,
    TokenType.NOT,
    TokenType.AND,
    TokenType.OR,
    TokenType.IN,
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
    TokenType.LIKE,
    TokenType.BETWEEN,
    TokenType.IS,
    TokenType.DASH,
    TokenType.PLUS,
)


def _joined(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions of a chain of ANDs, or of ORs, in order; however long, it is one level."""
    parts = []
    kind = type(node)
    while type(node) is kind:
        _check_parts(node, {"this", "expression"})
        parts.append(node.expression)
        node = node.this
    return iter([node, *reversed(parts)])


def _part(node: exp.Expr) -> exp.Expr:
    _check_parts(node, {"this"})
    part: exp.Expr = node.this
    return part


def _check_parts(node: exp.Expr, known: Collection[str]) -> None:
    """Refuses what says more than is looked at: SYMMETRIC, subqueries, a table's name before a column's."""
    if any(value for name, value in node.args.items() if name not in known):  # safety: where-all-of-it
        raise _refused(f"{_shown(node)}: {ALLOWED}")


def _shown(node: exp.Expr) -> str:
    text: str = node.sql()
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


_SHOWN_MAX: Final = 80


def _place_of(error: SqlglotError) -> str:
    """Where it stops making sense, if sqlglot says so."""
    errors: list[dict[str, Any]] = getattr(error, "errors", [])
    near = errors[0].get("highlight") if errors else None
    return f' near "{near}"' if near else ""


def _too_deep() -> BadParameter:
    return _refused(f"it is nested more than {DEPTH_MAX} levels deep")


def _refused(problem: str) -> BadParameter:
    return BadParameter(name=NAME, problem=problem)
