from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from embedded.demo.cuts import Cuts
from embedded.demo.history import History
from embedded.demo.story import ROW, Story
from embedded.demo.verdict import Check, compare_rows
from embedded.demo.view_door import COLUMNS, Seen, View, ViewDoor, rows_sql
from embedded.demo.view_freshness import SEEN_SECONDS_MAX, VIEW_PROBE, ViewProbe
from embedded.demo.view_verdict import compare_seen
from embedded.demo.witness import Witness
from embedded.demo.writer import Writer, Written
from embedded.oracle import Acknowledged, Oracle, Row, RowKey
from tests.manual_clock import ManualClock
from thermocline.cli.entry import run
from thermocline.errors import ReadAfterTimeout, TrinoRefused, TrinoUnreachable, VerdictBad
from thermocline.rules.seam import Seam

TIME = datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)
ADA = (7, "ada")
PLAN: RowKey = (*ADA, "plan")
CITY: RowKey = (*ADA, "city")
ZONE: RowKey = (*ADA, "zone")
MARGIN_MS = 2_000


def row(key: RowKey, value: str) -> Row:
    return dict(zip(COLUMNS, (*key, value, TIME), strict=True))


def record(offset: int, at_ms: int, key: RowKey, value: str | None, partition: int = 0) -> Acknowledged:
    names = json.dumps(dict(zip(("app_id", "user_id", "key"), key, strict=True))).encode()
    fields = {"value": value, "updated_at": "2026-01-01T00:00:00.500Z"}
    content = None if value is None else json.dumps(fields).encode()
    return Acknowledged("profiles", partition, offset, at_ms, names, content)


# Offset 1 is a bad record, of which the oracle does not hear. Plan and city share a partition.
RECORDS = [
    record(0, 1_000, PLAN, "free"),
    record(2, 2_000, CITY, "London"),
    record(3, 5_000, PLAN, "pro"),
    record(4, 9_000, PLAN, None),
    record(0, 1_000, ZONE, "UTC", partition=1),
    record(1, 9_000, ZONE, "CET", partition=1),
]


def seen(
    values: Mapping[RowKey, str], ends: tuple[int, int], asked_ms: int, answered_ms: int, view: View
) -> Seen:
    """``ends`` is what was acknowledged in each partition when it was asked."""
    rows = tuple(row(key, value) for key, value in values.items())
    acknowledged = Seam({("profiles", partition): end for partition, end in enumerate(ends)})
    return Seen(view, (ADA,), rows, len(rows), acknowledged, asked_ms, answered_ms)


def by_key(
    values: Mapping[RowKey, str], ends: tuple[int, int], asked_ms: int = 5_000, answered_ms: int = 9_500
) -> Seen:
    return seen(values, ends, asked_ms, answered_ms, View.BY_KEY)


def judged(*sessions: list[Seen], refused: int = 0) -> Check:
    return compare_seen(sessions, refused, History(RECORDS), Cuts(RECORDS, MARGIN_MS))


FREE: dict[RowKey, str] = {PLAN: "free", CITY: "London", ZONE: "UTC"}
PRO: dict[RowKey, str] = {PLAN: "pro", CITY: "London", ZONE: "UTC"}


def test_an_answer_may_stand_anywhere_between_its_question_and_itself() -> None:
    assert judged([by_key(FREE, (3, 1))]).agrees
    assert judged([by_key(PRO, (3, 1))]).agrees
    assert judged([by_key({CITY: "London", ZONE: "UTC"}, (3, 1))]).agrees
    # Partitions are read one after the other.
    assert judged([by_key({**FREE, ZONE: "CET"}, (3, 1))]).agrees


def test_an_answer_without_what_was_acknowledged_before_its_question_is_a_difference() -> None:
    stale = judged([by_key(FREE, (4, 1))])
    assert len(stale.differences) == 1
    assert '"pro"' in stale.differences[0]
    assert len(judged([by_key({CITY: "London", ZONE: "UTC", PLAN: "pro"}, (5, 1))]).differences) == 1
    assert len(judged([by_key({PLAN: "free", ZONE: "UTC"}, (3, 1))]).differences) == 1


def test_the_full_view_may_leave_out_what_is_younger_than_its_margin() -> None:
    young = seen(FREE, (4, 1), 6_999, 7_500, View.LIVE)
    assert judged([young]).agrees
    assert judged([replace(young, rows=by_key(PRO, (4, 1)).rows)]).agrees
    assert len(judged([replace(young, asked_ms=7_001)]).differences) == 1
    assert len(judged([replace(young, view=View.BY_KEY)]).differences) == 1


