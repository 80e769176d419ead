"""The examples in docs/formats.md: each record becomes what the page says."""

from __future__ import annotations

import json

import pytest

from tests.docs.examples import EXAMPLES, Example
from tests.thermocline.registered import Registered
from thermocline.rules.decode import decoder_for, json_row


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_record_becomes_what_the_page_says(example: Example) -> None:
    definition = example.settings.definition(example.name)
    decoded = decoder_for(definition, Registered(example.schemas)).decode(
        [record.key for record in example.records],
        [record.value for record in example.records],
        lambda index: example.records[index].headers,
    )
    found: dict[int, object] = {bad.index: f"bad: {bad.stage.value}" for bad in decoded.bad}
    for place, index in enumerate(decoded.good):
        row = {name: values[place] for name, values in decoded.columns.items()}
        found[index] = "deleted" if decoded.tombstones[place] else json.loads(json_row(row))
    assert [found[index] for index in range(len(example.records))] == [
        record.becomes for record in example.records
    ]


def test_the_page_has_every_way() -> None:
    definitions = [example.settings.definition(example.name) for example in EXAMPLES]
    assert {"string", "long", "json"} <= {definition.key_format for definition in definitions}
    assert {"string", "json", "avro", "json_schema", "protobuf"} <= {
        definition.format for definition in definitions
    }
    assert {"plain", "debezium", "maxwell"} <= {definition.envelope for definition in definitions}
    assert any(column.header for definition in definitions for column in definition.columns)
    assert any(column.path for definition in definitions for column in definition.columns)
