"""Purging the quarantine by command: who is asked, and what goes after a yes. On a real companion table."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from thermocline.cli.entry import run
from thermocline.errors import CatalogUnreachable, CommitRejected, ExitCode
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.files import local_path
from thermocline.ingest.batch.bad_records import BadRecords, BadRecordsPolicy
from thermocline.ingest.batch.read_task import ReadReport
from thermocline.ingest.quarantine import (
    KEEP_ATTEMPTS_MAX,
    KEPT_SMALL,
    SCHEMA,
    create_quarantine,
    keep_files,
    open_quarantine,
    read_rows,
    renew,
    reopen_quarantine,
    write_quarantine_file,
)
from thermocline.rules.definition import OnError
from thermocline.settings import load_settings

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
[tables.profiles.columns]
id = "int"
"""
Answer = Callable[[Callable[[], bool]], None]


@pytest.fixture
def quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thermocline.toml").write_text(CONFIG)
    catalog = open_catalog(load_settings(tmp_path / "thermocline.toml").catalog, may_create=True)
    catalog.create_namespace("app")
    create_quarantine(catalog, "app.profiles")
    # Whose the table is makes no difference to what is purged, and takes a JVM to tell.
    monkeypatch.setattr("thermocline.ingest.replay.quarantined.own_table", lambda *_, **__: nullcontext())
    return open_quarantine(catalog, "profiles", "app.profiles")


def written(quarantine: Table, offsets: Sequence[int], topic_id: str = "first") -> str:
    row = {"topic": "profiles", "topic_id": topic_id, "partition": 0, "stage": "key", "reason": "why"}
    at = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [row | {"offset": offset, "timestamp": at} for offset in offsets]
    records = [pa.Table.from_pylist(rows, SCHEMA)]
    return write_quarantine_file(quarantine.io, quarantine.location(), records)


def keep(quarantine: Table, offsets: Sequence[int], topic_id: str = "first") -> None:
    renew(quarantine)
    keep_files(quarantine, [written(quarantine, offsets, topic_id)])


def kept(quarantine: Table) -> list[tuple[str, int]]:
    return sorted((row["topic_id"], row["offset"]) for row in read_rows(quarantine.refresh(), ()))


def test_a_companion_table_that_was_dropped_alone_is_made_again(quarantine: Table) -> None:
    """Else ingest could not go on: the table that it belongs to is there, and is not created twice."""
    keep(quarantine, [1])
    quarantine.catalog.drop_table("app.profiles_quarantine")
    again = reopen_quarantine(quarantine.catalog, "profiles", "app.profiles")
    keep(again, [2])
    assert kept(reopen_quarantine(quarantine.catalog, "profiles", "app.profiles")) == [("first", 2)]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_companion_table_that_is_dropped_meanwhile_only_costs_a_batch(
    quarantine: Table, is_made_again: bool
) -> None:
    """Also where somebody else makes one of its name."""
    policy = BadRecordsPolicy("profiles", OnError.parse("quarantine"), 1.0, None, None)
    companion = partial(reopen_quarantine, quarantine.catalog, "profiles", "app.profiles")
    records = BadRecords(policy, {}, companion)

    def batch(offset: int) -> ReadReport:
        return ReadReport([], quarantine_files=[written(records.quarantine, [offset])])

    quarantine.catalog.drop_table("app.profiles_quarantine")
    if is_made_again:
        create_quarantine(quarantine.catalog, "app.profiles")
    lost = batch(1)
    with pytest.raises(CommitRejected) as rejected:
        records.settle([lost])
    assert rejected.value.retryable
    assert not Path(local_path(lost.quarantine_files[0]) or "").exists()
    records.renew()
    records.settle([batch(2)])
    assert kept(companion()) == [("first", 2)]


