"""Records of one writer's schema as columns, by code that is written for that schema.

A reader that asks the schema at each field takes several times as long. So the fields are asked once, when
the code is written; nothing of a schema's text gets into it but numbers. Only what columns ask for becomes
values, and the rest is passed over. Fields may be read more than once, where several columns ask for them.

This is not left to fastavro: its compiled reader ends the process on records that are nested deeply, takes
time for items without bytes until it is killed, and does not mind bytes that follow a record's end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any, Final

from thermocline.rules.avro_schema import AvroType, SchemaInvalid
from thermocline.rules.column_types import Kind
from thermocline.rules.decode.avro.fitting import Convert, conversion, json_text
from thermocline.rules.decode.avro.nested import fitted, nested_taker
from thermocline.rules.decode.avro.values import WIDTHS, Malformed, branch_of, long_at, passer, taker
from thermocline.rules.decode.exact import finite
from thermocline.rules.decode.fields import RowFields
from thermocline.rules.decode.formats import PRESENCE, UNSET, Refusals
from thermocline.rules.decode.schema_documents import Target
from thermocline.rules.definition import Column

__all__ = ["RecordReader"]

LINES_MAX: Final = 20_000
"""Of the code for one schema: unions of records within each other would double it with each level."""
DEPTH_MAX: Final = 60
"""Of blocks within each other in that code. Python takes no more than 100."""
INLINED_LEVELS_MAX: Final = 4
INLINED_LINES_MAX: Final = 2_000
"""So much code of records that are passed over: never so much that a schema would be too large by it."""
INLINED_FIELD_LINES: Final = 8  # about what a field takes
_REFUSALS: Final = (IndexError, struct.error, ValueError, OverflowError, RecursionError)
_TOO_SHORT: Final = "the record ends before its schema does"


class RecordReader:
    """Reads the bodies of records that one schema wrote."""

    def __init__(
        self,
        schema: AvroType,
        columns: Sequence[Column],
        required: Sequence[str],
        tells_unset: bool,
        row_fields: RowFields,
    ) -> None:
        """Prepares for columns of these names, of which some must not be null.

        ``tells_unset``: the others are `UNSET` where the schema lacks their field. ``row_fields``: rows that
        have none of these are refused.

        Raises:
            SchemaInvalid: no record of that schema is read.
        """
        self._columns = columns
        self._required = frozenset(required)
        may_lack = {column.name for column in columns} - self._required if tells_unset else frozenset()
        try:
            self._read, self._conversions = _Code(columns, may_lack, row_fields).of(schema)
        except RecursionError:
            raise SchemaInvalid("its types are too deep within each other") from None

    def read(self, bodies: Sequence[bytes], start: int, refused: Refusals) -> list[list[Any]]:
        """A list of natural values for each column, aligned with the bodies; each begins at ``start``.

        What is refused is by the place among the bodies, and has null everywhere.
        """
        failures: dict[int, BaseException] = {}
        found = self._read(bodies, start, failures)
        for index, error in failures.items():
            refused[index] = (None, _reason_of(error))
        for number, column in enumerate(self._columns):
            found[number] = self._converted(column, self._conversions[number], found[number], refused)
            if column.name in self._required:
                for index, value in enumerate(found[number]):
                    if value is None:  # safety: avro-key-null
                        refused.setdefault(index, (column, _reason(column, "missing")))
        return found

    def _converted(
        self, column: Column, convert: Convert | None, values: list[Any], refused: Refusals
    ) -> list[Any]:
        if convert is None or (convert is finite and _are_finite(values)):
            return values
        try:
            return [None if value is None else convert(value) for value in values]
        except (ValueError, RecursionError):
            pass
        converted = []
        for index, value in enumerate(values):
            try:
                converted.append(None if value is None else convert(value))
            except (ValueError, RecursionError) as error:
                refused.setdefault(index, (column, _reason(column, error)))
                converted.append(None)
        return converted


def _are_finite(values: Sequence[float | None]) -> bool:
    """Whether none is infinite or not a number, as far as their sum says; it may be too large itself."""
    return isfinite(sum(filter(None, values)))


def _reason(column: Column, why: object) -> str:
    return f"{column.name} ({column.type}): {why}"


def _reason_of(error: BaseException) -> str:
    match error:
        case _NoRow():
            return str(error)
        case Malformed():
            return f"not Avro by its schema: {error}"
        case UnicodeDecodeError():
            return "not Avro by its schema: a string is not UTF-8"
        case _:
            return f"not Avro by its schema: {_TOO_SHORT}"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the code; of one that gives a column's value, the column and the conversion of that value."""

    depth: int
    text: str
    number: int = -1
    convert: Convert | None = None


