"""Routes: which records of a topic are a table's, by conditions on texts that each record has.

A `Source` is where a record has such a text, a `Condition` which texts it takes, a `Route` the conditions of
a table. `thermocline.rules.decode` reads the texts of a chunk, whatever its format; a route judges them a
chunk at a time. A text that a record can't have, such as a field of a tombstone, leaves a condition untold,
and a record is only another table's if a condition says so.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from thermocline.rules.columns import parse_path, spelled
from thermocline.rules.topic_parts import check_expression, check_topic_pattern, compiled

__all__ = [
    "NO",
    "UNTOLD",
    "YES",
    "Condition",
    "ConditionText",
    "Route",
    "Source",
    "Texts",
    "Verdicts",
    "text_of_json",
]

NO: Final = 0
UNTOLD: Final = 1
YES: Final = 2
Verdicts = npt.NDArray[np.int8]
"""Of each record `NO`, `UNTOLD` or `YES`. Of several conditions, the least says whether all of them hold."""

ConditionText = Mapping[str, Any]
_ORIGINS: Final = ("field", "event", "header", "topic", "schema")
_NAME: Final = "name"
_TESTS: Final = ("is", "in", "matches")
_FORM: Final = '{ field = "type", in = ["order"] }'


@dataclass(frozen=True, slots=True)
class Source:
    """Where records have a text; exactly one of these is set.

    ``field`` leads to a field of the value, or of the key where a key column is read from it. ``event`` leads
    to one of the change event around the row. ``header`` names a header, whose last value it is. ``topic`` is
    a regular expression that the whole name of a topic matches: the text is its only group. ``schema`` is
    ``name``: the name of the type that the value is of, as the schema that the record names declares it.
    """

    field: tuple[str, ...] = ()
    event: tuple[str, ...] = ()
    header: str = ""
    topic: str = ""
    schema: str = ""

    @classmethod
    def parse(cls, text: Mapping[str, Any]) -> Source:
        """Reads ``{ field = "a.b" }``, or ``event``, ``header``, ``topic`` or ``schema`` instead of it.

        Raises:
            ValueError: with one plain sentence.
        """
        given = [name for name in _ORIGINS if name in text]
        if len(given) != 1 or len(text) != 1 or not text[given[0]]:
            raise ValueError(f"{spelled(dict(text))} is not exactly one of {', '.join(_ORIGINS)}")
        (origin,) = given
        value = text[origin]
        if origin == "field":
            return cls(field=parse_path(value))
        if origin == "event":
            return cls(event=parse_path(value))
        if origin == "topic":
            check_topic_pattern(value)
            return cls(topic=value)
        if origin == "schema":
            if value != _NAME:
                raise ValueError(f'schema is {spelled(value)}, not "{_NAME}", the name of the record\'s type')
            return cls(schema=_NAME)
        return cls(header=str(value))

    @property
    def path(self) -> tuple[str, ...]:
        """The path in a document; empty for a header, a topic or a schema."""
        return self.field or self.event

    @property
    def declared(self) -> dict[str, Any]:
        """What ``parse`` reads back to an equal one."""
        return {name: _listed(getattr(self, name)) for name in _ORIGINS if getattr(self, name)}

    def __str__(self) -> str:
        ((origin, value),) = self.declared.items()
        return f"{origin} {'.'.join(value) if self.path else value}"


@dataclass(frozen=True, slots=True)
class Condition:
    """Which texts of a source a table takes: some ``values``, or those that an expression matches as a whole.

    With ``negated`` it takes all others, and records that have no such text.
    """

    source: Source
    values: tuple[str, ...] = ()
    matches: str = ""
    negated: bool = False

    @classmethod
    def parse(cls, text: ConditionText) -> Condition:
        """Reads ``{ field = "type", in = ["order"] }``, or with ``is`` or ``matches``, and ``not = true``.

        Raises:
            ValueError: with one plain sentence.
        """
        unknown = text.keys() - {*_ORIGINS, *_TESTS, "not"}
        tests = [name for name in _TESTS if name in text]
        if unknown or len(tests) != 1 or not isinstance(text.get("not", False), bool):
            raise ValueError(
                f"{_shown(text)} is not of the form {_FORM}: it needs one of {', '.join(_TESTS)}, "
                "and can have not = true"
            )
        source = Source.parse({name: value for name, value in text.items() if name in _ORIGINS})
        (test,) = tests
        negated = text.get("not", False)
        if test == "matches":
            check_expression(test, text[test])
            return cls(source, matches=text[test], negated=negated)
        given = text[test] if test == "in" else [text[test]]
        if not isinstance(given, list | tuple) or not given:
            raise ValueError(f"in is {spelled(given)}, not a list of values")
        return cls(source, tuple(sorted(set(map(_value, given)))), negated=negated)

    @property
    def declared(self) -> dict[str, Any]:
        """What ``parse`` reads back to an equal condition."""
        test = {"in": list(self.values)} if self.values else {"matches": self.matches}
        return self.source.declared | test | ({"not": True} if self.negated else {})

    @property
    def sorts_as(self) -> str:
        """Puts conditions in the same order, however they are written."""
        return json.dumps(self.declared)

    def takes(self, text: str | None) -> bool:
        """Whether it takes records with that text; None is that they have none."""
        if text is None:
            return self.negated
        is_one = text in self.values if self.values else compiled(self.matches).fullmatch(text) is not None
        return is_one != self.negated

    def verdicts(self, texts: Texts) -> Verdicts:
        """What it says of each record."""
        found = np.full(len(texts.values), NO, np.int8)
        is_listed = self.values and not self.negated
        for text in self.values if is_listed else texts.places:
            if text in texts.places and self.takes(text):
                found[texts.places[text]] = YES
        found[list(texts.untold)] = UNTOLD  # safety: untold-is-not-no
        return found

    def __str__(self) -> str:
        what = f"in {', '.join(map(spelled, self.values))}" if self.values else f"matches {self.matches}"
        return f"{self.source} {'not ' if self.negated else ''}{what}"


@dataclass(frozen=True)
class Texts:
    """The texts of a source, aligned with the records; None where a record has none.

    ``untold`` are the indexes of the records of which that can't be said.
    """

    values: Sequence[str | None]
    untold: Collection[int] = ()

    @cached_property
    def places(self) -> Mapping[str | None, Sequence[int]]:
        """The indexes of the records that have a text, by text: found once for all tables that ask."""
        found: dict[str | None, list[int]] = {}
        for index, text in enumerate(self.values):
            found.setdefault(text, []).append(index)
        return found


@dataclass(frozen=True, slots=True)
class Route:
    """Which records are a table's: all of ``where`` hold, and of each of ``unless`` not all.

    ``unless`` are the conditions of tables that take records before this one does.
    """

    where: tuple[Condition, ...] = ()
    unless: tuple[tuple[Condition, ...], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any condition; else all records are the table's."""
        return bool(self.where or self.unless)

    @property
    def sources(self) -> tuple[Source, ...]:
        """What its conditions look at, each once."""
        return tuple(dict.fromkeys(one.source for some in (self.where, *self.unless) for one in some))

    def verdicts(self, texts: Mapping[Source, Texts], count: int) -> Verdicts:
        """Whether each of ``count`` records is the table's, by the texts of its sources."""
        found = _all_of(self.where, texts, count)
        for others in self.unless:
            found = np.minimum(found, YES - _all_of(others, texts, count))
        return found


def text_of_json(token: str | None) -> str | None:
    """The text that a JSON value has as a source: of a text itself, of a number or a boolean its JSON.

    Null, objects and lists have none. Raises `ValueError` for a text that is none.
    """
    if token is None or token[:1] in "{[n":
        return None
    if token[:1] != '"':
        return token
    try:
        return msgspec.json.decode(token, type=str)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def _all_of(conditions: Sequence[Condition], texts: Mapping[Source, Texts], count: int) -> Verdicts:
    found = np.full(count, YES, np.int8)
    for condition in conditions:
        found = np.minimum(found, condition.verdicts(texts[condition.source]))
    return found


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise ValueError(
        f"{_shown(value)} is no text, integer or boolean: a number is compared as JSON has it, so quote it"
    )


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    return spelled(dict(value)) if isinstance(value, Mapping) else str(value)
