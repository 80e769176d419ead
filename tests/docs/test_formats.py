"""The examples in docs/formats: each record becomes what the page says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.docs.examples import EXAMPLES, Example
from tests.thermocline.registered import Registered
from thermocline.rules.decode import Decoded, decoder_for, json_row, records_table
from thermocline.rules.definition import LiveTable
from thermocline.rules.fold import fold


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_each_record_becomes_what_the_page_says(example: Example) -> None:
    definition = example.settings.definition(example.name)
    decoded = decoder_for(definition, Registered(example.schemas)).decode(
        [record.key for record in example.records],
        [record.value for record in example.records],
        lambda index: example.records[index].headers,
        definition.topics[0],
    )
    found: dict[int, object] = {bad.index: f"bad: {bad.stage.value}" for bad in decoded.bad}
    found |= dict.fromkeys(decoded.filtered, "filtered")
    for place, index in enumerate(decoded.good):
        row = {name: values[place] for name, values in decoded.columns.items()}
        if decoded.absent is not None:
            row |= _before(decoded, place, definition)
        found[index] = "deleted" if decoded.tombstones[place] else json.loads(json_row(row))
        if definition.sequence_by and _is_late(decoded, place, definition):
            found[index] = "late"
    assert [found[index] for index in range(len(example.records))] == [
        record.becomes for record in example.records
    ]


def _first(decoded: Decoded, place: int, definition: LiveTable) -> pa.Table:
    """The records up to that one."""
    offsets, count = range(len(decoded.good) + len(decoded.bad)), place + 1
    some = replace(decoded, good=decoded.good[:count], tombstones=decoded.tombstones[:count])
    some = replace(some, columns={name: values[:count] for name, values in decoded.columns.items()})
    some = replace(some, absent=decoded.absent and decoded.absent[:count])
    return records_table(definition, some, definition.topics[0], 0, offsets, [0] * len(offsets))


def _is_late(decoded: Decoded, place: int, definition: LiveTable) -> bool:
    """Whether the fold of the record and those before it leaves it out."""
    winners = fold(_first(decoded, place, definition)).winners
    return decoded.good[place] not in winners.column("_kafka_offset").to_pylist()


def _before(decoded: Decoded, place: int, definition: LiveTable) -> dict[str, Any]:
    """The columns that a record leaves out, by the fold of it and those before it, all of one key."""
    (row,) = fold(_first(decoded, place, definition)).winners.to_pylist()
    return {column.name: row[column.name] for column in definition.value_columns}


def test_the_page_has_every_way() -> None:
    definitions = [example.settings.definition(example.name) for example in EXAMPLES]
    assert {"string", "long", "json"} <= {definition.key_format for definition in definitions}
    assert {"string", "json", "avro", "json_schema", "protobuf"} <= {
        definition.format for definition in definitions
    }
    assert {"plain", "debezium", "maxwell"} <= {definition.envelope for definition in definitions}
    assert any(column.header for definition in definitions for column in definition.columns)
    assert {"plain", "debezium"} <= {one.envelope for one in definitions if one.partial_updates}
    assert {"plain", "debezium"} <= {one.envelope for one in definitions if one.sequence_by}
    assert any(column.path for definition in definitions for column in definition.columns)
    assert any(column.topic for definition in definitions for column in definition.columns)
    assert any(definition.where for definition in definitions)
