"""The cold index of a snapshot as readers have it: its files by bucket, ready to be found in.

``folder`` publishes it and opens it; a reader asks for the newest through `Snapshots`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from thermocline.iceberg.files import DataFile
from thermocline.iceberg.sparse_index import SparseIndex
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition.stored import apart_from_topics
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyroaring import BitMap

    from thermocline.rules.field_ids import Match
    from thermocline.serving.cold.entity_filter import EntityFilter
    from thermocline.serving.cold.entity_rows import EntityRows, JsonRow
    from thermocline.serving.cold.manifest import ColdManifest
    from thermocline.serving.cold.place import ColdPlace
    from thermocline.serving.cold.reader import Entity, Row


@dataclass(frozen=True, slots=True)
class ColdFile:
    """One data file of a bucket, ready to be read. It lacks the columns that were added after it.

    ``schema`` is its own, and ``columns`` has those of the index's definition, by their names there.
    ``uuids`` are those of its own that Parquet itself calls UUIDs. ``entities``, of a young file, rules out
    entities that it has no rows of.
    """

    data: DataFile
    sparse: SparseIndex
    schema: pa.Schema
    columns: Mapping[str, Match]
    uuids: frozenset[str]
    footer: Path
    entities: EntityFilter | None = None


@dataclass(frozen=True, slots=True)
class ColdIndex:
    """One snapshot: where its rows are.

    ``source`` names the log that feeds it, as `source_of` does, and ``definition_json`` is the definition as
    the table carries it: hot records come from that log and were decoded by that definition, or don't fit.
    Nor do they where tombstones are missing that were written at ``tombstones_from_ms`` or later.
    ``fingerprints`` name the data and delete files of each bucket together with the definition, apart from
    its topics: as long as a bucket's fingerprint is the same, so are its rows.
    """

    table_uuid: str
    location: str
    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    watermark_ms: int
    seam: Seam
    source: str
    tombstones_from_ms: int
    definition: LiveTable
    definition_json: str
    buckets: Mapping[int, tuple[ColdFile, ...]]
    fingerprints: Mapping[int, bytes]

    @property
    def files(self) -> Iterable[ColdFile]:
        """All data files, bucket by bucket."""
        return (file for files in self.buckets.values() for file in files)

    @property
    def rows(self) -> int:
        """Live rows: those of the files, less the deleted ones."""
        return sum(f.data.rows - (f.data.deletes.cardinality if f.data.deletes else 0) for f in self.files)


class ColdRows(Protocol):
    """What reads the rows of an index's files.

    ``has_failed``: the store refused it something, or did not answer (`failures_noted`).
    """

    has_failed: bool

    @property
    def io(self) -> FileIO:
        """What opens the files."""
        ...

    def deleted(self, file: ColdFile) -> BitMap | None:
        """The deleted positions of a file; None when none are."""
        ...

    def entity_rows(self, index: ColdIndex, entity: Entity, to_json: Callable[[Row], JsonRow]) -> EntityRows:
        """The entity's rows as they are sent."""
        ...

    def places(self, index: ColdIndex, entity: Entity) -> Mapping[bytes, ColdPlace]:
        """The place of each of the entity's rows, by key. Always reads files."""
        ...

    def known_rows(self, index: ColdIndex, entity: Entity) -> EntityRows | None:
        """The entity's rows without reading a data file; None where one is to be read."""
        ...

    def hidden(self, file: ColdFile) -> BitMap | None:
        """The deleted positions of a file but those of deletes to remember; None when none are deleted."""
        ...

    def warm(self, files: Sequence[ColdFile]) -> None:
        """Loads what lookups in the files need."""
        ...

    def keep_only(self, files: Iterable[ColdFile]) -> None:
        """Lets go of what was loaded of other files."""
        ...


class Snapshots(Protocol):
    """Where a reader finds the published snapshots of one table."""

    def stamp(self) -> Any:
        """Changes whenever another index is published; None before the first. Cheap."""
        ...

    def latest(self, previous: ColdIndex | None) -> ColdIndex | None:
        """The newest index; ``previous`` where that would be a step back, or None before the first."""
        ...

    def reader(self) -> ColdRows:
        """What reads the files that the indexes name."""
        ...


def assemble(
    manifest: ColdManifest, name: str, file_of: Callable[[DataFile, LiveTable], ColdFile]
) -> ColdIndex:
    """The index of a published snapshot of the table called ``name``."""
    buckets: dict[int, list[ColdFile]] = {}
    definition = LiveTable.from_json(manifest.definition, name)
    for data in manifest.files:
        buckets.setdefault(data.bucket, []).append(file_of(data, definition))
    return ColdIndex(
        table_uuid=manifest.table_uuid,
        location=manifest.location,
        snapshot_id=manifest.snapshot_id,
        sequence_number=manifest.sequence_number,
        timestamp_ms=manifest.timestamp_ms,
        watermark_ms=manifest.watermark_ms,
        seam=Seam.from_json(manifest.seam),
        source=manifest.source,
        tombstones_from_ms=manifest.tombstones_from_ms,
        definition=definition,
        definition_json=manifest.definition,
        buckets={bucket: tuple(files) for bucket, files in sorted(buckets.items())},
        fingerprints={bucket: _fingerprint(manifest.definition, files) for bucket, files in buckets.items()},
    )


def _fingerprint(definition_json: str, files: Iterable[ColdFile]) -> bytes:
    """By all of the definition that rows depend on: a catalog that was restored repeats its version."""
    said = apart_from_topics(definition_json)
    digest = hashlib.blake2b(said.encode(), digest_size=16)  # safety: cache-definition
    for file in files:
        deletes = file.data.deletes
        # safety: index-fingerprint
        place = (file.data.path, deletes.path, deletes.offset) if deletes else (file.data.path,)
        digest.update(repr(place).encode())
    return digest.digest()
