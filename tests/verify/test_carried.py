"""Records that an earlier definition read, as the table has their columns now."""

from __future__ import annotations

import json
from typing import Any

from thermocline.rules.alteration import plan_alteration
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.definition import ABSENT, LiveTable
from thermocline.verify.log_decode import carried


def build(**columns: Any) -> LiveTable:
    return LiveTable.build(
        name="t",
        identifier="a.t",
        topics=["t"],
        key=["id"],
        columns={"id": "int", **columns},
        partial_updates=True,
    )


BEFORE = build(a="int", b="struct<c: string, d: int>", t="string")
FEWER = build(b="struct<c: string>", u={"type": "string", "renamed_from": "t"})
DROPPED = plan_alteration(BEFORE, FEWER, drop=["a", "b.d"]).definition
AGAIN = build(b="struct<c: string, d: int>", u={"type": "string", "renamed_from": "t"}, a="long", t="string")
# Iceberg gave ids up to 10: of four columns, four of provenance, and two fields.
NOW = plan_alteration(DROPPED, AGAIN, 10).definition


def test_values_go_with_their_field_ids_and_none_into_a_column_that_has_only_the_name() -> None:
    values = [{"a": 1, "b": {"c": "x", "d": 2}, "t": "kept"}, {"a": 3}, {"t": None}]
    decoded = decoder_for(BEFORE).decode(
        [json.dumps({"id": number}).encode() for number in range(3)],
        [json.dumps(value).encode() for value in values],
    )
    records = records_table(BEFORE, decoded, "t", 0, range(3), [0] * 3)
    found = carried(records, BEFORE, NOW)
    assert found.schema == NOW.records_schema
    rows = found.select(["id", "b", "u", "a", "t"]).to_pylist()
    assert rows == [
        {"id": 0, "b": {"c": "x", "d": None}, "u": "kept", "a": None, "t": None},
        {"id": 1, "b": None, "u": None, "a": None, "t": None},
        {"id": 2, "b": None, "u": None, "a": None, "t": None},
    ]
    absent = [sorted(names or ()) for names in found.column(ABSENT).to_pylist()]
    assert absent == [[], ["b", "u"], ["b"]]
