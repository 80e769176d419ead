"""The text of a record's key or value, read as one JSON object, or NULL where the record rule refuses it.

What Trino's parser lets through although the rule does not, is refused here: invalid UTF-8 (which it would
replace), surrogates without their pair, and nesting beyond ``NESTING_MAX``, where it may run out of stack,
and take the query with it. A number beyond all doubles, which it would make the string "Infinity" of, becomes
an array, so that it is no column's token. Each check stands behind a cheap one that nearly all records pass,
in nested IFs: Trino evaluates these lazily, while it may swap the terms of an AND. All of it is written once
for a document: a query takes longer to plan with each expression in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thermocline.rules.decode.connect import BEGINNING
from thermocline.rules.decode.json_documents import NESTING_MAX
from thermocline.views import sql

__all__ = ["document", "with_a_field", "with_numbers_quoted", "without_schema"]

# One that never ends lasts to the end of the text: else each of its quotes would be tried as a beginning.
_STRING: Final = r'"[^"\\]*(\\(.|\n)[^"\\]*)*(?:"|\\?\z)'
_NUMBER: Final = r"-?[0-9][-+.eE0-9]*"
_FOUND: Final = "found[4]"
"""The number that is to be replaced, or NULL where it is a string."""
_ESCAPE_OR_PAIR: Final = r"\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE: Final = r"\\u[dD][89a-fA-F]"


def document(text: str, length: str) -> str:
    """The JSON value of a text, or NULL; ``text`` and ``length`` (in bytes) are columns.

    Of duplicate names the last one stays. Integers are kept to the last digit; other numbers become doubles
    (decimals from Trino 480 on).
    """
    # safety: guard-object, guard-characters
    return f"""\
IF(from_utf8(to_utf8({text})) = {text}, -- UTF-8: nothing had to be replaced
  IF(starts_with(ltrim({text}), '{{'),
    IF({sql.moved_in(_is_shallow(text, length), 2)},
      IF({_has_whole_characters(text)},
        {sql.moved_in(_parsed(text), 4)}))))"""  # safety: guard-utf8


def without_schema(read: str, text: str, reason: str) -> str:
    """The value that ``read`` gives of a text. The query fails where the text has its schema beside it.

    What such a value means, the schema says, and SQL can't read by that.
    """
    names = "array_sort(map_keys(CAST(parsed AS map(varchar, json))))"
    schema = "json_format(json_extract(parsed, '$.schema'))"
    return f"""\
element_at(transform(ARRAY[{sql.moved_in(read, 1)}],
  parsed -> IF(starts_with({text}, {sql.literal(BEGINNING.decode())}),
    IF({names} = ARRAY['payload', 'schema'] AND ({schema} = 'null' OR starts_with({schema}, '{{')),
      CAST(fail({sql.literal(reason)}) AS json), parsed), parsed)), 1)"""  # safety: guard-schema


def with_a_field(read: str, names: Sequence[str]) -> str:
    """The value that ``read`` gives, where it is an object without fields, or with one of these names."""
    has_one = " OR ".join(f"json_extract(parsed, {sql.json_path(name)}) IS NOT NULL" for name in names)
    return f"""\
element_at(transform(ARRAY[{sql.moved_in(read, 1)}],
  parsed -> IF({has_one} OR json_size(parsed, '$') = 0, parsed)), 1)"""  # safety: guard-needs-a-field


def with_numbers_quoted(text: str) -> str:
    """The JSON value of a text, where it is valid, with each number as a string: no digit of it is lost."""
    quoted = _with_each_number(text, f"""'"' || {_FOUND} || '"'""")
    return f"TRY(json_parse({quoted}))"


def _parsed(text: str) -> str:
    """The value; where there may be numbers that no double holds, parsed again with empty arrays for them."""
    finite = _with_each_number(text, f"IF(is_infinite(CAST({_FOUND} AS double)), '[]', {_FOUND})")
    return f"""\
element_at(transform(ARRAY[TRY(json_parse({text}))],
  parsed -> IF(strpos(json_format(parsed), 'Infinity"') > 0, json_parse({finite}), parsed)), 1)"""


def _with_each_number(text: str, replacement: str) -> str:
    """A text that is valid JSON, with an expression on ``_FOUND`` in the place of each number in it."""
    pattern = sql.literal(f"({_STRING})|({_NUMBER})")
    return f"regexp_replace({text}, {pattern}, found -> coalesce(found[1], {replacement}))"


def _is_shallow(text: str, length: str) -> str:
    """Each level takes two bytes and an opening bracket, so that few documents are looked at more closely.

    These are walked bracket by bracket, and once too deep it stays so.
    """
    opened = f"length({text}) - length(replace(replace({text}, '[', ''), '{{', ''))"
    brackets = rf"regexp_extract_all(regexp_replace({text}, {sql.literal(_STRING)}, ''), '[\[\]{{}}]')"
    return f"""IF({length} <= {2 * NESTING_MAX}, true, IF({opened} <= {NESTING_MAX}, true,
        reduce({brackets}, 0,
          (level, bracket) -> IF(level > {NESTING_MAX}, level, level + IF(bracket IN ('[', '{{'), 1, -1)),
          level -> level <= {NESTING_MAX})))"""


def _has_whole_characters(text: str) -> str:
    """No escaped surrogate is left when all other escapes and all pairs are taken away."""
    pattern, surrogate = sql.literal(_ESCAPE_OR_PAIR), sql.literal(_SURROGATE)
    has_surrogate = rf"strpos({text}, '\ud') > 0 OR strpos({text}, '\uD') > 0"
    return f"IF({has_surrogate}, NOT regexp_like(regexp_replace({text}, {pattern}, ' '), {surrogate}), true)"
