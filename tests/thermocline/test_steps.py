"""The steps of one record: what is shown is what the decoder does, also where it refuses."""

from __future__ import annotations

import io
from typing import Any

import fastavro

from tests.thermocline.registered import Registered, framed
from thermocline.rules.decode.steps import Step, steps_of
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import no_headers

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "degrees", "type": "double"}]}


def table(**options: Any) -> LiveTable:
    given = {
        "key": ["id"],
        "key_format": "string",
        "columns": {"id": "string", "n": "int"},
        "topics": ["t"],
        "buckets": 16,
    }
    return LiveTable.build(name="t", identifier="app.t", **{**given, **options})


def by_name(steps: list[Step]) -> dict[str, Step]:
    return {step.name: step for step in steps}


def test_a_row_goes_through_envelope_fields_key_and_bucket() -> None:
    steps = by_name(steps_of(table(), None, b"34", b'{"n": 7}', no_headers))
    assert list(steps) == ["envelope", "fields", "key", "bucket"]
    assert steps["envelope"].after["row"] == b'{"n": 7}'
    assert steps["fields"].after == {"becomes": "a row", "columns": {"id": "34", "n": 7}}
    assert steps["key"].after == {"bytes": "33340001"}
    # Iceberg's murmur3 of "iceberg" is 1210000089 (specification, appendix B); of 16 buckets the 9th.
    steps = by_name(steps_of(table(), None, b"iceberg", b'{"n": 7}', no_headers))
    assert steps["bucket"].after == {"bucket": 1210000089 % 16, "of": 16}


def test_fields_that_no_column_is_read_from_are_named_of_a_row() -> None:
    steps = by_name(steps_of(table(), None, b"34", b'{"n": 7, "plan": 1, "m": 2}', no_headers))
    assert steps["fields"].after["no column is read from"] == ["m", "plan"]


def test_a_record_without_a_value_is_a_delete() -> None:
    steps = by_name(steps_of(table(), None, b"a", None, no_headers))
    assert steps["fields"].after == {"becomes": "a delete", "columns": {"id": "a"}}
    assert steps["envelope"].after["deletes"] is True


def test_a_bad_record_ends_at_the_step_that_refuses_it() -> None:
    steps = by_name(steps_of(table(), None, b"a", b'{"n": "x"}', no_headers))
    assert list(steps) == ["envelope", "fields"]
    assert steps["fields"].problem == "n (int): Expected `integer | null`, got `string`"
    assert steps["fields"].after == {"stage": "contract", "on_error": "quarantine", "key": {"id": "a"}}


def test_framing_and_schema_are_shown_of_a_record_that_names_one() -> None:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, SCHEMA, {"degrees": 1.5})
    definition = table(format="avro", columns={"id": "string", "degrees": "double"})
    value = framed(7, written.getvalue())
    steps = by_name(steps_of(definition, Registered({7: SCHEMA}), b"a", value, no_headers))
    assert list(steps) == ["framing", "schema", "envelope", "fields", "key", "bucket"]
    assert steps["framing"].after["value"] == {
        "named": "before the body",
        "by": b"\x00\x00\x00\x00\x07",
        "body": written.getvalue(),
    }
    assert steps["schema"].before == {"value": {"id": "7"}}
    assert steps["fields"].after["columns"] == {"id": "a", "degrees": 1.5}


def test_bytes_that_name_no_schema_and_a_schema_that_nobody_knows_are_told_where_they_are_met() -> None:
    definition = table(format="avro", columns={"id": "string", "degrees": "double"})
    steps = by_name(steps_of(definition, Registered({}), b"a", b"{}", no_headers))
    assert steps["framing"].problem == "it begins with the byte 123, not with 0 or 1 and a schema's id"
    steps = by_name(steps_of(definition, Registered({}), b"a", framed(9, b"x"), no_headers))
    assert steps["schema"].problem == "no schema has the id 9"
    assert steps["fields"].problem == "no schema has the id 9"


def test_a_change_event_is_opened() -> None:
    definition = table(envelope="debezium", key_format="json", columns={"id": "int", "n": "int"})
    steps = by_name(steps_of(definition, None, b'{"id":1}', b'{"op":"c","after":{"n":2}}', no_headers))
    assert steps["envelope"].after["row"] == b'{"n":2}'
    steps = by_name(steps_of(definition, None, b'{"id":1}', b'{"op":"t"}', no_headers))
    assert steps["envelope"].problem == "TRUNCATE is no change of one row: the rows stay"


def test_a_schema_beside_the_document_is_taken_off() -> None:
    value = b'{"schema": {"type": "struct", "fields": []}, "payload": {"n": 3}}'
    steps = by_name(steps_of(table(), None, b"a", value, no_headers))
    assert steps["framing"].after["value"]["body"] == b'{"n": 3}'
    assert steps["schema"].after == {"value": {"schema": '{"type": "struct", "fields": []}'}}
