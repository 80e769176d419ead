"""Queries of Trino against the endpoint, on a hot tier in a folder: what they see, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.serving.trino.trino_calls import Queries, Refused
from tests.thermocline.profiles import PROFILES
from thermocline.errors import LiveViewRefused
from thermocline.process.clock import SystemClock
from thermocline.rules.hot_columns import (
    DELETED,
    GROUP,
    HIDDEN,
    SERVER_TABLE,
    group_of,
    hot_table,
    kept_columns,
)
from thermocline.serving.hot.view import HotView
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.trino import pins as pins_module
from thermocline.serving.trino import snapshots as snapshots_module
from thermocline.serving.trino.endpoint import Endpoint
from thermocline.serving.trino.peers import Peers
from thermocline.serving.trino.pins import IDLE_SECONDS, STATES_MAX, Pins
from thermocline.serving.trino.process import TrinoTable

COLUMNS = ("app_id", "user_id", "key", "value", DELETED)


def an_endpoint(table: TrinoTable) -> Endpoint:
    return Endpoint([table], Peers("one"))


@pytest.fixture
def asked(served: Callable[..., Any]) -> Iterator[tuple[Any, TrinoTable, Queries]]:
    """A world, its table as the endpoint has it, and queries on it."""
    with asked_of(served()) as asked:
        yield asked


@contextmanager
def asked_of(
    served: tuple[Any, ServedTable], stale_after_seconds: float = 5.0
) -> Iterator[tuple[Any, TrinoTable, Queries]]:
    world, table = served
    trino = TrinoTable(table, world.folder, SystemClock(), stale_after_seconds)
    trino.refresh()
    queries = Queries(an_endpoint(trino), hot_table(world.definition), world.newest)
    SystemClock().sleep(0.002)  # a query of the same millisecond would be taken for one of before
    yield world, trino, queries
    trino.close()


def a_token(seconds: float = 0.0) -> int:
    """A query's time; the process is a little over a second old by then, by its own rule."""
    return SystemClock().now_ms() * 1000 + round(seconds * 1e6)


