"""Notes of alterations: bounded, and none that stops a reader."""

from __future__ import annotations

import pytest

from thermocline.iceberg.alterations import (
    ALTERATIONS_PROPERTY,
    BYTES_MAX,
    ENTRIES_MAX,
    NotedAlteration,
    NotedCause,
    alterations_of,
    last_by_contract,
    with_alteration,
)


def test_the_newest_notes_are_kept() -> None:
    properties: dict[str, str] = {}
    for version in range(2, 2 * ENTRIES_MAX):
        properties |= with_alteration(properties, NotedAlteration(version, 1_000 * version, "b", ("x",)))
    found = alterations_of(properties)
    assert [one.version for one in found] == list(range(2 * ENTRIES_MAX - ENTRIES_MAX, 2 * ENTRIES_MAX))
    assert found[-1] == NotedAlteration(99, 99_000, "b", ("x",))


def test_notes_stay_within_their_bound_of_bytes_and_the_last_is_always_there() -> None:
    properties: dict[str, str] = {}
    for version in range(2, 12):
        properties |= with_alteration(properties, NotedAlteration(version, 0, "b", ("x" * 5_000,)))
        assert len(properties[ALTERATIONS_PROPERTY]) <= BYTES_MAX
    assert [one.version for one in alterations_of(properties)] == [9, 10, 11]
    many = NotedAlteration(12, 0, "b", tuple(f"c{number}: new column, int" for number in range(70)))
    (*_, last) = alterations_of(with_alteration(properties, many))
    assert len(last.changes) == 51
    assert last.changes[-1] == "and 20 changes more"


def test_the_last_change_by_the_contract_is_known_with_its_cause_behind_later_alterations() -> None:
    schema = NotedCause(("plan",), "orders/0@4", "value", "2", "version 7 of orders-value")
    by_contract = NotedAlteration(2, 5, "b", ("plan is added",), (schema, NotedCause(("note",))))
    properties: dict[str, str] = {}
    assert last_by_contract(properties) is None
    for one in (by_contract, NotedAlteration(3, 6, "c", ("score is dropped",))):
        properties |= with_alteration(properties, one)
    assert last_by_contract(properties) == by_contract
    assert by_contract.sentences == (
        "plan is added",
        "cause for plan: schema 2 (version 7 of orders-value), first met at orders/0@4",
        "cause for note: what values of a sample had",
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "null", "[1]", '[{"version": 2}]', "[{]"),
        '[{"version":2,"at_ms":1,"batch_id":"b","changes":[],"causes":["x"]}]',
    ],
)
def test_what_is_damaged_tells_nothing_and_is_written_again(text: str) -> None:
    assert alterations_of({ALTERATIONS_PROPERTY: text}) == ()
    new = NotedAlteration(2, 5, "b", ("x",))
    assert alterations_of(with_alteration({ALTERATIONS_PROPERTY: text}, new)) == (new,)
