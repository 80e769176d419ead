"""Leases: files in which readers and pins say what of the hot tier they still need.

A lease is alive as long as its file is touched. The tailer takes one for dead when it hasn't seen it
touched for a while *on its own monotonic clock*: a wall clock that jumps ends none, and after a restart
of the tailer each is waited for again. A reader's lease carries the seam of the snapshot that it serves. A
pin's also says when it asked for a seal, which generations it reads, and, once it is sure of those, that
it needs nothing else.

A lease only keeps files. Data that was opened stays readable whatever happens to its lease, and whoever
opens data late checks that it reaches back far enough; so a lease that ends too soon costs an answer, not
its truth.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

import msgspec

from thermocline.failpoints import failpoint, failstep
from thermocline.rules.seam import Seam
from thermocline.serving.hot import disk

if TYPE_CHECKING:
    from thermocline.process.clock import Clock

LEASES: Final = "leases"
SUFFIX: Final = ".json"
# A process that is busy or short of CPU misses a heartbeat or two, not five.
HEARTBEAT_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 30.0


class Terms(msgspec.Struct, frozen=True):
    """What a lease says.

    ``asked_at`` (monotonic seconds) is a pin's; ``generations`` are file names. ``has_opened``: those files
    are all that is needed, and the seam no longer keeps anything from eviction.
    """

    pid: int
    snapshot_id: int
    seam: str
    asked_at: float | None = None
    generations: tuple[str, ...] = ()
    has_opened: bool = False


class ReaderLease:
    """A reader's or a pin's lease, kept alive by a thread of its own until it is released."""

    def __init__(self, folder: Path, terms: Terms) -> None:
        """Writes the lease; it holds from now on. The folder may not exist yet."""
        self.path = folder / LEASES / f"{uuid4().hex}{SUFFIX}"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._released = threading.Event()
        self._change = threading.Lock()
        self._write(terms)
        keep_alive(self)

    @classmethod
    def of_reader(cls, folder: Path, snapshot_id: int, seam: Seam) -> Self:
        """The lease of one who serves a snapshot, until it is replaced with ``serve``."""
        return cls(folder, Terms(os.getpid(), snapshot_id, seam.to_json()))

    @property
    def terms(self) -> Terms:
        """What it says now."""
        return self._terms

    def serve(self, snapshot_id: int, seam: Seam) -> None:
        """Says that another snapshot is served from now on; to be called after switching to it."""
        self._write(Terms(os.getpid(), snapshot_id, seam.to_json()))

    def name_generations(self, names: Iterable[str]) -> None:
        """Says which generations were opened."""
        self._write(msgspec.structs.replace(self._terms, generations=tuple(names)))

    def need_only_generations(self) -> None:
        """Says that the generations named are still listed, and that nothing else is needed."""
        self._write(msgspec.structs.replace(self._terms, has_opened=True))

    def release(self) -> None:
        """Ends the lease. May be repeated."""
        with self._change:
            self._released.set()
            self.path.unlink(missing_ok=True)

    def _write(self, terms: Terms) -> None:
        with self._change:
            if self._released.is_set():
                return
            self._terms = terms
            scratch = self.path.with_suffix(".new")
            try:
                with failstep("reader.lease"):
                    scratch.write_bytes(msgspec.json.encode(terms))
                    scratch.replace(self.path)
            except OSError:  # tried again under another name, so that nobody would replace this one
                with suppress(OSError):
                    scratch.unlink(missing_ok=True)
                raise

    def beat(self) -> None:
        """Says that it is alive."""
        try:
            disk.touch(self.path)
        except FileNotFoundError:  # the process slept for longer than the timeout
            with suppress(OSError):
                self._write(self._terms)
        except OSError:  # the disk fails: the next beat may succeed, and none would come without it
            return

    def wait_for_release(self, seconds: float) -> bool:
        """Whether it was released before so many seconds were over."""
        return self._released.wait(seconds)


def keep_alive(lease: ReaderLease) -> None:
    """Has a thread of its own beat for a lease until it is released."""

    def beat() -> None:
        while not lease.wait_for_release(HEARTBEAT_SECONDS):
            lease.beat()

    threading.Thread(target=beat, name="lease", daemon=True).start()


@dataclass(slots=True)
class _SeenLease:
    terms: Terms
    seam: Seam
    touched: disk.Stamp
    seen_at: float


class Leases:
    """All leases on a folder, as the tailer sees them."""

    def __init__(self, folder: Path, clock: Clock, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._folder = folder / LEASES
        self._folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._seen: dict[str, _SeenLease] = {}

    def look(self) -> None:
        """Reads what is new or was touched, and removes the leases that have timed out."""
        now = self._clock.monotonic()
        failpoint("hot.leases")
        found: dict[str, _SeenLease] = {}
        for path, stamp in disk.stamps(self._folder):
            seen = self._look_at(path, stamp, now) if path.name.endswith(SUFFIX) else None
            if seen is not None:
                found[path.name] = seen
        self._seen = found

    def is_seal_wanted(self, sealed_at: float) -> bool:
        """Whether a pin asked then or later, so that what was sealed then is not enough for it."""
        asked = [seen.terms.asked_at for seen in self._seen.values()]
        return any(asked_at is not None and asked_at >= sealed_at for asked_at in asked)

    def needed(self, newest: Seam) -> Seam:
        """From where on records are needed: the least, by partition, of the newest seam and all leased.

        Of a topic that left the table, those say it that are leased with it. Others need nothing of it.
        """
        leased, now = self._seams(), frozenset(newest.topics)
        places = {(topic, partition) for topic, partition, _ in newest.items()}
        # safety: hot-needed-least
        needed = {place: min(seam.get(place) for seam in (newest, *leased)) for place in places}
        for left in self.topics() - now:
            with_it = [seam for seam in leased if left in seam.topics]
            for place in {(topic, p) for seam in with_it for topic, p, _ in seam.items() if topic == left}:
                needed[place] = min(seam.get(place) for seam in with_it)  # safety: hot-needed-of-topics
        return Seam(needed)

    def topics(self) -> frozenset[str]:
        """Those of all snapshots that are leased."""
        return frozenset(topic for seam in self._seams() for topic in seam.topics)

    def _seams(self) -> list[Seam]:
        return [seen.seam for seen in self._seen.values() if not seen.terms.has_opened]

    def held(self) -> frozenset[str]:
        """The names of the generations that pins read."""
        return frozenset(name for seen in self._seen.values() for name in seen.terms.generations)

    def _look_at(self, path: Path, touched: disk.Stamp, now: float) -> _SeenLease | None:
        seen = self._seen.get(path.name)
        try:
            if seen is not None and seen.touched == touched:
                if now - seen.seen_at <= self._timeout_seconds:
                    return seen
                path.unlink()
                return None
            terms = _decoder.decode(path.read_bytes())
            return _SeenLease(terms, Seam.from_json(terms.seam), touched, now)
        except FileNotFoundError:  # released a moment ago
            return None
        except (msgspec.DecodeError, ValueError):  # not ours; a lease that lives is written again
            path.unlink(missing_ok=True)
            return None


_decoder = msgspec.json.Decoder(Terms)

__all__ = ["Leases", "ReaderLease", "Terms"]
