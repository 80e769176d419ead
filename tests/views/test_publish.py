"""Publishing on a real catalog and table, with a Trino and a log that do what a test says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.table import Table

from tests.manual_clock import ManualClock
from tests.views.fake_trino import LOST_RACES, FakeTrino, contended, trino_error
from tests.views.live_table import A_WEEK, DAY_MS, FakeLog, commit, make_table
from thermocline.errors import (
    ForeignSnapshot,
    KafkaUnreachable,
    StorageFailed,
    TableMissing,
    TrinoRefused,
    TrinoUnreachable,
    ViewContended,
    ViewForeign,
)
from thermocline.iceberg.catalog import defined_by, open_catalog
from thermocline.iceberg.view_notes import read_view_notes
from thermocline.kafka.facts import OpenTransaction, TopicConfig
from thermocline.process.metrics import REGISTRY
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings, KafkaSettings, Settings, TableSettings, ViewsSettings
from thermocline.views.drop import drop_views
from thermocline.views.leases import (
    AFTER_REPLACEMENT_MS,
    RENEWED_SECONDS,
    WITHOUT_END_MS,
    held_views,
    hold,
    path_of,
)
from thermocline.views.publication import Publication
from thermocline.views.publish import PAUSE_SECONDS, ROUNDS_MAX, PublishRound, ViewPublisher
from thermocline.views.published import PublishedView
from thermocline.views.trino_client import Trino
from thermocline.views.watch import BOUNDED_PAUSE_SECONDS, InBackground, PublishWatch

COLUMNS: dict[str, str | dict[str, str]] = {"id": "int", "value": "string"}
BY_KEY, COLD, LIVE = "app.t_live_by_key", "app.t_cold", "app.t_live"
ALL = {LIVE, BY_KEY, COLD}
BY_PRODUCER = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=False)
TIMEOUT_SECONDS = 30.0


def at(offset: int) -> Seam:
    return Seam({("t", 0): offset})


class World:
    """A table, its log, Trino and a publisher."""

    def __init__(self, folder: Path, **table: Any) -> None:
        uri = f"sqlite:///{folder / 'catalog.db'}"
        options: dict[str, Any] = {"key": ("id",), "columns": COLUMNS, "format_version": 2} | table
        self.settings = Settings(
            kafka=KafkaSettings(bootstrap_servers="nowhere:1"),
            catalog=CatalogSettings(uri=uri, warehouse=str(folder / "warehouse")),
            tables={"t": TableSettings(identifier="app.t", topics=("t",), **options)},
        )
        self.catalog = open_catalog(self.settings.catalog, may_create=True)
        self.catalog.create_namespace("app")
        self.definition: LiveTable = self.settings.table("t").definition("t")
        self.table: Table = make_table(self.catalog, self.definition)
        self.clock = ManualClock()
        self.log = FakeLog(log_starts=at(0), log_ends=at(0))
        self.trino = FakeTrino()

    def publisher(self) -> ViewPublisher:
        log: Any = self.log
        return ViewPublisher(self.settings, "t", self.catalog, log, self.trino.client(), self.clock)

    def settings_of_server(self) -> Settings:
        """These settings with live views of a server's live tables."""
        served = self.settings.views.model_copy(update={"hot": "server"})
        return self.settings.model_copy(update={"views": served})

    def commit(self, offset: int, end: int | None = None, without_record: int = 0) -> int:
        """A commit up to an offset of the log, which ends there or beyond."""
        self.log.log_ends = at(offset if end is None else end)
        rows, at_ms = [{"id": 1, "value": str(offset)}], self.clock.now_ms()
        return commit(
            self.table, self.definition, rows, at(offset), at_ms=at_ms, without_record=without_record
        )

    def published(self, view: str = LIVE) -> PublishedView:
        found = PublishedView.parse(self.trino.comments[view.removeprefix("app.")])
        assert found is not None
        return found

    def alter(self, **changes: Any) -> None:
        """The next version of the table's definition."""
        self.definition = replace(self.definition, version=self.definition.version + 1, **changes)
        with self.table.transaction() as transaction:
            transaction.set_properties(defined_by(self.definition))

    def lease(self, view: str = LIVE) -> dict[str, int]:
        with self.table.io.new_input(path_of(self.table, view)).open() as source:
            found: dict[str, int] = json.loads(source.read())["snapshots"]
            return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_views_are_made_of_the_newest_snapshot_and_its_own_seam(world: World) -> None:
    snapshot_id = world.commit(10, end=15)
    done = world.publisher().publish()
    assert set(done.replaced) == ALL
    assert done.snapshot_id == snapshot_id
    live = next(
        sql for sql in world.trino.statements if "t_live" in sql and "by_key" not in sql.split("\n")[1]
    )
    assert f"BIGINT '{snapshot_id}'" in live
    assert "_partition_offset >= 10" in live
    assert {world.published(view).snapshot_id for view in ALL} == {snapshot_id}


