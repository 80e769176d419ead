"""Read paths that lie: each kind of difference is found by `verify`, and none where they tell the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.behaviour.armed import armed_by, has_fired
from tests.behaviour.live import Live, wait_for
from tests.behaviour.topic import APP
from tests.brokers import Brokers
from tests.failpoints.arming import arm
from thermocline.cli import entry
from thermocline.cli.verify_read_paths import open_read_paths
from thermocline.dev.stack import Command, Stack, StackOptions
from thermocline.errors import ExitCode, NotReady
from thermocline.process.clock import SystemClock
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.read_point import ReadPoint
from thermocline.verify import comparison
from thermocline.verify.lookups import LookupChecks
from thermocline.verify.read_paths import HotReader, ReadPaths
from thermocline.verify.report import Report
from thermocline.verify.table_rows import RowsUnreadable, bucket_rows
from thermocline.verify.verifier import FOLDER_PREFIX, Choices, Verifier
from thermocline.verify.watch import VerifyWatch

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable

pytestmark = pytest.mark.jvm

Json = dict[str, Any]
Lie = Callable[[ReadPaths], ReadPaths]
USERS = 12


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, jvm: Any, brokers: Brokers) -> Iterator[Live]:
    """A table of several batches with keys in several of them, tombstones, bad records, and a hot tail.

    User 3 was deleted by a commit, user 5 is deleted beyond the seam; the key of user 9 is in two partitions.
    """
    folder = tmp_path_factory.mktemp("reads")
    with (
        brokers.lent() as kafka,
        Stack(folder, StackOptions(catalog="reads", engine="local", kafka=kafka)) as stack,
    ):
        live = Live(stack, "reads")
        live.write(range(USERS), "first")
        live.ingest()
        live.write(range(6), "second")
        live.topic.send((APP, "u9", "plan"), "elsewhere", 0)
        live.write([3], None)
        live.topic.send_raw(b"{", b"bad")
        live.topic.flush()
        live.ingest()
        live.write(range(4, 8), "third")
        live.write([5], None)
        live.write([90], "new")
        yield live


def verified(
    live: Live, lie: Lie = lambda read_paths: read_paths, **choices: Any
) -> tuple[Report, LookupChecks]:
    """The report of a verification through read paths that lie, and what goes on from it."""

    @contextmanager
    def opened() -> Iterator[ReadPaths]:
        with open_read_paths(live.settings, live.name, None) as read_paths:
            yield lie(read_paths)

    chosen = Choices(seed=1, **choices)
    verifier = Verifier(live.settings, live.name, opened, chosen, SystemClock(), lambda *_: None)
    report, lookups = verifier.verify()
    assert lookups is not None
    return report, lookups


def test_read_paths_that_tell_the_truth_agree_and_all_is_judged(live: Live) -> None:
    report, _ = verified(live)
    assert (report.findings, report.unchecked, report.notes) == ([], [], [])
    assert not report.unjudged
    assert (report.rows, report.agreed, report.deleted) == (USERS - 1, USERS - 1, 1)
    assert (report.extracted, report.hot) == (USERS - 1, 5)
    assert report.lookups == USERS + 1, "of all entities, deleted and new ones included"
    assert report.bad_records == 1
    assert report.contested == 1


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.full), 4, pytest.param(1000, marks=pytest.mark.full)]
)
def test_a_sample_is_the_same_for_one_seed_and_agrees(live: Live, size: int) -> None:
    reports = [verified(live, sample=size)[0] for _ in range(2)]
    for report in reports:
        assert report.findings == []
        assert report.lookups == min(size, USERS + 1)
        assert report.rows == report.agreed
    assert reports[0].to_dict() == reports[1].to_dict()


@pytest.mark.full
def test_one_entity_is_compared_alone(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("verify", live.name, f"app_id={APP}", "user_id=u1", "--json")
    assert live.run(*words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"]["live"], document["read_paths"]["lookups"], document["agrees"]) == (1, 1, True)


@pytest.mark.full
@pytest.mark.parametrize("words", [["app_id=7"], ["nothing=1"], ["user_id"]])
def test_an_entity_that_is_none_is_a_wrong_command(live: Live, words: list[str]) -> None:
    assert live.run("verify", live.name, *words) == ExitCode.USAGE


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [["--rounds", "2"], ["--keep-going"], ["--sample", "3", "app_id=1", "user_id=u1"]]
)
def test_options_that_say_nothing_together_are_a_wrong_command(live: Live, words: list[str]) -> None:
    assert live.run("verify", live.name, *words) == ExitCode.USAGE


@pytest.mark.full
def test_lookups_that_are_not_answered_leave_what_was_compared_before(live: Live) -> None:
    def lie(read_paths: ReadPaths) -> ReadPaths:
        def lookup(_parameters: Mapping[str, str], _after: str) -> Mapping[str, Any]:
            raise NotReady(table=live.name, detail="it is busy")

        return replace(read_paths, lookup=lookup)

    report, _ = verified(live, lie)
    assert (report.agrees, report.is_complete) == (True, False)
    assert report.agreed == USERS - 1
    assert report.unchecked == [f"lookups: [not-ready] table {live.name} is not ready: it is busy"]


@pytest.mark.full
def test_a_bucket_that_only_verify_cannot_read_is_left_out_of_all_that_is_compared(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a file fails behind its first rows, in the first of two buckets; the others read all of it."""

    def some_rows(io: FileIO, definition: LiveTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
        for count, rows in enumerate(bucket_rows(io, definition, files)):
            if count and files[0].bucket == 0:
                raise RowsUnreadable from OSError("input/output error")
            yield rows

    monkeypatch.setattr(comparison, "bucket_rows", some_rows)
    report, _ = verified(live)
    assert report.findings == []
    assert 0 < report.rows == report.agreed < USERS - 1
    assert 0 < report.extracted < USERS - 1
    (unchecked,) = report.unchecked
    assert unchecked.startswith("rows of the buckets 0: ")
    assert "input/output error" in unchecked
    assert report.lookups == USERS + 1
    assert 0 < report.lookups_unjudged["its bucket could not be read"] < USERS + 1


@pytest.mark.full
def test_a_servers_hot_tier_that_was_not_looked_at_is_named(live: Live) -> None:
    """Though a private one was: what a user's server holds is what he asks for."""
    report, _ = verified(live, lambda read_paths: replace(read_paths, hot_problem="its tailer stands"))
    (note,) = report.notes
    assert note.endswith("but a private one: its tailer stands")
    assert report.is_complete


@pytest.mark.full
def test_a_deleted_row_whose_entity_is_its_whole_key_is_looked_up(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lookup says "not found" of it, and names no read point; privately, and of a server."""
    whole = Live(live.stack, "whole", choices='key = ["app_id", "user_id", "key"]')
    whole.write(range(4), "first")
    whole.write([2], None)
    whole.topic.flush()
    whole.ingest()
    whole.write([1], None)
    whole.topic.flush()
    server = Command(whole.config_path, live.stack.folder / "serve-whole.log", "serve")
    try:
        live.stack.wait_until_ready(server)
        for words in ([], ["--url", live.stack.url], ["--watch", "--rounds", "2", "--url", live.stack.url]):
            capsys.readouterr()
            code = whole.run("verify", whole.name, "--json", *words)
            printed = capsys.readouterr()
            assert code == ExitCode.DONE, printed
            if "--watch" not in words:
                assert json.loads(printed.out)["read_paths"]["lookups"] == 4
    finally:
        server.stop()


@pytest.mark.full
def test_a_command_that_is_told_to_end_leaves_no_folder(live: Live, tmp_path: Path) -> None:
    """Method: it is told while a failpoint holds it before an extract's first row, for long."""
    folder, held = tmp_path / "temporary", "extract.begin=sleep:600@1"
    folder.mkdir()
    words = [sys.executable, "-m", "thermocline", "--config", str(live.config_path), "verify", live.name]
    with armed_by(tmp_path / "armed") as armed:
        arm(armed, held)
        process = subprocess.Popen(
            words,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: has_fired(armed, held) or process.poll() is not None)
        assert list(folder.glob(f"{FOLDER_PREFIX}*"))
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    assert list(folder.iterdir()) == []


def rewritten(change: Callable[[pa.Table], pa.Table]) -> Lie:
    """An extract whose rows are changed on their way."""

    def lie(read_paths: ReadPaths) -> ReadPaths:
        def extract(columns: list[str], sink: BinaryIO) -> ReadPoint:
            buffer = pa.BufferOutputStream()
            point = read_paths.extract(columns, buffer)
            rows = change(pa.ipc.open_stream(buffer.getvalue()).read_all())
            with pa.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_table(rows)
            return point

        return replace(read_paths, extract=extract)

    return lie


def of_user(rows: pa.Table, user: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("user_id"), user))


def without_user(rows: pa.Table, user: str) -> pa.Table:
    return rows.filter(pc.not_equal(rows.column("user_id"), user))


def renamed(rows: pa.Table, user: str) -> pa.Table:
    one = of_user(rows, "u1")
    place = one.column_names.index("user_id")
    return one.set_column(place, one.schema.field(place), [[user]])


def with_value(rows: pa.Table, column: str, value: object) -> pa.Table:
    one = of_user(rows, "u1")
    field = one.schema.field(column)
    changed = one.set_column(one.column_names.index(column), field, [pa.array([value], field.type)])
    return pa.concat_tables([without_user(rows, "u1"), changed])


@pytest.mark.parametrize(
    ("change", "user"),
    [
        (lambda rows: without_user(rows, "u1"), "u1"),
        (lambda rows: without_user(rows, "u6"), "u6"),
        (lambda rows: pa.concat_tables([rows, renamed(rows, "u3")]), "u3"),
        (lambda rows: pa.concat_tables([rows, renamed(rows, "u5")]), "u5"),
        (lambda rows: pa.concat_tables([rows, of_user(rows, "u1")]), "u1"),
        (lambda rows: with_value(rows, "value", "lie"), "u1"),
        (lambda rows: with_value(rows, "value", None), "u1"),
        (lambda rows: with_value(rows, PROVENANCE[2], 0), "u1"),
    ],
    ids=[
        "a cold row lost",
        "a hot row lost",
        "a row back that a commit deleted",
        "a row back that a hot record deletes",
        "a row twice",
        "another value",
        "a null",
        "another record",
    ],
)
def test_an_extract_that_lies_is_found(live: Live, change: Callable[[pa.Table], pa.Table], user: str) -> None:
    report, _ = verified(live, rewritten(change), sample=100)
    assert report.counts == {"extract-differs": 1}
    assert report.findings[0].key == {"app_id": APP, "user_id": user, "key": "plan"}
    assert any(line.startswith("log reads/") for line in report.findings[0].history)


def answering(change: Callable[[list[Json]], list[Json]], user: str = "u1") -> Lie:
    """Lookups of one user whose rows are changed on their way."""

    def lie(read_paths: ReadPaths) -> ReadPaths:
        def lookup(parameters: Mapping[str, str], after: str) -> Mapping[str, Any]:
            answer = read_paths.lookup(parameters, after)
            return {**answer, "rows": change(answer["rows"])} if parameters["user_id"] == user else answer

        return replace(read_paths, lookup=lookup)

    return lie


def a_row(user: str) -> Json:
    return {"app_id": APP, "user_id": user, "key": "plan", "value": "lie", "updated_at": None}


@pytest.mark.full
@pytest.mark.parametrize(
    ("lie", "user"),
    [
        (answering(lambda _: []), "u1"),
        (answering(lambda rows: [{**rows[0], "value": "lie"}]), "u1"),
        (answering(lambda rows: [*rows, *rows]), "u1"),
        (answering(lambda _: [a_row("u3")], "u3"), "u3"),
        (answering(lambda _: [a_row("u5")], "u5"), "u5"),
        (answering(lambda _: [], "u90"), "u90"),
    ],
    ids=["lost", "changed", "twice", "deleted by a commit", "deleted beyond the seam", "hot and lost"],
)
def test_a_lookup_that_lies_is_found(live: Live, lie: Lie, user: str) -> None:
    report, _ = verified(live, lie, sample=100)
    assert report.counts == {"lookup-differs": 1}
    assert report.findings[0].key is not None
    assert report.findings[0].key["user_id"] == user


class LyingHot:
    """A hot tier whose winners are changed on their way."""

    def __init__(self, hot: HotReader, change: Callable[[pa.Table], pa.Table]) -> None:
        self._hot, self._change = hot, change
        self.start, self.end = hot.start, hot.end

    def scan(self, bucket: int, seam: Any) -> pa.Table:
        return self._change(self._hot.scan(bucket, seam))


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda winners: winners.slice(0, 0), 5),
        (lambda winners: winners.filter(pc.invert(winners.column("_tombstone"))), 1),
        (lambda winners: pa.concat_tables([winners, winners]), 5),
        (
            lambda winners: winners.set_column(
                3, "_kafka_offset", [pc.add(winners.column("_kafka_offset"), 1)]
            ),
            5,
        ),
    ],
    ids=["empty", "without tombstones", "twice", "other offsets"],
)
def test_a_hot_tier_that_lies_is_found(
    live: Live, change: Callable[[pa.Table], pa.Table], count: int
) -> None:
    def lie(read_paths: ReadPaths) -> ReadPaths:
        assert read_paths.hot is not None
        return replace(read_paths, hot=LyingHot(read_paths.hot, change))

    report, _ = verified(live, lie, sample=100)
    assert report.counts == {"hot-differs": count}


