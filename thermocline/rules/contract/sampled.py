"""Types for fields of JSON that no schema declares: by all values of a sample that is large enough.

A type is never narrower than what was seen: integers are ``long``, numbers with a fraction ``double``, texts
stay ``string``, whatever they look like, and all else is ``json``, which takes anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from thermocline.rules.column_types import ColumnType
from thermocline.rules.contract.changes import SchemaChange
from thermocline.rules.contract.modes import Kind, Mode
from thermocline.rules.decode.connect import are_in_values, unwrapped
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import LiveTable
from thermocline.rules.scalars import LONG_RANGE

__all__ = ["FieldSample", "JsonFields", "SampledFields", "evolves_by_sample"]

SAMPLE_VALUES: Final = 64
"""Of a chunk: enough to come to a thousand soon, and few beside the thousands that are decoded."""
NAMES_MAX: Final = 200
"""Fields that are counted: those of objects whose names are data have no end."""
DOUBLE_DIGITS: Final = 15
"""Decimal digits that a double keeps, whatever they are."""
_ROWS: Final = {"debezium": "after", "maxwell": "data"}
_INTEGER: Final = re.compile(rb"-?(0|[1-9][0-9]{0,18})")
_PLAIN_NUMBER: Final = re.compile(rb"-?[0-9]+\.[0-9]+([eE][+-]?[0-9]{1,2})?")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

BOOLEAN: Final = "boolean"
SHORT: Final = "integer"
LONG: Final = "long integer"
NUMBER: Final = "number"
TEXT: Final = "text"
OTHER: Final = "other"
_TYPES: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (frozenset((BOOLEAN,)), "boolean"),
    (frozenset((TEXT,)), "string"),
    (frozenset((SHORT, LONG)), "long"),
    (frozenset((SHORT, NUMBER)), "double"),
)
"""The first that takes all kinds of values that were seen; else ``json``."""


class FieldSample(msgspec.Struct):
    """In how many values of a sample a field was, other than null, and of what kinds it was there."""

    values: int = 0
    kinds: list[str] = msgspec.field(default_factory=list)

    def plus(self, other: FieldSample) -> FieldSample:
        """Both together."""
        return FieldSample(self.values + other.values, sorted({*self.kinds, *other.kinds}))

    @property
    def type(self) -> ColumnType:
        """The type that takes all of them."""
        kinds = set(self.kinds)
        return ColumnType.parse(next((text for taken, text in _TYPES if kinds <= taken), "json"))


def evolves_by_sample(definition: LiveTable) -> bool:
    """Whether the table gains columns by what its values of JSON have."""
    return definition.format == "json" and definition.contract.uses(Mode.EVOLVE, "json")


class JsonFields:
    """Samples the fields of values that no column is read from."""

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table."""
        self._row = _ROWS.get(definition.envelope)
        self._may_have_schema = are_in_values(definition)
        self._is_read = UnreadFields(definition).is_read

    def of(self, values: Sequence[bytes | None]) -> dict[str, FieldSample]:
        """What at most `SAMPLE_VALUES` of some values have, evenly of all."""
        sample = values[:: max(len(values) // SAMPLE_VALUES, 1)][:SAMPLE_VALUES]
        if self._may_have_schema:
            sample, _ = unwrapped(sample)
        found: dict[str, FieldSample] = {}
        for value in sample:
            for name, raw in self._row_of(value):
                kind = _kind_of(bytes(raw).strip())
                if kind is not None and not self._is_read(name):
                    found[name] = found.get(name, FieldSample()).plus(FieldSample(1, [kind]))
        return found

    def _row_of(self, value: bytes | None) -> Iterable[tuple[str, msgspec.Raw]]:
        try:
            fields = _fields(value) if value else {}
            if self._row is not None:
                fields = _fields(fields[self._row]) if self._row in fields else {}
        except REFUSALS:
            return ()  # which decoding says
        return fields.items()


@dataclass(frozen=True, slots=True)
class SampledFields:
    """What was sampled so far, under one version of a table's definition."""

    version: int = 0
    fields: Mapping[str, FieldSample] = field(default_factory=dict)

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Of what `to_json` gave; nothing sampled, of any other text."""
        try:
            stored = json.loads(text)
            found = {
                str(name): FieldSample(int(count), list(map(str, kinds)))
                for name, (count, kinds) in stored["fields"].items()
            }
            return cls(int(stored["version"]), found)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def to_json(self) -> str:
        """As the table's properties have it."""
        found = {name: [one.values, one.kinds] for name, one in self.fields.items()}
        return json.dumps({"version": self.version, "fields": found}, separators=(",", ":"))

    def plus(self, sampled: Iterable[Mapping[str, FieldSample]], definition: LiveTable) -> SampledFields:
        """With what a batch had; what columns are read from by now is forgotten."""
        is_read = UnreadFields(definition).is_read
        found = {name: one for name, one in self.fields.items() if not is_read(name)}
        for part in sampled:
            for name, one in part.items():
                if name in found or len(found) < NAMES_MAX:  # safety: contract-sample-bounded
                    found[name] = found.get(name, FieldSample()).plus(one)
        return SampledFields(definition.version, found)

    def changes(self, definition: LiveTable) -> Iterator[SchemaChange]:
        """The fields that a column is to be added for: those that were seen often enough."""
        contract = definition.contract
        for name, one in sorted(self.fields.items()):
            is_wanted = contract.mode_of(Kind.NEW_COLUMNS, name, "json") is Mode.EVOLVE
            if is_wanted and one.values >= contract.evolve_after:  # safety: contract-evolve-after
                yield SchemaChange(Kind.NEW_COLUMNS, (name,), name, after=one.type)


def _kind_of(raw: bytes) -> str | None:
    """What a value of JSON is; None for null."""
    match raw[:1]:
        case b"n":
            return None
        case b"t" | b"f":
            return BOOLEAN
        case b'"':
            return TEXT
        case b"{" | b"[":
            return OTHER
    digits = len(re.sub(rb"[eE].*|[^0-9]", b"", raw).lstrip(b"0"))
    if _INTEGER.fullmatch(raw):
        if digits <= DOUBLE_DIGITS:
            return SHORT
        return LONG if LONG_RANGE[0] <= int(raw) <= LONG_RANGE[1] else OTHER
    return NUMBER if _PLAIN_NUMBER.fullmatch(raw) and digits <= DOUBLE_DIGITS else OTHER