def test_nothing_is_replaced_where_nothing_changed(world: World) -> None:
    world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    statements = len(world.trino.statements)
    done = publisher.publish()
    assert (set(done.kept), done.replaced) == (ALL, ())
    assert len(world.trino.statements) == statements


def test_records_that_are_not_committed_change_no_unbounded_view(world: World) -> None:
    world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    world.log.log_ends = at(1000)
    assert publisher.publish().replaced == ()


def test_the_cold_view_needs_no_server_and_no_log(world: World) -> None:
    """Method: Trino refuses to make a view of a live table, as it does while no server has it."""
    world.settings = world.settings_of_server()
    snapshot_id = world.commit(10)
    world.trino.hooks += [lambda _: None, _no_server]
    with pytest.raises(TrinoRefused):
        world.publisher().publish()
    assert set(world.trino.comments) == {COLD.removeprefix("app.")}
    assert world.published(COLD).snapshot_id == snapshot_id
    assert str(snapshot_id) in world.lease(COLD)


def _no_server(sql: str) -> None:
    assert '"live"."app"."t"' in sql
    raise trino_error("no server answers")


def test_views_of_a_live_table_stay_through_commits_and_need_no_lease(world: World) -> None:
    world.settings = world.settings_of_server()
    world.commit(10)
    publisher = world.publisher()
    assert set(publisher.publish().replaced) == ALL
    snapshot_id = world.commit(20)
    done = publisher.publish()
    assert (done.replaced, set(done.kept)) == ((COLD,), {LIVE, BY_KEY})
    assert world.published(COLD).snapshot_id == snapshot_id
    assert [world.published(view).snapshot_id for view in (LIVE, BY_KEY)] == [None, None]
    assert [world.published(view).until_ms for view in (LIVE, BY_KEY)] == [None, None]
    assert held_views(world.table) == [COLD]


def test_live_views_that_an_alteration_makes_unreadable_are_withdrawn_with_the_reason(world: World) -> None:
    """Method: topics of a pattern can't be named in SQL; the view of committed rows needs no topic."""
    world.commit(10)
    world.publisher().publish()
    world.alter(topic_patterns=("t.*",))
    snapshot_id = world.commit(20)
    done = world.publisher().publish()
    assert done.stop is not None
    assert done.stop.code == "views-unreadable"
    assert set(done.replaced) == ALL
    for view in (LIVE, BY_KEY):
        reason = world.published(view).withdrawn
        assert reason is not None
        assert reason.startswith(
            "[views-unreadable] a live view of table t can't be made any more: its topics"
        )
    assert world.published(COLD).snapshot_id == snapshot_id
    notes = read_view_notes(world.table.io, world.table.location())
    assert notes is not None
    assert [one.view for one in notes.views if one.withdrawn] == [LIVE, BY_KEY]
    statements = len(world.trino.statements)
    assert set(world.publisher().publish().kept) == ALL
    assert len(world.trino.statements) == statements, "once"


def test_a_table_that_never_had_live_views_has_none_to_withdraw(world: World) -> None:
    world.alter(topic_patterns=("t.*",))
    world.commit(10)
    done = world.publisher().publish()
    assert (done.stop, done.replaced) == (None, (COLD,))


def test_a_view_of_before_an_alteration_that_trino_refuses_now_does_not_stay(world: World) -> None:
    """Goal: no view shows columns that were dropped. One of the same definition stays: it is only older."""
    first = world.commit(10)
    world.publisher().publish()
    world.commit(20)
    world.trino.hooks += [_taken, _refused]
    with pytest.raises(TrinoRefused, match="no such column"):
        world.publisher().publish()
    assert world.published(LIVE).snapshot_id == first

    world.alter()
    newest = world.commit(30)
    world.trino.hooks += [_taken, _refused, _taken, _taken]
    done = world.publisher().publish()
    assert done.stop is not None
    assert done.stop.code == "trino-refused"
    assert "no such column" in (world.published(LIVE).withdrawn or "")
    assert {world.published(view).snapshot_id for view in (COLD, BY_KEY)} == {newest}
    notes = read_view_notes(world.table.io, world.table.location())
    assert notes is not None
    assert [(one.view, bool(one.withdrawn)) for one in notes.views] == [
        (COLD, False),
        (BY_KEY, False),
        (LIVE, True),
    ]
    done = world.publisher().publish()
    assert (done.stop, done.replaced) == (None, (LIVE,))


def _taken(sql: str) -> None:
    """A statement that Trino carries out."""


