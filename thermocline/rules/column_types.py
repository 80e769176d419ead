"""The types of columns: one table of what each is in every language that a value passes through.

A new type is an entry of `TYPES`, and its reading in SQL (`views.fields`), which says in another language
what ``parsed`` and ``convert`` say here.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
import pyarrow as pa
from pyiceberg import types
from pyiceberg.types import IcebergType

from thermocline.errors import did_you_mean
from thermocline.rules import nested_types, scalars
from thermocline.rules.nested_types import Convert, nullable, where_needed
from thermocline.rules.other_types import meant_by

__all__ = [
    "ESCAPED_ZERO",
    "KEY_END",
    "NESTED_SPELLED",
    "TIMESTAMP",
    "TYPES",
    "ColumnType",
    "Kind",
    "NestedField",
    "Packing",
    "TypeEntry",
    "TypeText",
    "closest",
]

Epoch = Literal["s", "ms", "us", "d"]
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
TIMESTAMP: Final = pa.timestamp("us", "UTC")
ESCAPED_ZERO: Final = b"\x00\xff"
KEY_END: Final = b"\x00\x01"


class Kind(StrEnum):
    """The kinds of column; the value is the word in the configuration."""

    INT = "int"
    LONG = "long"
    STRING = "string"
    DOUBLE = "double"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    BINARY = "binary"
    JSON = "json"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


class Packing(StrEnum):
    """How MessagePack holds a value in the hot tier."""

    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    NESTED = "nested"
    """MessagePack itself, as bytes: so that each cell of a row says how long it is."""


@dataclass(frozen=True, slots=True)
class KeyForm:
    """A key column's value as bytes that sort as it does.

    ``width`` is None where the bytes are escaped and end with `KEY_END`. ``is_integer``: big-endian with the
    sign bit flipped. ``hashed`` gives what Iceberg's bucket transform hashes (specification, appendix B).
    ``parse`` reads the text of a URL or a command, and raises ValueError with a plain sentence.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], object]
    hashed: Callable[[Any], bytes]
    parse: Callable[[str], object]
    width: int | None = None
    is_integer: bool = False


@dataclass(frozen=True, slots=True)
class TypeEntry:
    """One kind of column.

    ``arrow`` of every table of ours (a UUID is its 16 bytes); ``python``, the natural value; ``parsed``, what
    msgspec checks and gives for a JSON value, and ``convert``, what makes the natural value of that;
    ``stored`` makes of a natural value what Arrow takes, ``natural`` the other way round, ``spelled`` what a
    JSON encoder takes; None: as it is.
    ``json_schema``, of the JSON that is given out; ``key``, where it may be a key column.
    """

    arrow: Callable[[ColumnType], pa.DataType]
    iceberg: Callable[[ColumnType], IcebergType]
    duckdb: str
    trino: str
    python: Callable[[ColumnType], Any]
    packing: Packing
    json_schema: Callable[[ColumnType], dict[str, Any]]
    parsed: Callable[[ColumnType], Any]
    convert: Callable[[ColumnType], Convert | None] = lambda _: None
    stored: Callable[[ColumnType], Convert | None] = lambda _: None
    natural: Callable[[ColumnType], Convert | None] = lambda _: None
    spelled: Callable[[ColumnType], Convert | None] = lambda _: None
    key: KeyForm | None = None


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
    def fields_within(self) -> int:
        """How many fields it has, at all levels."""
        return sum(1 + field.type.fields_within for field in self.fields)

    @property
    def entry(self) -> TypeEntry:
        """What its kind is in every language."""
        return TYPES[self.kind] if self.epoch is None else _EPOCH_ENTRIES[self.kind]

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


def _decimal_type(of: ColumnType) -> types.DecimalType:
    assert of.precision is not None
    assert of.scale is not None
    return types.DecimalType(of.precision, of.scale)


def _decimal_reader(of: ColumnType) -> Convert:
    precision, scale = of.precision, of.scale
    assert precision is not None
    assert scale is not None

    def read(raw: msgspec.Raw) -> Decimal | None:
        token = bytes(raw)
        if token == b"null":
            return None
        if not token.startswith(b'"'):
            return scalars.decimal(token.decode(), precision, scale)
        text = msgspec.json.decode(token, type=str)
        try:
            return scalars.decimal(text, precision, scale)
        except ValueError as error:
            raise ValueError(f"{error}{_hint_of_base64(text)}") from None

    return read


