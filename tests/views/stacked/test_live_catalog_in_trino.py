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
from tests.views.stacked.hot_server import COLUMNS, Rows, Typed, as_rows, read_from_server
from tests.views.stacked.started import LIVE_CATALOG
from tests.views.stacked.viewed import ask
from thermocline.dev.stack import TRINO_ADMIN, Command, Stack

pytestmark = pytest.mark.trino

NAMES = ", ".join(f'"{name}"' for name in COLUMNS)


class LiveTable(Typed):
    """A table of every type, and what Trino shows of it as of now."""

    def loaded(self, where: str = "true") -> Rows:
        place = f"{LIVE_CATALOG}.app.{self.name}"
        return as_rows(ask(self.stack, f"SELECT {NAMES} FROM {place} WHERE {where}", TRINO_ADMIN))

    @contextmanager
    def serving(self) -> Iterator[Command]:
        read_from_server(self)
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


def test_each_user_sees_his_own_rows_by_the_views_over_a_live_table(stack: Stack) -> None:
    """The catalog has all rows, so the views' owner alone may use it."""
    live = LiveTable(stack, "live_filtered", more='view_filter = "user_id = current_user"')
    for user in range(4):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    place = f"{LIVE_CATALOG}.app.{live.name}"
    with live.serving():
        live.put(1, 1_001)
        live.put(2, None)
        live.topic.flush()
        wait_for(lambda: live.loaded() == live.expected)
        assert live.run("views", "publish", live.name) == 0
        for view in ("live", "live_by_key"):
            own = f"SELECT user_id FROM lake.app.{live.name}_{view}"
            assert [ask(stack, own, analyst) for analyst in ("u1", "u2")] == [[("u1",)], []]
        for analyst in ("u1", "u2"):
            with pytest.raises(TrinoQueryError, match="Access Denied"):
                ask(stack, f"SELECT count(*) FROM {place}", analyst)