def _refused(sql: str) -> None:
    raise trino_error("no such column", name="COLUMN_NOT_FOUND")


def test_views_go_from_kafka_to_live_tables_and_back(world: World) -> None:
    of_kafka = world.settings
    world.commit(10)
    world.publisher().publish()
    world.settings = world.settings_of_server()
    assert set(world.publisher().publish().replaced) == {LIVE, BY_KEY}
    world.settings = of_kafka
    assert set(world.publisher().publish().replaced) == {LIVE, BY_KEY}
    assert set(world.publisher().publish().kept) == ALL


def test_a_commit_replaces_all_of_them(world: World) -> None:
    world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    snapshot_id = world.commit(20)
    assert set(publisher.publish().replaced) == ALL
    assert world.published().snapshot_id == snapshot_id


def test_a_filter_that_changed_replaces_them_at_the_same_snapshot(world: World, tmp_path: Path) -> None:
    world.commit(10)
    world.publisher().publish()
    table = world.settings.table("t").model_copy(update={"view_filter": "id = 7"})
    world.settings = world.settings.model_copy(update={"tables": {"t": table}})
    assert set(world.publisher().publish().replaced) == ALL
    assert all("id = 7" in statement for statement in world.trino.statements[-3:])


def test_the_view_that_reads_twice_has_literal_ends_where_times_are_the_producers(
    world: World,
) -> None:
    """Each record makes it older, so that it is looked at every two seconds."""
    world.log.config = BY_PRODUCER
    world.commit(10, end=15)
    publisher = world.publisher()
    done = publisher.publish()
    assert done.has_ends
    assert world.published().end == at(15)
    assert world.published(BY_KEY).end is None
    world.log.log_ends = at(16)
    assert publisher.publish().replaced == (LIVE,)
    assert world.published().end == at(16)


@pytest.mark.parametrize("options", [{"transactional": True}, {"views_bounded": True}])
def test_so_it_does_with_transactions_or_on_demand(tmp_path: Path, options: dict[str, Any]) -> None:
    world = World(tmp_path, **options)
    world.commit(10, end=15)
    world.publisher().publish()
    assert world.published().end == at(15)


def test_a_transaction_that_is_open_gives_it_ends_until_the_next_commit(world: World) -> None:
    """Whoever declared none: its records would come to light between two reads of one query."""
    world.commit(10, end=15)
    publisher = world.publisher()
    publisher.publish()
    assert world.published().end is None
    world.log.open = (OpenTransaction("t", 0, 15, 3),)
    assert LIVE in publisher.publish().replaced
    assert world.published().end == at(15)
    world.log.open = ()
    assert publisher.publish().has_ends, "the next one may be open in a moment"
    world.commit(20)
    publisher.publish()
    assert world.published().end is None


def test_a_commit_that_met_the_marker_of_a_transaction_gives_it_ends(world: World) -> None:
    world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    world.commit(20, without_record=1)
    assert publisher.publish().has_ends
    assert world.published().end == at(20)
    assert world.publisher().publish().has_ends, "it is the table that says so"


def test_only_the_views_of_the_settings_are_made(tmp_path: Path) -> None:
    world = World(tmp_path, views=("live_by_key", "cold"))
    world.commit(10)
    assert set(world.publisher().publish().replaced) == {BY_KEY, COLD}


def test_a_table_without_a_key_has_no_view_by_key(tmp_path: Path) -> None:
    world = World(tmp_path, key=(), key_from="value")
    world.commit(10, end=15)
    assert set(world.publisher().publish().replaced) == {LIVE, COLD}
    assert world.published().end is None


@pytest.mark.parametrize("said", LOST_RACES)
def test_a_lost_race_is_run_again_from_the_look(world: World, said: tuple[str, ...]) -> None:
    world.commit(10)
    world.trino.hooks = [partial(contended, said=said)] * 2
    assert set(world.publisher().publish().replaced) == ALL
    assert world.clock.monotonic() == pytest.approx(2 * PAUSE_SECONDS)


def test_lost_races_end(world: World) -> None:
    world.commit(10)
    world.trino.hooks = [contended] * (ROUNDS_MAX + 5)
    with pytest.raises(ViewContended) as caught:
        world.publisher().publish()
    assert "app.t_cold" in caught.value.what
    assert len(world.trino.hooks) == 5


def test_a_commit_during_a_publication_is_published_by_it(world: World) -> None:
    first = world.commit(10)
    newer: list[int] = []
    world.trino.hooks = [lambda _: newer.append(world.commit(20))]
    done = world.publisher().publish()
    assert done.snapshot_id == newer[0] != first
    assert {world.published(view).snapshot_id for view in ALL} == {newer[0]}


