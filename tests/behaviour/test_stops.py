"""Every stop names its facts, and the command that it prints resumes: the table then is what was accepted."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.behaviour.around import Around, around_batches
from tests.behaviour.live import KEYED, MANY, Live, Rows, replayed, wait_for
from tests.behaviour.topic import APP, Topic
from tests.ingest.small_ingest import java_store
from tests.manual_clock import ManualClock
from thermocline.dev.broker import LocalKafka
from thermocline.dev.stack import Stack
from thermocline.errors import (
    DefinitionChanged,
    ExitCode,
    ForeignSnapshot,
    LogReplaced,
    NotConfirmed,
    OffsetsGone,
    RangeIncomplete,
    ReadPointGone,
    TableHeld,
    ThermoclineError,
    TombstonesGone,
)
from thermocline.iceberg.catalog import ACCEPTED_PROPERTY, DEFINITION_PROPERTY, SUMMARY_ACCEPTED
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.read_task import KafkaRanges
from thermocline.ingest.batch.scan import Scan
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.engine.spark import SparkEngine
from thermocline.ingest.table.resume import accept_gap
from thermocline.kafka.facts import OffsetRange
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.serving.read.encode import READ_POINT_METADATA
from thermocline.text import typed as command_line

USERS = range(20)
EVEN, ODD = range(0, 20, 2), range(1, 20, 2)  # partition 0 and 1 of two
Err = Callable[[], str]


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    """One broker and one catalog for all tables of this module."""
    return new_stack("stops", has_own_broker=True, partitions=1, buckets=2)


@pytest.fixture(scope="module")
def spark(stack: Stack, new_spark: Callable[[Stack], SparkSession]) -> SparkSession:
    return new_spark(stack)


@pytest.fixture
def new_live(stack: Stack, request: pytest.FixtureRequest) -> Callable[..., Live]:
    name = re.sub(r"\W", "_", request.node.name.removeprefix("test_")).strip("_")[-60:]
    return lambda **options: Live(stack, name, **options)


def values(users: range, value: str) -> Rows:
    return {(APP, f"u{user}", "plan"): value for user in users}


def accepted(live: Live, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `status` says was accepted in the table's life."""
    capsys.readouterr()
    assert live.run("status", "--without", "server", "--json") == 0
    tables = {entry["table"]: entry for entry in json.loads(capsys.readouterr().out)["tables"]}
    found: list[dict[str, Any]] = tables[live.name]["accepted"]
    return found


def typed(live: Live, stop: ForeignSnapshot | LogReplaced | OffsetsGone | TombstonesGone) -> str:
    """The command that resumes, as it is printed for the configuration that was given."""
    with command_line.typed(["--config", str(live.config_path)]):
        return command_line.as_typed(stop.resume)


