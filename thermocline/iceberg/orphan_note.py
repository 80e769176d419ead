"""The note of orphans that were seen beside a table: when each was first seen, and its bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from thermocline.iceberg.files import beside, read_file, write_file

if TYPE_CHECKING:
    from pyiceberg.table import Table

__all__ = ["read_sightings", "seen_orphan_bytes", "write_sightings"]


def read_sightings(table: Table) -> Mapping[str, tuple[int, int]]:
    """By path, when each was first seen, in milliseconds since 1970, and its bytes. Raises `OSError`."""
    try:
        noted = json.loads(zlib.decompress(read_file(table.io, _path(table))))["orphans"]
        return {path: (int(seen_ms), int(size)) for path, (seen_ms, size) in noted.items()}
    # Half written, or by an earlier release: all are seen for the first time.
    except (FileNotFoundError, zlib.error, ValueError, KeyError, TypeError):
        return {}


def write_sightings(table: Table, orphans: Mapping[str, tuple[int, int]]) -> None:
    """Write the note in place of the one before. Raises `OSError`."""
    write_file(table.io, _path(table), zlib.compress(json.dumps({"orphans": dict(orphans)}).encode()))


def seen_orphan_bytes(table: Table) -> int:
    """Of the orphans that were seen, and are not deleted yet, when they were last looked for.

    Raises `OSError`.
    """
    return sum(size for _, size in read_sightings(table).values())


def _path(table: Table) -> str:
    return beside(table.location(), "orphans.json.zlib")
