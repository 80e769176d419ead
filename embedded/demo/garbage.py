"""Records that no row can be made of: each must be set aside without touching any row or any other record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from embedded.demo.writer import key_bytes
from embedded.oracle import RowKey


class Garbage(NamedTuple):
    """One bad record, and what is wrong with it."""

    what: str
    key: bytes | None
    value: bytes | None


def garbage_about(row: RowKey) -> Sequence[Garbage]:
    """Bad records of several kinds; most carry the key of the row, which must not change by them."""
    key = key_bytes(row)
    return (
        Garbage("bytes that are no text", b"\xff\xfe\x00\x01", b"\x80\x81"),
        Garbage("half a JSON object", key, b'{"value":"brok'),
        Garbage("two objects in one record", key, b'{"value":"a","updated_at":null}\n{"value":"b"}'),
        Garbage("a number for a string", key, b'{"value":1}'),
        Garbage("a time without a zone", key, b'{"value":"x","updated_at":"2026-01-01T00:00:00"}'),
        Garbage("a key without its user", b'{"app_id":7,"key":"plan"}', b'{"value":"x"}'),
    )
