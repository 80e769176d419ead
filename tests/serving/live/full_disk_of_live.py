"""Live snapshots on a disk that is filled and freed, as a process of its own: ``test_full_disk`` runs it."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.serving.conftest import PROFILES, World
from tests.serving.live.real_table import RealTable, rows_of, table_of
from tests.torture.disks import Disk, enter_namespace
from thermocline.errors import StorageFailed
from thermocline.process.clock import SystemClock
from thermocline.serving.cold import folder as cold_folder
from thermocline.serving.live.maker import SnapshotMaker
from thermocline.serving.read.tables import ServedTable

NOT_PERMITTED: Final = 77
# A snapshot of this table takes some pages of 4 kB; so the disk is full anywhere in it.
LEFT_KB: Final = (*range(0, 60, 4), 400)


def main(folder: Path) -> int:
    """Fills the disk of the live files in several ways; snapshots are right or refused, and leave nothing."""
    if not enter_namespace():
        return NOT_PERMITTED
    setattr(cold_folder, "plan_files", lambda table, snapshot_id, _name: table.planned[snapshot_id])  # noqa: B010
    world = World(folder / "world", PROFILES, clock=SystemClock(), is_as_ingest=True)
    _produce(world, "committed")
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    disk = Disk(world.folder / "thermocline")
    with closing(
        ServedTable(PROFILES, world.folder, world.published, world.clock, 60.0, open_io=lambda: world.io)
    ) as served:
        served.refresh()
        maker = RealTable(world, served).maker(SystemClock())
        _check(world, maker)
        for left_kb in LEFT_KB:
            _produce(world, f"{left_kb}")
            world.tail()
            before = _files(disk.folder)
            disk.fill(left_kb)
            try:
                _check(world, maker)
                print("right")
            except StorageFailed as error:
                print(f"{error.code}: {error.detail.rpartition(': ')[2]}")
                if _files(disk.folder) != before:
                    raise
            disk.empty()
            _check(world, maker)
    disk.close(keep=False)
    return 0


def _produce(world: World, value: str) -> None:
    for number in range(20):
        world.produce({"app_id": 7, "user_id": f"u{number}", "key": "k"}, {"value": value}, number % 3)


def _check(world: World, maker: SnapshotMaker) -> None:
    made = maker.current()
    assert rows_of(world, table_of(made)) == world.rows(made.read_point.end)
    assert made.read_point.end == world.end


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
