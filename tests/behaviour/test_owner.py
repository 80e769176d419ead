"""Crashes, rivals and refusals: the table equals the replay of the log, or ingest stops and says why."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families
from py4j.protocol import Py4JJavaError
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.behaviour.around import Around, around_batches
from tests.behaviour.topic import APP, Topic
from tests.ingest.small_ingest import java_store
from tests.torture import takeover
from thermocline.dev.oracle import RowKey
from thermocline.dev.ports import free_ports
from thermocline.dev.stack import NO_CERTIFICATES, TABLE, TOPIC, Stack
from thermocline.errors import (
    CommitUnknown,
    EngineFailed,
    ForeignSnapshot,
    LogReplaced,
    OffsetsGone,
    OwnerLost,
    StorageFailed,
    ThermoclineError,
    TooManyBadRecords,
    TopicMissing,
)
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.ingest import run as ingest_run
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.scan import Scan
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.owner import turns
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.rules.definition import OnError


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("owner", partitions=2, commit_interval_seconds=1.0)


@pytest.fixture(scope="module")
def topic(stack: Stack) -> Topic:
    return Topic(stack.settings.kafka, TOPIC)


def table_rows(stack: Stack) -> dict[RowKey, str]:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    rows = table.scan().to_arrow().to_pylist()
    by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(by_key) == len(rows), "a key is live twice"
    return by_key


def replayed(topic: Topic) -> dict[RowKey, str]:
    return {key: row["value"] for key, row in topic.oracle.rows().items()}


def write_some(topic: Topic, generation: int) -> None:
    """Inserts, updates of what earlier generations wrote, and deletes."""
    for user in range(300):
        topic.send((APP, f"u{user}", "plan"), f"{generation}-{user}")
        topic.send((APP, f"u{user}", f"g{generation}"), "x")
        if user % 3 == generation % 3:
            topic.send((APP, f"u{user}", f"g{generation - 1}"), None)
    topic.flush()


def data_files(stack: Stack) -> set[Path]:
    return set((stack.folder / "data" / "warehouse").glob(f"app/{TABLE}/data/**/*.parquet"))


def snapshot_id(stack: Stack) -> int:
    return current_state(
        load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}"), TABLE
    ).snapshot_id


@pytest.mark.full
@pytest.mark.parametrize(("number", "generation"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)])
def test_ingest_told_to_stop_ends_cleanly_with_its_last_batch_committed(
    stack: Stack, topic: Topic, number: signal.Signals, generation: int
) -> None:
    """Method: as a terminal does, the signal goes to Spark's JVM, too."""
    write_some(topic, generation)
    wanted = replayed(topic)
    running = stack.ingest()
    stack.wait_for(lambda: table_rows(stack) == wanted, "the batch is committed", running)
    os.killpg(running.process.pid, number) if number == signal.SIGINT else running.tell_to_stop()
    assert running.process.wait() == 0


def test_ingest_shows_prometheus_what_it_committed_and_how_the_table_is(stack: Stack, topic: Topic) -> None:
    """Method: as a user starts it; what it shows is compared with what was written and with the table."""
    write_some(topic, 3)
    (port,) = free_ports(1)
    running = stack.ingest("--metrics-port", str(port))

    def shown() -> dict[str, float]:
        try:
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30, verify=NO_CERTIFICATES).text
        except httpx.TransportError:  # it does not listen yet
            return {}
        samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
        return {f"{one.name} {one.labels.get('outcome', '')}".strip(): one.value for one in samples}

    wanted = replayed(topic)

    def has_all() -> bool:
        found.update(shown())
        rows, lag = (found.get(f"thermocline_{name}") for name in ("table_rows", "ingest_lag_records"))
        return (rows, lag) == (len(wanted), 0)  # the lag is set when the next batch is planned

    found: dict[str, float] = {}
    stack.wait_for(has_all, "all is committed", running)
    running.tell_to_stop()
    assert running.process.wait() == 0
    assert table_rows(stack) == wanted
    assert found["thermocline_ingest_commits_total landed"] >= 1
    assert found["thermocline_ingest_commits_total unknown"] == found["thermocline_ingest_lag_records"] == 0
    # Two records of each user, and a third that deletes.
    assert sum(count for name, count in found.items() if "ingest_records_total" in name) == 700
    assert found["thermocline_ingest_commit_interval_seconds"] == 1
    assert found["thermocline_table_bytes"] > 0


def test_once_with_nothing_new_says_so(stack: Stack) -> None:
    assert stack.ingest("--once").process.wait() == 10


@pytest.fixture(scope="module")
def rival_stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("rivals", partitions=1, buckets=2)


