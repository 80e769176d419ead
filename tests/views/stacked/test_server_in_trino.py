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
    Server,
    Typed,
    of_partition,
    read_from_server,
    read_from_two_servers,
    serving,
)
from tests.views.stacked.viewed import ask
from thermocline.dev.stack import Stack

pytestmark = [pytest.mark.trino, pytest.mark.full]

QUERIES = 16
NOBODY = ("the server that the query belongs to, does not answer", "communicating with remote Thrift server")
"""The second where Trino itself asked the server that is gone, and no other one."""


def test_live_views_of_every_type_are_what_was_written_before_and_after_a_commit_and_without_a_server_refuse(
    stack: Stack,
) -> None:
    """Goal: both live views show every column's values, by key too, across a commit, and nothing stale.

    Method: cold rows, and hot ones that replace, delete and add; the view of before a commit is asked after
    it, then its replacement; in the end the server is gone. Trino and the server speak TLS.
    """
    live = Typed(stack, "hot_typed")
    for user in range(40):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    read_from_server(live, has_tls=True)
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
        live.ingest()
        assert live.shown("live") == live.expected
        assert live.run("views", "publish", live.name) == 0
        assert live.shown("live") == live.shown("live_by_key") == live.expected
    with pytest.raises(TrinoQueryError, match="communicating with remote Thrift server"):
        live.shown("live")


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


def test_of_two_servers_that_trino_asks_in_any_order_each_query_has_one(stack: Stack) -> None:
    """Goal: whichever server a call meets, each query sees one state, that of before a commit too; where the
    server that it belongs to is gone, it is refused, and never answered otherwise.

    Method: queries under traffic, whose rows must be those after some number of records of each partition;
    then one of the servers is killed, and started again.
    """
    live = Typed(stack, "hot_shared")
    for user in range(USERS):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    servers = [Server(live, variables) for variables in read_from_two_servers(live)]
    try:
        servers[0].publish()
        wait_for(lambda: _answers_all(live))  # the other one, too
        with live.traffic():
            for number in range(QUERIES):
                _check_one_state(live)
                if number == QUERIES // 2:
                    live.ingest()
            servers[1].kill()
            refused: list[str] = []
            for _ in range(QUERIES):
                try:
                    _check_one_state(live)
                except TrinoQueryError as error:
                    refused.append(str(error.message))
            assert 0 < len(refused) < QUERIES
            assert all(any(one in message for one in NOBODY) for message in refused), refused
        servers[1].start()
        servers[1].publish()  # of the snapshot that was replaced meanwhile it does not know
        wait_for(lambda: _answers_all(live))
    finally:
        for server in servers:
            server.stop()


def _answers_all(live: Typed) -> bool:
    try:
        return all(live.shown("live") == live.expected for _ in range(QUERIES))
    except TrinoQueryError:
        return False


def _check_one_state(live: Typed) -> None:
    rows = live.shown("live")
    for partition in range(PARTITIONS):
        Follower(live.sent[partition]).follow(of_partition(rows, partition))
