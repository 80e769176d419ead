"""What stands for LMDB and for a disk does as they do: the same done to both gives the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.simulation import disk as fake_disk
from tests.simulation import environments
from tests.simulation.disk import MemoryDisk
from thermocline.serving.hot import disk as real_disk
from thermocline.serving.hot.environment import open_environment

MAP_BYTES = 4 << 20
MEMORY, REAL = "memory", "real"


def _folder(kind: str, tmp_path: Path) -> Any:
    return tmp_path if kind == REAL else MemoryDisk(lambda _: None).path("folder")


def _opened(kind: str, path: Any, is_writer: bool = True) -> Any:
    opener: Callable[..., Any] = open_environment if kind == REAL else environments.open_environment
    return opener(path, MAP_BYTES, is_writer)


def _disk(kind: str) -> Any:
    return real_disk if kind == REAL else fake_disk


@pytest.mark.parametrize("seed", range(5))
def test_environments_hold_and_give_the_same(tmp_path: Path, seed: int) -> None:
    """Goal: puts, cursors and snapshots of the memory's environment are LMDB's.

    Method: random writes to both, then every kind of reading that the hot tier does, also in transactions
    that began before the last writes.
    """
    choose = random.Random(seed)
    pair = [_opened(kind, _folder(kind, tmp_path) / "one.mdb") for kind in (REAL, MEMORY)]
    held: list[tuple[Any, Any]] = []
    for _ in range(60):
        keys = [bytes([choose.randrange(6), choose.randrange(8)]) for _ in range(choose.randrange(5))]
        records = sorted({key: choose.randbytes(3) for key in keys}.items())
        with pair[0].begin(write=True) as real, pair[1].begin(write=True) as memory:
            for transaction in (real, memory):
                transaction.cursor().putmulti(records)
                transaction.put(b"\xff\xff", bytes([len(records)]))
        if choose.random() < 0.3:
            first = bytes([choose.randrange(6)])
            with pair[0].begin(write=True) as real, pair[1].begin(write=True) as memory:
                assert _deleted(real, first) == _deleted(memory, first)
        if choose.random() < 0.2:
            held.append((pair[0].begin(), pair[1].begin()))
        for real, memory in (*held[-2:], (pair[0].begin(), pair[1].begin())):
            prefix, many = bytes([choose.randrange(7)]), choose.randrange(1, 5)
            assert _read(real, prefix, many) == _read(memory, prefix, many)
        assert pair[0].stat()["entries"] == pair[1].stat()["entries"]
    for real, memory in held:
        real.abort()
        memory.abort()


def _deleted(transaction: Any, first: bytes) -> list[Any]:
    """Two of what comes from there on, one behind the other."""
    cursor = transaction.cursor()
    found = []
    for _ in range(2):
        if cursor.set_range(first):
            found.append(cursor.key())
            cursor.delete()
    return found


def _read(transaction: Any, prefix: bytes, many: int) -> list[Any]:
    cursor = transaction.cursor()
    found: list[Any] = [transaction.get(b"\xff\xff", b""), transaction.get(prefix)]
    if cursor.set_range(prefix):
        found += list(islice(cursor, many))
        found.append(cursor.next() and next(iter(cursor)))
    backwards = transaction.cursor()
    is_more = backwards.last()
    while is_more:
        found.append((backwards.key(), backwards.value()))
        is_more = backwards.prev()
    all_of = transaction.cursor()
    all_of.first()
    return [*found, transaction.stat()["entries"], *all_of]


@pytest.mark.parametrize("kind", [MEMORY, REAL])
def test_a_transaction_that_failed_wrote_nothing(tmp_path: Path, kind: str) -> None:
    environment = _opened(kind, _folder(kind, tmp_path) / "one.mdb")
    with suppress(KeyError), environment.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
        raise KeyError
    with environment.begin() as transaction:
        assert transaction.get(b"a") is None


@pytest.mark.parametrize("kind", [MEMORY, REAL])
def test_records_to_append_must_ascend(tmp_path: Path, kind: str) -> None:
    environment = _opened(kind, _folder(kind, tmp_path) / "one.mdb")
    with environment.begin(write=True) as transaction:
        assert transaction.cursor().putmulti([(b"b", b""), (b"c", b"")], append=True) == (2, 2)
        consumed, added = transaction.cursor().putmulti([(b"a", b"")], append=True)
        assert (consumed, added) == (1, 0)


@pytest.mark.parametrize("kind", [MEMORY, REAL])
def test_a_reader_finds_no_file_and_keeps_one_that_is_gone(tmp_path: Path, kind: str) -> None:
    folder = _folder(kind, tmp_path)
    with pytest.raises(lmdb.Error):
        _opened(kind, folder / "one.mdb", is_writer=False)
    environment = _opened(kind, folder / "one.mdb")
    with environment.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
    (folder / "one.mdb").unlink()
    assert not (folder / "one.mdb").exists()
    with environment.begin() as transaction:
        assert transaction.get(b"a") == b"b"


@pytest.mark.parametrize("kind", [MEMORY, REAL])
def test_files_are_replaced_listed_touched_and_removed(tmp_path: Path, kind: str) -> None:
    folder, disk = _folder(kind, tmp_path), _disk(kind)
    file = folder / "one.json"
    file.with_suffix(".new").write_bytes(b"1")
    file.with_suffix(".new").replace(file)
    assert file.read_bytes() == b"1"
    assert [path.name for path in folder.glob("*.json*")] == ["one.json"]
    ((path, stamp),) = disk.stamps(folder)
    assert (path.name, path.parent.name, path.with_name("two").name) == ("one.json", folder.name, "two")
    (folder / "one.new").write_bytes(b"2")
    (folder / "one.new").replace(file)
    ((_, replaced),) = disk.stamps(folder)
    assert replaced != stamp
    status = file.stat()
    assert replaced == (status.st_ino, status.st_mtime_ns)
    file.unlink()
    file.unlink(missing_ok=True)
    assert list(disk.stamps(folder)) == []
    for missing in (file.read_bytes, file.unlink, file.stat, lambda: disk.touch(file)):
        with pytest.raises(FileNotFoundError):
            missing()


@pytest.mark.parametrize("kind", [MEMORY, REAL])
def test_a_lock_is_held_once_until_it_is_closed(tmp_path: Path, kind: str) -> None:
    path, disk = _folder(kind, tmp_path) / "lock", _disk(kind)
    lock = disk.try_lock(path)
    assert lock is not None
    assert disk.try_lock(path) is None
    lock.close()
    again = disk.try_lock(path)
    assert again is not None
    again.close()