@pytest.mark.full
def test_watching_under_load_finds_nothing_but_the_lie(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    """Method: the command as typed, on a server; then read paths that begin to lie in the second round."""
    stop = threading.Event()
    server = Command(live.config_path, live.stack.folder / "serve.log", "serve")

    def load() -> None:
        number = 0
        while not stop.wait(0.01):
            number += 1
            live.send(number % USERS, None if number % 5 == 0 else f"v{number}")
        live.topic.flush()

    thread = threading.Thread(target=load)
    try:
        live.stack.wait_until_ready(server)
        thread.start()
        capsys.readouterr()
        words = ("verify", live.name, "--watch", "--rounds", "2", "--json", "--url", live.stack.url)
        assert live.run(*words) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["round"] for line in lines] == [1, 2]
        assert lines[0]["agrees"]
        assert all(line["lookups"] == USERS + 1 and not line["findings"] for line in lines[1:])
        assert sum(line["log_records"] for line in lines[1:]) > 0

        report, lookups = verified(live)
        assert report.agrees
        verifier = Verifier(
            live.settings,
            live.name,
            lambda: lying(live),
            Choices(seed=1),
            SystemClock(),
            lambda *_: None,
        )
        (second,) = VerifyWatch(verifier, lookups, report, each=100).rounds(threading.Event(), rounds_max=2)
        assert second.differences["lookup-differs"] == 1
        assert second.differences["extract-differs"] == 1
    finally:
        stop.set()
        thread.join()
        server.stop()


