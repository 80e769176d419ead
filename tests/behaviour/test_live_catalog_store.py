"""The live catalog on a store that is full, busy or stands still: right or refused, and right after it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.behaviour.live import KEYED, SECTION, wait_for
from tests.behaviour.read_paths import live_catalog
from tests.behaviour.topic import APP, Topic
from tests.http_proxy import Fault, NoWrites
from tests.lake import ProxiedLake
from thermocline.cli import entry
from thermocline.client import Client
from thermocline.dev.oracle import RowKey
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.ingest.owner.owner import Owner
from thermocline.settings import load_settings

pytestmark = pytest.mark.full
OTHER = "other"
LOAD_SECONDS_MAX = 4
STORE_ANSWER_SECONDS = 5
ENGINE_SECONDS = 120.0
"""An engine that waits for longer than any load may take."""
USERS = 30
ROOM_MAX = 40
"""More files than a snapshot of these tables has."""

Values = dict[RowKey, str]


class Site:
    """A server on a lake that can be broken, and what a dict says of its tables."""

    def __init__(self, stack: Stack, lake: ProxiedLake, server: Command) -> None:
        self.stack, self.lake, self.server = stack, lake, server
        self.topics = {name: Topic(stack.settings.kafka, name) for name in (TOPIC, OTHER)}
        self._written = 0

    def write(self, name: str = TABLE) -> str:
        """More records, of which some delete; the header that asks for them."""
        self._written += 1
        for number in range(self._written, self._written + 5):
            value = None if number % 7 == 3 else f"{self._written}"
            self.topics[name].send((APP, f"u{number % USERS}", "plan"), value)
        return self.topics[name].flush()

    def expected(self, name: str = TABLE) -> Values:
        oracle = self.topics[name].oracle
        return {key: row["value"] for key, row in oracle.rows(oracle.end).items()}

    def load(self, read_after: str, name: str = TABLE) -> tuple[int, str]:
        """An engine's request for a table with these records: status, and the error's message."""
        path = f"{self.stack.url}/iceberg/v1/namespaces/app/tables/{name}"
        headers = {"Thermocline-Read-After": read_after}
        answer = httpx.get(path, headers=headers, timeout=ENGINE_SECONDS)
        return answer.status_code, answer.json().get("error", {}).get("message", "")

    def rows(self, read_after: str, name: str = TABLE) -> Values:
        """What an engine reads of a table with these records."""
        catalog = live_catalog(self.stack, **{"header.Thermocline-Read-After": read_after})
        return values(catalog.load_table(f"app.{name}").scan().to_arrow().to_pylist())

    def is_right(self, read_after: str) -> bool:
        """Whether a load succeeds by now; then its rows are those of the dict."""
        if self.load(read_after)[0] != 200:
            return False
        assert self.rows(read_after) == self.expected()
        return True

    def check_other_read_paths(self, read_after: str, with_extract: bool = True) -> None:
        """Lookups of everybody, and an extract, give what the dict says."""
        expected = self.expected()
        with Client(self.stack.url) as client:
            found: list[dict[str, Any]] = []
            for number in range(USERS):
                asked = client.lookup(TABLE, app_id=APP, user_id=f"u{number}", read_after=read_after)
                found += [dict(row) for row in asked.rows]
            assert values(found) == expected
            if with_extract:
                extracted = client.extract(TABLE, read_after=read_after).to_arrow()
                assert values(extracted.to_pylist()) == expected

    def live_files(self) -> set[Path]:
        """The objects that the live catalog has in the store, of all tables."""
        return {path for path in self.lake.objects.rglob("thermocline/live/**/*") if path.is_file()}

    def counted_files(self) -> int:
        """How many the server's metrics say there are."""
        text = httpx.get(f"{self.stack.url}/metrics").text
        metric = r"^thermocline_live_files_{}_total\{{.*\}} (\S+)$"
        written, removed = (
            sum(map(float, re.findall(metric.format(name), text, re.MULTILINE)))
            for name in ("written", "removed")
        )
        return int(written - removed)

    def heal(self) -> None:
        self.lake.store.decide = lambda _: None


