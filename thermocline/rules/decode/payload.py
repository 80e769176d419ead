"""A row's values as bytes: packed for the hot tier, and as JSON for people and services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from thermocline.rules.decode.record import Decoded
from thermocline.rules.definition import LiveTable

__all__ = ["Unpacker", "json_row", "pack_rows"]

_PACKER: Final = msgspec.msgpack.Encoder(uuid_format="bytes")
_JSON: Final = msgspec.json.Encoder(decimal_format="string", uuid_format="canonical")


def pack_rows(definition: LiveTable, decoded: Decoded) -> list[bytes]:
    """Each row's value columns as one payload, in input order; empty bytes for a tombstone."""
    columns = [decoded.columns[column.name] for column in definition.value_columns]
    rows = zip(*columns, strict=True) if columns else ((),) * len(decoded.good)
    pack = _PACKER.encode
    return [b"" if tombstone else pack(row) for tombstone, row in zip(decoded.tombstones, rows, strict=True)]


class Unpacker:
    """Reads payloads back to natural values."""

    def __init__(self, definition: LiveTable) -> None:
        """Prepares for the value columns of the definition that packed the payloads."""
        types = [column.type.entry.python | None for column in definition.value_columns]
        self._decoder = msgspec.msgpack.Decoder(tuple[*types] if types else tuple[()])  # type: ignore[valid-type]

    def unpack(self, payload: bytes) -> tuple[Any, ...]:
        """The value columns of one payload, which is not a tombstone's."""
        values: tuple[Any, ...] = self._decoder.decode(payload)
        return values


def json_row(row: Mapping[str, Any] | msgspec.Struct) -> bytes:
    """A row, or anything that holds rows, as JSON.

    Times in RFC 3339 with Z, dates as full-dates, decimals and UUIDs as strings, binary in base64.
    """
    return _JSON.encode(row)
