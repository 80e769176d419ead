"""Leases of readers: what keeps a snapshot, and what a dead reader's comes to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.manual_clock import ManualClock
from thermocline.iceberg import leases
from thermocline.iceberg.leases import SnapshotLease, forget_leases, leased_snapshots

IO = PyArrowFileIO()
NOW_MS = 1_800_000_000_000


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is written as soon as a read begins, and again and again."""
    monkeypatch.setattr(leases, "LEASED_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(leases, "RENEWED_SECONDS", 0.001)


def _folder(table: Path) -> Path:
    folder = table / "thermocline" / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _left(table: Path, name: str, content: str, written_ms: int) -> Path:
    path = _folder(table) / name
    path.write_text(content)
    os.utime(path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))
    return path


def _begun(table: Path, clock: ManualClock, open_io: Callable[[], Any] = lambda: IO) -> SnapshotLease:
    return SnapshotLease.begin(open_io, table.as_uri(), 7, "a test", clock)


def _is_leased(table: Path, now_ms: int = NOW_MS) -> bool:
    return leased_snapshots(IO, table.as_uri(), now_ms) == {7}


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.usefixtures("at_once")
def test_a_snapshot_is_leased_while_it_is_read_and_not_afterwards(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    lease = _begun(tmp_path, clock)
    _wait(lambda: bool(list(_folder(tmp_path).glob("*.json"))))
    clock.advance(10_000)
    _wait(lambda: _seen(tmp_path, NOW_MS + 10_000_000))
    lease.release()
    lease.release()
    assert not list(_folder(tmp_path).iterdir())


def _seen(table: Path, now_ms: int) -> bool:
    """Whether it is leased; the file may be half written just now, which a sweep or an expiry waits out."""
    try:
        return _is_leased(table, now_ms)
    except ValueError:
        return False


def test_a_short_read_asks_nothing_of_the_store(tmp_path: Path) -> None:
    def not_asked() -> Any:
        raise AssertionError("the store was asked")

    _begun(tmp_path, ManualClock(NOW_MS), not_asked).release()
    assert not list(_folder(tmp_path).iterdir())


@pytest.mark.usefixtures("at_once")
def test_where_no_lease_can_be_written_one_line_says_so_and_the_read_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def forbidden() -> Any:
        tries.append(1)
        raise PermissionError("only reading is allowed")

    lease = _begun(tmp_path, ManualClock(NOW_MS), forbidden)
    _wait(lambda: len(tries) > 2)
    lease.release()
    (line,) = [one for one in caplog.records if one.getMessage() == "reading without a lease"]
    assert line.fields["detail"] == "only reading is allowed"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("at_once")
def test_a_lease_is_written_with_a_new_grant_once_the_first_one_has_expired(tmp_path: Path) -> None:
    grants: list[Any] = [object()]  # one that no store takes any more
    lease = _begun(tmp_path, ManualClock(NOW_MS), lambda: grants.pop() if grants else IO)
    _wait(lambda: _seen(tmp_path, NOW_MS))
    lease.release()
    assert not list(_folder(tmp_path).iterdir())


def test_the_lease_of_a_reader_that_died_ends_and_goes(tmp_path: Path) -> None:
    content = json.dumps({"reader": "gone", "snapshots": {"7": NOW_MS + leases.HELD_MS}})
    path = _left(tmp_path, "reader-1.json", content, NOW_MS)
    assert _is_leased(tmp_path)
    assert not _is_leased(tmp_path, NOW_MS + leases.HELD_MS)
    forget_leases(IO, tmp_path.as_uri(), NOW_MS)
    assert path.exists()
    theirs = _left(tmp_path, "mine.json", content, NOW_MS)
    forget_leases(IO, tmp_path.as_uri(), NOW_MS + 1)
    assert not path.exists()
    assert theirs.exists(), "what somebody else wrote is theirs to delete"


def test_a_lease_that_a_reader_died_on_half_written_stops_nothing_for_long(tmp_path: Path) -> None:
    _left(tmp_path, "reader-1.json", "", NOW_MS)
    with pytest.raises(ValueError, match="no lease"):
        leased_snapshots(IO, tmp_path.as_uri(), NOW_MS + leases.HELD_MS)
    assert not leased_snapshots(IO, tmp_path.as_uri(), NOW_MS + leases.HELD_MS + 1)
    _left(tmp_path, "mine.json", "", NOW_MS)
    with pytest.raises(ValueError, match=r"mine\.json is no lease"):
        leased_snapshots(IO, tmp_path.as_uri(), NOW_MS + 10 * leases.HELD_MS)
