"""The views while a producer updates and deletes, ingest commits, and views are replaced: always right.

Each answer is compared with a replay of what the broker acknowledged, up to exactly where that answer has to
end. Variables say how much of it there is. For 50 rounds and 200 queries in a row:

    export VIEWS_TEST_ROUNDS=50 VIEWS_TEST_QUERIES=200
    .venv/bin/python -m pytest tests/views/stacked/test_live_under_traffic.py
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tests.behaviour.live import Rows
from tests.behaviour.topic import APP
from tests.tier import quick_or_full
from tests.views.stacked.started import MARGIN_SECONDS
from tests.views.stacked.traffic import Traffic, by_partition, partition_of, users
from tests.views.stacked.viewed import MODES, PUBLISHER, Viewed, Written, ask, replay
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import Command, Stack
from thermocline.iceberg.catalog import SnapshotState, state_of
from thermocline.process.clock import SystemClock
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read import private
from thermocline.views.pin import pin_view
from thermocline.views.trino_client import Trino

pytestmark = pytest.mark.trino

ROUNDS = int(os.environ.get("VIEWS_TEST_ROUNDS", str(quick_or_full(2, 3))))
QUERIES = int(os.environ.get("VIEWS_TEST_QUERIES", str(quick_or_full(8, 14))))
ANALYSTS = ("ana", "ben", "cat", "dan")
SNAPSHOTS_MIN = quick_or_full(2, 3)  # that each test sees come
WRITTEN_TO = 3  # partitions; the fourth stays idle
CONNECTOR_MS = 1  # of a bound by time, Trino's Kafka connector leaves out the last millisecond, too
COLUMNS = ("app_id", "user_id", "key", "value", "updated_at")
TABLE = "busy"  # and its topic
LIVE, BY_KEY = f"lake.app.{TABLE}_live", f"lake.app.{TABLE}_live_by_key"
COMMIT_INTERVAL_SECONDS = 8  # a commit and its views take a small machine 3 s

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def live(stack: Stack) -> Viewed:
    """A table with an idle partition, whose views have the usual margin: nothing of it is ever at rest."""
    live = Viewed(stack, TABLE, WRITTEN_TO + 1, f"commit_interval_seconds = {COMMIT_INTERVAL_SECONDS}")
    text = live.config_path.read_text()
    live.config_path.write_text(text.replace(f"margin_seconds = {MARGIN_SECONDS}", ""))
    return live


@pytest.fixture(scope="module")
def ingest(live: Viewed) -> Iterator[Command]:
    ingest = live.start("ingest", "run", TABLE)
    yield ingest
    ingest.stop()


@pytest.fixture(scope="module")
def server(live: Viewed) -> Iterator[Command]:
    server = live.start("serve")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def traffic(live: Viewed, ingest: Command, server: Command) -> Iterator[Traffic]:
    """Up and down with all others: they start side by side."""
    with Traffic(live.settings.kafka, TABLE, WRITTEN_TO) as traffic:
        live.stack.wait_until_ready(server)
        live.stack.wait_for(lambda: len(snapshots(live)) > 1, "the first commit", ingest)
        live.stack.wait_for(lambda: len(live.comments()) == len(MODES), "the views", ingest)
        yield traffic


def snapshots(live: Viewed) -> list[SnapshotState]:
    return [state_of(snapshot, TABLE) for snapshot in live.table().snapshots()]


# Three read paths.


def pinned(live: Viewed, point: ReadPoint, called: str) -> list[Row]:
    """The rows of the view of a read point, sorted."""
    settings, trino = live.settings, Trino(live.settings.views)
    made = pin_view(settings, TABLE, live.table(), point, live.log, trino, SystemClock(), called)
    view = ".".join((settings.views.lake, *made.schema_and_name))
    rows = ask(live.stack, f"SELECT {', '.join(COLUMNS)} FROM {view}")
    ask(live.stack, f"DROP VIEW {view}", PUBLISHER)
    return sorted(rows)


def extracted(stream: io.BytesIO) -> list[Row]:
    rows = pa.ipc.open_stream(stream.getvalue()).read_all().to_pylist()
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


def looked_up(client: Client) -> tuple[ReadPoint, Rows]:
    """Every entity in one answer."""
    answer = client.batch(TABLE, [{"app_id": APP, "user_id": user} for user in users()])
    point = ReadPoint(
        int(answer["read_point"]["snapshot_id"]),
        *(Seam.from_dict(answer["read_point"][side]) for side in ("seam", "end")),
    )
    rows = [row for result in answer["results"] for row in result["rows"]]
    by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(by_key) == len(rows), "a key stands in two rows"
    return point, by_key


def as_of(traffic: Traffic, point: ReadPoint) -> Rows:
    return replay(traffic.records(), lambda one: point.end.covers(TABLE, one.partition, one.offset))


def by_key(rows: list[Row]) -> Rows:
    found = {row[:3]: row[3] for row in rows}
    assert len(found) == len(rows), "a key stands in two rows"
    return found


def test_the_read_paths_agree_row_for_row_at_one_read_point(
    live: Viewed, ingest: Command, server: Command, traffic: Traffic
) -> None:
    """Method: by turns the read point is that of the server's extract, or that of a lookup of all entities,
    to which an extract without a server goes back. The view is pinned there, and read after more records.
    Each of the first rounds has a snapshot of its own.
    """
    seen: set[int] = set()
    with Client(live.stack.url) as client:
        for number in range(max(ROUNDS, SNAPSHOTS_MIN)):
            if len(seen) < SNAPSHOTS_MIN:
                live.stack.wait_for(
                    lambda: looked_up(client)[0].snapshot_id not in seen, "the next commit", ingest, server
                )
            sink = io.BytesIO()
            if number % 2:
                point, found = looked_up(client)
                at = private.extract(live.settings, TABLE, None, "arrow", sink, point, lambda _: None)
                assert at == point
                assert by_key(extracted(sink)) == found
            else:
                point = client.extract(TABLE, None, "arrow", sink, lambda _: None)
                looked_at, found = looked_up(client)
                assert found == as_of(traffic, looked_at)
            rows = extracted(sink)
            assert by_key(rows) == as_of(traffic, point)
            assert pinned(live, point, f"round_{number}") == rows
            seen.add(point.snapshot_id)
            ingest.check()
            server.check()
    assert len(seen) >= SNAPSHOTS_MIN


# Many queries.


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer, and what bounds it: what was acknowledged before it was asked for, and when that was."""

    ends: dict[int, int]
    from_ms: int
    to_ms: int
    rows: list[Row]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


