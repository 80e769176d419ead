"""The rows of one bucket: in order, where they belong, from records of their batch, and no key live twice.

Only key and provenance columns are read, a bounded number of row groups at a time. Of each live row's key,
eight bytes stay in memory; where a bucket is too large for that, its keys are taken in several shares.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline.errors import first_line
from thermocline.iceberg.files import open_input
from thermocline.iceberg.sparse_index import FOOTER_KEY
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.keys import buckets, encode_table
from verify.finding import Finding, Key, key_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyroaring import BitMap

    from thermocline.rules.definition import LiveTable
    from verify.current_files import StoredFile
    from verify.origins import Mask, Origins

# Row groups read at once: with keys of 60 bytes some 4 MB.
_GROUPS_AT_ONCE: Final = 64
# Live rows whose keys are compared at once: 64 MB, and as much again while they are sorted.
ROWS_AT_ONCE: Final = 8 << 20
# Keys of a bucket that are named one by one when they are live twice; a file written twice has thousands.
NAMED_KEYS_MAX: Final = 100

# What reading a file raises that is damaged, or that another writer filled with columns of its own.
UNREADABLE: Final = (OSError, ValueError, KeyError, AssertionError, pa.ArrowException, msgspec.MsgspecError)

Hashes = np.ndarray[Any, np.dtype[np.int64]]
RowsRead = Callable[[int], None]
"""Called with the number of rows that were read."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a file that follow one another: from which position on, their keys, and which are live.

    None of them counts as live where the deletes can't be read: what is not known is not judged.
    """

    start: int
    rows: pa.Table
    keys: pa.Array
    is_live: Mask

    @property
    def end(self) -> int:
        return self.start + len(self.keys)


def bucket_findings(
    io: FileIO,
    definition: LiveTable,
    files: Sequence[StoredFile],
    origins: Origins,
    rows_read: RowsRead,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Iterator[Finding]:
    """What is wrong with the rows of one bucket, of all of its data files."""
    shares = -(-sum(file.listed.rows for file in files) // rows_at_once)
    readable: list[tuple[StoredFile, BitMap | None]] = []
    hashes: list[Hashes] = []
    for file in files:
        deleted = file.deleted(io)
        try:
            yield from _file_findings(io, definition, file, deleted, origins, hashes, (0, shares), rows_read)
        except FileNotFoundError:
            continue  # a finding of its own
        except UNREADABLE as error:
            yield Finding("file-unreadable", f"{file.path} can't be read: {first_line(error)}")
            continue
        readable.append((file, deleted))
    twice = _twice(hashes)
    for share in range(1, shares):
        hashes = []
        for file, deleted in readable:
            for part in _parts(io, definition, file, deleted):
                hashes.append(_share(part, share, shares))
        twice = np.union1d(twice, _twice(hashes))
    yield from _named(io, definition, readable, twice)


def _file_findings(
    io: FileIO,
    definition: LiveTable,
    file: StoredFile,
    deleted: BitMap | None,
    origins: Origins,
    hashes: list[Hashes],
    share: tuple[int, int],
    rows_read: RowsRead,
) -> Iterator[Finding]:
    window = origins.of_file(file.listed.snapshot_id)
    first_keys, row_starts, rows = _index(io, file)
    if rows != file.listed.rows:
        facts = f"{rows} rows, and its manifest says {file.listed.rows}"
        yield Finding("file-differs", f"{file.path} has {facts}")
    seen = _WrongRows(definition, file)
    last_key = b""
    for part in _parts(io, definition, file, deleted):
        rows_read(len(part.keys))
        hashes.append(_share(part, *share))
        beyond, behind = window.outside(part.rows)
        seen.take("row-beyond-seam", part, beyond & part.is_live)
        seen.take("row-behind-seam", part, behind & part.is_live)
        of_bucket = buckets(definition, part.rows.column(definition.bucket_column.name))
        seen.take("row-misplaced", part, of_bucket != file.listed.bucket)
        if first_keys is not None:
            seen.take("file-unsorted", part, _out_of_order(part, last_key, first_keys, row_starts))
        last_key = part.keys[-1].as_py()
    yield from seen.findings()


class _WrongRows:
    """How many rows of a file are wrong, by code, and the first of them."""

    _WORDS: Final = {
        "row-beyond-seam": "come from records at or beyond the seam of the snapshot that added them",
        "row-behind-seam": "come from records before those that the snapshot read which added them",
        "row-misplaced": "belong to other buckets",
        "file-unsorted": "are not where the file's order of keys, or the index in its footer, says",
    }

    def __init__(self, definition: LiveTable, file: StoredFile) -> None:
        self._definition, self._file = definition, file
        self._found: dict[str, tuple[int, Key, str]] = {}

    def take(self, code: str, part: _Part, wrong: Mask) -> None:
        count = int(np.count_nonzero(wrong))
        if not count:
            return
        before, key, place = self._found.get(code, (0, None, ""))
        if key is None:
            at = int(np.flatnonzero(wrong)[0])
            key = key_of(self._definition, part.keys[at].as_py())
            place = f"row {part.start + at}, from {origin_of(part.rows, at)}"
        self._found[code] = (before + count, key, place)

    def findings(self) -> Iterator[Finding]:
        for code, (count, key, place) in self._found.items():
            bucket = f" of bucket {self._file.listed.bucket}" if code == "row-misplaced" else ""
            added = f", added by snapshot {self._file.listed.snapshot_id}"
            what = f"{count} rows of {self._file.path}{bucket}{added}, {self._WORDS[code]}; first {place}"
            yield Finding(code, what, key)


def origin_of(rows: pa.Table | pa.RecordBatch, index: int) -> str:
    """Which record a row comes from, as ``topic/partition@offset``."""
    topic, partition, offset = (rows.column(name)[index].as_py() for name in PROVENANCE[:3])
    return "no record" if None in (topic, partition, offset) else f"{topic}/{partition}@{offset}"


def _index(io: FileIO, file: StoredFile) -> tuple[list[bytes] | None, list[int], int]:
    """The first keys that the footer gives (None: none), the row groups' first rows, and how many rows."""
    with open_input(io, file.path) as source:
        footer = pq.ParquetFile(source).metadata
        counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        entry = (footer.metadata or {}).get(FOOTER_KEY.encode())
    starts: list[int] = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64).tolist()
    if entry is None:  # another writer's: read as whatever it is
        return None, starts, sum(counts)
    first_keys = msgspec.msgpack.decode(base64.b64decode(entry), type=list[bytes])
    if len(first_keys) != len(counts):
        raise ValueError(f"its index has {len(first_keys)} keys for {len(counts)} row groups")
    return first_keys, starts, sum(counts)


