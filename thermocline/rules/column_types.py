"""The types of columns, as they are written; what each is in every language, `type_table` says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import IcebergType

from thermocline.errors import did_you_mean
from thermocline.rules import nested_types
from thermocline.rules.nested_types import Convert
from thermocline.rules.other_types import meant_by
from thermocline.rules.type_entry import (
    KEY_END,
    Epoch,
    KeyForm,
    Kind,
    Packing,
    Token,
    TypeEntry,
    for_every,
)
from thermocline.rules.type_table import EPOCH_ENTRIES, EPOCHS, ESCAPED_ZERO, TIMESTAMP, TYPES

__all__ = [
    "ESCAPED_ZERO",
    "KEY_END",
    "NESTED_SPELLED",
    "TIMESTAMP",
    "TYPES",
    "ColumnType",
    "KeyForm",
    "Kind",
    "NestedField",
    "Packing",
    "Token",
    "TypeEntry",
    "TypeText",
    "closest",
    "for_every",
]

TypeText = str | Mapping[str, str]
DECIMAL_PRECISION_MAX: Final = 38  # Iceberg's limit, and that of a 128-bit decimal
DECIMAL_TYPE: Final = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
OTHER_SPELLING: Final = re.compile(r"(struct|list|map|array|row)\b")  # unfinished, or another program's
NESTED_SPELLED: Final = (
    'nested types are spelled "struct<city: string, zip: string>", "list<string>" or "map<string, double>"; '
    'one field alone is read by { type = "string", path = "address.city" }, and anything as its text by '
    '"json"'
)
FIELD_NAME: Final = re.compile(r"""[^"'`\\\x00-\x1f\x7f<>(),:.]+""")  # what needs no escapes anywhere
LEVELS_MAX: Final = 16
"""Of structs, lists and maps within each other: more than people read, and few enough for every reader."""