NOW = "CAST(round(to_unixtime(current_timestamp) * 1000) AS bigint)"
"""When Trino began the query, by which the view's margin counts."""
AND_NOW = f"UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, {NOW}"


def whole(view: str, user: str) -> str:
    return f"SELECT app_id, user_id, key, value, NULL, NULL FROM {view} {AND_NOW}"


def of_user(view: str, user: str) -> str:
    where = f"WHERE app_id = {APP} AND user_id = '{user}'"
    return f"SELECT app_id, user_id, key, value, NULL, NULL FROM {view} {where} {AND_NOW}"


def counts(view: str, user: str) -> str:
    return f"SELECT count(*), count(DISTINCT user_id || '/' || key), {NOW} FROM {view}"


def with_itself(view: str, user: str) -> str:
    keys = " AND ".join(f"one.{name} = other.{name}" for name in COLUMNS[:3])
    either = ", ".join(f"coalesce(one.{name}, other.{name})" for name in COLUMNS[:3])
    return (
        f"SELECT {either}, one.value, other.value, NULL FROM {view} AS one "
        f"FULL JOIN {view} AS other ON {keys} {AND_NOW}"
    )


Check = Callable[["Judge", Asked, str], None]


class Judge:
    """What an answer may be, by all that was written and committed in the end."""

    def __init__(self, records: list[Written], committed: list[SnapshotState], margin_seconds: float) -> None:
        self._records, self._committed = records, committed
        self._margin_ms = round(margin_seconds * 1000)

    def live(self, asked: Asked, user: str) -> None:
        rows, now = split(asked)
        self._check_live(asked, now, [one[:4] for one in rows], lambda one: True)

    def live_of_user(self, asked: Asked, user: str) -> None:
        rows, now = split(asked)
        self._check_live(asked, now, [one[:4] for one in rows], lambda one: one.key[1] == user)

    def live_counts(self, asked: Asked, user: str) -> None:
        ((rows, keys, now),) = asked.rows
        assert rows == keys, "a key stands in two rows"
        assert rows in {len(state) for state in self._states(asked, now, lambda one: True)}

    def live_with_itself(self, asked: Asked, user: str) -> None:
        """Each mention is right by itself: the view may be replaced while Trino looks it up a second time."""
        rows, now = split(asked)
        for place in (3, 4):
            side = [(*row[:3], row[place]) for row in rows if row[place] is not None]
            self._check_live(asked, now, side, lambda one: True)

    def by_key(self, asked: Asked, user: str) -> None:
        rows, _ = split(asked)
        self._check_by_key(asked, by_key([one[:4] for one in rows]), self._records)

    def by_key_of_user(self, asked: Asked, user: str) -> None:
        rows, _ = split(asked)
        records = [one for one in self._records if one.partition == partition_of(user, WRITTEN_TO)]
        found = by_key([one[:4] for one in rows])
        assert all(key[1] == user for key in found)
        self._check_by_key(asked, found, records, lambda one: one.key[1] == user)

    def _check_live(self, asked: Asked, now: int, rows: list[Row], counts: Callable[[Written], bool]) -> None:
        """The rows of all that was appended before its margin, and of what its snapshot has beyond that."""
        assert by_key(rows) in self._states(asked, now, counts)

    def _states(self, asked: Asked, now: int, counts: Callable[[Written], bool]) -> list[Rows]:
        """One for each snapshot that the view may be of, as far as that makes a difference."""
        assert asked.from_ms - 1 <= now <= asked.to_ms + 1
        until_ms = now - self._margin_ms - CONNECTOR_MS
        # What was committed before the margin has no record beyond it.
        younger = [one.seam for one in self._committed if until_ms <= one.timestamp_ms <= asked.to_ms]
        states: list[Rows] = []
        for seam in (Seam(), *younger):
            state = replay(
                self._records,
                lambda one, seam=seam: (  # type: ignore[misc]
                    counts(one)
                    and (one.timestamp_ms < until_ms or seam.covers(TABLE, one.partition, one.offset))
                ),
            )
            states.append(state)
        return states

    def _check_by_key(
        self,
        asked: Asked,
        found: Rows,
        records: list[Written],
        counts: Callable[[Written], bool] = lambda _: True,
    ) -> None:
        """Of each partition all that was acknowledged before it was asked for, and maybe some more."""
        for partition, written in by_partition(records).items():
            known = asked.ends.get(partition, 0)
            of_partition = {
                key: value for key, value in found.items() if partition_of(key[1], WRITTEN_TO) == partition
            }
            held = [one for one in written if counts(one)]
            state = replay(held, lambda one, known=known: one.offset < known)  # type: ignore[misc]
            later = [one for one in held if one.offset >= known and one.timestamp_ms <= asked.to_ms]
            while state != of_partition:
                assert later, f"{of_partition} is not of any moment since it was asked for: {state}"
                one = later.pop(0)
                state = replay([one]) | {key: value for key, value in state.items() if key != one.key}


