"""A decimal column's value from the text of a number, exactly or not at all."""

from __future__ import annotations

from thermocline.rules.scalars import NUMBER, NUMBER_LENGTH_MAX
from thermocline.views import sql

__all__ = ["exact_decimal"]


def exact_decimal(text: str, precision: int, scale: int) -> str:
    """The value of a number's text, or NULL where that is no number or does not fit without rounding.

    The common form, without an exponent, is told by its digits alone: those that are too many are zeros. Of
    any other, Trino's cast rounds: it did not where the value has the same digits, save zeros around them. (A
    value with the same digits at other places would be at least ten times as large or as small: no rounding
    goes so far.)
    """
    type_ = f"decimal({precision}, {scale})"
    cast = f"TRY_CAST({text} AS {type_})"
    return f"""\
IF(length({text}) <= {NUMBER_LENGTH_MAX},
  CASE
    WHEN regexp_like({text}, {sql.literal(_plain(precision, scale))}) THEN CAST({text} AS {type_})
    WHEN regexp_like({text}, {sql.literal(f"^{NUMBER}$")}) THEN
      IF({_digits(text)} = {_digits(f"CAST({cast} AS varchar)")}, {cast})
  END)"""


def _plain(precision: int, scale: int) -> str:
    whole = f"(0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    fraction = f"(\\.[0-9]{{1,{scale}}}0*)?" if scale else "(\\.0+)?"
    return f"^-?{whole}{fraction}$"


def _digits(number: str) -> str:
    return f"trim(BOTH '0' FROM replace(regexp_extract({number}, '[0-9.]+'), '.'))"
