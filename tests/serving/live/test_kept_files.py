"""The files of live snapshots: kept for as long as a query may read them, then removed, also after a kill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from tests.manual_clock import ManualClock
from tests.serving.small_lake import create_table, lake_settings
from thermocline.iceberg.catalog import open_table
from thermocline.iceberg.files import local_path
from thermocline.iceberg.leases import leased_snapshots
from thermocline.serving.live.kept_files import KeptFiles

FILES_SECONDS = 600.0


@pytest.fixture
def table(tmp_path: Path) -> Table:
    settings = lake_settings(tmp_path, "profiles")
    create_table(settings, "profiles")
    return open_table(settings, "profiles")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def new_files(table: Table, clock: ManualClock) -> Callable[..., KeptFiles]:
    return lambda server="one": KeptFiles(table, "profiles", server, clock, FILES_SECONDS)


def made(files: KeptFiles, name: str) -> str:
    """A file, written and counted."""
    path = f"{files.folder}/{name}"
    place = place_of(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"x")
    files.count([path])
    return path


def removed(files: KeptFiles) -> int:
    """How many files go now."""
    files.look()
    old = files.take_old()
    files.remove(old)
    return len(old)


def place_of(path: str) -> Path:
    local = local_path(path)
    assert local is not None
    return Path(local)


def test_a_file_goes_once_it_was_named_to_nobody_for_long_enough(
    new_files: Callable[..., KeptFiles], clock: ManualClock
) -> None:
    files = new_files()
    kept, gone = made(files, "kept.parquet"), made(files, "gone.parquet")
    files.name([kept, gone], below=5)
    clock.advance(FILES_SECONDS - 1)
    files.name([kept], below=5)
    assert removed(files) == 0
    clock.advance(2)
    assert removed(files) == 1
    assert (place_of(kept).exists(), place_of(gone).exists()) == (True, False)


def test_a_file_that_no_snapshot_came_to_name_goes_too(
    new_files: Callable[..., KeptFiles], clock: ManualClock
) -> None:
    files = new_files()
    path = made(files, "of a failed attempt.parquet")
    clock.advance(FILES_SECONDS + 1)
    assert removed(files) == 1
    assert not place_of(path).exists()


def test_what_a_killed_process_left_is_kept_for_its_queries_and_then_removed(
    new_files: Callable[..., KeptFiles], clock: ManualClock
) -> None:
    before = new_files()
    path = made(before, "bucket=1/left.parquet")
    before.name([path], below=5)
    again = new_files()
    assert removed(again) == 0
    clock.advance(FILES_SECONDS - 1)
    assert removed(again) == 0
    clock.advance(2)
    assert removed(again) == 1
    assert not place_of(path).exists()


def test_servers_keep_apart(new_files: Callable[..., KeptFiles], clock: ManualClock) -> None:
    one, other = new_files("one"), new_files("other")
    path = made(one, "x.parquet")
    removed(other)
    clock.advance(FILES_SECONDS + 1)
    assert removed(other) == 0
    assert place_of(path).exists()


def test_the_snapshot_below_is_leased_before_it_is_named_and_for_as_long(
    table: Table, new_files: Callable[..., KeptFiles], clock: ManualClock
) -> None:
    def leased(in_seconds: float) -> set[int]:
        return set(leased_snapshots(table.io, table.location(), clock.now_ms() + int(1000 * in_seconds)))

    files = new_files()
    files.name([], below=5)
    assert leased(FILES_SECONDS) == {5}
    clock.advance(FILES_SECONDS / 2)
    files.name([], below=6)
    assert leased(0) == {5, 6}
    for _ in range(20):
        clock.advance(60)
        files.name([], below=6)
        assert 6 in leased(FILES_SECONDS)
    assert leased(0) == {6}


def test_a_lease_that_can_not_be_written_is_an_error_before_anything_is_named(
    table: Table, new_files: Callable[..., KeptFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("thermocline.serving.live.kept_files.write_lease", fail)
    with pytest.raises(OSError, match="No space"):
        new_files().name([], below=5)


def test_what_a_process_leased_before_a_restart_stays_leased(
    table: Table, new_files: Callable[..., KeptFiles], clock: ManualClock
) -> None:
    new_files().name([], below=5)
    clock.advance(FILES_SECONDS / 2)
    new_files().name([], below=6)
    assert leased_snapshots(table.io, table.location(), clock.now_ms()) == {5, 6}
    clock.advance(FILES_SECONDS)
    assert leased_snapshots(table.io, table.location(), clock.now_ms()) == {6}


def test_what_could_not_be_removed_is_found_again(
    new_files: Callable[..., KeptFiles], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = new_files()
    path = made(files, "rows.parquet")
    clock.advance(FILES_SECONDS + 1)
    with monkeypatch.context() as patched:
        patched.setattr("thermocline.serving.live.kept_files.delete_files", lambda *_: 0)
        assert removed(files) == 1
    assert removed(files) == 0  # found, and as if it were named now
    clock.advance(FILES_SECONDS + 1)
    assert removed(files) == 1
    assert not place_of(path).exists()


def test_what_a_store_keeps_of_a_deleted_file_long_after_is_found_and_removed(
    new_files: Callable[..., KeptFiles], clock: ManualClock
) -> None:
    """As where a store that stood still carries out what it was sent before, last the write."""
    files = new_files()
    assert removed(files) == 0
    late = place_of(f"{files.folder}/late.parquet")
    late.parent.mkdir(parents=True, exist_ok=True)
    late.write_bytes(b"x")
    for _ in range(2):
        clock.advance(FILES_SECONDS + 1)
        removed(files)
    assert not late.exists()
