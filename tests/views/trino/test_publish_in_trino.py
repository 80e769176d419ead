"""Publishing into a real Trino, with the rights of the publisher, on a real log; analysts ask the views."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.table import Table
from trino.exceptions import TrinoQueryError

from tests.manual_clock import ManualClock
from tests.views.live_table import commit, make_table
from tests.views.trino.conftest import ANALYST, TrinoSite
from thermocline import cli
from thermocline.errors import OffsetsGone
from thermocline.iceberg.catalog import open_catalog
from thermocline.kafka.log import Log
from thermocline.process.clock import Clock, SystemClock
from thermocline.rules.identity import MARGIN_MS_MAX
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read.private import extract
from thermocline.settings import Settings, ViewsSettings
from thermocline.views.leases import held_views
from thermocline.views.orphaned_metadata import KEPT_MS, remove_leftovers
from thermocline.views.pin import pin_view
from thermocline.views.publish import ViewPublisher
from thermocline.views.trino_client import Trino

pytestmark = [pytest.mark.trino, pytest.mark.full]

TOPIC, TABLE = "profiles", "app.profiles"
LIVE, BY_KEY, COLD = (f"lake.app.profiles_{mode}" for mode in ("live", "live_by_key", "cold"))
VIEWS = (LIVE, BY_KEY, COLD)
TIMEOUT_SECONDS = 60.0
LIFE_SECONDS = 15  # of the view that ends in a test: longer than it takes to make it

Key = tuple[int, str, str]


@dataclass
class World:
    """The table, its topic, and what the log says by a replay into a ``dict``."""

    site: TrinoSite
    settings: Settings
    table: Table
    log: Log
    begins: Seam
    records: list[tuple[Key, str | None, int, int]] = field(default_factory=list)

    def send(self, *records: tuple[Key, str | None]) -> None:
        """Appends records, None being a delete, each key always to the same partition."""
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers})

        def noted(key: Key, value: str | None) -> Callable[[Any, Any], None]:
            def landed(error: Any, message: Any) -> None:
                assert error is None, error
                self.records.append((key, value, message.partition(), message.offset()))

            return landed

        for key, value in records:
            text = json.dumps(dict(zip(("app_id", "user_id", "key"), key, strict=True)))
            row = None if value is None else json.dumps({"value": value})
            producer.produce(TOPIC, key=text, value=row, partition=key[0] % 2, on_delivery=noted(key, value))
        assert producer.flush(TIMEOUT_SECONDS) == 0

    @property
    def ends(self) -> Seam:
        return self.log.ends([TOPIC])

    def rows(self, end: Seam | None = None) -> dict[Key, str]:
        """The rows as of those ends, or as of now."""
        found: dict[Key, str] = {}
        for key, value, partition, offset in self.records:
            if end is None or end.covers(TOPIC, partition, offset):
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    def commit(self) -> tuple[int, Seam]:
        """Makes the table hold all of the log, as ingest would; its snapshot and seam."""
        seam = self.ends
        rows = [
            {"app_id": app_id, "user_id": user, "key": key, "value": value}
            for (app_id, user, key), value in self.rows(seam).items()
        ]
        definition = self.settings.table("profiles").definition("profiles")
        facts = self.log.describe([TOPIC])[TOPIC]
        snapshot_id = commit(
            self.table,
            definition,
            rows,
            seam,
            at_ms=SystemClock().now_ms(),
            cluster_id=self.log.cluster_id(),
            topic_ids={TOPIC: facts.topic_id},
        )
        return snapshot_id, seam

    def publisher(self, clock: Clock | None = None) -> ViewPublisher:
        catalog = open_catalog(self.settings.catalog)
        trino = Trino(self.settings.views)
        return ViewPublisher(self.settings, "profiles", catalog, self.log, trino, clock or SystemClock())

    def ask(self, view: str, where: str = "true") -> dict[Key, str]:
        """The rows that an analyst sees."""
        sql = f"SELECT app_id, user_id, key, value FROM {view} WHERE {where}"
        found = self.site.query(sql, user=ANALYST)
        rows = {(row[0], row[1], row[2]): row[3] for row in found}
        assert len(rows) == len(found), "a key stands in two rows"
        return rows

    def wait_for(self, view: str, rows: dict[Key, str]) -> None:
        """Returns once the view gives these rows: its margin hides what has just come."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (found := self.ask(view)) != rows:
            assert time.monotonic() < deadline, f"{view}: {found} for {rows}"
            time.sleep(0.1)

    def refused(self, view: str, where: str = "true") -> str:
        with pytest.raises(TrinoQueryError) as caught:
            self.ask(view, where)
        return str(caught.value.message)

    def has_ended(self, view: str) -> bool:
        try:
            self.ask(view)
        except TrinoQueryError as error:
            return "expired" in error.message
        return False

    def shown(self) -> set[int]:
        """The snapshots that the views are of."""
        sql = (
            "SELECT comment FROM system.metadata.table_comments WHERE catalog_name = 'lake' "
            "AND schema_name = 'app' AND table_name LIKE 'profiles\\_%' ESCAPE '\\'"
        )
        found = [json.loads(comment)["thermocline"] for (comment,) in self.site.query(sql)]
        return {int(one["snapshot_id"]) for one in found}


