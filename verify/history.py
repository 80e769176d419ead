"""The history of a key: offset by offset in the log, and snapshot by snapshot in the table.

For a person who looks at a difference. All keys that are asked for take one pass over the log and one over
the snapshots; of each key, the newest lines are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline.errors import first_line
from thermocline.iceberg.file_buckets import UNPLACED, FileBucket
from thermocline.iceberg.files import ListedFile, open_input, spec_buckets
from thermocline.iceberg.lineage import lineage
from thermocline.iceberg.sparse_index import load_sparse_index
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.process.clock import iso_time
from thermocline.rules.decode import Decoded, Decoder, decoder_for, records_table
from thermocline.rules.definition import KEY, PROVENANCE, TOMBSTONE, LiveTable
from thermocline.rules.fold import OFFSET
from thermocline.rules.keys import bucket_of, decode_one, encode_table
from thermocline.rules.seam import Seam
from thermocline.verify.current_files import StoredFile
from thermocline.verify.file_history import deletes_by_file
from thermocline.verify.file_scan import UNREADABLE, origin_of
from thermocline.verify.snapshot_files import SnapshotFiles, walk

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.schemas.registry import SchemaRegistry

__all__ = ["KEYS_MAX", "LINES_MAX", "HeldLog", "Read", "histories_of"]

KEYS_MAX: Final = 100
"""Keys whose history is told at once: what a person reads, and a lookup in each file for each of them."""
LINES_MAX: Final = 50
"""Lines that are kept of a key's records, and of what happened to its rows: the newest ones."""
_VALUE_CHARACTERS: Final = 100


class HeldLog(Protocol):
    """What the log holds, as `thermocline.kafka.log.Log` says it."""

    def starts(self, topics: Sequence[str]) -> Seam:
        """The first offset that each partition still holds."""
        ...

    def ends(self, topics: Sequence[str]) -> Seam:
        """The end of each partition for a reader of committed records."""
        ...


Read = Callable[[Sequence[OffsetRange]], Iterator[RecordChunk]]
"""The committed records of some ranges, as `thermocline.kafka.log.read_ranges` gives them."""


def histories_of(
    table: Table,
    log: HeldLog | None,
    read: Read,
    definition: LiveTable,
    keys: Sequence[bytes],
    registry: SchemaRegistry | None = None,
) -> dict[bytes, tuple[str, ...]]:
    """What log and table hold of each of the keys, at most `KEYS_MAX`, in sentences, oldest first.

    The log's records come first, each partition's in their order, then what snapshots did to the rows.
    Without a log, the table's part alone. What log and table hold no longer is not told.
    Raises what the log and ``read`` raise.
    """
    asked = sorted(set(keys))[:KEYS_MAX]
    told = {key: _KeyLines() for key in asked}
    if log is not None and asked:
        links = lineage(table, 1)
        seam = links[0].state.seam if links and links[0].state is not None else Seam()
        ranges = _ranges(definition, log, asked)
        decoder = decoder_for(definition, registry)
        search = _Records(definition, decoder, pa.array(asked, pa.binary()), seam, told)
        for chunk in read(ranges) if ranges else ():
            search.take(chunk)
    records = {key: lines.take() for key, lines in told.items()}
    _RowTracker(table.io, table.location(), definition, asked, told).follow(table)
    return {key: (*records.get(key, ()), *told[key].take()) if key in told else () for key in keys}


@dataclass(slots=True)
class _KeyLines:
    """The newest lines of a key, in order; ``left_out`` are older ones."""

    lines: deque[tuple[tuple[object, ...], str]] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    count: int = 0

    def add(self, place: tuple[object, ...], line: str) -> None:
        self.count += 1
        self.lines.append((place, line))

    def take(self) -> tuple[str, ...]:
        """The lines, which are forgotten by it."""
        left = self.count - len(self.lines)
        told = [line for _, line in sorted(self.lines, key=lambda one: one[0])]
        self.lines.clear()
        self.count = 0
        return (*([f"({left} earlier ones are left out)"] if left else []), *told)


def _ranges(definition: LiveTable, log: HeldLog, keys: Sequence[bytes]) -> list[OffsetRange]:
    starts, ends = log.starts(definition.topics), log.ends(definition.topics)
    whole = [
        OffsetRange(topic, partition, starts.get((topic, partition), end), end)
        for topic, partition, end in ends.items()
    ]
    if definition.has_key:
        return [one for one in whole if one.first < one.end]
    # A row is one record then, whose place is its key: of each partition, from the first of them to the last.
    places = [decode_one(definition, key) for key in keys]
    ranges = []
    for one in whole:
        offsets = [
            int(str(at))
            for topic, partition, at in places
            if (topic, partition) == (one.topic, one.partition)
        ]
        first = max([one.first, min(offsets, default=one.end)])
        end = min([one.end, max(offsets, default=0) + 1])
        if first < end:
            ranges.append(OffsetRange(one.topic, one.partition, first, end))
    return ranges


