"""Live views that read hot rows from a real server: what they show, next to what a dict says, and refuse."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from trino.exceptions import TrinoQueryError

from embedded.stack import Command, Stack
from tests.behaviour.live import APPEND_TIME, Live, wait_for
from tests.behaviour.topic import APP, Topic
from tests.views.stacked.started import hot_address
from tests.views.stacked.viewed import Viewed, ask

pytestmark = pytest.mark.trino

_SECTION = """
[tables.hot_typed]
identifier = "app.hot_typed"
topics = ["hot_typed"]
start = "earliest"
buckets = 2
format_version = 2
key = ["app_id", "user_id", "at"]
entity = ["app_id", "user_id"]

[tables.hot_typed.columns]
app_id = "long"
user_id = "string"
at = "date"
price = "decimal(20, 3)"
identity = "uuid"
content = "binary"
"Seen at" = "timestamptz"
local = "timestamp"
ratio = "double"
flag = "boolean"
document = "json"
"""
COLUMNS = ("price", "identity", "content", '"Seen at"', "local", "ratio", "flag", "document")
NULLS: tuple[Any, ...] = (None,) * len(COLUMNS)

Key = tuple[int, str, date]


def read_from_server(live: Live) -> None:
    """Has the table's live views read a server's hot rows."""
    address = hot_address(live.stack)
    hot = f'hot = "server"\nserver_address = "{address}"\n'
    endpoint = f"[serving.trino]\nport = {address.rpartition(':')[2]}\n\n"
    text = live.config_path.read_text().replace("[views]\n", f"[views]\n{hot}")
    live.config_path.write_text(text.replace("[tables.", f"{endpoint}[tables.", 1))


@contextmanager
def serving(live: Live) -> Iterator[Command]:
    """A server, of which live views were made, and answer."""
    command = Command(live.config_path, live.stack.folder / f"{live.name}-serve.log", "serve")

    def answers() -> bool:
        command.check()
        # To make a view Trino asks the server for its columns.
        if live.run("views", "publish", live.name) != 0:
            return False
        try:
            ask(live.stack, f"SELECT 1 FROM lake.app.{live.name}_live_by_key WHERE app_id = 0")
        except TrinoQueryError:
            return False
        return True

    try:
        wait_for(answers)
        yield command
    finally:
        command.stop()


class Typed(Live):
    """A table with a column of each type that the connector lacks, and names that it refuses."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.name = stack, "hot_typed"
        stack.kafka.create_topic(self.name, 2, APPEND_TIME)
        self.topic = Topic(stack.settings.kafka, self.name)
        self.config_path = stack.folder / f"{self.name}.toml"
        base = stack.config_path.read_text().partition("[tables.")[0]
        self.config_path.write_text(base + _SECTION)
        self.create()
        self.expected: dict[Key, tuple[Any, ...]] = {}

    def put(self, user: int, number: int | None) -> None:
        """A record whose values hang on a number; some are null. None deletes the row."""
        key = (APP, f"u{user}", date(2026, 1, 1 + user % 28))
        raw = json.dumps({"app_id": key[0], "user_id": key[1], "at": key[2].isoformat()}).encode()
        if number is None:
            self.topic.send_raw(raw, None, user % 2)
            self.expected.pop(key, None)
            return
        values = _values(number)
        self.topic.send_raw(raw, json.dumps(_as_json(values)).encode(), user % 2)
        self.expected[key] = values

    def shown(self, view: str, where: str = "true") -> dict[Key, tuple[Any, ...]]:
        columns = ", ".join(("app_id", "user_id", "at", *COLUMNS))
        rows = ask(self.stack, f"SELECT {columns} FROM lake.app.{self.name}_{view} WHERE {where}")
        assert len({row[:3] for row in rows}) == len(rows), "a key is in two rows"
        return {row[:3]: row[3:] for row in rows}


def _values(number: int) -> tuple[Any, ...]:
    if number % 5 == 0:
        return NULLS
    second = number % 60
    return (
        Decimal(number - 500).scaleb(-3),
        UUID(int=number << 64),
        bytes([0, number % 256]),
        datetime(2026, 3, 1, 12, 0, second, number, UTC),
        datetime(1969, 3, 1, 12, 0, second, number),  # noqa: DTZ001  (of no zone)
        number / 8,
        number % 2 == 0,
        f'{{"n": {number}}}',
    )


def _as_json(values: tuple[Any, ...]) -> dict[str, Any]:
    if values == NULLS:
        return {}
    price, identity, content, seen_at, local, ratio, flag, document = values
    return {
        "price": str(price),
        "identity": str(identity),
        "content": base64.b64encode(content).decode(),
        "Seen at": seen_at.isoformat(),
        "local": local.isoformat(),
        "ratio": ratio,
        "flag": flag,
        "document": json.loads(document),
    }


def test_live_views_of_every_type_are_what_was_written_before_and_after_a_commit_and_without_a_server_refuse(
    stack: Stack,
) -> None:
    """Goal: both live views show every column's values, by key too, across a commit, and nothing stale.

    Method: cold rows, and hot ones that replace, delete and add; the view of before a commit is asked after
    it, then its replacement; in the end the server is gone.
    """
    live = Typed(stack)
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
        live.ingest()
        assert live.shown("live") == live.expected
        assert live.run("views", "publish", live.name) == 0
        assert live.shown("live") == live.shown("live_by_key") == live.expected
    with pytest.raises(TrinoQueryError, match="communicating with remote Thrift server"):
        live.shown("live")


@pytest.mark.full
def test_two_scans_of_a_query_are_one_state_under_traffic_commits_and_kills(stack: Stack) -> None:
    """Goal: 200 queries while records and commits come show each key once, and none that was never written.

    Method: every key is always there, as records only replace values, and the values only rise. The process
    of the endpoint is killed and paused meanwhile: such queries fail, or wait, and the others are right.
    """
    live = Viewed(stack, "hot_busy")
    keys = 300
    live.write(range(keys), "000000")
    live.ingest()
    read_from_server(live)
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.wait(0.01):
            number += 1
            live.write(range(number % 7, keys, 7), f"{number:06}")

    def commit() -> None:
        while not stop.wait(2.0):
            live.ingest()
            live.publish()

    with serving(live):
        threads = [threading.Thread(target=produce), threading.Thread(target=commit)]
        for thread in threads:
            thread.start()
        try:
            refused = 0
            newest: dict[Any, str] = {}
            for number in range(200):
                try:
                    rows = live.ask("live" if number % 2 else "live_by_key")
                except TrinoQueryError:
                    refused += 1
                    continue
                assert len(rows) == keys
                assert all(rows[key] >= newest.get(key, "") for key in rows)
                newest = dict(rows)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert refused == 0
        wait_for(lambda: live.ask("live") == live.written())
