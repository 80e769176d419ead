from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.manual_clock import ManualClock
from tests.partition_spec import partition_spec_of
from thermocline.errors import (
    BadParameter,
    KafkaUnreachable,
    LogReplaced,
    NotReady,
    ReadAfterTimeout,
    ReadPointGone,
    RowNotFound,
    TombstonesGone,
)
from thermocline.iceberg import catalog as catalogs
from thermocline.iceberg import leases
from thermocline.iceberg.leases import write_lease
from thermocline.kafka.facts import OffsetRange, RecordChunk, TopicConfig, TopicRetention
from thermocline.process.clock import SystemClock
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read import private
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.store.layout import SPILL
from thermocline.serving.tail.feed import Abandoned, fill_until
from thermocline.settings import CatalogSettings, KafkaSettings, ServingSettings, Settings, TableSettings


class LogOf:
    """Kafka's log, as far as a private reader asks for it, from a world's records."""

    is_compacted = False
    lag_ms = 0

    def __init__(self, world: Any) -> None:
        self.world = world
        self.topic_id = "topic-1"
        self.dropped: set[tuple[int, int]] = set()
        """What compaction took away, by partition and offset."""
        self.others: dict[str, list[tuple[bytes, bytes]]] = {}
        """The keys and values of other topics, of one partition each."""
        self.while_it_is_read: Callable[[], None] = lambda: None

    def cluster_id(self) -> str:
        return "cluster-1"

    def describe(self, topics: Sequence[str]) -> dict[str, Any]:
        return {
            topic: SimpleNamespace(topic_id=f"{topic}-1", partitions=1)
            if topic in self.others
            else SimpleNamespace(topic_id=self.topic_id, partitions=3)
            for topic in topics
        }

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        return self.starts(topics), self.ends(topics)

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        return dict.fromkeys(topics, TopicConfig(self.is_compacted, 3_600_000, is_log_append_time=False))

    def retentions(self, topics: Sequence[str]) -> dict[str, TopicRetention]:
        lag_ms = self.lag_ms if self.is_compacted else None
        return dict.fromkeys(topics, TopicRetention(None, False, lag_ms, backdated_ms_max=0))

    def starts(self, topics: Sequence[str]) -> Seam:
        others = {topic: {0: 0} for topic in self.others if topic in topics}
        return Seam.of({"profiles": dict.fromkeys(range(3), 0), **others})

    def ends(self, topics: Sequence[str]) -> Seam:
        others = {(topic, 0): len(log) for topic, log in self.others.items() if topic in topics}
        end: Seam = self.world.end
        return end.merged_max(Seam(others))

    def read(self, _: Any, ranges: Sequence[OffsetRange], *__: Any) -> Iterator[RecordChunk]:
        self.while_it_is_read()
        for part in ranges:
            log = self.others.get(part.topic, [])
            for offset, (key, value) in list(enumerate(log))[part.first : part.end]:
                yield RecordChunk(part.topic, 0, [key], [value], [offset], [0])
            for offset in range(part.first, 0 if part.topic in self.others else part.end):
                if (part.partition, offset) not in self.dropped:
                    yield self.world.chunk(part.partition, offset, offset + 1)


@pytest.fixture
def private_world(
    new_world: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SimpleNamespace:
    """A real catalog and table with one snapshot of three rows, and a log that goes on from there."""
    world = new_world()
    monkeypatch.undo()
    definition = world.definition
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers="nowhere:1"),
        catalog=CatalogSettings(
            name="lake", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path / "w")
        ),
        serving=ServingSettings(state_dir=tmp_path / "state"),
        tables={
            "profiles": TableSettings(
                identifier="app.profiles",
                topics=("profiles",),
                key=definition.key,
                entity=definition.entity,
                columns={column.name: str(column.type) for column in definition.columns},
                buckets=definition.buckets,
            )
        },
    )
    catalog = catalogs.open_catalog(settings.catalog, may_create=True)
    assert isinstance(catalog, SqlCatalog)
    catalog.create_namespace("app")
    table = catalog.create_table(
        "app.profiles",
        definition.iceberg_schema(),
        partition_spec=partition_spec_of(definition),
        properties={catalogs.DEFINITION_PROPERTY: definition.to_json()},
    )
    for number in range(3):
        world.produce(key_of(f"u{number}"), value_of("cold"), partition=number)
    commit(table, world)
    log = LogOf(world)
    monkeypatch.setattr(private, "Log", lambda _: log)
    monkeypatch.setattr("thermocline.serving.tail.feed.read_ranges", log.read)
    return SimpleNamespace(world=world, settings=settings, table=table, log=log)


