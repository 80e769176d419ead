"""Notes of unknown commits that a full disk, or somebody else, has damaged."""

from __future__ import annotations

import errno
import json
import os
import threading
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.serving.small_lake import create_table, lake_settings
from thermocline.cli import entry
from thermocline.iceberg import catalog as catalogs
from thermocline.iceberg.files import read_file, write_file
from thermocline.ingest.claim.reconcile import Resolution, Settled, settle_unknown
from thermocline.ingest.commit.unknown import UnknownCommit, note_path, notes, write_note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

NOTE = UnknownCommit("batch-1", 3, 17, "{}", (), "the answer was lost")
CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[catalog]
type = "sql"
uri = "sqlite:///c.db"
warehouse = "w"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
columns = { id = "int" }
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    settings = lake_settings(tmp_path, "profiles")
    create_table(settings, "profiles")
    return catalogs.open_table(settings, "profiles")


class _FullDisk(PyArrowFileIO):
    """Half of what is written to it fits."""

    def new_output(self, location: str) -> Any:
        path = Path(location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)

        @contextmanager
        def create(overwrite: bool = False) -> Iterator[Any]:
            def write(content: bytes) -> None:
                path.write_bytes(content[: len(content) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            yield SimpleNamespace(write=write)

        return SimpleNamespace(create=create)


def test_a_full_disk_leaves_the_note_before_or_none_and_never_a_part_of_one(table: Table) -> None:
    write_note(_FullDisk(), table.location(), NOTE)
    assert list(notes(table.io, table.location())) == []
    write_note(table.io, table.location(), NOTE)
    with pytest.raises(OSError, match="No space"):
        write_file(_FullDisk(), note_path(table.location(), NOTE.batch_id), b"another one")
    assert list(notes(table.io, table.location())) == [NOTE]
    folder = Path(note_path(table.location(), "x").removeprefix("file://")).parent
    assert [path.name for path in folder.iterdir()] == ["batch-1.json"]


def test_what_a_process_left_half_written_when_it_was_killed_is_no_note(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, fsync = threading.current_thread(), os.fsync

    def die(descriptor: int) -> None:
        if threading.current_thread() is killed:  # others, as a lease of an earlier test, write on
            raise SystemExit
        fsync(descriptor)

    path = note_path(table.location(), NOTE.batch_id)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(SystemExit):
            write_file(table.io, path, b"{")
    assert list(notes(table.io, table.location())) == []
    write_file(table.io, path, b"{}")
    assert read_file(table.io, path) == b"{}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b'{"batch_id": "b', "Unterminated string"),
        (b"[]", "'list' object is not a mapping"),
        (json.dumps(asdict(NOTE) | {"batch_id": "other"}).encode(), "of another batch"),
        (json.dumps(asdict(NOTE) | {"files": ["file:///etc/passwd"]}).encode(), "no file of the table"),
    ],
)
def test_a_note_that_can_not_be_read_is_reported_each_time_and_nothing_is_deleted(
    table: Table, caplog: pytest.LogCaptureFixture, content: bytes, says: str
) -> None:
    path = note_path(table.location(), NOTE.batch_id)
    write_file(table.io, path, content)
    for _ in range(2):
        (settled,) = settle_unknown(table, "profiles")
        assert settled == Settled("batch-1", "", Resolution.UNREADABLE, 0, path)
    said = vars(caplog.records[0])["fields"]
    assert says in said["detail"]
    assert (said["path"], said["next"]) == (path, "thermocline ingest reconcile profiles")
    assert read_file(table.io, path) == content


def test_files_that_a_note_names_elsewhere_are_not_deleted(table: Table, tmp_path: Path) -> None:
    """Goal: whoever can write a note has no other file deleted. Method: main moved on, so files would go."""
    mine, planned_on = tmp_path / "mine.txt", table.snapshots()[0].snapshot_id
    mine.write_text("mine")
    table.append(table.scan().to_arrow(), snapshot_properties={catalogs.SUMMARY_BATCH: "other"})
    for place in (mine.as_uri(), f"{table.location()}/data/../../../../mine.txt"):
        note = asdict(NOTE) | {"planned_on": planned_on, "files": [place]}
        write_file(table.io, note_path(table.location(), NOTE.batch_id), json.dumps(note).encode())
        (settled,) = settle_unknown(table, "profiles")
        assert settled.verdict == Resolution.UNREADABLE
    assert mine.read_text() == "mine"


def test_reconcile_does_not_say_nothing_to_do_of_a_note_that_it_can_not_read(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "thermocline.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    settled = Settled("batch-1", "", Resolution.UNREADABLE, 0, "file:///w/unknown/batch-1.json")

    @contextmanager
    def own_table(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(settled=(settled,))

    monkeypatch.setattr("thermocline.ingest.claim.ownership.own_table", own_table)
    assert entry.run(["ingest", "reconcile", "profiles"]) == 4
    out = " ".join(capfd.readouterr().out.split())
    assert "batch-1 unreadable 0" in out
    assert "file:///w/unknown/batch-1.json can't be read. If batch batch-1 landed, its rows are in the" in out
    assert "nothing to do" not in out