@dataclass(frozen=True, slots=True)
class _Records:
    """Tells what a pass over the log meets of the keys."""

    definition: LiveTable
    decoder: Decoder
    keys: pa.Array
    seam: Seam
    told: Mapping[bytes, _KeyLines]

    def take(self, chunk: RecordChunk) -> None:
        if not len(chunk.offsets):
            return
        indexes, names = self._to_decode(chunk)
        if not indexes:
            return
        values = [chunk.values[i] for i in indexes]
        decoded = self._decode(chunk, indexes, values)
        bad = {indexes[one.index]: f"bad record ({one.stage.value}: {one.reason})" for one in decoded.bad}
        good = self._ours(chunk, indexes, values)
        found = np.searchsorted(chunk.offsets, good.column(OFFSET).to_numpy()).tolist()
        for index, key, is_tombstone in zip(
            found, good.column(KEY).to_pylist(), good.column(TOMBSTONE).to_pylist(), strict=True
        ):
            self._tell(chunk, index, key, "tombstone" if is_tombstone else "upsert")
        for index, words in bad.items():
            if index in names:
                self._tell(chunk, index, names[index], words)

    def _to_decode(self, chunk: RecordChunk) -> tuple[list[int], dict[int, bytes]]:
        """The indexes of the records that may be of ours; with their keys where these can be read alone."""
        # What orders a record is in its value, and without it the record would be bad.
        if (
            self.definition.has_key
            and self.definition.key_from == "key"
            and not self.definition.merging.is_ordered
        ):
            # Keys alone first: few records are of ours, and of a bad record the key may be readable.
            keyed = self._ours(chunk, range(len(chunk.offsets)), [None] * len(chunk.offsets))
            indexes = np.searchsorted(chunk.offsets, keyed.column(OFFSET).to_numpy()).tolist()
            return indexes, dict(zip(indexes, keyed.column(KEY).to_pylist(), strict=True))
        return list(range(len(chunk.offsets))), {}

    def _tell(self, chunk: RecordChunk, index: int, key: bytes, words: str) -> None:
        offset, at_ms, value = chunk.offsets[index], chunk.timestamps_ms[index], chunk.values[index]
        is_read = self.seam.covers(chunk.topic, chunk.partition, offset)
        when = f", {iso_time(at_ms)}" if at_ms >= 0 else ""
        line = f"log {chunk.topic}/{chunk.partition}@{offset}{when}: {words}{_shortened(value)}"
        place = (chunk.topic, chunk.partition, offset)
        self.told[key].add(place, line if is_read else f"{line} (not in the snapshot)")

    def _decode(self, chunk: RecordChunk, indexes: Sequence[int], values: Sequence[bytes | None]) -> Decoded:
        keys = [chunk.keys[i] for i in indexes]
        return self.decoder.decode(keys, values, chunk.headers_of_some(indexes), chunk.topic)

    def _ours(self, chunk: RecordChunk, indexes: Sequence[int], values: Sequence[bytes | None]) -> pa.Table:
        decoded = self._decode(chunk, indexes, values)
        offsets = [chunk.offsets[i] for i in indexes]
        times = [chunk.timestamps_ms[i] for i in indexes]
        records = records_table(self.definition, decoded, chunk.topic, chunk.partition, offsets, times)
        return records.filter(pc.is_in(records.column(KEY), value_set=self.keys))


# What is said of a row in a file that has just appeared, and of one that has turned into this.
_STATES: Final = {True: "is live", False: "is deleted"}
_TURNS: Final = {True: "is live again: its deletes are now", False: "is deleted by"}


@dataclass(slots=True)
class _Row:
    """A row of one of the keys, as it stands in a file."""

    key: bytes
    position: int
    origin: str
    is_live: bool = False


