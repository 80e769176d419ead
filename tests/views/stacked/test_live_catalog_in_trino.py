"""Live tables in Trino, which loads them from a server's catalog: next to what a dict says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from trino.exceptions import TrinoQueryError

from tests.behaviour.live import wait_for
from tests.behaviour.topic import APP
from tests.views.stacked.hot_server import COLUMNS, PARTITIONS, Follower, Rows, Typed, as_rows, of_partition
from tests.views.stacked.started import LIVE_CATALOG, live_port
from tests.views.stacked.viewed import PUBLISHER, ask
from thermocline.dev.stack import TRINO_ADMIN, Command, Stack

pytestmark = pytest.mark.trino

ROUNDS = 20
NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


class LiveTable(Typed):
    """A table of every type, and what Trino shows of it as of now."""

    def loaded(self, where: str = "true") -> Rows:
        place = f"{LIVE_CATALOG}.app.{self.name}"
        return as_rows(ask(self.stack, f"SELECT {NAMES} FROM {place} WHERE {where}", TRINO_ADMIN))

    @contextmanager
    def serving(self) -> Iterator[Command]:
        text = self.config_path.read_text()
        section = "[serving.catalog]\nenabled = true\nmin_interval_seconds = 0\n"
        port = f"port = {self.settings.serving.port}"
        assert port in text
        text = text.replace(port, f"port = {live_port(self.stack)}").replace(
            "[tables.", f"{section}\n[tables.", 1
        )
        self.config_path.write_text(text)
        server = Command(self.config_path, self.stack.folder / f"{self.name}-serve.log", "serve")
        try:
            wait_for(self._answers)
            yield server
        finally:
            server.stop()

    def _answers(self) -> bool:
        try:
            self.loaded("app_id = 0")
        except TrinoQueryError:
            return False
        return True


def test_a_live_table_has_every_type_before_and_after_a_commit(stack: Stack) -> None:
    live = LiveTable(stack, "live_typed")
    for user in range(40):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    with live.serving():
        for user in range(20, 60):
            live.put(user, None if user % 3 == 0 else 1_000 + user)
        live.topic.flush()
        wait_for(lambda: live.loaded() == live.expected)
        for user in (0, 21, 22, 55):
            by_key = f"app_id = {APP} AND user_id = 'u{user}' AND at = DATE '2026-01-{1 + user % 28:02}'"
            expected = {key: row for key, row in live.expected.items() if key[1] == f"u{user}"}
            assert live.loaded(by_key) == expected
        place = f"{LIVE_CATALOG}.app.{live.name}"
        assert ask(stack, f"SELECT count(*) FROM {place}", TRINO_ADMIN) == [(len(live.expected),)]
        assert ask(stack, f"SELECT count(*) FROM {place} FOR VERSION AS OF 'committed'", TRINO_ADMIN) == [
            (40,)
        ]
        joined = f"SELECT count(*) FROM {place} a JOIN {place} b USING (app_id, user_id, at)"
        assert ask(stack, joined, TRINO_ADMIN) == [(len(live.expected),)]
        live.ingest()
        assert live.loaded() == live.expected
        with pytest.raises(TrinoQueryError):
            ask(
                stack,
                f"INSERT INTO {place} (app_id, user_id, at) VALUES (1, 'x', DATE '2026-01-01')",
                TRINO_ADMIN,
            )
        with pytest.raises(TrinoQueryError):
            ask(stack, f"DELETE FROM {place} WHERE user_id = 'u1'", TRINO_ADMIN)
        with pytest.raises(TrinoQueryError):
            ask(stack, f"DROP TABLE {place}", TRINO_ADMIN)
        assert live.loaded() == live.expected


def test_a_search_for_orphans_removes_nothing_of_a_table(stack: Stack) -> None:
    """Method: all files look old, so that none is spared as one that may be being written."""
    live = LiveTable(stack, "live_orphans")
    live.put(0, 1)
    live.topic.flush()
    live.ingest()
    with live.serving():
        live.put(1, 2)
        live.topic.flush()
        wait_for(lambda: live.loaded() == live.expected)
        folder = Path(live.table().location().removeprefix("file://"))
        long_ago = time.time() - timedelta(days=30).total_seconds()
        for path in folder.rglob("*"):
            os.utime(path, (long_ago, long_ago))
        before = set(folder.rglob("*.*"))
        ask(stack, f"ALTER TABLE {LIVE_CATALOG}.app.{live.name} EXECUTE remove_orphan_files", TRINO_ADMIN)
        assert before - set(folder.rglob("*.*")) == set()
        live.ingest()
        assert live.loaded() == live.expected


def test_each_query_is_one_state_under_traffic_and_commits(stack: Stack) -> None:
    """Goal: no query is torn or goes back, whatever is written and committed meanwhile."""
    live = LiveTable(stack, "live_busy")
    live.put(0, 1)
    live.topic.flush()
    live.ingest()
    with live.serving(), live.traffic():
        followers = [Follower(live.sent[partition]) for partition in range(PARTITIONS)]
        for number in range(ROUNDS):
            rows = live.loaded()
            for partition, follower in enumerate(followers):
                with live.writing:
                    follower.follow(of_partition(rows, partition))
            if number % 7 == 6:
                live.ingest()


def test_each_user_sees_his_own_rows_by_a_view_over_a_live_table(stack: Stack) -> None:
    """The catalog has all rows, so the view's owner alone may use it."""
    live = LiveTable(stack, "live_filtered")
    for user in range(4):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    place, view = f"{LIVE_CATALOG}.app.{live.name}", f"lake.app.{live.name}_live"
    with live.serving():
        ask(
            stack,
            f"CREATE VIEW {view} SECURITY DEFINER AS"
            f" SELECT user_id, {COLUMNS[0]} FROM {place} WHERE user_id = current_user",
            PUBLISHER,
        )
        live.put(1, 1_001)
        live.put(2, None)
        live.topic.flush()
        wait_for(lambda: live.loaded() == live.expected)
        seen = [ask(stack, f"SELECT user_id FROM {view}", analyst) for analyst in ("u1", "u2")]
        assert seen == [[("u1",)], []]
        for analyst in ("u1", "u2"):
            with pytest.raises(TrinoQueryError, match="Access Denied"):
                ask(stack, f"SELECT count(*) FROM {place}", analyst)
