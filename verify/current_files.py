"""The files of one snapshot: which deletes belong to which data file, and whether these are sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from thermocline.errors import first_line
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import ListedFile, open_input
from thermocline.verify.file_history import deletes_by_file
from thermocline.verify.finding import Finding

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

# Deletes read at once: on an object store each takes the time of an answer.
_READS_AT_ONCE: Final = 16
# Handed to the threads together, so that a table of many files does not wait in their queue as a whole.
_AT_A_TIME: Final = 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A live data file, and the deletes that are bound to it: one, or none, where all is well."""

    listed: ListedFile
    deletes: tuple[ListedFile, ...] = ()

    @property
    def path(self) -> str:
        """The data file's path."""
        return self.listed.path

    def deleted(self, io: FileIO) -> BitMap | None:
        """The positions that are deleted, of all its deletes together; None where some can't be read."""
        positions = BitMap()
        for one in self.deletes:
            assert one.deletes is not None
            try:
                positions |= read_deletes(io, one.deletes)
            except (OSError, ValueError, pa.ArrowException):
                return None
        return positions


def stored_files(live: Iterable[ListedFile]) -> list[StoredFile]:
    """The data files of a snapshot with their deletes, sorted by bucket and path."""
    files = list(live)
    deletes = deletes_by_file(files)
    data = [file for file in files if file.content == "data"]
    data.sort(key=lambda file: (file.bucket, file.path))
    return [StoredFile(file, tuple(deletes.get(file.path, ()))) for file in data]


def listing_findings(live: Iterable[ListedFile], name: str) -> Iterator[Finding]:
    """Deletes that nobody of us wrote, or that two would have to be read for."""
    bound: Counter[str] = Counter()
    for file in live:
        if file.content == "equality-deletes":
            yield Finding("deletes-foreign", f"{name} holds equality deletes, in {file.path}")
        elif file.content == "position-deletes" and file.referenced is None:
            facts = f"{file.path} holds position deletes that are bound to no data file"
            yield Finding("deletes-foreign", f"{name}: {facts}")
        elif file.referenced is not None:
            bound[file.referenced] += 1
    for path, count in bound.items():
        if count > 1:
            yield Finding("two-deletes-for-a-file", f"{name} has {count} sets of deletes for {path}")


def deletes_findings(io: FileIO, files: Sequence[StoredFile]) -> Iterator[Finding]:
    """Deletes that can't be read, are not as many as listed, or are about rows that don't exist."""
    wanted = [(file.listed, one) for file in files for one in file.deletes]
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for start in range(0, len(wanted), _AT_A_TIME):
            for problem in pool.map(lambda pair: _problem(io, *pair), wanted[start : start + _AT_A_TIME]):
                if problem:
                    yield Finding("deletes-unreadable", problem)


def _problem(io: FileIO, data: ListedFile, file: ListedFile) -> str:
    assert file.deletes is not None
    place = f"the deletes of {data.path} in {file.path}"
    try:
        positions = read_deletes(io, file.deletes)
        about = _data_file_in(io, file) if file.deletes.format == "parquet" else data.path
    except FileNotFoundError:
        return ""  # a finding of its own
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"{place} can't be read: {first_line(error)}"
    if positions and about != data.path:
        return f"{place} are about {about}"
    if len(positions) != file.rows:
        return f"{place} are {len(positions)} positions, and the manifest says {file.rows}"
    if positions and positions.max() >= data.rows:
        return f"{place} name row {positions.max()}, and the file has {data.rows} rows"
    return ""


def _data_file_in(io: FileIO, file: ListedFile) -> str:
    """The data file that a Parquet file of deletes names itself; all its rows name the same one."""
    with open_input(io, file.path) as source:
        first = next(pq.ParquetFile(source).iter_batches(1, columns=["file_path"]), None)
        return "" if first is None else str(first.column("file_path")[0])
