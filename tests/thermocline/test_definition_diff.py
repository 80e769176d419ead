"""Differences of a table from the file: what each says, and that its lines bring the file to the table's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.thermocline.orders import COLUMNS, ORDERS, SETTINGS, wanted
from thermocline.errors import AlterationRefused
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition_diff import Difference, differences_of


def differences(**changes: Any) -> dict[str, Difference]:
    return {one.of: one for one in differences_of(ORDERS, wanted(**changes))}


def test_nothing_differs_whatever_version_and_ids_the_table_has() -> None:
    altered = plan_alteration(ORDERS, wanted(columns={"new": "int", **COLUMNS})).definition
    assert altered.version == 2
    assert differences_of(altered, wanted(columns={"new": "int", **COLUMNS})) == ()


def test_what_can_be_altered_says_what_alter_would() -> None:
    found = differences(
        buckets=32,
        on_error="skip",
        topics=["orders", "more"],
        columns={"id": "int", "note": "string", "slot": "string", **COLUMNS, "count": "long"},
    )
    assert {of: (one.in_file, one.in_table, one.changes) for of, one in found.items()} == {
        "buckets": ("32", "16", ("buckets becomes 32, from 16",)),
        "topics": ("orders, more", "orders", ("topic more feeds the table, too",)),
        "on_error": ('"skip"', '"quarantine"', ("on_error becomes skip, from quarantine",)),
        "column count": ("long", "int", ("column count is widened from int to long",)),
        "column note": (
            "string",
            "absent",
            ("column note is added as string; rows that are there have null",),
        ),
    }
    assert all(not one.refusals for one in found.values())


def test_what_cannot_be_altered_has_its_own_reason_beside_what_can() -> None:
    found = differences(
        topics=["others"],
        buckets=10,
        columns={"slot": "string", "id": "int", "at": "timestamptz", "x": "int"},
    )
    assert {of for of, one in found.items() if one.refusals} == {
        "topics",
        "buckets",
        "column count",
        "column price",
    }
    assert found["column x"].changes == ("column x is added as int; rows that are there have null",)
    why = (
        "the column count can't be left out: the table holds its values; drop it with `table alter --drop`, "
        'or say what it is called now with renamed_from = "count"'
    )
    assert found["column count"].refusals == (why,)
    assert found["order of the columns"].in_file == "slot, id, at"
    assert found["order of the columns"].in_table == "id, slot, at"


def test_a_renamed_column_is_one_difference_and_a_new_one_of_its_old_name_another() -> None:
    file = {**{name: kind for name, kind in COLUMNS.items() if name != "count"}, "count": "string"}
    found = differences(columns={**file, "items": {"type": "int", "renamed_from": "count"}})
    assert found.keys() == {"column items", "column count"}
    assert found["column items"].in_table == "int"
    assert not any(one.refusals for one in found.values())
    assert found["column count"].changes[-1].startswith("column count is added as string")


def test_a_change_of_buckets_that_is_under_way_is_refused_by_the_files_that_are_left() -> None:
    (found,) = differences_of(ORDERS, wanted(buckets=8), 0, {32: 7})
    assert "7 files are left to rewrite" in found.refusals[0]


def test_what_the_file_needs_to_be_as_the_table_is_is_written_as_a_person_does() -> None:
    table = wanted(
        on_error={"key": "fail"},
        delete_when={"header": "op", "values": ["D"]},
        columns={
            **COLUMNS,
            "seen": {"type": "timestamptz", "epoch": "ms"},
            "city": {"type": "string", "path": "a.b"},
        },
    )
    found = {one.setting: one for one in differences_of(table, wanted(columns={**COLUMNS, "odd": "json"}))}
    assert {name: (one.value, one.in_columns) for name, one in found.items()} == {
        "on_error": ({"key": "fail", "decode": "quarantine", "contract": "quarantine"}, False),
        "delete_when": ({"header": "op", "values": ["D"]}, False),
        "seen": ({"type": "timestamptz", "epoch": "ms"}, True),
        "city": ({"type": "string", "path": ("a", "b")}, True),
        "odd": (None, True),
    }


CHANGES: list[dict[str, Any]] = [
    {"topics": ["orders", "more"]},
    {"topics": ["more"]},
    {"buckets": 8},
    {"buckets": 7},
    {"on_error": "fail"},
    {"suppress_unchanged": True},
    {"transactional": True},
    {"record_bytes_max": 1_000},
    {"require_fields": False},
    {"partial_updates": True},
    {"format_version": 2},
    {"entity": ["id", "slot"]},
    {"key_format": "avro"},
    {"delete_when": {"path": "op", "values": ["D"]}},
    {"identifier": "app.others"},
]
COLUMN_CHANGES: list[dict[str, Any]] = [
    {"count": "long"},
    {"count": "string"},
    {"price": "decimal(9,2)"},
    {"price": "decimal(9,3)"},
    {"at": {"type": "timestamptz", "epoch": "s"}},
    {"note": "string"},
    {"place": "struct<x: int, y: list<string>>"},
    {"city": {"type": "string", "path": "address.city"}},
]


def _file(rng: random.Random) -> dict[str, Any]:
    """Settings of a table with some changes at random: options, columns, some left out, another order."""
    settings = dict(SETTINGS)
    for change in rng.sample(CHANGES, rng.randrange(4)):
        settings |= change
    columns: dict[str, Any] = dict(COLUMNS)
    for change in rng.sample(COLUMN_CHANGES, rng.randrange(4)):
        columns |= change
    left_out = rng.sample(["count", "price", "at"], rng.choice([0, 0, 1]))
    names = [name for name in columns if name not in left_out]
    if rng.random() < 0.2:
        rng.shuffle(names)
    return settings | {"columns": {name: columns[name] for name in names}}


@pytest.mark.parametrize("seed", range(200))
def test_an_alteration_refuses_what_the_differences_refuse_and_their_values_undo_them(seed: int) -> None:
    """Goal: no difference is missed or made up, whatever differs at once.

    Method: two definitions at random. The refusals of the differences are those of the whole alteration; and
    a file into which the values are written that the differences name has the table's definition.
    """
    rng = random.Random(seed)
    table, file = LiveTable.build(**_file(rng)), _file(rng)
    found = differences_of(table, LiveTable.build(**file))
    changes, refusals = _planned(table, LiveTable.build(**file))
    assert {why for one in found for why in one.refusals} == refusals
    assert refusals or {change for one in found for change in one.changes} == changes
    assert bool(found) == bool(changes or refusals)
    for one in found:
        _write(file, one)
    undone = LiveTable.build(**file | {"columns": {c.name: file["columns"][c.name] for c in table.columns}})
    assert undone.differences(table) == ()
    assert undone.identifier == table.identifier


def _planned(table: LiveTable, file: LiveTable) -> tuple[set[str], set[str]]:
    """What an alteration would change, or all that it refuses."""
    try:
        return set(plan_alteration(table, file).changes), set()
    except AlterationRefused as error:
        return set(), set(error.problems)


def _write(file: dict[str, Any], one: Difference) -> None:
    """Does with a file what a difference says."""
    if one.is_order:
        file["columns"] = dict(one.value)
        return
    section = dict(file["columns"]) if one.in_columns else file
    section.pop(one.setting, None)
    if one.value is not None:
        section[one.setting] = one.value
    if one.in_columns:
        file["columns"] = section