@dataclass(frozen=True, slots=True)
class NestedField:
    """A field within a nested type; ``field_id`` is 0 where the type is not that of a column of a table."""

    name: str
    type: ColumnType
    field_id: int = 0


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column.

    ``precision`` and ``scale`` belong to decimals, ``epoch`` to times as numbers, ``fields`` to nested types.
    """

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    epoch: Epoch | None = None
    fields: tuple[NestedField, ...] = ()

    @classmethod
    def parse(cls, text: TypeText) -> ColumnType:
        """Reads ``"decimal(10,2)"``, ``"list<string>"`` or ``{"type": "timestamptz", "epoch": "ms"}``.

        Within a nested type, the latter is spelled ``timestamptz epoch ms``.

        Raises:
            ValueError: with one plain sentence, when it is no type of ours.
        """
        return _parse(text, 0) if isinstance(text, str) else _parse_with_epoch(text)

    def with_ids(self, ids: Iterator[int]) -> ColumnType:
        """The same with field ids for all fields within it, in the order in which Iceberg gives them.

        Those of one level come first, then those within each of them.
        Source: Apache Iceberg, ``org.apache.iceberg.types.AssignFreshIds``.
        """
        taken = [next(ids) for _ in self.fields]
        return replace(
            self,
            fields=tuple(
                replace(field, type=field.type.with_ids(ids), field_id=field_id)
                for field, field_id in zip(self.fields, taken, strict=True)
            ),
        )

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all fields within it, as `with_ids` takes them."""
        inner = (number for field in self.fields for number in field.type.ids)
        return (*(field.field_id for field in self.fields), *inner)

    @property
    def unnumbered(self) -> ColumnType:
        """The same without ids: what a definition says."""
        if not self.fields:
            return self
        fields = (NestedField(field.name, field.type.unnumbered) for field in self.fields)
        return replace(self, fields=tuple(fields))

    @property
    def fields_within(self) -> int:
        """How many fields it has, at all levels."""
        return sum(1 + field.type.fields_within for field in self.fields)

    @property
    def entry(self) -> TypeEntry:
        """What its kind is in every language."""
        return TYPES[self.kind] if self.epoch is None else EPOCH_ENTRIES[self.kind]

    @property
    def with_article(self) -> str:
        """``an int`` or ``a long``."""
        return f"{'an' if str(self).startswith('i') else 'a'} {self}"

    @property
    def declared(self) -> str | dict[str, str]:
        """What ``parse`` reads back to an equal type."""
        return str(self) if self.epoch is None else {"type": str(self.kind), "epoch": self.epoch}

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the column's values in every table of ours; a UUID is its 16 bytes."""
        return self.entry.arrow(self)

    @property
    def iceberg(self) -> IcebergType:
        """The Iceberg type of the column."""
        return self.entry.iceberg(self)

    @property
    def duckdb(self) -> str:
        """What DuckDB calls the type of ``arrow``."""
        fields = ", ".join(f'"{field.name}" {field.type.duckdb}' for field in self.fields)
        return self.entry.duckdb.format(self=self, fields=fields)

    @property
    def trino(self) -> str:
        """The type that Trino has for the column in an Iceberg table."""
        fields = ", ".join(f'"{field.name}" {field.type.trino}' for field in self.fields)
        return self.entry.trino.format(self=self, fields=fields)

    @property
    def python(self) -> Any:
        """The type of natural values."""
        return self.entry.python(self)

    @property
    def parsed(self) -> Any:
        """What msgspec checks and gives for a JSON value."""
        return self.entry.parsed(self)

    @property
    def convert(self) -> Convert | None:
        """What makes the natural value of that; None where it is that already."""
        return self.entry.convert(self)

    @property
    def stored(self) -> Convert | None:
        """What makes of a natural value what Arrow takes; None where it takes that."""
        return self.entry.stored(self)

    @property
    def natural(self) -> Convert | None:
        """What makes the natural value of what Arrow gives; None where it gives that."""
        return self.entry.natural(self)

    @property
    def spelled(self) -> Convert | None:
        """What makes of a natural value what a JSON encoder takes; None where it takes that."""
        return self.entry.spelled(self)

    @property
    def of_text(self) -> Convert | None:
        """What reads the natural value's text, with a plain phrase in a ValueError; None: nothing does."""
        return None if self.entry.of_text is None else self.entry.of_text(self)

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the values, none of them null, that are given out."""
        return self.entry.json_schema(self)

    def __str__(self) -> str:
        match self.kind:
            case Kind.DECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case Kind.STRUCT:
                return f"struct<{', '.join(f'{field.name}: {field.type}' for field in self.fields)}>"
            case Kind.LIST | Kind.MAP:
                return f"{self.kind}<{', '.join(str(field.type) for field in self.fields)}>"
        return str(self.kind) if self.epoch is None else f"{self.kind} epoch {self.epoch}"


def closest(word: str, known: Sequence[str]) -> str:
    """``; did you mean "x"?`` with the known word that is closest, or all that are known."""
    return did_you_mean(word, known) or f"; known: {', '.join(known)}"


def _parse(text: str, level: int) -> ColumnType:
    parts = nested_types.parts_of(text)
    if parts is not None:
        if level >= LEVELS_MAX:
            raise ValueError(f"a type is nested more than {LEVELS_MAX} levels deep")
        word, inside = parts
        return _NESTED[word](inside, level + 1)
    word = text.strip().lower()
    if OTHER_SPELLING.match(word):
        raise ValueError(f'"{text}": {NESTED_SPELLED}')
    if word.startswith(Kind.DECIMAL):
        return _parse_decimal(word)
    scalar, _, epoch = word.partition(" epoch ")
    if scalar not in set(Kind):
        spelled = {Kind.DECIMAL: "decimal(10,2)", Kind.LIST: "list<string>", Kind.MAP: "map<string, double>"}
        known = [spelled.get(kind, str(kind)) for kind in Kind if kind is not Kind.STRUCT]
        raise ValueError(f'"{text}" is not a column type{meant_by(word) or closest(word, known)}')
    return _with_epoch(ColumnType(Kind(scalar)), epoch.strip()) if epoch else ColumnType(Kind(scalar))


def _parse_struct(parts: Sequence[str], level: int) -> ColumnType:
    fields = []
    for part in parts:
        name, colon, text = part.partition(":")
        if not colon or not FIELD_NAME.fullmatch(name.strip()):
            raise ValueError(
                f'"{part.strip()}" is no field of a struct: it is of the form "city: string", and a name has '
                "no quotes, backslashes, brackets, dots, colons, commas or control characters"
            )
        fields.append(NestedField(name.strip(), _parse(text, level)))
    # Spark and Trino match names without regard to case.
    name, count = Counter(field.name.casefold() for field in fields).most_common(1)[0]
    if count > 1:
        raise ValueError(f'two fields of a struct are called "{name}" but for case')
    return ColumnType(Kind.STRUCT, fields=tuple(fields))


def _parse_list(parts: Sequence[str], level: int) -> ColumnType:
    if len(parts) != 1:
        raise ValueError(f'"list<{",".join(parts)}>" is not of the form list<string>')
    return ColumnType(Kind.LIST, fields=(NestedField("element", _parse(parts[0], level)),))


def _parse_map(parts: Sequence[str], level: int) -> ColumnType:
    if len(parts) != 2:
        raise ValueError(f'"map<{",".join(parts)}>" is not of the form map<string, double>')
    key, value = (_parse(part, level) for part in parts)
    if key.kind is not Kind.STRING:
        raise ValueError(f"the keys of a map can't be a {key}: they are strings, as in JSON and Avro")
    return ColumnType(Kind.MAP, fields=(NestedField("key", key), NestedField("value", value)))


def _parse_with_epoch(fields: Mapping[str, str]) -> ColumnType:
    declared = fields.get("type")
    unknown = sorted(set(fields) - {"type", "epoch"})
    if unknown or not isinstance(declared, str):
        hint = f"; {NESTED_SPELLED}" if declared is None and "path" not in fields else ""
        spelled = json.dumps(dict(fields), ensure_ascii=False)
        raise ValueError(f'{spelled} is not of the form {{ type = "...", epoch = "ms" }}{hint}')
    column_type = ColumnType.parse(declared)
    return column_type if "epoch" not in fields else _with_epoch(column_type, fields["epoch"])


def _with_epoch(of: ColumnType, epoch: str) -> ColumnType:
    known = EPOCHS.get(of.kind)
    if known is None:
        hint = '; within it, times as numbers are spelled "timestamptz epoch ms"' if of.fields else ""
        raise ValueError(f"an epoch belongs to {' and '.join(EPOCHS)}, not to {of}{hint}")
    if epoch not in known:
        raise ValueError(f'the epoch "{epoch}" is not one of {", ".join(known)}')
    return ColumnType(of.kind, epoch=known[known.index(epoch)])


def _parse_decimal(word: str) -> ColumnType:
    match = DECIMAL_TYPE.fullmatch(word)
    if match is None:
        raise ValueError(f'"{word}" is not of the form decimal(precision,scale), such as decimal(10,2)')
    precision, scale = int(match[1]), int(match[2])
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
        raise ValueError(
            f'"{word}" needs a precision from 1 to {DECIMAL_PRECISION_MAX} and a scale within it'
        )
    return ColumnType(Kind.DECIMAL, precision, scale)


_NESTED: Final = {"struct": _parse_struct, "list": _parse_list, "map": _parse_map}
