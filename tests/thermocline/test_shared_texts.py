"""Texts that several tables look at: read once, and the same as each table would read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.thermocline.test_routing import ORDERS, live_table
from thermocline.rules.decode import SharedTexts, decoder_for

ALIKE: list[dict[str, Any]] = [
    {},
    {"name": "other", "columns": {"id": "int", "w": "json", "type": "string"}, "buckets": 3},
    {"columns": {"id": "int", "v": {"type": "string", "path": "payload"}}},
    {"key": ["type"], "columns": {"type": "string", "v": "string"}},
    {"key": ["id"], "columns": {"id": {"type": "int", "path": "type"}, "v": "string"}},
    {"key_from": "value"},
    {"key_from": "value", "key": ["type"], "columns": {"type": "string", "v": "string"}},
    {"partial_updates": True},
    {"delete_when": {"path": "op", "values": ["d"]}},
    {"delete_unmatched": True},
    {"record_bytes_max": 40},
    {"key_format": "string", "columns": {"id": "string", "v": "string"}},
    {"on_error": "skip", "sequence_by": ["v"], "columns": {"id": "int", "v": "long"}},
]
SHARED_KEYS: list[bytes | None] = [
    b'{"id":1}',
    b'{"id":2,"type":"order"}',
    b'{"type":"line"}',
    b'{"schema":null,"payload":{"id":4,"type":"order"}}',
    b"broken",
    None,
]
SHARED_VALUES: list[bytes | None] = [
    None,
    b"",
    b"broken",
    b'{"type":"order","v":"a"}',
    b'{"type":"line","op":"d"}',
    b'{"type":{"order":1}}',
    b'{"schema":null,"payload":{"type":"order"}}',
    b'{"schema":null,"payload":null,"type":"order"}',
    b'{"type":"order","v":"much more than forty bytes of text"}',
]


@pytest.mark.parametrize("one", range(len(ALIKE)))
def test_tables_that_look_at_texts_together_find_what_each_finds_alone(one: int) -> None:
    """Goal: no table is told by another one's reader what its own would not say. Method: all pairs."""
    pairs = [(key, value) for key in SHARED_KEYS for value in SHARED_VALUES]
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    for other in ALIKE:
        tables = [live_table(where=ORDERS, **options) for options in (ALIKE[one], other)]
        texts = SharedTexts()
        together = [decoder_for(table, texts=texts) for table in tables]
        for table, decoder in zip(tables, together, strict=True):
            assert decoder.decode(keys, values, topic="t") == decoder_for(table).decode(
                keys, values, topic="t"
            )
