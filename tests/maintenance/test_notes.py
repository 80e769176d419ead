"""Notes of expired snapshots: of this table alone, and of no use where they are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.snapshots import Snapshot

from thermocline.iceberg import expired
from thermocline.iceberg.expired import (
    ExpiryNote,
    expired_lineage,
    expired_snapshots,
    forget_history,
    gone_since_ms,
    known_notes,
    last_expiry_ms,
    mark_gone,
    remove_note,
    to_history,
    waiting_notes,
    write_note,
)
from thermocline.iceberg.files import listed_folder


def table_at(folder: Path, number: int = 1) -> Any:
    metadata = SimpleNamespace(table_uuid=UUID(int=number))
    return SimpleNamespace(
        io=PyArrowFileIO(), location=lambda: f"{folder}", metadata=metadata, snapshots=list
    )


def note_of(expired_ms: int, *snapshot_ids: int) -> ExpiryNote:
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": one,
                "parent-snapshot-id": one - 1,
                "sequence-number": one,
                "timestamp-ms": one,
                "manifest-list": f"file:///{one}",
                "summary": {"operation": "append", "total-records": "7", "thermocline.epoch": "3"},
            }
        )
        for one in snapshot_ids
    ]
    return ExpiryNote.of(expired_ms, f"{snapshot_ids[0]}", snapshots)


def test_a_note_waits_then_stays_in_the_history_until_it_is_old(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    assert (list(waiting_notes(table)), expired_snapshots(known_notes(table)), last_expiry_ms(table)) == (
        [],
        {},
        None,
    )
    first, second, third = note_of(999, 1, 2), note_of(1_000, 3), note_of(1_001, 4)
    for note in (third, first, second):
        write_note(table, note)
    assert list(waiting_notes(table)) == [first, second, third]
    to_history(table, first)
    to_history(table, second)
    remove_note(table, third)
    assert list(waiting_notes(table)) == []
    assert set(expired_snapshots(known_notes(table))) == {1, 2, 3}
    assert last_expiry_ms(table) == 1_000
    forget_history(table, 1_000)
    assert set(expired_snapshots(known_notes(table))) == {3}


def test_expired_snapshots_are_read_back_from_the_newest_note_to_the_one_that_is_wanted(
    tmp_path: Path,
) -> None:
    """Method: of a hundred notes half wait; one snapshot left the metadata long after those around it."""
    table = table_at(tmp_path)
    for number in range(1, 101):
        note = note_of(1_000 if number == 90 else number, number)
        write_note(table, note)
        if number <= 50:
            to_history(table, note)
    opened: list[str] = []
    new_input = table.io.new_input

    def open_noted(path: str) -> Any:
        opened.append(path)
        return new_input(path)

    table.io.new_input = open_noted
    lineage = expired_lineage(table, 100)
    first = [next(lineage) for _ in range(12)]
    assert [one.snapshot_id for one in first] == list(range(100, 88, -1))
    assert 12 <= len(opened) < 40
    assert [one.snapshot_id for one in lineage] == list(range(88, 0, -1))
    assert first[0].summary is not None
    assert first[0].summary.additional_properties == {"thermocline.epoch": "3"}


def test_notes_of_a_table_that_was_here_before_are_not_ours(tmp_path: Path) -> None:
    """Goal: a snapshot id of another table says nothing of this one's files."""
    write_note(table_at(tmp_path, 2), note_of(1_000, 1))
    assert list(waiting_notes(table_at(tmp_path, 1))) == []
    assert expired_snapshots(known_notes(table_at(tmp_path, 1))) == {}
    assert set(expired_snapshots(known_notes(table_at(tmp_path, 2)))) == {1}


def test_a_damaged_note_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_at(tmp_path)
    note = note_of(1_000, 1)
    write_note(table, note)
    (path,) = tmp_path.rglob("*.json.zlib")
    path.with_name(f"0-torn{''.join(path.suffixes)}").write_bytes(path.read_bytes()[:20])
    assert list(waiting_notes(table)) == [note]
    assert "not a note of expired snapshots" in caplog.text


def test_a_note_is_marked_when_its_snapshots_are_gone_and_the_mark_goes_with_it(tmp_path: Path) -> None:
    table = table_at(tmp_path)
    note = note_of(1_000, 1)
    write_note(table, note)
    assert gone_since_ms(table, note) is None
    mark_gone(table, note, 2_345)
    assert gone_since_ms(table, note) == 2_345
    assert list(waiting_notes(table)) == [note]
    (mark,) = tmp_path.rglob("*.gone")
    mark.write_bytes(b"23")  # as of a process that died while it wrote it
    assert gone_since_ms(table, note) is None
    remove_note(table, note)
    assert not mark.exists()


def test_a_note_that_goes_to_the_history_while_that_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: it goes there between any two of the three requests that reading takes."""
    for nth in (1, 2, 3):
        table = table_at(tmp_path / str(nth))
        note = note_of(1_000, 1)
        write_note(table, note)
        requests = count(1)

        def moved_before(real: Any, nth: int = nth, requests: Iterator[int] = requests) -> Any:
            def ask(*arguments: Any, **named: Any) -> Any:
                if next(requests) == nth:
                    to_history(table_at(tmp_path / str(nth)), note_of(1_000, 1))
                return real(*arguments, **named)

            return ask

        with monkeypatch.context() as patched:
            patched.setattr(f"{expired.__name__}.listed_folder", moved_before(listed_folder))
            table.io.new_input = moved_before(table.io.new_input)
            assert set(expired_snapshots(known_notes(table))) == {1}, nth
