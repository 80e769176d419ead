"""Watches over files: which ones maintenance must leave alone, and which must be gone in the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.catalog import FakeSnapshot, Metadata, paths_of
from tests.simulation.faults import Violation
from tests.simulation.records import LOCATION
from tests.simulation.upkeep import FILES_MS, SNAPSHOTS_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

_ROOMS = tuple(f"{LOCATION}/{room}/" for room in ("data", "metadata", "thermocline/moves"))
_LEASES, _UNKNOWN = f"{LOCATION}/thermocline/leases", f"{LOCATION}/thermocline/unknown/"
# After a history, in seconds: rewrites come to an end, all that is old expires and is swept; what is left
# over grows old, is seen to be so, and is seen again a day later.
_ROUNDS = (61, 4_000, 1_900, 300_000, 90_000, 1_900)
# A note waits for at most so much longer than files do: until the next sweep.
_SWEEP_MS_MAX = 1_900_000


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads a snapshot: the product promises its files to them until then, in true time."""

    snapshot: FakeSnapshot
    until_ms: int
    lease_until_ms: int = 0


class Keeper:
    """What a history's readers, expired snapshots and commits under way need of the store."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._readers: dict[int, Reader] = {}
        self._left: dict[int, tuple[FakeSnapshot, int]] = {}
        self._wrong_ms = 2 * world.around.skew_ms_max  # by so much do two clocks differ

    # Readers.

    def open(self, number: int, back: int, lease_seconds: int) -> None:
        """Somebody begins to read a snapshot of the table, and leases it, where that is not too late."""
        self.close(number)
        world = self._world
        snapshots = list(world.table().snapshots.values())
        snapshot = snapshots[-1 - back % len(snapshots)]
        is_young = world.now_ms - snapshot.timestamp_ms < SNAPSHOTS_MS - self._wrong_ms
        until_ms = world.now_ms + FILES_MS - self._wrong_ms
        if not (lease_seconds and is_young):
            self._readers[number] = Reader(snapshot, until_ms)
            return
        lease_ms = world.now_ms + 1000 * lease_seconds
        document = {"snapshots": {str(snapshot.snapshot_id): lease_ms}}
        world.io.objects[f"{_LEASES}/{number}.json"] = json.dumps(document).encode()
        self._readers[number] = Reader(snapshot, until_ms + 1000 * lease_seconds, lease_ms - self._wrong_ms)
        world.counts["leased"] += 1

    def read(self, number: int) -> None:
        """They read all of it. Raises `Violation` where a file is gone, or holds other rows."""
        world, reader = self._world, self._readers.get(number)
        if reader is None:
            return
        if world.now_ms > reader.until_ms:
            self.close(number)
            return
        snapshot = reader.snapshot
        gone = [path for path in paths_of(snapshot) if path not in world.io.objects]
        if gone:
            raise Violation("file-missing", f"a reader of snapshot {snapshot.snapshot_id} needs {gone}")
        what = f"a reader of snapshot {snapshot.snapshot_id}"
        world.oracle.check(what, world.rows_of(snapshot), snapshot.snapshot_id)
        world.counts["read"] += 1
        world.counts["read when expired"] += snapshot.snapshot_id in self._left

    def close(self, number: int) -> None:
        """They are done."""
        self._readers.pop(number, None)
        self._world.io.objects.pop(f"{_LEASES}/{number}.json", None)

    def missed(self, snapshot_id: int, error: FileNotFoundError) -> None:
        """A server found a file of a snapshot gone. Raises `Violation` unless that expired long ago."""
        left = self._left.get(snapshot_id)
        if left is None or self._world.now_ms - left[1] < FILES_MS - self._wrong_ms:
            raise self._world.broken("file-missing", f"a server reads snapshot {snapshot_id}: {error}")

    # What happens to the table and to its files.

    def swapped(self, before: Metadata, after: Metadata) -> None:
        """The table changed. Raises `Violation` where a snapshot left it that was to stay."""
        now_ms = self._world.now_ms
        leased = {one.snapshot.snapshot_id for one in self._readers.values() if one.lease_until_ms > now_ms}
        for snapshot_id in before.snapshots.keys() - after.snapshots.keys():
            snapshot = before.snapshots[snapshot_id]
            what = f"snapshot {snapshot_id} was expired"
            if snapshot_id in leased:
                raise self._world.broken("leased-expired", f"{what}, and is leased")
            if snapshot_id in before.tags.values():
                raise self._world.broken("tagged-expired", f"{what}, and is tagged")
            if now_ms - snapshot.timestamp_ms < SNAPSHOTS_MS - self._wrong_ms:
                raise self._world.broken("young-expired", f"{what} at {now_ms - snapshot.timestamp_ms} ms")
            self._left[snapshot_id] = (snapshot, now_ms)

    def deleted(self, path: str) -> None:
        """A file went that no snapshot of the table has. Raises `Violation` where it was needed."""
        world = self._world
        for snapshot, left_ms in self._left.values():
            since_ms = world.now_ms - left_ms
            if since_ms < FILES_MS - self._wrong_ms and path in paths_of(snapshot):
                what = (
                    f"{path} of snapshot {snapshot.snapshot_id} was deleted {since_ms} ms after that expired"
                )
                raise world.broken("swept-early", what)
        for late in world.late:
            if late.before is world.table() and late.may_land(world.now_ms) and path in late.after.paths():
                raise world.broken("deleted-under-way", f"{path} was deleted, and its commit may land")
        if world.frames.stack and world.frames.stack[-1].process.endswith("thread"):
            for name, content in world.io.objects.items():
                if name.startswith(_UNKNOWN) and path in json.loads(content)["files"]:
                    raise world.broken("deleted-unknown", f"{path} was deleted, {name} names it")

    def settle(self) -> None:
        """The last owner goes on for days, undisturbed. Raises `Violation` where files are left."""
        world = self._world
        process = world.actors.get("last owner")
        if process is None or process.owner is None:
            return
        for seconds in _ROUNDS:
            world.advance(seconds)
            for number in list(self._readers):
                self.read(number)
            for _ in range(2):
                process.maintain(None, None)
                process.work(True, None)
                while process.work(False, None):
                    pass
            if process.stop is not None:
                raise Violation("upkeep-stopped", f"{process.stop.code}: {process.stop}")
        needed = world.table().paths()
        for snapshot, left_ms in self._left.values():
            if world.now_ms - left_ms <= FILES_MS + self._wrong_ms + _SWEEP_MS_MAX:
                needed.update(paths_of(snapshot))
        left = [path for path in world.io.objects if path.startswith(_ROOMS) and path not in needed]
        if left:
            raise Violation("files-left", f"{left} are needed by nothing")
        world.counts["nothing left"] += 1