def test_an_answer_ahead_of_its_time_is_a_difference() -> None:
    assert len(judged([by_key(PRO, (3, 1), 4_000, 4_999)]).differences) == 1
    assert judged([by_key(PRO, (3, 1), 4_000, 5_000)]).agrees


def test_rows_of_one_partition_from_two_moments_are_a_difference() -> None:
    """`plan` as it was before `city`, with a `city` that came after the first `plan`."""
    records = [*RECORDS[:3], record(4, 5_500, CITY, "Paris"), *RECORDS[4:]]
    history, cuts = History(records), Cuts(records, MARGIN_MS)
    torn = by_key({PLAN: "free", CITY: "Paris", ZONE: "UTC"}, (3, 1))
    assert not compare_seen([[torn]], 0, history, cuts).agrees
    whole = by_key({PLAN: "pro", CITY: "Paris", ZONE: "UTC"}, (3, 1))
    assert compare_seen([[whole]], 0, history, cuts).agrees


def test_an_answer_behind_an_earlier_one_of_its_session_is_a_difference() -> None:
    forth, back = by_key(PRO, (3, 1)), by_key(FREE, (3, 1))
    assert judged([back, forth]).agrees
    assert len(judged([forth, back]).differences) == 1
    assert judged([forth], [back]).agrees
    # The full view is older by its margin, whatever the other one has shown.
    assert judged([forth, replace(back, view=View.LIVE, asked_ms=6_000)]).agrees


def test_a_row_twice_and_a_row_that_was_never_written_are_differences() -> None:
    right = by_key(FREE, (3, 1))
    assert judged([replace(right, rows=(*right.rows, right.rows[0]))]).differences == (
        "live_by_key of ada: a row twice",
    )
    assert len(judged([by_key({**FREE, (7, "ada", "shoe size"): "42"}, (3, 1))]).differences) == 1


def test_a_count_lies_between_what_there_was_at_its_question_and_at_itself() -> None:
    def counted(count: int, ends: tuple[int, int]) -> Check:
        return judged([replace(by_key({}, ends), entities=(), count=count)])

    assert [count for count in range(6) if counted(count, (3, 1)).agrees] == [2, 3]
    assert [count for count in range(6) if counted(count, (5, 2)).agrees] == [2]
    assert [count for count in range(6) if counted(count, (0, 0)).agrees] == [0, 1, 2, 3]


def test_no_answer_at_all_is_a_difference_and_refusals_are_told() -> None:
    assert not judged([], []).agrees
    assert (
        judged([by_key(FREE, (3, 1))], refused=2).compared
        == "1 answers from Trino, 2 refused, each as of when it was asked"
    )


def test_the_newest_time_counts_even_if_the_clock_was_set_back() -> None:
    records = [record(0, 5_000, PLAN, "free"), record(1, 4_000, PLAN, "pro")]
    assert Cuts(records, MARGIN_MS).newest_ms == 5_000
    assert Cuts([], MARGIN_MS).newest_ms == 0


def test_differences_name_what_stands_for_the_oracle() -> None:
    check = compare_rows({PLAN: row(PLAN, "free")}, [row(PLAN, "pro")], "the extract")
    assert 'the extract says "free"' in check.differences[0]


class Trino:
    """Stands for a session: gives what the test says, the last of it again and again; 100 ms each."""

    def __init__(self, clock: ManualClock, *given: list[tuple[Any, ...]] | Exception) -> None:
        self.asked: list[str] = []
        self._given = list(given)
        self._clock = clock

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        self._clock.advance(0.1)
        given = self._given.pop(0) if len(self._given) > 1 else self._given[0]
        if isinstance(given, Exception):
            raise given
        return given


def door_of(clock: ManualClock, *given: list[tuple[Any, ...]] | Exception) -> tuple[ViewDoor, Trino, Oracle]:
    trino, oracle = Trino(clock, *given), Oracle()
    return ViewDoor(trino, "lake.app.profiles", oracle, clock), trino, oracle


def test_an_answer_is_kept_with_what_was_acknowledged_before_it_was_asked() -> None:
    clock = ManualClock()
    door, trino, oracle = door_of(clock, [(*PLAN, "free", TIME)], [(3,)])
    oracle.acknowledge(RECORDS[0])
    asked_ms = clock.now_ms()
    assert door.rows_of(View.BY_KEY, [ADA]) == (row(PLAN, "free"),)
    assert door.count(View.LIVE) == 3
    first, second = door.kept
    assert first == Seen(
        View.BY_KEY, (ADA,), (row(PLAN, "free"),), 1, Seam({("profiles", 0): 1}), asked_ms, asked_ms + 100
    )
    assert (second.view, second.entities, second.rows, second.count) == (View.LIVE, (), (), 3)
    assert trino.asked == [
        rows_sql("lake.app.profiles_live_by_key", [ADA]),
        "SELECT count(*) FROM lake.app.profiles_live",
    ]
    assert [len(door.timings[view]) for view in (View.BY_KEY, View.LIVE)] == [1, 1]