@pytest.fixture
def world(site: TrinoSite) -> Iterator[World]:
    table = site.settings.table("profiles").model_copy(update={"format_version": 2})
    views = ViewsSettings(url=site.trino.url, margin_seconds=0.2)
    settings = site.settings.model_copy(update={"views": views, "tables": {"profiles": table}})
    log = Log(settings.kafka)
    made = make_table(site.catalog, table.definition("profiles"))
    # Records of other tests are before its first seam.
    yield World(site, settings, made, log, log.ends([TOPIC]))
    site.query(f"DROP VIEW IF EXISTS {LIVE}")
    for view in VIEWS[1:]:
        site.query(f"DROP VIEW IF EXISTS {view}")
    site.catalog.drop_table(TABLE)


def test_views_follow_the_log_at_once_and_the_table_when_they_are_published(world: World) -> None:
    """Goal: an answer is never wrong between a commit and its publication; it's older only in where its cold
    rows come from. Method: a publisher that dies there is one that is never called.
    """
    world.send(((1, "ann", "a"), "1"), ((2, "bob", "b"), "2"), ((1, "eve", "c"), "3"))
    first, seam = world.commit()
    assert len(world.publisher().publish().replaced) == 3
    assert world.shown() == {first}
    world.send(((1, "ann", "a"), None), ((2, "bob", "b"), "22"), ((3, "new", "d"), "4"))
    assert world.ask(BY_KEY) == world.rows()
    world.wait_for(LIVE, world.rows())
    assert world.ask(BY_KEY, "app_id = 2 AND user_id = 'bob'") == {(2, "bob", "b"): "22"}
    assert world.ask(COLD) == world.rows(seam)

    second, newer = world.commit()  # and nobody publishes it
    world.send(((3, "new", "d"), None), ((1, "ann", "a"), "again"))
    assert world.ask(BY_KEY) == world.rows()
    world.wait_for(LIVE, world.rows())
    assert world.ask(COLD) == world.rows(seam)

    publisher = world.publisher()
    publisher.publish()
    assert world.shown() == {second}
    assert world.ask(BY_KEY) == world.rows()
    world.wait_for(LIVE, world.rows())
    assert world.ask(COLD) == world.rows(newer)
    assert publisher.publish().replaced == ()


def test_two_publishers_and_commits_end_with_the_newest(world: World) -> None:
    """Both publish as fast as they can while there are commits; neither fails, and the newest stands."""
    world.send(((1, "ann", "a"), "0"))
    newest, _ = world.commit()
    stop, errors = threading.Event(), []

    def publish() -> None:
        publisher = world.publisher()
        try:
            while not stop.is_set():
                publisher.publish()
        except Exception as error:  # noqa: BLE001  it is raised below
            errors.append(error)

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(4):
        world.send(((1, "ann", "a"), str(number)), ((2, str(number), "b"), "x"))
        newest, _ = world.commit()
    stop.set()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert errors == []
    world.publisher().publish()
    assert world.shown() == {newest}
    assert world.ask(BY_KEY) == world.rows()


