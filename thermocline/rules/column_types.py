"""The types of columns: one table of what each is in every language that a value passes through.

A new type is an entry of `TYPES`, and its reading in SQL (`views.fields`), which says in another language
what ``parsed`` and ``convert`` say here.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
import pyarrow as pa
from pyiceberg import types
from pyiceberg.types import PrimitiveType

from thermocline.errors import did_you_mean
from thermocline.rules import scalars

__all__ = [
    "ESCAPED_ZERO",
    "KEY_END",
    "NESTED_REFUSED",
    "TIMESTAMP",
    "TYPES",
    "ColumnType",
    "Kind",
    "Packing",
    "TypeEntry",
    "TypeText",
    "closest",
]

Epoch = Literal["s", "ms", "us", "d"]
TypeText = str | Mapping[str, str]
DECIMAL_PRECISION_MAX: Final = 38  # Iceberg's limit, and that of a 128-bit decimal
DECIMAL_TYPE: Final = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
NESTED_TYPE: Final = re.compile(r"(struct|list|map|array|row)\b")  # as Iceberg, Spark and Trino spell them
NESTED_REFUSED: Final = (
    'nested types are not supported: read one field by { type = "string", path = "address.city" }, or all of '
    'it as "json", its text'
)
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
    UUID = "uuid"
    BINARY = "binary"
    JSON = "json"


class Packing(StrEnum):
    """How MessagePack holds a value in the hot tier."""

    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"


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
    ``json_schema``, of the JSON that is given out; ``key``, where it may be a key column.
    """

    arrow: Callable[[ColumnType], pa.DataType]
    iceberg: Callable[[ColumnType], PrimitiveType]
    duckdb: str
    trino: str
    python: type
    packing: Packing
    json_schema: dict[str, Any]
    parsed: Any
    convert: Callable[[Any, ColumnType], Any] | None = None
    key: KeyForm | None = None


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The type of a column. ``precision`` and ``scale`` belong to decimals, ``epoch`` to times as numbers."""

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    epoch: Epoch | None = None

    @classmethod
    def parse(cls, text: TypeText) -> ColumnType:
        """Reads ``"decimal(10,2)"`` or ``{"type": "timestamptz", "epoch": "ms"}``.

        Raises:
            ValueError: with one plain sentence, when it is no type of ours.
        """
        if not isinstance(text, str):
            return _parse_with_epoch(text)
        word = text.strip().lower()
        if NESTED_TYPE.match(word):
            raise ValueError(f'"{text}": {NESTED_REFUSED}')
        if word.startswith(Kind.DECIMAL):
            return _parse_decimal(word)
        if word not in set(Kind):
            known = [*(kind for kind in Kind if kind is not Kind.DECIMAL), "decimal(10,2)"]
            raise ValueError(f'"{text}" is not a column type{closest(word, known)}')
        return cls(Kind(word))

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
    def iceberg(self) -> PrimitiveType:
        """The Iceberg type of the column."""
        return self.entry.iceberg(self)

    @property
    def duckdb(self) -> str:
        """What DuckDB calls the type of ``arrow``."""
        return self.entry.duckdb.format(self=self)

    @property
    def trino(self) -> str:
        """The type that Trino has for the column in an Iceberg table."""
        return self.entry.trino.format(self=self)

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return str(self.kind) if self.epoch is None else f"{self.kind} epoch {self.epoch}"


def closest(word: str, known: Sequence[str]) -> str:
    """``; did you mean "x"?`` with the known word that is closest, or all that are known."""
    return did_you_mean(word, known) or f"; known: {', '.join(known)}"


def _parse_with_epoch(fields: Mapping[str, str]) -> ColumnType:
    declared = fields.get("type")
    unknown = sorted(set(fields) - {"type", "epoch"})
    if isinstance(declared, str) and NESTED_TYPE.match(declared.strip().lower()):
        raise ValueError(f'"{declared}": {NESTED_REFUSED}')
    if unknown or not isinstance(declared, str):
        hint = f"; {NESTED_REFUSED}" if declared is None and "path" not in fields else ""
        spelled = json.dumps(dict(fields), ensure_ascii=False)
        raise ValueError(f'{spelled} is not of the form {{ type = "...", epoch = "ms" }}{hint}')
    column_type = ColumnType.parse(declared)
    epoch = fields.get("epoch")
    if epoch is None:
        return column_type
    known = EPOCHS.get(column_type.kind)
    if known is None:
        raise ValueError(f"an epoch belongs to {' and '.join(EPOCHS)}, not to {column_type}")
    if epoch not in known:
        raise ValueError(f'the epoch "{epoch}" is none of {", ".join(known)}')
    return ColumnType(column_type.kind, epoch=known[known.index(epoch)])


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


def _decimal(raw: msgspec.Raw, of: ColumnType) -> Decimal | None:
    token = bytes(raw)
    if token == b"null":
        return None
    assert of.precision is not None
    assert of.scale is not None
    text = msgspec.json.decode(token, type=str) if token.startswith(b'"') else token.decode()
    return scalars.decimal(text, of.precision, of.scale)


def _json_text(raw: msgspec.Raw, _: ColumnType) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text


def _instant(number: int, of: ColumnType) -> datetime:
    assert of.epoch is not None
    return scalars.instant(number * _MICROSECONDS[of.epoch])


def _day(number: int, _: ColumnType) -> date:
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
_pack_int: Final = struct.Struct(">I").pack
_pack_long: Final = struct.Struct(">Q").pack

TYPES: Final[Mapping[Kind, TypeEntry]] = {
    Kind.INT: TypeEntry(
        arrow=lambda _: pa.int32(),
        iceberg=lambda _: types.IntegerType(),
        duckdb="INTEGER",
        trino="integer",
        python=int,
        packing=Packing.NUMBER,
        json_schema={"type": "integer", "format": "int32"},
        parsed=_within(*scalars.INT_RANGE),
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
        python=int,
        packing=Packing.NUMBER,
        json_schema={"type": "integer", "format": "int64"},
        parsed=_within(*scalars.LONG_RANGE),
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
        python=str,
        packing=Packing.TEXT,
        json_schema={"type": "string"},
        parsed=str,
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
        python=float,
        packing=Packing.NUMBER,
        json_schema={"type": "number", "format": "double"},
        parsed=float,
    ),
    Kind.DECIMAL: TypeEntry(
        arrow=lambda of: pa.decimal128(of.precision, of.scale),
        iceberg=_decimal_type,
        duckdb="DECIMAL({self.precision},{self.scale})",
        trino="decimal({self.precision}, {self.scale})",
        python=Decimal,
        packing=Packing.TEXT,
        json_schema={"type": "string", "format": "decimal"},
        parsed=msgspec.Raw,  # a float would round it
        convert=_decimal,
    ),
    Kind.BOOLEAN: TypeEntry(
        arrow=lambda _: pa.bool_(),
        iceberg=lambda _: types.BooleanType(),
        duckdb="BOOLEAN",
        trino="boolean",
        python=bool,
        packing=Packing.BOOLEAN,
        json_schema={"type": "boolean"},
        parsed=bool,
    ),
    Kind.DATE: TypeEntry(
        arrow=lambda _: pa.date32(),
        iceberg=lambda _: types.DateType(),
        duckdb="DATE",
        trino="date",
        python=date,
        packing=Packing.TEXT,
        json_schema={"type": "string", "format": "date"},
        parsed=str,
        convert=lambda text, _: scalars.calendar_date(text),
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
        python=datetime,
        packing=Packing.TIMESTAMP,
        json_schema={"type": "string", "format": "date-time"},
        parsed=str,
        convert=lambda text, _: scalars.timestamp(text),
    ),
    Kind.UUID: TypeEntry(
        arrow=lambda _: pa.binary(16),
        iceberg=lambda _: types.UUIDType(),
        duckdb="BLOB",
        trino="uuid",
        python=UUID,
        packing=Packing.BYTES,
        json_schema={"type": "string", "format": "uuid"},
        parsed=str,
        convert=lambda text, _: scalars.uuid(text),
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
        python=bytes,
        packing=Packing.BYTES,
        json_schema={"type": "string", "contentEncoding": "base64"},
        parsed=str,
        convert=lambda text, _: scalars.binary(text),
        key=KeyForm(encode=_escape, decode=_unescape, hashed=bytes, parse=scalars.binary),
    ),
    Kind.JSON: TypeEntry(
        arrow=lambda _: pa.string(),
        iceberg=lambda _: types.StringType(),
        duckdb="VARCHAR",
        trino="varchar",
        python=str,
        packing=Packing.TEXT,
        json_schema={"type": "string", "contentMediaType": "application/json"},
        parsed=msgspec.Raw,
        convert=_json_text,
    ),
}
EPOCHS: Final[dict[Kind, tuple[Epoch, ...]]] = {Kind.TIMESTAMPTZ: ("s", "ms", "us"), Kind.DATE: ("d",)}
"""The units since 1970-01-01 in which a number says when."""
_EPOCH_ENTRIES: Final = {
    Kind.TIMESTAMPTZ: replace(TYPES[Kind.TIMESTAMPTZ], parsed=_within(*scalars.LONG_RANGE), convert=_instant),
    Kind.DATE: replace(TYPES[Kind.DATE], parsed=_within(*scalars.INT_RANGE), convert=_day),
}
