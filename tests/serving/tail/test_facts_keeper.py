"""Facts that the follower keeps for the status: commits by quarters of an hour, ages by minutes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.manual_clock import ManualClock
from tests.serving.small_lake import create_table, lake_settings
from thermocline.iceberg import catalog as catalogs
from thermocline.iceberg.alterations import NotedAlteration, NotedCause, with_alteration
from thermocline.iceberg.files import write_file
from thermocline.iceberg.holder import Holder, path_of
from thermocline.iceberg.leases import READERS, lease_path, write_lease
from thermocline.iceberg.view_notes import ViewNote, ViewNotes, write_view_notes
from thermocline.ingest.claim.standing_by import StandbyTrace
from thermocline.rules.unread_counts import Period, UnreadCounts
from thermocline.serving.tail.facts_keeper import FactsKeeper, with_changes, with_commits
from thermocline.serving.tail.recent_ages import RecentAges
from thermocline.serving.tail.table_facts import (
    Bar,
    SchemaCauseFact,
    SchemaChangeFact,
    TableFacts,
    UnreadFact,
    VersionFact,
    ViewFact,
    read_facts,
)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    settings = lake_settings(tmp_path, "orders")
    create_table(settings, "orders")
    return catalogs.open_table(settings, "orders")


def kept(tmp_path: Path, clock: ManualClock) -> FactsKeeper:
    (tmp_path / "state").mkdir(exist_ok=True)
    return FactsKeeper(tmp_path / "state", 60.0, clock, lambda work: work())


def commit(table: Any, began_ms_before: int, read: int, quarantined: int) -> None:
    row = pa.Table.from_pylist([{"id": 2}], schema=table.schema().as_arrow())
    summary = dict(table.current_snapshot().summary.additional_properties)
    own = {name: text for name, text in summary.items() if name.startswith("thermocline.")}
    counts = {
        f"{catalogs.SUMMARY_RECORDS}read": str(read),
        f"{catalogs.SUMMARY_RECORDS}quarantined": str(quarantined),
        f"{catalogs.SUMMARY_RECORDS_TOTAL}quarantined": str(quarantined),
    }
    began = {catalogs.SUMMARY_BEGAN: str(table.current_snapshot().timestamp_ms - began_ms_before)}
    table.append(row, snapshot_properties=own | counts | began)


def test_fields_that_no_column_is_read_from_are_taken_over_with_their_counts(
    tmp_path: Path, table: Any
) -> None:
    keeper = kept(tmp_path, ManualClock())
    keeper.look(table)
    before = read_facts(tmp_path / "state")
    assert before is not None
    assert before.unread is None
    counts = UnreadCounts(
        1, Period(5_000, 40, {"plan": 3, "(other)": 7}), Period(1_000, 60, {"plan": 1, "x": 9})
    )
    with table.transaction() as transaction:
        transaction.set_properties({catalogs.UNREAD_COUNTS_PROPERTY: counts.to_json()})
    keeper.look(table)
    after = read_facts(tmp_path / "state")
    assert after is not None
    assert after.unread == UnreadFact(since_ms=1_000, values=100, fields={"x": 9, "plan": 4}, others=7)


def test_a_commit_is_counted_once_however_often_it_is_looked_at(tmp_path: Path, table: Any) -> None:
    keeper = kept(tmp_path, ManualClock())
    keeper.look(table)
    commit(table, 4_000, read=310, quarantined=2)
    keeper.look(table)
    keeper.look(table)
    facts = read_facts(tmp_path / "state")
    assert facts is not None
    assert sum(bar.commits for bar in facts.bars) == 2
    assert sum(bar.records for bar in facts.bars) == 310
    assert sum(bar.quarantined for bar in facts.bars) == 2
    assert facts.recent[0].records == 310
    assert facts.last_commit_seconds is not None
    assert facts.last_commit_seconds >= 4.0
    assert facts.totals == {"quarantined": 2}
    kept(tmp_path, ManualClock()).look(table)  # another process goes on
    again = read_facts(tmp_path / "state")
    assert again is not None
    assert sum(bar.commits for bar in again.bars) == 2


def test_another_table_of_the_name_is_another_one(tmp_path: Path, table: Any) -> None:
    kept(tmp_path, ManualClock()).look(table)
    (tmp_path / "other").mkdir()
    settings = lake_settings(tmp_path / "other", "orders")
    create_table(settings, "orders")
    other = catalogs.open_table(settings, "orders")
    kept(tmp_path, ManualClock()).look(other)
    facts = read_facts(tmp_path / "state")
    assert facts is not None
    assert facts.table_uuid == str(other.metadata.table_uuid)
    assert sum(bar.commits for bar in facts.bars) == 1


def test_the_store_is_asked_only_while_somebody_looks(tmp_path: Path, table: Any) -> None:
    clock = ManualClock()
    keeper = kept(tmp_path, clock)
    until_ms = clock.now_ms() + 3_600_000
    path = lease_path(table.location(), READERS, "reader-1")
    write_lease(table.io, path, {"reader": "somebody"}, {"7": until_ms})
    keeper.look(table)
    facts = read_facts(tmp_path / "state")
    assert facts is not None
    assert (facts.owner_at_ms, facts.closely_at_ms, facts.leases) == (None, None, ())
    for name in ("wanted", "wanted-closely"):
        (tmp_path / "state" / name).touch()
        os.utime(tmp_path / "state" / name, (clock.now_ms() / 1000, clock.now_ms() / 1000))
    keeper.look(table)
    facts = read_facts(tmp_path / "state")
    assert facts is not None
    assert facts.owner_at_ms == clock.now_ms()
    assert [(one.kind, one.holder, one.snapshots) for one in facts.leases] == [
        (READERS, "somebody", {"7": until_ms})
    ]
    clock.advance(61)
    keeper.look(table)
    later = read_facts(tmp_path / "state")
    assert later is not None
    assert later.owner_at_ms == facts.owner_at_ms, "nobody looks any more"


def wanted(tmp_path: Path, clock: ManualClock) -> None:
    for name in ("wanted", "wanted-closely"):
        path = tmp_path / "state" / name
        path.touch()
        os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))


def test_following_does_not_wait_for_a_store_that_is_asked_for_the_status(tmp_path: Path, table: Any) -> None:
    """Method: what is to be done beside following is done when the test says so."""
    clock, asked = ManualClock(), list[Callable[[], None]]()
    (tmp_path / "state").mkdir()
    wanted(tmp_path, clock)
    keeper = FactsKeeper(tmp_path / "state", 60.0, clock, asked.append)
    facts = looked(keeper, tmp_path, table)
    assert (len(facts.recent), facts.owner_at_ms) == (1, None)
    commit(table, 4_000, read=310, quarantined=2)
    assert len(looked(keeper, tmp_path, table).recent) == 2, "while the store is being asked"
    assert len(asked) == 1
    asked.pop()()
    after = read_facts(tmp_path / "state")
    assert after is not None
    assert (len(after.recent), after.owner_at_ms) == (2, clock.now_ms())
    clock.advance(31)
    wanted(tmp_path, clock)
    keeper.look(table)
    assert len(asked) == 1, "asked again"


def test_what_the_store_says_of_a_table_that_was_made_again_is_not_taken_for_the_new_one(
    tmp_path: Path, table: Any
) -> None:
    clock, asked = ManualClock(), list[Callable[[], None]]()
    (tmp_path / "state").mkdir()
    wanted(tmp_path, clock)
    keeper = FactsKeeper(tmp_path / "state", 60.0, clock, asked.append)
    keeper.look(table)
    (tmp_path / "other").mkdir()
    settings = lake_settings(tmp_path / "other", "orders")
    create_table(settings, "orders")
    other = catalogs.open_table(settings, "orders")
    keeper.look(other)
    asked.pop()()
    facts = read_facts(tmp_path / "state")
    assert facts is not None
    assert (facts.table_uuid, facts.owner_at_ms) == (str(other.metadata.table_uuid), None)


def looked(keeper: FactsKeeper, tmp_path: Path, table: Any) -> TableFacts:
    keeper.look(table)
    facts = read_facts(tmp_path / "state")
    assert facts is not None
    return facts


def test_a_standby_is_known_while_it_lives_and_somebody_looks(tmp_path: Path, table: Any) -> None:
    clock = ManualClock()
    keeper = kept(tmp_path, clock)
    trace = StandbyTrace("orders", clock)
    trace.leave(table.io, table.location())
    trace.wait(30)
    assert looked(keeper, tmp_path, table).standby is None, "nobody looks"
    wanted(tmp_path, clock)
    standby = looked(keeper, tmp_path, table).standby
    assert standby is not None
    assert standby.pid == os.getpid()
    trace.remove()
    trace.wait(30)
    clock.advance(61)
    wanted(tmp_path, clock)
    assert looked(keeper, tmp_path, table).standby is None


def test_a_standby_that_has_become_the_owner_is_none(tmp_path: Path, table: Any) -> None:
    clock = ManualClock()
    keeper = kept(tmp_path, clock)
    trace = StandbyTrace("orders", clock)
    trace.leave(table.io, table.location())
    trace.wait(30)
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat()
    owner = replace(Holder.this_process(60.0), epoch=2, since=now, renewed=now)
    write_file(table.io, path_of(table.location()), json.dumps(asdict(owner)).encode())
    wanted(tmp_path, clock)
    facts = looked(keeper, tmp_path, table)
    assert facts.owner is not None
    assert facts.standby is None


def test_views_are_known_as_their_publisher_noted_them(tmp_path: Path, table: Any) -> None:
    clock = ManualClock()
    keeper = kept(tmp_path, clock)
    live = ViewNote("app.orders_live", "live", 2**62, 5_000, 1)
    gone = ViewNote("app.orders_cold", "cold", None, None, 1, "[offsets-gone] no")
    write_view_notes(table.io, table.location(), ViewNotes(4_000, (live, gone)))
    assert looked(keeper, tmp_path, table).views == ()
    wanted(tmp_path, clock)
    facts = looked(keeper, tmp_path, table)
    assert facts.views_at_ms == 4_000
    assert facts.views == (
        ViewFact("app.orders_live", "live", str(2**62), 5_000, 1, ""),
        ViewFact("app.orders_cold", "cold", None, None, 1, "[offsets-gone] no"),
    )


def test_alterations_are_known_with_their_snapshots_and_those_from_before_any_without(
    tmp_path: Path, table: Any
) -> None:
    noted = [NotedAlteration(2, 7_000, "b2", ("note becomes string",)), NotedAlteration(3, 9_000, "b3", ())]
    properties: dict[str, str] = {}
    for one in noted:
        properties |= with_alteration(properties, one)
    with table.transaction() as transaction:
        transaction.set_properties(properties)
    own = dict(table.current_snapshot().summary.additional_properties)
    own |= {catalogs.SUMMARY_DEFINITION_VERSION: "3"}
    row = pa.Table.from_pylist([{"id": 2}], schema=table.schema().as_arrow())
    table.append(row, snapshot_properties={k: v for k, v in own.items() if k.startswith("thermocline.")})
    first, third = table.snapshots()[0], table.current_snapshot()
    versions = looked(kept(tmp_path, ManualClock()), tmp_path, table).versions
    assert versions == (
        VersionFact(1, first.timestamp_ms, str(first.snapshot_id), ()),
        VersionFact(3, third.timestamp_ms, str(third.snapshot_id), ()),
    )
    later = (VersionFact(3, 9_500, "77"),)
    assert with_changes(later, table.properties) == (
        VersionFact(2, 7_000, "", ("note becomes string",)),
        VersionFact(3, 9_500, "77", ()),
    )


def test_the_last_change_by_a_contract_is_kept_with_its_cause(tmp_path: Path, table: Any) -> None:
    assert looked(kept(tmp_path, ManualClock()), tmp_path, table).schema_change is None
    cause = NotedCause(("plan",), "orders/0@4", "value", "2", "version 7 of orders-value")
    noted = NotedAlteration(2, 7_000, "b2", ("plan is added",), (cause,))
    with table.transaction() as transaction:
        transaction.set_properties(with_alteration(table.properties, noted))
    facts = looked(kept(tmp_path, ManualClock()), tmp_path, table)
    of_cause = SchemaCauseFact(("plan",), "orders/0@4", "value", "2", "version 7 of orders-value")
    assert facts.schema_change == SchemaChangeFact(2, 7_000, ("plan is added",), (of_cause,))
    (version,) = with_changes((VersionFact(2, 7_500, "9"),), table.properties)
    assert version.changes == noted.sentences


def test_a_day_of_bars_is_kept() -> None:
    old, new = Bar(0, commits=1), Bar(96 * 900_000, commits=2)
    assert with_commits([old, new], []) == (new,)
    assert with_commits([old, Bar(95 * 900_000)], []) == (old, Bar(95 * 900_000))


def test_ages_are_the_greatest_of_each_minute_of_an_hour() -> None:
    ages = RecentAges()
    for at_ms, age in ((60_000, 0.5), (61_000, 2.0), (62_000, 0.1), (180_000, 0.3)):
        ages.note(at_ms, age)
    assert ages.to_dict() == {"ends_ms": 240_000, "seconds": [2.0, None, 0.3]}
    ages.note(241_000, float("inf"))
    assert ages.to_dict()["seconds"] == [2.0, None, 0.3, None]
    ages.note(100 * 3_600_000, 1.0)
    assert ages.to_dict()["seconds"] == [*[None] * 59, 1.0]
