"""What of a table's commits shows that producers use transactions, and what looks like it and is none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.views.live_table import APPENDED, DAY_MS, commit
from tests.views.test_publish import World, at
from thermocline.kafka.facts import TopicConfig
from thermocline.rules.seam import Seam
from thermocline.views import transactions
from thermocline.views.transactions import has_committed_transactions

COMPACTED = TopicConfig(is_compacted=True, delete_retention_ms=DAY_MS, is_log_append_time=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def shown(
    world: World,
    commits: Sequence[tuple[Seam, int]],
    config: TopicConfig = APPENDED,
    at_ms: int | None = None,
) -> bool:
    """After commits up to seams, of whose offsets so many gave no record; drained ``at_ms``, or right now."""
    drained_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    for seam, without_record in commits:
        commit(world.table, world.definition, [], seam, at_ms=drained_ms, without_record=without_record)
    return has_committed_transactions(world.table, "t", {"t": config})


def test_an_offset_without_a_record_is_a_marker(world: World) -> None:
    assert not shown(world, [(at(0), 0), (at(10), 0), (at(10), 0)])
    assert shown(world, [(at(15), 1), (at(20), 0)])


def test_where_the_table_begins_nobody_counted(world: World) -> None:
    assert not shown(world, [(at(100), 100), (at(110), 0)])


def test_neither_did_anybody_where_a_partition_was_new(world: World) -> None:
    assert not shown(world, [(at(0), 0), (Seam({("t", 0): 5, ("t", 1): 1_000}), 900)])


def test_what_was_told_to_move_on_met_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shown(world, [(at(0), 0), (at(10), 10)])
    monkeypatch.setattr(transactions, "SUMMARY_ACCEPTED", "thermocline.batch-id")
    assert not shown(world, [])


def test_compaction_leaves_such_offsets_where_the_table_was_behind(world: World) -> None:
    """What came within ten minutes before the commit is in segments that are still open."""
    long_ago_ms = time.time_ns() // 1_000_000 - DAY_MS
    assert not shown(world, [(at(0), 0), (at(10), 3)], COMPACTED, at_ms=long_ago_ms)
    assert shown(world, [(at(20), 0), (at(30), 3)], COMPACTED)


def test_signs_are_forgotten_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "COMMITS_MAX", 2)
    assert shown(world, [(at(0), 0), (at(10), 1), (at(20), 0)])
    assert not shown(world, [(at(30), 0)])


def test_a_history_that_ends_in_anothers_snapshot_is_read_up_to_there(world: World) -> None:
    commit(world.table, world.definition, [{"id": 1, "value": "1"}], at(0), at_ms=0)
    world.table.delete("id = 1")
    assert not shown(world, [(at(10), 5), (at(20), 0)])
