"""Tables spread over files by number, so that one number's rows are in memory at a time, and not all of them.

Rows are held until a bound is reached; then each number's go to the end of its file, as an Arrow stream of
their own.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import mmh3
import numpy as np
import pyarrow as pa

from thermocline.rules.definition import KEY

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CountingFile", "Numbers", "Spill", "part_of"]

Numbers = np.ndarray[Any, np.dtype[np.int64]]

# What hashes keys into parts of a bucket: any number that is not that of a sample.
_PART_SEED: Final = 0x5EA1
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class CountingFile(io.FileIO):
    """A new file that tells how many bytes were written to it, after each write."""

    def __init__(self, path: Path, heard: Callable[[int], None]) -> None:
        """``heard`` is called with the bytes so far."""
        super().__init__(path, "wb")
        self._heard, self._done = heard, 0

    def write(self, content: Buffer, /) -> int:
        """Writes all of it; a full disk is an `OSError`."""
        view = memoryview(content).cast("B")
        size = len(view)
        while view:
            view = view[super().write(view) :]
        self._done += size
        self._heard(self._done)
        return size


@dataclass(slots=True)
class Spill:
    """One file a number, below a folder of its own. ``held_bytes_max`` bounds what waits in memory."""

    folder: Path
    held_bytes_max: int
    _held: list[tuple[Numbers, pa.Table]] = field(default_factory=list)
    _held_bytes: int = 0
    _bytes: dict[int, int] = field(default_factory=dict)

    def add(self, numbers: Numbers, table: pa.Table) -> None:
        """Takes up rows, each under its number."""
        if not table.num_rows:
            return
        self._held.append((numbers, table))
        self._held_bytes += table.nbytes
        if self._held_bytes >= self.held_bytes_max:
            self.flush()

    def bytes_of(self, number: int) -> int:
        """The size of a number's rows in memory."""
        self.flush()
        return self._bytes.get(number, 0)

    def read(self, number: int) -> Iterator[pa.Table]:
        """A number's rows, in pieces, in the order in which they were added."""
        self.flush()
        path = self._path(number)
        if path.exists():
            with pa.OSFile(str(path)) as source:
                while source.tell() < source.size():
                    with pa.ipc.open_stream(source) as stream:
                        yield stream.read_all()

    def drop(self, number: int) -> None:
        """Forgets a number's rows."""
        self.flush()
        self._path(number).unlink(missing_ok=True)
        self._bytes.pop(number, None)

    def flush(self) -> None:
        """Writes what is held."""
        if not self._held:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        numbers = np.concatenate([some for some, _ in self._held])
        whole = pa.concat_tables(table for _, table in self._held)
        self._held.clear()
        self._held_bytes = 0
        order = np.argsort(numbers, kind="stable")
        whole, numbers = whole.take(pa.array(order)).combine_chunks(), numbers[order]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        ends = np.append(starts[1:], len(numbers))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self._write(int(numbers[start]), whole.slice(start, end - start))

    def _write(self, number: int, table: pa.Table) -> None:
        with (
            self._path(number).open("ab") as sink,
            pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream,
        ):
            stream.write_table(table)
        self._bytes[number] = self._bytes.get(number, 0) + table.nbytes

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.arrows"


def part_of(table: pa.Table, parts: int) -> Numbers:
    """Which of so many parts each row is in, by its key."""
    keys = table.column(KEY).to_pylist()
    return np.array([mmh3.hash(key, _PART_SEED, signed=False) % parts for key in keys], np.int64)
