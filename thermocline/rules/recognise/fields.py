"""Fields of keys and values: their types, by what was seen or by the schemas of their writers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from thermocline.rules.recognise.records import counted_of
from thermocline.rules.recognise.shapes import FIELDS_MAX, Shape

__all__ = ["Field", "merged", "seen_fields"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field; ``type`` as definitions spell it, None where nothing tells it.

    ``evidence`` is why it has that type, ``notes`` what a person should know of it. ``is_always_there``:
    no record of the sample lacks it or has null in it. ``is_text``: its type was told from texts. ``doc`` is
    what a schema says of it.
    """

    name: str
    type: str | None
    evidence: str
    notes: tuple[str, ...] = ()
    is_always_there: bool = True
    is_text: bool = False
    doc: str = ""

    def as_key(self) -> Field:
        """The same as a part of the key, where texts stay texts: a date may be spelled otherwise."""
        return replace(self, type="string", notes=()) if self.is_text else self


def seen_fields(rows: Sequence[Mapping[str, Any]]) -> list[Field]:
    """The fields of JSON objects, in the order in which they are met first."""
    whole = Shape.of(rows)
    return [_seen(name, shape, len(rows)) for name, shape in whole.fields.items()]


def has_more(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether objects have more fields than are looked at."""
    return len({name for row in rows for name in row}) > FIELDS_MAX


def merged(by_schema: Iterable[tuple[str, Sequence[Field]]]) -> list[Field]:
    """The fields of several schemas, each with its name, the newest first."""
    found: dict[str, Field] = {}
    for name, fields in by_schema:
        for one in fields:
            field, known = replace(one, evidence=f"{one.evidence} in {name}"), found.get(one.name)
            found[one.name] = field if known is None else _wider(known, field)
    return list(found.values())


def _seen(name: str, shape: Shape, rows: int) -> Field:
    guess = shape.guess()
    there = shape.present - shape.nulls
    evidence = f"{guess.seen} in {counted_of(there or shape.present, rows)} records"
    if there and shape.nulls:
        evidence += f", null in {shape.nulls:,}"
    if shape.present < rows:
        evidence += f", missing in {rows - shape.present:,}"
    is_text = bool(there) and set(shape.kinds) == {"string"}
    return Field(name, guess.type, evidence, guess.notes, there == rows, is_text)


_WIDER: Final = {frozenset(("int", "long")): "long"}


def _wider(newer: Field, older: Field) -> Field:
    """One type that takes the values of both."""
    if older.type in (None, newer.type):
        return newer
    if newer.type is None:
        return replace(older, notes=newer.notes + older.notes, doc=newer.doc or older.doc)
    wide = _WIDER.get(frozenset((newer.type, older.type)), "json")
    return replace(newer, type=wide, evidence=f"{newer.evidence}, {older.evidence}")
