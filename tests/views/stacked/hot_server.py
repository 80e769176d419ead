"""A table of many types, and a server whose live tables its live views read."""

from __future__ import annotations

import base64
import json
import random
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import psutil
from trino.exceptions import TrinoQueryError

from tests.behaviour.live import APPEND_TIME, PATIENCE_SECONDS, Live, meanwhile
from tests.behaviour.topic import APP, Topic
from tests.views.stacked.started import live_port
from tests.views.stacked.viewed import ask
from thermocline.dev.stack import Command, Stack
from thermocline.errors import ExitCode

_SECTION = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{name}"]
start = "earliest"
buckets = 2
format_version = 2
key = ["app_id", "user_id", "at"]
entity = ["app_id", "user_id"]
{more}

[tables.{name}.columns]
app_id = "long"
user_id = "string"
at = "date"
price = "decimal(20, 3)"
identity = "uuid"
content = "binary"
"Seen at" = "timestamptz"
local = "timestamp"
clock = "time"
ratio = "double"
flag = "boolean"
document = "json"
"""
_NAMES: Final = ("price", "identity", "content", "Seen at", "local", "clock", "ratio", "flag", "document")
COLUMNS: Final = ("app_id", "user_id", "at", *_NAMES)
NULLS: tuple[Any, ...] = (None,) * len(_NAMES)
PARTITIONS: Final = 2
USERS: Final = 60
BURST: Final = 4
PAUSE_SECONDS: Final = 0.05

Key = tuple[int, str, date]
Values = tuple[Any, ...]
Rows = dict[Key, Values]


class Typed(Live):
    """Its one producer writes each key to a partition of its own, and remembers in which order."""

    def __init__(self, stack: Stack, name: str, more: str = "") -> None:
        self.stack, self.name = stack, name
        stack.kafka.create_topic(name, PARTITIONS, APPEND_TIME)
        self.topic = Topic(stack.settings.kafka, name)
        self.config_path = stack.folder / f"{name}.toml"
        base = stack.config_path.read_text().partition("[tables.")[0]
        self.config_path.write_text(base + _SECTION.format(name=name, more=more))
        self.create()
        self.sent: dict[int, list[tuple[Key, Values | None]]] = {one: [] for one in range(PARTITIONS)}
        self.writing = threading.Lock()
        """Held while records are written that are not acknowledged yet."""

    @property
    def expected(self) -> Rows:
        """The rows after all that was written."""
        rows: Rows = {}
        for records in self.sent.values():
            for record in records:
                apply(rows, record)
        return rows

    def put(self, user: int, number: int | None, **more: Any) -> None:
        """A record whose values hang on a number; some are null. None deletes the row.

        ``more`` are fields of columns that were added.
        """
        key = key_of(user)
        values = None if number is None else _values(number)
        value = None if values is None else json.dumps(_as_json(values) | more).encode()
        self.sent[user % PARTITIONS].append((key, values))
        self.topic.send_raw(_as_key(key), value, user % PARTITIONS)

    def change(self, user: int, number: int, *names: str) -> None:
        """A record that sets only these columns, to what ``put`` gives them."""
        key, new = key_of(user), _values(number)
        own = dict(zip(_NAMES, self.expected.get(key, NULLS), strict=True))
        own |= {name: value for name, value in zip(_NAMES, new, strict=True) if name in names}
        self.sent[user % PARTITIONS].append((key, tuple(own.values())))
        fields = {name: value for name, value in _as_json(new).items() if name in names}
        self.topic.send_raw(_as_key(key), json.dumps(fields).encode(), user % PARTITIONS)

    @contextmanager
    def traffic(self, seed: int = 1) -> Iterator[None]:
        """Some 80 records a second meanwhile: three in ten delete, the others have a number of their own."""
        rng = random.Random(seed)

        def produce(stop: threading.Event) -> None:
            number = 10_000
            while not stop.wait(PAUSE_SECONDS):
                with self.writing:
                    for _ in range(BURST):
                        number += 1
                        self.put(rng.randrange(USERS), None if rng.random() < 0.3 else number)
                    self.topic.flush()

        with meanwhile(produce):
            yield

    def shown(self, view: str, where: str = "true") -> Rows:
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        return as_rows(ask(self.stack, f"SELECT {names} FROM lake.app.{self.name}_{view} WHERE {where}"))


def key_of(user: int) -> Key:
    return (APP, f"u{user}", date(2026, 1, 1 + user % 28))


def as_rows(found: Sequence[tuple[Any, ...]]) -> Rows:
    """Rows with the columns `COLUMNS`, by key."""
    assert len({row[:3] for row in found}) == len(found), "a key is in two rows"
    return {row[:3]: row[3:] for row in found}


def apply(rows: Rows, record: tuple[Key, Values | None]) -> None:
    """What a record does to the rows."""
    key, values = record
    if values is None:
        rows.pop(key, None)
    else:
        rows[key] = values


class Follower:
    """Finds, for one answer after the other, how many records of a partition it reflects.

    An answer may not go back behind the one before it.
    """

    def __init__(self, records: Sequence[tuple[Key, Values | None]]) -> None:
        """``records`` grows; what an answer can reflect is in it before the answer is asked for."""
        self._records = records
        self._rows: Rows = {}
        self.count = 0

    def follow(self, rows: Mapping[Key, Values], count_min: int = 0) -> None:
        """Goes on to the first state that has these rows, after so many records or more."""
        before = (self.count, dict(self._rows))
        while self.count < count_min or self._rows != rows:
            assert self.count < len(self._records), self._problem(rows, *before)
            apply(self._rows, self._records[self.count])
            self.count += 1

    def would_meet(self, rows: Mapping[Key, Values], user: str) -> None:
        """Checks that a state from here on has these rows of that user, and stays where it is."""
        state = {key: row for key, row in self._rows.items() if key[1] == user}
        later = (record for record in self._records[self.count :] if record[0][1] == user)
        while state != rows:
            record = next(later, None)
            assert record is not None, f"no state after {self.count} records has these rows: {rows}"
            apply(state, record)

    def _problem(self, rows: Mapping[Key, Values], count: int, before: Rows) -> str:
        changed = {
            key: (before.get(key), rows.get(key), self._rows.get(key))
            for key in sorted(before.keys() | rows.keys() | self._rows.keys())
            if rows.get(key) != self._rows.get(key) or rows.get(key) != before.get(key)
        }
        return f"no state after {count} of {len(self._records)} records has these rows: {changed}"


def of_partition(rows: Mapping[Key, Values], partition: int) -> Rows:
    """The rows whose records are in that partition."""
    return {key: row for key, row in rows.items() if int(key[1].removeprefix("u")) % PARTITIONS == partition}


def read_from_server(live: Live, stale_after_seconds: float = 5.0) -> None:
    """Has the table's live views read a server's live tables, each query a snapshot of its own."""
    port = f"port = {live.settings.serving.port}"
    text = live.config_path.read_text().replace("[views]\n", '[views]\nhot = "server"\n')
    assert port in text
    text = text.replace(port, f"port = {live_port(live.stack)}\nstale_after_seconds = {stale_after_seconds}")
    section = "[serving.catalog]\nenabled = true\nmin_interval_seconds = 0\n"
    live.config_path.write_text(text.replace("[tables.", f"{section}\n[tables.", 1))


class Server:
    """``thermocline serve``, of which live views were made, and answer."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._command = self._started()

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._command.process.pid)

    def child(self, name: str) -> psutil.Process:
        """A process of it, once there is one, by what it is called."""
        found: list[psutil.Process] = []

        def is_there() -> bool:
            self._command.check()
            with suppress(psutil.Error):  # one that ends meanwhile
                found[:] = [
                    one
                    for one in self.process.children(recursive=True)
                    if f": {name}" in " ".join(one.cmdline())
                ]
            return bool(found)

        self._live.stack.wait_for(is_there, f"the server has the process {name}")
        return found[0]

    def kill(self) -> None:
        """SIGKILL for the server alone; its processes end with it."""
        children = self.process.children(recursive=True)
        self._command.kill()
        assert not psutil.wait_procs(children, PATIENCE_SECONDS)[1]

    def start(self) -> None:
        """Another one in the place of one that has ended."""
        self._command = self._started()

    def rebuild(self) -> None:
        """Another server in its place, without the state that this one kept."""
        self._command.stop()
        shutil.rmtree(self._live.settings.serving.state_dir)
        self._command = self._started()

    def publish(self) -> None:
        """Live views of it; to make them, Trino asks it for the table."""
        self._live.stack.wait_for(self._is_published, f"the views of {self._live.name} answer")

    def stop(self) -> None:
        self._command.stop()

    def _started(self) -> Command:
        live = self._live
        log_path = live.stack.folder / f"{live.name}-serve.log"
        return Command(live.config_path, log_path, "serve")

    def _is_published(self) -> bool:
        self._command.check()
        code = self._live.run("views", "publish", self._live.name)
        return code in (0, ExitCode.NOTHING_TO_DO) and self._answers()

    def _answers(self) -> bool:
        try:
            ask(self._live.stack, f"SELECT 1 FROM lake.app.{self._live.name}_live_by_key WHERE app_id = 0")
        except TrinoQueryError:
            return False
        return True


