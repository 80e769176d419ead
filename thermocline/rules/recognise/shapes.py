"""Types of JSON values, by all of them that a sample has.

A type is never narrower than what was seen: integers are ``long``, times as numbers stay numbers, and values
of several kinds are ``json``, which takes anything. Of objects only some fields may have been seen, and
fields can't be added within a column, so an object is ``json``, too, with a struct to choose instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from thermocline.rules import scalars
from thermocline.rules.column_types import DECIMAL_PRECISION_MAX, FIELD_NAME
from thermocline.rules.recognise.parts import Number

__all__ = ["Guess", "Shape"]

LEVELS_MAX: Final = 8
FIELDS_MAX: Final = 200
"""Of an object: one with more is a map, whose names are data."""
STRUCT_FIELDS_MAX: Final = 20
DOUBLE_DIGITS: Final = 15
"""Decimal digits that a double keeps, whatever they are."""
DOUBLE_POWERS: Final = 308  # of ten: beyond it, none is finite
_SINCE_1970: Final = (946_684_800, 4_102_444_800)  # the years 2000 to 2099, in seconds
_UNITS: Final = (("s", 1, "seconds"), ("ms", 1_000, "milliseconds"), ("us", 1_000_000, "microseconds"))
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")

_STRINGS: Final[dict[str, Callable[[str], object]]] = {
    "timestamptz": scalars.timestamp,
    "timestamp": scalars.local_timestamp,
    "date": scalars.calendar_date,
    "uuid": scalars.uuid,
    "time": scalars.clock_time,
    "integer": lambda text: scalars.integer(text, *scalars.LONG_RANGE),
    "number": lambda text: scalars.decimal(text, DECIMAL_PRECISION_MAX, DECIMAL_PRECISION_MAX // 2),
}
"""What a text may be, by what reads it; what tells most comes first."""
_TAKEN: Final = {
    "timestamptz": "a time with its zone, as text",
    "timestamp": "a time without a zone, as text",
    "date": "a date, as text",
}
_HINTS: Final = {
    "uuid": 'each is a UUID: "uuid" stores 16 bytes, and refuses any other text',
    "time": 'each is a time of day, or a duration: "time" reads times of day',
    "integer": 'each is an integer written as text: "string" keeps it as it is',
    "number": 'each is a number written as text: "decimal(p,s)" reads it, if it always fits',
}


@dataclass(frozen=True, slots=True)
class Guess:
    """A type as definitions spell it, None where nothing tells it; what was seen, and what else it may be."""

    type: str | None
    seen: str
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Shape:
    """What the values of a field are; ``present`` counts nulls, too."""

    present: int = 0
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    low: int = 0
    high: int = 0
    digits: int = 0
    whole_digits: int = 0
    scale: int = 0
    is_exact: bool = True
    texts: set[str] = field(default_factory=lambda: set(_STRINGS))
    fields: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None

    @classmethod
    def of(cls, values: Iterable[Any]) -> Shape:
        """The shape of some values."""
        shape = cls()
        for value in values:
            shape.add(value)
        return shape

    def add(self, value: Any, level: int = 0) -> None:
        """Takes up one more value, as `document_of` has it."""
        self.present += 1
        if value is None:
            self.nulls += 1
        elif isinstance(value, bool):
            self.kinds["boolean"] += 1
        elif isinstance(value, Number):
            self._add_number(value)
        elif isinstance(value, str):
            self.kinds["string"] += 1
            self.texts = {name for name in self.texts if _reads(_STRINGS[name], value)}
        else:
            self._add_nested(value, level)

    def guess(self) -> Guess:
        """The type, and what speaks for it."""
        kinds = set(self.kinds)
        if kinds == {"number", "integer"}:
            kinds = {"number"}
        if not kinds:
            return Guess(None, "null" if self.present else "nothing")
        if len(kinds) > 1:
            seen = ", ".join(f"{_WORDS[kind]} in {count:,}" for kind, count in self.kinds.most_common())
            return Guess("json", seen, ("values of several kinds: json keeps each as its text",))
        return _GUESSES[kinds.pop()](self)

    def _add_number(self, value: Number) -> None:
        is_integer = _INTEGER.fullmatch(value) is not None
        self.kinds["integer" if is_integer else "number"] += 1
        plain = Decimal(value) if len(value) <= scalars.NUMBER_LENGTH_MAX else None
        if plain is None or not _is_near(plain):
            self.digits = self.whole_digits = scalars.NUMBER_LENGTH_MAX
            self.is_exact = False
            return
        exponent = int(plain.as_tuple().exponent)
        digits = len("".join(map(str, plain.as_tuple().digits)).strip("0"))
        self.digits = max(self.digits, digits)
        self.whole_digits = max(self.whole_digits, plain.adjusted() + 1, 1)
        self.scale = max(self.scale, -exponent)
        self.is_exact = self.is_exact and digits <= DOUBLE_DIGITS and plain.adjusted() < DOUBLE_POWERS
        if is_integer:
            number = int(value)
            first = self.kinds["integer"] == 1
            self.low, self.high = (
                (number, number) if first else (min(self.low, number), max(self.high, number))
            )

    def _add_nested(self, value: Any, level: int) -> None:
        kind = "object" if isinstance(value, dict) else "list"
        self.kinds[kind] += 1
        if level >= LEVELS_MAX:
            return
        if kind == "list":
            self.items = self.items or Shape()
            for one in value:
                self.items.add(one, level + 1)
            return
        for name, one in value.items():
            if name in self.fields or len(self.fields) < FIELDS_MAX:
                self.fields.setdefault(name, Shape()).add(one, level + 1)


_WORDS: Final = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "a text",
    "object": "an object",
    "list": "a list",
}


def _reads(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _is_near(number: Decimal) -> bool:
    """Whether a decimal may have it: else its exponent is one that only json keeps."""
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and abs(exponent) <= scalars.NUMBER_LENGTH_MAX


def _of_boolean(_: Shape) -> Guess:
    return Guess("boolean", _WORDS["boolean"])


def _of_integer(shape: Shape) -> Guess:
    low, high = scalars.LONG_RANGE
    if shape.whole_digits > DECIMAL_PRECISION_MAX:
        return Guess(
            "json", "an integer", ("some have more digits than any type of numbers: json keeps all",)
        )
    if low <= shape.low and shape.high <= high:
        return Guess("long", "an integer", tuple(_as_times(shape)))
    note = "some are beyond 64 bits"
    return Guess(f"decimal({DECIMAL_PRECISION_MAX},0)", "an integer", (note,))


def _as_times(shape: Shape) -> Iterator[str]:
    """Which times integers may be: never more than a remark, since ids look alike."""
    first, last = _SINCE_1970
    for unit, factor, word in _UNITS:
        if first * factor <= shape.low and shape.high < last * factor:
            begin, end = (datetime.fromtimestamp(number // factor, UTC) for number in (shape.low, shape.high))
            yield (
                f"may be {word} since 1970 ({begin:%Y-%m-%d} to {end:%Y-%m-%d}); "
                f'then: {{ type = "timestamptz", epoch = "{unit}" }}'
            )


def _of_number(shape: Shape) -> Guess:
    if shape.is_exact:
        note = f"decimal places: at most {shape.scale}; decimal(18,{shape.scale}) would keep sums exact"
        return Guess("double", "a number", (note,) if 0 < shape.scale <= 9 else ())
    if shape.whole_digits + shape.scale <= DECIMAL_PRECISION_MAX:
        type_ = f"decimal({DECIMAL_PRECISION_MAX},{shape.scale})"
        return Guess(type_, "a number", (f"up to {shape.digits} digits, more than a double keeps",))
    return Guess("json", "a number", ("some have more digits than any type of numbers: json keeps all",))


def _of_string(shape: Shape) -> Guess:
    for name in _STRINGS:
        if name in shape.texts and name in _TAKEN:
            return Guess(name, _TAKEN[name])
        if name in shape.texts:
            return Guess("string", "a text", (_HINTS[name],))
    return Guess("string", "a text")


def _of_object(shape: Shape) -> Guess:
    struct = _struct(shape)
    notes: tuple[str, ...] = (
        "json keeps all its fields, also those to come; nothing can be added within a column",
    )
    if struct:
        notes += (f'as columns within, of what was seen: "{struct}"',)
    return Guess("json", "an object", notes)


def _struct(shape: Shape) -> str:
    """The struct that its objects come to; empty where they come to none."""
    if not 0 < len(shape.fields) <= STRUCT_FIELDS_MAX:
        return ""
    parts = []
    for name, inner in shape.fields.items():
        type_ = (_struct(inner) if set(inner.kinds) == {"object"} else None) or inner.guess().type
        if type_ is None or not FIELD_NAME.fullmatch(name) or name != name.strip():
            return ""
        parts.append(f"{name}: {type_}")
    if len({name.casefold() for name in shape.fields}) < len(shape.fields):
        return ""
    return f"struct<{', '.join(parts)}>"


def _of_list(shape: Shape) -> Guess:
    of_items = shape.items.guess() if shape.items is not None else None
    if of_items is None or of_items.type is None:
        return Guess(None, "an empty list")
    if of_items.type == "json":
        return Guess("json", "a list", ("of what is no plain value: json keeps it as its text",))
    return Guess(f"list<{of_items.type}>", "a list", of_items.notes)


_GUESSES: Final[dict[str, Callable[[Shape], Guess]]] = {
    "boolean": _of_boolean,
    "integer": _of_integer,
    "number": _of_number,
    "string": _of_string,
    "object": _of_object,
    "list": _of_list,
}