@contextmanager
def lying(live: Live) -> Iterator[ReadPaths]:
    with open_read_paths(live.settings, live.name, None) as read_paths:
        extract = rewritten(lambda rows: without_user(rows, "u90"))
        yield answering(lambda _: [], "u90")(extract(read_paths))


@pytest.mark.full
def test_a_table_without_a_key_is_compared_but_not_looked_up(live: Live) -> None:
    append = Live(live.stack, "appended", choices='key = []\nkey_from = "value"')
    for value in ("one", "two"):
        append.topic.send((APP, "u1", "plan"), value, 0)
        append.topic.flush()
        append.ingest()
    report, _ = verified(append)
    assert (report.findings, report.lookups) == ([], 0)
    lost, _ = verified(append, rewritten(lambda rows: rows.slice(1)))
    assert lost.counts == {"extract-differs": 1}
    assert append.run("verify", append.name, "--watch", "--rounds", "2") == ExitCode.DONE


@pytest.mark.full
def test_a_source_that_is_away_is_no_difference(live: Live, tmp_path: Path) -> None:
    away = tmp_path / "away.toml"
    text = live.config_path.read_text()
    assert "sqlite:///data/catalog.db" in text
    away.write_text(text.replace("sqlite:///data/catalog.db", "sqlite:///nowhere/catalog.db"))
    assert entry.run(["--config", str(away), "verify", live.name]) == ExitCode.UNAVAILABLE
