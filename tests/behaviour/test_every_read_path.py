"""Every case through every read path, at four moments of one story, before and after two commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import SparkSession

from tests.behaviour.cases import CASES, POISON_COUNT, Case, Raw, Write
from tests.behaviour.read_paths import FEW, READ_PATHS, SLOW, Rows
from tests.behaviour.topic import APP, Topic
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.ingest.owner.owner import Owner

MOMENTS = ["before a commit", "after the commit", "beyond the seam", "after the second commit"]
PARTITIONS = 4
# One partition that nothing is ever written to, and one of poison alone.
IDLE_PARTITION = 3
Answers = dict[tuple[str, str], Rows]


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("reads", partitions=PARTITIONS, engine="spark", has_live_catalog=True)


@pytest.fixture(scope="module")
def owner(stack: Stack, new_owner: Callable[[Stack], Owner]) -> Owner:
    return new_owner(stack)


@pytest.fixture(scope="module")
def answers(stack: Stack, owner: Owner) -> Answers:
    """What every read path of a server said at every moment."""
    server = stack.serve()
    stack.wait_until_ready(server)
    return tell(stack, owner, READ_PATHS, lambda: wait_for_server(stack, owner))


def tell(
    stack: Stack,
    owner: Owner,
    read_paths: Mapping[str, Callable[[Stack, str], Rows]],
    has_committed: Callable[[], None],
) -> Answers:
    """The story, told once; what these read paths said at every moment."""
    topic = Topic(stack.settings.kafka, TOPIC)
    said: Answers = {}

    def ask(moment: str) -> None:
        read_after = topic.flush()
        for read_path, rows in read_paths.items():
            said[read_path, moment] = rows(stack, read_after)

    def commit() -> None:
        owner.catch_up(threading.Event())
        has_committed()

    write(topic, [(case, entry) for case in CASES for entry in case.first])
    ask("before a commit")
    commit()
    ask("after the commit")
    write(topic, [(case, entry) for case in CASES for entry in case.second])
    ask("beyond the seam")
    commit()
    ask("after the second commit")
    return said


def write(topic: Topic, entries: list[tuple[Case, Write]]) -> None:
    """Each case's records to a partition of its own choice, as a key's records always go to one."""
    for number, (case, entry) in enumerate(entries):
        if isinstance(entry, Raw):
            topic.send_raw(entry.key, entry.value, number % (IDLE_PARTITION))
        else:
            topic.send((APP, case.name, entry[0]), entry[1], CASES.index(case) % IDLE_PARTITION)


def wait_for_server(stack: Stack, owner: Owner) -> None:
    snapshot_id = str(owner.position.snapshot_id)
    path = f"/v1/tables/{TABLE}/rows?app_id={APP}&user_id=x"
    stack.wait_for(
        lambda: stack.get(path)[1].get("read_point", {}).get("snapshot_id") == snapshot_id,
        "the server reads the new snapshot",
    )


def check_rows(answers: Answers, read_path: str, moment: str) -> None:
    """A read path gave the rows of every case that it was asked for, as of the moment, and no others."""
    is_first = MOMENTS.index(moment) < 2
    assert answers[read_path, moment] == {
        case.name: case.rows_first if is_first else case.rows_second
        for case in (FEW if read_path in SLOW else CASES)
    }


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("read_path", READ_PATHS)
def test_a_read_path_gives_the_rows_as_of_now(answers: Answers, read_path: str, moment: str) -> None:
    check_rows(answers, read_path, moment)


def test_spark_and_pyiceberg_read_what_was_committed(
    answers: Answers, stack: Stack, new_spark: Callable[[Stack], SparkSession]
) -> None:
    expected = {
        (APP, case.name, attribute): value for case in CASES for attribute, value in case.rows_second.items()
    }
    query = f"SELECT app_id, user_id, key, value FROM {stack.settings.catalog.name}.app.{TABLE}"
    spark_rows = {(r.app_id, r.user_id, r.key): r.value for r in new_spark(stack).sql(query).collect()}
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    iceberg_rows = {
        (r["app_id"], r["user_id"], r["key"]): r["value"] for r in table.scan().to_arrow().to_pylist()
    }
    assert spark_rows == expected
    assert iceberg_rows == expected


def test_bad_records_are_kept_whole_with_their_reasons(answers: Answers, stack: Stack) -> None:
    quarantine = open_catalog(stack.settings.catalog).load_table(f"app.{TABLE}_quarantine")
    kept = quarantine.scan().to_arrow().to_pylist()
    written = [e for case in CASES for e in (*case.first, *case.second) if isinstance(e, Raw)]
    assert len(kept) == POISON_COUNT
    assert sorted((r["key"] or b"", r["value"] or b"") for r in kept) == sorted(
        (e.key or b"", e.value or b"") for e in written
    )
    assert all(record["reason"] and record["stage"] in ("key", "decode", "contract") for record in kept)


def test_every_record_is_accounted_for_in_the_snapshots(answers: Answers, stack: Stack) -> None:
    state = current_state(load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}"), TABLE)
    total = dict(state.totals)
    read = total.pop("read")
    assert read == sum(len(case.first) + len(case.second) for case in CASES)
    assert sum(total.values()) == read
    assert total["quarantined"] == POISON_COUNT


def test_the_seam_covers_the_idle_partition_and_the_poison(
    answers: Answers, stack: Stack, owner: Owner
) -> None:
    assert owner.position.seam == owner.log.ends([TOPIC])
    assert owner.position.seam[TOPIC, IDLE_PARTITION] == 0