def test_a_publisher_that_hung_repairs_what_it_put_back(world: World) -> None:
    """Goal: an older view that replaced a newer one does not stay. Method: while one publisher's statement is
    on its way, there is a commit, and another publishes it.
    """
    world.commit(10)
    newer: list[int] = []

    def overtaken(_: str) -> None:
        newer.append(world.commit(20))
        world.publisher().publish()

    world.trino.hooks = [overtaken]
    world.publisher().publish()
    assert {world.published(view).snapshot_id for view in ALL} == {newer[0]}


def test_a_view_of_a_snapshot_that_we_do_not_see_yet_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two publishers, of which one was handed an older state by its catalog."""
    world.commit(10)
    older = world.catalog.load_table("app.t")
    newest = world.commit(20)
    world.publisher().publish()
    known = world.catalog.load_table("app.t").metadata.snapshots
    older.metadata = older.metadata.model_copy(update={"snapshots": known})
    publisher = world.publisher()
    monkeypatch.setattr("thermocline.views.publish.load_table", lambda *_: older)
    done = publisher.publish()
    assert set(done.newer) == ALL
    assert world.published().snapshot_id == newest


def test_the_table_is_loaded_after_the_look_at_the_views(world: World) -> None:
    """Goal: what a view shows is in the table as it was loaded. Method: a commit and its publication come
    right before the look; whoever loaded the table before would not know the snapshot, and put the view back.
    """
    first = world.commit(10)
    world.publisher().publish()
    other, own = world.publisher(), world.publisher()
    newer: list[int] = []

    def overtaken() -> None:
        newer.append(world.commit(20))
        other.publish()
        world.trino.statements.clear()

    world.trino.before_look = [overtaken]
    assert own.publish().snapshot_id == newer[0]
    assert [one for one in world.trino.statements if str(first) in one] == []


def test_what_is_not_ours_is_not_replaced(world: World) -> None:
    world.commit(10)
    world.trino.comments["t_live"] = "somebody's"
    with pytest.raises(ViewForeign) as caught:
        world.publisher().publish()
    assert caught.value.view == "lake.app.t_live"
    assert world.trino.statements == []


def test_the_lease_is_there_before_the_view(world: World) -> None:
    """And before what may fail: a view must never read a snapshot that nobody keeps."""
    first = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    second = world.commit(20)

    def look(_: str) -> None:
        assert set(world.lease(COLD)) == {str(first), str(second)}
        raise trino_error("no")

    world.trino.hooks = [look]
    with pytest.raises(TrinoRefused):
        publisher.publish()
    assert world.published(COLD).snapshot_id == first


def test_a_lease_lasts_as_long_as_the_view_and_the_queries_on_it(world: World) -> None:
    first = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    until_ms = world.published().until_ms
    assert until_ms is not None
    assert world.lease()[str(first)] == until_ms + AFTER_REPLACEMENT_MS
    second = world.commit(20)
    publisher.publish()
    assert world.lease()[str(first)] == until_ms + AFTER_REPLACEMENT_MS, "until the view was replaced"
    third = world.commit(30)
    publisher.publish()
    assert world.lease()[str(first)] == world.clock.now_ms() + AFTER_REPLACEMENT_MS
    world.clock.advance(AFTER_REPLACEMENT_MS / 1000 + 1)
    assert set(publisher.publish().kept) == ALL
    assert world.lease()[str(second)] == world.clock.now_ms() + AFTER_REPLACEMENT_MS
    assert str(first) not in world.lease()
    assert str(third) in world.lease()


def test_a_view_that_could_not_be_replaced_keeps_its_lease(world: World) -> None:
    """As after a crash between lease and view, or while Trino refuses."""
    first = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    kept_until_ms = world.lease()[str(first)]

    def refused(_: str) -> None:
        raise trino_error("no")

    for offset in (20, 30):
        world.commit(offset)
        world.trino.hooks = [lambda _: None, refused]
        with pytest.raises(TrinoRefused):
            publisher.publish()
        world.clock.advance(AFTER_REPLACEMENT_MS / 1000)
    assert world.published().snapshot_id == first
    assert world.lease()[str(first)] == kept_until_ms


def test_a_lease_that_another_publisher_overwrote_is_written_again(world: World) -> None:
    """Both read it, both write it: what the first one wrote is lost."""
    snapshot_id = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    lease = Path(path_of(world.table, LIVE).removeprefix("file://"))
    lease.write_text(json.dumps({"view": LIVE, "snapshots": {}}))
    world.clock.advance(RENEWED_SECONDS)
    assert set(publisher.publish().kept) == ALL
    assert str(snapshot_id) in world.lease()


def test_a_lease_of_another_snapshot_than_the_view_is_written_again(world: World) -> None:
    """Goal: who lost a race has overwritten the winner's lease, and mends it in the next round. Method: the
    statement of the one finds the view that the other made, of a commit in between.
    """
    world.commit(10)
    other, own = world.publisher(), world.publisher()
    other.publish()
    world.commit(20)
    newer: list[int] = []

    def overtaken(sql: str) -> None:
        newer.append(world.commit(30))
        other.publish()
        for view in ALL:
            Path(path_of(world.table, view).removeprefix("file://")).write_text('{"snapshots": {}}')
        contended(sql)

    world.trino.hooks = [overtaken]
    assert set(own.publish().kept) == ALL
    assert {view: str(newer[0]) in world.lease(view) for view in ALL} == dict.fromkeys(ALL, True)


def test_a_view_without_an_end_has_its_lease_renewed(world: World) -> None:
    snapshot_id = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    before = world.lease(COLD)[str(snapshot_id)]
    world.clock.advance(WITHOUT_END_MS / 2000 + 1)
    assert COLD in publisher.publish().kept
    assert world.lease(COLD)[str(snapshot_id)] > before


def test_a_lease_that_cannot_be_written_leaves_the_view(world: World) -> None:
    world.commit(10)
    lease = Path(path_of(world.table, COLD).removeprefix("file://"))
    lease.mkdir(parents=True)
    with pytest.raises(StorageFailed):
        world.publisher().publish()
    assert world.trino.statements == []


def gone(log: FakeLog) -> None:
    log.log_starts = at(12)


def remade(log: FakeLog) -> None:
    log.topic_id = "another"


def cut(log: FakeLog) -> None:
    log.log_ends = at(5)


def elsewhere(log: FakeLog) -> None:
    log.cluster = "another"


def noted(world: World) -> dict[str, tuple[int | None, str]]:
    notes = read_view_notes(world.table.io, world.table.location())
    assert notes is not None
    return {one.view: (one.snapshot_id, one.withdrawn) for one in notes.views}


def test_what_was_published_is_noted_beside_the_table(world: World) -> None:
    publisher = world.publisher()
    first = world.commit(3)
    publisher.publish()
    assert noted(world) == dict.fromkeys(ALL, (first, ""))
    second = world.commit(5)
    publisher.publish()
    assert noted(world) == dict.fromkeys(ALL, (second, ""))
    gone(world.log)
    publisher.publish()
    assert noted(world)[COLD] == (second, "")
    assert noted(world)[LIVE][0] is None
    assert noted(world)[LIVE][1].startswith("[offsets-gone] ")


def test_notes_that_cannot_be_left_hold_up_no_view(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("the store is full")

    monkeypatch.setattr("thermocline.views.noting.write_view_notes", refuse)
    world.commit(3)
    assert set(world.publisher().publish().replaced) == ALL
    assert "notes of the views not left: next time" in caplog.messages
    assert read_view_notes(world.table.io, world.table.location()) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (gone, "offsets-gone"),
        (remade, "log-replaced"),
        (cut, "log-replaced"),
        (elsewhere, "log-replaced"),
    ],
)
def test_a_log_that_cannot_be_trusted_withdraws_the_views_that_read_it(
    world: World, change: Callable[[FakeLog], None], code: str
) -> None:
    world.commit(10, end=15)
    publisher = world.publisher()
    publisher.publish()
    change(world.log)
    done = publisher.publish()
    assert done.stop is not None
    assert done.stop.code == code
    assert set(done.replaced) == {LIVE, BY_KEY}
    assert done.kept == (COLD,)
    for view in (LIVE, BY_KEY):
        reason = world.published(view).withdrawn or ""
        assert reason.startswith(f"[{code}] ")
        assert "thermocline " in reason, "it names the next command"
    assert "CAST(fail(" in world.trino.statements[-1]
    assert publisher.publish().replaced == (), "it is said once"


def test_they_are_withdrawn_whatever_else_fails(world: World) -> None:
    """That one view is not ours, or its lease can't be written, must not let the others answer wrongly."""
    world.commit(10, end=15)
    world.publisher().publish()
    world.trino.comments |= {"t_cold": "somebody's", "t_live": "somebody's"}
    gone(world.log)
    with pytest.raises(ViewForeign):
        world.publisher().publish()
    assert world.published(BY_KEY).withdrawn is not None
    assert world.trino.comments["t_live"] == "somebody's"


