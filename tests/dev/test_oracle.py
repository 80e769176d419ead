from __future__ import annotations

from datetime import UTC, datetime

from thermocline.dev.oracle import Row, RowKey, differences, row_of_json

TIME = datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)
PLAN: RowKey = (7, "ada", "plan")
CITY: RowKey = (7, "ada", "city")


def row(key: RowKey, value: str) -> Row:
    return {"app_id": key[0], "user_id": key[1], "key": key[2], "value": value, "updated_at": TIME}


def test_equal_rows_do_not_differ() -> None:
    rows = {PLAN: row(PLAN, "free"), CITY: row(CITY, "London")}
    assert differences(rows, reversed(rows.values())) == []


def test_each_differing_key_is_told_with_what_both_sides_say() -> None:
    oracle = {PLAN: row(PLAN, "free"), CITY: row(CITY, "London")}
    lines = differences(oracle, [row(PLAN, "pro"), row((7, "ada", "zone"), "UTC")])
    assert [line.partition(":")[0] for line in lines] == [
        'app_id=7, user_id="ada", key="city"',
        'app_id=7, user_id="ada", key="plan"',
        'app_id=7, user_id="ada", key="zone"',
    ]
    assert '"free"' in lines[1]
    assert '"pro"' in lines[1]
    assert "no such row" in lines[0].partition("the answer")[2]
    assert "no such row" in lines[2].partition("the answer")[0]


def test_a_row_that_differs_in_its_time_alone_is_a_difference() -> None:
    later = {**row(PLAN, "free"), "updated_at": TIME.replace(second=1)}
    assert len(differences({PLAN: row(PLAN, "free")}, [later])) == 1


def test_a_row_answered_twice_is_a_difference_even_if_it_is_right() -> None:
    right = row(PLAN, "free")
    assert len(differences({PLAN: right}, [right, right])) == 1


def test_a_row_of_json_has_the_oracles_form() -> None:
    assert row_of_json({**row(PLAN, "free"), "updated_at": "2026-01-01T00:00:00.5Z"}) == row(PLAN, "free")
