"""Rows made ready to send before anybody asks for them, where those of a whole table fit into its store.

So neither a server's start, nor a commit, nor a rewrite leaves lookups with files to read. A process of its
own does it, file by file, at the lowest priority. Of a table that does not fit, the store has what was asked
for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import open_table
from thermocline.process.logs import fields
from thermocline.serving.cold.folder import ColdFolder
from thermocline.serving.cold.ready import file_key
from thermocline.serving.cold.row_json import RowJson
from thermocline.serving.cold.row_store import FIRST_NUMBER, RowStore
from thermocline.serving.store import measures
from thermocline.serving.store.layout import COLD, ROWS
from thermocline.serving.store.storage import STORAGE_ERRORS

if TYPE_CHECKING:
    import threading

    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.cold.reader import ColdReader, ReadyEntity
    from thermocline.settings import Settings

FITS_SHARE: Final = 0.6
"""Of the store. It lets go of a quarter at a time, and has rows of files that are no longer in the table."""
ROW_BYTES_MIN: Final = 20
"""In the store. Of a table that is too large even so, not so much as the index is loaded."""
PAGE_BYTES: Final = 4_096
OVERHEAD: Final = 1.5
"""What LMDB takes for a byte of an entry that shares a page: its pages are two thirds full."""
BATCH_ENTRIES: Final = 256
# New snapshots are noticed within this. What is asked for meanwhile is read from the files.
POLL_SECONDS: Final = 0.5
# After a failure, as of a store that does not answer or a file that is gone.
RETRY_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class RowsAhead:
    """Of one table. ``snapshots`` is where its cold indexes are published."""

    def __init__(self, name: str, snapshots: ColdFolder, store: RowStore) -> None:
        self.name = name
        self._snapshots = snapshots
        self._store = store
        self._index: ColdIndex | None = None
        self._reader: ColdReader | None = None
        self._oldest = FIRST_NUMBER
        # The index's stamp and the store's oldest file, when nothing was left to do.
        self._settled: tuple[object, int] | None = None
        self._done: set[bytes] = set()  # by what their rows are stored by
        self._bytes = self._rows = 0.0

    def work(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Makes the rows of the newest snapshot ready that are not yet, if all of them fit.

        Raises as the disk, or the store of the table's files, does.
        """
        stamp, oldest = self._snapshots.stamp(), self._store.oldest()
        if (stamp, oldest) == self._settled:
            return
        before = self._index
        self._index = self._snapshots.latest(before) if self._has_room_for(self._snapshots.rows()) else None
        index = self._index
        if index is not None and index.definition.has_key:
            if self._reader is None or before is None or before.location != index.location:
                self._reader = self._snapshots.reader()
            if oldest != self._oldest:
                self._oldest, self._done = oldest, set()
            try:
                self._fill(self._reader, index, is_stopped)
            except STORAGE_ERRORS:
                self._reader = None  # with its access to the store, which may have ended
                raise
        if not is_stopped():
            self._settled = stamp, oldest

    def _fill(self, reader: ColdReader, index: ColdIndex, is_stopped: Callable[[], bool]) -> None:
        rows = sum(file.data.rows for file in index.files)
        files = {file_key(index, file): file for file in index.files}
        self._done &= files.keys()
        to_json = RowJson(index.definition).cold
        for name in files.keys() - self._done:
            file = files[name]
            if file.sparse.is_sorted:
                is_whole = True
                for batch in self._batches(reader.ready_entities(index, file, to_json)):
                    if is_stopped() or not self._has_room_for(rows):
                        return  # safety: rows-whole-when-stopped
                    is_whole &= self._write(batch)
                if is_whole:  # safety: rows-whole-file
                    self._store.mark_whole(file_key(index, file), self._oldest)
            self._done.add(name)
            reader.keep_only(())  # each file is read once

    def _write(self, batch: Sequence[ReadyEntity]) -> bool:
        """Whether the store takes all of them."""
        are_all_taken = self._store.write([(key, value) for key, value, _ in batch])
        rows = sum(rows for _, _, rows in batch)
        self._rows += rows
        self._bytes += sum(_bytes_of(key, value) for key, value, _ in batch)
        measures.ROWS_AHEAD.labels(self.name).inc(rows)
        return are_all_taken

    def _batches(self, entities: Iterable[ReadyEntity]) -> Iterator[list[ReadyEntity]]:
        """As many as any file of the store has room for."""
        batch: list[ReadyEntity] = []
        size = 0.0
        for entity in entities:
            batch.append(entity)
            size += _bytes_of(*entity[:2])
            if len(batch) == BATCH_ENTRIES or size >= self._store.batch_bytes_max:
                yield batch
                batch, size = [], 0.0
        if batch:
            yield batch

    def _has_room_for(self, rows: int) -> bool:
        """By what those so far took."""
        of_row = self._bytes / self._rows if self._rows else ROW_BYTES_MIN
        return rows * of_row <= FITS_SHARE * self._store.bytes_max


def run_ahead(settings: Settings, names: Sequence[str], stop: threading.Event) -> None:
    """Keeps the rows of these tables ready until it is told to stop."""
    folder, bytes_max = settings.serving.state_dir, settings.serving.rows_bytes_max

    def opened(name: str) -> RowsAhead:
        snapshots = ColdFolder(folder / name / COLD, name, lambda: open_table(settings, name).io)
        return RowsAhead(name, snapshots, RowStore(folder / name / ROWS, name, bytes_max))

    tables = [opened(name) for name in names]
    failing: set[str] = set()
    while not stop.is_set():
        for table in tables:
            try:
                table.work(stop.is_set)
                failing.discard(table.name)
            except (
                *STORAGE_ERRORS,
                ThermoclineError,
            ) as error:
                if table.name not in failing:
                    extra = fields(table=table.name, detail=f"{type(error).__name__}: {error}")
                    log.info("rows could not be made ready; tried again", extra=extra)
                failing.add(table.name)
        stop.wait(RETRY_SECONDS if failing else POLL_SECONDS)


def _bytes_of(key: bytes, value: bytes) -> float:
    """What an entry takes of LMDB's file, about: more than half a page has pages of its own."""
    size = len(key) + len(value)
    return size * OVERHEAD if size < PAGE_BYTES / 2 else (1 + size // PAGE_BYTES) * PAGE_BYTES
