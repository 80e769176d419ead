"""The history of files by snapshot: all are there, no delete is undone, each row is accounted for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyroaring import BitMap

from thermocline.bounded import Bounded
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import Deletes, ListedFile, local_path
from thermocline.verify.finding import Finding
from thermocline.verify.seam_history import name_of
from thermocline.verify.snapshot_files import SnapshotFiles, file_id

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.catalog import SnapshotState

# Files asked for at once: on an object store each takes the time of an answer.
_READS_AT_ONCE: Final = 16
# Positions of deletes that stay in memory, 2 bytes each: the next snapshot's are compared with them.
_DELETES_BYTES_MAX: Final = 64 << 20
_ENTRY_BYTES: Final = 200
# Positions and files that a finding names one by one; the others are counted.
_NAMED_MAX: Final = 5


def deletes_by_file(live: Iterable[ListedFile]) -> dict[str, list[ListedFile]]:
    """The position deletes that are bound to a data file, by its path."""
    by_file: dict[str, list[ListedFile]] = defaultdict(list)
    for file in live:
        if file.referenced is not None:
            by_file[file.referenced].append(file)
    return by_file


@dataclass(slots=True)
class FileHistory:
    """Goes along the snapshots of main, oldest first, and says what does not follow from the one before.

    ``is_held`` says whether the table still holds a snapshot: the files of one that is expired meanwhile may
    be gone.
    """

    io: FileIO
    has_key: bool
    is_held: Callable[[int], bool]
    _deletes: dict[str, list[ListedFile]] = field(default_factory=lambda: defaultdict(list))
    _is_known: bool = False
    _missing: set[str] = field(default_factory=set)
    _positions: Bounded[Deletes, BitMap] = field(default_factory=lambda: Bounded(_DELETES_BYTES_MAX))

    def findings(self, step: SnapshotFiles) -> Iterator[Finding]:
        """What one step does that it must not. Steps are taken in their order, each once."""
        for path, reason in step.unreadable.items():
            yield from self._unreadable(step, path, reason)
        for path in step.twice:
            yield Finding("rows-not-accounted", f"{name_of(step.link)} lists {path} more than once")
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            yield from self._presence(step, pool)
            if step.unreadable:  # nothing can be said of what follows from what
                self._is_known = False
                return
            if self._is_known:
                yield from self._deletes_kept(step, pool)
                if step.link.state is not None:
                    yield from self._accounted(step, step.link.state)
        if self._is_known:
            self._follow(step)
        else:
            self._deletes = deletes_by_file(step.live.values())
            self._is_known = True

    def _unreadable(self, step: SnapshotFiles, path: str, reason: str) -> Iterator[Finding]:
        if path not in self._missing and self.is_held(step.link.snapshot_id):
            self._missing.add(path)
            yield Finding("file-unreadable", f"{name_of(step.link)} lists its files in {path}: {reason}")

    def _presence(self, step: SnapshotFiles, pool: ThreadPoolExecutor) -> Iterator[Finding]:
        """Whether what came with a snapshot is there, with its size. What went on, was asked for before."""
        sizes = {file.path: file.bytes for file in step.appeared}
        found = dict(zip(sizes, pool.map(lambda path: _size(self.io, path), sizes), strict=True))
        wrong = [path for path, size in found.items() if size != sizes[path] and path not in self._missing]
        if wrong and not self.is_held(step.link.snapshot_id):  # safety: verify-expired
            return
        self._missing.update(wrong)
        for path in wrong:
            size, expected = found[path], sizes[path]
            if size is None:
                yield Finding("file-missing", f"{name_of(step.link)} refers to {path}, which is not there")
            else:
                facts = f"{size} bytes, where {name_of(step.link)} says {expected}"
                yield Finding("file-differs", f"{path} has {facts}")

    def _deletes_kept(self, step: SnapshotFiles, pool: ThreadPoolExecutor) -> Iterator[Finding]:
        """Positions of a data file that were deleted stay so for as long as it is part of the table."""
        after = self._deletes_after(step)
        changed = [path for path in after if not _ids(self._deletes.get(path, ())) <= _ids(after[path])]
        sets = pool.map(
            lambda path: (self._united(self._deletes.get(path, ())), self._united(after[path])), changed
        )
        for path, (was, is_now) in zip(changed, sets, strict=True):
            # safety: verify-deletes-kept
            if was is None or is_now is None or was <= is_now:  # unreadable ones have a finding of their own
                continue
            lost = list(was - is_now)
            named = ", ".join(map(str, lost[:_NAMED_MAX])) + (" and others" if lost[_NAMED_MAX:] else "")
            facts = f"{len(lost)} rows of {path} that were deleted before are live again, at {named}"
            yield Finding("deletes-lost", f"since {name_of(step.link)}, {facts}")

    def _accounted(self, step: SnapshotFiles, state: SnapshotState) -> Iterator[Finding]:
        """Each record that was applied has added a row, deleted one, or both; nothing else did either.

        Or it is a delete to remember.
        """
        added, after = _rows(step.added), self._deletes_after(step)
        deleted = sum(_rows(files) - _rows(self._deletes.get(path, ())) for path, files in after.items())
        kept = _rows(step.removed) - _rows_deleted(step.removed, self._deletes)
        if step.link.is_rewrite:
            if added - deleted != kept:
                facts = f"{added - deleted} rows in place of {kept}"
                yield Finding("rows-not-accounted", f"{name_of(step.link)} only rewrites, and has {facts}")
            return
        # Deletes to remember are rows that are deleted as they are added.
        hidden = _rows_deleted(step.added, after)
        added, deleted = added - hidden, deleted - hidden
        applied, carried = state.counts.get("applied", 0), step.link.carried
        # Of the files that it merged, the rows that it did not carry over are those that it deleted.
        added, deleted = added - carried, deleted + kept - carried
        may_delete = self.has_key or step.link.is_beside_the_log
        # safety: verify-rows-accounted
        is_open = carried > kept or max(added, deleted) > applied or added + deleted + hidden < applied
        if is_open or (deleted and not may_delete):
            facts = f"added {added} rows and deleted {deleted}, and says that it applied {applied} records"
            yield Finding("rows-not-accounted", f"{name_of(step.link)} {facts}")

    def _deletes_after(self, step: SnapshotFiles) -> dict[str, list[ListedFile]]:
        """The deletes of the data files whose deletes a step changes and that stay, as they are after it."""
        gone = {file_id(file) for file in step.disappeared}
        come = deletes_by_file(step.appeared)
        touched = {file.referenced for file in (*step.appeared, *step.disappeared)} - {None}
        return {
            path: [one for one in self._deletes.get(path, ()) if file_id(one) not in gone]
            + come.get(path, [])
            for path in touched
            if path is not None and (path, 0) in step.live
        }

    def _united(self, files: Sequence[ListedFile]) -> BitMap | None:
        """All positions that deletes hold together; None where some can't be read."""
        positions = BitMap()
        for file in files:
            assert file.deletes is not None
            read = self._positions.get(file.deletes)
            if read is None:
                try:
                    read = read_deletes(self.io, file.deletes)
                except (OSError, ValueError, pa.ArrowException):
                    return None
                self._positions.put(file.deletes, read, 2 * len(read) + _ENTRY_BYTES)
            positions |= read
        return positions

    def _follow(self, step: SnapshotFiles) -> None:
        self._deletes.update(self._deletes_after(step))
        for file in (*step.disappeared, *step.appeared):
            for path in (file.path, file.referenced):
                if path is not None and ((path, 0) not in step.live or not self._deletes.get(path)):
                    self._deletes.pop(path, None)


def _ids(files: Iterable[ListedFile]) -> set[tuple[str, int]]:
    return {file_id(file) for file in files}


def _rows(files: Iterable[ListedFile]) -> int:
    return sum(file.rows for file in files)


def _rows_deleted(files: Iterable[ListedFile], deletes: Mapping[str, Iterable[ListedFile]]) -> int:
    """How many rows of data files are deleted."""
    return sum(_rows(deletes.get(file.path, ())) for file in files)


def _size(io: FileIO, path: str) -> int | None:
    """The size of a file in bytes; None where it is not there."""
    local = local_path(path)
    try:
        return Path(local).stat().st_size if local is not None else len(io.new_input(path))
    except FileNotFoundError:
        return None
