"""Numbers and bytes that mean a decimal or a time, as exactly that; what is not exact is refused.

Each function raises ``ValueError`` with a plain phrase.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from math import isfinite
from typing import Final

import numpy as np

from thermocline.rules import scalars

__all__ = [
    "decimal_of",
    "finite",
    "instant_of_nanoseconds",
    "instants",
    "text_of_nanoseconds",
    "whole_microseconds",
]

DECIMAL_BITS_MAX: Final = 4_096
"""Of a decimal: beyond it, writing its digits takes time by the square of their number."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS: Final = (-62_135_596_800, 253_402_300_799)
"""Since 1970, the first of year 1 and the last of year 9999."""
NANOSECONDS: Final = 1_000_000_000  # in a second
_EXACT: Final = Context(prec=DECIMAL_BITS_MAX)


def decimal_of(unscaled: bytes, scale: int) -> Decimal:
    """The number that a decimal's bytes say, big-endian."""
    if not unscaled:
        raise ValueError("a decimal without bytes")
    number = int.from_bytes(unscaled, signed=True)
    if number.bit_length() > DECIMAL_BITS_MAX or abs(scale) > DECIMAL_BITS_MAX:
        raise ValueError("a decimal out of range")
    return Decimal(number).scaleb(-scale, _EXACT)


def finite(number: float) -> float:
    """A number that every read path can give."""
    if not isfinite(number):  # safety: avro-finite
        raise ValueError(f"{number} can't be written in JSON, so no answer could have it")
    return number


def instant_of_nanoseconds(nanoseconds: int) -> datetime:
    """The time that many nanoseconds after 1970 began, if it has no more than microseconds."""
    return scalars.instant(whole_microseconds(nanoseconds))


def whole_microseconds(nanoseconds: int) -> int:
    """The same as microseconds, if it is whole ones."""
    microseconds, rest = divmod(nanoseconds, 1_000)
    if rest:  # safety: avro-nanoseconds
        raise ValueError("a time with nanoseconds, and columns have microseconds")
    return microseconds


def instants(seconds: Sequence[int], nanoseconds: Sequence[int]) -> list[datetime]:
    """The times so many seconds and nanoseconds after 1970 began, as `instant_of_nanoseconds` has each.

    Refused where any of them is; which one, that says.
    """
    if not seconds:
        return []
    whole, parts = np.array(seconds, np.int64), np.array(nanoseconds, np.int64)
    is_time = whole.min() >= SECONDS[0] and whole.max() <= SECONDS[1]
    is_part = parts.min() >= 0 and parts.max() < NANOSECONDS and not (parts % 1_000).any()
    if not (is_time and is_part):  # safety: exact-instants
        raise ValueError("not all are times with microseconds")
    since: list[timedelta] = (whole * 1_000_000 + parts // 1_000).astype("m8[us]").tolist()
    return list(map(_EPOCH.__add__, since))


def text_of_nanoseconds(nanoseconds: int, suffix: str) -> str:
    """The same as text, with nine digits of fraction."""
    microseconds, rest = divmod(nanoseconds, 1_000)
    text = scalars.instant(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0")
    return f"{text}{rest:03}{suffix}"
