"""A running server under traffic and faults: each answer is the replay of the log to its read point."""

from __future__ import annotations

import io
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import cycle, islice, pairwise
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.behaviour.topic import APP, Topic, key_bytes
from tests.failpoints.firing import environment
from thermocline.cli.server_answers import Client
from thermocline.dev.oracle import Oracle, RowKey
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.dev.workload import Workload, produce
from thermocline.errors import ReadPointGone
from thermocline.ingest.owner.owner import Owner
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read import private

# Enough for the commits of a slow machine to come in between; a quick one stops after three of them.
LOOKUPS_MAX = 20_000
SNAPSHOTS_SEEN = 3


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("server", partitions=3, buckets=4)


@pytest.fixture(scope="module")
def owner(stack: Stack, new_owner: Callable[[Stack], Owner]) -> Owner:
    return new_owner(stack)


@pytest.fixture(scope="module")
def topic(stack: Stack) -> Topic:
    return Topic(stack.settings.kafka, TOPIC)


@pytest.fixture(scope="module")
def server(stack: Stack) -> Command:
    server = stack.serve()
    stack.wait_until_ready(server)
    return server


@pytest.fixture
def client(stack: Stack, server: Command) -> Iterator[Client]:
    with Client(stack.url) as client:
        yield client


def lookup(client: Client, row: RowKey, read_after: str | None = None) -> dict[str, Any]:
    return client.lookup(TABLE, {"app_id": str(row[0]), "user_id": row[1]}, read_after)


def replayed(oracle: Oracle, answer: dict[str, Any], user: str) -> dict[str, str]:
    """What the answer must hold: the log up to the end that the answer itself names."""
    rows = oracle.rows(Seam.from_dict(answer["read_point"]["end"]))
    return {key[2]: row["value"] for key, row in rows.items() if key[1] == user}


def attributes(answer: dict[str, Any]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in answer["rows"]}


def tailer_pid(stack: Stack) -> int:
    status = stack.get("/status")[1]
    return int(status["tables"][TABLE]["tailer"]["pid"])


def test_answers_under_traffic_and_commits_equal_the_replay_at_their_read_points(
    stack: Stack, owner: Owner, client: Client
) -> None:
    """Goal: no answer is ever torn, whatever is being written, committed, indexed or sealed meanwhile.

    Method: a producer and an ingest loop run beside lookups and extracts; each answer names its read point,
    and is compared with a plain replay of what the broker acknowledged up to there. Records whose
    acknowledgement is still under way when an answer includes them are waited for by comparing at the end.
    """
    oracle, stop = Oracle(), threading.Event()
    workload = Workload(seed=11, users=40, keys_per_user=5)
    config = stack.settings.kafka.client_config()
    producer = threading.Thread(
        target=produce, args=(config, TOPIC, workload, oracle), kwargs={"rate": 800, "stop": stop}
    )
    committer = threading.Thread(target=commit_until, args=(owner, stop))
    producer.start()
    committer.start()
    answers: list[tuple[str, dict[str, Any]]] = []
    extracts: list[tuple[ReadPoint, dict[RowKey, str]]] = []
    try:
        users = [event.row for event in islice(Workload(seed=11, users=40, keys_per_user=5), 60)]
        for row in islice(cycle(users), LOOKUPS_MAX):
            answers.append((row[1], lookup(client, row)))
            if len(answers) % 50 == 1:
                extracts.append(extracted(client))
            if len({answer["read_point"]["snapshot_id"] for _, answer in answers}) > SNAPSHOTS_SEEN:
                break
    finally:
        stop.set()
        producer.join()
        committer.join()

    for user, answer in answers:
        assert attributes(answer) == replayed(oracle, answer, user), answer["read_point"]
    for point, rows in extracts:
        expected = {key: row["value"] for key, row in oracle.rows(point.end).items()}
        assert rows == expected, point
    seen = len({answer["read_point"]["snapshot_id"] for _, answer in answers})
    assert seen > SNAPSHOTS_SEEN, "no commits came in between"
    ends = [Seam.from_dict(answer["read_point"]["end"]) for _, answer in answers]
    assert all(later.at_least(earlier) for earlier, later in pairwise(ends))


def commit_until(owner: Owner, stop: threading.Event) -> None:
    while not stop.is_set():
        owner.step()


