"""Records that are not the table's and delete the rows of their keys: no contract judges what they hold.

Method: a read task's reader takes one chunk, in which others' records have another schema than the table's.
"""

from __future__ import annotations

import json
from typing import Any, cast

import fastavro
import pytest

from tests.thermocline.registered import Registered, framed
from tests.thermocline.test_avro import written
from thermocline.ingest.batch.read_task import RangesReader, ReadReport, ReadTask
from thermocline.ingest.batch.source import Together
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.rules.definition import TOMBSTONE, LiveTable

ORDERS = {"field": "type", "is": "order"}
FIELDS = [{"name": "type", "type": "string"}, {"name": "v", "type": "string"}]
WITH_PLAN = [*FIELDS, {"name": "plan", "type": "string"}]
ID = {"name": "id", "type": "string"}
OPTIONAL_ID = {"name": "id", "type": ["null", "string"]}
SCHEMAS: dict[Any, Any] = {
    number: {"type": "record", "name": "R", "fields": fields}
    for number, fields in enumerate((FIELDS, WITH_PLAN, [ID], [OPTIONAL_ID]), 1)
}


class Bare:
    """A message without headers."""

    def headers(self) -> None:
        return None


def live_table(**options: Any) -> LiveTable:
    given: dict[str, Any] = {
        "name": "orders",
        "identifier": "app.orders",
        "topics": ["events"],
        "key": ["id"],
        "columns": {"id": "string", "v": "string"},
        "where": ORDERS,
        "delete_unmatched": True,
    }
    return LiveTable.build(**(given | options))


def avro(schema: int, **value: str) -> bytes:
    return framed(schema, written(fastavro.parse_schema(SCHEMAS[schema]), value))


def read(definition: LiveTable, *records: tuple[bytes, bytes]) -> tuple[list[tuple[str, bool]], ReadReport]:
    """The keys that came of records, each with whether its row is deleted; and the report."""
    nowhere: Any = None
    registry = cast("Any", Registered(SCHEMAS))
    task = ReadTask(definition, {}, nowhere, nowhere, "", {"events": "id"}, registry)
    reader = RangesReader(task, [OffsetRange("events", 0, 0, len(records))], Together())
    report = ReadReport([])
    keys, values = (list[bytes | None](record[part] for record in records) for part in (0, 1))
    offsets = list(range(len(records)))
    messages = [cast("Any", Bare())] * len(records)
    rows = reader.take(RecordChunk("events", 0, keys, values, offsets, offsets, messages), report)
    return [(row["id"], row[TOMBSTONE]) for row in rows.select(["id", TOMBSTONE]).to_pylist()], report


def of_json(id_: str, **value: Any) -> tuple[bytes, bytes]:
    return json.dumps({"id": id_}).encode(), json.dumps(value).encode()


def test_fields_of_others_records_are_neither_sampled_nor_counted() -> None:
    rows, report = read(
        live_table(format="json", contract="evolve"),
        of_json("a", type="order", v="x", size=1),
        of_json("b", type="other", v="x", plan="gold"),
    )
    assert rows == [("a", False), ("b", True)]
    assert (report.records, report.filtered, report.unmatched) == (2, 0, 1)
    assert set(report.met.fields) == {"size"}
    assert (report.sampled_values, report.unread_fields) == (1, {"size": 1})


@pytest.mark.parametrize("mode", ["evolve", "stop"])
def test_schemas_of_others_records_are_not_met(mode: str) -> None:
    rows, report = read(
        live_table(format="avro", key_format="string", contract=mode),
        (b"a", avro(2, type="other", v="x", plan="gold")),
        (b"b", avro(1, type="order", v="x")),
    )
    assert rows == [("a", True), ("b", False)]
    assert [(str(one), one.head) for one in report.met.schemas.values()] == [("events/0@1", framed(1, b""))]


def test_a_key_whose_schema_the_contract_refuses_still_deletes_where_its_record_is_anothers() -> None:
    rows, report = read(
        live_table(format="avro", key_format="avro", contract={"made_optional": "quarantine"}),
        (avro(4, id="a"), avro(1, type="other", v="x")),
        (avro(4, id="b"), avro(1, type="order", v="x")),
        (avro(3, id="c"), avro(1, type="order", v="x")),
    )
    assert rows == [("a", True), ("c", False)]
    assert (report.bad, report.unmatched, report.filtered) == ({"contract": 1}, 1, 0)
