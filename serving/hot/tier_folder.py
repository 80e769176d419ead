"""The folder of a hot tier: its lock, its files, and a manifest of nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

import lmdb

from thermocline.errors import NotReady
from thermocline.failpoints import failpoint
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


@dataclass(frozen=True, slots=True)
class Below:
    """What a tier is opened under, as `cannot_go_on` asks for it."""

    definition: LiveTable
    seam: Seam
    source: str
    tombstones_from_ms: int

    @property
    def definition_json(self) -> str:
        """The definition as it is compared."""
        return self.definition.to_json()


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


def opened(folder: Path, manifest: HotManifest) -> list[Generation]:
    """The generations that it lists, to go on with; none if one can't be used."""
    if not all((folder / listed.name).exists() for listed in manifest.generations):
        return []  # a writer that opens it would create it, empty
    try:
        failpoint("hot.open")
        generations = [
            Generation(folder / listed.name, listed.map_bytes, is_writer=True)
            for listed in manifest.generations
        ]
        for generation in generations:
            generation.meta()
    except lmdb.Error:
        return []
    return generations
