"""Typed values as text: the same in a record, in a URL and on the command line.

Each function takes the text of one value and gives its natural Python value, or raises ``ValueError`` with
a plain phrase. The rules are those of the record rule (docs/architecture/records.md).
"""

from __future__ import annotations

import base64
import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final
from uuid import UUID

__all__ = [
    "CLOCK_TIME",
    "EPOCH_DAY",
    "INT_RANGE",
    "LOCAL_TIMESTAMP",
    "LONG_RANGE",
    "NUMBER",
    "NUMBER_LENGTH_MAX",
    "PLAIN_SCALE_MAX",
    "binary",
    "calendar_date",
    "clock_time",
    "day",
    "decimal",
    "decimal_text",
    "double",
    "fitted",
    "hexadecimal",
    "instant",
    "integer",
    "local_instant",
    "local_timestamp",
    "time_of_day",
    "timestamp",
    "url_safe_binary",
    "uuid",
    "uuid_of_bytes",
]

INT_RANGE: Final = (-(2**31), 2**31 - 1)
LONG_RANGE: Final = (-(2**63), 2**63 - 1)
NUMBER: Final = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
"""A decimal's text, as a regular expression of what all of it must match."""
LOCAL_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
"""A time without a zone, as a regular expression."""
CLOCK_TIME: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
"""A time of day, as a regular expression."""
NUMBER_LENGTH_MAX: Final = 1_000
"""Of a decimal's text, in characters: what reads digits can take time by the square of their number."""
PLAIN_SCALE_MAX: Final = 6
"""With more decimal places, Python and Arrow write small decimals with an exponent (``1E-7``)."""
UUID_BYTES: Final = 16
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
"""The day from which epochs count, as `datetime.date` counts it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_INTEGER_DIGITS_MAX: Final = 20  # those of the least long, with its sign
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_HEX: Final = re.compile(r"([0-9a-fA-F]{2})*")
_STANDARD: Final = str.maketrans("-_", "+/")
_CLOCK: Final = re.compile(CLOCK_TIME)
_MICROSECONDS_A_DAY: Final = 86_400_000_000
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER: Final = re.compile(NUMBER)
_OFFSET: Final = re.compile(r".*[+-]([01][0-9]|2[0-3]):[0-5][0-9]")

# A timestamp's shape is its text with each digit as 0. Translating bytes and looking the shape up takes half
# the time that a regular expression takes, and this runs for every record.
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_FRACTIONS: Final = ("", *("." + "0" * digits for digits in range(1, 7)))
_UTC_SHAPES: Final = frozenset(f"0000-00-00T00:00:00{fraction}Z".encode() for fraction in _FRACTIONS)
_LOCAL_SHAPES: Final = frozenset(f"0000-00-00T00:00:00{fraction}".encode() for fraction in _FRACTIONS)
_OFFSET_SHAPES: Final = frozenset(
    f"0000-00-00T00:00:00{fraction}{sign}00:00".encode() for fraction in _FRACTIONS for sign in "+-"
)


def integer(text: str, low: int, high: int) -> int:
    """A JSON integer token within [low, high]."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("not an integer")
    if len(text) > _INTEGER_DIGITS_MAX or not low <= (value := int(text)) <= high:
        raise ValueError("an integer out of range")
    return value


def calendar_date(text: str) -> date:
    """An RFC 3339 full-date, years 1 to 9999."""
    if _DATE.fullmatch(text) is None:
        raise ValueError("not a date of the form YYYY-MM-DD")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("not a date of the calendar") from None


