from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from thermocline.dev.demo.traffic import Kept
from thermocline.dev.demo.verdict import EntityHistory, check_of, compare_kept
from thermocline.dev.oracle import Acknowledged, RowKey
from thermocline.verify.finding import Finding
from thermocline.verify.report import Report

TEXT = "2026-01-01T00:00:00.500Z"
TIME = datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)
PLAN: RowKey = (7, "ada", "plan")
CITY: RowKey = (7, "ada", "city")


def record(offset: int, key: RowKey, value: str | None, partition: int = 0) -> Acknowledged:
    names = json.dumps(dict(zip(("app_id", "user_id", "key"), key, strict=True))).encode()
    fields = None if value is None else json.dumps({"value": value, "updated_at": TEXT}).encode()
    return Acknowledged("profiles", partition, offset, 0, names, fields)


HISTORY = EntityHistory(
    [
        record(0, PLAN, "free"),
        record(2, PLAN, "pro"),
        record(3, PLAN, None),
        record(5, CITY, "London", partition=1),
    ]
)


def answer(values: Mapping[RowKey, str], *ends: int) -> Kept:
    end = {"profiles": {str(partition): offset for partition, offset in enumerate(ends)}}
    rows = [
        {"app_id": 7, "user_id": "ada", "key": key[2], "value": value, "updated_at": TEXT}
        for key, value in values.items()
    ]
    document = {"rows": rows, "read_point": {"snapshot_id": "1", "seam": end, "end": end}}
    return PLAN[:2], json.dumps(document).encode()


def wrong(*kept: Kept) -> int:
    return len(compare_kept(kept, HISTORY).differences)


def test_answers_are_judged_by_their_own_read_points() -> None:
    assert not wrong(
        answer({}, 0, 0),
        answer({PLAN: "free"}, 1, 0),
        answer({PLAN: "free"}, 2, 5),
        answer({PLAN: "pro", CITY: "London"}, 3, 6),
        answer({CITY: "London"}, 4, 6),
    )


def test_an_answer_that_is_ahead_of_or_behind_its_read_point_is_a_difference() -> None:
    assert wrong(answer({PLAN: "pro"}, 2, 0)) == 1
    assert wrong(answer({PLAN: "free"}, 3, 0)) == 1
    assert wrong(answer({PLAN: "pro"}, 4, 0)) == 1


def test_an_answer_that_goes_back_behind_an_earlier_one_is_a_difference() -> None:
    forth, back = answer({PLAN: "pro"}, 3, 5), answer({PLAN: "free"}, 2, 5)
    assert not wrong(back, forth)
    assert wrong(forth, back) == 1


def test_no_answer_at_all_is_a_difference() -> None:
    assert wrong() == 1


def test_verify_must_find_nothing_and_check_everything_and_see_all_rows() -> None:
    assert not check_of(Report("profiles", extracted=3), rows=3).differences
    assert check_of(Report("profiles", extracted=3), rows=4).differences
    unchecked = Report("profiles", extracted=3, unchecked=["lookups: no server"])
    assert check_of(unchecked, rows=3).differences == ("not checked: lookups: no server",)
    found = Report("profiles", extracted=3)
    found.add(Finding("extract-differs", "it lacks the key", {"key": "plan"}))
    check = check_of(found, rows=3)
    assert check.differences == ("[extract-differs] {'key': 'plan'} it lacks the key",)
    assert check.outcome == "1 DIFFERENCES"