def test_tombstones_that_may_be_gone_withdraw_them_too(world: World) -> None:
    world.log.config = replace(world.log.config, is_compacted=True)
    world.commit(10, end=15)
    world.clock.advance(2 * DAY_MS / 1000)
    done = world.publisher().publish()
    assert done.stop is not None
    assert done.stop.code == "tombstones-gone"


def test_a_table_behind_for_longer_than_the_log_keeps_withdraws_them(world: World) -> None:
    """The log still reaches back to the seam, but may not in the next moment."""
    world.commit(10, end=15)
    world.publisher().publish()
    world.clock.advance(7 * DAY_MS / 1000)
    done = world.publisher().publish()
    assert done.stop is not None
    assert done.stop.code == "views-late"
    assert "thermocline ingest run t" in (world.published().withdrawn or "")


def test_a_view_with_literal_ends_refuses_where_compaction_keeps_nothing_for_sure(world: World) -> None:
    """Goal: the view that needs the topic's promise refuses, with what sets it; the others answer."""
    world.log.config = BY_PRODUCER
    world.log.retention = replace(A_WEEK, kept_ms=None, compaction_lag_ms=0)
    world.commit(10, end=15)
    done = world.publisher().publish()
    assert done.stop is not None
    reason = world.published(LIVE).withdrawn or ""
    assert "min.compaction.lag.ms of topic t" in reason
    assert "thermocline views check t" in reason
    assert world.published(BY_KEY).withdrawn is None