def assert_stops_every_command(live: Live, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan ends with the same error, and status shows it."""
    capsys.readouterr()
    assert live.run("ingest", "plan", live.name) == ExitCode.STOPPED
    assert f"Error [{code}]" in capsys.readouterr().err
    live.run("status", "--json")
    tables = {entry["table"]: entry for entry in json.loads(capsys.readouterr().out)["tables"]}
    assert tables[live.name]["error"]["code"] == code


@pytest.mark.full
def test_a_topic_that_was_made_again(
    new_live: Callable[..., Live], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: rows of the old topic stay, all of the new topic is read, and only with the new topic's id."""
    live = new_live()
    live.write(USERS, "old")
    live.ingest()
    old_id = live.log.describe([live.name])[live.name].topic_id
    live.recreate()
    live.write(EVEN, "new")
    live.write(range(2), None)
    new_id = live.log.describe([live.name])[live.name].topic_id

    stop = live.stopped(LogReplaced)

    assert (stop.kind, stop.topics, stop.found) == ("topics", (live.name,), (f"topic:{live.name}={new_id}",))
    assert f"{live.name} (id {new_id}, before {old_id})" in stop.what
    assert_stops_every_command(live, "log-replaced", capsys)
    assert live.run("ingest", "accept-gap", live.name, "--fact", stop.tokens[0]) == NotConfirmed.exit_code
    assert (
        live.run("ingest", "rebase", live.name, "--fact", f"topic:{live.name}={old_id}", "--to", "earliest")
        == 2
    )
    assert typed(live, stop) in capsys.readouterr().err
    assert live.run_next(stop) == 0
    live.ingest()
    assert live.rows() == replayed(values(USERS, "old"), live.topic.oracle.records())
    assert live.state().topic_ids == {live.name: new_id}
    assert [(one["code"], one["facts"]) for one in accepted(live, capsys)] == [
        ("log-replaced", [f"topic:{live.name}={new_id}"])
    ]


@pytest.mark.full
def test_retention_that_cut_two_partitions_below_the_seam(
    new_live: Callable[..., Live], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: exactly the lost ranges are given up; rows whose tombstone was lost stay.

    Method: thirty records are committed, thirty more written, and some of those deleted in two partitions.
    """
    live = new_live(partitions=3)
    live.write(range(30), "first")
    live.ingest()
    committed = live.rows()
    live.write(range(15), None)
    live.write(range(15), "second")
    live.cut({0: 13, 1: 17})

    stop = live.stopped(OffsetsGone)

    assert stop.gaps == (f"{live.name}/0@10-13", f"{live.name}/1@10-17")
    assert_stops_every_command(live, "offsets-gone", capsys)
    # A fact left out, one too many, and another number are all refused, and the right command is printed.
    for facts in (
        stop.gaps[:1],
        (*stop.gaps, f"{live.name}/2@10-11"),
        (stop.gaps[0], f"{live.name}/1@10-16"),
    ):
        options = [option for fact in facts for option in ("--fact", fact)]
        assert live.run("ingest", "accept-gap", live.name, *options) == NotConfirmed.exit_code
        assert typed(live, stop) in capsys.readouterr().err
    assert live.run_next(stop) == 0
    assert live.state().seam == Seam.of({live.name: {0: 13, 1: 17, 2: 10}})
    note = json.loads(live.summary()[SUMMARY_ACCEPTED])
    assert note["seam_before"] == {live.name: {"0": 10, "1": 10}}
    assert note["seam_after"] == {live.name: {"0": 13, "1": 17}}
    assert live.run_next(stop) == ExitCode.NOTHING_TO_DO
    live.ingest()
    lost = {(0, 10, 13), (1, 10, 17)}
    kept = [
        record
        for record in live.topic.oracle.records()
        if record.offset >= 10
        and not any(record.partition == p and first <= record.offset < end for p, first, end in lost)
    ]
    assert live.rows() == replayed(committed, kept)
    assert [one["code"] for one in accepted(live, capsys)] == ["offsets-gone"]


@pytest.mark.full
def test_a_catalog_restored_from_an_older_copy(
    stack: Stack, new_live: Callable[..., Live], tmp_path: Path
) -> None:
    """Goal: ingest goes on from the older seam, or stops where the log no longer reaches back to it."""
    live = new_live()
    live.write(USERS, "one")
    live.ingest()
    older = live.state().seam
    catalog = stack.folder / "data" / "catalog.db"
    shutil.copy(catalog, tmp_path / "copy.db")
    live.write(EVEN, "two")
    live.write(range(1, 6, 2), None)
    live.ingest()
    newer = live.rows()

    def restore() -> None:
        shutil.copy(tmp_path / "copy.db", catalog)

    restore()
    assert live.state().seam == older
    live.ingest()
    assert live.rows() == newer == replayed({}, live.topic.oracle.records())

    restore()
    live.cut({0: older[live.name, 0] + 1})
    stop = live.stopped(OffsetsGone)
    first = older[live.name, 0]
    assert stop.gaps == (f"{live.name}/0@{first}-{first + 1}",)
    assert live.run_next(stop) == 0
    live.ingest()
    # The record that was lost is the second value of the first user.
    assert live.rows() == newer | {(APP, "u0", "plan"): "one"}


@pytest.mark.full
def test_a_table_rolled_back_by_spark(
    new_live: Callable[..., Live], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    live = new_live()
    live.write(USERS, "one")
    live.ingest()
    first = live.newest_id()
    live.write(EVEN, "two")
    owner = live.open()
    owner.catch_up(threading.Event())
    owner.lease.release()
    later = live.newest_id()
    catalog = live.settings.catalog.name
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('app.{live.name}', {first})").collect()
    assert live.newest_id() == first

    stop = live.stopped(ForeignSnapshot)

    assert stop.onto == first
    assert str(later) in stop.given_up
    current = ("--fact", f"current={first}")
    for options in ((*current, "--onto", str(later)), ("--onto", str(first))):
        assert live.run("ingest", "rebase", live.name, *options) == NotConfirmed.exit_code
        assert typed(live, stop) in capsys.readouterr().err
    snapshots = len(live.table().snapshots())
    assert live.run_next(stop) == 0
    assert len(live.table().snapshots()) == snapshots + 1, "going on and the note of it are one commit"
    assert json.loads(live.summary()[SUMMARY_ACCEPTED])["code"] == "foreign-snapshot"
    assert live.run_next(stop) == ExitCode.NOTHING_TO_DO
    live.ingest()
    assert live.rows() == replayed({}, live.topic.oracle.records())
    assert accepted(live, capsys)[0]["facts"] == [f"current={first}", f"onto={first}"]
    assert str(later) in accepted(live, capsys)[0]["given_up"]


@pytest.mark.full
def test_a_foreign_append_under_a_running_ingest(new_live: Callable[..., Live], spark: SparkSession) -> None:
    """Goal: rows of others are never adopted; what they wrote is given up, and the log is read on."""
    live = new_live()
    live.write(USERS, "one")
    owner = live.open()
    owner.catch_up(threading.Event())
    ours = live.newest_id()
    catalog = live.settings.catalog.name
    spark.sql(
        f"INSERT INTO {catalog}.app.{live.name} "
        "SELECT app_id, user_id, 'foreign', value, updated_at, _kafka_topic, _kafka_partition, "
        f"_kafka_offset, _kafka_timestamp FROM {catalog}.app.{live.name}"
    ).collect()
    foreign = live.newest_id()
    assert len(live.rows()) == 40
    live.write(EVEN, "two")

    with pytest.raises(ForeignSnapshot) as running:
        owner.step()
    owner.lease.release()
    stop = live.stopped(ForeignSnapshot)

    assert (stop.snapshot_id, stop.onto, stop.given_up) == (foreign, ours, (str(foreign),))
    assert running.value.next == stop.next
    spark.sql(f"DELETE FROM {catalog}.app.{live.name} WHERE key = 'foreign' AND user_id = 'u0'").collect()
    seen, stop = stop, live.stopped(ForeignSnapshot)
    assert len(stop.given_up) == 2
    assert live.run_next(seen) == NotConfirmed.exit_code, "what came since was not seen"
    assert live.run_next(stop) == 0
    live.ingest()
    assert live.rows() == replayed({}, live.topic.oracle.records())


@pytest.mark.full
@pytest.mark.parametrize("format_version", [2, 3])
def test_maintenance_by_spark_is_taken_over(
    new_live: Callable[..., Live], spark: SparkSession, format_version: int
) -> None:
    """Goal: files that another engine rewrote are gone on with, under a running ingest and by the next one.

    Method: a large file with deletes and small ones; all of Spark's procedures; `verify` reads every path.
    """
    live = new_live(choices=f"{KEYED}\nformat_version = {format_version}")
    catalog, table = live.settings.catalog.name, f"table => 'app.{live.name}'"

    def call(procedure: str, options: str = "") -> bool:
        """Whether it made a snapshot."""
        before = live.newest_id()
        spark.sql(f"CALL {catalog}.system.{procedure}({table}{options})").collect()
        return live.newest_id() != before

    live.write_many()
    live.write(USERS, "one")
    owner = live.open()
    owner.catch_up(threading.Event())
    live.write(MANY[::7], None)
    live.write(EVEN, "two")
    owner.catch_up(threading.Event())
    everything = ", options => map('rewrite-all', 'true')"

    assert call("rewrite_data_files", everything)
    live.write(ODD, "three")
    owner.catch_up(threading.Event())
    assert live.rows() == replayed({}, live.topic.oracle.records())
    assert call("rewrite_data_files", f", strategy => 'sort', sort_order => 'value'{everything}")
    assert call("rewrite_manifests")
    owner.close()
    live.write(MANY[1::7], "four")
    live.ingest()
    assert live.rows() == replayed({}, live.topic.oracle.records())
    if format_version == 2:  # of version 3, Iceberg has nothing to rewrite
        assert call("rewrite_position_delete_files", everything)
    call("expire_snapshots", ", older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 3")
    assert live.run("ingest", "run", live.name, "--once") in (ExitCode.DONE, ExitCode.NOTHING_TO_DO)
    assert live.state().seam == live.log.ends([live.name]), "taken over, though there was nothing to read"
    live.write(EVEN, "five")
    assert live.run("ingest", "run", live.name, "--once") == ExitCode.DONE
    assert live.rows() == replayed({}, live.topic.oracle.records())
    assert live.run("verify", live.name) == ExitCode.DONE


@pytest.mark.full
def test_partitions_added_under_load_are_read_from_their_start(new_live: Callable[..., Live]) -> None:
    live = new_live()
    ended = threading.Event()

    def produce() -> None:
        try:
            for number in range(300):
                if number == 100:
                    live.add_partitions(4)
                live.topic.send(
                    (APP, f"u{number % 50}", f"k{number}"), "x", number % (4 if number >= 100 else 2)
                )
                live.topic.flush()
        finally:
            ended.set()

    owner = live.open()
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        while not ended.is_set():
            owner.step()
        owner.catch_up(threading.Event())
    finally:
        owner.lease.release()
        producer.join()
    assert len(live.topic.oracle) == 300
    assert live.rows() == replayed({}, live.topic.oracle.records())
    assert live.state().seam == live.topic.oracle.end
    assert len(live.state().seam) == 4


def test_a_log_that_ends_before_the_seam(
    stack: Stack, new_live: Callable[..., Live], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: records that replace lost ones are not skipped, and both kinds of rows are there afterwards.

    Method: the broker stops, an older copy of the topic's folders comes back, and other records are written.
    """
    live = new_live()
    live.write(USERS, "one")
    data = stack.folder / "kafka" / "data"
    stack.kafka.stop()
    for folder in data.glob(f"{live.name}-*"):
        shutil.copytree(folder, tmp_path / folder.name)
    restart(stack)
    live.write(EVEN, "two")
    running = live.open()
    running.catch_up(threading.Event())
    running.lease.release()
    committed = live.rows()
    stack.kafka.stop()
    for folder in data.glob(f"{live.name}-*"):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / folder.name, folder)
    restart(stack)
    live.topic = Topic(live.settings.kafka, live.name)  # the broker has forgotten the producer before
    live.write(range(0, 6, 2), "other")

    with pytest.raises(LogReplaced):
        running.step()
    stop = live.stopped(LogReplaced)

    assert f"{live.name}/0 ends at 13 and was read up to 20" in stop.what
    assert_stops_every_command(live, "log-replaced", capsys)
    wrong = f"{live.name}/0@19"
    assert (
        live.run("ingest", "rebase", live.name, "--fact", wrong, "--to", "earliest") == NotConfirmed.exit_code
    )
    assert live.run("ingest", "rebase", live.name, "--fact", stop.tokens[0]) == 2, "--to has to be said"
    assert live.run_next(stop) == 0
    live.ingest()
    assert committed == values(EVEN, "two") | values(ODD, "one")
    # Read again from its beginning, the log says "one" of those whose "two" it has lost.
    assert live.rows() == values(USERS, "one") | values(range(0, 6, 2), "other")


@pytest.mark.full
def test_a_log_that_loses_its_end_while_it_is_read(
    stack: Stack, new_live: Callable[..., Live], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a read task is refused its first offset; that it lies beyond the log's end is what is said.

    Method: between plan and read, the broker stops and an older copy of the topic's folders comes back.
    """
    live = new_live()
    data = stack.folder / "kafka" / "data"
    stack.kafka.stop()
    for folder in data.glob(f"{live.name}-*"):
        shutil.copytree(folder, tmp_path / folder.name)
    restart(stack)
    live.write(USERS, "one")
    owner = live.open()
    owner.catch_up(threading.Event())
    live.write(USERS, "two")

    def lose() -> None:
        stack.kafka.stop()
        for folder in data.glob(f"{live.name}-*"):
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / folder.name, folder)
        restart(stack)

    around_batches(owner, before=lose)
    with pytest.raises(LogReplaced) as stop:
        owner.step()
    owner.lease.release()
    assert stop.value.tokens == (f"{live.name}/0@10", f"{live.name}/1@10")


def restart(stack: Stack) -> None:
    stack.kafka.start()
    stack.kafka.wait()


@pytest.mark.full
def test_another_cluster(
    stack: Stack,
    new_live: Callable[..., Live],
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    live = new_live()
    live.write(USERS, "one")
    live.ingest()
    recorded = live.state().cluster_id
    with LocalKafka(tmp_path_factory.mktemp("other")) as other:
        other.create_topic(live.name, 1)
        text = live.config_path.read_text()
        live.config_path.write_text(text.replace(stack.kafka.bootstrap_servers, other.bootstrap_servers))
        producer = Live.__new__(Live)  # the same table, and the other cluster's topic
        producer.__dict__ |= live.__dict__
        producer.topic = Topic(live.settings.kafka, live.name)
        producer.write(EVEN, "two")

        stop = live.stopped(LogReplaced)

        answering = Log(live.settings.kafka).cluster_id()
        assert f"fed from cluster {recorded}, but cluster {answering} answers" in stop.what
        assert_stops_every_command(live, "log-replaced", capsys)
        wrong = ("--fact", f"cluster={recorded}", "--to", "earliest")
        assert live.run("ingest", "rebase", live.name, *wrong) == NotConfirmed.exit_code
        assert live.run_next(stop) == 0
        live.ingest()
        assert live.rows() == values(EVEN, "two") | values(ODD, "one")
        assert live.state().cluster_id == answering
        assert live.state().seam == Seam.of({live.name: {0: 10}})


@pytest.mark.full
def test_a_topic_made_again_with_fewer_partitions(new_live: Callable[..., Live]) -> None:
    """Goal: the seam of partitions that are gone goes with them, and a rebase may leave out what is there.

    That they are gone from a topic that is not another one cannot be made on a real broker: see test_seam.py.
    """
    live = new_live(partitions=3)
    live.write(USERS, "old")
    live.ingest()
    live.recreate(partitions=1)
    live.write(EVEN, "new")

    stop = live.stopped(LogReplaced)

    facts = [option for token in stop.tokens for option in ("--fact", token)]
    assert live.run("ingest", "rebase", live.name, *facts, "--to", "latest") == 0
    assert live.state().seam == Seam.of({live.name: {0: 10}})
    live.write(range(3), "newer")
    live.ingest()
    assert live.rows() == values(USERS, "old") | values(range(3), "newer")


@pytest.mark.full
def test_a_table_without_a_key_goes_on_with_no_other_topic(
    new_live: Callable[..., Live], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no row is given twice, nor hidden behind one that took its place in the log."""
    live = new_live(choices='key = []\nkey_from = "value"')
    live.recreate()
    stop = live.stopped(LogReplaced)
    newest = live.newest_id()
    assert live.run_next(stop) == LogReplaced.exit_code
    assert "this one has no key" in capsys.readouterr().err
    assert live.newest_id() == newest


HOUR_SECONDS = 3600.0
DAY_MS = 86_400_000


@pytest.mark.full
@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_a_compacted_topic_and_behind_for_longer_than_its_tombstones_live(
    new_live: Callable[..., Live], capsys: pytest.CaptureFixture[str], timestamps: str
) -> None:
    live = new_live(config={"cleanup.policy": "compact", "message.timestamp.type": timestamps})
    live.write(USERS, "one")
    days_ago = ManualClock(SystemClock().now_ms() - 2 * DAY_MS)
    live.ingest(days_ago)
    assert live.state().drained_ms == days_ago.now_ms()
    live.write(EVEN, None)
    days_ago.advance(24 * HOUR_SECONDS)
    live.open(days_ago).lease.release()  # as long as they live, nothing can be missing

    if timestamps == "LogAppendTime":
        # The record at the seam is there, and young by the broker's time: no tombstone before it is lost.
        live.ingest()
        assert live.rows() == values(ODD, "one")
        return
    stop = live.stopped(TombstonesGone)

    assert stop.topics == (live.name,)
    assert_stops_every_command(live, "tombstones-gone", capsys)
    wrong = ("--fact", f"tombstones:{live.name}=2026-01-01T00:00:00.000Z")
    assert live.run("ingest", "accept-gap", live.name, *wrong) == NotConfirmed.exit_code
    assert typed(live, stop) in capsys.readouterr().err
    drained_ms = live.state().drained_ms
    assert live.run_next(stop) == 0
    assert live.state().drained_ms == drained_ms, "what was accepted was not read"
    live.set_config(delete_retention_ms="0")
    live.ingest()
    assert live.rows() == values(ODD, "one")
    assert accepted(live, capsys)[0]["facts"] == list(stop.tokens)
    assert live.run("ingest", "run", live.name, "--once") == ExitCode.NOTHING_TO_DO


@pytest.mark.full
def test_an_earlier_read_point_of_a_compacted_topic_is_the_same_or_refused(
    new_live: Callable[..., Live], tmp_path: Path
) -> None:
    """Goal: what compaction drops for a record beyond a read point is never answered as the row of before.

    Method: segments of half a second, and a cleaner that never rests. All users are written again, and some
    deleted, beyond the read point; once it is cleaned the log has lost what the read point saw of them.
    """
    fast = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
    live = new_live(config={"cleanup.policy": "compact", **fast})
    live.set_broker_config(log_cleaner_backoff_ms="100")
    live.write(USERS, "one")
    live.ingest()
    live.write(USERS, "two")
    before, point = extracted(live, tmp_path)
    assert before == values(USERS, "two")
    assert extracted(live, tmp_path, "--at", point) == (before, point)

    live.write(ODD, "three")
    live.write(EVEN, None)

    def is_refused() -> bool:
        live.write([98, 99], "rolls")  # a segment is rolled by the record that comes after it
        output = tmp_path / "again.parquet"
        code = live.run("extract", live.name, "-o", str(output), "--at", point)
        assert code == ReadPointGone.exit_code or rows_of(output) == before
        return code == ReadPointGone.exit_code

    wait_for(is_refused)
    now, _ = extracted(live, tmp_path)
    assert now == values(ODD, "three") | values(range(98, 100), "rolls")


def rows_of(output: Path) -> Rows:
    rows = pq.read_table(output).to_pylist()
    return {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}


def extracted(live: Live, folder: Path, *arguments: str) -> tuple[Rows, str]:
    """The rows and the read point of ``extract``."""
    output = folder / "extract.parquet"
    assert live.run("extract", live.name, "-o", str(output), *arguments) == 0
    return rows_of(output), pq.read_schema(output).metadata[READ_POINT_METADATA.encode()].decode()


def test_a_table_that_has_read_nothing_yet_begins_with_the_log_as_it_is(
    new_live: Callable[..., Live],
) -> None:
    """Goal: made long ago, it neither stops at its first batch nor at the ones that follow."""
    live = new_live(config={"cleanup.policy": "compact"})
    live.write(USERS, "one")
    live.write(EVEN, None)
    in_days = ManualClock(live.state().drained_ms + 2 * DAY_MS)
    owner = live.open(in_days)
    owner.settings = owner.settings.model_copy(update={"batch_records_max": 10})
    try:
        assert owner.step()
    finally:
        owner.lease.release()
    live.ingest(in_days)
    assert live.rows() == values(ODD, "one")


def test_an_idle_table_of_a_compacted_topic_says_that_it_holds_all(new_live: Callable[..., Live]) -> None:
    """Goal: standing still because nothing comes is not being behind."""
    live = new_live(config={"cleanup.policy": "compact"})
    live.write(USERS, "one")
    live.ingest()
    before = live.state()
    clock = ManualClock(before.drained_ms)
    owner = live.open(clock)
    try:
        for _ in range(30):
            clock.advance(HOUR_SECONDS)
            owner.step()
        live.write(EVEN, None)
        owner.step()
    finally:
        owner.lease.release()
    assert live.rows() == values(ODD, "one")
    assert live.state().drained_ms == before.drained_ms + 30 * 3_600_000


@pytest.mark.full
def test_a_definition_changed_under_a_running_ingest(new_live: Callable[..., Live]) -> None:
    live = new_live()
    owner = live.open()
    table = JavaCatalog(java_store(owner.committer).jvm, live.settings.catalog).load(f"app.{live.name}")
    definition = json.loads(live.property_of(DEFINITION_PROPERTY))
    altered = json.dumps(definition | {"version": definition["version"] + 1})
    table.updateProperties().set(DEFINITION_PROPERTY, altered).commit()
    live.write(USERS, "one")
    before = live.newest_id()

    with pytest.raises(DefinitionChanged) as stop:
        owner.catch_up(threading.Event())
    owner.lease.release()

    assert (stop.value.planned, stop.value.found) == (definition["version"], definition["version"] + 1)
    assert live.newest_id() == before
    assert stop.value.next == f"thermocline ingest run {live.name}"
    live.ingest()
    assert live.rows() == values(USERS, "one")


@pytest.mark.full
def test_records_lost_while_they_are_read_are_counted_from_the_seam_on(new_live: Callable[..., Live]) -> None:
    """Goal: a read task meets one partition; the error names all, so that its command is the right one."""
    live = new_live()
    live.write(USERS, "one")
    owner = live.open()

    around_batches(owner, before=lambda: live.cut({0: 4, 1: 6}))
    with pytest.raises(OffsetsGone) as stop:
        owner.step()
    owner.lease.release()
    assert stop.value.gaps == (f"{live.name}/0@0-4", f"{live.name}/1@0-6")
    assert live.run_next(stop.value) == 0
    live.ingest()
    assert live.rows() == values(range(8, 20, 2), "one") | values(range(13, 20, 2), "one")


def test_a_topic_made_again_while_it_is_read_commits_nothing(new_live: Callable[..., Live]) -> None:
    """Goal: what was read is committed only under the topic that is still there afterwards."""
    live = new_live()
    live.write(USERS, "one")
    owner = live.open()
    before = live.newest_id()

    around_batches(owner, after=live.recreate)
    with pytest.raises(LogReplaced):
        owner.step()
    owner.lease.release()
    assert live.newest_id() == before


def test_a_batch_that_takes_longer_than_tombstones_live_commits_nothing(
    new_live: Callable[..., Live],
) -> None:
    live = new_live(config={"cleanup.policy": "compact"})
    live.write(USERS, "one")
    clock = ManualClock(live.state().drained_ms)
    owner = live.open(clock)
    before = live.newest_id()

    around_batches(owner, before=lambda: clock.advance(48 * HOUR_SECONDS))
    with pytest.raises(TombstonesGone):
        owner.step()
    owner.lease.release()
    assert live.newest_id() == before


class Forgetful(list[OffsetRange]):
    """The ranges of a task, of which its worker gets all but the last."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self)[:-1],)


class LosingRanges(Around):
    """An engine whose workers never hear of some ranges."""

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        assert isinstance(scan.source, KafkaRanges)
        losing = KafkaRanges([Forgetful(some) for some in scan.source.splits])
        return super().run(replace(scan, source=losing))


@pytest.mark.full
def test_a_batch_with_a_hole_is_not_committed(new_live: Callable[..., Live], spark: SparkSession) -> None:
    """Goal: what a task does not report is missing, whatever the reason, and the driver sees it."""
    live = new_live()
    live.write(USERS, "one")
    owner = live.open()
    before = live.newest_id()
    owner.engine = LosingRanges(SparkEngine(spark))

    with pytest.raises(RangeIncomplete) as incomplete:
        owner.step()
    owner.lease.release()

    assert incomplete.value.end == 10
    assert live.newest_id() == before


@pytest.mark.full
def test_accepting_takes_the_table_from_nobody(new_live: Callable[..., Live]) -> None:
    """Goal: where nothing is to be accepted, nothing is done; where an owner lives, nothing either."""
    live = new_live()
    newest = live.newest_id()
    assert live.run("ingest", "accept-gap", live.name, "--fact", f"{live.name}/0@0-1") == 10
    assert live.run("ingest", "rebase", live.name, "--fact", "cluster=x", "--to", "latest") == 10
    assert live.run("ingest", "rebase", live.name, "--to", "2026-01-01T00:00:00Z") == 10
    assert live.run("ingest", "rebase", live.name, "--onto", "1") == 10
    for options in ((), ("--to", "yesterday"), ("--to", "2026-01-01"), ("--to", "latest", "--onto", "1")):
        assert live.run("ingest", "rebase", live.name, *options) == 2
    assert live.property_of(ACCEPTED_PROPERTY) == ""
    assert live.newest_id() == newest
    live.write(USERS, "one")
    live.cut({0: 3})
    table = live.table()
    lease = OwnerLease(table.io, table.location(), live.name, 60, SystemClock(), lambda _: None)
    lease.hold(1)
    try:
        with pytest.raises(TableHeld):
            accept_gap(live.settings, live.name, [f"{live.name}/0@0-3"], Watching(lease))
    finally:
        lease.release()
    assert live.newest_id() == newest


class Watching(SystemClock):
    """Time in which the owner that is watched renews its lease."""

    def __init__(self, lease: OwnerLease) -> None:
        self._lease = lease

    def sleep(self, seconds: float) -> None:
        self._lease.renew()