def test_the_metadata_of_the_companion_table_stays_small(quarantine: Table) -> None:
    """Also of one that was created before that was seen to: each batch with bad records commits to it."""
    with quarantine.transaction() as transaction:
        transaction.remove_properties(*KEPT_SMALL)
    keep(quarantine, [0])
    assert quarantine.properties.items() >= KEPT_SMALL.items()
    with quarantine.transaction() as transaction:
        transaction.set_properties({"write.metadata.previous-versions-max": "2"})
    folder = Path(local_path(quarantine.location()) or "") / "metadata"
    for number in range(8):
        with quarantine.transaction() as transaction:
            transaction.set_properties({"touched": str(number)})
    assert len(list(folder.glob("*.metadata.json"))) == 3
    assert kept(quarantine) == [("first", 0)]


def test_a_commit_of_others_that_comes_first_keeps_no_bad_record_out(
    quarantine: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: maintenance, or a tool, may commit to the companion table at any time; no batch fails for it."""
    others = quarantine.catalog.load_table(quarantine.name())
    commits = iter(range(KEEP_ATTEMPTS_MAX - 1))
    refresh = Table.refresh

    def refresh_and_lose(table: Table) -> Table:
        refreshed = refresh(table)
        if table is quarantine and next(commits, None) is not None:
            keep(others, [len(kept(others))])
        return refreshed

    monkeypatch.setattr(Table, "refresh", refresh_and_lose)
    keep(quarantine, [100])
    monkeypatch.undo()
    assert [offset for _, offset in kept(quarantine)] == [*range(KEEP_ATTEMPTS_MAX - 1), 100]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Somebody at the terminal, who looks at what is asked and says yes or no."""

    def install(says: Callable[[], bool]) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr("typer.confirm", lambda question, err: says())

    return install


def test_a_no_is_an_answer_and_no_error(
    quarantine: Table, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(quarantine, [1, 2])
    answer(lambda: False)
    assert run(["quarantine", "purge", "profiles", "--all"]) == ExitCode.NOTHING_TO_DO
    assert capsys.readouterr() == ("profiles: nothing was purged\n", "")
    assert kept(quarantine) == [("first", 1), ("first", 2)]


@pytest.mark.parametrize(
    "choice", [["--all"], ["--before", "2999-01-01T00:00:00Z"], ["profiles/0@1", "profiles/0@2"]]
)
def test_after_a_yes_only_what_was_counted_goes(quarantine: Table, answer: Answer, choice: list[str]) -> None:
    """Goal: what ingest puts there while the person thinks stays. Method: it comes with the answer."""
    keep(quarantine, [1, 2])

    def yes_later() -> bool:
        keep(quarantine, [3])
        keep(quarantine, [1], topic_id="made again")
        return True

    answer(yes_later)
    assert run(["quarantine", "purge", "profiles", *choice]) == ExitCode.DONE
    assert kept(quarantine) == [("first", 3), ("made again", 1)]


def test_where_nobody_can_be_asked_it_wants_a_yes_and_nothing_is_asked_about_nothing(
    quarantine: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quarantine", "purge", "profiles", "--all"]) == ExitCode.NOTHING_TO_DO
    keep(quarantine, [1])
    assert run(["quarantine", "purge", "profiles", "--all"]) == ExitCode.USAGE
    assert "thermocline quarantine purge profiles --all --yes" in capsys.readouterr().err
    assert run(["quarantine", "purge", "profiles", "--all", "--yes"]) == ExitCode.DONE
    assert kept(quarantine) == []


def test_a_locked_catalog_is_said_to_be_away_on_opening_the_companion_table(
    quarantine: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.iceberg.catalog_properties.SQLITE_BUSY_SECONDS", 0)
    catalog = open_catalog(load_settings(Path("thermocline.toml")).catalog)
    with closing(sqlite3.connect("catalog.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CatalogUnreachable, match="locked"):
            open_quarantine(catalog, "profiles", "app.profiles")
    assert open_quarantine(catalog, "profiles", "app.profiles").name() == quarantine.name()
