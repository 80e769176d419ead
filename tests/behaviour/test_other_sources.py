"""Rows of another source than Kafka, on real parts: committed beside the log, and known by every reader.

Method: Parquet files are taken in between batches of a topic. What each read path shows is written by hand.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.behaviour.live import Live
from tests.behaviour.topic import APP
from thermocline.dev.stack import Stack
from thermocline.errors import ReadPointGone, SourceInvalid
from thermocline.ingest.batch.parquet_source import ParquetFiles
from thermocline.ingest.engine.engine import Engine
from thermocline.ingest.engine.local import LocalEngine
from thermocline.ingest.engine.spark import SparkEngine
from thermocline.ingest.owner.intake import take_in
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.read import private
from thermocline.serving.read.wanted import Wanted

NAMES = ["user_id", "value", "_kafka_topic", "_kafka_offset"]


def file_of(folder: Path, name: str, *users: int, **columns: Any) -> str:
    """A Parquet file with a row of each user."""
    rows = {
        "app_id": pa.array([APP] * len(users), pa.int64()),
        "user_id": [f"u{user}" for user in users],
        "key": ["plan"] * len(users),
        "value": [f"{name} {user}" for user in users],
    }
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table(rows | columns), path)
    return path.as_uri()


def taken_in(live: Live, engine: Engine, *paths: str) -> None:
    owner = Owner.open(live.settings, live.name, SystemClock(), engine=engine)
    try:
        take_in(owner, ParquetFiles(paths, 10), "files of a test")
    finally:
        owner.close()


def extracted(live: Live, since: ReadPoint | None = None) -> tuple[dict[str, tuple[Any, ...]], ReadPoint]:
    """By user, what an extract without a server shows; and where it was read."""
    sink = io.BytesIO()
    names = [*NAMES, "app_id", "key"]
    wanted = Wanted(names, since=since)
    point = private.extract(live.settings, live.name, wanted, "arrow", sink, None, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    return {row["user_id"]: tuple(row[name] for name in NAMES[1:]) for row in rows}, point


def looked_up(live: Live, user: str) -> list[str]:
    answer = private.lookup(live.settings, live.name, {"app_id": str(APP), "user_id": user})
    return [row["value"] for row in answer["rows"]]


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("sources", partitions=1, buckets=2)


@pytest.fixture(scope="module")
def spark(stack: Stack, new_spark: Callable[[Stack], SparkSession]) -> SparkSession:
    return new_spark(stack)


@pytest.fixture
def new_live(stack: Stack, request: pytest.FixtureRequest) -> Callable[..., Live]:
    name = re.sub(r"\W", "_", request.node.name.removeprefix("test_")).strip("_")[-60:]
    return lambda **options: Live(stack, name, **options)


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest, stack: Stack) -> Iterator[Engine]:
    if request.param == "spark":
        yield SparkEngine(request.getfixturevalue("spark"))
        return
    running = LocalEngine(stack.settings.catalog)
    yield running
    running.stop()


def test_rows_of_files_take_the_place_of_committed_ones_and_lose_against_later_records(
    new_live: Callable[..., Live], engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = new_live()
    live.write([1, 2], "topic")
    live.ingest()
    before, point = extracted(live)
    assert before == {"u1": ("topic", live.name, 0), "u2": ("topic", live.name, 0)}
    seam = live.state().seam

    taken_in(live, engine, file_of(tmp_path, "one", 2, 3), file_of(tmp_path, "two", 4))
    assert live.state().seam == seam
    assert live.summary()["thermocline.taken-in"] == "files of a test"
    from_files = {"u2": ("one 2", None, None), "u3": ("one 3", None, None), "u4": ("two 4", None, None)}
    assert extracted(live)[0] == {"u1": ("topic", live.name, 0), **from_files}
    assert looked_up(live, "u3") == ["one 3"]

    live.write([3], "later")
    live.write([4], None)
    hot, _ = extracted(live)
    assert {user: row[0] for user, row in hot.items()} == {"u1": "topic", "u2": "one 2", "u3": "later"}
    assert (looked_up(live, "u2"), looked_up(live, "u3"), looked_up(live, "u4")) == (["one 2"], ["later"], [])
    with pytest.raises(ReadPointGone, match="took in rows of files of a test"):
        extracted(live, since=point)

    capsys.readouterr()
    live.run("verify", live.name, "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    assert report["agrees"]
    assert report["rows"]["not_judged"] == {"it was taken in from another source than the log": 3}

    live.ingest()
    assert live.rows() == {
        (APP, "u1", "plan"): "topic",
        (APP, "u2", "plan"): "one 2",
        (APP, "u3", "plan"): "later",
    }
    assert extracted(live)[0] == hot


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (lambda folder: [file_of(folder, "a", 1, 1)], "two of its rows have the key"),
        (lambda folder: [file_of(folder, "a", 1), file_of(folder, "b", 1)], "two of its rows have the key"),
        (
            lambda folder: [file_of(folder, "a", 1, user_id=[None])],
            "column user_id is null in some of its rows",
        ),
        (lambda folder: [file_of(folder, "a", 1, other=["x"])], "the table has no other"),
        (lambda folder: [file_of(folder, "a", 1, app_id=["seven"])], "column app_id can't be int"),
    ],
    ids=["a key twice", "a key in two files", "a key that is null", "another column", "another type"],
)
def test_files_without_rows_of_the_table_are_refused(
    new_live: Callable[..., Live], tmp_path: Path, files: Callable[[Path], list[str]], problem: str
) -> None:
    live = new_live()
    live.write([1], "topic")
    live.ingest()
    running = LocalEngine(live.settings.catalog)
    with pytest.raises(SourceInvalid, match=problem):
        taken_in(live, running, *files(tmp_path))
    running.stop()
    assert "thermocline.taken-in" not in live.summary()
    assert live.rows() == {(APP, "u1", "plan"): "topic"}
