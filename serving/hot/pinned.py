"""Pinned reads: the hot tier as of one seal, the same from the first row read to the last.

A pin is a lease that asks for a seal. Once the tailer has made one *after* the pin asked, the sealed
generations hold all that had been read when it asked, and never change. The pin opens them, names them in
its lease and then looks whether the manifest still lists them all: if so, the tailer keeps their files
for as long as the lease lives, whatever it seals, merges, evicts, and however often it is restarted. From
then on the pin needs those files and nothing else: a slow one does not keep later records from eviction.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import lmdb

from thermocline.errors import NotReady
from thermocline.failpoints import failpoint
from thermocline.serving.hot.generation import Generation, Meta, age_seconds
from thermocline.serving.hot.leases import ReaderLease, Terms
from thermocline.serving.hot.manifest import HotManifest, Seal, read_manifest
from thermocline.serving.hot.merge import covered_by
from thermocline.serving.hot.record import HotRow
from thermocline.serving.hot.scan import merging_of, winners_of_bucket
from thermocline.serving.hot.topics import counting_topics, of_topics
from thermocline.serving.hot.view import open_generations
from thermocline.serving.hot.winners import winners_of_prefix

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.process.clock import Clock
    from thermocline.rules.seam import Seam

# The tailer looks every 20 ms when a seal is due.
LOOK_AGAIN_SECONDS: Final = 0.01


def hold(
    folder: Path,
    table: str,
    snapshot_id: int,
    seam: Seam,
    clock: Clock,
    topics: Sequence[str] | None = None,
) -> Pin:
    """Leases a snapshot and all hot records from its seam on, and asks for a seal.

    ``topics`` are the snapshot's; None: all that the tier is read from.
    """
    asked_at = clock.monotonic()
    terms = Terms(os.getpid(), snapshot_id, seam.to_json(), asked_at)
    return Pin(folder, table, ReaderLease(folder, terms), asked_at, clock, topics)


class Pin:
    """A lease that has asked for a seal. To be opened, or released."""

    def __init__(
        self,
        folder: Path,
        table: str,
        lease: ReaderLease,
        asked_at: float,
        clock: Clock,
        topics: Sequence[str] | None,
    ) -> None:
        """Use ``hold``."""
        self._topics = topics
        self._folder = folder
        self._table = table
        self._lease = lease
        self._asked_at = asked_at
        self._clock = clock

    def open(self, wait_seconds: float) -> PinnedHot:
        """Waits for the seal, which takes a second at most while the tailer runs, and gives what it sealed.

        Raises:
            NotReady: no seal came in time. Whatever is raised, the pin is released.
        """
        deadline = self._clock.monotonic() + wait_seconds
        with ExitStack() as on_error:
            on_error.callback(self.release)
            while (pinned := self._sealed()) is None:
                if self._clock.monotonic() >= deadline:
                    detail = f"its tailer made no seal within {wait_seconds:g} s"
                    raise NotReady(table=self._table, detail=detail)
                self._clock.sleep(LOOK_AGAIN_SECONDS)
            on_error.pop_all()
        return pinned

    def release(self) -> None:
        """Ends the lease. May be repeated."""
        self._lease.release()

    def _sealed(self) -> PinnedHot | None:
        """What was sealed after the pin asked, once it is, and once the lease keeps it."""
        manifest = read_manifest(self._folder)
        # safety: pin-after-it-asked
        if manifest is None or manifest.seal is None or manifest.seal.at <= self._asked_at:
            return None
        listed = manifest.generations[:-1]  # safety: pin-sealed
        try:
            generations = open_generations(self._folder, listed, {})
        except lmdb.Error:  # evicted or merged meanwhile; the next manifest says so
            return None
        failpoint("pin.name")
        self._lease.name_generations(one.name for one in listed)
        now = read_manifest(self._folder)
        if now is None or not set(listed) <= set(now.generations):  # safety: pin-named-then-looked
            return None
        pinned = PinnedHot(manifest, generations, manifest.seal, self._lease, self._topics)
        self._lease.need_only_generations()
        return pinned


class PinnedHot:
    """The hot tier as of a seal. For any threads; to be closed, which ends its lease."""

    def __init__(
        self,
        manifest: HotManifest,
        generations: tuple[Generation, ...],
        seal: Seal,
        lease: ReaderLease,
        topics: Sequence[str] | None,
    ) -> None:
        """Use ``Pin.open``."""
        self._topics = counting_topics(manifest.topics, topics)
        self._merging = merging_of(manifest.definition)
        self._generations = generations
        self._lease = lease
        self._covered = of_topics(seal.covered, topics)
        self.topics = frozenset(part.topic for part in self._covered)
        self.source = manifest.source
        self.complete_from_ms = manifest.complete_from_ms
        self.definition_json = manifest.definition
        self.end = Meta(0, self._covered).end
        # With no generation left it holds nothing, which is all there is from its end on.
        sealed = [generation.meta() for generation in generations]
        self.start = Meta(0, covered_by([*sealed, Meta(0, self._covered)])).start if sealed else self.end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def age_seconds(self, now: float) -> float:
        """As ``HotView.age_seconds``."""
        return age_seconds(self._covered, now)

    def lookup(self, bucket: int, prefix: bytes, seam: Seam) -> dict[bytes, HotRow | None]:
        """As ``HotView.lookup``."""
        with self._transactions() as newest_first:
            return winners_of_prefix(newest_first, self._topics, bucket, prefix, seam)

    def scan(self, bucket: int, seam: Seam) -> pa.Table:
        """As ``HotView.scan``."""
        with self._transactions() as newest_first:
            return winners_of_bucket(newest_first, self._topics, bucket, seam, self._merging)

    def close(self) -> None:
        """Ends the lease. May be repeated."""
        self._lease.release()

    @contextmanager
    def _transactions(self) -> Iterator[list[lmdb.Transaction[bytes]]]:
        with ExitStack() as stack:
            # safety: pin-newest-first
            yield [stack.enter_context(generation.read()) for generation in reversed(self._generations)]
