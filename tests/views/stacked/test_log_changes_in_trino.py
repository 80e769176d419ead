"""Views of a real ingest whose log or table changes under them: answers are right, or refused with a reason.

What `test_publish_in_trino` shows with commits of its own is not shown again here.
"""

from __future__ import annotations

import io

import pytest
from trino.exceptions import TrinoQueryError

from tests.behaviour.live import MANY, wait_for
from tests.behaviour.topic import APP
from tests.views.stacked.viewed import PUBLISHER, Viewed, ask
from thermocline.dev.stack import TRINO_ADMIN, Stack
from thermocline.errors import ExitCode, ForeignSnapshot, OffsetsGone
from thermocline.iceberg.catalog import definition_of
from thermocline.iceberg.files import plan_files
from thermocline.process.clock import SystemClock
from thermocline.serving.read import private
from thermocline.views import groups
from thermocline.views.pin import pin_view
from thermocline.views.trino_client import Trino

pytestmark = pytest.mark.trino

LIVE_MODES = ("live", "live_by_key")
KEPT_SECONDS = 40  # by a topic: much longer than it takes to publish, and no longer than the other tests take


@pytest.fixture(scope="module", autouse=True)
def outlived(stack: Stack) -> Viewed:
    """A table whose views end while the other tests run: ingest stopped after they were published."""
    live = Viewed(stack, "outlived", partitions=1, retention_ms=str(KEPT_SECONDS * 1000))
    live.write(range(3), "one")
    live.ingest()
    live.publish()
    live.write(range(3), "two")
    has_ended(live)  # where they answer still, they are right
    return live


@pytest.mark.full
def test_views_of_a_snapshot_long_replaced_are_right_and_so_are_those_of_an_empty_window(
    stack: Stack,
) -> None:
    """Method: two commits that nobody publishes, of which each deletes rows and brings others back."""
    live = Viewed(stack, "aged", partitions=3)
    live.write([0, 1, 3, 4, 6], "old")  # the third partition stays idle
    live.ingest()
    live.publish()
    published = live.newest_id()
    for number in range(2):
        live.write([0, 1, 3, 4, 6, 7], f"{number}")
        live.write([number % 2 * 3, 6 if number % 2 else 7], None)
        live.ingest()
        assert set(live.check().values()) == {published}
    assert live.newest_id() != published

    live.publish()
    assert set(live.shown().values()) == {live.newest_id()}
    for mode in (*LIVE_MODES, "cold"):
        assert live.ask(mode) == live.written()
    live.write([0], None)
    live.check()


@pytest.mark.full
def test_records_of_a_partition_that_came_after_the_views_are_seen_before_the_next_ones(stack: Stack) -> None:
    live = Viewed(stack, "widened", partitions=1)
    live.write([0, 1], "old")
    live.ingest()
    live.publish()
    live.add_partitions(3)
    for user, partition in ((2, 1), (3, 2), (4, 2)):
        live.topic.send((APP, f"u{user}", "plan"), "new", partition)
    live.topic.send((APP, "u4", "plan"), None, 2)
    live.topic.flush()
    live.check()
    assert live.ask("live_by_key", f"app_id = {APP} AND user_id = 'u3'") == {(APP, "u3", "plan"): "new"}

    live.ingest()  # of which the views know nothing
    live.topic.send((APP, "u3", "plan"), "newer", 2)
    live.topic.flush()
    live.check()
    live.publish()
    live.check()


