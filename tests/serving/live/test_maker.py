"""Snapshots as of now of a real table: what PyIceberg reads of one is the replay of the log."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.failpoints.arming import TEXT_VARIABLE
from tests.failpoints.firing import arm_from
from tests.manual_clock import ManualClock
from tests.serving.conftest import PROFILES
from tests.serving.live.real_table import (
    FILES_SECONDS,
    TIMESTAMP_MS,
    RealTable,
    rows_of,
    table_of,
)
from thermocline.errors import LoadTimeout, NotReady, ReadPointGone, StorageFailed
from thermocline.iceberg.snapshot_writer import write_files
from thermocline.process.clock import SystemClock
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.live.maker import Intervals, SnapshotMaker
from thermocline.serving.read.tables import ServedTable

VERSION_2 = replace(PROFILES, format_version=2)


@pytest.fixture
def real(served: Callable[..., tuple[Any, ServedTable]]) -> Callable[..., RealTable]:
    return lambda definition=PROFILES: RealTable(*served(definition, is_as_ingest=True))


def produce(world: Any, user: str, value: str | None, partition: int = 0) -> None:
    key = {"app_id": 7, "user_id": user, "key": "k"}
    world.produce(key, None if value is None else {"value": value}, partition=partition)


def values(rows: dict[tuple[Any, ...], Any]) -> dict[str, str]:
    return {key[1]: row["value"] for key, row in rows.items()}


@pytest.mark.parametrize("definition", [PROFILES, VERSION_2], ids=["version 3", "version 2"])
def test_each_snapshot_is_the_replay_to_its_read_point(
    real: Callable[..., RealTable], seed: int, definition: LiveTable
) -> None:
    chance = random.Random(seed)
    table = real(definition)
    world, maker = table.world, table.maker(SystemClock())
    for step in range(8):
        for _ in range(chance.choice([1, 40])):
            number = chance.randrange(30)
            produce(world, f"u{number}", None if chance.random() < 0.25 else f"{step}", number % 3)
        world.tail()
        made = maker.current()
        found = table_of(made)
        assert rows_of(world, found) == world.rows(made.read_point.end)
        assert made.read_point.end == world.end
        committed = found.snapshot_by_name("committed")
        assert committed is not None
        assert rows_of(world, found, committed.snapshot_id) == world.rows(world.seam)
        if chance.random() < 0.5:
            table.commit()


@pytest.fixture
def table(real: Callable[..., RealTable]) -> RealTable:
    """With a committed row, one that is hot, and one whose delete is."""
    made = real()
    for user in ("cold", "gone", "kept"):
        produce(made.world, user, "committed")
    made.commit()
    produce(made.world, "kept", None)
    produce(made.world, "other", "committed")
    made.commit()
    produce(made.world, "hot", "now")
    produce(made.world, "gone", None)
    made.world.tail()
    return made


@pytest.fixture
def maker(table: RealTable) -> SnapshotMaker:
    return table.maker(SystemClock())


def test_the_metadata_says_what_it_is(table: RealTable, maker: SnapshotMaker) -> None:
    made = maker.current()
    metadata = json.loads(made.metadata)
    own, below = metadata["snapshots"][-1], table.metadata["snapshots"][-1]
    assert metadata["current-snapshot-id"] == own["snapshot-id"] == made.snapshot_id
    assert own["parent-snapshot-id"] == below["snapshot-id"]
    assert own["sequence-number"] == below["sequence-number"] + 1 == metadata["last-sequence-number"]
    assert own["timestamp-ms"] == TIMESTAMP_MS + below["snapshot-id"] + 1
    assert own["first-row-id"] == table.metadata["next-row-id"]
    assert metadata["next-row-id"] == own["first-row-id"] + own["added-rows"]
    assert ReadPoint.parse(own["summary"]["thermocline.read-point"]) == made.read_point
    assert ReadPoint.parse(metadata["properties"]["thermocline.read-point"]) == made.read_point
    assert int(own["summary"]["total-records"]) - int(own["summary"]["total-position-deletes"]) == 3
    assert values(rows_of(table.world, table_of(made))) == {
        "cold": "committed",
        "other": "committed",
        "hot": "now",
    }


def test_a_writer_finds_no_place_to_write_to(maker: SnapshotMaker) -> None:
    properties = json.loads(maker.current().metadata)["properties"]
    places = {name: path for name, path in properties.items() if name.endswith("path")}
    assert places == dict.fromkeys(
        ("write.data.path", "write.metadata.path", "write.folder-storage.path"),
        "file:///dev/null/live-tables-are-read-only",
    )


def test_who_looks_for_files_that_nobody_needs_finds_no_metadata_file_among_them(
    table: RealTable, maker: SnapshotMaker
) -> None:
    own = {"metadata-file": "file:///before", "timestamp-ms": 1}
    table.metadata["metadata-log"] = [own]
    metadata = json.loads(maker.current().metadata)
    read = {
        "metadata-file": table.open().metadata_location,
        "timestamp-ms": table.metadata["last-updated-ms"],
    }
    assert metadata["metadata-log"] == [own, read]
    assert metadata["properties"]["gc.enabled"] == "false"


def test_where_nothing_is_hot_it_is_the_tables_own_snapshot(real: Callable[..., RealTable]) -> None:
    table = real()
    produce(table.world, "cold", "committed")
    table.commit()
    table.world.tail()
    made = table.maker(SystemClock()).current()
    assert (made.snapshot_id, len(made.paths)) == (table.world.newest, 1)  # the metadata alone
    assert values(rows_of(table.world, table_of(made))) == {"cold": "committed"}


def test_calls_of_one_moment_share_a_snapshot_and_a_later_one_sees_what_came(
    table: RealTable,
) -> None:
    clock = SystemClock()
    maker = table.maker(clock, Intervals(3_600))
    first = maker.current()
    produce(table.world, "later", "now")
    table.world.tail()
    assert maker.current() is first
    at_once = table.maker(clock)
    at_once.current()
    produce(table.world, "latest", "now")
    table.world.tail()
    found = values(rows_of(table.world, table_of(at_once.current())))
    assert {"later", "latest"} <= found.keys()


def test_many_calls_at_once_are_answered_by_few_snapshots(table: RealTable) -> None:
    maker = table.maker(SystemClock())
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(maker.current().snapshot_id)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1  # nothing came meanwhile


@pytest.mark.parametrize("action", ["error", "applied-then-error"])
@pytest.mark.parametrize("point", ["data-file.write", "deletes.write", "snapshot.write"])
def test_a_store_that_fails_leaves_the_last_snapshot_right_and_the_next_one_too(
    table: RealTable, maker: SnapshotMaker, point: str, action: str
) -> None:
    before = maker.current()
    produce(table.world, "cold", "later")
    table.world.tail()
    arm_from({TEXT_VARIABLE: f"{point}={action}@1"})
    try:
        with pytest.raises(StorageFailed, match=point):
            maker.current()
    finally:
        arm_from({})
    assert values(rows_of(table.world, table_of(before)))["cold"] == "committed"
    assert values(rows_of(table.world, table_of(maker.current())))["cold"] == "later"


def test_what_a_failed_snapshot_left_is_never_named_and_goes_once_it_is_found(table: RealTable) -> None:
    """The store takes a part of the files, fails, and deletes nothing either."""
    clock = ManualClock()
    maker = table.maker(clock)
    folder = Path(table.world.folder) / "thermocline" / "live"
    arm_from({TEXT_VARIABLE: "snapshot.write=applied-then-error@2;owner.clean-up=error"})
    try:
        with pytest.raises(StorageFailed):
            maker.current()
    finally:
        arm_from({})
    left = files_in(folder)
    assert left
    clock.advance(1)
    made = maker.current()
    assert rows_of(table.world, table_of(made)) == table.world.rows()
    named = {Path(path.removeprefix("file://")) for path in made.paths}
    assert not named & left
    maker.tend()
    assert files_in(folder) == named | left  # it may be that of an earlier process, which a query reads
    clock.advance(FILES_SECONDS + 1)
    maker.tend()
    assert not files_in(folder) & left


def test_where_the_last_of_a_snapshots_files_finds_no_room_the_others_do_not_stay(
    table: RealTable, maker: SnapshotMaker
) -> None:
    maker.current()
    folder = Path(table.world.folder) / "thermocline" / "live"
    before = files_in(folder)
    produce(table.world, "cold", "later")
    table.world.tail()
    arm_from({TEXT_VARIABLE: "snapshot.write=error@1"})
    try:
        with pytest.raises(StorageFailed):
            maker.current()
    finally:
        arm_from({})
    assert files_in(folder) == before


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_where_the_store_stands_still_others_are_refused_and_get_their_snapshot_once_it_goes_on(
    table: RealTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = table.maker(SystemClock(), load_seconds_max=0.1)
    is_asked, go_on = threading.Event(), threading.Event()

    def stand_still(*arguments: Any) -> None:
        is_asked.set()
        go_on.wait()
        write_files(*arguments)

    monkeypatch.setattr("thermocline.serving.live.maker.write_files", stand_still)
    first = threading.Thread(target=maker.current)
    first.start()
    is_asked.wait()
    for _ in range(3):
        with pytest.raises(LoadTimeout):
            maker.current()
    go_on.set()
    first.join()
    assert values(rows_of(table.world, table_of(maker.current())))["hot"] == "now"


def test_a_lease_that_can_not_be_written_fails_as_the_store_does_and_the_table_is_asked_for_again(
    table: RealTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    maker = table.maker(clock)
    before = maker.current()
    clock.advance(2 * FILES_SECONDS)
    with monkeypatch.context() as patched:

        def fail(*_: Any) -> None:
            raise OSError("the access has ended")

        patched.setattr("thermocline.serving.live.kept_files.write_lease", fail)
        with pytest.raises(StorageFailed, match="the access has ended"):
            maker.current()
    again = maker.current()
    assert again.read_point == before.read_point
    assert rows_of(table.world, table_of(again)) == table.world.rows()


def test_what_is_read_for_the_first_time_is_read_at_the_first_call(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    """Goal: no engine is refused because this process is the last one to see the snapshot."""
    world, _ = served(PROFILES, is_as_ingest=True)
    with closing(
        ServedTable(PROFILES, world.folder, world.published, world.clock, 5.0, open_io=lambda: world.io)
    ) as unread:
        made = RealTable(world, unread).maker(SystemClock()).current()
    assert rows_of(world, table_of(made)) == {}


def test_hot_rows_that_are_behind_the_log_are_refused(table: RealTable) -> None:
    with pytest.raises(NotReady, match=r"\d s behind the log"):
        table.maker(SystemClock(), stale_after_seconds=0.0).current()


def test_who_wrote_a_record_gets_a_snapshot_that_has_it_or_none(table: RealTable) -> None:
    maker = table.maker(SystemClock(), Intervals(3_600))
    first = maker.current()
    produce(table.world, "mine", "now", partition=1)
    wanted = {("profiles", 1): 0}
    with pytest.raises(NotReady, match="does not reach"):
        maker.current(wanted)
    table.world.tail()
    assert maker.current().read_point == first.read_point
    assert values(rows_of(table.world, table_of(maker.current(wanted))))["mine"] == "now"
    assert maker.current(wanted) is maker.current()


def test_an_earlier_load_is_loaded_again_by_its_name_while_its_files_stay(table: RealTable) -> None:
    clock = ManualClock()
    maker, other = table.maker(clock), table.maker(clock, server="other")
    first = maker.current()
    produce(table.world, "later", "now")
    table.world.tail()
    clock.advance(1)
    assert maker.current().read_point != first.read_point
    for server in (maker, other):
        assert json.loads(server.again(first.load).answer) == {
            "metadata-location": first.location,
            "metadata": json.loads(first.metadata),
            "config": {},
        }
    assert json.loads(first.metadata)["properties"]["thermocline.load"] == first.load
    for name in (
        "",
        "nothing",
        f"../{first.load}",
        first.load[:-1] + "-",
        "one-0123456789abcdef",
    ):
        with pytest.raises(ReadPointGone):
            maker.again(name)
    clock.advance(FILES_SECONDS / 2 + 1)
    with pytest.raises(ReadPointGone, match="or its files go soon"):
        other.again(first.load)
    assert all(Path(path.removeprefix("file://")).exists() for path in first.paths)


def test_a_load_can_be_named_for_a_while_however_long_nothing_has_come(table: RealTable) -> None:
    clock = ManualClock()
    maker = table.maker(clock)
    first = given = maker.current()
    for _ in range(20):
        clock.advance(FILES_SECONDS / 10)
        given = maker.current()
        clock.advance(FILES_SECONDS / 10)
        assert given.metadata in maker.again(given.load).answer
    assert given.load != first.load


def test_where_much_is_written_a_snapshot_is_given_for_longer(table: RealTable) -> None:
    clock = ManualClock()
    maker = table.maker(clock, Intervals(1.0, files_per_hour_max=360))
    first = maker.current()
    assert first.written == len(first.paths)
    produce(table.world, "later", "now")
    table.world.tail()
    clock.advance(10 * first.written - 1)
    assert maker.current() is first
    clock.advance(2)
    assert maker.current() is not first


def test_where_a_table_is_moved_the_files_at_its_former_place_go_too(
    table: RealTable, maker: SnapshotMaker
) -> None:
    clock = ManualClock()
    maker = table.maker(clock)
    first = maker.current()
    maker.tend()
    table.metadata["location"] += "/moved"
    produce(table.world, "later", "now")
    table.commit()
    table.world.tail()
    clock.advance(1)
    assert all("/moved/" in path for path in maker.current().paths)
    clock.advance(FILES_SECONDS + 1)
    maker.tend()
    assert not any(Path(path.removeprefix("file://")).exists() for path in first.paths)


def test_where_nobody_asked_for_long_the_next_snapshot_is_made_from_nothing(table: RealTable) -> None:
    clock = ManualClock()
    maker = table.maker(clock)
    first = maker.current()
    maker.tend()
    clock.advance(FILES_SECONDS + 1)
    maker.tend()
    assert not any(Path(path.removeprefix("file://")).exists() for path in first.paths)
    again = maker.current()
    assert not set(again.paths) & set(first.paths)
    assert values(rows_of(table.world, table_of(again)))["hot"] == "now"


def test_a_table_that_does_not_have_the_snapshot_is_not_ready(
    table: RealTable, maker: SnapshotMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it was dropped and created again a moment ago."""
    monkeypatch.setitem(table.metadata, "table-uuid", "00000000-0000-0000-0000-000000000001")
    with pytest.raises(NotReady, match="is being read again"):
        maker.current()


