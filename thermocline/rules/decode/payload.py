"""A row's values as bytes: packed for the hot tier, and as JSON for people and services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from thermocline.rules.column_types import ColumnType, Packing
from thermocline.rules.decode.record import Decoded
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.nested_types import Convert, nullable

__all__ = ["Unpacker", "json_lines", "json_row", "nested_unpacker", "pack_rows"]

_PACKER: Final = msgspec.msgpack.Encoder(uuid_format="bytes")
_JSON: Final = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical")


def pack_rows(definition: LiveTable, decoded: Decoded) -> list[bytes]:
    """Each row's value columns as one payload, in input order; empty bytes for a tombstone."""
    columns = [_packed(column, decoded.columns[column.name]) for column in definition.value_columns]
    rows = zip(*columns, strict=True) if columns else ((),) * len(decoded.good)
    pack = _PACKER.encode
    return [b"" if tombstone else pack(row) for tombstone, row in zip(decoded.tombstones, rows, strict=True)]


def _packed(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    """Values as a payload has them: what is nested by itself, as bytes."""
    if column.type.entry.packing is not Packing.NESTED:
        return values
    pack = _PACKER.encode
    return [None if value is None else pack(value) for value in values]


def nested_unpacker(of: ColumnType) -> Convert:
    """Reads the bytes of what is nested back to natural values."""
    return msgspec.msgpack.Decoder(of.python).decode


class Unpacker:
    """Reads payloads back to natural values."""

    def __init__(self, definition: LiveTable) -> None:
        """Prepares for the value columns of the definition that packed the payloads."""
        columns = definition.value_columns
        self._nested = [
            (place, nested_unpacker(column.type))
            for place, column in enumerate(columns)
            if column.type.entry.packing is Packing.NESTED
        ]
        nested = {place for place, _ in self._nested}
        types = [
            bytes | None if place in nested else nullable(column.type.python)
            for place, column in enumerate(columns)
        ]
        self._decoder = msgspec.msgpack.Decoder(tuple[*types] if types else tuple[()])  # type: ignore[valid-type]

    def unpack(self, payload: bytes) -> tuple[Any, ...]:
        """The value columns of one payload, which is not a tombstone's."""
        values: tuple[Any, ...] = self._decoder.decode(payload)
        if not self._nested:
            return values
        row = list(values)
        for place, unpack in self._nested:
            if row[place] is not None:
                row[place] = unpack(row[place])
        return tuple(row)


def json_row(row: Mapping[str, Any] | msgspec.Struct) -> bytes:
    """A row, or anything that holds rows, as JSON.

    Times in RFC 3339, with Z where they have a zone, dates as full-dates, decimals and UUIDs as strings,
    binary in base64.
    """
    return _JSON.encode(row)


def json_lines(rows: Iterable[msgspec.Struct]) -> bytes:
    """Rows as ``json_row`` has them, each followed by the end of a line."""
    return _JSON.encode_lines(rows)