@pytest.mark.full
def test_partitions_whose_offsets_lie_apart_are_read_in_several_scans_each_from_its_own(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: ten partitions, each longer than the one before; another scan costs nothing, so that there are
    as many as there may be, and two of them read partitions of different seams together.
    """
    monkeypatch.setattr(groups, "SCAN_COST_RECORDS", 0)
    live = Viewed(stack, "spread", partitions=10)
    for partition in range(10):
        for number in range(1 + 3 * partition):
            live.topic.send((APP, f"u{partition}", f"k{number % 7}"), f"cold {number}", partition)
    live.topic.flush()
    live.ingest()
    live.publish()
    ((statement,),) = ask(stack, f"SHOW CREATE VIEW {live.view('live_by_key')}", PUBLISHER)
    assert statement.replace('"', "").count("kafka.") == groups.GROUPS_MAX + 1, (
        "and one scan for partitions to come"
    )
    for partition in range(10):
        for number in range(2 + partition % 3):
            live.topic.send((APP, f"u{partition}", f"k{number}"), None if number else "hot", partition)
        live.topic.send((APP, f"u{partition}", f"new {partition}"), "hot", partition)
    live.topic.flush()
    live.check()


@pytest.mark.full
def test_a_table_rolled_back_is_shown_as_it_was_until_its_operator_has_decided(stack: Stack) -> None:
    """Goal: the views go on from the snapshot that they are of, whose rows and offsets belong together; none
    is made of a table that somebody else moved. Afterwards they follow the table again.
    """
    live = Viewed(stack, "rolled_back")
    live.write(range(6), "one")
    live.ingest()
    first = live.newest_id()
    live.write([1, 3], "two")
    live.write([0], None)
    live.ingest()
    live.publish()
    later = live.newest_id()
    with live.table().manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(first)
    assert live.newest_id() == first
    live.write([5], "three")

    with pytest.raises(ForeignSnapshot):
        live.publish()
    assert set(live.check().values()) == {later}

    stop = live.stopped(by=ForeignSnapshot)
    assert live.run_next(stop) == ExitCode.DONE  # it publishes, too, or leaves that to the next commit
    live.check()
    live.ingest()
    live.publish()
    assert set(live.check().values()) == {live.newest_id()}


def test_ingest_that_finds_the_log_cut_withdraws_the_views_and_brings_them_back(stack: Stack) -> None:
    """Method: `ingest run` as typed stops at once; what it leaves says why, and what to do."""
    live = Viewed(stack, "cut_off", partitions=1)
    live.write(range(3), "one")
    live.ingest()
    live.publish()
    before = live.written()
    seam = live.state().seam
    live.write(range(3), "two")
    live.cut({0: seam[live.name, 0] + 1})

    assert live.run("ingest", "run", live.name, "--once") == OffsetsGone.exit_code
    for mode in LIVE_MODES:
        for where in ("true", f"app_id = {APP} AND user_id = 'u9'"):
            assert "[offsets-gone]" in live.refusal(mode, where)
            assert f"thermocline ingest accept-gap {live.name}" in live.refusal(mode, where)
    assert live.ask("cold") == before

    assert live.run_next(live.stopped(by=OffsetsGone)) == ExitCode.DONE
    live.ingest()
    live.publish()
    after = live.written() | {(APP, "u0", "plan"): "one"}  # its record is lost
    for mode in (*LIVE_MODES, "cold"):
        assert live.ask(mode) == after


@pytest.mark.full
def test_ingest_stopped_for_longer_than_the_topic_keeps_records_ends_the_views(outlived: Viewed) -> None:
    """Goal: they are right for as long as they answer; once a record may be gone they refuse, whoever has
    noticed by then, and though nobody publishes any more.
    """
    live, seam = outlived, outlived.state().seam
    wait_for(lambda: has_ended(live))
    live.cut({0: seam[live.name, 0] + 2})  # as retention does sooner or later
    for mode in LIVE_MODES:
        for where in ("true", f"app_id = {APP} AND user_id = 'u9'"):
            assert "expired" in live.refusal(mode, where)
    assert live.ask("cold") == live.written(seam)
    live.publish()
    for mode in LIVE_MODES:
        assert "[offsets-gone]" in live.refusal(mode)


def has_ended(live: Viewed) -> bool:
    """Whether no view of the log answers any more; as long as one does, it is right."""
    try:
        assert live.ask("live_by_key") == live.written()
    except TrinoQueryError:
        return bool(live.refusal("live"))
    return False


@pytest.mark.full
def test_a_table_that_trino_optimized_is_gone_on_with(stack: Stack) -> None:
    """Method: files with deletes, and small ones, which Trino makes one of, in whatever order."""
    live = Viewed(stack, "optimized")
    live.write_many()
    live.ingest()
    live.write(MANY[::3], "two")
    live.write(MANY[1::3], None)
    live.ingest()
    before = live.newest_id()
    for procedure in ("optimize", "optimize_manifests"):
        ask(stack, f"ALTER TABLE lake.app.{live.name} EXECUTE {procedure}", TRINO_ADMIN)
    assert live.newest_id() != before
    live.write(MANY[2::9], "three")
    live.write(MANY[::9], None)
    live.ingest()
    assert live.rows() == live.written()
    live.publish()
    live.check()
    assert live.run("verify", live.name) == ExitCode.DONE


@pytest.mark.full
def test_views_are_right_while_the_table_gets_more_buckets_and_a_pinned_one_stays(stack: Stack) -> None:
    """Method: after the alteration there are files of both numbers; then maintenance splits the others."""
    live = Viewed(stack, "split")
    live.write_many()
    live.write(range(60), "before")
    live.ingest()
    live.publish()
    pinned = _pinned(live)
    before = sorted(ask(stack, f"SELECT * FROM {pinned}"))
    live.config_path.write_text(live.config_path.read_text().replace("buckets = 2", "buckets = 8"))
    assert live.run("table", "alter", live.name, "--yes") == ExitCode.DONE
    for kept in (True, False):
        live.write(range(30), f"after {kept}")
        live.write(range(40, 50), None)
        live.ingest()
        live.write(range(20, 45), "hot")
        live.publish()
        live.check()
        table = live.table()
        assert {file.part.of for file in plan_files(table, live.newest_id())} == ({2, 8} if kept else {8})
        assert sorted(ask(stack, f"SELECT * FROM {pinned}")) == before
        if kept:
            assert live.run("maintain", "run", live.name) in (ExitCode.DONE, ExitCode.PARTLY_DONE)
    assert definition_of(live.table(), live.name).buckets == 8


def _pinned(live: Viewed) -> str:
    """A view of the table as it is now."""
    settings, name = live.settings, live.name
    point = private.extract(settings, name, None, "arrow", io.BytesIO(), None, lambda _: None)
    server = Trino(settings.views)
    view = pin_view(settings, name, live.table(), point, live.log, server, SystemClock(), "before")
    return f"lake.{'.'.join(view.schema_and_name)}"
