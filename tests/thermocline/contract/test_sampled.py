"""Types for fields of JSON: never narrower than what was seen, and none from a few values."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.rules.contract.sampled import FieldSample, JsonFields, SampledFields
from thermocline.rules.definition import LiveTable


def table(**options: Any) -> LiveTable:
    return LiveTable.build(
        name="orders",
        identifier="app.orders",
        topics=["orders"],
        key=["id"],
        columns={"id": "string", "n": "int"},
        **({"contract": "evolve"} | options),
    )


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ("true false", "boolean"),
        ("1 -2 0", "long"),
        ("1 9223372036854775807", "long"),
        ("1 9223372036854775808", "json"),
        ("1 0.5 -2.25e3", "double"),
        ("0.5 1234567890123456", "json"),
        ("0.1234567890123456", "json"),
        ("1e400", "json"),
        ('"a" "2026-01-01"', "string"),
        ('"a" 1', "json"),
        ("true 1", "json"),
        ('{"a":1}', "json"),
        ("[1]", "json"),
        ("null 1", "long"),
    ],
)
def test_a_type_takes_all_values_that_were_seen(values: str, type_: str) -> None:
    found = JsonFields(table()).of([b'{"n": 1, "x": %b}' % one.encode() for one in values.split(" ")])
    assert {name: str(one.type) for name, one in found.items()} == {"x": type_}


def test_null_counts_for_nothing_and_what_is_no_object_is_left_to_decoding() -> None:
    assert JsonFields(table()).of([b'{"x":null}', b"[1]", b"", None, b"{"]) == {}


def test_fields_of_rows_within_events_are_sampled() -> None:
    found = JsonFields(table(envelope="debezium")).of([b'{"op":"c","after":{"x":1},"source":{"y":2}}'])
    assert {*found} == {"x"}


def test_a_sample_is_spread_over_a_chunk_and_bounded() -> None:
    values = [b'{"early":1}'] * 640 + [b'{"late":1}'] * 640
    found = JsonFields(table()).of(values)
    assert {name: one.values for name, one in found.items()} == {"early": 32, "late": 32}


def test_objects_whose_names_are_data_are_counted_up_to_a_bound() -> None:
    sampled = SampledFields()
    for number in range(300):
        sampled = sampled.plus([{f"user-{number}": FieldSample(1, ["text"])}], table())
    assert len(sampled.fields) == 200
    assert SampledFields.of_json(sampled.to_json()) == sampled


def test_damaged_samples_are_none() -> None:
    for text in ("", "[]", '{"version": 1}', '{"version": "x", "fields": {"a": 1}}'):
        assert SampledFields.of_json(text) == SampledFields()