def extracted(client: Client) -> tuple[ReadPoint, dict[RowKey, str]]:
    sink = io.BytesIO()
    point = client.extract(TABLE, None, "arrow", sink, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(by_key) == len(rows)
    return point, by_key


@pytest.mark.full
def test_a_frozen_tailer_serves_no_value_older_than_the_table_that_it_names(
    stack: Stack, owner: Owner, topic: Topic, client: Client
) -> None:
    """Goal: while the tailer stands still and ingest commits past it, answers stay right where they stand.

    Method: the tailer is stopped in the middle; its own end, which the answers name, must not move beyond
    what they hold, and they must say that they are stale.
    """
    row = (APP, "frozen", "plan")
    topic.send(row, "before")
    lookup(client, row, topic.flush())
    pid = tailer_pid(stack)
    os.kill(pid, signal.SIGSTOP)
    try:
        topic.send(row, "while it was frozen")
        read_after = topic.flush()
        owner.catch_up(threading.Event())
        stack.wait_for(lambda: bool(lookup(client, row)["stale"]), "answers say that they are stale")
        answer = lookup(client, row)
        assert attributes(answer) == replayed(topic.oracle, answer, "frozen")
    finally:
        os.kill(pid, signal.SIGCONT)
    fresh = lookup(client, row, read_after)
    assert attributes(fresh) == {"plan": "while it was frozen"}


@pytest.mark.full
def test_a_killed_tailer_is_replaced_and_goes_on_where_it_was(
    stack: Stack, topic: Topic, client: Client
) -> None:
    row = (APP, "killed", "plan")
    topic.send(row, "before")
    lookup(client, row, topic.flush())
    pid = tailer_pid(stack)
    os.kill(pid, signal.SIGKILL)
    topic.send(row, "after")
    topic.flush()

    stack.wait_for(lambda: attributes(lookup(client, row)) == {"plan": "after"}, "the new tailer has read on")

    assert tailer_pid(stack) != pid


@pytest.mark.full
def test_a_worker_that_is_started_again_refuses_nothing_that_another_could_answer(
    stack: Stack, server: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: one of two is killed; each request has a connection of its own, until the new one answers.

    Loading its tables takes a worker seconds, by a failpoint.
    """
    for name, value in environment("reader.refresh=sleep:2@1").items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"PORT": str(port), "WORKERS": "2", "STATE_DIR": str(stack.folder / "second")}
    for name, value in options.items():
        monkeypatch.setenv(f"THERMOCLINE_SERVING__{name}", value)
    second = stack.serve()
    heard: dict[int, list[bool]] = {}

    def ask() -> int:
        """Who answers; 0 where nobody does, or the connection was the killed one's."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/status", timeout=60)
        except httpx.TransportError:
            return 0
        status = answer.json()["tables"][TABLE]
        heard.setdefault(status["worker_pid"], []).append(status["ready"])
        return int(status["worker_pid"])

    def are_both_ready() -> bool:
        ask()
        return len(heard) == 2 and all(said[-1] for said in heard.values())

    stack.wait_for(are_both_ready, "both are ready", second)
    before = set(heard)
    os.kill(min(before), signal.SIGKILL)
    stack.wait_for(lambda: ask() not in {0, *before}, "the new one answers", second)
    (new,) = set(heard) - before
    assert heard[new] == [True], "it listened before it could answer"
    assert second.stop() == 0


def test_garbage_neither_stops_the_server_nor_hides_good_records(topic: Topic, client: Client) -> None:
    row = (APP, "garbage", "plan")
    topic.send(row, "good", partition=1)
    for number in range(100):
        topic.send_raw(key_bytes(row), b"\xff" * number + b"{", partition=1)
    topic.send((APP, "garbage", "city"), "Bonn", partition=1)
    assert attributes(lookup(client, row, topic.flush())) == {"plan": "good", "city": "Bonn"}


@pytest.mark.full
def test_waiting_for_a_record_that_never_comes_ends_with_a_clear_error(stack: Stack, server: Command) -> None:
    answer = httpx.get(
        f"{stack.url}/v1/tables/{TABLE}/rows?app_id=7&user_id=u",
        headers={"Thermocline-Read-After": f"{TOPIC}/0@999999999"},
        timeout=60,
    )
    assert (answer.status_code, answer.json()["code"]) == (503, "read-after-timeout")
    assert f"the log ends at {TOPIC}/0@" in answer.json()["detail"]
    assert answer.headers["content-type"].startswith("application/problem+json")


@pytest.mark.full
def test_an_extract_without_a_server_repeats_an_answer_at_its_read_point(
    stack: Stack, topic: Topic, client: Client
) -> None:
    """Two reads at one read point are equal, whatever the read path, and whatever is written after it."""
    row = (APP, "pinned", "plan")
    topic.send(row, "then")
    lookup(client, row, topic.flush())
    point, rows = extracted(client)
    topic.send(row, "later")
    topic.flush()
    sink = io.BytesIO()

    again = private.extract(stack.settings, TABLE, None, "arrow", sink, point, lambda _: None)

    repeated = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    assert {(r["app_id"], r["user_id"], r["key"]): r["value"] for r in repeated} == rows
    assert again == point
    assert rows[row] == "then"


@pytest.mark.full
def test_a_read_point_of_no_snapshot_of_the_table_is_refused(stack: Stack, client: Client) -> None:
    point, _ = extracted(client)
    gone = ReadPoint(point.snapshot_id + 1, point.seam, point.end)
    with pytest.raises(ReadPointGone):
        private.extract(stack.settings, TABLE, None, "arrow", io.BytesIO(), gone, lambda _: None)


@pytest.mark.full
def test_a_restarted_server_answers_the_same(stack: Stack, topic: Topic, server: Command) -> None:
    row = (APP, "restarted", "plan")
    topic.send(row, "kept")
    read_after = topic.flush()
    assert server.stop() == 0
    again = stack.serve()
    stack.wait_until_ready(again)
    with Client(stack.url) as client:
        assert attributes(lookup(client, row, read_after)) == {"plan": "kept"}
    assert again.stop() == 0
