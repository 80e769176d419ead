"""All rows of an extract, in a file until they are compared."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from thermocline.iceberg.rows import with_keys
from thermocline.rules.definition import PROVENANCE

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.verify.read_paths import ReadPaths

__all__ = ["CountingFile", "extracted_rows", "write_extract"]


class CountingFile(io.FileIO):
    """A new file that tells how many bytes were written to it, after each write."""

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        """``progress`` is called with the bytes so far."""
        super().__init__(path, "wb")
        self._progress, self._done = progress, 0

    def write(self, content: Buffer, /) -> int:
        """Writes all of it; a full disk is an `OSError`."""
        view = memoryview(content).cast("B")
        size = len(view)
        while view:
            view = view[super().write(view) :]
        self._done += size
        self._progress(self._done)
        return size


def write_extract(
    read_paths: ReadPaths,
    definition: LiveTable,
    path: Path,
    progress: Callable[[int], None] = lambda _done: None,
) -> ReadPoint:
    """Extracts all columns and provenance as an Arrow stream; where it was read."""
    with CountingFile(path, progress) as sink:
        return read_paths.extract([*(column.name for column in definition.columns), *PROVENANCE], sink)


def extracted_rows(definition: LiveTable, path: Path) -> Iterator[pa.Table]:
    """The rows with their keys, in pieces."""
    with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield with_keys(definition, pa.Table.from_batches([batch]))
