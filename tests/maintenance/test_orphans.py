"""Orphans: what nothing names goes, a day after it was seen; nothing else ever does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.small_ingest import Ingest, settings_of
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.files import local_path, write_file
from thermocline.iceberg.orphan_note import seen_orphan_bytes
from thermocline.ingest.commit import unknown
from thermocline.ingest.commit.unknown import UnknownCommit, remove_note, write_note
from thermocline.maintenance.orphans import find_orphans, remove_orphans

pytestmark = pytest.mark.jvm

DAY_MS = 86_400_000
NOW_MS = 4_000_000_000_000  # all files of the table are old by then


@pytest.fixture(scope="module")
def ingest(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Ingest:
    settings = settings_of(tmp_path_factory.mktemp("orphans"), "sqlite:///catalog.db")
    made = Ingest(settings, jvm, seed=1)
    for _ in range(8):
        change, _ = made.batch()
        made.owned.committer.commit(*made.planned, change)
        made.refresh()
    made.owned.release()
    return made


@pytest.fixture
def table(ingest: Ingest) -> Iterator[Any]:
    table = load_table(open_catalog(ingest.settings.catalog), "profiles", "app.profiles")
    before = {path for path in _folder(table).rglob("*") if path.is_file()}
    yield table
    after = {path for path in _folder(table).rglob("*") if path.is_file()}
    for path in after - before:
        path.unlink()
    assert before <= after, "only orphans were deleted"


def _folder(table: Any) -> Path:
    return Path(local_path(table.location()) or "")


def orphan(table: Any, name: str, age_days: float = 9.0) -> Path:
    path = _folder(table) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left")
    at = NOW_MS / 1000 - age_days * 86_400
    os.utime(path, (at, at))
    return path


def test_what_nothing_names_goes_a_day_after_it_was_seen(table: Any) -> None:
    left = [
        orphan(table, name)
        for name in ("data/bucket=0/a.parquet", "metadata/b.avro", "thermocline/moves/c.arrow")
    ]
    assert remove_orphans(table, NOW_MS) == 0
    assert remove_orphans(table, NOW_MS + DAY_MS - 1) == 0
    assert all(path.exists() for path in left)
    assert seen_orphan_bytes(table) == 3 * len(b"left")
    assert remove_orphans(table, NOW_MS + DAY_MS) == 3
    assert not any(path.exists() for path in left)
    assert seen_orphan_bytes(table) == 0
    assert find_orphans(table, NOW_MS + DAY_MS).found == ()


def test_a_file_that_was_named_meanwhile_or_is_young_stays(table: Any) -> None:
    young = orphan(table, "data/young.parquet", age_days=2.9)
    assert find_orphans(table, NOW_MS).found == ()
    name = "data/bucket=1/of-an-unknown-commit.parquet"
    named = orphan(table, name)
    remove_orphans(table, NOW_MS)
    note = UnknownCommit("batch", 1, 1, "none", (f"{table.location()}/{name}",), "no answer")
    write_note(table.io, table.location(), note)
    assert remove_orphans(table, NOW_MS + 2 * DAY_MS) == 0
    assert young.exists()
    assert named.exists()
    remove_note(table.io, table.location(), "batch")
    # It was not seen to be one in between: the day begins again.
    assert remove_orphans(table, NOW_MS + 3 * DAY_MS) == 1
    assert remove_orphans(table, NOW_MS + 4 * DAY_MS) == 1
    assert not named.exists()


def test_surprisingly_many_stay_until_somebody_says_how_many(table: Any) -> None:
    for number in range(120):
        orphan(table, f"data/bucket=0/{number}.parquet")
    remove_orphans(table, NOW_MS)
    later_ms = NOW_MS + DAY_MS
    assert find_orphans(table, later_ms).is_surprising(later_ms)
    assert remove_orphans(table, later_ms) == 0
    assert remove_orphans(table, later_ms, approved=119) == 0
    assert remove_orphans(table, later_ms, approved=120) == 120


def test_where_another_table_has_its_place_nothing_is_deleted(table: Any) -> None:
    other = table.catalog.create_table("app.other", table.schema(), location=f"{table.location()}/data/other")
    left = orphan(table, "data/other/data/theirs.parquet")
    remove_orphans(table, NOW_MS)
    assert remove_orphans(table, NOW_MS + DAY_MS) == 0
    assert "app.other" in find_orphans(table, NOW_MS + DAY_MS).shared
    table.catalog.drop_table("app.other")
    assert left.exists()
    assert other.location() != table.location()


def test_while_the_note_of_an_unknown_commit_is_broken_nothing_is_deleted(table: Any) -> None:
    """The files that it named may be any. Once somebody has deleted the note, the orphans go."""
    left = orphan(table, "data/bucket=0/left.parquet")
    path = unknown.note_path(table.location(), "batch")
    write_file(table.io, path, b"")
    for now_ms in (NOW_MS, NOW_MS + DAY_MS):
        with pytest.raises(ValueError, match=r"batch.json can't be read \(it is empty\)"):
            remove_orphans(table, now_ms)
    assert left.exists()
    remove_note(table.io, table.location(), "batch")
    remove_orphans(table, NOW_MS + DAY_MS)
    assert remove_orphans(table, NOW_MS + 2 * DAY_MS) == 1


def test_where_notes_of_unknown_commits_can_not_be_read_nothing_is_deleted(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: which files must be kept is not guessed. Method: the store says nothing of notes alone."""
    left = orphan(table, "data/bucket=0/left.parquet")
    note = UnknownCommit("batch", 1, 1, "none", (f"{table.location()}/data/kept.parquet",), "no answer")
    kept = orphan(table, "data/kept.parquet")
    write_note(table.io, table.location(), note)

    def fails(io: Any, folder: str, is_recursive: bool = False) -> Any:
        raise OSError(f"no answer about {folder}")

    with monkeypatch.context() as patched:
        patched.setattr(unknown, "listed_folder", fails)
        for now_ms in (NOW_MS, NOW_MS + DAY_MS):
            with pytest.raises(OSError, match="thermocline/unknown"):
                remove_orphans(table, now_ms)
    remove_orphans(table, NOW_MS + DAY_MS)
    assert remove_orphans(table, NOW_MS + 2 * DAY_MS) == 1
    assert not left.exists()
    assert kept.exists()
    remove_note(table.io, table.location(), "batch")
