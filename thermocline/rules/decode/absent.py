"""Columns that a JSON object leaves out, for tables with partial updates: absent is not null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.definition import Column

__all__ = ["AbsentColumns", "with_nulls"]

_MISSING: Final = msgspec.Raw(b"")
_NULL: Final = msgspec.Raw(b"null")


class AbsentColumns:
    """Finds the columns that an object has no field for. A field inside an object that is null is null."""

    def __init__(self, columns: Sequence[Column], depth: int = 0) -> None:
        """Prepares for objects with these columns, by their paths from ``depth`` on."""
        names = list(dict.fromkeys(column.read_from[depth] for column in columns))
        fields = [(f"c{number}", msgspec.Raw, _MISSING) for number in range(len(names))]
        rename = {field: name for (field, _, _), name in zip(fields, names, strict=True)}
        struct = msgspec.defstruct("Fields", fields, rename=rename, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode
        self._fields = [
            _Field.of(attribute, [one for one in columns if one.read_from[depth] == name], depth)
            for attribute, name in rename.items()
        ]

    def of(self, text: bytes | msgspec.Raw) -> tuple[str, ...]:
        """The names of the columns that are absent; none for what is no object, which is bad anyway."""
        try:
            fields = self._decode(text)
        except REFUSALS:
            return ()
        absent: tuple[str, ...] = ()
        for field in self._fields:
            value = getattr(fields, field.attribute)
            if value is _MISSING:  # safety: absent-keeps
                absent += field.names
            elif field.inner is not None:
                absent += field.inner.of(value)
        return absent


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of an object, and the columns at it and inside it; ``inner`` finds those inside."""

    attribute: str
    names: tuple[str, ...]
    inner: AbsentColumns | None

    @classmethod
    def of(cls, attribute: str, columns: Sequence[Column], depth: int) -> _Field:
        inside = [column for column in columns if len(column.read_from) > depth + 1]
        inner = AbsentColumns(inside, depth + 1) if inside else None
        return cls(attribute, tuple(column.name for column in columns), inner)


def with_nulls(text: bytes, paths: Sequence[Sequence[str]]) -> bytes:
    """An object with null in the place of what is at these paths, which is there; all else as it was."""
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    for name in dict.fromkeys(path[0] for path in paths):
        inside = [path[1:] for path in paths if path[0] == name]
        is_value = () in map(tuple, inside)
        fields[name] = _NULL if is_value else msgspec.Raw(with_nulls(bytes(fields[name]), inside))
    return msgspec.json.encode(fields)