def test_withdrawn_views_fail_with_the_reason_and_the_command(world: World) -> None:
    world.send(((1, "ann", "a"), "1"))
    _, seam = world.commit()
    publisher = world.publisher()
    publisher.publish()
    world.send(((1, "ann", "a"), "2"), ((1, "ann", "a"), "3"))
    admin = AdminClient({"bootstrap.servers": world.settings.kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(TOPIC, 1, seam[TOPIC, 1] + 1)])[
        TopicPartition(TOPIC, 1, seam[TOPIC, 1] + 1)
    ].result(TIMEOUT_SECONDS)
    done = publisher.publish()
    assert isinstance(done.stop, OffsetsGone)
    for view in (LIVE, BY_KEY):
        for where in ("true", "app_id = 1", "app_id = 99 AND value IS NULL"):
            message = world.refused(view, where)
            assert "[offsets-gone]" in message
            assert "thermocline ingest accept-gap profiles" in message
    assert world.ask(COLD) == world.rows(seam)
    newer, _ = world.commit()  # as after accept-gap
    publisher.publish()
    assert world.shown() == {newer}
    assert world.ask(BY_KEY) == world.rows()


def test_a_view_that_has_ended_fails_and_the_next_publication_brings_it_back(world: World) -> None:
    """The publisher's clock is behind by nearly as long as the topic keeps records, so that views soon end.

    Trino makes no view that has ended already.
    """
    world.send(((1, "ann", "a"), "1"))
    world.commit()
    retention_ms = world.log.retentions([TOPIC])[TOPIC].kept_ms
    assert retention_ms is not None
    behind_ms = retention_ms - MARGIN_MS_MAX - LIFE_SECONDS * 1000
    world.publisher(ManualClock(SystemClock().now_ms() - behind_ms)).publish()
    time.sleep(LIFE_SECONDS)  # to ask meanwhile would cost much and show nothing
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for view in (LIVE, BY_KEY):
        while not world.has_ended(view):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert "expired" in world.refused(view, "app_id = 99")
    assert world.ask(COLD) == world.rows()
    world.publisher().publish()
    assert world.ask(BY_KEY) == world.rows()


def test_a_pinned_view_equals_the_extract_of_its_read_point(world: World) -> None:
    """And goes on to, whatever comes after."""
    world.send(*(((number % 3, f"u{number}", "k"), str(number)) for number in range(40)))
    snapshot_id, seam = world.commit()
    world.send(*(((number % 3, f"u{number}", "k"), None if number % 4 else "hot") for number in range(20)))
    point = ReadPoint(snapshot_id, seam, world.ends)
    world.send(((0, "u0", "k"), "later"), ((7, "new", "k"), "later"))
    sink = io.BytesIO()
    extract(world.settings, "profiles", None, "parquet", sink, point, lambda _: None)
    rows = {
        (row["app_id"], row["user_id"], row["key"]): row["value"] for row in pq.read_table(sink).to_pylist()
    }
    trino, clock = Trino(world.settings.views), SystemClock()
    world.table.refresh()
    pinned = pin_view(world.settings, "profiles", world.table, point, world.log, trino, clock, "report")
    view = "lake.app.profiles_at_report"
    assert ".".join(("lake", *pinned.schema_and_name)) == view
    assert rows == world.rows(point.end)
    assert world.ask(view) == rows
    world.commit()
    assert world.ask(view) == rows
    world.site.query(f"DROP VIEW {view}")