def test_deletes_of_the_snapshot_below_stay_but_for_those_that_ours_replace(
    table: RealTable, maker: SnapshotMaker
) -> None:
    """One manifest has deletes of a data file of each bucket; ours are of one of them."""
    world = table.world
    for users in (range(40), range(20)):
        for number in users:
            produce(world, f"u{number}", f"{users}")
        table.commit()
    produce(world, "u20", "third")
    world.tail()
    made = maker.current()
    found = values(rows_of(world, table_of(made)))
    assert found == values(world.rows())
    assert found["u20"] == "third"


def altered(table: RealTable, columns: dict[str, Any], *drop: str) -> None:
    now = table.world.definition
    wanted = LiveTable.build(
        name=now.name,
        identifier=now.identifier,
        topics=now.topics,
        key=now.key,
        entity=now.entity,
        columns={"app_id": "int", "user_id": "string", "key": "string"} | columns,
        buckets=now.buckets,
    )
    last = table.metadata["last-column-id"]
    table.alter(plan_alteration(now, wanted, last, drop=drop).definition)


def test_columns_that_are_renamed_dropped_and_come_back_are_found_by_their_ids(
    table: RealTable, maker: SnapshotMaker
) -> None:
    """Of what is committed and hot, and of files that were made before: rows under the names of now."""

    def shown(name: str = "value") -> dict[str, Any]:
        found = table_of(maker.current())
        committed = found.snapshot_by_name("committed")
        assert committed is not None
        rows_of(table.world, found, committed.snapshot_id)
        return {key[1]: row.get(name) for key, row in rows_of(table.world, found).items()}

    assert shown() == {"cold": "committed", "other": "committed", "hot": "now"}
    altered(table, {"text": {"type": "string", "renamed_from": "value"}, "updated_at": "timestamptz"})
    assert shown("text") == {"cold": "committed", "other": "committed", "hot": "now"}
    produce(table.world, "cold", "again")
    table.world.tail()
    assert shown("text") == {"cold": "again", "other": "committed", "hot": "now"}
    table.commit()
    assert shown("text") == {"cold": "again", "other": "committed", "hot": "now"}
    altered(table, {"updated_at": "timestamptz"}, "text")
    assert shown("text") == {"cold": None, "other": None, "hot": None}
    altered(table, {"updated_at": "timestamptz", "value": "string"})
    assert shown() == {"cold": None, "other": None, "hot": None}
    produce(table.world, "hot", "new")
    table.world.tail()
    assert shown() == {"cold": None, "other": None, "hot": "new"}
    table.commit()
    assert shown() == {"cold": None, "other": None, "hot": "new"}
