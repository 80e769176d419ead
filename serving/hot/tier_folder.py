"""The folder of a hot tier: its lock, its files, and a manifest of nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

import lmdb

from thermocline.errors import NotReady
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam
from thermocline.serving.hot import disk
from thermocline.serving.hot.generation import (
    Covered,
    Generation,
    Meta,
)
from thermocline.serving.hot.manifest import (
    FORMAT,
    HotManifest,
    boot_id,
)

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable


GENERATION_SUFFIX: Final = ".mdb"


WRITER_LOCK: Final = "writer.lock"


def locked(folder: Path, table: str) -> IO[bytes]:
    """The lock of the one process that writes. Raises where another one holds it."""
    lock = disk.try_lock(folder / WRITER_LOCK)
    if lock is None:
        raise NotReady(table=table, detail=f"another tailer writes to {folder}")
    return lock


def new_path(folder: Path) -> Path:
    """Where another generation goes."""
    return folder / f"{uuid4().hex}{GENERATION_SUFFIX}"


def no_manifest(definition: LiveTable, source: str) -> HotManifest:
    """The manifest of a tier that holds nothing."""
    return HotManifest(
        format=FORMAT,
        boot_id=boot_id(),
        source=source,
        complete_from_ms=0,
        definition=definition.to_json(),
        definition_version=definition.version,
        topics=definition.topics,
        version=0,
        generations=(),
        seal=None,
    )


def nothing_from(start: Seam, times: PartitionTimes) -> tuple[Covered, ...]:
    """What a tier covers that holds nothing yet."""
    return tuple(
        Covered(topic, partition, first, first, partition_time_ms=times.get((topic, partition)))
        for topic, partition, first in start.items()
    )


def partition_times_of(covered: Iterable[Covered]) -> PartitionTimes:
    """The partition times at the ends of what is covered."""
    return PartitionTimes({part.place: part.partition_time_ms for part in covered})


def tell_readers_to_move(folder: Path, before: HotManifest) -> None:
    """Names the manifest to come in the active generation of an earlier tier, where its readers look."""
    with suppress(lmdb.Error):
        listed = before.generations[-1]
        active = Generation(folder / listed.name, listed.map_bytes, is_writer=True)
        active.write({}, Meta(before.version + 1, active.meta().covered))
