from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from embedded.demo.commits import Commit
from embedded.demo.history import History
from embedded.demo.readers import Kept
from embedded.demo.verdict import compare_accounts, compare_kept, compare_rows
from embedded.oracle import Acknowledged, Row, RowKey
from thermocline.rules.seam import Seam

TEXT = "2026-01-01T00:00:00.500Z"
TIME = datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)
PLAN: RowKey = (7, "ada", "plan")
CITY: RowKey = (7, "ada", "city")


def row(key: RowKey, value: str) -> Row:
    return {"app_id": key[0], "user_id": key[1], "key": key[2], "value": value, "updated_at": TIME}


def record(offset: int, key: RowKey, value: str | None, partition: int = 0) -> Acknowledged:
    names = json.dumps(dict(zip(("app_id", "user_id", "key"), key, strict=True))).encode()
    fields = None if value is None else json.dumps({"value": value, "updated_at": TEXT}).encode()
    return Acknowledged("profiles", partition, offset, 0, names, fields)


def answer(values: Mapping[RowKey, str], *ends: int) -> Kept:
    end = {"profiles": {str(partition): offset for partition, offset in enumerate(ends)}}
    document: dict[str, Any] = {
        "rows": [{**row(key, value), "updated_at": TEXT} for key, value in values.items()],
        "read_point": {"snapshot_id": "1", "seam": end, "end": end},
    }
    return Kept(PLAN[:2], json.dumps(document, default=str).encode())


HISTORY = History(
    [
        record(0, PLAN, "free"),
        record(2, PLAN, "pro"),
        record(3, PLAN, None),
        record(5, CITY, "London", partition=1),
    ]
)


def test_equal_rows_agree() -> None:
    rows = {PLAN: row(PLAN, "free"), CITY: row(CITY, "London")}
    check = compare_rows(rows, reversed(rows.values()))
    assert check.agrees
    assert check.outcome == "all agree"


def test_each_differing_key_is_told_with_what_both_sides_say() -> None:
    oracle = {PLAN: row(PLAN, "free"), CITY: row(CITY, "London")}
    extra = row((7, "ada", "zone"), "UTC")
    check = compare_rows(oracle, [row(PLAN, "pro"), extra])
    assert [line.partition(":")[0] for line in check.differences] == [
        'app_id=7, user_id="ada", key="city"',
        'app_id=7, user_id="ada", key="plan"',
        'app_id=7, user_id="ada", key="zone"',
    ]
    assert '"free"' in check.differences[1]
    assert '"pro"' in check.differences[1]
    assert "no such row" in check.differences[0].partition("the answer")[2]
    assert "no such row" in check.differences[2].partition("the answer")[0]
    assert check.outcome == "3 DIFFERENCES"


def test_a_row_that_differs_in_its_time_alone_is_a_difference() -> None:
    late = {**row(PLAN, "free"), "updated_at": TIME.replace(second=1)}
    assert len(compare_rows({PLAN: row(PLAN, "free")}, [late]).differences) == 1


def test_a_row_answered_twice_is_a_difference_even_if_it_is_right() -> None:
    right = row(PLAN, "free")
    assert len(compare_rows({PLAN: right}, [right, right]).differences) == 1


def test_answers_are_judged_by_their_own_read_points() -> None:
    kept = [
        answer({}, 0, 0),
        answer({PLAN: "free"}, 1, 0),
        answer({PLAN: "free"}, 2, 5),
        answer({PLAN: "pro", CITY: "London"}, 3, 6),
        answer({CITY: "London"}, 4, 6),
    ]
    assert compare_kept(kept, HISTORY).agrees


def test_an_answer_that_is_ahead_of_or_behind_its_read_point_is_a_difference() -> None:
    assert len(compare_kept([answer({PLAN: "pro"}, 2, 0)], HISTORY).differences) == 1
    assert len(compare_kept([answer({PLAN: "free"}, 3, 0)], HISTORY).differences) == 1
    assert len(compare_kept([answer({PLAN: "pro"}, 4, 0)], HISTORY).differences) == 1


def test_an_answer_that_goes_back_behind_an_earlier_one_is_a_difference() -> None:
    forth, back = answer({PLAN: "pro"}, 3, 5), answer({PLAN: "free"}, 2, 5)
    assert compare_kept([back, forth], HISTORY).agrees
    assert len(compare_kept([forth, back], HISTORY).differences) == 1


def commit(counts: dict[str, int], *offsets: int) -> Commit:
    return Commit(1, Seam({("profiles", p): offset for p, offset in enumerate(offsets)}), counts, 1.0)


ACCOUNTED = [
    commit({"read": 10, "applied": 7, "superseded": 2, "unchanged": 1}, 4, 6),
    commit({"read": 5, "applied": 3, "quarantined": 2}, 8, 7),
]
GARBAGE = [("profiles", 0, 5), ("profiles", 1, 6), ("profiles", 1, 7)]


def test_accounts_agree_when_every_record_up_to_the_seam_went_somewhere() -> None:
    """The third bad record lies beyond the last seam: it is not due yet."""
    assert compare_accounts(Seam(), ACCOUNTED, GARBAGE).agrees


def test_a_record_that_went_nowhere_is_a_difference() -> None:
    lost = replace(ACCOUNTED[0], counts={"read": 10, "applied": 7, "superseded": 2})
    unread = replace(ACCOUNTED[0], counts={"read": 9, "applied": 7, "superseded": 2})
    assert len(compare_accounts(Seam(), [lost, ACCOUNTED[1]], GARBAGE).differences) == 1
    assert len(compare_accounts(Seam(), [unread, ACCOUNTED[1]], GARBAGE).differences) == 1


def test_quarantine_that_holds_too_few_or_too_many_is_a_difference() -> None:
    assert len(compare_accounts(Seam(), ACCOUNTED, GARBAGE[1:]).differences) == 1
    assert len(compare_accounts(Seam(), ACCOUNTED, [*GARBAGE, ("profiles", 0, 1)]).differences) == 1


def test_the_history_ends_with_what_the_replay_says() -> None:
    assert HISTORY.rows() == {CITY: row(CITY, "London")}