def key_of(user: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": "k"}


def value_of(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


def commit(table: Table, world: Any, **more: str) -> None:
    """Appends what was produced since the seam, as ingest would, but for deletes."""
    parts = [
        world.records_in(world.chunk(p, world.seam[("profiles", p)], len(world.logs[p]))) for p in range(3)
    ]
    records = pa.concat_tables(parts).select(world.definition.table_schema.names)
    summary = {
        catalogs.SUMMARY_SEAM: world.end.to_json(),
        catalogs.SUMMARY_EPOCH: "1",
        catalogs.SUMMARY_BATCH: "batch",
        catalogs.SUMMARY_CLUSTER: "cluster-1",
        catalogs.SUMMARY_TOPIC_IDS: '{"profiles": "topic-1"}',
        catalogs.SUMMARY_DEFINITION_VERSION: "1",
        catalogs.SUMMARY_WATERMARK: "0",
        catalogs.SUMMARY_BAD_DIGEST: "0",
        **more,
    }
    table.append(records.cast(world.definition.table_schema), snapshot_properties=summary)
    world.seam = world.end


def extracted(
    private_world: SimpleNamespace, at: ReadPoint | None = None
) -> tuple[dict[str, str], ReadPoint]:
    sink = io.BytesIO()
    told: list[int] = []
    point = private.extract(
        private_world.settings, "profiles", Wanted(["user_id", "value"]), "arrow", sink, at, told.append
    )
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    assert told[-1] == len(rows)
    return {row["user_id"]: row["value"] for row in rows}, point


def test_a_command_that_takes_long_leases_the_snapshot_that_it_reads(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does `verify` without a server, which reads through it."""
    monkeypatch.setattr(leases, "LEASED_AFTER_SECONDS", 0.0)
    is_written = threading.Event()

    def written(*arguments: Any) -> None:
        write_lease(*arguments)
        is_written.set()

    monkeypatch.setattr(leases, "write_lease", written)
    table = private_world.table
    with private.opened(private_world.settings, "profiles"):
        assert is_written.wait(60)
        leased = leases.leased_snapshots(table.io, table.location(), SystemClock().now_ms())
        assert leased == {table.current_snapshot().snapshot_id}
    assert not leases.leased_snapshots(table.io, table.location(), SystemClock().now_ms())


def test_a_read_that_fails_leaves_no_thread_and_no_folder_behind(
    private_world: SimpleNamespace, tmp_path: Path
) -> None:
    """A server reads so whenever changes are asked for."""
    before = threading.active_count()
    folder = tmp_path / "spill"
    folder.mkdir()
    private_world.log.while_it_is_read = lambda: (_ for _ in ()).throw(
        KafkaUnreachable(bootstrap_servers="b", detail="refused")
    )
    private_world.world.produce(key_of("u0"), value_of("hot"))
    with (
        pytest.raises(KafkaUnreachable),
        private.opened(private_world.settings, "profiles", within=folder),
    ):
        pass
    assert not list(folder.iterdir())
    deadline = time.monotonic() + 60
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_answers_as_of_the_logs_end(private_world: SimpleNamespace) -> None:
    world = private_world.world
    world.produce(key_of("u0"), value_of("hot"))
    world.produce(key_of("u1"), None, partition=1)
    answer = private.lookup(private_world.settings, "profiles", {"app_id": "7", "user_id": "u0"})
    assert [row["value"] for row in answer["rows"]] == ["hot"]
    assert answer["read_point"]["end"] == world.end.to_dict()
    assert answer["stale"] is False
    with pytest.raises(RowNotFound):
        private.lookup(private_world.settings, "profiles", {"app_id": "7", "user_id": "u1", "key": "k"})
    rows, point = extracted(private_world)
    assert rows == {"u0": "hot", "u2": "cold"}
    assert point.end == world.end


def test_a_lookup_includes_the_records_that_it_is_asked_for_or_says_where_the_log_ends(
    private_world: SimpleNamespace,
) -> None:
    world, settings = private_world.world, private_world.settings
    world.produce(key_of("u0"), {"value": 5})
    entity = {"app_id": "7", "user_id": "u0"}
    answer = private.lookup(settings, "profiles", entity, "profiles/0@1")
    assert [row["value"] for row in answer["rows"]] == ["cold"]
    (refused,) = answer["refused"]
    assert (refused["offset"], refused["stage"]) == (1, "contract")
    assert private.refused(settings, "profiles", 10)["refused"] == [refused]
    with pytest.raises(ReadAfterTimeout, match="the log ends at profiles/0@2"):
        private.lookup(settings, "profiles", entity, "profiles/0@5")
    with pytest.raises(BadParameter, match="no partition 3"):
        private.lookup(settings, "profiles", entity, "profiles/3@0")


def test_an_extract_at_an_earlier_read_point_is_the_same_as_it_was(private_world: SimpleNamespace) -> None:
    world = private_world.world
    world.produce(key_of("u0"), value_of("hot"))
    before, point = extracted(private_world)
    world.produce(key_of("u9"), value_of("later"))
    commit(private_world.table, world)
    world.produce(key_of("u0"), None)
    assert extracted(private_world, at=point) == (before, point)
    assert "u9" in extracted(private_world)[0]


def test_a_read_point_that_is_not_there_is_refused(private_world: SimpleNamespace) -> None:
    world = private_world.world
    _, point = extracted(private_world)
    beyond = point.end.advanced({("profiles", 0): 99})
    for wrong in (
        ReadPoint(1, point.seam, point.end),
        ReadPoint(point.snapshot_id, point.seam.advanced({("profiles", 0): 2}), point.end),
        ReadPoint(point.snapshot_id, point.seam, beyond),
    ):
        with pytest.raises(ReadPointGone):
            extracted(private_world, at=wrong)
    assert world.end == point.end


def test_a_log_that_does_not_fit_the_table_is_refused(private_world: SimpleNamespace) -> None:
    private_world.log.topic_id = "another"
    with pytest.raises(LogReplaced):
        extracted(private_world)
    private_world.log.topic_id = "topic-1"
    private_world.world.logs[0].clear()
    with pytest.raises(LogReplaced):
        extracted(private_world)


def test_a_log_that_may_have_dropped_tombstones_is_refused(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_world.world.produce(key_of("u0"), value_of("hot"))
    private_world.log.is_compacted = True
    extracted(private_world)
    two_hours_later = ManualClock(SystemClock().now_ms() + 7_200_000)
    monkeypatch.setattr(private, "SystemClock", lambda: two_hours_later)
    with pytest.raises(TombstonesGone):
        extracted(private_world)


def test_an_earlier_read_point_whose_tombstones_may_be_gone_is_refused(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_world.world.produce(key_of("u0"), value_of("hot"))
    private_world.log.is_compacted = True
    before, point = extracted(private_world)
    assert extracted(private_world, at=point) == (before, point)
    two_hours_later = ManualClock(SystemClock().now_ms() + 7_200_000)
    monkeypatch.setattr(private, "SystemClock", lambda: two_hours_later)
    with pytest.raises(ReadPointGone, match="tombstones"):
        extracted(private_world, at=point)


@pytest.mark.parametrize("is_earlier", [False, True])
def test_tombstones_that_may_go_while_the_log_is_read_refuse_the_answer(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, is_earlier: bool
) -> None:
    """Method: the process sleeps for two hours between its look at the log and its end."""
    private_world.world.produce(key_of("u0"), value_of("hot"))
    private_world.log.is_compacted = True
    _, point = extracted(private_world)

    def slept(*arguments: Any) -> Any:
        gaps = fill_until(*arguments)
        two_hours_later = ManualClock(SystemClock().now_ms() + 7_200_000)
        monkeypatch.setattr(private, "SystemClock", lambda: two_hours_later)
        return gaps

    monkeypatch.setattr(private, "fill_until", slept)
    with pytest.raises(ReadPointGone if is_earlier else TombstonesGone):
        extracted(private_world, at=point if is_earlier else None)


@pytest.mark.parametrize(
    ("lag_ms", "is_cut", "is_refused"), [(0, True, True), (86_400_000, True, True), (0, False, False)]
)
def test_a_read_point_whose_records_a_later_one_may_have_replaced_is_refused(
    private_world: SimpleNamespace, lag_ms: int, is_cut: bool, is_refused: bool
) -> None:
    """Goal: what compaction drops for a record beyond the read point is not answered as the row of before.

    Method: u0 is written again beyond the end; compaction has dropped what the read point saw of it, or has
    dropped it for a record within (the log ends there). A lag that would have kept it was set later.
    """
    world, log = private_world.world, private_world.log
    log.is_compacted, log.lag_ms = True, lag_ms
    world.produce(key_of("u0"), value_of("first"))
    world.produce(key_of("u0"), value_of("seen"))
    before, point = extracted(private_world)
    log.dropped = {(0, 1)}
    if is_cut:
        world.produce(key_of("u0"), value_of("later"))
    if not is_refused:
        assert extracted(private_world, at=point) == (before, point)
        return
    with pytest.raises(ReadPointGone, match=f"min.compaction.lag.ms of {lag_ms:,}"):
        extracted(private_world, at=point)


def test_a_read_point_of_a_compacted_topic_that_lost_nothing_is_read_whatever_came_since(
    private_world: SimpleNamespace,
) -> None:
    world, log = private_world.world, private_world.log
    log.is_compacted = True
    world.produce(key_of("u0"), value_of("seen"))
    before, point = extracted(private_world)
    world.produce(key_of("u0"), value_of("later"))
    assert extracted(private_world, at=point) == (before, point)


def test_as_of_now_is_refused_where_compaction_overtakes_every_read(private_world: SimpleNamespace) -> None:
    world, log = private_world.world, private_world.log
    log.is_compacted = True
    world.produce(key_of("u0"), value_of("first"))

    def replaced() -> None:
        log.dropped.add((0, len(world.logs[0]) - 1))
        world.produce(key_of("u0"), value_of("later"))

    log.while_it_is_read = replaced
    with pytest.raises(NotReady, match="compaction"):
        extracted(private_world)


def test_as_of_now_reads_on_to_what_replaced_a_record_that_compaction_dropped_meanwhile(
    private_world: SimpleNamespace,
) -> None:
    """Method: between the look at the log's ends and the reading, a record is replaced and dropped."""
    world, log = private_world.world, private_world.log
    log.is_compacted = True
    world.produce(key_of("u0"), value_of("first"))

    def replaced() -> None:
        if not log.dropped:
            log.dropped = {(0, 1)}
            world.produce(key_of("u0"), value_of("later"))

    log.while_it_is_read = replaced
    rows, point = extracted(private_world)
    assert rows["u0"] == "later"
    assert point.end == world.end


@pytest.mark.parametrize("given_up_before", [True, False])
def test_tombstones_given_up_before_a_snapshot_do_not_matter_to_it(
    private_world: SimpleNamespace, given_up_before: bool
) -> None:
    """Method: a table that never held all of its log, which were given up before or after."""
    world, table = private_world.world, private_world.table
    world.produce(key_of("u0"), value_of("committed"))
    commit(table, world, **{catalogs.SUMMARY_DRAINED: "0"})
    world.produce(key_of("u0"), value_of("hot"))
    before, point = extracted(private_world)
    private_world.log.is_compacted = True
    since_ms = table.current_snapshot().timestamp_ms + (-1_000 if given_up_before else 1)
    table.transaction().set_properties(
        {catalogs.TOMBSTONES_PROPERTY: f'{{"profiles": {since_ms}}}'}
    ).commit_transaction()
    if given_up_before:
        assert extracted(private_world, at=point) == (before, point)
    else:
        with pytest.raises(ReadPointGone):
            extracted(private_world, at=point)


def test_a_disk_nearly_full_is_not_called_too_much_hot_data(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_world.world.produce(key_of("u0"), value_of("hot"))
    monkeypatch.setattr("thermocline.serving.hot.tier.DISK_FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(NotReady, match="disk"):
        extracted(private_world)


def changes_since(private_world: SimpleNamespace, since: ReadPoint) -> dict[str, tuple[str, str | None]]:
    sink = io.BytesIO()
    wanted = Wanted(since=since)
    private.extract(private_world.settings, "profiles", wanted, "arrow", sink, None, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    return {row["user_id"]: (row["_change_type"], row["value"]) for row in rows}


def test_changes_are_those_of_all_records_from_the_seam_of_the_read_point_on(
    private_world: SimpleNamespace,
) -> None:
    world = private_world.world
    _, first = extracted(private_world)
    assert changes_since(private_world, first) == {}
    world.produce(key_of("u8"), value_of("committed"))
    commit(private_world.table, world)
    world.produce(key_of("u0"), None)
    world.produce(key_of("u1"), value_of("hot"), partition=1)
    hot = {"u0": ("delete", None), "u1": ("upsert", "hot")}
    assert changes_since(private_world, first) == {"u8": ("upsert", "committed"), **hot}
    _, second = extracted(private_world)
    assert changes_since(private_world, second) == hot  # given again, since they are not committed yet
    world.produce(key_of("u9"), None)
    extract = private.changes(private_world.settings, "profiles", Wanted(since=second), lambda: False)
    spilled = private_world.settings.serving.state_dir / "profiles" / SPILL
    assert sum(batch.num_rows for batch in extract.batches()) == 3
    assert list(spilled.iterdir())
    extract.close()
    assert not list(spilled.iterdir())


def test_changes_that_nobody_waits_for_any_more_are_not_read_on(private_world: SimpleNamespace) -> None:
    _, point = extracted(private_world)
    private_world.world.produce(key_of("u0"), value_of("hot"))
    private_world.world.produce(key_of("u1"), value_of("hot"), partition=1)
    asked: list[bool] = []

    def is_abandoned() -> bool:
        asked.append(True)
        return len(asked) == 2

    before = {path.name for path in private_world.settings.serving.state_dir.rglob("*")}
    with pytest.raises(Abandoned):
        private.changes(private_world.settings, "profiles", Wanted(since=point), is_abandoned)
    after = {path.name for path in private_world.settings.serving.state_dir.rglob("*")}
    assert after - before <= {"profiles", SPILL}


def _with_more(**summary: str) -> Callable[[SimpleNamespace, ReadPoint], ReadPoint]:
    """A commit that says more of itself, and an ordinary one after it."""

    def commit_both(private_world: SimpleNamespace, point: ReadPoint) -> ReadPoint:
        for user, more in (("u7", summary), ("u8", {})):
            private_world.world.produce(key_of(user), value_of("committed"))
            commit(private_world.table, private_world.world, **more)
        return point

    return commit_both


def _trimmed(private_world: SimpleNamespace, point: ReadPoint) -> ReadPoint:
    _with_more()(private_world, point)
    private_world.log.starts = lambda _: private_world.world.seam
    return point


def _recreated(private_world: SimpleNamespace, point: ReadPoint) -> ReadPoint:
    private_world.log.topic_id = "another"
    return point


def _by_another(private_world: SimpleNamespace, point: ReadPoint) -> ReadPoint:
    table = private_world.table
    table.append(private_world.world.definition.table_schema.empty_table())
    return _with_more()(private_world, point)


UNTOLD: dict[str, Callable[[SimpleNamespace, ReadPoint], ReadPoint]] = {
    "not in the table's history": lambda _, point: ReadPoint(1, point.seam, point.end),
    "has another seam": lambda _, point: ReadPoint(point.snapshot_id, Seam(), point.end),
    "the log ends at": lambda _, point: ReadPoint(
        point.snapshot_id, point.seam, point.end.advanced({("profiles", 0): 99})
    ),
    "replayed quarantined records": _with_more(**{catalogs.SUMMARY_REPLAYED: "{}"}),
    "accepted that the log": _with_more(**{catalogs.SUMMARY_ACCEPTED: "{}"}),
    "definition was altered": _with_more(**{catalogs.SUMMARY_DEFINITION_VERSION: "0"}),
    "written by another program": _by_another,
    "the log no longer holds": _trimmed,
    "topic": _recreated,
}


@pytest.mark.parametrize("reason", UNTOLD)
def test_changes_that_history_or_log_do_not_tell_are_refused_with_the_reason(
    private_world: SimpleNamespace, reason: str
) -> None:
    _, point = extracted(private_world)
    point = UNTOLD[reason](private_world, point)
    with pytest.raises(ReadPointGone, match=reason) as refused:
        changes_since(private_world, point)
    assert "thermocline extract profiles" in refused.value.next


def rotate(private_world: SimpleNamespace, version: int, seam: dict[str, int], **summary: str) -> None:
    """A commit by which these other topics feed the table, up to these offsets, and no more."""
    table, world = private_world.table, private_world.world
    definition = replace(world.definition, topics=("profiles", *seam), version=version)
    with table.transaction() as change:
        change.set_properties({catalogs.DEFINITION_PROPERTY: definition.to_json()})
    ids = {"profiles": "topic-1", **{topic: f"{topic}-1" for topic in seam}}
    others = Seam({(topic, 0): end for topic, end in seam.items()})
    said = {
        catalogs.SUMMARY_SEAM: world.end.merged_max(others).to_json(),
        catalogs.SUMMARY_TOPIC_IDS: json.dumps(ids),
        catalogs.SUMMARY_DEFINITION_VERSION: str(version),
    }
    commit(table, world, **said, **summary)


def record_of(user: str, text: str) -> tuple[bytes, bytes]:
    return json.dumps(key_of(user)).encode(), json.dumps(value_of(text)).encode()


def test_changes_are_told_over_a_topic_that_left_and_one_that_came(private_world: SimpleNamespace) -> None:
    """Method: the copy begins when the table has all of the one; the other has a record of an earlier key."""
    log = private_world.log
    log.others = {"old": [record_of("u9", "of old")]}
    rotate(private_world, 2, {"old": 1}, **{catalogs.SUMMARY_TOPICS_ADDED: "old"})
    _, point = extracted(private_world)
    assert point.end["old", 0] == 1
    rotate(private_world, 3, {}, **{catalogs.SUMMARY_TOPICS_LEFT: "old"})
    log.others = {"new": [record_of("u1", "of new")]}
    assert changes_since(private_world, point) == {}
    rotate(private_world, 4, {"new": 0}, **{catalogs.SUMMARY_TOPICS_ADDED: "new"})
    private_world.world.produce(key_of("u2"), value_of("later"), partition=2)
    assert changes_since(private_world, point) == {"u1": ("upsert", "of new"), "u2": ("upsert", "later")}


def test_changes_of_a_compacted_topic_that_came_are_refused_where_its_deletes_may_be_gone(
    private_world: SimpleNamespace,
) -> None:
    """A topic may have been there for long, and the user was not allowed to read it."""
    _, point = extracted(private_world)
    private_world.log.others = {"new": [record_of("u1", "of new")]}
    rotate(private_world, 2, {"new": 0}, **{catalogs.SUMMARY_TOPICS_ADDED: "new"})
    assert changes_since(private_world, point) == {"u1": ("upsert", "of new")}
    private_world.log.is_compacted = True
    with pytest.raises(ReadPointGone, match="tombstones"):
        changes_since(private_world, point)


@pytest.mark.parametrize("while_read", [False, True])
def test_changes_of_which_tombstones_may_be_gone_are_refused(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, while_read: bool
) -> None:
    """Method: two hours pass before the log is looked at, or while it is read; all of it is committed."""
    _, point = extracted(private_world)
    private_world.log.is_compacted = True
    private_world.world.produce(key_of("u9"), value_of("later"))
    commit(private_world.table, private_world.world)
    assert changes_since(private_world, point) == {"u9": ("upsert", "later")}
    two_hours_later = ManualClock(SystemClock().now_ms() + 7_200_000)

    def pass_on() -> None:
        monkeypatch.setattr(private, "SystemClock", lambda: two_hours_later)

    if while_read:
        private_world.log.while_it_is_read = pass_on
    else:
        pass_on()
    with pytest.raises(ReadPointGone, match="tombstones"):
        changes_since(private_world, point)