def day(number: int) -> date:
    """The day so many days after 1970-01-01, or before."""
    try:
        return date.fromordinal(number + EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueError(f"{number} days since 1970 are not in the years 1 to 9999") from None


def timestamp(text: str) -> datetime:
    """An RFC 3339 date-time, T and Z in capitals, as UTC; no leap second, at most 6 digits of fraction."""
    shape = text.encode().translate(_DIGITS)
    try:
        if shape in _UTC_SHAPES:
            return datetime.fromisoformat(text)
        if shape in _OFFSET_SHAPES and _OFFSET.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("not a time of the calendar from year 1 to 9999") from None
    raise ValueError("not an RFC 3339 time with its zone and at most 6 fraction digits")


def local_timestamp(text: str) -> datetime:
    """A date and a time of day, as RFC 3339 has them, without a zone; no leap second, at most 6 digits."""
    if text.encode().translate(_DIGITS) not in _LOCAL_SHAPES:
        raise ValueError("not an RFC 3339 time without its zone, and at most 6 fraction digits")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("not a time of the calendar from year 1 to 9999") from None


def clock_time(text: str) -> time:
    """An RFC 3339 partial-time: a time of day without a zone; no leap second, at most 6 fraction digits."""
    if _CLOCK.fullmatch(text) is None:
        raise ValueError("not a time of day of the form HH:MM:SS, with at most 6 fraction digits")
    return time.fromisoformat(text)


def time_of_day(microseconds: int) -> time:
    """The time that many microseconds after midnight."""
    if not 0 <= microseconds < _MICROSECONDS_A_DAY:
        raise ValueError("not a time of day from 00:00:00 to 23:59:59.999999")
    return (_EPOCH + timedelta(0, 0, microseconds)).time()


def local_instant(microseconds: int) -> datetime:
    """The same by how many microseconds it is after the beginning of 1970."""
    return instant(microseconds).replace(tzinfo=None)


def instant(microseconds: int) -> datetime:
    """The time that many microseconds after 1970 began, in years 1 to 9999."""
    try:
        return _EPOCH + timedelta(0, 0, microseconds)
    except OverflowError:
        raise ValueError("not a time from year 1 to 9999") from None


def double(text: str) -> float:
    """A number that a double has, which is neither infinite nor NaN."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def uuid_of_bytes(content: bytes) -> UUID:
    """A UUID by its 16 bytes."""
    if len(content) != UUID_BYTES:
        raise ValueError(f"{len(content)} bytes, not {UUID_BYTES}")
    return UUID(bytes=content)


def uuid(text: str) -> UUID:
    """A UUID in its canonical form, 8-4-4-4-12 hexadecimal digits of either case."""
    if _UUID.fullmatch(text) is None:
        raise ValueError("not a UUID of the form 8-4-4-4-12")
    return UUID(text)


def binary(text: str) -> bytes:
    """Base64 in the standard alphabet, padded, without whitespace, and with no bits beyond the last byte."""
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("not padded base64 in the standard alphabet") from None
    if base64.b64encode(value).decode() != text:
        raise ValueError("not canonical base64")
    return value


def url_safe_binary(text: str) -> bytes:
    """The same in the alphabet of URLs."""
    if "+" in text or "/" in text:
        raise ValueError("not padded base64 in the alphabet of URLs")
    return binary(text.translate(_STANDARD))


def hexadecimal(text: str) -> bytes:
    """Two digits for each byte, of either case."""
    if _HEX.fullmatch(text) is None:
        raise ValueError("not hexadecimal")
    return bytes.fromhex(text)


def decimal(text: str, precision: int, scale: int) -> Decimal:
    """A JSON number's text that fits the precision and scale without rounding; it gets that scale.

    It has at most 1,000 characters, and at most three digits of exponent.
    """
    if len(text) > NUMBER_LENGTH_MAX or _NUMBER.fullmatch(text) is None:
        raise ValueError("not a decimal number, of at most 1,000 characters and three digits of exponent")
    return fitted(Decimal(text), precision, scale)


def decimal_text(number: Decimal) -> str:
    """A decimal in plain notation, with all its decimal places: ``0.0000000``, never ``0E-7``."""
    text = str(number)  # in a third of the time of formatting it, and mostly plain
    return f"{number:f}" if "E" in text else text


def fitted(number: Decimal, precision: int, scale: int) -> Decimal:
    """A number that fits the precision and scale without rounding; it gets that scale."""
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    try:
        value = number.quantize(Decimal(1).scaleb(-scale), context=exact)
    except (InvalidOperation, Inexact):
        raise ValueError(f"does not fit decimal({precision},{scale}) without rounding") from None
    return value or value.copy_abs()