def test_leftovers_of_replaced_views_go_and_the_views_stay(world: World) -> None:
    """Folders that are young, of another view or not Trino's stay, too."""
    place = Path(world.table.location().removeprefix("file://")).parent
    views = [view.rpartition(".")[2] for view in VIEWS]
    earlier = set(place.iterdir())  # of views that were dropped, which have other ids
    for number in range(3):
        world.send(((1, "ann", "a"), str(number)))
        world.commit()
        world.publisher().publish()
    folders = {view: sorted({*place.glob(f"{view}-{'?' * 32}")} - earlier) for view in views}
    assert min(map(len, folders.values())) >= 3
    foreign = place / f"{views[0]}-{'0' * 32}"
    (foreign / "metadata").mkdir(parents=True)
    (foreign / "metadata" / "00001.metadata.json").write_text('{"view-uuid": "another"}')
    catalog, now_ms = open_catalog(world.settings.catalog), SystemClock().now_ms()
    assert remove_leftovers(catalog, "app", views, now_ms) == 0, "they are young"
    later_ms = now_ms + KEPT_MS + 60_000
    removed = remove_leftovers(catalog, "app", views, later_ms)
    assert removed >= 3
    assert foreign.exists()
    assert all(folder.exists() for folder in earlier)
    for view in views:
        left = [one for one in folders[view] if one.exists()]
        assert 1 <= len(left) <= 2, "the one in use, and the one before it"
    assert world.ask(BY_KEY) == world.rows()
    assert world.ask(COLD) == world.rows()
    world.send(((1, "ann", "a"), "after"))
    world.commit()
    world.publisher().publish()
    assert world.ask(COLD) == world.rows()


def test_the_commands_publish_check_pin_and_drop(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.send(((1, "ann", "a"), "1"))
    snapshot_id, seam = world.commit()
    world.send(((1, "ann", "a"), "2"))
    catalog = world.settings.catalog
    config = tmp_path / "thermocline.toml"
    config.write_text(f"""
[kafka]
bootstrap_servers = "{world.settings.kafka.bootstrap_servers}"
[catalog]
uri = "{catalog.uri}"
warehouse = "{catalog.warehouse}"
[views]
enabled = true
url = "{world.site.trino.url}"
[tables.profiles]
identifier = "{TABLE}"
topics = ["{TOPIC}"]
key = ["app_id", "user_id", "key"]
format_version = 2
[tables.profiles.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
updated_at = "timestamptz"
""")

    def run(*arguments: str) -> tuple[int, Any]:
        code = cli.run(["--config", str(config), *arguments, "--json"])
        out = capsys.readouterr()
        return code, json.loads(out.out or out.err or "null")

    code, checked = run("views", "check", "profiles")
    assert code == 1
    assert {one["fix"] for one in checked["findings"] if one["subject"].startswith("view ")} == {
        f"thermocline --config {config} views publish profiles"
    }
    code, rendered = run("views", "render", "profiles", "--mode", "live")
    assert code == 0
    assert list(rendered["statements"]) == ["app.profiles_live"]
    assert run("views", "publish", "profiles")[0] == 0
    assert run("views", "publish", "profiles")[0] == 10
    code, checked = run("views", "check", "profiles")
    assert (code, [one for one in checked["findings"] if one["fix"]]) == (0, [])
    code, status = run("status")
    assert [view["problem"] for view in status["tables"][0]["views"]] == ["", "", ""]
    point = ReadPoint(snapshot_id, seam, world.ends).to_header()
    code, pinned = run("views", "pin", "profiles", "--at", point)
    assert code == 0
    assert world.ask(pinned["view"]) == {(1, "ann", "a"): "2"}
    left = {view for view in held_views(world.table) if view.startswith("app.profiles_at_")}  # also of before
    standing = {f"app.profiles_{mode}" for mode in ("live", "live_by_key", "cold")}
    assert pinned["view"].removeprefix("lake.") in left
    code, dropped = run("views", "drop", "profiles")
    assert code == 0
    assert set(dropped["dropped"]) == standing | left
    assert held_views(world.table) == []
    assert run("views", "drop", "profiles")[0] == 10
    assert world.shown() == set()