def _plain_decimal(of: ColumnType) -> Convert | None:
    """Decimals in plain notation; Python writes those of few decimal places so anyway."""
    assert of.scale is not None
    return scalars.decimal_text if of.scale > scalars.PLAIN_SCALE_MAX else None


def _hint_of_base64(text: str) -> str:
    """What to do where a decimal's text may be its bytes, as Kafka Connect writes them by default."""
    try:
        scalars.binary(text)
    except ValueError:
        return ""
    return (
        "; if these are Kafka Connect's decimals, in base64, set decimal.handling.mode=string in Debezium's "
        "connector, or the converter's decimal.format=NUMERIC or schemas.enable=true"
    )


def _binary(text: str) -> bytes:
    try:
        return scalars.binary(text)
    except ValueError as error:
        raise ValueError(f"{error}{_hint_of_encoding(text)}") from None


def _hint_of_encoding(text: str) -> str:
    for encoding, read in (("hex", scalars.hexadecimal), ("base64-url-safe", scalars.url_safe_binary)):
        try:
            read(text)
        except ValueError:
            continue
        return f'; if the connector has binary.handling.mode={encoding}, set binary_encoding = "{encoding}"'
    return ""


def _json_text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text


def _instant_reader(of: ColumnType) -> Convert:
    assert of.epoch is not None
    make = scalars.instant if of.kind is Kind.TIMESTAMPTZ else scalars.local_instant
    factor = _MICROSECONDS[of.epoch]
    return lambda number: make(number * factor)