def test_withdrawn_views_come_back_with_the_next_commit(world: World) -> None:
    world.commit(10, end=15)
    publisher = world.publisher()
    publisher.publish()
    gone(world.log)
    publisher.publish()
    snapshot_id = world.commit(15)
    done = publisher.publish()
    assert set(done.replaced) == ALL
    assert world.published().withdrawn is None
    assert world.published().snapshot_id == snapshot_id


def test_kafka_away_leaves_the_views_as_they_are(world: World) -> None:
    """Nobody knows whether the log holds what the new snapshot lacks."""
    first = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    world.commit(20)
    world.log.error = KafkaUnreachable(bootstrap_servers="b", detail="d")
    with pytest.raises(KafkaUnreachable):
        publisher.publish()
    assert world.published().snapshot_id == first


def test_a_foreign_snapshot_leaves_the_views_as_they_are(world: World) -> None:
    first = world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    world.table.refresh()
    world.table.delete("id = 1")
    with pytest.raises(ForeignSnapshot):
        publisher.publish()
    assert world.published().snapshot_id == first


def test_a_table_that_was_rolled_back_leaves_the_views_and_the_next_commit_replaces_them(
    world: World,
) -> None:
    """Their own snapshot, its seam and the log still tell what Kafka acknowledged."""
    first = world.commit(10)
    newest = world.commit(20)
    publisher = world.publisher()
    publisher.publish()
    world.table.refresh()
    with world.table.manage_snapshots() as snapshots:
        snapshots.set_current_snapshot(first)
    assert set(publisher.publish().newer) == ALL
    with world.table.transaction() as transaction:
        transaction.set_properties({"thermocline.seam": at(20).to_json()})
    with pytest.raises(ForeignSnapshot):
        publisher.publish()
    assert {world.published(view).snapshot_id for view in ALL} == {newest}
    with world.table.transaction() as transaction:
        transaction.set_properties({"thermocline.seam": at(15).to_json()})
    rebased = world.commit(15)
    assert set(publisher.publish().replaced) == ALL
    assert {world.published(view).snapshot_id for view in ALL} == {rebased}
    assert world.published().snapshot_id != newest


def test_a_table_that_was_recreated_gets_its_own_views(world: World) -> None:
    world.commit(30)
    publisher = world.publisher()
    publisher.publish()
    world.catalog.drop_table("app.t")
    with pytest.raises(TableMissing):
        publisher.publish()
    world.table = make_table(world.catalog, world.definition)
    snapshot_id = world.commit(10)
    assert set(publisher.publish().replaced) == ALL
    assert {world.published(view).snapshot_id for view in ALL} == {snapshot_id}
    assert str(snapshot_id) in world.lease()


def test_files_that_cannot_be_deleted_do_not_make_the_views_older(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any) -> int:
        raise OSError("no such bucket")

    monkeypatch.setattr("thermocline.views.publication.remove_leftovers", away)
    world.commit(10)
    publication = Publication(world.settings, "t", world.clock, world.publisher())
    assert set(publication().replaced) == ALL
    assert watch_of(world, publication).once()
    assert [record.message for record in caplog.records].count(
        "files of earlier views not deleted: next time"
    ) == 1


def test_an_idle_table_is_published_again_before_its_views_end(world: World) -> None:
    """Nothing was committed; but the log was looked at again, and the table still holds all of it."""
    world.commit(10)
    publisher = world.publisher()
    publisher.publish()
    first = world.published().until_ms
    assert first is not None
    world.clock.advance(3 * DAY_MS / 1000)
    assert publisher.publish().replaced == ()
    world.clock.advance(DAY_MS / 1000)
    assert set(publisher.publish().replaced) == {LIVE, BY_KEY}
    later = world.published().until_ms
    assert later is not None
    assert later > first


