"""The metadata of a table as of now: what a REST catalog answers to whoever loads it."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, Final

from thermocline.iceberg.files import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.io import FileIO
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.iceberg.snapshot_writer import NewSnapshot
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.live.overlay import Overlay

__all__ = ["COMMITTED", "LOAD", "LOAD_UNTIL", "live_metadata", "read_only_path", "table_metadata"]

COMMITTED: Final = "committed"
"""The tag of the table's own snapshot, without the records beyond it."""
MAIN: Final = "main"
READ_POINT: Final = "thermocline.read-point"
"""Of the table's properties, and of its newest snapshot's summary."""
LOAD: Final = "thermocline.load"
"""Of the table's properties: the name by which the same can be loaded again."""
LOAD_UNTIL: Final = "thermocline.load-until-ms"
"""And until when, in milliseconds since 1970."""
LIVE_SUMMARY: Final = "thermocline.live"
_GZIP: Final = b"\x1f\x8b"
_COLLECTS: Final = "gc.enabled"
"""Of the table's properties: where it is false, Iceberg's libraries refuse to remove orphans."""
_WRITE_PATHS: Final = ("write.data.path", "write.metadata.path", "write.folder-storage.path")


def table_metadata(io: FileIO, location: str) -> dict[str, Any]:
    """A metadata file of a table, as it is: PyIceberg 0.12 writes none of format version 3.

    Only its log of metadata files also names the file itself. Otherwise whoever removes orphans by metadata
    that is made of this would not find the file there, and delete it. Raises `OSError` where it can't be
    read.
    """
    content = read_file(io, location)
    found: dict[str, Any] = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
    itself = {"metadata-file": location, "timestamp-ms": found["last-updated-ms"]}
    return found | {"metadata-log": [*found.get("metadata-log", []), itself]}  # safety: live-metadata-file


def live_metadata(
    metadata: Mapping[str, Any],
    below: Snapshot,
    overlay: Overlay,
    written: NewSnapshot | None,
    read_point: ReadPoint,
    now_ms: int,
) -> dict[str, Any]:
    """The metadata, as JSON has it, of a table whose newest snapshot is ``written``.

    It is ``below`` where nothing is hot. All else is the table's own, but for what would make others write
    beside its files, or delete some.
    """
    table = dict(metadata)
    history = [one for one in table["snapshots"] if one["timestamp-ms"] <= below.timestamp_ms]
    updated_ms = max(now_ms, table["last-updated-ms"])
    snapshot = next(one for one in history if one["snapshot-id"] == below.snapshot_id)
    schema_id = snapshot.get("schema-id", table["current-schema-id"])
    if written is not None:
        # DuckDB sees no snapshot newer than its transaction, which began before it asked for this one.
        made_ms = below.timestamp_ms + 1  # safety: live-timestamp
        updated_ms = max(updated_ms, made_ms)
        snapshot = {
            "snapshot-id": written.snapshot_id,
            "parent-snapshot-id": below.snapshot_id,
            "sequence-number": written.sequence_number,
            "timestamp-ms": made_ms,
            "manifest-list": written.manifest_list,
            "summary": _summary(overlay, read_point),
            "schema-id": schema_id,
        }
        history = [*history, snapshot]
        if table["format-version"] > 2:
            first_row_id = table.get("next-row-id", 0)
            snapshot |= {"first-row-id": first_row_id, "added-rows": written.rows}
            table["next-row-id"] = first_row_id + written.rows
        table["last-sequence-number"] = written.sequence_number
    current = snapshot["snapshot-id"]
    kept = {one["snapshot-id"] for one in history}
    refs = {name: ref for name, ref in table.get("refs", {}).items() if ref["snapshot-id"] in kept}
    refs |= {
        MAIN: {"snapshot-id": current, "type": "branch"},
        COMMITTED: {"snapshot-id": below.snapshot_id, "type": "tag"},
    }
    table |= {
        "last-updated-ms": updated_ms,
        "current-schema-id": schema_id,
        "current-snapshot-id": current,
        "refs": refs,
        "properties": {
            **table.get("properties", {}),
            **_read_only(table["location"]),
            _COLLECTS: "false",  # safety: live-no-collection
            READ_POINT: read_point.to_header(),
        },
    }
    log = [one for one in table.get("snapshot-log", []) if one["snapshot-id"] in kept - {current}]
    return table | {
        "snapshots": history,
        "snapshot-log": [*log, {"snapshot-id": current, "timestamp-ms": snapshot["timestamp-ms"]}],
        **{
            name: [one for one in table.get(name, []) if one["snapshot-id"] in kept]
            for name in ("statistics", "partition-statistics")
        },
    }


def read_only_path(location: str) -> str:
    """A place where nothing can be written: below a device, or in a bucket whose name none can have."""
    scheme, separator, _ = location.partition("://")
    if not separator or scheme == "file":
        return "file:///dev/null/live-tables-are-read-only"
    return f"{scheme}://live..tables..are..read..only"


def _summary(overlay: Overlay, read_point: ReadPoint) -> dict[str, str]:
    live = [file for files in overlay.files.values() for file in files]
    deletes = {file.deletes.path: file.deletes for file in live if file.deletes is not None}
    counts = {
        "total-data-files": len(live),
        "total-delete-files": len(deletes),
        "total-records": sum(file.rows for file in live),
        "total-position-deletes": sum(file.deletes.cardinality for file in live if file.deletes is not None),
        "total-equality-deletes": 0,
    }
    return {
        "operation": "overwrite",
        LIVE_SUMMARY: "true",
        READ_POINT: read_point.to_header(),
        **{name: str(count) for name, count in counts.items()},
    }


def _read_only(location: str) -> dict[str, str]:
    # safety: live-write-paths
    return dict.fromkeys(_WRITE_PATHS, read_only_path(location))
