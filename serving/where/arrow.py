"""Reads a condition that DuckDB hands to a scan, as Arrow has it: what surely holds of the rows it leaves.

Arrow shows no parts of an expression, but pickles it as a list of them. What is read there is taken only
where the same expression comes out when it is built again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.column_types import Kind
from thermocline.rules.definition import Column
from thermocline.serving.where.key_range import PREFIXES_MAX
from thermocline.serving.where.predicate import Comparison, Either, Every, OneOf, Operator, Predicate, Value

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

_PART: Final = re.compile(r"^(call|field_ref|literal|options|end): '(.*)'$", re.MULTILINE)
_OPERATORS: Final[Mapping[str, Operator]] = {
    "equal": "=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_UNREADABLE: Final = (pa.ArrowException, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression, built again, and what it stands for; None: for nothing that is known here."""

    expression: pc.Expression
    of: Column | pa.Scalar | Predicate | None = None


def implied(definition: LiveTable, condition: pc.Expression | None) -> Predicate | None:
    """A condition on declared columns that is true of all rows of which the given one is, if one is known.

    So an extract reads only the buckets, files and row groups that may have such rows. The given one is still
    to be laid on its rows: it may leave fewer.
    """
    if condition is None:
        return None
    # NaN and zeros are compared in different ways.
    columns = {one.name: one for one in definition.columns if one.type.kind is not Kind.DOUBLE}
    try:
        read = _read(columns, condition)
    except _UNREADABLE:  # a kind of expression that is not known here
        return None
    is_same = read.expression.equals(condition)  # safety: sql-condition-again
    return read.of if is_same and isinstance(read.of, Predicate) else None


def _read(columns: Mapping[str, Column], condition: pc.Expression) -> _Part:
    _, (pickled,) = condition.__reduce__()
    with pa.ipc.open_file(pickled) as file:
        given = file.get_batch(0)
    parts: list[list[_Part]] = [[]]
    options: pa.Scalar | None = None
    for kind, text in _PART.findall(given.schema.to_string(truncate_metadata=False)):
        match kind:
            case "field_ref":
                parts[-1].append(_Part(pc.field(text), columns.get(text)))
            case "literal":
                literal = given.column(int(text))[0]
                parts[-1].append(_Part(pc.scalar(literal), literal))
            case "call":
                parts.append([])
            case "options":  # of the call that ends now
                options = given.column(int(text))[0]
            case "end":
                arguments = parts.pop()
                parts[-1].append(_call(text, arguments, options))
                options = None
    ((whole,),) = parts
    return whole


def _call(name: str, arguments: Sequence[_Part], options: pa.Scalar | None) -> _Part:
    operands = [one.expression for one in arguments]
    if options is None:
        build: Callable[..., pc.Expression] = getattr(pc, name)
        return _Part(build(*operands), _meaning(name, [one.of for one in arguments]))
    match name:
        case "is_in":
            values = options["value_set"].values
            return _Part(operands[0].isin(values), _one_of(arguments[0].of, values))
        case "is_null":
            return _Part(operands[0].is_null(nan_is_null=options["nan_is_null"].as_py()))
    raise LookupError(name)


def _meaning(name: str, arguments: Sequence[object]) -> Predicate | None:
    """What surely holds where a call is true."""
    known = tuple(one for one in arguments if isinstance(one, Predicate))
    match name, arguments:
        case "and_kleene", _:
            return _joined(Every, known) if known else None
        case "or_kleene", _:
            return _joined(Either, known) if len(known) == len(arguments) else None  # safety: sql-either
        case "if_else", (_, then, pa.Scalar(is_valid=False)) if isinstance(then, Predicate):
            return then
        case _, (Column() as column, pa.Scalar(is_valid=True) as value) if name in _OPERATORS:
            natural = _natural([value])
            return Comparison(column, _OPERATORS[name], *natural) if natural else None
    return None


def _joined(kind: type[Every | Either], several: Sequence[Predicate]) -> Predicate:
    """One level of a chain, however long: Arrow's have one for each part."""
    parts: list[Predicate] = []
    for one in several:
        parts += one.conditions if isinstance(one, kind) else (one,)
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _one_of(column: object, values: pa.Array) -> Predicate | None:
    if not isinstance(column, Column) or len(values) > PREFIXES_MAX or values.null_count:
        return None
    natural = _natural(values)
    return OneOf(column, natural) if natural else None


def _natural(values: Iterable[pa.Scalar]) -> tuple[Value, ...]:
    """The values as Python has them; none, where one is a time that Python can't have."""
    try:
        return tuple(Value(one.as_py()) for one in values)
    except OverflowError:
        return ()
