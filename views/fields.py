"""A column's value from the JSON token that a record has for it, by the record rule, in Trino's SQL.

A token is the text of a field in the parsed document: strings with their quotes, so that ``"5"`` and ``5``
differ, integers digit by digit, other numbers as doubles (from Trino 480 on as decimals). A token is NULL
where the field is null or missing. A value is NULL for a token that the rule refuses, so that a record is
good when no column has a token without a value, and no key column is NULL. No expression fails: what may fail
stands in TRY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from thermocline.rules.column_types import Kind, for_every
from thermocline.rules.definition import Column
from thermocline.views import sql
from thermocline.views.fields_decimal import exact_decimal
from thermocline.views.fields_document import with_numbers_quoted

__all__ = ["objects_around", "token", "unreadable", "value"]

_DATE: Final = '^"[0-9]{4}-[0-9]{2}-[0-9]{2}"$'
_TIME: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
_TIMESTAMP: Final = (
    f'^"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}:[0-5][0-9](\\.[0-9]{{1,6}})?(Z|[-+]{_TIME})"$'
)
_LOCAL: Final = f'^"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}:[0-5][0-9](\\.[0-9]{{1,6}})?"$'
_CLOCK: Final = f'^"{_TIME}:[0-5][0-9](\\.[0-9]{{1,6}})?"$'
_UUID: Final = '^"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"$'
_YEARS: Final = ("TIMESTAMP '0001-01-01 00:00:00 UTC'", "TIMESTAMP '9999-12-31 23:59:59.999999 UTC'")
_SECONDS_A_DAY: Final = 86_400
_EPOCH_RANGES: Final = {
    "s": (1, -62_135_596_800, 253_402_300_799),
    "ms": (1_000, -62_135_596_800_000, 253_402_300_799_999),
    "us": (1_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999),
}
"""By unit: how many make a second, and the first and the last in the years 1 to 9999."""


def token(column: Column, parsed: str) -> str:
    """The column's token in a parsed document."""
    return _token(column.read_from, parsed)


def objects_around(columns: Iterable[Column], parsed: str) -> list[str]:
    """The tokens of what columns have paths through, each once: where one is no object, the record is bad."""
    paths = {column.read_from[:depth] for column in columns for depth in range(1, len(column.read_from))}
    return [_token(path, parsed) for path in sorted(paths)]


def _token(path: Sequence[str], parsed: str) -> str:
    return f"nullif(json_format(json_extract({parsed}, {sql.json_path(*path)})), 'null')"


def value(column: Column, found: str, text: str) -> str:
    """The column's value, of its type in Trino, from its token ``found`` in the document with that text."""
    make = _VALUES[column.type.kind]
    assert callable(make), "records that SQL can't read"
    return make(column, found, text)


def unreadable(column: Column) -> str | None:
    """Why SQL can't make the column's value of a token; None where it can."""
    if column.type.kind is Kind.DATE and column.type.epoch:
        return f"SQL can't read the numbers of column {column.name}"
    why = _VALUES[column.type.kind]
    return None if callable(why) else why.format(name=column.name)


def _integer(_: Column, found: str, __: str) -> str:
    return f"TRY_CAST({found} AS integer)"


def _long(_: Column, found: str, __: str) -> str:
    return f"TRY_CAST({found} AS bigint)"


def _double(_: Column, found: str, __: str) -> str:
    """What overflows is an array by now, save integers of many digits."""
    return f"IF(is_finite(TRY_CAST({found} AS double)), CAST({found} AS double))"


def _boolean(_: Column, found: str, __: str) -> str:
    return f"CASE {found} WHEN 'true' THEN true WHEN 'false' THEN false END"


def _string(_: Column, found: str, __: str) -> str:
    return f"""\
IF({_is_string(found)},
  IF(strpos({found}, '\\') = 0, {_content(found)}, CAST(json_parse({found}) AS varchar)))"""


def _binary(_: Column, found: str, __: str) -> str:
    """Encoded again, it must be what it was: padded, and with no bits beyond the last byte."""
    return f"""\
IF({_is_string(found)},
  IF(to_base64(TRY(from_base64({_content(found)}))) = {_content(found)}, from_base64({_content(found)})))"""


def _decimal(column: Column, found: str, text: str) -> str:
    """Integers and strings have all their digits; other numbers are doubles, so the text is asked again."""
    precision, scale = column.type.precision, column.type.scale
    assert precision is not None
    assert scale is not None
    number = f"""\
CASE
  WHEN {_is_string(found)} THEN {_content(found)}
  WHEN strpos({found}, '.') > 0 OR strpos({found}, 'E') > 0 THEN {_digits(column, text)}
  ELSE {found}
END"""
    return f"""\
element_at(transform(ARRAY[{sql.moved_in(number, 1)}],
  number -> {sql.moved_in(exact_decimal("number", precision, scale), 1)}), 1)"""