@contextmanager
def serving(live: Live) -> Iterator[Server]:
    """A server, of which live views were made, and answer."""
    server = Server(live)
    try:
        server.publish()
        yield server
    finally:
        server.stop()


def _values(number: int) -> Values:
    if number % 5 == 0:
        return NULLS
    second = number % 60
    return (
        Decimal(number - 500).scaleb(-3),
        UUID(int=number << 64),
        bytes([0, number % 256]),
        datetime(2026, 3, 1, 12, 0, second, number, UTC),
        datetime(1969, 3, 1, 12, 0, second, number),  # noqa: DTZ001  (of no zone)
        time(number % 24, second, 59, number),
        number / 8,
        number % 2 == 0,
        f'{{"n": {number}}}',
    )


def _as_key(key: Key) -> bytes:
    return json.dumps({"app_id": key[0], "user_id": key[1], "at": key[2].isoformat()}).encode()


def _as_json(values: Values) -> dict[str, Any]:
    if values == NULLS:
        return {}
    price, identity, content, seen_at, local, clock, ratio, flag, document = values
    return {
        "price": str(price),
        "identity": str(identity),
        "content": base64.b64encode(content).decode(),
        "Seen at": seen_at.isoformat(),
        "local": local.isoformat(),
        "clock": clock.isoformat(),
        "ratio": ratio,
        "flag": flag,
        "document": json.loads(document),
    }
