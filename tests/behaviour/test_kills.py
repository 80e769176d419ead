"""Real processes killed at failpoints: who comes after them finds nothing lost, repeated, torn or deleted.

Method: ingest and the server run as a user runs them, with the file of failpoints in their environment. One
kill is armed at a time. After a killed ingest, an owner in this process takes over; after a killed tailer or
worker, the server starts another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviour.armed import has_fired
from tests.behaviour.reads import Reads, write
from tests.behaviour.topic import Topic
from tests.failpoints.arming import arm, disarm
from tests.failpoints.firing import environment
from tests.packages import put_packages_of_our_names
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.files import local_path, plan_files
from thermocline.ingest.owner.owner import Owner

# In the order of a batch. Taking ownership publishes a commit, too.
OWNER_KILLS = {
    "after it took ownership": "ownership.taken=kill@1",
    "before it publishes": "commit.publish=kill@2",
    "after it published": "owner.landed=kill@1",
}
# A worker of Spark dies, and its owner with it.
TASK_KILLS = {
    "in the middle of reading": "read-task.chunk=kill@1",
    "after a data file": "bucket-task.done=kill@1",
}
TAILER_KILLS = {
    "in the middle of an append": "hot.append=kill@1",
    "between a generation and the manifest that lists it": "hot.publish=kill@1",
    "between the files of an index": "cold.index-file=kill@1",
}
QUICK_KILL = "after it published"
OTHER_INGEST_KILLS = [place for place in (*OWNER_KILLS, *TASK_KILLS) if place != QUICK_KILL]
WORKER_KILLS = {"in the middle of an extract": "extract.bucket=kill@2"}
# Rounds of writing, reading and committing in which a kill has to happen.
ROUNDS_MAX = 20


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("kills", partitions=2, buckets=2, commit_interval_seconds=1.0, engine="spark")


@pytest.fixture(scope="module")
def topic(stack: Stack) -> Topic:
    return Topic(stack.settings.kafka, TOPIC)


@pytest.fixture
def beside_packages_of_our_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types commands in a folder that has such packages: Spark's workers, too, have to find ours."""
    put_packages_of_our_names(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(stack: Stack) -> Iterator[Path]:
    path = stack.folder / "failpoints"
    yield path
    disarm(path)


def check_table(stack: Stack, topic: Topic) -> None:
    """The table is the replay of the log, each record counts once, and every snapshot has its files."""
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    rows = table.scan().to_arrow().to_pylist()
    by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(by_key) == len(rows), "a key is live twice"
    assert by_key == {key: row["value"] for key, row in topic.oracle.rows().items()}
    newest = table.current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary["thermocline.total-records-read"] == str(len(topic.oracle))
    for snapshot in table.snapshots():
        for planned in plan_files(table, snapshot.snapshot_id):
            assert Path(local_path(planned.path) or "").exists()


@pytest.mark.usefixtures("beside_packages_of_our_names")
@pytest.mark.parametrize(
    "place", [QUICK_KILL, *(pytest.param(place, marks=pytest.mark.full) for place in OTHER_INGEST_KILLS)]
)
def test_ingest_killed_there_loses_and_repeats_nothing(
    stack: Stack, topic: Topic, file: Path, new_owner: Callable[[Stack], Owner], place: str
) -> None:
    entry = {**OWNER_KILLS, **TASK_KILLS}[place]
    for number in range(3):
        write(topic, len(topic.oracle) + number)
    arm(file, entry)
    command = ("ingest", "run", TABLE, "--once")
    ended = stack.command("killed", *command, environment=environment(file=file)).process.wait()
    assert has_fired(file, entry)
    assert (ended < 0) == (place in OWNER_KILLS), f"{place}: {ended}"

    owner = new_owner(stack)
    owner.catch_up(threading.Event())

    owner.lease.release()
    check_table(stack, topic)


@pytest.fixture(scope="module")
def server(stack: Stack) -> Command:
    server = stack.command("serve", "serve", environment=environment(file=stack.folder / "failpoints"))
    stack.wait_until_ready(server)
    return server


@pytest.mark.full
@pytest.mark.parametrize("place", [*TAILER_KILLS, *WORKER_KILLS])
def test_a_server_whose_process_is_killed_there_answers_right_or_not_at_all(
    stack: Stack, topic: Topic, file: Path, server: Command, new_owner: Callable[[Stack], Owner], place: str
) -> None:
    entry = {**TAILER_KILLS, **WORKER_KILLS}[place]
    owner = new_owner(stack)
    with Client(stack.url) as client:
        reads = Reads(client, TABLE, topic)
        write(topic, len(topic.oracle))
        reads.wait_until_right()
        arm(file, entry)
        for _ in range(ROUNDS_MAX):
            write(topic, len(topic.oracle))
            reads.read()
            owner.catch_up(threading.Event())
            if has_fired(file, entry):
                break
        assert has_fired(file, entry)
        write(topic, len(topic.oracle))
        reads.wait_until_right()
    server.check()
    owner.catch_up(threading.Event())
    owner.lease.release()
    check_table(stack, topic)
