"""Fields that no column is read from: counted of a sample, by name, up to a bound."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from thermocline.ingest.owner.measures import SAMPLED_VALUES, UNREAD_FIELDS
from thermocline.ingest.owner.unread import UnreadNames
from thermocline.rules.decode.unread import Sampled, UnreadFields, bounded
from thermocline.rules.definition import LiveTable
from thermocline.rules.unread_counts import UnreadCounts

DAY_MS = 86_400_000


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
    assert UnreadFields(table()).of(values) == Sampled(3, {"plan": 2})


def test_an_event_or_a_payload_is_looked_into() -> None:
    event = b'{"op":"c","source":{},"after":{"name":"a","plan":1}}'
    events = UnreadFields(table(envelope="debezium")).of([event, b'{"op":"d"}', b'{"op":"d","after":null}'])
    assert events == Sampled(1, {"plan": 1}), "deletes have no row"
    assert UnreadFields(table()).of([b'{"schema":{},"payload":{"plan":1}}']) == Sampled(1, {"plan": 1})


def test_a_deletes_field_is_read_and_other_formats_are_not_looked_at() -> None:
    deletes = table(delete_when={"path": "op", "values": ["D"]})
    assert UnreadFields(deletes).of([b'{"op":"U","x":1}']) == Sampled(1, {"x": 1})
    assert UnreadFields(table(format="avro", key_format="json")).of([b'{"x":1}']) == Sampled()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "[]",
        "{}",
        '{"version":1,"newest":{},"before":{}}',
        UnreadCounts().to_json().replace("{}", "7"),
    ],
)
def test_counts_that_were_damaged_stop_nothing(text: str) -> None:
    assert UnreadCounts.of_json(text) == UnreadCounts()


def test_a_sample_is_eight_values_of_a_chunk_or_as_many_as_are_wanted() -> None:
    values = [b'{"plan":1}'] * 10
    assert UnreadFields(table()).of(values) == Sampled(8, {"plan": 8})
    assert UnreadFields(table()).of(values, 9) + Sampled(1, {"x": 1}) == Sampled(10, {"plan": 9, "x": 1})


def test_a_sample_is_taken_evenly_of_a_chunk() -> None:
    """Method: a field that only the second half has."""
    values = [b'{"name":"a"}'] * 20 + [b'{"plan":1}'] * 20
    assert UnreadFields(table()).of(values) == Sampled(8, {"plan": 4})


def test_a_field_that_stands_twice_in_a_value_is_in_one_value() -> None:
    long = "x" * 100
    value = f'{{"{long}1":1,"{long}2":2}}'.encode()
    assert UnreadFields(table()).of([value]) == Sampled(1, {long: 1}), "cut to one name"


def test_names_beyond_the_bound_are_counted_together() -> None:
    many = {f"f{number:02}": 1 for number in range(22)}
    found = bounded(many, known=["f21"])
    assert len(found) == 21
    assert (found["f21"], found["f18"], found["(other)"]) == (1, 1, 2)


def report(values: int, **names: int) -> Any:
    return SimpleNamespace(sampled_values=values, unread_fields=names)


def metric(counter: Any, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for sample in next(iter(counter.collect())).samples
        if sample.name.endswith("_total") and sample.labels["table"] == name
    }


def test_new_names_are_logged_once_and_counted_in_the_tables_properties(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "thermocline.ingest.owner.unread")
    unread = replace(table(), name="unread")
    names = UnreadNames(unread, {})
    reports = [report(5, plan=2), report(1, plan=1, x=1)]
    assert json.loads(names.met(reports, DAY_MS)["thermocline.unread-fields"]) == ["plan", "x"]
    names.landed()
    properties = names.met(reports, DAY_MS + 1)
    names.landed()
    assert [record.getMessage() for record in caplog.records] == [
        "values have fields that no column is read from"
    ]
    assert metric(UNREAD_FIELDS, "unread") == {("unread", "plan"): 6, ("unread", "x"): 2}
    assert metric(SAMPLED_VALUES, "unread") == {("unread",): 12}
    counts = UnreadCounts.of_json(properties["thermocline.unread-counts"])
    assert (counts.since_ms, counts.values, counts.names) == (DAY_MS, 12, {"plan": 6, "x": 2})

    caplog.clear()
    again = UnreadNames(unread, properties)
    counts = UnreadCounts.of_json(again.met(reports, DAY_MS + 2)["thermocline.unread-counts"])
    again.landed()
    assert counts.names == {"plan": 9, "x": 3}
    assert not caplog.records
    assert again.met([report(0)], DAY_MS + 3) == {}


def test_a_batch_that_is_rejected_and_read_again_counts_once() -> None:
    names = UnreadNames(replace(table(), name="rejected"), {})
    names.met([report(4, plan=1)], DAY_MS)
    properties = names.met([report(4, plan=1)], DAY_MS + 1)
    names.landed()
    counts = UnreadCounts.of_json(properties["thermocline.unread-counts"])
    assert (counts.values, counts.names) == (4, {"plan": 1})
    assert metric(UNREAD_FIELDS, "rejected") == {("rejected", "plan"): 1}


def test_the_metric_has_no_more_names_than_the_properties() -> None:
    names = UnreadNames(replace(table(), name="many"), {})
    for number in range(30):
        names.met([report(1, **{f"f{number:02}": 1})], DAY_MS)
        names.landed()
    assert len(metric(UNREAD_FIELDS, "many")) == 21
    assert metric(UNREAD_FIELDS, "many")["many", "(other)"] == 10


def test_a_field_that_has_a_column_by_now_is_no_longer_told() -> None:
    before = UnreadNames(replace(table(), name="altered", version=1), {})
    properties = before.met([report(5, plan=5, x=1)], DAY_MS)
    columns = {"id": "int", "plan": "string"}
    altered = LiveTable.build(name="altered", identifier="app.t", topics=["t"], key=["id"], columns=columns)
    after = UnreadNames(replace(altered, version=2), properties).met([report(1)], DAY_MS + 1)
    assert json.loads(after["thermocline.unread-fields"]) == ["x"]
    counts = UnreadCounts.of_json(after["thermocline.unread-counts"])
    assert (counts.values, counts.names) == (6, {"x": 1})


def test_a_field_that_comes_no_more_is_forgotten() -> None:
    counts = UnreadCounts().with_sampled(Sampled(10, {"old": 1}), 1, 5 * DAY_MS, lambda _: False)
    counts = counts.with_sampled(Sampled(4, {"new": 2}), 1, 6 * DAY_MS, lambda _: False)
    assert (counts.since_ms, counts.values, counts.names) == (5 * DAY_MS, 14, {"new": 2, "old": 1})
    counts = counts.with_sampled(Sampled(4, {"new": 4}), 1, 7 * DAY_MS, lambda _: False)
    assert (counts.since_ms, counts.values, counts.names) == (6 * DAY_MS, 8, {"new": 6})
    counts = counts.with_sampled(Sampled(1, {}), 1, 9 * DAY_MS, lambda _: False)
    assert (counts.since_ms, counts.values, counts.names) == (9 * DAY_MS, 1, {}), "nothing came for a day"
    assert UnreadCounts.of_json(counts.to_json()) == counts


def test_counts_have_a_bounded_number_of_names() -> None:
    counts = UnreadCounts()
    for number in range(50):
        at_ms = 5 * DAY_MS + number * DAY_MS // 30
        counts = counts.with_sampled(Sampled(1, {f"f{number:02}": 1}), 1, at_ms, lambda _: False)
    assert len(counts.names) == 20
    assert (counts.values, counts.others) == (50, 30)
    assert max(len(counts.newest.names), len(counts.before.names)) == 21, "20 and the others"
