"""The newest rows of a table that is only appended to, read up to a bound, however much the table holds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from thermocline.errors import CatalogUnreachable, first_line
from thermocline.iceberg.files import open_input
from thermocline.iceberg.manifests import live_entries, manifests_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

__all__ = ["NewestRows", "newest_rows"]

FILES_MAX: Final = 20
"""Some requests to the store for each."""
MANIFESTS_MAX: Final = 50
MANIFEST_BYTES_MAX: Final = 32 << 20
"""Of all that are read; PyIceberg merges them up to 8 MB."""
_ROWS_AT_ONCE: Final = 1_000


class NewestRows(NamedTuple):
    """Rows of the newest files, those of the newest first; ``is_all``: the table has no others."""

    rows: Sequence[dict[str, Any]]
    is_all: bool


def newest_rows(table: Table, columns: Sequence[str], rows_max: int) -> NewestRows:
    """At most ``rows_max`` rows of a table's newest files, with these columns alone.

    Raises `CatalogUnreachable` when a file can't be read.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return NewestRows((), is_all=True)
    try:
        paths, is_all = _newest_files(table.io, snapshot.manifest_list)
        rows: list[dict[str, Any]] = []
        for path in paths:
            for row in _rows(table.io, path, columns):
                if len(rows) == rows_max:  # safety: newest-rows-bounded
                    return NewestRows(rows, is_all=False)
                rows.append(row)
    except (OSError, pa.ArrowException) as error:
        raise CatalogUnreachable(uri=table.location(), detail=first_line(error)) from error
    return NewestRows(rows, is_all)


def _newest_files(io: FileIO, manifest_list: str) -> tuple[list[str], bool]:
    """The newest files, and whether there are no others."""
    listed = sorted(manifests_of(io, manifest_list), key=_sequence_number, reverse=True)
    newest: list[tuple[int, str]] = []
    bytes_read = 0
    for number, manifest in enumerate(listed):
        bytes_read += manifest.manifest_length
        is_enough = len(newest) > FILES_MAX or number == MANIFESTS_MAX or bytes_read > MANIFEST_BYTES_MAX
        if number and is_enough:  # safety: newest-files-bounded
            return [path for _, path in newest[:FILES_MAX]], False
        # One more than are read tells whether there are others.
        newest = heapq.nlargest(FILES_MAX + 1, [*newest, *_files(io, manifest)], key=lambda one: one[0])
    return [path for _, path in newest[:FILES_MAX]], len(newest) <= FILES_MAX


def _files(io: FileIO, manifest: ManifestFile) -> Iterator[tuple[int, str]]:
    for entry, file in live_entries(io, manifest):
        own = entry.sequence_number  # None: that of the manifest
        yield _sequence_number(manifest) if own is None else own, file.file_path


def _sequence_number(manifest: ManifestFile) -> int:
    return manifest.sequence_number or 0


def _rows(io: FileIO, path: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    with open_input(io, path) as source:
        for rows in pq.ParquetFile(source).iter_batches(_ROWS_AT_ONCE, columns=list(columns)):
            yield from rows.to_pylist()
