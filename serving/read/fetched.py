"""Bring data files from an object store to this machine, for a query that reads all of each.

DuckDB's own client for stores is an extension, fetched from the network, and knows no vended credentials.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from shutil import rmtree
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from thermocline.iceberg.files import local_path, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyiceberg.io import FileIO

FETCHES_MAX: Final = 4
"""At the same time, of one extract: one connection brings some 50 MB/s, a quarter of what DuckDB reads."""

_FOLDER: Final = "extract-"


def fetched(io: FileIO, paths: Iterable[str], folder: Path) -> dict[str, str]:
    """Where each of the files can be read: where it is, or else as a copy in `folder`, made if need be.

    Raises:
        OSError: the store doesn't give one, or the disk is full.
    """
    places = {path: local_path(path) for path in paths}
    missing = [path for path, local in places.items() if local is None]
    if not missing:
        return {path: str(local) for path, local in places.items()}
    folder.mkdir(parents=True, exist_ok=True)
    copies = {path: folder / f"{number}.parquet" for number, path in enumerate(missing)}
    with ThreadPoolExecutor(FETCHES_MAX) as pool:
        list(pool.map(partial(_fetch, io), copies.keys(), copies.values()))
    return {path: str(local or copies[path]) for path, local in places.items()}


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder for the files of one extract, in one that need not exist; it goes at the end.

    Extracts beside it, also in other processes, have other files of the same names. Gone are then also the
    folders of processes that died.
    """
    folder = parent / f"{_FOLDER}{os.getpid()}-{uuid4().hex}"  # safety: fetched-apart
    for other in parent.glob(f"{_FOLDER}*"):
        if _has_ended(int(other.name.removeprefix(_FOLDER).partition("-")[0])):
            rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's
        return False
    return False


def _fetch(io: FileIO, path: str, copy: Path) -> None:
    with copy.open("wb") as sink:
        for part in parts_of(io, path):
            sink.write(part)
