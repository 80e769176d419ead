"""Conversions from Avro's types to those of columns.

A logical type that says what a number or bytes mean is never left aside: a writer's next schema may mean
something else by the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec

from thermocline.rules import scalars
from thermocline.rules.avro_schema import CONNECT, DEBEZIUM_TIME, VARIABLE_DECIMAL, AvroType
from thermocline.rules.column_types import ColumnType, Kind, for_every
from thermocline.rules.decode.avro.values import EPOCH_DAY, Unfit
from thermocline.rules.decode.exact import decimal_of, finite, instant_of_nanoseconds, whole_microseconds

__all__ = ["Convert", "conversion", "json_text"]

Convert = Callable[[Any], Any]
"""Makes a column's value of what is read; raises `ValueError` with a plain phrase where it can't be one."""


def conversion(of: AvroType, to: ColumnType) -> Convert | None:
    """What makes the column's value of a read one; None where they are the same.

    Raises:
        ValueError: the column does not take that type.
    """
    if to.kind is Kind.DECIMAL and of.logical == "decimal":
        return partial(_decimal, scale=of.scale, to=to)
    if to.kind is Kind.DECIMAL and of.logical == VARIABLE_DECIMAL:
        return partial(_variable_decimal, to=to)
    if to.epoch is not None and ((of.kind, of.logical) in _NUMBERS or _EPOCHS.get(of.logical) == to.epoch):
        return to.convert
    taken = _TAKEN[to.kind]
    if to.epoch is None and (of.kind, of.logical) in taken:
        return taken[of.kind, of.logical]
    raise ValueError(_not_taken(of, to))  # safety: avro-other-type


def _not_taken(of: AvroType, to: ColumnType) -> str:
    if of.logical.startswith("local-timestamp") and to.kind is Kind.TIMESTAMPTZ:
        return f"the record has a {of}, which has no zone and so is no moment"
    if of.logical.startswith(("timestamp", f"{CONNECT}Timestamp")) and to.kind is Kind.TIMESTAMP:
        return f"the record has a {of}, which is a moment: a timestamptz takes it"
    return f"the record has a value of type {of}"


def json_text(value: Any) -> str | None:
    """The text of a ``json`` column's value; None for null."""
    return None if value is None else _JSON.encode(value).decode()


def _decimal(unscaled: bytes, scale: int, to: ColumnType) -> Decimal:
    assert to.precision is not None
    assert to.scale is not None
    return scalars.fitted(decimal_of(unscaled, scale), to.precision, to.scale)


def _variable_decimal(fields: dict[str, Any], to: ColumnType) -> Decimal:
    scale, unscaled = fields.get("scale"), fields.get("value")
    if not isinstance(scale, int) or not isinstance(unscaled, bytes):
        raise ValueError("a decimal without a scale and a value")  # noqa: TRY004  (see `Convert`)
    return _decimal(unscaled, scale, to)


def _of_epoch(number: int, factor: int) -> Any:
    return scalars.instant(number * factor)


def _local_of_nanoseconds(number: int) -> Any:
    return instant_of_nanoseconds(number).replace(tzinfo=None)


def _local_of_epoch(number: int, factor: int) -> Any:
    return scalars.local_instant(number * factor)


def _time_of_day(number: int, factor: int) -> time:
    return scalars.time_of_day(number * factor)


def _time_of_nanoseconds(number: int) -> time:
    return scalars.time_of_day(whole_microseconds(number))


