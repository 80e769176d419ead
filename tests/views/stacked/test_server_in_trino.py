"""Live views that read hot rows from a real server: what they show, next to what a dict says, and refuse."""

from __future__ import annotations

import pytest
from trino.exceptions import TrinoQueryError

from embedded.stack import Stack
from tests.behaviour.live import wait_for
from tests.behaviour.topic import APP
from tests.views.stacked.hot_server import Typed, read_from_server, serving
from tests.views.stacked.viewed import ask

pytestmark = pytest.mark.trino


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
