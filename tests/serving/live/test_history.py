"""Random histories of two servers that make live snapshots of one table, beside commits, expiry and kills."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.failpoints.arming import TEXT_VARIABLE
from tests.failpoints.firing import arm_from
from tests.manual_clock import ManualClock
from tests.serving.conftest import PROFILES
from tests.serving.live.real_table import FILES_SECONDS, RealTable, rows_of, table_of
from thermocline.errors import StorageFailed
from thermocline.iceberg.files import DataFile
from thermocline.iceberg.leases import leased_snapshots
from thermocline.iceberg.live_files import forget_live_files
from thermocline.rules.definition import LiveTable
from thermocline.serving.live.maker import Made, SnapshotMaker
from thermocline.serving.read.tables import ServedTable

SERVERS = ("one", "two")
STEPS = 80
POINTS = ("data-file.write", "deletes.write", "snapshot.write")
ANY_AGE_MS = 2**62


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine was given, by which server, and when."""

    server: str
    made: Made
    at: float


class History:
    """A table, its servers, and the loads that may still be read."""

    def __init__(self, real: RealTable, chance: random.Random) -> None:
        self.real, self.world, self.chance = real, real.world, chance
        self.clock = ManualClock()
        self.location = real.open().location()
        self.makers: dict[str, SnapshotMaker] = {}
        self.loads: list[Load] = []
        for server in SERVERS:
            self.restart(server)

    def step(self) -> None:
        """One random thing happens."""
        server = self.chance.choice(SERVERS)
        actions: list[Callable[[], None]] = [
            self.produce,
            self.produce,
            self.commit,
            self.expire,
            self.forget,
            self.pass_time,
            self.read,
            self.read,
            lambda: self.load(server),
            lambda: self.load(server),
            lambda: self.load_in_a_failing_store(server),
            lambda: self.load_again(server),
            self.makers[server].tend,
            lambda: self.restart(server),
        ]
        self.chance.choice(actions)()

    def produce(self) -> None:
        for _ in range(self.chance.choice([1, 3, 30])):
            number = self.chance.randrange(20)
            value = None if self.chance.random() < 0.25 else {"value": f"{self.chance.random()}"}
            key = {"app_id": 7, "user_id": f"u{number}", "key": "k"}
            self.world.produce(key, value, partition=number % 3)
        self.world.tail()

    def commit(self) -> None:
        self.real.commit()
        self.clock.advance(1)

    def expire(self) -> None:
        """Snapshots that nobody leased go, and the files that they alone have."""
        kept = leased_snapshots(self.world.io, self.location, self.clock.now_ms()) | {self.world.newest}
        gone = [one for one in self.real.metadata["snapshots"] if one["snapshot-id"] not in kept]
        needed = {path for id_ in kept for path in paths_of(self.world.snapshots.get(id_, ()))}
        for one in gone:
            self.real.metadata["snapshots"].remove(one)
            for path in paths_of(self.world.snapshots[one["snapshot-id"]]) - needed:
                place_of(path).unlink(missing_ok=True)

    def forget(self) -> None:
        """Maintenance looks for the files of servers that are gone; age alone would spare no file."""
        forget_live_files(self.world.io, self.location, self.clock.now_ms(), ANY_AGE_MS)

    def pass_time(self) -> None:
        self.clock.advance(self.chance.choice([1, FILES_SECONDS / 4, FILES_SECONDS / 2]))

    def load(self, server: str) -> None:
        self.clock.advance(0.001)
        made = self.makers[server].current()
        assert made.read_point.end == self.world.end
        self.loads.append(Load(server, made, self.clock.monotonic()))
        self.check(made)

    def load_in_a_failing_store(self, server: str) -> None:
        point, action = self.chance.choice(POINTS), self.chance.choice(["error", "applied-then-error"])
        armed = f"{point}={action}@{self.chance.choice([1, 2, 3])}"
        arm_from({TEXT_VARIABLE: armed + self.chance.choice(["", ";owner.clean-up=error"])})
        try:
            self.load(server)
        except StorageFailed:
            pass
        finally:
            arm_from({})

    def load_again(self, server: str) -> None:
        for load in self.loads:
            if self.clock.monotonic() < load.at + FILES_SECONDS / 4 and load.made.load.startswith(server):
                other = self.chance.choice(SERVERS)
                assert load.made.metadata in self.makers[other].again(load.made.load).answer

    def read(self) -> None:
        """A query that began earlier goes on."""
        now = self.clock.monotonic()
        self.loads = [load for load in self.loads if now < load.at + FILES_SECONDS]
        if self.loads:
            self.check(self.chance.choice(self.loads).made)

    def check(self, made: Made) -> None:
        rows = rows_of(self.world, table_of(made))
        assert rows == self.world.rows(made.read_point.end)

    def restart(self, server: str) -> None:
        """As after a kill: nothing is known but what is in the store."""
        self.makers[server] = self.real.maker(self.clock, server=server)

    def end(self) -> None:
        """Nobody asks any more, and all files go."""
        for server in SERVERS:
            self.makers[server].current()  # one that nobody asked for a table looks after none
            self.makers[server].tend()
        self.clock.advance(FILES_SECONDS + 1)
        for server in SERVERS:
            self.makers[server].tend()
        left = Path(self.location.removeprefix("file://")).rglob("live/*/**/*")
        assert not [path for path in left if path.is_file()]


@pytest.mark.parametrize("definition", [PROFILES, replace(PROFILES, format_version=2)], ids=["v3", "v2"])
def test_what_was_loaded_can_be_read_for_as_long_as_it_was_promised_and_then_goes(
    served: Callable[..., tuple[Any, ServedTable]], seed: int, definition: LiveTable
) -> None:
    """Goal: no kill, failure, expiry or removal takes a file from a query, and none is left for ever."""
    history = History(RealTable(*served(definition, is_as_ingest=True)), random.Random(seed))
    for _ in range(STEPS):
        history.step()
    history.end()


def paths_of(files: tuple[DataFile, ...]) -> set[str]:
    paths = {file.path for file in files}
    return paths | {file.deletes.path for file in files if file.deletes is not None}


def place_of(path: str) -> Path:
    return Path(path.removeprefix("file://"))