def _digits(column: Column, text: str) -> str:
    """The column's number as it was written.

    The quick way finds the first field of that name, which must be the only one: its name stands in the text
    once, and is not spelled with escapes elsewhere. Else it is the last one, a string staying what it is. So
    it is inside an object.
    """
    path = sql.json_path(*column.read_from)
    slow = f"json_extract_scalar({with_numbers_quoted(text)}, {path})"
    if len(column.read_from) > 1:
        return slow
    (name,) = column.read_from
    quoted = f'"{name}"'
    occurring = f"length({text}) - length(replace({text}, {sql.literal(quoted)}, ''))"
    escapes = ["\\u", "\\/"] if "/" in name else ["\\u"]
    unescaped = " AND ".join(f"strpos({text}, '{escape}') = 0" for escape in escapes)
    return f"""\
IF({occurring} = {len(quoted)} AND {unescaped},
  json_extract_scalar({text}, {path}), {slow})"""


def _date(_: Column, found: str, __: str) -> str:
    is_date = f"regexp_like({found}, {sql.literal(_DATE)}) AND substr({found}, 2, 4) <> '0000'"
    return f"IF({is_date}, TRY_CAST(substr({found}, 2, 10) AS date))"


def _timestamp(column: Column, found: str, text: str) -> str:
    """Trino knows no offsets beyond 14 hours, so the time is read as UTC and then moved."""
    if column.type.epoch is not None:
        return _instant(column, found, text)
    utc = f"substr({found}, 2, 10) || ' ' || regexp_extract({found}, 'T([0-9:.]+)', 1) || ' UTC'"
    is_timestamp = f"regexp_like({found}, {sql.literal(_TIMESTAMP)}) AND substr({found}, 2, 4) <> '0000'"
    minutes = f"CAST(substr({found}, -6, 2) AS integer) * 60 + CAST(substr({found}, -3, 2) AS integer)"
    return f"""\
IF({is_timestamp},
  IF(substr({found}, -2, 1) = 'Z', TRY_CAST({utc} AS timestamp(6) with time zone),
    element_at(filter(
      ARRAY[date_add('minute', ({minutes}) * IF(substr({found}, -7, 1) = '+', -1, 1),
        TRY_CAST({utc} AS timestamp(6) with time zone))],
      moved -> moved BETWEEN {_YEARS[0]} AND {_YEARS[1]}), 1)))"""


def _local_timestamp(column: Column, found: str, text: str) -> str:
    if column.type.epoch is not None:
        return f"CAST({_instant(column, found, text)} AT TIME ZONE 'UTC' AS timestamp(6))"
    is_timestamp = f"regexp_like({found}, {sql.literal(_LOCAL)}) AND substr({found}, 2, 4) <> '0000'"
    return f"IF({is_timestamp}, TRY_CAST(replace({_content(found)}, 'T', ' ') AS timestamp(6)))"


def _time_of_day(column: Column, found: str, _: str) -> str:
    if column.type.epoch is not None:
        per_second = _EPOCH_RANGES[column.type.epoch][0]
        at = f"{_moment(found, per_second)} AT TIME ZONE 'UTC'"
        return f"""\
IF(TRY_CAST({found} AS bigint) BETWEEN 0 AND {_SECONDS_A_DAY * per_second - 1},
  CAST({at} AS time(6)))"""
    return f"IF(regexp_like({found}, {sql.literal(_CLOCK)}), TRY_CAST({_content(found)} AS time(6)))"


def _instant(column: Column, found: str, _: str) -> str:
    assert column.type.epoch is not None
    per_second, first, last = _EPOCH_RANGES[column.type.epoch]
    return f"""\
IF(TRY_CAST({found} AS bigint) BETWEEN {first} AND {last},
  {_moment(found, per_second)})"""


def _moment(found: str, per_second: int) -> str:
    nanoseconds = f"CAST({found} AS decimal(38, 0)) * {1_000_000_000 // per_second}"
    return f"CAST(from_unixtime_nanos({nanoseconds}) AS timestamp(6) with time zone)"


def _uuid(_: Column, found: str, __: str) -> str:
    return f"IF(regexp_like({found}, {sql.literal(_UUID)}), CAST({_content(found)} AS uuid))"


def _content(found: str) -> str:
    """What stands between the quotes of a string's token."""
    return f"substr({found}, 2, length({found}) - 2)"


def _is_string(found: str) -> str:
    return f"""starts_with({found}, '"')"""


_NESTED: Final = "SQL can't read the nested column {name}"
_VALUES: Final[Mapping[Kind, Callable[[Column, str, str], str] | str]] = for_every(
    Kind,
    {
        Kind.INT: _integer,
        Kind.LONG: _long,
        Kind.STRING: _string,
        Kind.DOUBLE: _double,
        Kind.DECIMAL: _decimal,
        Kind.BOOLEAN: _boolean,
        Kind.DATE: _date,
        Kind.TIME: _time_of_day,
        Kind.TIMESTAMPTZ: _timestamp,
        Kind.TIMESTAMP: _local_timestamp,
        Kind.UUID: _uuid,
        Kind.BINARY: _binary,
        Kind.JSON: "SQL can't take the text of column {name} out of a record as it stands there",
        Kind.STRUCT: _NESTED,
        Kind.LIST: _NESTED,
        Kind.MAP: _NESTED,
    },
)
"""What makes the value, or why nothing does."""
