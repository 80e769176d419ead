"""Fields that no column is read from: counted of a sample, by name, up to a bound."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from thermocline.ingest.owner.measures import UNREAD_FIELDS
from thermocline.ingest.owner.unread import UnreadNames
from thermocline.rules.decode.unread import UnreadFields, bounded
from thermocline.rules.definition import LiveTable


def table(**settings: Any) -> LiveTable:
    columns: dict[str, Any] = {
        "id": "int",
        "name": "string",
        "city": {"type": "string", "path": "address.city"},
    }
    return LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], columns=columns, **settings
    )


def test_fields_that_no_column_is_read_from_are_counted_by_name() -> None:
    values = [
        b'{"name":"a","plan":1}',
        b'{"plan":2,"address":{"zip":1}}',
        b'{"id":1}',
        None,
        b"",
        b"no",
        b"[1]",
    ]
    assert UnreadFields(table()).of(values) == {"plan": 2}


def test_an_event_or_a_payload_is_looked_into() -> None:
    event = b'{"op":"c","source":{},"after":{"name":"a","plan":1}}'
    assert UnreadFields(table(envelope="debezium")).of([event, b'{"op":"d"}']) == {"plan": 1}
    assert UnreadFields(table()).of([b'{"schema":{},"payload":{"plan":1}}']) == {"plan": 1}


def test_a_deletes_field_is_read_and_other_formats_are_not_looked_at() -> None:
    deletes = table(delete_when={"path": "op", "values": ["D"]})
    assert UnreadFields(deletes).of([b'{"op":"U","x":1}']) == {"x": 1}
    assert UnreadFields(table(format="avro", key_format="json")).of([b'{"x":1}']) == {}


def test_names_beyond_the_bound_are_counted_together() -> None:
    many = {f"f{number:02}": 1 for number in range(22)}
    found = bounded(many, known=["f21"])
    assert len(found) == 21
    assert (found["f21"], found["f18"], found["(other)"]) == (1, 1, 2)


def test_new_names_are_logged_once_and_kept_in_the_tables_properties(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "thermocline.ingest.owner.unread")
    names = UnreadNames("unread", {})
    reports: Any = [
        SimpleNamespace(unread_fields={"plan": 2}),
        SimpleNamespace(unread_fields={"plan": 1, "x": 1}),
    ]
    properties = names.met(reports)
    assert json.loads(properties["thermocline.unread-fields"]) == ["plan", "x"]
    assert names.met(reports) == {}
    assert [record.getMessage() for record in caplog.records] == [
        "values have fields that no column is read from"
    ]
    counted = {
        tuple(sample.labels.values()): sample.value
        for sample in next(iter(UNREAD_FIELDS.collect())).samples
        if sample.name.endswith("_total")
    }
    assert counted["unread", "plan"] == 6
    again = UnreadNames("unread", properties)
    assert again.met(reports) == {}
