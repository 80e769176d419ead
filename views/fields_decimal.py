"""A decimal column's value from the text of a number, exactly or not at all."""

from __future__ import annotations

from typing import Final

from views import sql

__all__ = ["exact_decimal"]

_NUMBER: Final = "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_EXPONENT_DIGITS_MAX: Final = 19
_ZERO_EXPONENTS: Final = (-1999999999999999997, 999999999999999999)
"""The exponents that a zero may have in Python's ``decimal``, and so in the record rule."""


def exact_decimal(text: str, precision: int, scale: int) -> str:
    """The value of a number's text, or NULL where that is no number or does not fit without rounding.

    The common form, without an exponent, is told by its digits alone: those that are too many are zeros.
    """
    plain, type_ = sql.literal(_plain(precision, scale)), f"decimal({precision}, {scale})"
    return f"""\
CASE
  WHEN regexp_like({text}, {plain}) THEN CAST({text} AS {type_})
  WHEN regexp_like({text}, {sql.literal(_NUMBER)}) THEN
{sql.indented(sql.indented(_scaled(text, precision, scale)))}
END"""


def _plain(precision: int, scale: int) -> str:
    whole = f"(0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    fraction = f"(\\.[0-9]{{1,{scale}}}0*)?" if scale else "(\\.0+)?"
    return f"^-?{whole}{fraction}$"


def _scaled(text: str, precision: int, scale: int) -> str:
    """The same of any number: its digits without zeros around them, and the power of ten that they count.

    The lambdas are only there to name what is used several times.
    """
    type_ = f"decimal({precision}, {scale})"
    least, greatest = _ZERO_EXPONENTS
    return f"""\
element_at(transform(ARRAY[CAST(ROW(
    regexp_extract({text}, '^-?([0-9]+)', 1) || coalesce(regexp_extract({text}, '\\.([0-9]+)', 1), ''),
    coalesce(length(regexp_extract({text}, '\\.([0-9]+)', 1)), 0),
    coalesce(regexp_extract({text}, '[eE]\\+?(-?)', 1), ''),
    coalesce(regexp_extract({text}, '[eE][-+]?0*([0-9]+)$', 1), '0')
  ) AS ROW(digits varchar, fraction bigint, sign varchar, exponent varchar))],
  n -> IF(length(n.exponent) <= {_EXPONENT_DIGITS_MAX},
    element_at(transform(ARRAY[CAST(ROW(
        trim(BOTH '0' FROM n.digits),
        CAST(n.sign || n.exponent AS decimal(38, 0)) - n.fraction,
        length(n.digits) - length(trim(TRAILING '0' FROM n.digits))
      ) AS ROW(digits varchar, exponent decimal(38, 0), zeros bigint))],
      d -> CASE
        WHEN d.digits = '' THEN IF(d.exponent BETWEEN {least} AND {greatest}, CAST(0 AS {type_}))
        WHEN d.exponent + d.zeros < -{scale} THEN NULL
        WHEN length(d.digits) + d.exponent + d.zeros > {precision - scale} THEN NULL
        ELSE CAST(
          IF(starts_with({text}, '-'), '-', '') || d.digits || 'E' || CAST(d.exponent + d.zeros AS varchar)
          AS {type_})
      END), 1))), 1)"""