def values(rows: list[dict[str, Any]]) -> Values:
    found = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedLake]:
    more = {"s3.request-timeout": str(STORE_ANSWER_SECONDS)}
    with ProxiedLake(tmp_path_factory.mktemp("lake"), more) as running:
        yield running


@pytest.fixture(scope="module")
def whole(lake: ProxiedLake, new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner]) -> Site:
    stack = new_stack("live_store", rest=lake, has_live_catalog=True)
    text = stack.config_path.read_text()
    text = text.replace("[serving.catalog]\n", f"[serving.catalog]\nload_seconds_max = {LOAD_SECONDS_MAX}\n")
    stack.config_path.write_text(text + SECTION.format(name=OTHER, choices=KEYED))
    stack.settings = load_settings(stack.config_path)
    stack.kafka.create_topic(OTHER, 2)
    assert entry.run(["--config", str(stack.config_path), "table", "create", OTHER]) == 0
    site = Site(stack, lake, stack.serve())
    for name in (TABLE, OTHER):
        for _ in range(USERS):
            site.write(name)
    new_owner(stack).step()
    assert entry.run(["--config", str(stack.config_path), "ingest", "run", OTHER, "--once"]) == 0
    stack.wait_until_ready(site.server)
    for name in (TABLE, OTHER):
        assert site.rows(site.write(name), name) == site.expected(name)
    site.check_other_read_paths(site.write())
    return site


@pytest.fixture
def site(whole: Site) -> Iterator[Site]:
    """At its end the store works, the same server answers right, and each file is accounted for."""
    yield whole
    whole.heal()
    read_after = whole.write()
    wait_for(lambda: whole.is_right(read_after))
    whole.check_other_read_paths(read_after)
    whole.server.check()
    assert len(whole.live_files()) == whole.counted_files()


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.ERROR, Fault.BUSY], ids=lambda fault: fault.name)
def test_on_a_full_store_loads_are_refused_by_name_and_lookups_and_extracts_go_on(
    site: Site, fault: Fault
) -> None:
    before = site.live_files()
    site.lake.store.decide = NoWrites(fault)
    for _ in range(2):
        read_after = site.write()
        status, message = site.load(read_after)
        expected = "[storage-failed]" if fault == Fault.FULL else "[load-timeout]"  # others are tried again
        assert (status, message.split()[0]) == (503, expected), message
        assert "State: nothing is lost" in message
        assert "Next: " in message
        site.check_other_read_paths(read_after)
    assert site.live_files() <= before
    site.heal()
    wait_for(lambda: site.is_right(read_after))


def test_a_store_that_gets_full_anywhere_in_a_snapshot_leaves_no_file_of_it(site: Site) -> None:
    room = -1
    status, read_after = 503, ""
    while status != 200:
        room += 1
        before = site.live_files()
        read_after = site.write()
        site.lake.store.decide = NoWrites(after=room)
        status, message = site.load(read_after)
        site.heal()
        if status != 200:
            assert room < ROOM_MAX
            assert message.startswith("[storage-failed]")
            assert site.live_files() <= before, room
            assert site.rows(read_after) == site.expected()
    assert room > 4  # data, deletes, manifests, their list, the metadata
    assert site.rows(read_after) == site.expected()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_while_the_store_stands_still_loads_are_refused_in_time_and_lookups_go_on(site: Site) -> None:
    assert site.lake.store_pid is not None
    with stopped(site.lake.store_pid):
        for _ in range(4):
            read_after = site.write()
            status, message = site.load(read_after)
            assert (status, message.split()[0]) == (503, "[load-timeout]"), message
            site.check_other_read_paths(read_after, with_extract=False)
    wait_for(lambda: site.is_right(read_after))


def test_a_table_whose_files_are_in_a_place_that_never_answers_holds_up_no_other_table(site: Site) -> None:
    """Method: the network takes what is sent, and nothing ever comes back."""
    location = live_catalog(site.stack).load_table(f"app.{TABLE}").location()
    path = location.removeprefix("s3:/")
    site.lake.store.decide = lambda request: Fault.SILENT if request.target.startswith(path) else None
    for _ in range(4):
        status, message = site.load(site.write())
        assert (status, message.split()[0]) == (503, "[load-timeout]"), message
        assert site.rows(site.write(OTHER), OTHER) == site.expected(OTHER)
