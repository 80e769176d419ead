"""LMDB environments in memory: as much of the interface of ``lmdb`` as `serving.hot.generation` uses.

A transaction sees the environment as it was when it began, and what is written appears as a whole when it
ends. `test_environments` asks the same of it and of LMDB.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

import lmdb

from tests.simulation.disk import MemoryDisk, MemoryPath

PAGE_BYTES = 4096
# Real pages hold more of our small records; so few make generations grow full in a short history.
RECORDS_PER_PAGE = 4


class MemoryEnvironment:
    """Keys and values; each commit makes others of them, so what a reader holds never changes."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.pages = 1

    def stat(self) -> dict[str, int]:
        """Page size and number of entries."""
        return {"psize": PAGE_BYTES, "entries": len(self.keys)}

    def info(self) -> dict[str, int]:
        """The last page that is in use, which only grows."""
        return {"last_pgno": self.pages}

    def reader_check(self) -> int:
        """No slots, none stale."""
        return 0

    def begin(self, write: bool = False) -> MemoryTransaction:
        """A transaction on what there is now."""
        return MemoryTransaction(self, write)

    def commit(self, keys: list[bytes], values: dict[bytes, bytes]) -> None:
        """What a transaction wrote is there."""
        self.keys, self.values = keys, values
        self.disk.changes += 1
        self.pages = max(self.pages, 1 + len(keys) // RECORDS_PER_PAGE)


class MemoryTransaction:
    """One state of an environment."""

    __slots__ = ("_environment", "_write", "keys", "values")

    def __init__(self, environment: MemoryEnvironment, write: bool) -> None:
        self._environment = environment
        self._write = write
        self.keys = environment.keys
        self.values = dict(environment.values) if write else environment.values

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._write:
            self._environment.disk.edge("commit of a generation")
            self._environment.commit(self.keys, self.values)

    def abort(self) -> None:
        """Ends it; what it wrote is gone."""

    def get(self, key: bytes, default: bytes | None = None) -> bytes | None:
        """The value of a key."""
        return self.values.get(key, default)

    def stat(self) -> Mapping[str, int]:
        """How many keys it has."""
        return {"entries": len(self.keys)}

    def put(self, key: bytes, value: bytes) -> bool:
        """Writes one."""
        self.cursor().putmulti([(key, value)])
        return True

    def cursor(self) -> MemoryCursor:
        """A cursor that stands nowhere."""
        return MemoryCursor(self)


class MemoryCursor:
    """A place among the sorted keys."""

    __slots__ = ("_at", "_transaction")

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction
        self._at = -1

    def first(self) -> bool:
        """To the first key."""
        self._at = 0
        return bool(self._transaction.keys)

    def last(self) -> bool:
        """To the last key."""
        self._at = len(self._transaction.keys) - 1
        return self._at >= 0

    def set_range(self, key: bytes) -> bool:
        """To the first key at or after this one; whether there is one."""
        self._at = bisect_left(self._transaction.keys, key)
        return self._at < len(self._transaction.keys)

    def next(self) -> bool:
        """To the next key; whether there is one."""
        self._at += 1
        return self._at < len(self._transaction.keys)

    def prev(self) -> bool:
        """To the key before; whether there is one."""
        self._at -= 1
        return self._at >= 0

    def key(self) -> bytes:
        """Where it stands."""
        return self._transaction.keys[self._at]

    def value(self) -> bytes:
        """What is there."""
        return self._transaction.values[self.key()]

    def delete(self) -> bool:
        """Deletes that, and stands at what came behind it."""
        transaction = self._transaction
        del transaction.values[self.key()]
        transaction.keys = sorted(transaction.values)
        return True

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """From where it stands on; it stands at the last one given."""
        keys, values = self._transaction.keys, self._transaction.values
        at = self._at = max(self._at, 0)
        while at < len(keys):
            self._at = at
            yield keys[at], values[keys[at]]
            at = self._at + 1

    def putmulti(self, items: Iterable[tuple[bytes, bytes]], append: bool = False) -> tuple[int, int]:
        """Writes all; of those to be appended only as long as they ascend. How many, and how many of them."""
        transaction = self._transaction
        consumed = added = 0
        last = transaction.keys[-1] if transaction.keys else b""
        for key, value in items:
            consumed += 1
            if append and key <= last:
                break
            last = max(last, key)
            transaction.values[key] = value
            added += 1
        transaction.keys = sorted(transaction.values)
        return consumed, added


def open_environment(path: MemoryPath, map_bytes: int, is_writer: bool) -> MemoryEnvironment:
    """As `serving.hot.environment.open_environment`, for a path on a `MemoryDisk`."""
    found = path.disk.files.get(path.text)
    if isinstance(found, MemoryEnvironment):
        return found
    if found is not None:
        raise lmdb.InvalidError(f"{path}: not an LMDB file")
    if not is_writer:
        raise lmdb.Error(f"{path}: No such file or directory")
    path.disk.edge("new generation")
    environment = MemoryEnvironment(path.disk)
    path.disk.put(path.text, environment)
    return environment
