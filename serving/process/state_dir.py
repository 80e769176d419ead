"""The state folder of a server, which one server at a time may use."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from thermocline.errors import StateDirUnusable
from thermocline.process.private_folder import FOLDER_MODE, make_private
from thermocline.serving.hot.disk import try_lock
from thermocline.serving.store.layout import LOCK


@contextmanager
def held_state_dir(state_dir: Path, tables: Iterable[str]) -> Iterator[None]:
    """Holds the state folder for this server alone, with a folder in it for each table; all can be written.

    Raises `StateDirUnusable`.
    """
    make_state_folders(state_dir, tables)
    try:
        lock = try_lock(state_dir / LOCK)
    except OSError as error:
        raise StateDirUnusable(path=str(state_dir), detail=str(error)) from error
    if lock is None:  # safety: state-dir-held
        raise StateDirUnusable(path=str(state_dir), detail="another server is using it")
    with lock:
        yield


def make_state_folders(state_dir: Path, tables: Iterable[str]) -> None:
    """Makes what is missing, for this user alone.

    Raises `StateDirUnusable` where one of them can't be written, or the first is another user's.
    """
    try:
        make_private(state_dir)
        for folder in (state_dir, *(state_dir / table for table in tables)):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise StateDirUnusable(path=str(state_dir), detail=str(error)) from error
