"""Everything below the state folder is the server's user's alone; the table beside it is not."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.small_lake import START_SECONDS_MAX, create_table, get, lake_settings, until
from thermocline.errors import StateDirUnusable
from thermocline.process.private_folder import make_private
from thermocline.serving.cold.row_store import RowStore
from thermocline.serving.hot.leases import ReaderLease
from thermocline.serving.process.server import serve
from thermocline.serving.process.state_dir import held_state_dir


@pytest.fixture(params=[0o000, 0o022])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path, *, of_files: bool) -> dict[str, int]:
    """By path within the folder, without what differs in each run."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode)
        for path in folder.rglob("*")
        if path.is_file() is of_files and not path.is_socket()
    }


@pytest.mark.usefixtures("umask")
def test_a_running_server_makes_no_file_that_others_could_read(tmp_path: Path) -> None:
    """Method: Kafka is down, so there is no hot tier, but all that is made without records."""
    settings = lake_settings(tmp_path, "profiles")
    create_table(settings, "profiles")
    serving = settings.serving.model_copy(update={"extract_jobs_dir": tmp_path / "jobs"})
    settings = settings.model_copy(update={"serving": serving})
    state = settings.serving.state_dir
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(settings,))
    process.start()
    try:
        until(lambda: get(settings, "/livez")[0] == http.client.OK)
        until(lambda: any((state / "profiles" / "cold" / "files").glob("*.facts")))
        until((state / "profiles" / "tailer.json").exists)
        until((tmp_path / "jobs").exists)
    finally:
        process.terminate()
        process.join(START_SECONDS_MAX)
    files, folders = modes(state, of_files=True), modes(state, of_files=False)
    assert {"server.lock", "profiles/tailer.json", "profiles/cold/lock"} <= files.keys()
    assert set(files.values()) == {0o600}
    assert set(folders.values()) == {0o700}
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("state", "jobs")] == [0o700, 0o700]


def test_hot_tier_rows_and_leases_are_private_and_the_tables_files_are_not(
    new_world: Callable[..., Any], tmp_path: Path, umask: int
) -> None:
    """Goal: one process writes both, as that of live snapshots does, and each is as it has to be."""
    world = new_world(data=str(tmp_path / "warehouse"))
    world.produce({"app_id": 7, "user_id": "u", "key": "plan"}, {"value": "cold"})
    world.commit()
    state = world.folder
    make_private(state)
    world.publish()
    world.produce({"app_id": 7, "user_id": "u", "key": "plan"}, {"value": "hot"})
    world.tail()
    lease = ReaderLease.of_reader(world.folder, 1, world.seam)
    rows = RowStore(world.folder / "rows", "profiles", 16_000_000)
    rows.put(b"key", b"row")
    until(lambda: rows.get([b"key"]) == [b"row"])
    rows.close()
    files, folders = modes(state, of_files=True), modes(state, of_files=False)
    assert {name.partition("/")[0] for name in files} == {"hot", "cold", "rows", "leases"}
    assert any(name.endswith("-lock") for name in files), "LMDB's own lock"
    assert set(files.values()) == {0o600}
    assert set(folders.values()) == {0o700}
    lease.release()
    written = modes(tmp_path / "warehouse", of_files=True)
    assert any(name.endswith(".parquet") for name in written)
    assert set(written.values()) == {0o666 & ~umask}


def test_a_state_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(StateDirUnusable, match="belongs to the user"), held_state_dir(tmp_path, []):
        pass
