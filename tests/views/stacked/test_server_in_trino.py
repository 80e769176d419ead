"""Live views that read hot rows from a real server: what they show, next to what a dict says, and refuse."""

from __future__ import annotations

import pytest
from trino.exceptions import TrinoQueryError

from tests.behaviour.live import wait_for
from tests.behaviour.topic import APP
from tests.views.stacked.hot_server import (
    PARTITIONS,
    USERS,
    Follower,
    Typed,
    of_partition,
    read_from_server,
    serving,
)
from tests.views.stacked.viewed import ask
from thermocline.dev.stack import Stack

pytestmark = pytest.mark.trino

QUERIES = 16
TORN = """\
SELECT count(*) FROM lake.app.hot_busy_live a FULL JOIN lake.app.hot_busy_live_by_key b
  ON a.user_id = b.user_id AND a.app_id = b.app_id AND a.at = b.at
WHERE a.user_id IS NULL OR b.user_id IS NULL OR a.price IS DISTINCT FROM b.price"""
"""Rows that one of the views shows otherwise than the other one in the same query."""


@pytest.mark.full
def test_live_views_of_every_type_are_what_was_written_before_and_after_a_commit_and_without_a_server_refuse(
    stack: Stack,
) -> None:
    """Goal: both live views show every column's values, by key too, across a commit, and nothing stale.

    Method: cold rows, and hot ones that replace, delete and add; the view of before a commit is asked after
    it, then another publication; in the end the server is gone.
    """
    live = Typed(stack, "hot_typed")
    for user in range(40):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    read_from_server(live)
    with serving(live):
        for user in range(20, 60):
            live.put(user, None if user % 3 == 0 else 1_000 + user)
        live.topic.flush()
        one = f"app_id = {APP} AND user_id = 'u59'"
        wait_for(lambda: len(live.shown("live_by_key", one)) == 1)
        assert live.shown("live") == live.expected
        assert live.shown("live_by_key") == live.expected
        for user in (0, 21, 22, 55):
            by_key = f"app_id = {APP} AND user_id = 'u{user}' AND at = DATE '2026-01-{1 + user % 28:02}'"
            expected = {key: row for key, row in live.expected.items() if key[1] == f"u{user}"}
            assert live.shown("live", by_key) == live.shown("live_by_key", by_key) == expected
        assert ask(stack, "SELECT count(*) FROM lake.app.hot_typed_live") == [(len(live.expected),)]
        described = [ask(stack, f"DESCRIBE lake.app.hot_typed_{view}") for view in ("live", "cold")]
        assert described[0] == described[1]
        live.ingest()
        assert live.shown("live") == live.expected
        assert live.run("views", "publish", live.name) == 0
        assert live.shown("live") == live.shown("live_by_key") == live.expected
    with pytest.raises(TrinoQueryError, match="Failed to load table"):
        live.shown("live")


@pytest.mark.full
def test_records_that_set_only_some_columns_show_the_others_as_the_cold_row_has_them(stack: Stack) -> None:
    """Goal: both live views complete such rows, by key too; over cold rows, over hot ones, and over none.

    Method: one column or some of rows that are cold, replaced, deleted before, or new, in one or two records;
    the view of before a commit is asked after it, then its replacement, with more such records.
    """
    live = Typed(stack, "hot_partial", more="partial_updates = true")
    for user in range(30):
        live.put(user, 5 * user + 1)
    live.topic.flush()
    live.ingest()
    read_from_server(live)
    with serving(live):
        for user in range(10, 40):
            if user % 3 == 0:
                live.put(user, None if user % 2 else 5 * user + 2)
            live.change(user, 5 * user + 3, "price", "Seen at")
            if user % 4 == 0:
                live.change(user, 5 * user + 4, "document")
        for user in (1, 3):
            live.put(user, None)
        live.topic.flush()
        wait_for(lambda: live.shown("live_by_key") == live.expected)
        assert live.shown("live") == live.expected
        for user in (1, 2, 11, 12, 15, 39):
            by_key = f"app_id = {APP} AND user_id = 'u{user}' AND at = DATE '2026-01-{1 + user % 28:02}'"
            expected = {key: row for key, row in live.expected.items() if key[1] == f"u{user}"}
            assert live.shown("live", by_key) == live.shown("live_by_key", by_key) == expected
        live.ingest()
        assert live.shown("live") == live.shown("live_by_key") == live.expected
        assert live.run("views", "publish", live.name) == 0
        for user in range(5, 45, 2):
            live.change(user, 5 * user + 6, "flag")
        live.topic.flush()
        wait_for(lambda: live.shown("live") == live.expected)
        assert live.shown("live_by_key") == live.expected


def test_each_query_is_one_state_under_traffic_and_commits(stack: Stack) -> None:
    """Goal: no query is torn or goes back, and a join of both live views sees each row as the same.

    Method: queries under traffic, whose rows must be those after some number of records of each partition.
    """
    live = Typed(stack, "hot_busy")
    for user in range(USERS):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    read_from_server(live)
    with serving(live), live.traffic():
        followers = [Follower(live.sent[partition]) for partition in range(PARTITIONS)]
        for number in range(QUERIES):
            rows = live.shown("live")
            for partition, follower in enumerate(followers):
                with live.writing:
                    follower.follow(of_partition(rows, partition))
            assert ask(stack, TORN) == [(0,)]
            if number % 6 == 5:
                live.ingest()


def test_a_table_that_is_altered_has_views_of_its_new_columns_and_types(stack: Stack) -> None:
    """Goal: the views show a column that SQL can't read out of a record, and a decimal that became wider;
    what a view says of types keeps no condition from the table.

    Method: a nested column is added, another one widened; then a record sets them.
    """
    live = Typed(stack, "hot_altered")
    live.put(1, 1)
    live.topic.flush()
    live.ingest()
    read_from_server(live)
    with serving(live) as server:
        text = live.config_path.read_text()
        assert "decimal(20, 3)" in text
        live.config_path.write_text(f'{text.replace("decimal(20, 3)", "decimal(25, 3)")}tags = "list<int>"\n')
        assert live.run("table", "alter", live.name, "--yes") == 0
        server.publish()
        live.put(2, 2, tags=[3, 4])
        live.topic.flush()
        wait_for(lambda: live.shown("live") == live.expected)
        for view in ("live", "live_by_key"):
            place = f"lake.app.{live.name}_{view}"
            types = {row[0]: row[1] for row in ask(stack, f"DESCRIBE {place}")}
            assert (types["price"], types["tags"]) == ("decimal(25,3)", "array(integer)")
            assert ask(stack, f"SELECT user_id, tags FROM {place} ORDER BY 1") == [
                ("u1", None),
                ("u2", [3, 4]),
            ]
            ((plan,),) = ask(
                stack, f"EXPLAIN SELECT price FROM {place} WHERE app_id = {APP} AND user_id = 'u2'"
            )
            assert "filterPredicate = ((app_id = " in plan
            assert "CAST" not in plan
