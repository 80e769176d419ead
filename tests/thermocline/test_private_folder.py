"""Folders that only this user can enter, whatever the umask, the writer, and what was there before."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from thermocline.process.private_folder import ForeignFolder, make_private, process_folder, temporary_folder


@pytest.fixture(params=[0o000, 0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The user's, from one that shares everything to one that hides from strangers."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write_by_all(folder: Path) -> None:
    """As parts of a server do: by Python, Arrow and DuckDB, in new folders, and by way of another name."""
    (folder / "new" / "below").mkdir(parents=True)
    (folder / "new" / "below" / "python").write_bytes(b"x")
    (folder / "scratch").write_bytes(b"x")
    (folder / "scratch").replace(folder / "renamed")
    with pa.OSFile(str(folder / "new" / "arrow"), "wb") as sink:
        sink.write(b"x")
    duckdb.execute(f"copy (select 1 as x) to '{folder / 'duckdb'}' (format parquet)")


@pytest.mark.usefixtures("umask")
def test_what_is_made_in_it_is_its_users_alone_by_whoever_makes_it(tmp_path: Path) -> None:
    make_private(tmp_path / "not" / "there")
    write_by_all(tmp_path / "not" / "there")
    found = {path.name: mode(path) for path in (tmp_path / "not").rglob("*")}
    files = dict.fromkeys(("python", "renamed", "arrow", "duckdb"), 0o600)
    assert found == {"there": 0o700, "new": 0o700, "below": 0o700, **files}


def test_files_beside_it_follow_the_users_umask(tmp_path: Path, umask: int) -> None:
    make_private(tmp_path / "state")
    (tmp_path / "warehouse").mkdir()
    write_by_all(tmp_path / "warehouse")
    assert mode(tmp_path / "warehouse" / "new" / "below") == 0o777 & ~umask
    assert mode(tmp_path / "warehouse" / "new" / "arrow") == 0o666 & ~umask
    assert os.umask(umask) == umask, "it is as it was"


@pytest.mark.usefixtures("umask")
def test_a_folder_that_others_can_enter_is_tightened_with_all_in_it_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    outside.chmod(0o644)
    state = tmp_path / "state"
    (state / "hot").mkdir(parents=True)
    (state / "hot" / "old").write_bytes(b"x")
    (state / "hot" / "old").chmod(0o644)
    (state / "hot").chmod(0o755)
    (state / "link").symlink_to(outside)
    state.chmod(0o750)
    for _ in range(2):
        make_private(state)
    (state / "hot" / "young").write_bytes(b"x")
    assert [mode(state), mode(state / "hot")] == [0o700, 0o700]
    assert [mode(state / "hot" / "old"), mode(state / "hot" / "young")] == [0o600, 0o600]
    assert mode(outside) == 0o644, "a link leads elsewhere"
    (record,) = caplog.records
    assert (record.levelno, vars(record)["fields"]) == (logging.WARNING, {"path": state})


def test_one_of_an_earlier_release_that_only_its_user_can_enter_gets_the_rules_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "old").write_bytes(b"x")
    (state / "old").chmod(0o644)
    make_private(state)
    assert mode(state / "old") == 0o600
    assert not caplog.records


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.owner()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(ForeignFolder) as caught:
        make_private(tmp_path)
    assert str(caught.value) == f"{tmp_path} belongs to the user {owner}, and this is 4000000000"


def test_where_a_file_system_has_no_such_rules_the_folder_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    monkeypatch.setattr(os, "setxattr", refuse)
    make_private(tmp_path / "state")
    make_private(tmp_path / "new")
    assert [mode(tmp_path / "state"), mode(tmp_path / "new")] == [0o700, 0o700]


@pytest.mark.usefixtures("umask")
def test_temporary_folders_are_private_and_go(tmp_path: Path) -> None:
    with temporary_folder("some-", tmp_path) as folder:
        write_by_all(folder)
        assert folder.parent == tmp_path
        assert mode(folder) == 0o700
        assert {mode(path) for path in folder.rglob("*") if path.is_file()} == {0o600}
    assert not folder.exists()


def test_a_process_has_one_for_the_programs_that_it_starts() -> None:
    folder = process_folder()
    (folder / "of a program").write_bytes(b"x")
    assert (process_folder(), mode(folder), mode(folder / "of a program")) == (folder, 0o700, 0o600)
