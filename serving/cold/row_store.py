"""Rows ready to send, kept in files that all API workers of a table share.

An entry is what one data file has of one entity: it never changes, since data files don't. Which of these
rows are deleted, the snapshot says when they are read. So a commit empties nothing, and what one worker has
read from a file, the others need not.

The files are LMDB's, of one boot of the machine: nothing is synced. Once the newest is full, another one is
begun and the oldest deleted, and what is asked for of an older one is written to the newest again. A thread
writes, so that no reader waits for another process; what comes faster than it writes is dropped.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Full, Queue
from struct import Struct
from typing import TYPE_CHECKING, Final

import lmdb

from thermocline.process.logs import fields
from thermocline.serving.hot.environment import open_environment
from thermocline.serving.hot.manifest import boot_id
from thermocline.serving.hot.record import STORED_KEY_BYTES_MAX
from thermocline.serving.store import measures
from thermocline.serving.store.storage import STORAGE_ERRORS

if TYPE_CHECKING:
    from lmdb import Environment

GENERATIONS: Final = 4
"""Files at a time: deleting one takes a quarter of the rows, and a reader asks four at most, 2 µs each."""
ENTRY_SHARE_MAX: Final = 16
"""The part of a file that one entry may take: a larger one would turn out all the others."""
# Some megabytes of entities. Warming writes thousands at once; a slow disk may lose some of them.
WAITING_MAX: Final = 4_096
# Of one transaction: its commit takes longer than to write some rows.
BATCH_MAX: Final = 256
# What is put within it is written together, rather than beside the lookup that put it.
GATHER_SECONDS: Final = 0.05
# Files that another process began or deleted are noticed within this.
LOOK_SECONDS: Final = 1.0
STOP_SECONDS: Final = 2.0

FIRST_NUMBER: Final = 1
_BEGUN_BYTES: Final = 2 * 4_096
"""LMDB begins a file with two pages; with less, it never held an entry."""
_NUMBER: Final = Struct(">Q")

Entry = tuple[bytes, bytes]

log = logging.getLogger(__name__)


class RowStore:
    """The store of one table, as one process has it. Any thread may ask and put.

    It is a copy of what the data files have: where it fails, it has nothing, and nobody is told but the log.
    """

    def __init__(self, folder: Path, table: str, bytes_max: int) -> None:
        """``bytes_max`` is what all its files may take. Any one has room for ``batch_bytes_max`` at once."""
        self._folder = folder
        self._table = table
        self.bytes_max = bytes_max
        self._file_bytes = bytes_max // GENERATIONS
        self.batch_bytes_max = self._file_bytes // ENTRY_SHARE_MAX
        self._generations: tuple[tuple[int, Environment], ...] = ()  # the newest first
        self._waiting: Queue[Entry | None] = Queue(WAITING_MAX)
        self._is_failing = False
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"rows of {table}", daemon=True)
        self._thread.start()

    def get(self, keys: Sequence[bytes], wholes: Sequence[bytes] = ()) -> list[bytes | None]:
        """The entries under the keys; None for each that is not there.

        ``wholes`` has, for each, what may be marked as whole: what is not there of that does not exist, and
        is given as empty.
        """
        found: list[bytes | None] = [None] * len(keys)
        missing = list(range(len(keys)))
        are_whole: set[int] = set()
        generations = self._generations
        try:
            for place, (_, environment) in enumerate(generations):
                with environment.begin() as transaction:
                    for number in missing:
                        found[number] = transaction.get(keys[number])
                        if place and (value := found[number]) is not None:
                            self.put(keys[number], value)
                        # In the same transaction: what a mark tells of was written before it.
                        if wholes and _is_still_whole(transaction.get(wholes[number]), generations[-1][0]):
                            are_whole.add(number)
                missing = [number for number in missing if found[number] is None]
                if not missing:
                    break
        except lmdb.Error as error:
            self._note(error)
            return [None] * len(keys)
        for number in are_whole.intersection(missing):
            found[number] = b""
        return found

    def put(self, key: bytes, value: bytes) -> None:
        """Has an entry written soon; or not, where it is too large or too many wait."""
        if not self._takes(key, value):
            return
        try:
            self._waiting.put_nowait((key, value))
        except Full:
            return

    def write(self, entries: Sequence[Entry]) -> bool:
        """Writes those that are in no file yet, before it returns; whether it takes them all.

        Raises as LMDB and the disk do.
        """
        taken = missing = [entry for entry in entries if self._takes(*entry)]
        for _, environment in self._generations:
            with environment.begin() as transaction:
                missing = [entry for entry in missing if transaction.get(entry[0]) is None]
        if missing:
            self._write(missing)
        return len(taken) == len(entries)

    def mark_whole(self, key: bytes, oldest: int) -> None:
        """Notes that all entries whose keys begin so are written; ``oldest`` is of before the first of them.

        It holds for as long as no file goes. Raises as LMDB and the disk do.
        """
        self._write([(key, _NUMBER.pack(oldest))])

    def oldest(self) -> int:
        """The number of the oldest file now; what was written to those before it is gone."""
        self._write(())
        return self._generations[-1][0] if self._generations else FIRST_NUMBER

    def flush(self) -> None:
        """Returns once all that was put is written or given up, and what others wrote is seen."""
        self._waiting.put(None)
        self._waiting.join()

    def close(self) -> None:
        """Ends the thread; what still waits may be lost. Bounded."""
        self._stop.set()
        with suppress(Full):  # then the thread is busy, and looks at the event next
            self._waiting.put_nowait(None)
        self._thread.join(STOP_SECONDS)

    def _takes(self, key: bytes, value: bytes) -> bool:
        return len(key) <= STORED_KEY_BYTES_MAX and len(value) <= self.batch_bytes_max

    def _work(self) -> None:
        while not self._stop.is_set():
            batch = self._next_batch()
            try:
                self._write([entry for entry in batch if entry is not None])
                self._is_failing = False
            except STORAGE_ERRORS as error:
                self._note(error)
            finally:
                for _ in batch:
                    self._waiting.task_done()

    def _next_batch(self) -> list[Entry | None]:
        """What waits, up to what fits any file; empty after a while without anything."""
        batch: list[Entry | None] = []
        left = self.batch_bytes_max
        try:
            while len(batch) < BATCH_MAX and left > 0:
                entry = self._waiting.get_nowait() if batch else self._first()
                batch.append(entry)
                left -= sum(map(len, entry or ()))
        except Empty:
            pass
        return batch

    def _first(self) -> Entry | None:
        """The first entry of a batch, once others have had time to come. Raises `Empty` after a while."""
        entry = self._waiting.get(timeout=LOOK_SECONDS)
        if entry is not None:
            self._stop.wait(GATHER_SECONDS)
        return entry

    def _write(self, batch: Sequence[Entry]) -> None:
        with self._writing, self._exclusive() as folder:
            self._look(folder)
            if not batch:
                return
            if not self._generations:
                self._begin(folder)
            try:
                self._write_newest(batch)
            except lmdb.MapFullError:
                self._begin(folder)
                self._write_newest(batch)

    def _write_newest(self, batch: Sequence[Entry]) -> None:
        with self._generations[0][1].begin(write=True) as transaction:
            for key, value in batch:
                transaction.put(key, value)

    def _begin(self, folder: Path) -> None:
        """Begins a file, and deletes the oldest ones beyond their number."""
        number = self._generations[0][0] + 1 if self._generations else FIRST_NUMBER
        kept = ((number, self._open(folder, number)), *self._generations)
        self._generations = kept[:GENERATIONS]
        for oldest, _ in kept[GENERATIONS:]:
            path = folder / str(oldest)
            measures.ROWS_EVICTED.labels(self._table).inc(path.stat().st_blocks * 512)
            path.unlink()
            path.with_name(f"{oldest}-lock").unlink(missing_ok=True)

    def _look(self, folder: Path) -> None:
        """Opens what other processes began, and lets go of what they deleted."""
        there = sorted((int(path.name) for path in folder.iterdir() if path.name.isdigit()), reverse=True)
        if there != [number for number, _ in self._generations]:
            known = dict(self._generations)
            self._generations = tuple(
                (number, known.get(number) or self._open(folder, number)) for number in there
            )

    def _open(self, folder: Path, number: int) -> Environment:
        path = folder / str(number)
        # On a full disk it may have been begun with half of what LMDB begins with, and can't be opened then.
        if path.exists() and path.stat().st_size < _BEGUN_BYTES:  # safety: rows-begun
            path.unlink()
        # It grows as it is written: on a full disk a write fails, where one through the map would kill.
        return open_environment(path, self._file_bytes, is_writer=True, grows=True)

    @contextmanager
    def _exclusive(self) -> Iterator[Path]:
        """The folder of this boot, for this process alone; those of other boots go."""
        folder = self._folder / boot_id()  # safety: rows-this-boot
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            for other in self._folder.iterdir():
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder

    def _note(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning(
                "the store of rows fails; they are read from the data files",
                extra=fields(table=self._table, detail=f"{type(error).__name__}: {error}"),
            )
        self._is_failing = True


def _is_still_whole(mark: bytes | None, oldest: int) -> bool:
    """Whether no file has gone since before the first entry that the mark tells of."""
    return mark is not None and _NUMBER.unpack(mark)[0] >= oldest  # safety: whole-while-nothing-goes
