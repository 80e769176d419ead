"""JSON whose records name a JSON Schema: the record rule of JSON, behind what names the schema."""

from __future__ import annotations

import json
import random
from typing import Any
from uuid import UUID

import pytest

from tests.thermocline.alone import alone_and_together_are_the_same
from tests.thermocline.poison import CASES, GOOD_KEY, POISONED
from tests.thermocline.registered import Registered, framed
from thermocline.rules.decode import Decoded, Stage, decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.definition import LiveTable

GUID = UUID("89791762-2336-186f-9674-299b90a8e2e7")
SCHEMAS: dict[SchemaId, Any] = {7: {"type": "object"}, GUID: {"type": "object"}}
REGISTRY = Registered(SCHEMAS, "JSON")
FUZZED, FUZZED_FULL = 5_000, 200_000


def table(**options: Any) -> LiveTable:
    fields: dict[str, Any] = {
        "name": "poisoned",
        "identifier": "app.poisoned",
        "topics": ["poisoned"],
        "key": POISONED.key,
        "format": "json_schema",
        "columns": {column.name: column.type.declared for column in POISONED.columns},
        "require_fields": POISONED.require_fields,
    }
    return LiveTable.build(**(fields | options))


def outcome(decoded: Decoded) -> tuple[Any, ...]:
    return decoded.good, decoded.columns, decoded.tombstones, [(bad.index, bad.stage) for bad in decoded.bad]


@pytest.mark.parametrize("id_", [7, GUID])
def test_bodies_are_read_by_the_record_rule_of_json(id_: SchemaId) -> None:
    """The whole poison corpus of JSON, behind a prefix and with a header, is what it is without either."""
    keys = [case.key for case in CASES]
    values = [case.value or None for case in CASES]
    expected = outcome(decoder_for(POISONED).decode(keys, values))
    framed_keys = [key and framed(id_, key) for key in keys]
    framed_values = [value and framed(id_, value) for value in values]
    decoder = decoder_for(table(), REGISTRY)
    assert outcome(decoder.decode(framed_keys, framed_values)) == expected
    head = framed(id_, b"")
    headers = [("__key_schema_id", head), ("__value_schema_id", head)]
    assert outcome(decoder.decode(keys, values, lambda _: headers)) == expected


def test_a_record_that_names_no_schema_of_json_is_bad() -> None:
    decoder = decoder_for(table(key_format="json"), REGISTRY)
    values = [b"{}", framed(8, b"{}"), b"\x00\x00", framed(7, b""), framed(7, b"{}")]
    decoded = decoder.decode([GOOD_KEY] * len(values), values)
    assert decoded.good == [4]
    assert {bad.stage for bad in decoded.bad} == {Stage.DECODE}
    avro = decoder_for(table(key_format="json"), Registered(SCHEMAS))
    (bad,) = avro.decode([GOOD_KEY], values[-1:]).bad
    assert bad.reason == "schema 7 is one of Avro, not of JSON Schema"


def test_a_bad_key_counts_before_a_bad_value() -> None:
    keys = [framed(7, GOOD_KEY), framed(8, GOOD_KEY), b"", framed(7, b""), framed(7, b"[]")]
    decoded = decoder_for(table(), REGISTRY).decode(keys, [framed(8, b"{}")] * len(keys))
    assert [bad.stage for bad in decoded.bad] == [Stage.DECODE, *[Stage.KEY] * 4]


def test_a_field_by_its_path_says_that_a_record_deletes() -> None:
    definition = table(delete_when={"path": "op.kind", "values": ["D"]}, key_format="json")
    documents = [{"op": {"kind": "D"}, "small": "none of its type"}, {"op": {"kind": "U"}}, {"op": 1}]
    values = [framed(7, json.dumps(one).encode()) for one in documents]
    decoded = decoder_for(definition, REGISTRY).decode([GOOD_KEY] * 3, values)
    assert (decoded.good, decoded.tombstones) == ([0, 1], [True, False])
    assert decoded.bad[0].reason.startswith("delete_when (op.kind): ")


@pytest.mark.parametrize("count", [FUZZED, pytest.param(FUZZED_FULL, marks=pytest.mark.full)])
def test_malformed_records_are_good_or_bad_alone_as_together(count: int) -> None:
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    chance = random.Random(seed)
    ids: list[SchemaId] = [7, GUID, 8]
    whole = [framed(chance.choice(ids), case.value) for case in CASES if case.value and len(case.value) < 500]
    decoder = decoder_for(table(key_format="json"), REGISTRY)
    for first in range(0, count, 500):
        values = [spoiled(chance, chance.choice(whole)) for _ in range(first, min(first + 500, count))]
        alone_and_together_are_the_same(decoder, GOOD_KEY, values)


def spoiled(chance: random.Random, value: bytes) -> bytes:
    written = bytearray(value)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(written) + 1)
        match chance.randrange(4):
            case 0:
                written[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del written[at : at + chance.randint(1, 5)]
            case 2:
                written[at:at] = chance.choice([b"{", b'"', b"}", b":", b",", b"[", b"\\", b"\x00", b"null"])
            case _:
                written += written[at:]
    return bytes(written)
