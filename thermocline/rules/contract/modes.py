"""The kinds of changes that a writer's schema can make, and what a table does about each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from thermocline.errors import did_you_mean

__all__ = ["COLUMNS_MAX", "EVOLVE_AFTER", "Contract", "ContractText", "Kind", "Mode", "senseless"]

COLUMNS_MAX: Final = 500
"""Columns that a table may have, fields within them included, for more to be added by itself."""
EVOLVE_AFTER: Final = 1_000
"""Values of JSON with a field, before a column is added for it: a few can be mistakes, and say little."""
_SCHEMA_FORMATS: Final = ("avro", "protobuf", "json_schema")

ContractText = str | Mapping[str, Any]
Modes = tuple[tuple[str, "Mode"], ...]
"""By kind, sorted; of a column, ``""`` is the word for all kinds."""


class Kind(StrEnum):
    """A change, of a writer's schema against a table's definition."""

    NEW_COLUMNS = "new_columns"
    NEW_FIELDS = "new_fields"
    WIDER_TYPES = "wider_types"
    NARROWER_TYPES = "narrower_types"
    REMOVED_FIELDS = "removed_fields"
    MADE_OPTIONAL = "made_optional"
    MADE_REQUIRED = "made_required"


class Mode(StrEnum):
    """What is done about a change."""

    EVOLVE = "evolve"
    IGNORE = "ignore"
    QUARANTINE = "quarantine"
    STOP = "stop"


DEFAULTS: Final[Mapping[Kind, Mode]] = {
    **dict.fromkeys(Kind, Mode.IGNORE),
    Kind.WIDER_TYPES: Mode.QUARANTINE,
}
"""What is done where nothing is said."""
_NOTHING_TO_REFUSE: Final = "a value that is always there fits every column, so there is nothing to refuse"
_SENSELESS: Final[Mapping[tuple[Kind, Mode], str]] = {
    (Kind.WIDER_TYPES, Mode.IGNORE): "a value that its column can't hold would have to be cut or left out",
    (Kind.NARROWER_TYPES, Mode.EVOLVE): "columns are not narrowed: rows have values that would not fit",
    (Kind.REMOVED_FIELDS, Mode.EVOLVE): "columns are not dropped: rows have values in them",
    (Kind.MADE_OPTIONAL, Mode.EVOLVE): "columns take null already, and those of the key never can",
    (Kind.MADE_REQUIRED, Mode.EVOLVE): "rows that are there may have null in the column",
    (Kind.MADE_REQUIRED, Mode.QUARANTINE): _NOTHING_TO_REFUSE,
    (Kind.MADE_REQUIRED, Mode.STOP): _NOTHING_TO_REFUSE,
}
"""By kind and mode, why it makes no sense in any format."""
_SAMPLED: Final = (
    "fields of JSON without a schema are found by a sample, so it would depend on which records are looked at"
)
_NO_SCHEMA: Final = "JSON without a schema declares nothing: each value is judged by itself"


def senseless(kind: Kind, mode: Mode, format_: str, has_own_schema: bool = False) -> str:
    """Why a mode makes no sense for a kind of change in a format; empty where it does.

    ``has_own_schema``: the definition has the one schema of all records.
    """
    if mode is DEFAULTS[kind]:
        return ""
    why = _SENSELESS.get((kind, mode), "")
    if why:
        return why
    if has_own_schema:
        return "the table's definition has the schema of all records, which can't change"
    if format_ in _SCHEMA_FORMATS:
        return ""
    if format_ != "json":
        return f"values of the format {format_} have no fields"
    if kind is not Kind.NEW_COLUMNS:
        return _NO_SCHEMA
    return "" if mode is Mode.EVOLVE else _SAMPLED


@dataclass(frozen=True, slots=True)
class Contract:
    """What a table does about changes: one word, other words for some kinds, and for some columns.

    ``word`` counts for the kinds for which it makes sense. ``columns`` need not be there yet.
    ``columns_max`` and ``evolve_after`` bound what is added by itself.
    """

    word: Mode = Mode.IGNORE
    kinds: Modes = ()
    columns: tuple[tuple[str, Modes], ...] = ()
    columns_max: int = COLUMNS_MAX
    evolve_after: int = EVOLVE_AFTER

    @classmethod
    def parse(cls, text: ContractText) -> Contract:
        """Reads a word, or ``{"new_columns": "evolve", "columns": {"password": "ignore"}}``.

        Raises:
            ValueError: with one plain sentence, when a word is none of ours.
        """
        if isinstance(text, str):
            return cls(_mode("contract", text))
        given = dict(text)
        word = _mode("contract.mode", given.pop("mode", DEFAULTS[Kind.NEW_COLUMNS]))
        columns = given.pop("columns", {})
        if not isinstance(columns, Mapping):
            raise ValueError('contract.columns is of the form { password = "ignore" }')  # noqa: TRY004
        bounds = {
            name: _count(name, given.pop(name)) for name in ("columns_max", "evolve_after") if name in given
        }
        by_column = tuple((name, _of_column(name, modes)) for name, modes in sorted(columns.items()))
        return cls(word, _by_kind("contract", given), by_column, **bounds)

    @property
    def declared(self) -> str | dict[str, Any]:
        """What ``parse`` reads back to an equal contract: a word where that says it all."""
        bounds = {"columns_max": COLUMNS_MAX, "evolve_after": EVOLVE_AFTER}
        other = {name: getattr(self, name) for name, usual in bounds.items() if getattr(self, name) != usual}
        if not (self.kinds or self.columns or other):
            return str(self.word)
        found: dict[str, Any] = {"mode": str(self.word), **_texts(self.kinds), **other}
        if self.columns:
            found["columns"] = {name: _texts(modes).get("", _texts(modes)) for name, modes in self.columns}
        return found

    def mode_of(self, kind: Kind, column: str, format_: str) -> Mode:
        """What is done about a change of that kind, in a column of that name."""
        of_column = dict(dict(self.columns).get(column, ()))
        for own, word in ((of_column, of_column.get("")), (dict(self.kinds), self.word)):
            if kind in own:
                return own[kind]
            if word is not None and not senseless(kind, word, format_):
                return word
        return DEFAULTS[kind]

    def uses(self, mode: Mode, format_: str) -> bool:
        """Whether it does that about any change that its default would not do it about."""
        names = ("", *dict(self.columns))
        return any(
            self.mode_of(kind, name, format_) is mode and DEFAULTS[kind] is not mode
            for kind in Kind
            for name in names
        )

    def problems(self, format_: str, has_own_schema: bool) -> Iterator[str]:
        """What makes no sense in a format, a sentence for each."""
        yield from _problem_of_word("contract", self.word, format_, has_own_schema)
        of_columns = ((f"contract.columns.{name}", modes) for name, modes in self.columns)
        for place, modes in (("contract", self.kinds), *of_columns):
            for kind, mode in modes:
                if not kind:
                    yield from _problem_of_word(place, mode, format_, has_own_schema)
                elif why := senseless(Kind(kind), mode, format_, has_own_schema):
                    yield f'{place}.{kind} can\'t be "{mode}": {why}'  # safety: contract-senseless

    def __str__(self) -> str:
        declared = self.declared
        return declared if isinstance(declared, str) else json.dumps(declared, ensure_ascii=False)


def _problem_of_word(place: str, word: Mode, format_: str, has_own_schema: bool) -> Iterator[str]:
    """A word that makes sense for no kind at all."""
    if word is Mode.IGNORE:
        return
    whys = [senseless(kind, word, format_, has_own_schema) for kind in Kind if DEFAULTS[kind] is not word]
    if whys and all(whys):
        yield f'{place} can\'t be "{word}": {whys[0]}'


def _mode(place: str, text: object) -> Mode:
    if not isinstance(text, str) or text not in set(Mode):
        raise ValueError(f"{place} is {json.dumps(text)}, not {' or '.join(Mode)}")
    return Mode(text)


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"contract.{name} is a number from 1 on")
    return value


def _by_kind(place: str, given: Mapping[str, Any]) -> Modes:
    for name in given:
        if name not in set(Kind):
            known = did_you_mean(name, list(Kind)) or f"; known: {', '.join(Kind)}"
            raise ValueError(f'{place}: "{name}" is no kind of change{known}')
    return tuple((name, _mode(f"{place}.{name}", mode)) for name, mode in sorted(given.items()))


def _of_column(name: str, given: object) -> Modes:
    place = f"contract.columns.{name}"
    return _by_kind(place, given) if isinstance(given, Mapping) else (("", _mode(place, given)),)


def _texts(modes: Modes) -> dict[str, str]:
    return {kind: str(mode) for kind, mode in modes}