def split(asked: Asked) -> tuple[list[Row], int]:
    """The rows, and when Trino began the query."""
    (now,) = [row[5] for row in asked.rows if row[5] is not None]
    return [row for row in asked.rows if row[5] is None], now


KINDS: list[tuple[Callable[[str, str], str], str, Check]] = [
    (whole, LIVE, Judge.live),
    (of_user, BY_KEY, Judge.by_key_of_user),
    (of_user, LIVE, Judge.live_of_user),
    (counts, LIVE, Judge.live_counts),
    (of_user, BY_KEY, Judge.by_key_of_user),
    (with_itself, LIVE, Judge.live_with_itself),
    (whole, BY_KEY, Judge.by_key),
]


MOMENTS = 1 + 2 * SNAPSHOTS_MIN


def moments(live: Viewed, ingest: Command) -> Iterator[None]:
    """Before any commit, and two of each."""
    yield
    for _ in range(SNAPSHOTS_MIN):
        yield from moments_of_a_commit(live, ingest)


def moments_of_a_commit(live: Viewed, ingest: Command) -> Iterator[None]:
    """When the next one has come, so that its views are being made, and when they are there."""
    older = {one.snapshot_id for one in snapshots(live)}
    live.stack.wait_for(lambda: live.newest_id() not in older, "the next commit", ingest)
    yield
    live.stack.wait_for(lambda: older.isdisjoint(live.shown().values()), "its views", ingest)
    yield


def test_no_query_meets_a_duplicate_a_gap_a_row_that_is_back_or_a_value_too_old(
    live: Viewed, ingest: Command, traffic: Traffic
) -> None:
    """Goal: queries of several analysts at once, while records come and views are replaced under them.

    Method: a live view shows exactly what was appended up to its margin before the query, so what was
    acknowledged before that is in it; a view by key all that was acknowledged before it was asked for. At
    each moment an equal part of the queries is asked, at once.
    """

    def of(number: int) -> str:
        return users()[number * 7 % len(users())]

    def asked(number: int) -> Asked:
        render, view, _ = KINDS[number % len(KINDS)]
        ends, from_ms = traffic.ends, now_ms()
        rows = ask(live.stack, render(view, of(number)), ANALYSTS[number % len(ANALYSTS)])
        return Asked(ends, from_ms, now_ms(), rows)

    answers: list[Asked] = []
    with ThreadPoolExecutor(len(ANALYSTS)) as threads:
        for nth, _ in enumerate(moments(live, ingest), 1):
            answers += threads.map(asked, range(len(answers), QUERIES * nth // MOMENTS))
    assert len(answers) == QUERIES
    ingest.check()
    judge = Judge(traffic.records(), snapshots(live), live.settings.views.margin_seconds)
    for number, answer in enumerate(answers):
        user, (render, view, check) = of(number), KINDS[number % len(KINDS)]
        try:
            check(judge, answer, user)
        except AssertionError as error:
            raise AssertionError(f"query {number}, {render(view, user)}: {error}") from error
