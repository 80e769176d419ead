"""The changes of each snapshot of main to the table's files.

A manifest never changes, and a snapshot shares most of its manifests with the one before it. So a walk reads
each manifest once, and holds the list of files of one snapshot at a time, however long the history is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from thermocline.errors import first_line
from thermocline.iceberg.files import ListedFile, listed_files

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile

    from thermocline.iceberg.lineage import Link

# Manifests read at once: on an object store each takes the time of an answer, whatever its size.
_MANIFESTS_AT_ONCE: Final = 8

FileId = tuple[str, int]
"""A path, and where in that file deletes stand (0 for a file of its own)."""


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """A snapshot's files, and how they differ from those of the one before it.

    ``live`` has all of them; it is changed by the next step. ``twice`` are listed more than once.
    ``unreadable`` are manifests with the reason; then the lists are not complete.
    """

    link: Link
    live: Mapping[FileId, ListedFile]
    appeared: tuple[ListedFile, ...]
    disappeared: tuple[ListedFile, ...]
    twice: tuple[str, ...]
    unreadable: Mapping[str, str]

    @property
    def added(self) -> list[ListedFile]:
        """The data files that appeared."""
        return [file for file in self.appeared if file.content == "data"]

    @property
    def removed(self) -> list[ListedFile]:
        """The data files that disappeared."""
        return [file for file in self.disappeared if file.content == "data"]

    @property
    def touched(self) -> set[str]:
        """The paths of the data files that appeared or disappeared, or whose deletes did."""
        return {file.referenced or file.path for file in (*self.appeared, *self.disappeared)}


def walk(io: FileIO, links: Sequence[Link]) -> Iterator[SnapshotFiles]:
    """The files of each snapshot. Of the first one, all have appeared."""
    held = _ManifestFiles()
    with ThreadPoolExecutor(_MANIFESTS_AT_ONCE) as pool:
        for link in links:
            yield held.step(io, link, pool)


def file_id(file: ListedFile) -> FileId:
    """What tells a file, or the deletes of one data file within it, from all others."""
    return (file.path, file.deletes.offset if file.deletes is not None else 0)


@dataclass(slots=True)
class _ManifestFiles:
    """The files of one snapshot, manifest by manifest.

    ``before`` has the files that the last step listed more or less often than the one before it, as they were
    then; None for those that were not there.
    """

    manifests: dict[str, tuple[ListedFile, ...]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    counts: Counter[FileId] = field(default_factory=Counter)
    live: dict[FileId, ListedFile] = field(default_factory=dict)
    before: dict[FileId, ListedFile | None] = field(default_factory=dict)

    def step(self, io: FileIO, link: Link, pool: ThreadPoolExecutor) -> SnapshotFiles:
        self.unreadable, self.before = {}, {}
        try:
            manifests = {one.manifest_path: one for one in link.snapshot.manifests(io)}
        except (OSError, ValueError) as error:
            # What it lists is unknown: the lists stay as they were.
            self.unreadable = {link.snapshot.manifest_list: first_line(error)}
            return SnapshotFiles(link, self.live, (), (), (), self.unreadable)
        self._exchange(io, manifests, pool)
        return SnapshotFiles(
            link=link,
            live=self.live,
            appeared=tuple(
                self.live[one] for one, was in self.before.items() if not was and one in self.live
            ),
            disappeared=tuple(
                filter(None, (was for one, was in self.before.items() if one not in self.live))
            ),
            twice=tuple(one[0] for one in self.before if self.counts[one] > 1),
            unreadable=dict(self.unreadable),
        )

    def _exchange(self, io: FileIO, manifests: Mapping[str, ManifestFile], pool: ThreadPoolExecutor) -> None:
        """Has these manifests in place of those of the snapshot before."""
        new = [one for path, one in manifests.items() if path not in self.manifests]
        for path in [path for path in self.manifests if path not in manifests]:
            self._count(self.manifests.pop(path), -1)
        for one, read in zip(new, pool.map(lambda one: _read(io, one), new), strict=True):
            if isinstance(read, str):
                self.unreadable[one.manifest_path] = read
            else:
                self.manifests[one.manifest_path] = read
                self._count(read, 1)

    def _count(self, files: Iterable[ListedFile], by: int) -> None:
        for file in files:
            name = file_id(file)
            self.before.setdefault(name, self.live.get(name))
            self.counts[name] += by
            if self.counts[name] > 0:
                self.live[name] = file
            else:
                del self.counts[name]
                self.live.pop(name, None)


def _read(io: FileIO, manifest: ManifestFile) -> tuple[ListedFile, ...] | str:
    try:
        return tuple(listed_files(io, manifest))
    except (OSError, ValueError) as error:
        return first_line(error)
