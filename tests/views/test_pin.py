"""Which read points can be pinned, and for how long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.views.live_table import A_WEEK, DAY_MS, commit
from tests.views.test_publish import World, at
from thermocline.errors import BadParameter, LogReplaced, ReadPointGone, ViewForeign
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.views.pin import pin_view
from thermocline.views.plan import PlannedView
from thermocline.views.published import PublishedView

HOUR_MS, MINUTE_MS = 3_600_000, 60_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def pin(world: World, point: ReadPoint, called: str = "x") -> PlannedView:
    log: Any = world.log
    world.table.refresh()
    return pin_view(world.settings, "t", world.table, point, log, world.trino.client(), world.clock, called)


def test_it_begins_at_the_snapshots_seam_and_stops_at_the_end(world: World) -> None:
    snapshot_id = world.commit(10, end=20)
    planned = pin(world, ReadPoint(snapshot_id, at(10), at(15)))
    assert "_partition_offset >= 10 AND _partition_offset < 15" in planned.statement
    assert planned.until_ms == world.clock.now_ms() + 7 * DAY_MS - HOUR_MS
    found = PublishedView.parse(world.trino.comments["t_at_x"])
    assert found is not None
    assert (found.mode, found.snapshot_id, found.end) == ("pinned", snapshot_id, at(15))
    assert str(snapshot_id) in world.lease("app.t_at_x")


def test_its_life_counts_from_its_own_snapshot(world: World) -> None:
    """That the table holds all of the log by now says nothing of what this snapshot lacks."""
    snapshot_id = world.commit(10, end=20)
    made_at_ms = world.clock.now_ms()
    world.clock.advance(DAY_MS / 1000)
    world.commit(20)
    planned = pin(world, ReadPoint(snapshot_id, at(10), at(15)))
    assert planned.until_ms == made_at_ms + 7 * DAY_MS - HOUR_MS


def test_without_a_hot_record_it_needs_no_log(world: World) -> None:
    snapshot_id = world.commit(10)
    planned = pin(world, ReadPoint(snapshot_id, at(10), at(10)))
    assert planned.until_ms is None
    assert "kafka" not in planned.statement
    until_ms = world.lease("app.t_at_x")[str(snapshot_id)]
    assert until_ms > world.clock.now_ms() + 365 * DAY_MS  # nobody renews it


def test_on_a_compacted_topic_it_ends_before_compaction_may_take_its_records(world: World) -> None:
    """A record that a later one replaced beyond the end would be missing from the view."""
    world.log.retention = replace(A_WEEK, kept_ms=None, compaction_lag_ms=DAY_MS)
    snapshot_id = world.commit(10, end=20)
    planned = pin(world, ReadPoint(snapshot_id, at(10), at(15)))
    assert planned.until_ms == world.clock.now_ms() + DAY_MS - HOUR_MS


def test_where_compaction_keeps_nothing_for_sure_it_is_refused(world: World) -> None:
    world.log.retention = replace(A_WEEK, kept_ms=None, compaction_lag_ms=0)
    snapshot_id = world.commit(10, end=20)
    with pytest.raises(ReadPointGone, match=r"min\.compaction\.lag\.ms"):
        pin(world, ReadPoint(snapshot_id, at(10), at(15)))


def test_what_came_before_a_late_commit_counts_from_when_the_table_last_held_all(world: World) -> None:
    """Ingest is behind: what lies beyond the end may have been in the log long before the commit."""
    held_all_ms = world.clock.now_ms()
    world.log.retention = replace(A_WEEK, kept_ms=None, compaction_lag_ms=DAY_MS)
    snapshot_id = world.commit(10, end=20)
    world.clock.advance(DAY_MS / 2000)
    planned = pin(world, ReadPoint(snapshot_id, at(10), at(15)))
    assert planned.until_ms == held_all_ms + DAY_MS - HOUR_MS


def test_names_of_its_own_tell_read_points_apart(world: World) -> None:
    snapshot_id = world.commit(10, end=20)
    names = {pin(world, ReadPoint(snapshot_id, at(10), at(end)), "").schema_and_name for end in (14, 15, 15)}
    assert len(names) == 2
    assert all(name.startswith(f"t_at_{snapshot_id}_") for _, name in names)


@pytest.mark.parametrize("called", ["A", "a-b", "a.b", 'x"', "x" * 65])
def test_a_name_that_could_be_misread_is_refused(world: World, called: str) -> None:
    snapshot_id = world.commit(10)
    with pytest.raises(BadParameter):
        pin(world, ReadPoint(snapshot_id, at(10), at(10)), called)


def test_what_is_not_ours_keeps_its_name(world: World) -> None:
    snapshot_id = world.commit(10)
    world.trino.comments["t_at_x"] = None
    with pytest.raises(ViewForeign):
        pin(world, ReadPoint(snapshot_id, at(10), at(10)))
    assert world.trino.statements == []


@pytest.mark.parametrize(("seam", "end"), [(9, 15), (10, 21), (10, 9)])
def test_a_read_point_that_does_not_fit_table_and_log_is_refused(world: World, seam: int, end: int) -> None:
    snapshot_id = world.commit(10, end=20)
    with pytest.raises(BadParameter):
        pin(world, ReadPoint(snapshot_id, at(seam), at(end)))


def test_a_snapshot_that_is_expired_is_gone(world: World) -> None:
    world.commit(10)
    with pytest.raises(ReadPointGone):
        pin(world, ReadPoint(5, at(10), at(10)))


def test_so_is_one_of_which_the_log_has_lost_a_record(world: World) -> None:
    snapshot_id = world.commit(10, end=20)
    world.log.log_starts = at(11)
    with pytest.raises(ReadPointGone):
        pin(world, ReadPoint(snapshot_id, at(10), at(15)))


def test_and_one_of_which_it_may_lose_one_any_moment(world: World) -> None:
    snapshot_id = world.commit(10, end=20)
    world.clock.advance(7 * DAY_MS / 1000)
    with pytest.raises(ReadPointGone) as caught:
        pin(world, ReadPoint(snapshot_id, at(10), at(15)))
    assert "retention.ms" in caught.value.what


def test_and_one_of_an_earlier_definition(world: World) -> None:
    earlier = replace(world.definition, version=world.definition.version + 1)
    snapshot_id = commit(world.table, earlier, [], at(10), at_ms=world.clock.now_ms())
    world.log.log_ends = at(10)
    with pytest.raises(ReadPointGone) as caught:
        pin(world, ReadPoint(snapshot_id, at(10), at(10)))
    assert "altered" in caught.value.what


def test_a_recreated_topic_has_none_of_its_records(world: World) -> None:
    snapshot_id = world.commit(10, end=20)
    world.log.topic_id = "another"
    with pytest.raises(LogReplaced):
        pin(world, ReadPoint(snapshot_id, at(10), at(15)))


def test_partitions_that_came_later_count_from_their_first_record(world: World) -> None:
    snapshot_id = world.commit(10, end=20)
    world.log.log_ends = Seam({("t", 0): 20, ("t", 1): 5})
    world.log.log_starts = Seam({("t", 0): 0, ("t", 1): 0})
    planned = pin(world, ReadPoint(snapshot_id, at(10), Seam({("t", 0): 15, ("t", 1): 3})))
    assert "_partition_offset >= 0 AND _partition_offset < 3" in planned.statement


def test_records_that_sql_can_not_read_are_not_pinned(tmp_path: Path) -> None:
    world = World(tmp_path, key_format="int")
    snapshot_id = world.commit(10, end=20)
    with pytest.raises(BadParameter, match="can't be read in SQL"):
        pin(world, ReadPoint(snapshot_id, at(10), at(15)))
    assert set(world.publisher().publish().replaced) == {"app.t_cold"}
