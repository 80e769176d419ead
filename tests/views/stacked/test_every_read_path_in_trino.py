"""Every case through Trino, with tables of several definitions, as real ingest commits and publishes them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from trino.exceptions import TrinoQueryError

from tests.behaviour.cases import CASES, Write
from tests.behaviour.live import APPEND_TIME, Live
from tests.behaviour.test_every_read_path import MOMENTS, Answers, check_rows, tell
from tests.behaviour.test_other_formats import APPEND, Rows, Told, Variant, named
from tests.behaviour.test_quarantine import LARGE, Scores
from tests.behaviour.topic import APP, key_bytes
from tests.dev.newer_trino import newer_trino
from tests.transactions import wait_for_markers
from tests.views.stacked.read_paths import (
    LAKE,
    READ_PATHS,
    Row,
    ask,
    ask_of,
    pinned,
    publish,
    wait_for_margin,
)
from tests.views.stacked.started import FORMATS
from thermocline.dev.stack import TABLE, Stack
from thermocline.dev.trino import LocalTrino
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.views.lake import lake_properties
from thermocline.views.properties import rendered

pytestmark = pytest.mark.trino

# The cases, in the table of the most usual definition


@pytest.fixture(scope="module")
def answers(stack: Stack) -> Answers:
    """What every read path of Trino said at every moment."""
    owner = Owner.open(stack.settings, TABLE, SystemClock())
    publish(stack.settings, TABLE)
    owner.on_commit = lambda: publish(stack.settings, TABLE)
    said = tell(stack, owner, READ_PATHS, lambda: None)
    owner.lease.release()
    return said


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("read_path", READ_PATHS)
def test_a_read_path_gives_the_rows_as_of_now(answers: Answers, read_path: str, moment: str) -> None:
    check_rows(answers, read_path, moment)


# Other definitions


@dataclass
class Said:
    """What was asked of one table, and what a replay gave then."""

    expected: Rows
    by_read_path: dict[str, Rows]


@pytest.fixture(scope="module")
def told(stack: Stack) -> dict[str, Told]:
    return {one.name: Told(one, stack) for one in FORMATS}


@pytest.fixture(scope="module")
def formats(stack: Stack, told: dict[str, Told]) -> dict[str, Said]:
    """The same story, told to all tables at once up to where there are rows on both sides of the seam."""
    write(told, [(case.name, entry) for case in CASES for entry in case.first])
    for name in told:
        owner = Owner.open(stack.settings, name, SystemClock())
        owner.catch_up(threading.Event())
        owner.lease.release()
        publish(stack.settings, name)
    write(told, [(case.name, entry) for case in CASES for entry in case.second])
    said = {name: Said(one.rows(), {}) for name, one in told.items()}
    for name, one in told.items():
        if one.variant.shape != APPEND:
            said[name].by_read_path["live view by key"] = shown(stack, name, "live_by_key")
        said[name].by_read_path["pinned view"] = found(pinned(stack, stack.settings, name))
    wait_for_margin(stack)
    for name in told:
        publish(stack.settings, name)  # where records are transactional, the view ends where the log did
        said[name].by_read_path["live view"] = shown(stack, name, "live")
    return said


def write(told: dict[str, Told], entries: list[tuple[str, Write]]) -> None:
    for one in told.values():
        one.write(entries)


def shown(stack: Stack, name: str, view: str) -> Rows:
    return found(ask(stack, f"SELECT * FROM {LAKE}.{name}_{view}"))


def found(rows: list[Row]) -> Rows:
    return Counter((row["user_id"], row["key"], row["value"]) for row in rows)


@pytest.mark.full
@named(FORMATS)
def test_every_definition_gives_the_rows_as_of_now(formats: dict[str, Said], variant: Variant) -> None:
    """With transactions that were given up around those that were made."""
    said = formats[variant.name]
    assert len(said.by_read_path) == (2 if variant.shape == APPEND else 3)
    assert said.expected
    for read_path, rows in said.by_read_path.items():
        assert rows == said.expected, read_path


@pytest.mark.full
def test_what_an_open_transaction_holds_is_not_shown_before_it_is_made(
    formats: dict[str, Said], stack: Stack, told: dict[str, Told]
) -> None:
    """Goal: views show an undecided record neither as a row nor by hiding the row below it.

    Method: a transaction with a deletion and a new key stays open, and is then made.
    """
    one, name = told["keyed"], "keyed"

    def all_shown() -> list[Rows]:
        publish(stack.settings, name)
        pinned_rows = found(pinned(stack, stack.settings, name))
        return [shown(stack, name, "live_by_key"), shown(stack, name, "live"), pinned_rows]

    before = one.rows()
    one.producer.begin_transaction()
    for user, entry in (("an insert", ("plan", None)), ("nobody", ("plan", "undecided"))):
        one.produce(user, entry, lambda _: None)
    assert one.producer.flush(30) == 0
    assert all_shown() == [before] * 3
    one.producer.commit_transaction(30)
    wait_for_markers(Log(stack.settings.kafka), [name])
    after = Counter(before)
    del after["an insert", "plan", "free"]
    after["nobody", "plan", "undecided"] += 1
    assert len(after) == len(before)
    assert all_shown() == [after] * 3


# An altered table


@pytest.mark.full
def test_an_altered_table_shows_its_columns_and_reads_the_log_by_them(stack: Stack) -> None:
    """Goal: ``table alter`` leaves views of the new definition; until then and after, they equal other reads.

    Method: a column is widened and one is added, while the log beyond the seam has a record that is bad
    before and good after; one that was bad when it was committed is replayed.
    """
    live = Scores(stack, "scores", more="format_version = 2")
    live.put("cold", 1)
    live.put("cold and bad", LARGE)
    live.ingest()
    publish(live.settings, live.name)
    live.put("hot", 2)
    live.put("hot and bad", LARGE)
    assert scores(stack, live, "score") == {"cold": (1,), "hot": (2,)}

    live.set('score = "int"', 'score = "long"\nnote = "string"')
    assert live.run("table", "alter", live.name, "--yes") == 0
    value = json.dumps({"score": LARGE + 1, "note": "new"}).encode()
    live.topic.send_raw(key_bytes((APP, "late", "plan")), value, 0)
    live.topic.flush()
    rows = {
        "cold": (1, None),
        "hot": (2, None),
        "hot and bad": (LARGE, None),
        "late": (LARGE + 1, "new"),
    }
    assert scores(stack, live, "score", "note") == rows

    assert live.run("quarantine", "replay", live.name, "--all") == 0
    publish(live.settings, live.name)
    rows["cold and bad"] = (LARGE, None)
    assert scores(stack, live, "score", "note") == rows


def scores(stack: Stack, live: Scores, *columns: str) -> dict[str, tuple[object, ...]]:
    """What three views say, which is the same."""
    question = f"SELECT user_id, {', '.join(columns)} FROM {LAKE}.{live.name}"
    by_key = ask(stack, f"{question}_live_by_key")
    wait_for_margin(stack)
    both = [by_key, ask(stack, f"{question}_live"), pinned(stack, live.settings, live.name)]
    found = [{row["user_id"]: tuple(row[column] for column in columns) for row in rows} for rows in both]
    assert [len(rows) for rows in both] == [len(found[0])] * 3, "a key stands in two rows"
    assert found == [found[0]] * 3
    return found[0]


# Deletion vectors


@pytest.mark.full
def test_a_table_with_deletion_vectors_is_read_by_a_newer_trino_and_refused_by_476(
    stack: Stack, tmp_path: Path
) -> None:
    """Goal: tables of format version 3, as ingest writes them, are read right or not at all.

    Method: three commits update and delete rows of one another; 483 reads each snapshot, and the view that
    476 was made to publish. It has no Kafka, so that the views that read the log are left to 476. Where its
    catalog is comes from a variable, as what is secret does.
    """
    live = Live(stack, "newer", config=APPEND_TIME)
    live.write(range(60), "first")
    live.ingest()
    committed = {live.newest_id(): live.rows()}
    live.write(range(20), "second")
    live.write(range(10, 30), None)
    live.ingest()
    committed[live.newest_id()] = live.rows()
    live.write(range(5, 15), "third")
    live.write([0, 59], None)
    live.ingest()
    committed[live.newest_id()] = live.rows()
    assert [len(rows) for rows in committed.values()] == [60, 40, 43]
    publish(live.settings, live.name)
    with pytest.raises(TrinoQueryError, match="Unexpected PUFFIN file format"):
        ask(stack, f"SELECT * FROM {LAKE}.newer_cold")

    catalog = lake_properties(stack.settings.catalog, "lake").plain
    url = catalog["iceberg.jdbc-catalog.connection-url"]
    catalog["iceberg.jdbc-catalog.connection-url"] = "${ENV:TRINO_LAKE_URL}"
    server = newer_trino(tmp_path, environment={"TRINO_LAKE_URL": url})
    (server.configuration / "catalog").mkdir()
    (server.configuration / "catalog" / "lake.properties").write_text(rendered(catalog))
    with server:
        files = ask_of(server, f'SELECT file_format FROM {LAKE}."{"newer"}$files"')
        assert {row["file_format"] for row in files} == {"PARQUET", "PUFFIN"}
        for snapshot_id, rows in committed.items():
            assert rows_of(server, f"{LAKE}.newer FOR VERSION AS OF {snapshot_id}") == rows
        assert rows_of(server, f"{LAKE}.newer") == live.rows()
        assert rows_of(server, f"{LAKE}.newer_cold") == live.rows()


def rows_of(server: LocalTrino, source: str) -> dict[tuple[int, str, str], str]:
    rows = ask_of(server, f"SELECT app_id, user_id, key, value FROM {source}")
    by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(by_key) == len(rows), "a key stands in two rows"
    return by_key