class _Code:
    """Writes the code of one schema."""

    def __init__(self, columns: Sequence[Column], may_lack: Collection[str], row_fields: RowFields) -> None:
        self._columns = columns
        self._may_lack = may_lack
        self._row_fields = row_fields
        self._lines: list[_Line] = []
        self._names: dict[str, Any] = {
            "REFUSALS": _REFUSALS,
            "UNSET": UNSET,
            "end": _end,
            "no_row": _no_row,
            "bits": _bits,
            "negative": _negative,
            "boolean": _boolean,
            "long_at": long_at,
            "branch_of": branch_of,
            "double": struct.Struct("<d").unpack_from,
            "single": struct.Struct("<f").unpack_from,
        }

    def of(self, schema: AvroType) -> tuple[_Read, list[Convert | None]]:
        """The function that reads, and for each column what is to be made of the values that it gives."""
        numbers = range(len(self._columns))
        self._value(schema, self._targets(schema), _BODY_DEPTH, 0)
        conversions = [self._conversions(number) for number in numbers]
        nulls = "".join(f"v{number} = " for number in numbers) + "None"
        text = "\n".join(
            [
                "def read(bodies, start, failures):",
                *(f" c{number} = []; a{number} = c{number}.append" for number in numbers),
                " for i, b in enumerate(bodies):",
                f"  {nulls}",
                "  try:",
                "   p = start",
                *(_written(line, conversions) for line in self._lines),
                "   if p != len(b): end(p, len(b))",
                "  except REFUSALS as error:",
                "   failures[i] = error",
                f"   {nulls}",
                *(f"  a{number}(v{number})" for number in numbers),
                f" return [{', '.join(f'c{number}' for number in numbers)}]",
            ]
        )
        for number, several in enumerate(conversions):
            self._names |= {f"s{number}_{place}": convert for place, convert in enumerate(several)}
        exec(compile(text, "<reader of an Avro schema>", "exec"), self._names)  # noqa: S102  (see above)
        read: _Read = self._names["read"]
        return read, [
            _convert_by_place if len(several) > 1 else several[0] if several else None
            for several in conversions
        ]

    def _targets(self, schema: AvroType) -> list[Target]:
        """Each column by its path; a schema that is no record's has one column, which is all of it."""
        paths: list[tuple[str, ...]] = [column.read_from for column in self._columns]
        if not any(branch.kind == "record" for branch in schema.branches or (schema,)):
            if len(self._columns) > 1 or any(column.path for column in self._columns):
                raise SchemaInvalid(f"its records are each a {schema}, which has no fields")
            paths = [() for _ in self._columns]
        return [Target(n, column, paths[n]) for n, column in enumerate(self._columns)]

    def _conversions(self, number: int) -> list[Convert | None]:
        """Of all places that give a column's value."""
        return list(dict.fromkeys(line.convert for line in self._lines if line.number == number))

    def _add(self, depth: int, *texts: str) -> None:
        self._lines += [_Line(depth, text) for text in texts]
        if depth > DEPTH_MAX or len(self._lines) > LINES_MAX:
            raise SchemaInvalid("its types are too many, or too deep, within each other")

    def _give(self, depth: int, target: Target, value: str, convert: Convert | None) -> None:
        self._lines.append(_Line(depth, value, target.number, convert))

    def _named(self, thing: object) -> str:
        name = f"n{len(self._names)}"
        self._names[name] = thing
        return name

    def _value(self, of: AvroType, targets: Sequence[Target], depth: int, level: int) -> None:
        """Reads a value for its targets; the place is behind it then."""
        if of.kind != "union":
            targets = self._present(of, targets, depth)
        here = [target for target in targets if not target.path]
        inside = [target for target in targets if target.path]
        if of.kind == "union" and (targets or all(self._is_inlined(one, level) for one in of.branches)):
            self._union(of, targets, depth, level)
        elif not targets:
            self._pass(of, depth, level)
        elif here and len(targets) > 1:
            self._several(of, here, inside, depth, level)
        elif here:
            self._leaf(of, here[0], depth, level)
        elif of.kind == "record":
            self._record(of, inside, depth, level)
        else:
            self._without_fields(of, inside, depth, level)

    def _several(
        self, of: AvroType, here: Sequence[Target], inside: Sequence[Target], depth: int, level: int
    ) -> None:
        """Reads a value once for what is inside of it, and again for each target that is all of it."""
        again = f"q{len(self._lines)}"
        self._add(depth, f"{again} = p")
        for group in filter(None, ([inside, *([target] for target in here)])):
            self._add(depth, f"p = {again}")
            self._value(of, group, depth, level)

    def _record(self, of: AvroType, inside: Sequence[Target], depth: int, level: int) -> None:
        """Reads the fields that targets ask for, and passes over the others."""
        self._refuse_no_row(of, inside[0], depth)
        for name, type_ in of.fields:
            asking = [target.inside() for target in inside if target.path[0] == name]
            self._value(type_, asking, depth, level + 1)
        self._lack(of, inside, depth)

    def _without_fields(self, of: AvroType, inside: Sequence[Target], depth: int, level: int) -> None:
        """Passes over a value that should have fields, and has none."""
        self._pass(of, depth, level)
        for target in inside:
            why = f"the record has a value of type {of}, in which is no field {target.path[0]}"
            self._refuse(depth, of, target, why)

    def _lack(self, of: AvroType, targets: Sequence[Target], depth: int) -> None:
        """Leaves those as they are whose field a record's type lacks."""
        names = {name for name, _ in of.fields}
        for target in targets:
            if target.path[0] not in names and target.column.name in self._may_lack:  # safety: avro-unset
                self._give(depth, target, "UNSET", None)

    def _refuse_no_row(self, of: AvroType, target: Target, depth: int) -> None:
        """Refuses a record that is where the row is, and has none of the table's fields."""
        why = self._row_fields.problem(target.before, (name for name, _ in of.fields))
        if why:  # safety: avro-needs-a-field
            self._add(depth, f"no_row({self._named(why)})")

    def _present(self, of: AvroType, targets: Sequence[Target], depth: int) -> list[Target]:
        """Tells those that only ask whether there is a value; the others are left."""
        asking = [one for one in targets if not one.path and one.column.name == PRESENCE]
        for target in asking if of.kind != "null" else ():
            self._give(depth, target, "True", None)
        return [target for target in targets if target not in asking]

    def _union(self, of: AvroType, targets: Sequence[Target], depth: int, level: int) -> None:
        self._add(depth, *_NUMBER)
        for number, branch in enumerate(of.branches):
            self._add(depth, f"{'el' if number else ''}if n == {2 * number}:")
            self._add(depth + 1, "pass")
            self._value(branch, targets, depth + 1, level)
        self._add(depth, f"else: branch_of(n, {len(of.branches)})")

    def _leaf(self, of: AvroType, target: Target, depth: int, level: int) -> None:
        if of.kind == "null":
            return
        if target.column.type.kind is Kind.JSON:
            self._add(depth, f"t, p = {self._named(taker(of))}(b, p, {level})")
            self._give(depth, target, "t", json_text)
            return
        if target.column.type.fields:
            take = self._named(nested_taker(of, target.column.type))
            self._add(depth, f"t, p = {take}(b, p, {level})")
            self._give(depth, target, "t", fitted)
            return
        try:
            convert = conversion(of, target.column.type)
        except ValueError as error:
            self._pass(of, depth, level)
            self._refuse(depth, of, target, str(error))
            return
        before, value, behind = _READ.get(of.kind, ((), "", ""))
        if of.kind == "enum":
            count = len(of.symbols)
            before = (*_NUMBER, f"if n & 1 or n >= {2 * count}: branch_of(n, {count})")
            value = f"{self._named(of.symbols)}[n >> 1]"
        elif of.kind == "record":
            before, value = (f"t, p = {self._named(taker(of))}(b, p, {level})",), "t"
        elif of.kind == "fixed":
            value, behind = f"b[p:p + {of.size}]", f"p += {of.size}"
        self._add(depth, *before)
        self._give(depth, target, value, convert)
        if behind:
            self._add(depth, behind)

    def _refuse(self, depth: int, of: AvroType, target: Target, why: str) -> None:
        if of.kind != "null":  # null is null, whatever the column
            self._give(depth, target, "True", partial(_refused, why))

    def _is_inlined(self, of: AvroType, level: int) -> bool:
        """Whether the code passes over values of a type by itself, which takes a third of the time."""
        if of.kind != "record":
            return of.kind in _PASSED
        lines = len(self._lines) + len(of.fields) * INLINED_FIELD_LINES
        return level < INLINED_LEVELS_MAX and lines < INLINED_LINES_MAX

    def _pass(self, of: AvroType, depth: int, level: int) -> None:
        if of.is_empty:
            return
        match of.kind:
            case "int" | "long" | "enum":
                self._add(depth, *_NUMBER)
            case "string" | "bytes":
                self._add(depth, *_LENGTH, "p = e")
            case kind if kind in WIDTHS:
                self._add(depth, f"p += {WIDTHS[kind]}")
            case "record" if self._is_inlined(of, level):
                for _, type_ in of.fields:
                    self._value(type_, (), depth, level + 1)
            case _:
                self._add(depth, f"p = {self._named(passer(of))}(b, p, {level})")