@pytest.fixture(autouse=True)
def _young_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries right after the start are refused for a second; here they may come a second ahead instead."""
    monkeypatch.setattr(pins_module, "AHEAD_MICROSECONDS", 0)


def produce(world: Any, count: int, seed: int = 1) -> dict[tuple[Any, ...], str | None]:
    """Random records; the last value by key, None of a deleted row."""
    numbers, last = random.Random(seed), {}
    for number in range(count):
        key = {
            "app_id": numbers.randrange(3),
            "user_id": f"u{numbers.randrange(20)}",
            "key": f"k{numbers.randrange(5)}",
        }
        value = None if numbers.random() < 0.2 else f"v{number}"
        # One partition each: the last offset wins.
        world.produce(key, None if value is None else {"value": value}, key["app_id"])
        last[tuple(key.values())] = value
    world.tail()
    return last


def as_dict(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], str | None]:
    assert len({row[:3] for row in rows}) == len(rows)
    assert all((row[3] is None) == row[4] for row in rows)
    return {row[:3]: row[3] for row in rows}


def test_a_scan_gives_each_key_s_last_record_page_by_page(asked: tuple[Any, TrinoTable, Queries]) -> None:
    world, _, queries = asked
    last = produce(world, 500)
    assert as_dict(queries.all_rows(a_token(), COLUMNS)) == last
    queries.bytes_max, queries.pages = 2_048, 0
    assert as_dict(queries.all_rows(a_token(), COLUMNS)) == last
    assert queries.pages > 8
    assert len(queries.all_rows(a_token(), ())) == len(last)  # what count(*) asks for


def test_conditions_on_leading_key_columns_read_their_keys_alone(
    asked: tuple[Any, TrinoTable, Queries], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _, queries = asked
    last = produce(world, 500)
    monkeypatch.setattr(HotView, "scan", None)  # would fail
    found = as_dict(queries.all_rows(a_token(), COLUMNS, app_id=[0, 2], user_id=["u1", "u7"]))
    assert found == {key: one for key, one in last.items() if key[0] != 1 and key[1] in ("u1", "u7")}


def test_of_records_that_set_only_some_columns_the_others_are_named(served: Callable[..., Any]) -> None:
    world, table = served(replace(PROFILES, partial_updates=True))
    trino = TrinoTable(table, world.folder, SystemClock(), 5.0)
    trino.refresh()
    queries = Queries(an_endpoint(trino), hot_table(world.definition), world.newest)
    records = [("u0", {}), ("u0", {"value": None}), ("u1", {}), ("u2", None), ("u3", {"value": "v"})]
    for user, sets in records:
        world.produce({"app_id": 0, "user_id": user, "key": "k"}, sets)
    world.tail()
    value, kept = "value", kept_columns(world.definition)["value"]
    expected = {("u0", None, False, False), ("u1", None, True, False), ("u3", "v", False, False)}
    expected.add(("u2", None, False, True))
    wanted = ("user_id", value, kept, DELETED)
    assert set(queries.all_rows(a_token(), wanted)) == expected
    by_key = queries.all_rows(a_token(), wanted, app_id=[0], user_id=["u0", "u1", "u2", "u3"])
    assert set(by_key) == expected
    trino.close()


def test_all_scans_of_a_query_see_one_state_and_the_next_query_sees_more(
    asked: tuple[Any, TrinoTable, Queries],
) -> None:
    world, _, queries = asked
    before = produce(world, 100)
    token = a_token()
    first = queries.splits(token, scans=2)
    after = before | produce(world, 100, seed=2)
    assert as_dict(queries.all_rows(token, COLUMNS, scans=2)) == before
    assert as_dict([row for split in first for row in queries.rows(split, COLUMNS)]) == before
    SystemClock().sleep(pins_module.SHARED_SECONDS)
    assert as_dict(queries.all_rows(a_token(), COLUMNS)) == after


def test_a_view_stays_exact_after_a_commit_and_its_replacement_sees_the_same_rows(
    asked: tuple[Any, TrinoTable, Queries], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, trino, queries = asked
    last = produce(world, 100)
    world.commit()
    world.publish()
    trino.refresh()
    newer = produce(world, 10, seed=3)
    assert as_dict(queries.all_rows(a_token(), COLUMNS)) == last | newer
    assert (
        as_dict(Queries(queries.endpoint, queries.table, world.newest).all_rows(a_token(), COLUMNS)) == newer
    )
    monkeypatch.setattr(snapshots_module, "GRACE_SECONDS", -1.0)
    monkeypatch.setattr(snapshots_module, "WAIT_SECONDS", 0.0)
    trino.refresh()
    with pytest.raises(Refused, match="replaced more than"):
        queries.splits(a_token())


def test_a_snapshot_that_the_hot_tier_no_longer_reaches_back_to_is_refused(
    asked: tuple[Any, TrinoTable, Queries],
) -> None:
    world, trino, queries = asked
    produce(world, 100)
    world.commit()
    world.publish()
    world.restart_tailer(world.seam, may_continue=False)
    world.tail()
    trino.refresh()
    with pytest.raises(Refused, match="the hot tier begins at"):
        queries.splits(a_token())


def test_a_split_of_another_process_is_refused(asked: tuple[Any, TrinoTable, Queries]) -> None:
    world, trino, queries = asked
    produce(world, 10)
    (split, *_) = queries.splits(a_token())
    queries.endpoint = an_endpoint(trino)
    with pytest.raises(Refused, match="started again while it read"):
        queries.rows(split, COLUMNS)


def test_a_scan_outside_of_the_views_and_a_method_that_is_not_there_are_refused(
    asked: tuple[Any, TrinoTable, Queries], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, queries = asked
    with pytest.raises(Refused, match="through the live views only"):
        queries.call("trinoGetSplits", {1: {1: "live", 2: queries.table}, 3: {}, 4: 1})
    assert queries.call("trinoGetTableMetadata", {1: {1: "live", 2: "other_d1"}}) == {}
    monkeypatch.setattr(snapshots_module, "WAIT_SECONDS", 0.0)
    with pytest.raises(Refused, match="version 9 of its definition is not known"):
        queries.call("trinoGetTableMetadata", {1: {1: "live", 2: queries.table.replace("_d1", "_d9")}})
    found = queries.call("trinoGetTableMetadata", {1: {1: "live", 2: queries.table}})
    assert [one[1].decode() for one in found[1][2]][-5:] == [DELETED, *HIDDEN]
    assert [one[4] for one in found[1][2]][-5:] == [False, *[True] * 4]


def test_who_makes_views_is_told_which_server_answers(asked: tuple[Any, TrinoTable, Queries]) -> None:
    _, _, queries = asked
    found = queries.call("trinoGetTableMetadata", {1: {1: "live", 2: SERVER_TABLE}})
    assert [one[1].decode() for one in found[1][2]] == [GROUP]
    (split,) = queries.call("trinoGetSplits", {1: {1: "live", 2: SERVER_TABLE}, 2: {}, 3: {}, 4: 1})[1]
    assert queries.rows(split[1][1], [GROUP]) == [(group_of(["one"]),)]
    assert queries.rows(split[1][1], []) == [()]


def test_hot_rows_that_are_behind_are_refused(served: Callable[..., Any]) -> None:
    with (
        asked_of(served(), -1.0) as (_, _, queries),
        pytest.raises(Refused, match="behind the log"),
    ):
        queries.splits(a_token())


class _Open:
    """Stands in for a view."""

    def __init__(self) -> None:
        self.is_open = True

    def __exit__(self, *_: object) -> None:
        assert self.is_open
        self.is_open = False


@pytest.fixture
def taken() -> list[_Open]:
    return []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pins(taken: list[_Open], clock: ManualClock) -> Pins:
    def take() -> Any:
        taken.append(_Open())
        return taken[-1]

    made = Pins("profiles", take, clock)
    clock.sleep(10)
    return made


def now(clock: ManualClock) -> int:
    return clock.now_ms() * 1000


def test_a_state_is_let_go_once_read_or_idle_and_its_query_never_gets_another(
    pins: Pins, taken: list[_Open], clock: ManualClock
) -> None:
    token = now(clock)
    pins.begin(token, scans=2, splits=1)
    pins.split_read(token, scans=2)
    clock.sleep(IDLE_SECONDS - 1)
    pins.begin(token, scans=2, splits=1)
    assert len(taken) == 1
    pins.split_read(token, scans=2)
    clock.sleep(pins_module.READ_SECONDS + 1)
    pins.tend()
    assert not taken[0].is_open
    with pytest.raises(LiveViewRefused, match="let go"):
        pins.begin(token, scans=2, splits=1)
    with pytest.raises(LiveViewRefused, match="let go"):
        pins.use(token)
    other = now(clock)
    pins.begin(other, scans=1, splits=1)
    clock.sleep(IDLE_SECONDS + 1)
    pins.tend()
    assert not any(one.is_open for one in taken)


def test_a_token_from_before_the_process_or_from_ahead_of_its_clock_is_refused(clock: ManualClock) -> None:
    pins = Pins("profiles", lambda: pytest.fail("nothing may be taken"), clock)
    with pytest.raises(LiveViewRefused, match="began before this server"):
        pins.begin(now(clock) - 1, 1, 1)
    with pytest.raises(LiveViewRefused, match="time to come"):
        pins.begin(now(clock) + 2_000_000, 1, 1)


def test_tokens_that_are_forgotten_one_by_one_are_refused_as_old(
    pins: Pins, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins_module, "ENDED_MAX", 1)
    tokens = []
    for _ in range(3):
        clock.sleep(IDLE_SECONDS + 1)
        tokens.append(now(clock))
        pins.begin(tokens[-1], 1, 1)
    clock.sleep(IDLE_SECONDS + 1)
    for token in tokens:
        with pytest.raises(LiveViewRefused):
            pins.begin(token, 1, 1)


def test_queries_of_one_moment_share_a_state_and_states_are_bounded(
    pins: Pins, taken: list[_Open], clock: ManualClock
) -> None:
    assert pins.begin(now(clock), 1, 1) is pins.begin(now(clock) - 1, 1, 1)
    for _ in range(STATES_MAX - 1):
        clock.sleep(0.06)
        pins.begin(now(clock), 1, 1)
    clock.sleep(0.06)
    with pytest.raises(LiveViewRefused, match="held for others"):
        pins.begin(now(clock), 1, 1)
    clock.sleep(pins_module.PRESSED_SECONDS)
    pins.begin(now(clock), 1, 1)
    assert len(taken) == STATES_MAX + 1
    pins.close()
    assert not any(one.is_open for one in taken)