def test_a_stale_owner_cannot_commit(rival_stack: Stack, new_owner: Callable[[Stack], Owner]) -> None:
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    stale = new_owner(rival_stack)
    topic.send((APP, "u1", "plan"), "free")
    topic.flush()
    newer = new_owner(rival_stack)
    files_before = data_files(rival_stack)

    with pytest.raises(OwnerLost) as lost:
        stale.catch_up(threading.Event())

    assert (lost.value.epoch_ours, lost.value.epoch_found) == (stale.committer.epoch, newer.committer.epoch)
    assert data_files(rival_stack) == files_before, "what the refused batch wrote is cleaned up"
    newer.catch_up(threading.Event())
    assert table_rows(rival_stack) == {(APP, "u1", "plan"): "free"}


class NoBatch:
    """In place of an owner's engine: the files of a batch in vain would be deleted, and nobody the wiser."""

    jvm, tasks = None, 2

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        raise AssertionError("a batch was run")

    def start(self, task: Callable[[], Any]) -> Future[Any]:
        raise AssertionError("a task was started")

    def check(self) -> None:
        raise AssertionError("the table is another owner's already")

    def stop(self) -> None:
        raise AssertionError("it is another one's session")


def test_an_owner_that_meets_another_ones_commit_after_an_outage_ends_without_a_batch(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    stale = new_owner(rival_stack)
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "u1", "plan"), "outage")
    topic.flush()
    new_owner(rival_stack)
    stale.must_reload, stale.engine = True, NoBatch()
    with pytest.raises(OwnerLost):
        stale.step()


class Expired(PyArrowFileIO):
    """What a catalog granted for a while only."""

    def new_input(self, location: str) -> Any:
        raise PermissionError(f"{location}: the token has expired")

    new_output = new_input


def test_an_owner_loads_its_access_to_the_store_again_after_an_outage(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    """Goal: where a catalog vends credentials, ingest goes on when these expire."""
    owner = new_owner(rival_stack)
    owner.catch_up(threading.Event())
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "u1", "plan"), "granted")
    topic.flush()
    owner.task = replace(owner.task, io=Expired())
    owner.lease.io = owner.table.io = owner.task.io
    java = java_store(owner.committer)
    expired = java.table
    with pytest.raises(StorageFailed):
        owner.step()
    owner.must_reload = True  # as whoever runs it says after each error that it waits out
    owner.catch_up(threading.Event())
    assert table_rows(rival_stack)[APP, "u1", "plan"] == "granted"
    owner.lease.renew()
    assert not isinstance(owner.table.io, Expired)
    assert java.table is not expired


def test_an_owner_whose_lease_another_one_took_ends_without_a_batch(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    stale = new_owner(rival_stack)
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "u1", "plan"), "lease")
    topic.flush()
    newer = new_owner(rival_stack)
    stale.lease.renew()
    stale.engine = NoBatch()
    with pytest.raises(OwnerLost):
        stale.step()
    newer.catch_up(threading.Event())
    assert table_rows(rival_stack)[APP, "u1", "plan"] == "lease"


def owner_object(stack: Stack) -> Path:
    return stack.folder / "data" / "warehouse" / "app" / TABLE / "thermocline" / "owner.json"