def _day(number: int) -> date:
    try:
        return date.fromordinal(number + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueError(f"{number} days since 1970 are not in the years 1 to 9999") from None


def _escape(value: bytes) -> bytes:
    return value.replace(b"\x00", ESCAPED_ZERO) + KEY_END


def _unescape(value: bytes) -> bytes:
    return value.replace(ESCAPED_ZERO, b"\x00")


def _eight_bytes(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def _within(low: int, high: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_INT_BIAS: Final = 2**31
_LONG_BIAS: Final = 2**63
_INT: Final = _within(*scalars.INT_RANGE)
_LONG: Final = _within(*scalars.LONG_RANGE)
_PYTHON, _PARSED, _CONVERT = attrgetter("python"), attrgetter("parsed"), attrgetter("convert")
_STORED, _NATURAL, _SPELLED = attrgetter("stored"), attrgetter("natural"), attrgetter("spelled")
_NESTED: Final = {"struct": _parse_struct, "list": _parse_list, "map": _parse_map}
_pack_int: Final = struct.Struct(">I").pack
_pack_long: Final = struct.Struct(">Q").pack

TYPES: Final[Mapping[Kind, TypeEntry]] = {
    Kind.INT: TypeEntry(
        arrow=lambda _: pa.int32(),
        iceberg=lambda _: types.IntegerType(),
        duckdb="INTEGER",
        trino="integer",
        python=lambda _: int,
        packing=Packing.NUMBER,
        json_schema=lambda _: {"type": "integer", "format": "int32"},
        parsed=lambda _: _INT,
        key=KeyForm(
            encode=lambda value: _pack_int(value + _INT_BIAS),
            decode=lambda part: int.from_bytes(part) - _INT_BIAS,
            hashed=_eight_bytes,
            parse=lambda text: scalars.integer(text, *scalars.INT_RANGE),
            width=4,
            is_integer=True,
        ),
    ),
    Kind.LONG: TypeEntry(
        arrow=lambda _: pa.int64(),
        iceberg=lambda _: types.LongType(),
        duckdb="BIGINT",
        trino="bigint",
        python=lambda _: int,
        packing=Packing.NUMBER,
        json_schema=lambda _: {"type": "integer", "format": "int64"},
        parsed=lambda _: _LONG,
        key=KeyForm(
            encode=lambda value: _pack_long(value + _LONG_BIAS),
            decode=lambda part: int.from_bytes(part) - _LONG_BIAS,
            hashed=_eight_bytes,
            parse=lambda text: scalars.integer(text, *scalars.LONG_RANGE),
            width=8,
            is_integer=True,
        ),
    ),
    Kind.STRING: TypeEntry(
        arrow=lambda _: pa.string(),
        iceberg=lambda _: types.StringType(),
        duckdb="VARCHAR",
        trino="varchar",
        python=lambda _: str,
        packing=Packing.TEXT,
        json_schema=lambda _: {"type": "string"},
        parsed=lambda _: str,
        key=KeyForm(
            encode=lambda value: _escape(value.encode()),
            decode=lambda part: _unescape(part).decode(),
            hashed=str.encode,
            parse=str,
        ),
    ),
    Kind.DOUBLE: TypeEntry(
        arrow=lambda _: pa.float64(),
        iceberg=lambda _: types.DoubleType(),
        duckdb="DOUBLE",
        trino="double",
        python=lambda _: float,
        packing=Packing.NUMBER,
        json_schema=lambda _: {"type": "number", "format": "double"},
        parsed=lambda _: float,
    ),
    Kind.DECIMAL: TypeEntry(
        arrow=lambda of: pa.decimal128(of.precision, of.scale),
        iceberg=_decimal_type,
        duckdb="DECIMAL({self.precision},{self.scale})",
        trino="decimal({self.precision}, {self.scale})",
        python=lambda _: Decimal,
        packing=Packing.TEXT,
        json_schema=lambda _: {"type": "string", "format": "decimal"},
        parsed=lambda _: msgspec.Raw,  # a float would round it
        convert=_decimal_reader,
        spelled=_plain_decimal,
    ),
    Kind.BOOLEAN: TypeEntry(
        arrow=lambda _: pa.bool_(),
        iceberg=lambda _: types.BooleanType(),
        duckdb="BOOLEAN",
        trino="boolean",
        python=lambda _: bool,
        packing=Packing.BOOLEAN,
        json_schema=lambda _: {"type": "boolean"},
        parsed=lambda _: bool,
    ),
    Kind.DATE: TypeEntry(
        arrow=lambda _: pa.date32(),
        iceberg=lambda _: types.DateType(),
        duckdb="DATE",
        trino="date",
        python=lambda _: date,
        packing=Packing.TEXT,
        json_schema=lambda _: {"type": "string", "format": "date"},
        parsed=lambda _: str,
        convert=lambda _: scalars.calendar_date,
        key=KeyForm(
            encode=lambda value: _pack_int(value.toordinal() - _EPOCH_DAY + _INT_BIAS),
            decode=lambda part: date.fromordinal(int.from_bytes(part) - _INT_BIAS + _EPOCH_DAY),
            hashed=lambda value: _eight_bytes(value.toordinal() - _EPOCH_DAY),
            parse=scalars.calendar_date,
            width=4,
            is_integer=True,
        ),
    ),
    Kind.TIMESTAMPTZ: TypeEntry(
        arrow=lambda _: TIMESTAMP,
        iceberg=lambda _: types.TimestamptzType(),
        duckdb="TIMESTAMPTZ",
        trino="timestamp(6) with time zone",
        python=lambda _: datetime,
        packing=Packing.TIMESTAMP,
        json_schema=lambda _: {"type": "string", "format": "date-time"},
        parsed=lambda _: str,
        convert=lambda _: scalars.timestamp,
    ),
    Kind.TIMESTAMP: TypeEntry(
        arrow=lambda _: pa.timestamp("us"),
        iceberg=lambda _: types.TimestampType(),
        duckdb="TIMESTAMP",
        trino="timestamp(6)",
        python=lambda _: datetime,
        packing=Packing.TEXT,
        json_schema=lambda _: {"type": "string", "pattern": scalars.LOCAL_TIMESTAMP},
        parsed=lambda _: str,
        convert=lambda _: scalars.local_timestamp,
    ),
    Kind.UUID: TypeEntry(
        arrow=lambda _: pa.binary(16),
        iceberg=lambda _: types.UUIDType(),
        duckdb="BLOB",
        trino="uuid",
        python=lambda _: UUID,
        packing=Packing.BYTES,
        json_schema=lambda _: {"type": "string", "format": "uuid"},
        parsed=lambda _: str,
        convert=lambda _: scalars.uuid,
        stored=lambda _: attrgetter("bytes"),
        natural=lambda _: lambda content: UUID(bytes=content),
        key=KeyForm(
            encode=lambda value: bytes(value.bytes),
            decode=lambda part: UUID(bytes=part),
            hashed=lambda value: bytes(value.bytes),
            parse=scalars.uuid,
            width=16,
        ),
    ),
    Kind.BINARY: TypeEntry(
        arrow=lambda _: pa.binary(),
        iceberg=lambda _: types.BinaryType(),
        duckdb="BLOB",
        trino="varbinary",
        python=lambda _: bytes,
        packing=Packing.BYTES,
        json_schema=lambda _: {"type": "string", "contentEncoding": "base64"},
        parsed=lambda _: str,
        convert=lambda _: _binary,
        key=KeyForm(encode=_escape, decode=_unescape, hashed=bytes, parse=scalars.binary),
    ),
    Kind.JSON: TypeEntry(
        arrow=lambda _: pa.string(),
        iceberg=lambda _: types.StringType(),
        duckdb="VARCHAR",
        trino="varchar",
        python=lambda _: str,
        packing=Packing.TEXT,
        json_schema=lambda _: {"type": "string", "contentMediaType": "application/json"},
        parsed=lambda _: msgspec.Raw,
        convert=lambda _: _json_text,
    ),
    Kind.STRUCT: TypeEntry(
        arrow=nested_types.arrow_struct,
        iceberg=nested_types.iceberg_struct,
        duckdb="STRUCT({fields})",
        trino="row({fields})",
        python=lambda of: nested_types.msgspec_struct(of, _PYTHON),
        packing=Packing.NESTED,
        json_schema=nested_types.struct_schema,
        parsed=lambda of: nested_types.msgspec_struct(of, _PARSED),
        convert=partial(nested_types.rebuilt_struct, inside=_CONVERT),
        stored=where_needed(nested_types.rebuilt_struct, _STORED),
        natural=where_needed(nested_types.rebuilt_struct, _NATURAL),
        spelled=where_needed(nested_types.rebuilt_struct, _SPELLED),
    ),
    Kind.LIST: TypeEntry(
        arrow=nested_types.arrow_list,
        iceberg=nested_types.iceberg_list,
        duckdb="{self.fields[0].type.duckdb}[]",
        trino="array({self.fields[0].type.trino})",
        python=lambda of: list[nullable(of.fields[0].type.python)],  # type: ignore[misc]
        packing=Packing.NESTED,
        json_schema=lambda of: {"type": "array", "items": nested_types.nullable_schema(of.fields[0].type)},
        parsed=lambda of: list[nullable(of.fields[0].type.parsed)],  # type: ignore[misc]
        convert=partial(nested_types.rebuilt_list, inside=_CONVERT),
        stored=partial(nested_types.rebuilt_list, inside=_STORED),
        natural=partial(nested_types.rebuilt_list, inside=_NATURAL),
        spelled=partial(nested_types.rebuilt_list, inside=_SPELLED),
    ),
    Kind.MAP: TypeEntry(
        arrow=nested_types.arrow_map,
        iceberg=nested_types.iceberg_map,
        duckdb="MAP({self.fields[0].type.duckdb}, {self.fields[1].type.duckdb})",
        trino="map({self.fields[0].type.trino}, {self.fields[1].type.trino})",
        python=lambda of: dict[str, nullable(of.fields[1].type.python)],  # type: ignore[misc]
        packing=Packing.NESTED,
        json_schema=lambda of: {
            "type": "object",
            "additionalProperties": nested_types.nullable_schema(of.fields[1].type),
        },
        parsed=lambda of: dict[str, nullable(of.fields[1].type.parsed)],  # type: ignore[misc]
        convert=partial(nested_types.rebuilt_map, inside=_CONVERT),
        stored=where_needed(nested_types.rebuilt_map, _STORED),
        natural=partial(nested_types.map_of_pairs, inside=_NATURAL),
        spelled=where_needed(nested_types.rebuilt_map, _SPELLED),
    ),
}
EPOCHS: Final[dict[Kind, tuple[Epoch, ...]]] = {
    Kind.TIMESTAMPTZ: ("s", "ms", "us"),
    Kind.TIMESTAMP: ("s", "ms", "us"),
    Kind.DATE: ("d",),
}
"""The units since 1970-01-01 in which a number says when."""
_EPOCH_ENTRIES: Final = {
    Kind.TIMESTAMPTZ: replace(TYPES[Kind.TIMESTAMPTZ], parsed=lambda _: _LONG, convert=_instant_reader),
    Kind.TIMESTAMP: replace(TYPES[Kind.TIMESTAMP], parsed=lambda _: _LONG, convert=_instant_reader),
    Kind.DATE: replace(TYPES[Kind.DATE], parsed=lambda _: _INT, convert=lambda _: _day),
}