def _date(days: int) -> date:
    try:
        return date.fromordinal(days + EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueError("not a date from year 1 to 9999") from None


def _refuse(value: object) -> object:
    if isinstance(value, Unfit):
        raise ValueError(value.reason)  # noqa: TRY004  (what is refused is a ValueError throughout)
    raise NotImplementedError


_NUMBERS: Final = (("int", ""), ("long", ""))
_EPOCHS: Final = {
    f"{DEBEZIUM_TIME}Date": "d",
    f"{DEBEZIUM_TIME}Timestamp": "ms",
    f"{DEBEZIUM_TIME}MicroTimestamp": "us",
    f"{CONNECT}Date": "d",
    f"{CONNECT}Time": "ms",
    f"{DEBEZIUM_TIME}Time": "ms",
    f"{DEBEZIUM_TIME}MicroTime": "us",
    f"{CONNECT}Timestamp": "ms",
}
_JSON: Final = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical", enc_hook=_refuse)
_TAKEN: Final[Mapping[Kind, Mapping[tuple[str, str], Convert | None]]] = for_every(
    Kind,
    {
        Kind.INT: {("int", ""): None},
        Kind.LONG: {("int", ""): None, ("long", ""): None},
        Kind.STRING: {
            ("string", ""): None,
            ("string", "uuid"): None,
            ("enum", ""): None,
            ("string", f"{DEBEZIUM_TIME}ZonedTimestamp"): None,
            ("string", "io.debezium.data.Uuid"): None,
        },
        Kind.DOUBLE: {("float", ""): finite, ("double", ""): finite},
        Kind.DECIMAL: {},  # see `conversion`: the scale is the schema's, or the value's
        Kind.BOOLEAN: {("boolean", ""): None},
        Kind.DATE: {
            ("int", "date"): _date,
            ("int", f"{DEBEZIUM_TIME}Date"): _date,
            ("int", f"{CONNECT}Date"): _date,
        },
        Kind.TIME: {
            ("int", "time-millis"): partial(_time_of_day, factor=1_000),
            ("long", "time-micros"): scalars.time_of_day,
            ("int", f"{CONNECT}Time"): partial(_time_of_day, factor=1_000),
            ("int", f"{DEBEZIUM_TIME}Time"): partial(_time_of_day, factor=1_000),
            ("long", f"{DEBEZIUM_TIME}MicroTime"): scalars.time_of_day,
            ("long", f"{DEBEZIUM_TIME}NanoTime"): _time_of_nanoseconds,
        },
        Kind.TIMESTAMPTZ: {
            ("long", "timestamp-millis"): partial(_of_epoch, factor=1_000),
            ("long", "timestamp-micros"): scalars.instant,
            ("long", "timestamp-nanos"): instant_of_nanoseconds,
            ("long", f"{CONNECT}Timestamp"): partial(_of_epoch, factor=1_000),
            # Without a zone in the database: Debezium writes them as UTC has them.
            ("long", f"{DEBEZIUM_TIME}Timestamp"): partial(_of_epoch, factor=1_000),
            ("long", f"{DEBEZIUM_TIME}MicroTimestamp"): scalars.instant,
            ("long", f"{DEBEZIUM_TIME}NanoTimestamp"): instant_of_nanoseconds,
            ("string", f"{DEBEZIUM_TIME}ZonedTimestamp"): scalars.timestamp,
        },
        Kind.TIMESTAMP: {
            ("long", "local-timestamp-millis"): partial(_local_of_epoch, factor=1_000),
            ("long", "local-timestamp-micros"): scalars.local_instant,
            ("long", "local-timestamp-nanos"): _local_of_nanoseconds,
            ("long", f"{DEBEZIUM_TIME}Timestamp"): partial(_local_of_epoch, factor=1_000),
            ("long", f"{DEBEZIUM_TIME}MicroTimestamp"): scalars.local_instant,
            ("long", f"{DEBEZIUM_TIME}NanoTimestamp"): _local_of_nanoseconds,
        },
        Kind.UUID: {
            ("string", "io.debezium.data.Uuid"): scalars.uuid,
            ("string", "uuid"): scalars.uuid,
            ("fixed", "uuid"): scalars.uuid_of_bytes,
        },
        Kind.BINARY: {("bytes", ""): None, ("fixed", ""): None},
        # What is nested is taken apart before, and a json column takes anything.
        **{kind: {} for kind in (Kind.JSON, Kind.STRUCT, Kind.LIST, Kind.MAP)},
    },
)
