"""Columns that a routed table has of its own, where its route says ``columns = "schema"``.

They are those of the schema with which the first record of its value was written, and lie in the table from
then on. The directory keeps what the table began with, so that commands know it without loading the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from thermocline.rules.columns import declared

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["BY_SCHEMA", "PLAIN_KEYS", "FirstSchema", "OwnColumns"]

BY_SCHEMA: Final = "schema"
"""What a route has as its columns, if each of its tables has its own."""
PLAIN_KEYS: Final = {"string": "string", "int": "int", "long": "long", "uuid": "uuid", "bytes": "binary"}
"""The type of a key that is one plain value, by its format."""


class FirstSchema(msgspec.Struct, frozen=True, order=True):
    """The first record of a value that names schemas which the registry knows; ordered as in the log.

    ``value_head`` and ``key_head`` are the bytes that name them; keys without a schema have none.
    """

    topic: str
    partition: int
    offset: int
    value_head: bytes
    key_head: bytes = b""

    def to_dict(self) -> dict[str, Any]:
        """The form that `from_dict` reads."""
        heads = {"value": self.value_head.hex(), "key": self.key_head.hex()}
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset, **heads}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` or `TypeError` for what `to_dict` did not give."""
        heads = bytes.fromhex(found["value"]), bytes.fromhex(found["key"])
        return cls(str(found["topic"]), int(found["partition"]), int(found["offset"]), *heads)

    def __str__(self) -> str:
        """The place of the record."""
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class OwnColumns:
    """The key and the columns of one table, as definitions are written."""

    key: tuple[str, ...]
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, definition: LiveTable) -> Self:
        """Those of a table that is there."""
        columns = {one.name: declared(one) for one in definition.columns}
        return cls(definition.key, json.loads(json.dumps(columns)))  # lists, as a file has them

    def to_dict(self) -> dict[str, Any]:
        """The form that `from_dict` reads."""
        return {"key": list(self.key), "columns": dict(self.columns)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Raises `KeyError`, `TypeError` or `ValueError` for what `to_dict` did not give."""
        return cls(tuple(map(str, found["key"])), dict(found["columns"]))
