"""Real transactions: what was aborted is nowhere, and what hangs is the named cause of standing still."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.behaviour.live import wait_for
from tests.behaviour.topic import APP, key_bytes, value_bytes
from tests.manual_clock import ManualClock
from tests.transactions import wait_for_markers
from thermocline.cli import entry
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import TABLE, TOPIC, Stack, StackOptions
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.batch.open_transactions import PATIENCE_SECONDS
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.rules.seam import Seam
from thermocline.settings import load_settings
from thermocline.views import transactions

pytestmark = pytest.mark.full

REQUEST_SECONDS = 30

STATUS = ("status", "--without", "server")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A table that says that its topic is transactional, and a server of it."""
    with Stack(tmp_path_factory.mktemp("transactions"), StackOptions(partitions=2, buckets=2)) as stack:
        text = stack.config_path.read_text()
        stack.config_path.write_text(text.replace("buckets = 2", "buckets = 2\ntransactional = true"))
        stack.settings = load_settings(stack.config_path)
        stack.start()
        server = stack.serve()
        stack.wait_until_ready(server)
        yield stack


@pytest.fixture(scope="module")
def owner(stack: Stack, new_owner: Callable[[Stack], Owner]) -> Owner:
    return new_owner(stack)


def producer_of(stack: Stack, name: str) -> Producer:
    config = {**stack.settings.kafka.client_config(), "transactional.id": name, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(REQUEST_SECONDS)
    return producer


def write(producer: Producer, values: dict[str, str | None], partition: int = 0) -> None:
    """Open records: the broker has them, and their transaction is not decided."""
    for user, value in values.items():
        key = key_bytes((APP, user, "plan"))
        producer.produce(TOPIC, value_bytes(value), key, partition=partition)
    assert producer.flush(REQUEST_SECONDS) == 0


def commit(producer: Producer, values: dict[str, str | None], partition: int = 0) -> None:
    producer.begin_transaction()
    write(producer, values, partition)
    producer.commit_transaction(REQUEST_SECONDS)


def abort(producer: Producer, values: dict[str, str | None], partition: int = 0) -> None:
    producer.begin_transaction()
    write(producer, values, partition)
    producer.abort_transaction(REQUEST_SECONDS)


def table_rows(stack: Stack) -> dict[str, str]:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    return {row["user_id"]: row["value"] for row in table.scan().to_arrow().to_pylist()}


def served(stack: Stack, users: list[str]) -> dict[str, str]:
    """What the server says once it has read up to the ends that the log has now."""
    goal = Log(stack.settings.kafka).ends([TOPIC])

    def has_read() -> bool:
        tailer: dict[str, Any] = stack.get("/status")[1]["tables"][TABLE]["tailer"]
        return Seam.from_dict(tailer["positions"]).at_least(goal)

    wait_for(has_read)
    with Client(stack.url) as client:
        answers = {user: client.lookup(TABLE, {"app_id": str(APP), "user_id": user}) for user in users}
    rows: dict[str, Any] = {user: answer["rows"] for user, answer in answers.items()}
    return {user: found[0]["value"] for user, found in rows.items() if found}


def test_aborted_records_are_never_served_nor_committed_and_ranges_may_end_in_markers(
    stack: Stack, owner: Owner
) -> None:
    """Goal: an aborted upsert and an aborted tombstone show in neither hot tier nor table.

    Method: both partitions get committed and aborted transactions in turn, so that the log ends in markers;
    looked at while everything is hot, and again when it is committed.
    """
    producer = producer_of(stack, "in-turn")
    wanted = {}
    for partition in (0, 1):
        keep, drop, bad = f"keep{partition}", f"drop{partition}", f"bad{partition}"
        commit(producer, {keep: "1", drop: "1"}, partition)
        abort(producer, {keep: None, bad: "aborted"}, partition)
        commit(producer, {keep: "2", drop: None}, partition)
        abort(producer, {keep: "aborted", drop: "aborted"}, partition)
        wanted[keep] = "2"
    users = [f"{name}{partition}" for name in ("keep", "drop", "bad") for partition in (0, 1)]
    log = Log(stack.settings.kafka)
    wait_for_markers(log, [TOPIC])
    ends = log.ends([TOPIC])
    assert ends == Seam.of({TOPIC: dict.fromkeys((0, 1), 12)})

    assert served(stack, users) == wanted
    owner.catch_up(threading.Event())

    assert owner.position.seam == ends
    assert table_rows(stack) == wanted == served(stack, users)
    abort(producer, {"keep0": "aborted again"})
    wait_for_markers(log, [TOPIC])
    owner.catch_up(threading.Event())
    assert owner.position.seam[TOPIC, 0] == 14, "a batch of nothing but an aborted transaction"
    assert table_rows(stack) == wanted == served(stack, users)


def test_a_hanging_transaction_is_the_named_cause_of_standing_still(
    stack: Stack,
    owner: Owner,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: who asks why nothing moves is told which partition is held back, from where, and by how much.

    Method: one transaction stays open while another one commits behind it; the clock is moved by hand.
    """
    clock = ManualClock()
    monkeypatch.setattr(owner, "clock", clock)
    log = Log(stack.settings.kafka)
    hanging, other = producer_of(stack, "hanging"), producer_of(stack, "other")
    owner.catch_up(threading.Event())
    begins_at = owner.position.seam[TOPIC, 1]
    hanging.begin_transaction()
    write(hanging, {"open": "never", "keep1": "never"}, partition=1)
    commit(other, {"behind": "1"}, partition=1)
    commit(other, {"beside": "1"}, partition=0)
    wait_for_markers(log, [TOPIC], partition=0)
    held = f"{TOPIC}/1@{begins_at}-{begins_at + 4}"

    with caplog.at_level(logging.WARNING):
        owner.step()
        assert not warnings(caplog), "it may end in a moment"
        clock.advance(PATIENCE_SECONDS)
        owner.step()
        owner.step()
    assert table_rows(stack)["beside"] == "1"
    assert "behind" not in table_rows(stack)
    assert served(stack, ["beside", "behind", "open"]) == {"beside": "1"}
    (warning,) = warnings(caplog)
    assert f"profiles/1 from offset {begins_at:,} on, 4 offsets" in warning["detail"]
    assert warning["code"] == "transaction-open"

    offsets = json_of(stack, capsys, "ingest", "offsets", TABLE)
    assert offsets["open_transactions"] == [
        {"topic": TOPIC, "partition": 1, "begins_at": begins_at, "held_back": 4}
    ]
    (entry_of,) = json_of(stack, capsys, *STATUS)["tables"]
    assert entry_of["lag"]["open_transactions"] == [
        {"partition": f"{TOPIC}/1", "begins_at": begins_at, "held_back": 4}
    ]
    for words in (("ingest", "offsets", TABLE), STATUS):
        assert run(stack, *words) == 0
        assert "[transaction-open]" in capsys.readouterr().out, held
    assert run(stack, "ingest", "run", TABLE, "--once") == 10
    assert "code=transaction-open" in capsys.readouterr().err, "told at once by what ends"

    hanging.abort_transaction(REQUEST_SECONDS)
    wait_for_markers(log, [TOPIC])
    owner.catch_up(threading.Event())

    assert table_rows(stack)["behind"] == "1"
    assert table_rows(stack)["keep1"] == "2"
    assert served(stack, ["behind", "open", "keep1"]) == {"behind": "1", "keep1": "2"}
    assert json_of(stack, capsys, "ingest", "offsets", TABLE)["open_transactions"] == []


def test_a_commit_shows_the_views_whether_it_met_a_transaction(
    stack: Stack, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: of two commits only the one that met a marker passed an offset without a record."""
    monkeypatch.setattr(transactions, "COMMITS_MAX", 1)
    log = Log(stack.settings.kafka)
    owner.catch_up(threading.Event())

    def is_shown_by_the_next_commit() -> bool:
        wait_for_markers(log, [TOPIC])
        owner.catch_up(threading.Event())
        table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
        return transactions.has_committed_transactions(table, TABLE, log.configs([TOPIC]))

    producer = Producer({**stack.settings.kafka.client_config(), "log_level": 0})
    write(producer, {"a": "1"})
    assert not is_shown_by_the_next_commit()
    commit(producer_of(stack, "with-them"), {"b": "1"})
    assert is_shown_by_the_next_commit()


def run(stack: Stack, *words: str) -> int:
    return entry.run(["--config", str(stack.config_path), *words])


def json_of(stack: Stack, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[Any]]:
    capsys.readouterr()
    assert run(stack, *words, "--json") == 0
    document: dict[str, list[Any]] = json.loads(capsys.readouterr().out)
    return document


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    """The fields of the warnings about open transactions."""
    return [vars(record)["fields"] for record in caplog.records if record.getMessage() == "transaction open"]
