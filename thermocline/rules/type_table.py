"""One table of what each kind of column is in every language that a value passes through.

A new kind is a word in `Kind` and an entry of `TYPES`. What needs a format or a room of its own to be said
is a mapping made by `for_every`, which no kind can be missing from: which types of Avro and of Protobuf
become the kind (`decode.avro.fitting`, `decode.protobuf.fitting`), how Trino's SQL reads it out of JSON
(`views.fields`), and its description (`docs/generate.py`). `tests/thermocline/test_kinds.py` walks each kind
through every reader and writer.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import msgspec
import pyarrow as pa
from pyiceberg import types

from thermocline.rules import arrow_texts, nested_types, scalars
from thermocline.rules.nested_types import Convert, nullable, where_needed
from thermocline.rules.type_entry import (
    KEY_END,
    Counted,
    Epoch,
    KeyForm,
    Kind,
    Packing,
    Token,
    TypeEntry,
    for_every,
)

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType

__all__ = ["EPOCHS", "EPOCH_ENTRIES", "ESCAPED_ZERO", "TIMESTAMP", "TYPES"]

TIMESTAMP: Final = pa.timestamp("us", "UTC")
ESCAPED_ZERO: Final = b"\x00\xff"


def _decimal_type(of: ColumnType) -> types.DecimalType:
    assert of.precision is not None
    assert of.scale is not None
    return types.DecimalType(of.precision, of.scale)


def _decimal_reader(of: ColumnType) -> Convert:
    of_text = _decimal_of_text(of)

    def read(raw: msgspec.Raw) -> Any:
        token = bytes(raw)
        if token == b"null":
            return None
        if not token.startswith(b'"'):
            return of_text(token.decode())
        text = msgspec.json.decode(token, type=str)
        try:
            return of_text(text)
        except ValueError as error:
            raise ValueError(f"{error}{_hint_of_base64(text)}") from None

    return read


def _decimal_of_text(of: ColumnType) -> Convert:
    assert of.precision is not None
    assert of.scale is not None
    return partial(scalars.decimal, precision=of.precision, scale=of.scale)


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


def _of_numbers(entry: TypeEntry) -> TypeEntry:
    """The same kind, declared with an epoch."""
    counted = entry.counted
    assert counted is not None

    def reader(of: ColumnType) -> Convert:
        assert of.epoch is not None
        factor = counted.units[of.epoch]
        return lambda number: counted.make(number * factor)

    return replace(entry, parsed=lambda _: counted.parsed, convert=reader)


def _escape(value: bytes) -> bytes:
    return value.replace(b"\x00", ESCAPED_ZERO) + KEY_END


def _unescape(value: bytes) -> bytes:
    return value.replace(ESCAPED_ZERO, b"\x00")


def _eight_bytes(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def _within(low: int, high: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=low, le=high)]


_UNITS: Final[Mapping[Epoch, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}  # in microseconds
_INT_BIAS: Final = 2**31
_LONG_BIAS: Final = 2**63
_INT: Final = _within(*scalars.INT_RANGE)
_LONG: Final = _within(*scalars.LONG_RANGE)
_PYTHON, _PARSED, _CONVERT = attrgetter("python"), attrgetter("parsed"), attrgetter("convert")
_STORED, _NATURAL, _SPELLED = attrgetter("stored"), attrgetter("natural"), attrgetter("spelled")
_pack_int: Final = struct.Struct(">I").pack
_pack_long: Final = struct.Struct(">Q").pack

_ENTRIES: Final = {
    Kind.INT: TypeEntry(
        arrow=lambda _: pa.int32(),
        iceberg=lambda _: types.IntegerType(),
        duckdb="INTEGER",
        trino="integer",
        python=lambda _: int,
        packing=Packing.NUMBER,
        json_schema=lambda _: {"type": "integer", "format": "int32"},
        parsed=lambda _: _INT,
        of_text=lambda _: lambda text: scalars.integer(text, *scalars.INT_RANGE),
        plain=("string", "int"),
        token=Token.NUMBER,
        texts=None,
        orders=True,
        key=KeyForm(
            encode=lambda value: _pack_int(value + _INT_BIAS),
            decode=lambda part: int.from_bytes(part) - _INT_BIAS,
            hashed=_eight_bytes,
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
        of_text=lambda _: lambda text: scalars.integer(text, *scalars.LONG_RANGE),
        plain=("string", "int", "long"),
        token=Token.NUMBER,
        texts=None,
        orders=True,
        key=KeyForm(
            encode=lambda value: _pack_long(value + _LONG_BIAS),
            decode=lambda part: int.from_bytes(part) - _LONG_BIAS,
            hashed=_eight_bytes,
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
        of_text=lambda _: str,
        plain=("string",),
        token=Token.TEXT,
        texts=None,
        orders=True,
        key=KeyForm(
            encode=lambda value: _escape(value.encode()),
            decode=lambda part: _unescape(part).decode(),
            hashed=str.encode,
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
        of_text=lambda _: scalars.double,
        plain=(),
        token=Token.NUMBER,
        texts=None,
        orders=False,
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
        of_text=_decimal_of_text,
        plain=("string",),
        token=Token.NUMBER,
        texts=arrow_texts.decimal_texts,
        orders=False,
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
        of_text=None,
        plain=(),
        token=Token.TRUTH,
        texts=None,
        orders=False,
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
        of_text=lambda _: scalars.calendar_date,
        plain=("string",),
        token=Token.TEXT,
        texts=None,
        orders=True,
        convert=lambda _: scalars.calendar_date,
        key=KeyForm(
            encode=lambda value: _pack_int(value.toordinal() - scalars.EPOCH_DAY + _INT_BIAS),
            decode=lambda part: date.fromordinal(int.from_bytes(part) - _INT_BIAS + scalars.EPOCH_DAY),
            hashed=lambda value: _eight_bytes(value.toordinal() - scalars.EPOCH_DAY),
            width=4,
            is_integer=True,
        ),
        counted=Counted({"d": 1}, _INT, scalars.day),
    ),
    Kind.TIME: TypeEntry(
        arrow=lambda _: pa.time64("us"),
        iceberg=lambda _: types.TimeType(),
        duckdb="TIME",
        trino="time(6)",
        python=lambda _: time,
        packing=Packing.TIME,
        json_schema=lambda _: {"type": "string", "pattern": scalars.CLOCK_TIME},
        parsed=lambda _: str,
        of_text=lambda _: scalars.clock_time,
        plain=("string",),
        token=Token.TEXT,
        texts=arrow_texts.clock_texts,
        orders=False,  # it begins again every day
        convert=lambda _: scalars.clock_time,
        counted=Counted(_UNITS, _LONG, scalars.time_of_day),
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
        of_text=lambda _: scalars.timestamp,
        plain=("string",),
        token=Token.TEXT,
        texts=arrow_texts.moment_texts,
        orders=True,
        since=datetime(1970, 1, 1, tzinfo=UTC),
        convert=lambda _: scalars.timestamp,
        counted=Counted(_UNITS, _LONG, scalars.instant),
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
        of_text=lambda _: scalars.local_timestamp,
        plain=("string",),
        token=Token.TEXT,
        texts=arrow_texts.wall_clock_texts,
        orders=True,
        since=datetime(1970, 1, 1),  # noqa: DTZ001  (a time without a zone)
        convert=lambda _: scalars.local_timestamp,
        counted=Counted(_UNITS, _LONG, scalars.local_instant),
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
        of_text=lambda _: scalars.uuid,
        plain=("string", "uuid", "bytes"),
        token=Token.TEXT,
        texts=arrow_texts.uuid_texts,
        orders=False,
        of_bytes=scalars.uuid_of_bytes,
        convert=lambda _: scalars.uuid,
        stored=lambda _: attrgetter("bytes"),
        natural=lambda _: lambda content: UUID(bytes=content),
        key=KeyForm(
            encode=lambda value: bytes(value.bytes),
            decode=lambda part: UUID(bytes=part),
            hashed=lambda value: bytes(value.bytes),
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
        of_text=lambda _: scalars.binary,
        plain=("bytes",),
        token=Token.TEXT,
        texts=arrow_texts.base64_texts,
        orders=False,
        of_bytes=bytes,
        convert=lambda _: _binary,
        key=KeyForm(encode=_escape, decode=_unescape, hashed=bytes),
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
        of_text=lambda _: str,
        plain=(),
        token=Token.TEXT,
        texts=None,
        orders=False,
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
        of_text=None,
        plain=(),
        token=None,
        texts=None,
        orders=False,
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
        json_schema=lambda of: {
            "type": "array",
            "items": nested_types.nullable_schema(of.fields[0].type),
        },
        parsed=lambda of: list[nullable(of.fields[0].type.parsed)],  # type: ignore[misc]
        of_text=None,
        plain=(),
        token=None,
        texts=None,
        orders=False,
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
        of_text=None,
        plain=(),
        token=None,
        texts=None,
        orders=False,
        convert=partial(nested_types.rebuilt_map, inside=_CONVERT),
        stored=where_needed(nested_types.rebuilt_map, _STORED),
        natural=partial(nested_types.map_of_pairs, inside=_NATURAL),
        spelled=where_needed(nested_types.rebuilt_map, _SPELLED),
    ),
}
TYPES: Final = for_every(Kind, _ENTRIES)
EPOCHS: Final = {kind: tuple(entry.counted.units) for kind, entry in TYPES.items() if entry.counted}
"""The units in which a number says when."""
EPOCH_ENTRIES: Final = {kind: _of_numbers(entry) for kind, entry in TYPES.items() if entry.counted}