@dataclass(slots=True)
class _RowTracker:
    """Tells what the snapshots did to the rows of the keys."""

    io: FileIO
    location: str
    definition: LiveTable
    keys: Sequence[bytes]
    told: Mapping[bytes, _KeyLines]
    rows: dict[str, list[_Row]] = field(default_factory=dict)
    number: int = 0

    def follow(self, table: Table) -> None:
        specs = spec_buckets(table)
        for number, step in enumerate(walk(self.io, lineage(table))):
            self.number = number
            for file in step.removed:
                self._gone(step, file)
            for file in step.added:
                if keys := self._keys_in(file.part(specs)):
                    self._find(step, file, keys)
            concerned = [path for path in step.touched if path in self.rows and (path, 0) in step.live]
            if concerned:
                deletes = deletes_by_file(step.live.values())
                for path in concerned:
                    stored = StoredFile(step.live[path, 0], tuple(deletes.get(path, ())))
                    self._see(step, stored)

    def _keys_in(self, part: FileBucket) -> list[bytes]:
        """The keys whose rows are in a bucket; all of them, where it is none of ours."""
        definition = self.definition
        if part == UNPLACED:
            return list(self.keys)
        place = definition.key_columns.index(definition.bucket_column)
        values = ((key, decode_one(definition, key)[place]) for key in self.keys)
        return [key for key, value in values if bucket_of(definition, value, part.of) == part.number]

    def _gone(self, step: SnapshotFiles, file: ListedFile) -> None:
        for row in self.rows.pop(file.path, ()):
            if row.is_live:
                self._tell(step, row.key, f"the row from {row.origin} is gone with {self._short(file.path)}")

    def _find(self, step: SnapshotFiles, file: ListedFile, keys: Sequence[bytes]) -> None:
        try:
            rows = list(_rows_of(self.io, self.definition, file.path, self.keys))
        except UNREADABLE as error:
            for key in keys:
                self._tell(step, key, f"{self._short(file.path)} can't be read: {first_line(error)}")
            return
        if rows:
            self.rows[file.path] = rows

    def _see(self, step: SnapshotFiles, stored: StoredFile) -> None:
        """What a step changed of the rows of a file."""
        deleted = stored.deleted(self.io)
        if deleted is None:
            for row in self.rows[stored.path]:
                self._tell(step, row.key, f"the deletes of {self._short(stored.path)} can't be read", 1)
            return
        is_new = any(file.path == stored.path for file in step.added)
        appears = "appears, and " if self.number else ""
        by = ", ".join(self._short(one.path) for one in stored.deletes) or "nothing"
        for row in self.rows[stored.path]:
            was_live, row.is_live = row.is_live, row.position not in deleted
            place = f"row {row.position} of {self._short(stored.path)}, from {row.origin}"
            if is_new:
                self._tell(step, row.key, f"{place}, {appears}{_STATES[row.is_live]}", 1)
            elif was_live != row.is_live:
                self._tell(step, row.key, f"{place}, {_TURNS[row.is_live]} {by}")

    def _tell(self, step: SnapshotFiles, key: bytes, words: str, order: int = 0) -> None:
        """A line; of one snapshot, what it deletes is told before what it adds."""
        link = step.link
        kind = (
            ", of another writer"
            if link.is_foreign
            else ", a replay"
            if link.is_replay
            else ", taken in"
            if link.taken_in
            else ""
        )
        when = iso_time(link.snapshot.timestamp_ms)
        self.told[key].add((self.number, order), f"snapshot {link.snapshot_id}, {when}{kind}: {words}")

    def _short(self, path: str) -> str:
        return path.removeprefix(f"{self.location}/")


def _rows_of(io: FileIO, definition: LiveTable, path: str, keys: Sequence[bytes]) -> Iterator[_Row]:
    """The rows of a file that have one of the keys, which are sorted."""
    index = load_sparse_index(io, path, definition)
    groups = index.groups_of(keys)
    columns = list(dict.fromkeys((*definition.identity, *PROVENANCE[:3])))
    with open_input(io, path) as source:
        parquet = pq.ParquetFile(source)
        for group in groups:
            rows = parquet.read_row_group(group, columns=columns)
            stored = encode_table(definition, rows)
            hits = np.flatnonzero(pc.is_in(stored, value_set=pa.array(keys, pa.binary())).to_numpy(False))
            for at in hits.tolist():
                yield _Row(stored[at].as_py(), int(index.row_starts[group]) + at, origin_of(rows, at))


def _shortened(value: bytes | None) -> str:
    if value is None:
        return ""
    text = value[: 4 * _VALUE_CHARACTERS].decode(errors="replace")
    cut = text[:_VALUE_CHARACTERS]
    return f" {cut}" + ("…" if len(text) > len(cut) or len(value) > 4 * _VALUE_CHARACTERS else "")
