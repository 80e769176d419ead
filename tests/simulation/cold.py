"""Published snapshots on the disk of the simulation, and what reads their rows out of the fake store.

What is decided (what a manifest says, which one is newer, what an index is made of) is the product's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.simulation.disk import MemoryPath
from tests.simulation.records import ENCODED, NAME, NULL, PLAIN, other_columns
from thermocline.iceberg.sparse_index import SparseIndex
from thermocline.serving.cold.entity_rows import EntityRows
from thermocline.serving.cold.index import ColdFile, ColdIndex, assemble
from thermocline.serving.cold.manifest import ColdManifest, is_newer, manifest_of

if TYPE_CHECKING:
    from tests.simulation.records import Stored
    from tests.simulation.store import FakeIO
    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import Column, LiveTable
    from thermocline.serving.cold.reader import Entity, Row

_SPARSE = SparseIndex([], np.empty(0, np.int64), is_sorted=True)


class FakePublished:
    """The newest published snapshot: as `serving.cold.folder` keeps it, for who publishes and who reads."""

    def __init__(self, folder: MemoryPath, io: FakeIO) -> None:
        self._file = folder / "manifest"
        self._io = io

    def publish(self, table: Any, definition: LiveTable, state: SnapshotState) -> bool:
        """Reads the new files, and replaces what was published, unless it would be a step back."""
        before = self._manifest()
        manifest = manifest_of(table, definition, state, table.snapshot_by_id(state.snapshot_id).files)
        if before is not None and not is_newer(manifest, before):
            return False
        known = {file.path for file in before.files} if before is not None else set()
        for file in manifest.files:
            if file.path not in known:
                self._io.ask("index a file")
                if file.path not in self._io.objects:
                    raise FileNotFoundError(file.path)
        self._file.disk.edge("publish index")
        self._file.disk.put(self._file.text, manifest)
        self._file.disk.changes += 1
        return True

    def published_snapshot_id(self) -> int | None:
        """The newest one."""
        manifest = self._manifest()
        return None if manifest is None else manifest.snapshot_id

    def stamp(self) -> Any:
        """Changes with each."""
        return self._file.disk.stamps.get(self._file.text)

    def latest(self, previous: ColdIndex | None) -> ColdIndex | None:
        """The newest index, or ``previous``."""
        manifest = self._manifest()
        self._file.disk.edge("read index")
        if manifest is None or not (previous is None or is_newer(manifest, previous)):
            return previous
        return assemble(manifest, NAME, lambda data, _: _file(data))

    def reader(self) -> FakeColdRows:
        """A reader that has loaded nothing."""
        return FakeColdRows(self._io)

    def _manifest(self) -> ColdManifest | None:
        found: ColdManifest | None = self._file.disk.files.get(self._file.text)
        return found


class FakeColdRows:
    """Reads data files: those that were warmed stay readable when they are gone, as mapped ones do."""

    def __init__(self, io: FakeIO) -> None:
        self.io: Any = io
        self.has_failed = False
        self._opened: dict[str, Any] = {}

    def rows(self, index: ColdIndex, entity: Entity) -> dict[bytes, Row]:
        """The entity's rows by key."""
        self.io.ask("cold read")
        found: dict[bytes, Row] = {}
        others = other_columns(index.definition)
        for file in index.buckets.get(entity.bucket, ()):
            deleted = self.deleted(file) or frozenset()
            for position, row in enumerate(self._rows(file.data.path)):
                key = ENCODED[row.key]
                if position not in deleted and key.startswith(entity.prefix):
                    assert key not in found, f"{row.key} is live twice"
                    found[key] = (*row.key, None if row.v == NULL else row.v)
                    if others:
                        found[key] = _in_order(row, others)
        return found

    def entity_rows(self, index: ColdIndex, entity: Entity, to_json: Any) -> EntityRows:
        """The entity's rows as they are sent."""
        return EntityRows.of({key: to_json(row) for key, row in self.rows(index, entity).items()}, {})

    def known_rows(self, _index: ColdIndex, _entity: Entity) -> EntityRows | None:
        """None: nothing is kept."""
        return None

    def deleted(self, file: ColdFile) -> Any:
        """The deleted positions."""
        deletes = file.data.deletes
        return None if deletes is None else self._object(deletes.path)[file.data.path]

    def keep_only(self, files: Iterable[ColdFile]) -> None:
        """Closes others, which can't be read any more once they are gone."""
        kept = [file.data for file in files]
        paths = {data.path for data in kept} | {one.path for data in kept if (one := data.deletes)}
        self._opened = {path: found for path, found in self._opened.items() if path in paths}

    def warm(self, files: Sequence[ColdFile]) -> None:
        """Opens them."""
        for file in files:
            self.io.ask("warm a file")
            self._rows(file.data.path)
            self.deleted(file)

    def _rows(self, path: str) -> tuple[Stored, ...]:
        rows: tuple[Stored, ...] = self._object(path)
        return rows

    def _object(self, path: str) -> Any:
        if path not in self._opened:
            if path not in self.io.objects:
                raise FileNotFoundError(path)
            self._opened[path] = self.io.objects[path]
        return self._opened[path]


def _in_order(row: Stored, columns: Sequence[Column]) -> Row:
    """A row's values by the columns that are wanted, which the file has by their ids."""
    values = dict(row.more)
    plain = dict(zip(PLAIN, (*row.key, row.v), strict=True))
    return tuple(plain[one.name] if one.name in plain else values.get(one.field_id) for one in columns)


def _file(data: DataFile) -> ColdFile:
    return ColdFile(data, _SPARSE, pa.schema([]), {}, frozenset(), Path())
