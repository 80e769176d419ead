"""The writing side of the hot tier: one process appends, seals, merges and evicts generations.

The sealed generations and the active one cover one contiguous range of offsets per partition: a new
generation begins where the one before ended, and only the oldest are evicted. Every change of the list is
published in the same order: the active generation's meta first names the manifest version to come, then
the manifest replaces the old one. A reader that finds the new version in the meta and not yet in the
manifest answers as of then, which is right, and asks again at the next view; if the tailer dies between
the two, the next one publishes.

Where topics come or leave, the rest of the tier goes on (``topics``).

A seal ends the active generation and begins an empty one. Pins wait for seals: a moment where there are few
generations or nothing new, else up to a second, for one that they share. Generations also end when they are
large or old, so that a commit soon frees what it contains; neighbours are merged, a little at a time, while
more than eight would meet a lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

import lmdb
from msgspec.structs import replace

from thermocline.failpoints import failpoint, failstep
from thermocline.rules.identity import NEVER_MS
from thermocline.rules.partition_time import PartitionTimes, RunningTimes
from thermocline.rules.seam import Seam
from thermocline.serving.hot import disk
from thermocline.serving.hot.compatibility import cannot_go_on
from thermocline.serving.hot.generation import (
    LOCK_SUFFIX,
    Covered,
    Generation,
    Meta,
    age_seconds,
    delete_files,
)
from thermocline.serving.hot.leases import Leases
from thermocline.serving.hot.manifest import (
    HotManifest,
    Listed,
    Seal,
    publish_manifest,
    read_manifest,
)
from thermocline.serving.hot.merge import Merge, covered_by, laid_over_by, smallest_neighbours
from thermocline.serving.hot.record import stored_records
from thermocline.serving.hot.refused import KeptInOne
from thermocline.serving.hot.tier_folder import (
    GENERATION_SUFFIX,
    Below,
    locked,
    new_path,
    no_manifest,
    nothing_from,
    opened,
    partition_times_of,
    tell_readers_to_move,
)
from thermocline.serving.hot.topics import numbered
from thermocline.serving.store.fed_by import fed_by

if TYPE_CHECKING:
    from thermocline.kafka.facts import RecordChunk, TopicRecords
    from thermocline.process.clock import Clock
    from thermocline.rules.decode import Decoded
    from thermocline.rules.definition import LiveTable

# A tier below a snapshot without rows counts as begun this much earlier: the table's first batch, whose
# snapshot is to fit too, may have been planned just before. Far less than tombstones are kept.
BEGUN_EARLIER_SECONDS: Final = 60

# Each costs a lookup about a microsecond; lookups were measured with eight.
GENERATIONS_MAX: Final = 8
# With so many, a seal is made as soon as a pin asks: a burst of them leaves room before a merge is due.
GENERATIONS_FEW: Final = GENERATIONS_MAX // 2
# Half a usual commit interval (60 s): most of what a commit contains is freed with it, at the price of two or
# three generations between commits.
GENERATION_SECONDS_MAX: Final = 30.0
# Over a million records of 200 bytes, more than usually come in that time; catching up is cut into pieces.
GENERATION_BYTES_MAX: Final = 256 << 20
# The file is sparse, so this costs addresses only. It has room for any usual batch (``bytes_needed``).
MAP_BYTES: Final = 4 * GENERATION_BYTES_MAX
# With more generations, pins wait half of this on average: each seal makes another one to merge.
SEAL_SECONDS_MIN: Final = 1.0
# Leases time out after half a minute and commits come once a minute: looking each second is soon enough.
UPKEEP_SECONDS: Final = 1.0
# Writing to the map of a file that the disk has no room for kills the process, so this much stays free.
DISK_FREE_BYTES_MIN: Final = 2 * GENERATION_BYTES_MAX

Batch = Sequence[tuple["TopicRecords", "Decoded"]]
DISK_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's own

ReachedEndAt = Mapping[tuple[str, int], float]


class HotTier:
    """Holds the records of a table from a seam on. One per folder; for one thread.

    Opening a folder that holds a usable tier goes on where that one ended, also after a kill: ``end``
    says where to read on. After an OSError or `lmdb.Error` of any method a tier is to be closed, and opened
    again: what was written of the change then decides, a manifest that may or may not be there included.
    """

    def __init__(
        self, folder: Path, definition: LiveTable, clock: Clock, lock: IO[bytes], source: str
    ) -> None:
        """Use ``open``."""
        self.folder = folder
        self._definition = definition
        self._source = source
        self._clock = clock
        self._lock = lock
        self._leases = Leases(folder, clock)
        self._manifest = no_manifest(definition, source)
        self._left: frozenset[str] = frozenset()  # topics that are covered and that the table does not have
        self._generations: list[Generation] = []
        self._meta = Meta(0, ())
        self._active_since = clock.monotonic()
        self._upkeep_at = clock.monotonic()
        self._merge: Merge | None = None
        self._unlisted_bytes = 0
        self._refused = KeptInOne()  # in the active generation, since it was begun or taken over

    @classmethod
    def open(
        cls,
        folder: Path,
        definition: LiveTable,
        start: Seam,
        clock: Clock,
        may_continue: bool = True,
        source: str = "",
        tombstones_from_ms: int = 0,
        partition_times: PartitionTimes | None = None,
    ) -> Self:
        """Goes on with what the folder holds, or begins an empty tier at ``start``.

        It begins again when the folder holds nothing, or records of another boot, source or definition, its
        topics apart, or begins beyond ``start`` (the table went back to an older snapshot), or can't be read,
        or must not continue, or may lack tombstones written at ``tombstones_from_ms`` or later. Partitions
        that only ``start`` has are taken up from there. ``source`` names the log that the records come from;
        a tier that nobody continues needs none. ``partition_times`` are those at ``start``. Of what follows
        it, compaction must not have dropped tombstones from ``tombstones_from_ms`` on; `NEVER_MS`: any may be
        gone, as there are no rows below.

        Raises:
            NotReady: another process writes to this folder.
            OSError, lmdb.Error: the disk fails or is full. What the folder holds is as it was.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as on_error:
            lock = locked(folder, definition.name)
            on_error.callback(lock.close)
            tier = cls(folder, definition, clock, lock, source)
            times = partition_times or PartitionTimes()
            on_error.callback(tier.close)
            before = read_manifest(folder)
            below = Below(definition, start, source, tombstones_from_ms)
            if not (before and may_continue and tier._continue(before, below, times)):
                tier._begin(before, start, times, tombstones_from_ms)
            tier._sweep()
            on_error.pop_all()
        return tier

    @property
    def start(self) -> Seam:
        """The first offset held, by partition."""
        return Meta(0, covered_by(self.metas())).start.without(self._left)

    @property
    def end(self) -> Seam:
        """The next offset to append, by partition."""
        return self._meta.end.without(self._left) if self._left else self._meta.end

    @property
    def topics(self) -> frozenset[str]:
        """Those of which it may hold records, also where they left the table."""
        return frozenset(part.topic for meta in self.metas() for part in meta.covered)

    def metas(self) -> list[Meta]:
        """What each generation says of itself, oldest first."""
        return [*(generation.meta() for generation in self._generations[:-1]), self._meta]

    @property
    def source(self) -> str:
        """The log that the records come from, as its manifest says it."""
        return self._manifest.source

    @property
    def complete_from_ms(self) -> int:
        """From when on no tombstone is missing, as its manifest says it."""
        return self._manifest.complete_from_ms

    @property
    def definition_json(self) -> str:
        """The definition that the records are decoded by, as its manifest says it."""
        return self._manifest.definition

    @property
    def definition_version(self) -> int:
        """The version of the definition that the records are decoded by."""
        return self._definition.version

    @property
    def records(self) -> int:
        """The (row, partition) pairs and refused records; one in several generations counts several times."""
        return sum(generation.records for generation in self._generations)

    def age_seconds(self, now: float) -> float:
        """Seconds since each partition was last known to be read up to its end, the worst; or infinity."""
        return age_seconds(tuple(one for one in self._meta.covered if one.topic not in self._left), now)

    @property
    def generations(self) -> int:
        """How many generations a lookup meets."""
        return len(self._generations)

    @property
    def hot_bytes(self) -> int:
        """What all generations take on disk, also those that only pins still read, and a merge's so far."""
        merged = self._merge.merged.used_bytes if self._merge is not None else 0
        return sum(generation.used_bytes for generation in self._generations) + self._unlisted_bytes + merged

    def is_full(self, hot_bytes_max: int) -> bool:
        """Whether no more may be appended: the budget is used up, or the disk nearly is."""
        return self.hot_bytes >= hot_bytes_max or not self.has_disk_for(0)

    def has_disk_for(self, more_bytes: int) -> bool:
        """Whether so much can be written and still leave free what has to stay free."""
        return disk.free_bytes(self.folder) >= more_bytes + DISK_FREE_BYTES_MIN

    def append(self, batch: Batch, positions: Seam, reached_end_at: ReachedEndAt) -> None:
        """Adds decoded records, the positions reading has come to, and when it had come to the log's end.

        Each partition's offsets ascend from its end on; positions move over bad records and holes too. Bad
        records are kept as refused, not more than `KEPT_MAX` in a generation; of more, it is kept where they
        are. All of it becomes visible at once.
        """
        records: dict[bytes, bytes] = {}
        running = RunningTimes(partition_times_of(self._meta.covered))
        for read, decoded in batch:
            partition_times_ms: list[int] = []
            for chunk in read.chunks:
                self._check_order(chunk, positions)
                partition_times_ms += running.take(
                    (chunk.topic, chunk.partition), chunk.timestamps_ms
                ).tolist()
            number = self._manifest.topics.index(read.topic)
            if decoded.good:
                stored = stored_records(self._definition, number, read, decoded, partition_times_ms)
                self._take(stored, records)
            if decoded.bad:
                refused = self._refused.stored(self._definition, number, read, decoded)
                records.update(refused)  # safety: refused-kept
        covered = tuple(
            replace(
                part,
                end=max(part.end, positions.get(part.place)),
                reached_end_at=reached_end_at.get(part.place, part.reached_end_at),
                partition_time_ms=running.get(part.place),  # safety: hot-partition-time-goes-on
            )
            for part in self._meta.covered
        )
        if records or covered != self._meta.covered:
            self._write(records, covered)

    def extend(self, new_places: Seam, partition_times: PartitionTimes | None = None) -> None:
        """Takes up partitions that the topic did not have before, from the given offsets on.

        ``partition_times`` are those at these offsets.
        """
        held = {part.place: part for part in self._meta.covered}
        times = partition_times or PartitionTimes()
        added = {part.place: part for part in nothing_from(new_places, times)}
        assert not held.keys() & added.keys(), "a partition is taken up once"
        self._write({}, tuple(part for _, part in sorted((held | added).items())))

    def follow(self, definition: LiveTable, source: str) -> None:
        """Goes on under another snapshot, of a definition that differs in its topics alone.

        Topics that came have a number now, and are to be taken up; those that left are let go of later.
        """
        self._definition, self._source = definition, source
        covered = frozenset(part.topic for part in self._meta.covered)
        self._left = covered.difference(definition.topics)
        with_left = fed_by(source).with_left(fed_by(self._manifest.source), self._left).to_text()
        followed = replace(
            self._manifest,
            source=with_left if self._left else source,
            definition=definition.to_json(),
            definition_version=definition.version,
            topics=numbered(self._manifest.topics, self.topics, definition.topics),
        )
        self._publish(self._generations, followed.seal, followed)

    def _let_go(self) -> None:
        """Covers no topic any more that left; its records go with their generations."""
        seal = self._seal_now()
        kept = tuple(one for one in seal.covered if one.topic not in self._left)
        self._roll(seal, MAP_BYTES, kept, replace(self._manifest, source=self._source))
        self._left = frozenset()

    def seal(self) -> None:
        """Gives pins all that is held now, as something that never changes."""
        seal = self._seal_now()
        if self._generations[-1].records or len(self._generations) == 1:
            self._roll(seal, MAP_BYTES, seal.covered)
        else:  # no record came since the last seal, so what is sealed is all there is up to these positions
            self._publish(self._generations, seal)

    def evict(self, up_to: Seam) -> int:
        """Drops the oldest sealed generations that end at or before ``up_to`` in every partition; how many.

        Nobody may need them any more; ``tend`` finds out who does.
        """
        count, counting = 0, {*self._definition.topics, *up_to.topics}  # nobody reads others, which left
        for generation in self._generations[:-1]:
            if not up_to.at_least(generation.meta().end.only(counting)):  # safety: hot-evict-whole
                break
            count += 1
        if count:
            failpoint("hot.evict")
            self._publish(self._generations[count:], self._manifest.seal)
        return count

    def merge_some(self) -> None:
        """Goes on with a merge for a few milliseconds; begins one if too many generations meet a lookup."""
        merge = self._merge
        if merge is None:
            if len(self._generations) > GENERATIONS_MAX:
                older, newer = smallest_neighbours(self._generations[:-1])
                if self.has_disk_for(older.used_bytes + newer.used_bytes):
                    laid_over = laid_over_by(self._definition)
                    self._merge = Merge(new_path(self.folder), older, newer, laid_over)
        elif merge.older not in self._generations or merge.newer not in self._generations:
            merge.abandon()
            self._merge = None
        elif merge.is_done():
            at = self._generations.index(merge.older)
            merged = [*self._generations[:at], merge.merged, *self._generations[at + 2 :]]
            self._publish(merged, self._manifest.seal)
            self._merge = None

    def tend(self, newest: Seam | None) -> None:
        """Does what is due: a seal that pins wait for or time asks for, a step of a merge, eviction.

        To be called every few milliseconds. ``newest`` is the seam of the newest snapshot that readers can
        switch to; without it nothing is evicted.
        """
        now = self._clock.monotonic()
        sealed_at = self._manifest.seal.at if self._manifest.seal else float("-inf")
        if now - sealed_at >= SEAL_SECONDS_MIN or self._is_seal_cheap():
            self._leases.look()
            if self._leases.is_seal_wanted(sealed_at) or self._is_active_old(now):  # safety: pin-seal
                self.seal()
        self.merge_some()
        if now - self._upkeep_at >= UPKEEP_SECONDS:
            self._upkeep_at = now
            self._leases.look()
            if newest is not None:
                if self._left and not self._left & self._leases.topics():  # safety: hot-left-while-leased
                    self._let_go()
                self.evict(self._leases.needed(newest))  # safety: hot-evict-unneeded
            self._generations[-1].free_dead_readers()
            self._sweep()

    def close(self) -> None:
        """Lets the folder go; what it holds stays for the next one to open."""
        merge, self._merge = self._merge, None
        self._generations = []
        try:
            if merge is not None:
                with suppress(OSError, lmdb.Error):  # what could not be removed, the next one sweeps
                    merge.abandon()
        finally:
            self._lock.close()

    def _continue(self, before: HotManifest, below: Below, times: PartitionTimes) -> bool:
        """Takes over the generations of an earlier tier, if they can be used."""
        wanted, generations = self._manifest, opened(self.folder, before)
        if not generations:
            return False
        self._generations, self._manifest, self._meta = generations, before, generations[-1].meta()
        if cannot_go_on(below, self) is not None:  # safety: hot-continued
            self._generations, self._manifest = [], wanted
            return False
        self.follow(below.definition, below.source)
        new = {
            part.place: part.start for part in nothing_from(below.seam, times) if part.place not in self.end
        }
        if new:
            self.extend(Seam(new), times)
        return True

    def _begin(
        self, before: HotManifest | None, start: Seam, times: PartitionTimes, tombstones_from_ms: int
    ) -> None:
        """Publishes an empty generation; readers of an earlier tier learn of it from that one's meta."""
        if tombstones_from_ms == NEVER_MS:
            complete_from_ms = self._clock.now_ms() - BEGUN_EARLIER_SECONDS * 1000
            self._manifest = replace(self._manifest, complete_from_ms=complete_from_ms)
        if before is not None:
            self._manifest = replace(self._manifest, version=before.version)
            tell_readers_to_move(self.folder, before)
        self._meta = Meta(self._manifest.version, nothing_from(start, times))
        self._generations = [self._created(self._meta, MAP_BYTES)]
        self._publish(self._generations, None)

    def _check_order(self, chunk: RecordChunk, positions: Seam) -> None:
        place = (chunk.topic, chunk.partition)
        assert place in self._meta.end, f"{place} was not taken up"
        if chunk.offsets:
            assert self._meta.end[place] <= chunk.offsets[0], f"records of {place} came again"
            assert chunk.offsets[-1] < positions[place], f"{place} is not read so far yet"

    def _take(self, stored: Iterable[tuple[bytes, bytes]], records: dict[bytes, bytes]) -> None:
        """Adds to the records that are to be written; over what is held, where that has a say."""
        laid_over = laid_over_by(self._definition)
        if laid_over is None:
            records.update(stored)
            return
        with self._generations[-1].read() as active:
            for key, value in laid_over(stored, records, active):
                records[key] = value  # noqa: PERF403  one by one: the next may be of the same row

    def _is_seal_cheap(self) -> bool:
        """Whether it makes no generation, or one of few, so that no pin has to wait to share it."""
        return not self._generations[-1].records or len(self._generations) <= GENERATIONS_FEW

    def _is_active_old(self, now: float) -> bool:
        return now - self._active_since >= GENERATION_SECONDS_MAX and self._generations[-1].records > 0

    def _write(self, records: Mapping[bytes, bytes], covered: tuple[Covered, ...]) -> None:
        active = self._generations[-1]
        needed = active.bytes_needed(records)
        if needed > active.free_bytes:
            self._roll(self._seal_now(), max(MAP_BYTES, 2 * needed), self._meta.covered)
            starts = self._meta.start
            covered = tuple(replace(part, start=starts[part.place]) for part in covered)
        meta = Meta(self._meta.manifest, covered)
        self._generations[-1].write(records, meta, self._meta.end)
        self._meta = meta  # not before: ``end`` says from where on the log is still to be read
        if self._generations[-1].used_bytes >= GENERATION_BYTES_MAX:
            self._roll(self._seal_now(), MAP_BYTES, self._meta.covered)

    def _seal_now(self) -> Seal:
        return Seal(self._clock.monotonic(), self._meta.covered)

    def _roll(
        self, seal: Seal, map_bytes: int, covered: tuple[Covered, ...], changed: HotManifest | None = None
    ) -> None:
        """Begins a generation where the active one ends, which is sealed thereby; it goes on with these."""
        # safety: hot-generation-start
        empty = tuple(replace(part, start=part.end) for part in covered)
        generation = self._created(Meta(self._meta.manifest, empty), map_bytes)
        failpoint("hot.roll")
        self._publish([*self._generations, generation], seal, changed)
        self._meta = Meta(self._meta.manifest, empty)
        self._active_since = self._clock.monotonic()
        self._refused = KeptInOne()

    def _created(self, meta: Meta, map_bytes: int) -> Generation:
        generation = Generation(new_path(self.folder), map_bytes, is_writer=True)
        generation.write({}, meta)
        return generation

    def _publish(
        self, generations: list[Generation], seal: Seal | None, changed: HotManifest | None = None
    ) -> None:
        version = self._manifest.version + 1
        meta = Meta(version, self._meta.covered)
        self._generations[-1].write({}, meta)
        self._meta = meta
        listed = tuple(Listed(generation.name, generation.map_bytes) for generation in generations)
        manifest = replace(changed or self._manifest, version=version, generations=listed, seal=seal)
        with failstep("hot.publish"):
            publish_manifest(self.folder, manifest)
        self._manifest = manifest
        self._generations = generations

    def _sweep(self) -> None:
        """Deletes the files that are not listed (any more), but for those that pins read.

        A pin first names the generations that it opened and then looks whether they are still listed. So
        one that this look at the leases misses finds them gone from the manifest and opens others.
        """
        self._leases.look()
        held = self._leases.held()
        kept = {generation.name for generation in self._generations}
        if self._merge is not None:
            kept.add(self._merge.merged.name)
        self._unlisted_bytes = 0
        for path in self.folder.glob(f"*{GENERATION_SUFFIX}*"):
            name = path.name.removesuffix(LOCK_SUFFIX)
            if name in held - kept:  # safety: pin-held
                self._unlisted_bytes += path.stat().st_blocks * DISK_BLOCK_BYTES
            elif name not in kept:
                failpoint("hot.sweep")
                delete_files(self.folder / name)
