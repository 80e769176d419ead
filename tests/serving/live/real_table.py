"""A world whose snapshots are those of a real Iceberg table, with its metadata, without a catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tests.partition_spec import partition_spec_of
from thermocline.iceberg.snapshot_writer import LaidOver, SnapshotWriter, write_files
from thermocline.process.clock import Clock
from thermocline.rules.decode import json_row
from thermocline.rules.definition import LiveTable
from thermocline.serving.live.kept_files import KeptFiles
from thermocline.serving.live.maker import Intervals, Made, SnapshotMaker
from thermocline.serving.live.passed_on import PassedOn
from thermocline.serving.read.tables import ServedTable

FILES_SECONDS = 600.0
AT_ONCE = Intervals()
TIMESTAMP_MS = 1_600_000_000_000


class RealTable:
    """A served world, and the Iceberg metadata of its commits; its snapshots are numbered as the world's."""

    def __init__(self, world: Any, table: ServedTable) -> None:
        self.world, self.served = world, table
        definition = world.definition
        location = f"file://{world.folder}"
        metadata = new_table_metadata(
            definition.iceberg_schema(),
            partition_spec_of(definition),
            UNSORTED_SORT_ORDER,
            location,
            {"format-version": "2"},
            world.table_uuid,
        )
        self.metadata: dict[str, Any] = json.loads(metadata.model_dump_json())
        self.metadata |= {"format-version": definition.format_version, "snapshots": [], "refs": {}}
        if definition.format_version > 2:
            self.metadata["next-row-id"] = 0
        self._commit(world.newest)

    def commit(self) -> None:
        """Everything that was produced, as ingest would."""
        self.world.commit()
        self._commit(self.world.newest)
        self.world.publish()
        self.served.refresh()

    def alter(self, definition: LiveTable) -> None:
        """The columns are those of a definition from now on, and a server reads its hot records again."""
        schema = json.loads(definition.iceberg_schema().model_dump_json())
        number = len(self.metadata["schemas"])
        self.metadata["schemas"].append(schema | {"schema-id": number})
        self.metadata |= {
            "current-schema-id": number,
            "last-column-id": max(self.metadata["last-column-id"], *definition.iceberg_schema().field_ids),
        }
        self.world.alter(definition)
        self._commit(self.world.newest)
        self.world.publish()
        with self.world.lock:
            self.world.restart_tailer(self.world.seam)
        self.world.tail()
        self.served.refresh()

    def open(self) -> Table:
        """As a catalog would give it."""
        path = Path(f"{self.world.folder}/{self.world.newest}.metadata.json")
        path.write_text(json.dumps(self.metadata))
        return StaticTable.from_metadata(f"file://{path}")

    def maker(
        self,
        clock: Clock,
        intervals: Intervals = AT_ONCE,
        server: str = "server",
        stale_after_seconds: float = 60.0,
        load_seconds_max: float = 60.0,
        passed_on: PassedOn | None = None,
    ) -> SnapshotMaker:
        def files(table: Table) -> KeptFiles:
            return KeptFiles(table, self.served.name, server, clock, FILES_SECONDS)

        return SnapshotMaker(
            self.served,
            self.open,
            files,
            clock,
            intervals,
            stale_after_seconds,
            load_seconds_max,
            passed_on,
        )

    def _commit(self, snapshot_id: int) -> None:
        """One snapshot with all live files, since what is below it does not matter here."""
        number = self.metadata["last-sequence-number"] + 1
        empty = Path(f"{self.world.folder}/empty.avro")
        if not empty.exists():
            version = self.world.definition.format_version
            _write_empty_list(self.world.io, f"file://{empty}", version)
        snapshot: dict[str, Any] = {
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": TIMESTAMP_MS + snapshot_id,
            "manifest-list": f"file://{empty}",
            "summary": {"operation": "overwrite"},
            "schema-id": self.metadata["current-schema-id"],
        }
        if self.world.definition.format_version > 2:
            snapshot |= {"first-row-id": self.metadata["next-row-id"], "added-rows": 0}
        self._add(snapshot)
        files = self.world.snapshots.get(snapshot_id, ())
        if not files:
            return
        table = self.open()
        below = table.snapshot_by_id(snapshot_id)
        assert below is not None
        over = LaidOver(
            [self.world.written[file.path] for file in files],
            {file.path: (file.part, file.deletes) for file in files if file.deletes is not None},
        )
        writer = SnapshotWriter(self.world.io, table.metadata, below, self.served.name)
        written = writer.snapshot(f"file://{self.world.folder}/metadata-{snapshot_id}", snapshot_id, over)
        write_files(self.world.io, written.contents)
        snapshot |= {"manifest-list": written.manifest_list, "sequence-number": written.sequence_number}
        if "next-row-id" in self.metadata:
            snapshot["added-rows"] = written.rows
            self.metadata["next-row-id"] += written.rows
        self.metadata["snapshots"].pop()
        self._add(snapshot)

    def _add(self, snapshot: dict[str, Any]) -> None:
        self.metadata["snapshots"].append(snapshot)
        self.metadata |= {
            "current-snapshot-id": snapshot["snapshot-id"],
            "last-sequence-number": snapshot["sequence-number"],
            "last-updated-ms": snapshot["timestamp-ms"],
            "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        }


def table_of(made: Made) -> Table:
    """What an engine that was given the snapshot knows."""
    assert Path(made.location.removeprefix("file://")).read_bytes() == made.metadata
    return StaticTable.from_metadata(made.location)


def rows_of(world: Any, table: Table, snapshot_id: int | None = None) -> dict[tuple[Any, ...], Any]:
    """What PyIceberg reads of it, by key, as JSON shows it."""
    names: Sequence[str] = [column.name for column in world.definition.columns]
    found: dict[tuple[Any, ...], Any] = {}
    for row in table.scan(selected_fields=tuple(names), snapshot_id=snapshot_id).to_arrow().to_pylist():
        shown = msgspec.json.decode(json_row(row))
        key = tuple(shown[name] for name in world.definition.key)
        assert key not in found, f"{key} is there twice"
        found[key] = shown
    return found


def _write_empty_list(io: Any, path: str, version: int) -> None:
    schemas = MANIFEST_LIST_FILE_SCHEMAS
    with AvroOutputFile[Any](io.new_output(path), schemas[version], "manifest_file", schemas[3], {}) as file:
        file.write_block([])