def test_no_answer_and_a_refusal_are_told_apart(world: World) -> None:
    world.commit(10)

    def away(_: str) -> None:
        raise requests.ConnectionError("refused")

    world.trino.hooks = [away]
    with pytest.raises(TrinoUnreachable) as unreachable:
        world.publisher().publish()
    assert unreachable.value.retryable

    def denied(_: str) -> None:
        raise trino_error("Access Denied: Cannot create view\nat a.b.C", name="PERMISSION_DENIED")

    world.trino.hooks = [denied]
    with pytest.raises(TrinoRefused) as caught:
        world.publisher().publish()
    assert caught.value.name == "PERMISSION_DENIED"
    assert caught.value.detail == "Access Denied: Cannot create view"
    assert caught.value.next == "thermocline views check t"

    def broken(_: str) -> None:
        raise trino_error("Failed to load view: t_live", "wrapped", "No space left on device\nat a.b.C")

    world.trino.hooks = [broken]
    with pytest.raises(TrinoRefused) as caught:
        world.publisher().publish()
    assert caught.value.detail == "Failed to load view: t_live: No space left on device"


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (("",), "GENERIC_INTERNAL_ERROR"),
        (("", ""), "GENERIC_INTERNAL_ERROR: a.b.Exception"),
        (("Failed: no space", "no space"), "Failed: no space"),
    ],
)
def test_a_refusal_says_what_trino_says_and_why(world: World, said: tuple[str, ...], detail: str) -> None:
    def broken(_: str) -> None:
        raise trino_error(*said)

    world.commit(10)
    world.trino.hooks = [broken]
    with pytest.raises(TrinoRefused) as caught:
        world.publisher().publish()
    assert caught.value.detail == detail


def test_a_view_whose_name_sounds_like_a_race_is_refused_all_the_same(world: World) -> None:
    def denied(_: str) -> None:
        raise trino_error("Access Denied: Cannot create view app.concurrently_live", name="PERMISSION_DENIED")

    world.commit(10)
    world.trino.hooks = [denied]
    with pytest.raises(TrinoRefused):
        world.publisher().publish()


def watch_of(world: World, publish: Callable[[], Any] | None = None) -> PublishWatch:
    return PublishWatch("t", publish or world.publisher().publish, 60.0, world.clock)


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"table": "t", **labels}) or 0.0


