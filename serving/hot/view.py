"""The reading side of the hot tier: views of it as it is now.

A view is one read transaction in each generation. The active generation's own meta gives the view's end,
in the same transaction as its records, so the end is exactly what the view holds. The meta also names the
manifest that belongs to it: a reader notices new, merged and evicted generations without looking at any
file.

A view has no gap, and no place in the log twice: its generations are those of one manifest, which cover one
contiguous range of offsets per partition.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import lmdb

from thermocline.errors import NotReady
from thermocline.failpoints import failpoint
from thermocline.serving.hot.arrived import arrived_by_bucket
from thermocline.serving.hot.file_version import file_version
from thermocline.serving.hot.generation import Generation, Meta, decode_meta, reached_end_at
from thermocline.serving.hot.manifest import MANIFEST, HotManifest, Listed, read_manifest
from thermocline.serving.hot.merge import covered_by
from thermocline.serving.hot.record import META_KEY, HotRow
from thermocline.serving.hot.refused import EVERY, Asked, RefusedRecords, refused_among
from thermocline.serving.hot.scan import merging_of, winners_of_bucket
from thermocline.serving.hot.topics import counting_topics, of_topics
from thermocline.serving.hot.winners import is_in_several_partitions, winners_of_prefix

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.serving.hot.arrived import Arrived

# A generation may be gone between reading the manifest and opening it; each time the manifest has moved on.
OPENINGS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class OpenGenerations:
    """The generations of one manifest, open, oldest first. ``tier`` is another number for another tier."""

    manifest: HotManifest
    generations: tuple[Generation, ...]
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Extent:
    """From where to where a view reaches; ``raw`` is the active generation's meta that says so.

    ``topics`` are those of the snapshot that it is for, ``counting`` the same by their numbers.
    ``manifest_version`` is of the manifest that this meta names: it is known, or about to be published.
    ``ends`` are those of the sealed generations, oldest first.
    """

    opened: OpenGenerations
    topics: Sequence[str] | None
    counting: Sequence[str]
    raw: bytes
    manifest_version: int
    start: Seam
    end: Seam
    ends: tuple[Seam, ...]
    reached_end_at: float

    def is_of(self, opened: OpenGenerations, raw: bytes, topics: Sequence[str] | None) -> bool:
        """Whether it says what one made of these would say."""
        return self.opened is opened and self.topics is topics and self.raw == raw


class HotReader:
    """Gives views of a hot folder. For any threads, and for as long as the process lives.

    It goes on giving views, which only grow old, when the tailer stops; and moves to another tier when the
    tailer has to begin again.
    """

    def __init__(self, folder: Path, table: str, opened: OpenGenerations) -> None:
        """Use ``open``."""
        self._folder = folder
        self._table = table
        self._opening = threading.Lock()
        self._opened = opened
        self._stamp: tuple[int, int] | None = None
        self._extent: Extent | None = None

    @classmethod
    def open(cls, folder: Path, definition: LiveTable) -> Self:
        """Opens what the tailer has published.

        Raises:
            NotReady: no tailer has written there since the machine started.
        """
        opened = open_manifest(folder, definition.name, {})
        return cls(folder, definition.name, opened)

    def refresh(self) -> None:
        """Opens new generations here rather than in a view.

        Also finds a tier that was begun where no manifest was left to tell of the one before: the metas of
        that one, which is all that views look at, never say so.
        """
        with self.view():
            pass
        stamp = file_version(self._folder / MANIFEST)
        if stamp != self._stamp:  # safety: tier-found-again
            with suppress(NotReady):  # none is there now: what is held goes on
                self._reopened(self._opened)
                self._stamp = stamp

    def view(self, topics: Sequence[str] | None = None) -> HotView:
        """The tier as it is when the view is entered; to be left soon, since it keeps pages in use.

        ``topics`` are those of the snapshot that it is to be laid over, the same object each time; no other
        topic's records are in the view. None: those of all that the tier is read from.
        """
        return HotView(self, topics)

    def close(self) -> None:
        """Lets go of the files; no view can be entered any more."""
        self._extent = None
        self._opened = replace(self._opened, generations=())

    def begin(self, topics: Sequence[str] | None) -> tuple[Extent, list[lmdb.Transaction[bytes]]]:
        """A transaction in each generation, newest first, and where they reach. For ``HotView``."""
        while True:
            opened = self._opened
            transaction = opened.generations[-1].read()
            raw = transaction.get(META_KEY, b"")
            extent = self._extent
            if extent is None or not extent.is_of(opened, raw, topics):
                extent = self._extent = _extent(opened, raw, topics)
            if extent.manifest_version > opened.manifest.version and self._reopened(opened):
                transaction.abort()
                continue
            sealed = opened.generations[-2::-1] if len(opened.generations) > 1 else ()
            return extent, [transaction, *(generation.read() for generation in sealed)]

    def _reopened(self, before: OpenGenerations) -> bool:
        """Reads the manifest again; whether it is another one. It may be about to be published."""
        with self._opening:
            if self._opened is not before:
                return True
            known = {generation.name: generation for generation in before.generations}
            opened = open_manifest(self._folder, self._table, known)
            if opened.manifest == before.manifest:
                return False
            goes_on = any(generation.name in known for generation in opened.generations)
            self._opened = replace(opened, tier=before.tier if goes_on else before.tier + 1)
            return True


class HotView:
    """The hot tier at one moment; to be used in a ``with`` statement, by one thread."""

    __slots__ = ("_arrived", "_extent", "_reader", "_topics", "_transactions")

    def __init__(self, reader: HotReader, topics: Sequence[str] | None) -> None:
        """Use ``HotReader.view``."""
        self._reader = reader
        self._topics = topics
        self._arrived: tuple[Seam, Arrived | None] | None = None

    def __enter__(self) -> Self:
        self._extent, self._transactions = self._reader.begin(self._topics)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transaction in self._transactions:
            transaction.abort()

    @property
    def start(self) -> Seam:
        """The first offset held, by partition. A seam before it cannot be read from."""
        return self._extent.start

    @property
    def end(self) -> Seam:
        """The next offset that is not held, by partition. The same object as long as it is the same."""
        return self._extent.end

    @property
    def topics(self) -> frozenset[str]:
        """Those that are read."""
        return frozenset(self._extent.end.topics)

    @property
    def tier(self) -> int:
        """Another number once nothing is left of the generations of before, as when it was begun again."""
        return self._extent.opened.tier

    @property
    def source(self) -> str:
        """The log that the records come from, as the tailer names it."""
        return self._extent.opened.manifest.source

    @property
    def complete_from_ms(self) -> int:
        """From when on no tombstone is missing, as the manifest says it."""
        return self._extent.opened.manifest.complete_from_ms

    @property
    def definition_json(self) -> str:
        """The definition that the records were decoded by, as the table carries it."""
        return self._extent.opened.manifest.definition

    def age_seconds(self, now: float) -> float:
        """Seconds since each partition was last known to be read up to its end, the worst one.

        ``now`` is of the monotonic clock. Infinite before all were read up to their end once.
        """
        return max(0.0, now - self._extent.reached_end_at)

    def lookup(self, bucket: int, prefix: bytes, seam: Seam) -> dict[bytes, HotRow | None]:
        """The winners at or beyond the seam among the rows whose key begins so, by key, in no order.

        None is a tombstone. The seam must not lie before ``start``.
        """
        return winners_of_prefix(self._transactions, self._extent.counting, bucket, prefix, seam)

    def scan(self, bucket: int, seam: Seam) -> pa.Table:
        """All of a bucket's winners at or beyond the seam, a table of ``scan.SCHEMA`` in no order.

        With partial updates of ``scan.PARTIAL_SCHEMA``, where columns order the records of
        ``scan.ORDERED_SCHEMA``. The seam must not lie before ``start``.
        """
        counting = self._extent.counting
        merging = merging_of(self.definition_json)
        reaching = self._reaching(seam)
        if self._arrived is None or self._arrived[0] is not seam:
            self._arrived = seam, arrived_by_bucket(reaching, frozenset(counting), seam)
        arrived = self._arrived[1]
        keys = None if arrived is None else arrived.get(bucket, ())
        return winners_of_bucket(reaching, counting, bucket, seam, merging, keys)

    def is_in_several_partitions(self, bucket: int, keys: Sequence[bytes], seam: Seam) -> bool:
        """Whether one of the rows has records at or beyond the seam in several partitions."""
        counting = self._extent.counting
        return is_in_several_partitions(self._reaching(seam), counting, bucket, keys, seam)

    def _reaching(self, seam: Seam) -> Sequence[lmdb.Transaction[bytes]]:
        """Those of the generations that reach beyond the seam, newest first."""
        active, *sealed = self._transactions
        newest_first = reversed(self._extent.ends)
        # safety: hot-scan-reaches
        reaching = [one for one, end in zip(sealed, newest_first, strict=True) if not seam.at_least(end)]
        return [active, *reaching]

    def refused(
        self, definition: LiveTable, first: Seam, end: Seam, count_max_each: int, asked: Asked = EVERY
    ) -> RefusedRecords:
        """The refused records of each partition in [first, end), the newest first.

        At most ``count_max_each`` of each. Those before the seam of the newest snapshot may be gone. The
        definition, of any version, says how keys are read.
        """
        counting = self._extent.counting
        return refused_among(self._transactions, counting, definition, first, end, asked, count_max_each)


def open_manifest(folder: Path, table: str, known: Mapping[str, Generation]) -> OpenGenerations:
    """The generations of the manifest as it is now, those that are ``known`` by name not opened again.

    Raises:
        NotReady: there is no manifest of this boot.
    """
    problem = ""
    for _ in range(OPENINGS_MAX):
        manifest = read_manifest(folder)
        if manifest is None:
            raise NotReady(table=table, detail="its tailer has not begun to read the log")
        try:
            failpoint("reader.view")
            return OpenGenerations(manifest, open_generations(folder, manifest.generations, known))
        except lmdb.Error as error:
            problem = str(error)
    raise NotReady(table=table, detail=f"its hot tier can't be opened: {problem}")


def open_generations(
    folder: Path, listed: tuple[Listed, ...], known: Mapping[str, Generation]
) -> tuple[Generation, ...]:
    """Opens generations for reading. Raises `lmdb.Error` when one is gone."""
    return tuple(
        known.get(one.name) or Generation(folder / one.name, one.map_bytes, is_writer=False) for one in listed
    )


def _extent(opened: OpenGenerations, raw: bytes, topics: Sequence[str] | None) -> Extent:
    active = decode_meta(raw)
    sealed = [generation.meta() for generation in opened.generations[:-1]]
    counting = counting_topics(opened.manifest.topics, topics)
    covered = of_topics(covered_by([*sealed, active]), topics)  # safety: view-topics-of-the-snapshot
    whole, own = Meta(0, covered), frozenset(counting)
    ends = tuple(meta.end.only(own) for meta in sealed)
    at = reached_end_at(covered)
    return Extent(opened, topics, counting, raw, active.manifest, whole.start, whole.end, ends, at)