def test_a_refused_query_is_counted_and_not_kept() -> None:
    refused = TrinoRefused(url="", name="QUERY_QUEUE_FULL", detail="")
    door, _, _ = door_of(ManualClock(), refused, TrinoUnreachable(url="", detail=""), [])
    assert [door.rows_of(View.LIVE, [ADA]) for _ in range(3)] == [None, None, ()]
    assert (door.refused, door.answers, len(door.kept)) == (2, 1, 1)


def test_an_asker_rests_as_long_as_its_last_query_took() -> None:
    refused = TrinoRefused(url="", name="QUERY_QUEUE_FULL", detail="")
    door, _, _ = door_of(ManualClock(), [], refused)
    assert door.rest_seconds(0.02) == 0.02
    assert door.rows_of(View.LIVE, [ADA]) == ()
    assert door.rest_seconds(0.02) == pytest.approx(0.1)
    assert door.rows_of(View.LIVE, [ADA]) is None
    assert door.rest_seconds(0.02) == pytest.approx(0.1)
    assert door.rest_seconds(0.3) == 0.3


def test_a_quote_in_a_name_stays_in_the_name() -> None:
    assert rows_sql("v", [(1, "O'Brien"), (2, "x")]) == (
        "SELECT app_id, user_id, key, value, updated_at FROM v"
        " WHERE (app_id = 1 AND user_id = 'O''Brien') OR (app_id = 2 AND user_id = 'x')"
    )


class Log:
    """Stands for a writer whose records are acknowledged at once."""

    def __init__(self, clock: ManualClock) -> None:
        self.values: list[str | None] = []
        self._clock = clock

    def write(self, row: RowKey, value: str | None) -> Written:
        self.values.append(value)
        return Written(("profiles", 0), len(self.values) - 1, self._clock.monotonic())


class Rounds:
    """A stop after so many rounds."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, seconds: float) -> bool:
        self._left -= 1
        return self._left < 0


def probe_row(number: int) -> tuple[Any, ...]:
    return (*VIEW_PROBE, f"probe_{number:02d}", f"written as number {number}", TIME)


def test_freshness_lasts_until_the_first_answer_with_the_row_in_each_view() -> None:
    clock = ManualClock()
    before = (*VIEW_PROBE, "probe_00", "an earlier value", TIME)
    door, trino, _ = door_of(clock, [before], [probe_row(0)], [], [probe_row(0)], [probe_row(1)])
    probe = ViewProbe(cast("Writer", Log(clock)), door, 2.0, 1, clock)
    probe.run(cast("Any", Rounds(2)))
    by_key, live = (probe.timings[view].summary() for view in (View.BY_KEY, View.LIVE))
    assert (by_key.count, live.count) == (2, 1)
    assert by_key.max_ms == pytest.approx(200)  # two answers
    assert live.max_ms == pytest.approx(2_200)  # the margin, and two answers
    assert ["_live " in sql for sql in trino.asked] == [False, False, True, True, False]


def test_a_row_that_never_comes_ends_in_a_named_error() -> None:
    clock = ManualClock()
    door, _, _ = door_of(clock, [])
    probe = ViewProbe(cast("Writer", Log(clock)), door, 2.0, 1, clock)
    with pytest.raises(ReadAfterTimeout) as caught:
        probe.run(cast("Any", Rounds(2)))
    assert caught.value.waited_seconds == SEEN_SECONDS_MAX


def story_of(*given: list[tuple[Any, ...]] | Exception) -> Story:
    clock = ManualClock()
    return Story(cast("Witness", None), clock, door_of(clock, *given)[0])


def test_the_story_tells_how_long_the_view_took_to_say_the_same() -> None:
    story = story_of([(*ROW, "free", TIME)], [], TrinoRefused(url="", name="", detail=""))
    assert story._view_ms("free") == pytest.approx(100)
    assert story._view_ms(None) == pytest.approx(100)
    assert story._view_ms("free") is None


def test_a_view_that_says_something_else_is_a_bad_verdict() -> None:
    with pytest.raises(VerdictBad, match='"free" in live_by_key, but "team"'):
        story_of([(*ROW, "free", TIME)])._view_ms("team")
    with pytest.raises(VerdictBad):
        story_of([(*ROW, "team", TIME)])._view_ms(None)


def test_without_trinos_client_the_demo_says_how_to_get_it_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "embedded.demo.analyst", raising=False)
    monkeypatch.setitem(sys.modules, "trino", None)
    assert run(["demo", "--trino"]) == 2
    assert "pip install 'thermocline[views]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