def test_a_failure_to_publish_is_counted_and_survived(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = world.commit(10)
    watch = watch_of(world)
    assert watch.once()
    world.commit(20)
    world.clock.advance(5)

    def denied(_: str) -> None:
        raise trino_error("no", name="PERMISSION_DENIED")

    before = metric("thermocline_view_failures_total", code="trino-refused")
    world.trino.hooks = [denied, denied]
    assert not watch.once()
    assert not watch.once()
    assert metric("thermocline_view_failures_total", code="trino-refused") == before + 2
    assert metric("thermocline_views_age_seconds") == pytest.approx(5)
    world.clock.advance(2)
    assert metric("thermocline_views_age_seconds") == pytest.approx(7), "while nobody publishes, too"
    assert [record.message for record in caplog.records].count("views not published: they are older") == 1
    assert world.published().snapshot_id == first
    assert watch.once()
    assert metric("thermocline_views_age_seconds") == 0


def test_a_bug_in_publishing_does_not_end_ingest(world: World) -> None:
    def broken() -> Any:
        raise ZeroDivisionError

    assert not watch_of(world, broken).once()
    assert metric("thermocline_view_failures_total", code="internal-error") >= 1


def test_a_stop_counts_as_a_failure(world: World) -> None:
    world.commit(10, end=15)
    gone(world.log)
    assert not watch_of(world).once()


def test_views_with_ends_are_looked_at_more_often(world: World) -> None:
    world.commit(10)
    watch = watch_of(world)
    watch.once()
    assert watch.pause_seconds == 30
    world.log.config = BY_PRODUCER
    watch.once()
    assert watch.pause_seconds == BOUNDED_PAUSE_SECONDS


def test_a_slow_trino_holds_up_no_commit_and_the_last_one_is_published(world: World) -> None:
    """Goal: `wake` returns while a publication hangs; of what was committed meanwhile the last is published.

    Trino answers the first statement only when the test lets it.
    """
    world.commit(10)
    reached, released = threading.Event(), threading.Event()

    def hang(_: str) -> None:
        reached.set()
        assert released.wait(TIMEOUT_SECONDS)

    world.trino.hooks = [hang]
    with InBackground(watch_of(world)) as views:
        assert reached.wait(TIMEOUT_SECONDS)
        committed = []
        for offset in (20, 30, 40):
            committed.append(world.commit(offset))
            views.wake()
        released.set()
    assert world.published().snapshot_id == committed[-1]
    shown = {re.search(r"BIGINT '(\d+)'", statement) for statement in world.trino.statements}
    assert len({found[1] for found in shown if found}) <= 2


def test_a_commit_at_the_end_of_a_publication_is_looked_at_next(world: World) -> None:
    """A commit that comes when the table was loaded already must not wait for the next pause."""
    woken, stop, published = threading.Event(), threading.Event(), []

    def publish() -> Any:
        published.append(woken.is_set())
        if len(published) == 1:
            woken.set()
        else:
            stop.set()
            woken.set()
        return PublishRound(1)

    thread = threading.Thread(target=watch_of(world, publish).follow, args=(woken, stop), daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS / 3)  # the pause is as long as the timeout
    assert len(published) == 2


def test_the_end_publishes_what_ended_ingest(world: World) -> None:
    world.commit(10, end=15)
    with InBackground(watch_of(world)):
        gone(world.log)
    assert world.published().withdrawn is not None


def test_dropping_leaves_what_is_not_ours(world: World) -> None:
    world.commit(10)
    world.publisher().publish()
    pinned = json.loads(world.trino.comments["t_live"] or "")
    pinned["thermocline"] |= {"mode": "pinned"}
    foreign = json.loads(json.dumps(pinned))
    foreign["thermocline"] |= {"table": "app.t_at"}
    world.trino.comments |= {
        "t_at_x": json.dumps(pinned),
        "t_at_at_x": json.dumps(foreign),
        "t_at_mine": "somebody's",
        "t": None,
        "t_live_by_key": "somebody's",
    }
    client = world.trino.client()
    assert drop_views(world.settings, "t", world.catalog, client, "x") == ["app.t_at_x"]
    assert set(drop_views(world.settings, "t", world.catalog, client)) == {LIVE, COLD}
    assert set(world.trino.comments) == {"t_at_at_x", "t_at_mine", "t", "t_live_by_key"}
    assert not Path(path_of(world.table, LIVE).removeprefix("file://")).exists()


@pytest.mark.parametrize("only", ["x", None])
def test_dropping_again_releases_what_an_earlier_drop_left(world: World, only: str | None) -> None:
    """Method: a folder in place of a lease fails the first drop; another view was dropped in Trino."""
    snapshot_id = world.commit(10)
    world.publisher().publish()
    live = json.loads(world.trino.comments["t_live"] or "")["thermocline"]
    world.trino.comments["t_at_x"] = json.dumps({"thermocline": live | {"mode": "pinned"}})
    hold(world.table, "app.t_at_y", snapshot_id, None, world.clock.now_ms())
    client = world.trino.client()
    hidden = {**world.trino.comments}
    world.trino.comments.clear()  # as with another `views.lake`, or without the right to see it
    assert drop_views(world.settings, "t", world.catalog, client, only) == []
    assert "app.t_at_y" in held_views(world.table)
    world.trino.comments.update({**hidden, "t": None})
    in_the_way = Path(path_of(world.table, "app.t_at_x").removeprefix("file://"))
    in_the_way.mkdir()
    with pytest.raises(StorageFailed):
        drop_views(world.settings, "t", world.catalog, client, only)
    assert "t_at_x" not in world.trino.comments
    in_the_way.rmdir()
    hold(world.table, "app.t_at_x", snapshot_id, None, world.clock.now_ms())
    assert "app.t_at_x" in drop_views(world.settings, "t", world.catalog, client, only)
    assert set(held_views(world.table)) == (set() if only is None else ALL | {"app.t_at_y"})
    assert drop_views(world.settings, "t", world.catalog, client, only) == []


def test_trino_is_asked_as_the_settings_say(world: World) -> None:
    settings = world.settings.views.model_copy(update={"url": "https://trino.example:8443", "user": "ann"})
    world.trino.client(settings).rows("SELECT table_name FROM table_comments")
    options = world.trino.options
    assert (options["host"], options["port"], options["http_scheme"]) == ("trino.example", 8443, "https")
    assert options["user"] == "ann"


def test_an_address_where_nobody_listens_is_an_error_of_ours() -> None:
    with pytest.raises(TrinoUnreachable):
        Trino(ViewsSettings(url="http://127.0.0.1:1")).rows("SELECT 1")


def test_an_address_where_another_program_answers_is_an_error_of_ours() -> None:
    """As by default: a server of ours listens on the same port as Trino. This one knows no POST."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        with pytest.raises(TrinoUnreachable) as caught:
            Trino(ViewsSettings(url=f"http://127.0.0.1:{other.server_port}")).rows("SELECT 1")
        thread.join()
    assert caught.value.detail == "it answered with error 501; is it Trino?"