_Read = Callable[[Sequence[bytes], int, dict[int, BaseException]], list[list[Any]]]
_BODY_DEPTH: Final = 3
_PASSED: Final = ("null", "int", "long", "enum", "string", "bytes", *WIDTHS)
_NUMBER: Final = ("n = b[p]; p += 1", "if n > 127: n, p = long_at(b, p - 1)")
_LENGTH: Final = (*_NUMBER, "if n & 1: negative(n)", "e = p + (n >> 1)")
_READ: Final[dict[str, tuple[tuple[str, ...], str, str]]] = {
    "int": ((*_NUMBER, "if n >> 32: bits()"), "(n >> 1) ^ -(n & 1)", ""),
    "long": (_NUMBER, "(n >> 1) ^ -(n & 1)", ""),
    "boolean": (("n = b[p]; p += 1", "if n > 1: boolean(n)"), "n == 1", ""),
    "float": ((), "single(b, p)[0]", "p += 4"),
    "double": ((), "double(b, p)[0]", "p += 8"),
    "string": (_LENGTH, "b[p:e].decode()", "p = e"),
    "bytes": (_LENGTH, "b[p:e]", "p = e"),
}


def _written(line: _Line, conversions: Sequence[Sequence[Convert | None]]) -> str:
    """Where a column has values of several places, each brings its conversion."""
    if line.number < 0:
        return " " * line.depth + line.text
    several, value = conversions[line.number], line.text
    if len(several) > 1:
        value = f"(s{line.number}_{several.index(line.convert)}, {value})"
    return f"{' ' * line.depth}v{line.number} = {value}"


def _convert_by_place(value: tuple[Convert | None, Any]) -> Any:
    convert, read = value
    return read if convert is None else convert(read)


def _refused(why: str, _: object) -> object:
    raise ValueError(why)


class _NoRow(ValueError):
    """Why a record is no row of the table."""


def _no_row(why: str) -> None:
    raise _NoRow(why)


def _end(at: int, end: int) -> None:
    if at > end:
        raise Malformed(_TOO_SHORT)
    raise Malformed(f"{end - at:,} bytes follow its end")  # safety: avro-whole-record


def _bits() -> None:
    raise Malformed("an int has more than 32 bits")  # safety: avro-int-bits


def _negative(number: int) -> None:
    raise Malformed(f"a length is negative: -{(number >> 1) + 1:,}")  # safety: avro-negative-length


def _boolean(byte: int) -> None:
    raise Malformed(f"a boolean is {byte}, not 0 or 1")
