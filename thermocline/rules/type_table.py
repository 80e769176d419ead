"""One table of what each kind of column is in every language that a value passes through.

A new kind is a word in `Kind`, an entry of `TYPES`, and its reading in SQL (`views.fields`), which says in
another language what ``parsed`` and ``convert`` say here. `tests/thermocline/test_kinds.py` walks each kind
through every reader and writer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
import pyarrow as pa
from pyiceberg import types
from pyiceberg.types import IcebergType

from thermocline.rules import nested_types, scalars
from thermocline.rules.nested_types import Convert, nullable, where_needed

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType

__all__ = [
    "EPOCHS",
    "EPOCH_ENTRIES",
    "ESCAPED_ZERO",
    "KEY_END",
    "TIMESTAMP",
    "TYPES",
    "Epoch",
    "KeyForm",
    "Kind",
    "Packing",
    "TypeEntry",
]

Epoch = Literal["s", "ms", "us", "d"]
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
    TIME = "time"
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


def _epoch_reader(of: ColumnType) -> Convert:
    assert of.epoch is not None
    make, factor = _FROM_MICROSECONDS[of.kind], _MICROSECONDS[of.epoch]
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


_FROM_MICROSECONDS: Final[Mapping[Kind, Callable[[int], Any]]] = {
    Kind.TIMESTAMPTZ: scalars.instant,
    Kind.TIMESTAMP: scalars.local_instant,
    Kind.TIME: scalars.time_of_day,
}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_INT_BIAS: Final = 2**31
_LONG_BIAS: Final = 2**63
_INT: Final = _within(*scalars.INT_RANGE)
_LONG: Final = _within(*scalars.LONG_RANGE)
_PYTHON, _PARSED, _CONVERT = attrgetter("python"), attrgetter("parsed"), attrgetter("convert")
_STORED, _NATURAL, _SPELLED = attrgetter("stored"), attrgetter("natural"), attrgetter("spelled")
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
    Kind.TIME: TypeEntry(
        arrow=lambda _: pa.time64("us"),
        iceberg=lambda _: types.TimeType(),
        duckdb="TIME",
        trino="time(6)",
        python=lambda _: time,
        packing=Packing.TEXT,
        json_schema=lambda _: {"type": "string", "pattern": scalars.CLOCK_TIME},
        parsed=lambda _: str,
        convert=lambda _: scalars.clock_time,
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
    Kind.TIME: ("s", "ms", "us"),
}
"""The units since 1970-01-01, and of a time since midnight, in which a number says when."""
EPOCH_ENTRIES: Final = {
    Kind.TIMESTAMPTZ: replace(TYPES[Kind.TIMESTAMPTZ], parsed=lambda _: _LONG, convert=_epoch_reader),
    Kind.TIMESTAMP: replace(TYPES[Kind.TIMESTAMP], parsed=lambda _: _LONG, convert=_epoch_reader),
    Kind.TIME: replace(TYPES[Kind.TIME], parsed=lambda _: _LONG, convert=_epoch_reader),
    Kind.DATE: replace(TYPES[Kind.DATE], parsed=lambda _: _INT, convert=lambda _: _day),
}