def test_an_owner_that_meets_its_epoch_in_anothers_hands_after_an_outage_ends_without_a_batch(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    """Goal: two owners of one epoch, as after a catalog was restored, do not go on side by side."""
    owner = new_owner(rival_stack)
    held = owner_object(rival_stack)
    ours = held.read_text()
    held.write_text(json.dumps({**json.loads(ours), "owner": "another"}))
    owner.must_reload = True
    with pytest.raises(OwnerLost):
        owner.step()
    held.write_text(ours)


def test_an_owner_whose_engine_has_ended_does_not_wait_for_a_catalog_that_answers(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    """Goal: ingest ends, to be started again, as after a commit that met a dead JVM."""

    def ended() -> None:
        raise EngineFailed(engine="it", detail="it was killed")

    owner = new_owner(rival_stack)
    engine = Around(owner.engine)
    engine.check = ended
    owner.must_reload, owner.engine = True, engine
    with pytest.raises(EngineFailed):
        owner.step()


def test_ingest_told_to_stop_while_it_waits_for_the_table_ends_without_starting_an_engine(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    new_owner(rival_stack).lease.release()
    object_path = owner_object(rival_stack)
    elsewhere = {"boot_id": "another", "ended": "", "lease_seconds": 3_600}
    object_path.write_text(json.dumps(json.loads(object_path.read_text()) | elsewhere))
    monkeypatch.setattr("thermocline.ingest.run.start_engine", None)
    stop = threading.Event()
    stop.set()
    (ended,) = ingest_run.run(rival_stack.settings, [TABLE], once=False, stop=stop)
    assert ended.exit_code == 0
    object_path.unlink()


class Outage(threading.Event):
    """The event that tells an owner to stop; a catalog comes back while the owner waits to try again."""

    def __init__(self, catalog: Path, tries: int) -> None:
        super().__init__()
        self._catalog = catalog
        self._content = catalog.read_bytes()
        self._tries = tries
        self.waits = 0
        catalog.write_bytes(b"not a database" * 1000)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        super().wait(timeout)
        if self.waits == self._tries:
            self._catalog.write_bytes(self._content)
        elif self.waits > self._tries:
            self.set()
        return self.is_set()


def test_a_catalog_that_is_away_is_waited_out_and_nothing_is_lost_or_left(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the batch that met the outage is thrown away and made again from the table as it then is.

    Method: the catalog's file is overwritten while the owner runs a batch, and restored after three tries.
    """
    owner = new_owner(rival_stack)
    owner.catch_up(threading.Event())
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "u1", "plan"), "after the outage")
    topic.flush()
    files_before = data_files(rival_stack)
    outage = Outage(rival_stack.folder / "data" / "catalog.db", tries=3)

    monkeypatch.setattr(turns, "RETRY_SECONDS", 0.1)
    turns.follow(owner, outage)

    assert outage.waits > 3
    assert table_rows(rival_stack)[APP, "u1", "plan"] == "after the outage"
    assert len(data_files(rival_stack) - files_before) == 1


class LostAnswer:
    """The table of a committer, whose catalog fails to answer one swap, made or not made."""

    def __init__(self, jvm: Any, table: Any, is_made: bool) -> None:
        self._jvm = jvm
        self._table = table
        self._is_made = is_made
        self._is_lost = False

    def operations(self) -> Any:
        return self if not self._is_lost else self._table.operations()

    def commit(self, base: Any, metadata: Any) -> None:
        self._is_lost = True
        if self._is_made:
            self._table.operations().commit(base, metadata)
        raise Py4JJavaError("no answer", self._jvm.java.lang.RuntimeException("connection reset"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


@pytest.mark.full
def test_a_lost_answer_to_a_commit_that_was_made_repeats_nothing(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    owner = new_owner(rival_stack)
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "u2", "plan"), "lost answer")
    topic.flush()
    store = java_store(owner.committer)
    store.table = LostAnswer(store.jvm, store.table, is_made=True)

    owner.catch_up(threading.Event())

    assert owner.position.snapshot_id == snapshot_id(rival_stack)
    assert table_rows(rival_stack)[APP, "u2", "plan"] == "lost answer"


def test_a_commit_that_nobody_can_find_stops_ingest_and_keeps_its_files(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    owner = new_owner(rival_stack)
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "u3", "plan"), "unknown")
    topic.flush()
    store = java_store(owner.committer)
    store.table = LostAnswer(store.jvm, store.table, is_made=False)
    before, files_before = snapshot_id(rival_stack), data_files(rival_stack)

    with pytest.raises(CommitUnknown) as unknown:
        owner.catch_up(threading.Event())

    assert f"{TOPIC}/0" in unknown.value.ranges
    assert snapshot_id(rival_stack) == before
    assert len(data_files(rival_stack) - files_before) == 1
    new_owner(rival_stack).catch_up(threading.Event())
    assert table_rows(rival_stack)[APP, "u3", "plan"] == "unknown"


@pytest.mark.full
def test_a_table_that_others_wrote_or_rolled_back_stops_ingest(
    new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner]
) -> None:
    """Goal: a seam counts only with the very snapshot that carries it.

    Method: another writer appends, and rolls the table back, first to our last snapshot, which is as good as
    before, then behind it, where the table's copy of the seam is of another snapshot.
    """
    stack = new_stack("foreign", partitions=1, buckets=2)
    owner = new_owner(stack)
    others_table = JavaCatalog(java_store(owner.committer).jvm, stack.settings.catalog).load(f"app.{TABLE}")
    topic = Topic(stack.settings.kafka, TOPIC)
    first = owner.position.snapshot_id
    topic.send((APP, "u1", "plan"), "free")
    topic.flush()
    owner.catch_up(threading.Event())
    ours, files = owner.position.snapshot_id, data_files(stack)
    others_table.refresh()
    others_table.newAppend().commit()
    topic.send((APP, "u1", "plan"), "pro")
    topic.flush()

    with pytest.raises(ForeignSnapshot):
        owner.step()
    with pytest.raises(ForeignSnapshot):
        new_owner(stack)
    assert data_files(stack) == files

    others_table.manageSnapshots().rollbackTo(ours).commit()
    new_owner(stack).catch_up(threading.Event())
    assert table_rows(stack) == {(APP, "u1", "plan"): "pro"}

    others_table.refresh()
    others_table.manageSnapshots().rollbackTo(first).commit()
    with pytest.raises(ForeignSnapshot):
        new_owner(stack)


@pytest.mark.full
def test_a_bad_record_stops_a_table_that_wants_to_fail_and_commits_nothing(
    new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner]
) -> None:
    stack = new_stack("failing", partitions=1, buckets=2)
    owner = new_owner(stack)
    topic = Topic(stack.settings.kafka, TOPIC)
    topic.send((APP, "u1", "plan"), "free")
    topic.send_raw(b"{", b"garbage")
    topic.flush()
    before = snapshot_id(stack)
    owner.definition = replace(owner.definition, on_error=OnError.parse("fail"))
    owner.bad_records.policy = replace(owner.bad_records.policy, on_error=owner.definition.on_error)

    with pytest.raises(TooManyBadRecords) as bad:
        owner.catch_up(threading.Event())

    assert bad.value.examples[0].startswith(f"{TOPIC}/0@1 (key): ")
    assert snapshot_id(stack) == before
    assert not data_files(stack)


@pytest.mark.full
def test_bad_records_are_kept_before_the_batch_that_they_came_with_commits(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a crash between the two leaves a repeat in quarantine, never a record that is nowhere."""
    owner = new_owner(rival_stack)
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send_raw(b"bad key", b"kept first")
    topic.flush()
    before = snapshot_id(rival_stack)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(owner.committer, "commit", crash)
    with pytest.raises(KeyboardInterrupt):
        owner.catch_up(threading.Event())

    kept = open_catalog(rival_stack.settings.catalog).load_table(f"app.{TABLE}_quarantine").scan().to_arrow()
    assert kept.column("value").to_pylist() == [b"kept first"]
    assert snapshot_id(rival_stack) == before


def test_what_was_read_is_committed_though_retention_took_it_meanwhile(
    rival_stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    """Goal: an owner that is as far behind as the topic keeps records gets away from the log's start."""
    owner = new_owner(rival_stack)
    owner.catch_up(threading.Event())
    topic = Topic(rival_stack.settings.kafka, TOPIC)
    topic.send((APP, "cut", "plan"), "x")
    topic.send((APP, "cut", "plan"), "y")
    topic.flush()
    seam = owner.position.seam[TOPIC, 0]

    around_batches(owner, after=lambda: cut(rival_stack, seam + 1))
    owner.step()

    assert owner.position.seam[TOPIC, 0] == seam + 2
    assert table_rows(rival_stack)[APP, "cut", "plan"] == "y"


def cut(stack: Stack, offset: int) -> None:
    """Delete the records of the first partition below an offset, as retention does."""
    admin = AdminClient({**stack.settings.kafka.client_config(), "log_level": 0})
    admin.delete_records([TopicPartition(TOPIC, 0, offset)])[TopicPartition(TOPIC, 0)].result(30)


@pytest.mark.full
def test_records_deleted_below_the_seam_stop_ingest_with_the_lost_range(
    new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner]
) -> None:
    stack = new_stack("gap", partitions=1, buckets=2)
    owner = new_owner(stack)
    topic = Topic(stack.settings.kafka, TOPIC)
    for number in range(10):
        topic.send((APP, "u1", f"k{number}"), "x")
    topic.flush()
    cut(stack, 5)

    with pytest.raises(OffsetsGone) as gone:
        owner.catch_up(threading.Event())

    assert gone.value.gaps == (f"{TOPIC}/0@0-5",)
    assert table_rows(stack) == {}

    stack.kafka.delete_topic(TOPIC)
    stack.wait_for(lambda: _is_gone(stack), "the topic is gone")
    stack.wait_for(lambda: _created_again(stack), "the topic is created again")
    with pytest.raises(LogReplaced):
        owner.catch_up(threading.Event())
    assert stack.ingest("--once").process.wait() == LogReplaced.exit_code


def _is_gone(stack: Stack) -> bool:
    try:
        Log(stack.settings.kafka).describe([TOPIC])
    except TopicMissing:
        return True
    return False


def _created_again(stack: Stack) -> bool:
    """A deleted topic's name is free a moment later, and a new topic is known a moment after that."""
    with suppress(KafkaException):
        stack.kafka.create_topic(TOPIC, 1)
    with suppress(TopicMissing):
        return bool(Log(stack.settings.kafka).describe([TOPIC]))
    return False


@pytest.mark.full
def test_an_owner_that_wakes_up_after_a_takeover_commits_nothing_and_ends(tmp_path: Path) -> None:
    """Method: two rounds of `tests.torture.takeover`, which also compares history and rows with the log."""
    takeover.run(tmp_path, rounds=2, seed=1, engine="local")