def _out_of_order(part: _Part, last_key: bytes, first_keys: Sequence[bytes], starts: Sequence[int]) -> Mask:
    """The rows with a lower key than the row before, and the first rows of groups that the index misses."""
    wrong = np.zeros(len(part.keys), np.bool_)
    wrong[0] = part.keys[0].as_py() < last_key
    wrong[1:] = pc.less(part.keys[1:], part.keys[:-1]).to_numpy(zero_copy_only=False)
    groups = np.flatnonzero((np.asarray(starts) >= part.start) & (np.asarray(starts) < part.end))
    for group in groups.tolist():
        at = starts[group] - part.start
        wrong[at] |= part.keys[at].as_py() != first_keys[group]
    return wrong


def _parts(io: FileIO, definition: LiveTable, file: StoredFile, deleted: BitMap | None) -> Iterator[_Part]:
    columns = list(dict.fromkeys((*definition.identity, *PROVENANCE[:3])))
    positions = np.asarray(() if deleted is None else deleted.to_array(), np.int64)
    start = 0
    with open_input(io, file.path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        groups = range(parquet.num_row_groups)
        for first in range(0, len(groups), _GROUPS_AT_ONCE):
            rows = parquet.read_row_groups(groups[first : first + _GROUPS_AT_ONCE], columns=columns)
            if not rows.num_rows:
                continue
            low, high = np.searchsorted(positions, [start, start + rows.num_rows])
            is_live = np.full(rows.num_rows, deleted is not None)
            is_live[positions[low:high] - start] = False
            yield _Part(start, rows, encode_table(definition, rows), is_live)
            start += rows.num_rows


def _hashes(part: _Part) -> tuple[Hashes, Hashes]:
    """The hash of each live row's key, and its place in the part."""
    places = np.flatnonzero(part.is_live)
    keys = part.keys if len(places) == len(part.keys) else part.keys.take(pa.array(places))
    return np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys)), places


def _share(part: _Part, share: int, shares: int) -> Hashes:
    hashes, _ = _hashes(part)
    return hashes if shares <= 1 else hashes[hashes % shares == share]


def _twice(hashes: list[Hashes]) -> Hashes:
    """Hashes that occur more than once."""
    if not hashes:
        return np.zeros(0, np.int64)
    together = np.concatenate(hashes)
    hashes.clear()
    together.sort()
    return np.unique(together[1:][together[1:] == together[:-1]])


def _named(
    io: FileIO, definition: LiveTable, files: Sequence[tuple[StoredFile, BitMap | None]], twice: Hashes
) -> Iterator[Finding]:
    """The keys that are live twice, of which hashes are suspected, with every place of each."""
    if not len(twice):
        return
    wanted = twice[:NAMED_KEYS_MAX]
    places: dict[bytes, list[str]] = {}
    for file, deleted in files:
        for part in _parts(io, definition, file, deleted):
            hashes, rows = _hashes(part)
            for at in rows[np.isin(hashes, wanted)].tolist():
                place = f"row {part.start + at} of {file.path}, from {origin_of(part.rows, at)}"
                places.setdefault(part.keys[at].as_py(), []).append(place)
    left = len(twice) - len(wanted)
    more = f" (and {left} more keys of its bucket are)" if left else ""
    for key, some in places.items():
        if len(some) > 1:  # two keys may have one hash  # safety: verify-hashes
            what = f"a key has {len(some)} live rows: {'; '.join(some)}{more}"
            yield Finding("key-live-twice", what, key_of(definition, key))
            more = ""
