"""Debezium's placeholder for a value that a change left alone, and that the database did not log.

The connector's ``unavailable.value.placeholder`` is a text, or bytes spelled ``hex:...``. A column of text
has the text, one of bytes its bytes, in whichever way ``binary.handling.mode`` has them; an array has it as
its one item, an array of numbers its bytes, an hstore as key and value.
Source: Debezium, ``UnchangedToastedPlaceholder`` of the PostgreSQL connector.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from hashlib import md5
from typing import Any, Final
from uuid import UUID

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.payload import json_row
from thermocline.rules.definition import UNAVAILABLE, LiveTable, placeholder_bytes

__all__ = ["Unavailable"]

_EPOCH: Final = date(1970, 1, 1)
_UNESCAPED: Final = re.compile(rb"[A-Za-z0-9_ .:-]*")
"""What every program writes as it is in JSON; of other characters, one may write an escape."""


class Unavailable:
    """Knows the placeholders of a table's connector: its own setting's, and Debezium's default."""

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table."""
        # safety: debezium-placeholders
        settings = dict.fromkeys((UNAVAILABLE, definition.unavailable_value_placeholder))
        contents = list(map(placeholder_bytes, settings))
        texts = dict.fromkeys(text for one in contents for text in _texts(one))
        self._shapes = [shape for one in contents for shape in _shapes(one)]
        said = [*self._shapes, *(shape for one in contents for shape in _typed_shapes(one))]
        self._as_json = frozenset(json_row(shape).decode() for shape in said)
        self._values: dict[Kind, frozenset[Any]] = {
            Kind.STRING: frozenset(filter(_is_text, self._shapes)),
            Kind.BINARY: frozenset(contents),
            Kind.JSON: self._as_json,
        }
        kinds = [column.type.kind for column in definition.value_columns]
        self._may_be_array = any(kind in (Kind.JSON, Kind.LIST) for kind in kinds)
        uuids = [str(_uuid(one)) for one in contents] if self._may_be_array else []
        self._spelled = [text.encode() for text in (*texts, *uuids)]
        self._may_be_escaped = any(not _UNESCAPED.fullmatch(one) for one in contents)
        firsts = {str(number) for one in contents for numbers in _numbers(one) for number in numbers[:1]}
        # The first of an array of numbers, whichever of their forms they have, and blanks between them.
        self._first_number = re.compile(rf'\[\s*"?(?:{"|".join(sorted(firsts))})(?:\.0*)?"?\s*[,\]]'.encode())

    def may_be_in(self, text: bytes) -> bool:
        """Whether JSON text may have a placeholder in it, told at a glance."""
        for one in self._spelled:
            if one in text:
                return True
        if self._may_be_array and self._first_number.search(text) is not None:
            return True
        return self._may_be_escaped and b"\\" in text

    def is_value(self, value: Any) -> bool:
        """Whether a JSON value, as Python has it, is a placeholder."""
        return value in self._shapes

    def watches(self, of: ColumnType) -> bool:
        """Whether a column of that type can have one, once it is read by a schema."""
        return bool(of.fields) or of.kind in self._values

    def places(self, of: ColumnType, values: Sequence[Any]) -> list[int]:
        """Where a column's values, read by a schema, are placeholders."""
        unavailable = self._values.get(of.kind, self._as_json)
        said = [json_row(value).decode() for value in values] if of.fields else values
        if unavailable.isdisjoint(said):  # safety: debezium-unavailable-typed
            return []
        return [index for index, value in enumerate(said) if value in unavailable]


def _texts(content: bytes) -> Iterator[str]:
    """The text itself, and its bytes by each ``binary.handling.mode``."""
    yield content.decode(errors="replace")
    yield base64.b64encode(content).decode()
    yield base64.urlsafe_b64encode(content).decode()
    yield content.hex()


def _shapes(content: bytes) -> Iterator[Any]:
    for text in _texts(content):
        yield from (text, [text], {text: text})
        yield from (json.dumps({text: text}, ensure_ascii=False, separators=one) for one in _SEPARATORS)
    yield [str(_uuid(content))]
    for numbers in _numbers(content):
        yield numbers
        yield list(map(str, numbers))


def _typed_shapes(content: bytes) -> Iterator[Any]:
    """Arrays as a schema has them read: of dates, of doubles, of JSON."""
    for numbers in _numbers(content):
        yield [(_EPOCH + timedelta(days=number)).isoformat() for number in numbers]
        yield list(map(float, numbers))
    for text in _texts(content):
        yield [json.dumps(text, ensure_ascii=False)]


def _numbers(content: bytes) -> list[list[int]]:
    """The bytes as numbers; Java's have a sign."""
    signed = [number - 256 if number > 127 else number for number in content]
    return [signed] if signed == list(content) else [signed, list(content)]


def _uuid(content: bytes) -> UUID:
    """In an array of UUIDs, the one that Java makes of the bytes."""
    return UUID(bytes=md5(content, usedforsecurity=False).digest(), version=3)


def _is_text(shape: Any) -> bool:
    return isinstance(shape, str)


_SEPARATORS: Final = ((",", ":"), (", ", ": "))
