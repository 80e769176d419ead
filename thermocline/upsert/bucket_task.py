"""The bucket task: (a bucket, its files and deletes, new records) → the files it wrote.

Knows nothing of Spark: it runs in a Spark worker, and in a test by a plain call. It holds the batch's records
of its bucket, which ``batch_records_max`` and ``batch_bytes_max`` bound, whatever the size of the table, with
what they leave of their rows as it is, and the rows of the small files that it merges, bounded too
(``tiers``); what else it reads of the table's files, it reads in pieces of a bounded size (``probe``,
``unchanged``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from thermocline.errors import SourceInvalid
from thermocline.failpoints import failpoint
from thermocline.iceberg.data_file import WrittenFile, write_data_file
from thermocline.iceberg.deletes import write_deletes
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import DataFile, Deletes, deleted_on_error
from thermocline.iceberg.rows import moved_rows, rows_schema
from thermocline.iceberg.tombstones import NO_TOMBSTONES, Tombstones
from thermocline.process.clock import SystemClock
from thermocline.rules.definition import KEY, TOMBSTONE
from thermocline.rules.fold import OFFSET, fold
from thermocline.rules.keys import buckets, named_columns
from thermocline.upsert.partial_updates import filled
from thermocline.upsert.probe import (
    Replaced,
    deleted_positions,
    keep_deletes,
    keep_keys,
    probe,
    tombstones_of,
)
from thermocline.upsert.sequence import forgotten_before_ms, late_winners, moved_with_tombstones
from thermocline.upsert.tiers import files_to_merge
from thermocline.upsert.unchanged import Mask, unchanged_keys

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.rules.definition import LiveTable
    from thermocline.rules.merging import Merging

MERGED_MEMORY_BYTES = 256 << 20
"""What the rows of a merged file take unpacked, before they are sorted: values that repeat pack 200 to 1."""


@dataclass(frozen=True, slots=True)
class BucketResult:
    """What a bucket task did.

    ``added`` is empty when no row is left to write. ``deletes`` are those written, by data file;
    ``replaced`` those of before, which the commit removes. ``removed`` are live files whose rows are in
    ``added``, which are ``carried`` rows, or gone; their deletes go with them. The counts add up to the
    records that came in: applied + superseded + unchanged. Unchanged are tombstones for keys that are not
    there, and, where the definition suppresses them, rows that are there already. ``conflict_example``
    is a key that was met in several partitions, ``conflict_places``. ``parts`` are those of the data files in
    ``deletes`` and ``replaced``.
    """

    bucket: int
    added: tuple[WrittenFile, ...] = ()
    deletes: dict[str, Deletes] = field(default_factory=dict)
    replaced: dict[str, Deletes] = field(default_factory=dict)
    applied: int = 0
    superseded: int = 0
    unchanged: int = 0
    keys_in_several_partitions: int = 0
    conflict_example: bytes | None = None
    conflict_places: tuple[tuple[str, int], ...] = ()
    removed: tuple[DataFile, ...] = ()
    carried: int = 0
    parts: dict[str, FileBucket] = field(default_factory=dict)

    def dropped(self) -> dict[str, Deletes]:
        """The deletes of before that the commit removes, by data file."""
        return self.replaced | {file.path: file.deletes for file in self.removed if file.deletes is not None}

    def rows_gained(self) -> int:
        """How many more rows of the bucket are live after it."""
        files = sum(file.rows for file in self.added) - sum(file.rows for file in self.removed)
        undeleted = sum(deletes.cardinality for deletes in self.dropped().values())
        return files + undeleted - sum(deletes.cardinality for deletes in self.deletes.values())


def written_paths(files: Iterable[BucketResult]) -> list[str]:
    """The files that bucket tasks wrote, each once."""
    paths = [added.path for done in files for added in done.added]
    paths += [deletes.path for done in files for deletes in done.deletes.values()]
    return list(dict.fromkeys(paths))


def run_bucket_task(
    io: FileIO,
    definition: LiveTable,
    data_location: str,
    bucket: int,
    files: Sequence[DataFile],
    records: pa.Table,
    is_replay: bool = False,
) -> BucketResult:
    """Fold the records, find the rows that they replace, write one sorted data file and the deletes.

    Small files go into the one that is written, so that they do not pile up. While the number of buckets is
    being raised, it is a data file for each of the new buckets that have rows.

    Args:
        data_location: the folder of the table's data files, as a URI.
        files: the bucket's live data files in the snapshot that the batch was planned on.
        records: ``definition.records_schema``, at least one, all of this bucket.
        is_replay: the records lie before the seam, so that even where a record is its own key, in a table
            without one, it may be in the table already. A row is written though it says the same as the one
            that is there: by where it comes from, a later replay knows that its record was applied.
    """
    failpoint("bucket-task.probe")
    _check_keys(definition, records)
    folded = fold(records)
    fates = _fates(io, definition, files, folded.winners, is_replay)
    deleted, replaced, parts = _deleted(fates.hits, fates.is_unchanged | fates.is_late)
    rows = fates.rows(definition.merging)
    merging = _Merging(io, definition, deleted, records)
    # One name for the files of one run: a second attempt of the task writes others.
    stem = f"{data_location}/bucket={bucket}/{uuid.uuid4()}"  # safety: attempts-have-files-of-their-own
    added: list[WrittenFile] = []
    removed: list[DataFile] = []
    with deleted_on_error(io) as begun:
        for part, its_files, its_rows in _by_part(definition, bucket, files, rows):
            is_touched = its_rows.num_rows or any(file.path in deleted for file in its_files)
            if is_touched and not is_replay:
                its_rows, merged = merging.merged(its_files, its_rows)  # noqa: PLW2901
                removed += merged
            if its_rows.num_rows:
                path = f"{stem}-{part.number}.parquet"
                begun.append(path)
                added.append(write_data_file(io, path, definition, its_rows, part))
                if added[-1].tombstones:  # rows that nobody is to see
                    # safety: sequence-tombstones-hidden
                    deleted[path] = BitMap.deserialize(added[-1].tombstones)
                    parts[path] = part
                # safety: kept-keys-are-those-that-were-written
                keep_keys(path, its_rows.column(KEY).combine_chunks())
        deletes = write_deletes(io, stem, definition.format_version, deleted)
    for path, written in deletes.items():
        keep_deletes(written, deleted[path])
    failpoint("bucket-task.done")
    unchanged, late = int(np.count_nonzero(fates.is_unchanged)), int(np.count_nonzero(fates.is_late))
    return BucketResult(
        bucket=bucket,
        added=tuple(added),
        deletes=deletes,
        replaced=replaced,
        applied=folded.winners.num_rows - unchanged - late,
        superseded=folded.superseded + late,
        unchanged=unchanged,
        keys_in_several_partitions=folded.conflicts,
        conflict_example=folded.conflict_example,
        conflict_places=folded.conflict_places,
        removed=tuple(removed),
        carried=sum(file.live_rows for file in added) - fates.live_rows,
        parts=parts,
    )


@dataclass(frozen=True, slots=True)
class _Fates:
    """What becomes of a batch's winners in a bucket: for each whether it is late, or says nothing new.

    ``winners`` have the columns that they leave as they are from the rows of ``hits``.
    """

    winners: pa.Table
    hits: Sequence[Replaced]
    is_tombstone: Mask
    is_unchanged: Mask
    is_late: Mask

    @property
    def live_rows(self) -> int:
        """How many of them become rows that can be seen."""
        return int(np.count_nonzero(~self.is_unchanged & ~self.is_late & ~self.is_tombstone))

    def rows(self, merging: Merging) -> pa.Table:
        """The winners to be written, also deletes that are to be remembered."""
        is_written = ~self.is_unchanged & ~self.is_late
        if not merging.remembers_deletes:
            is_written &= ~self.is_tombstone
        return self.winners if is_written.all() else self.winners.filter(pa.array(is_written))


def _fates(
    io: FileIO, definition: LiveTable, files: Sequence[DataFile], winners: pa.Table, is_replay: bool
) -> _Fates:
    """Finds the rows of the winners' keys, and compares."""
    merging, keys = definition.merging, winners.column(KEY).combine_chunks()
    # Without a key, records beyond the seam can't be in the table: there is nothing to look for.
    # safety: a-replay-looks-for-its-records, append-replay
    hits = list(probe(io, definition, files, keys)) if merging.is_keyed or is_replay else []
    is_tombstone = winners.column(TOMBSTONE).to_numpy()
    was_live = np.zeros(len(keys), dtype=bool)
    for hit in hits:
        was_live[hit.key_indexes] = True
    is_late = np.zeros(len(keys), dtype=bool)
    if merging.is_ordered:
        is_late = late_winners(io, definition, hits, winners)
    if merging.is_partial:
        winners = filled(io, definition, hits, winners)  # safety: ingest-fills
    # Where deletes are remembered, also that of a key which is not there.
    is_unchanged = is_tombstone & ~was_live & (not merging.remembers_deletes)  # safety: sequence-early-delete
    if definition.suppress_unchanged and not is_replay:  # safety: replay-leaves-its-row
        is_unchanged |= unchanged_keys(io, definition, hits, winners) & ~is_late
    return _Fates(winners, hits, is_tombstone, is_unchanged, is_late)


def _check_keys(definition: LiveTable, records: pa.Table) -> None:
    """Makes sure that records without a place in a log have each key once. Raises `SourceInvalid`."""
    if not records.column(OFFSET).null_count:
        return
    counted = pc.value_counts(records.column(KEY).combine_chunks())
    twice = pc.greater(counted.field("counts"), 1)
    if pc.any(twice).as_py():  # safety: a-source-has-a-key-once
        key = counted.field("values").filter(twice)[0].as_py()
        problem = f"two of its rows have the key {named_columns(definition, key)}"
        raise SourceInvalid(source="the source", problem=problem)


def _deleted(
    hits: Sequence[Replaced], is_unchanged: Mask
) -> tuple[dict[str, BitMap], dict[str, Deletes], dict[str, FileBucket]]:
    """By data file: all its deleted positions, the deletes that they replace, and its bucket.

    Of the files in which winners that are not unchanged have rows.
    """
    deleted: dict[str, BitMap] = {}
    replaced: dict[str, Deletes] = {}
    parts: dict[str, FileBucket] = {}
    for hit in hits:
        positions = hit.positions[~is_unchanged[hit.key_indexes]]  # safety: a-suppressed-row-keeps-its-place
        if not len(positions):
            continue
        # safety: deletes-of-before-stay-deleted, the-old-row-goes, merged-deletes
        deleted[hit.file.path] = BitMap(positions.astype(np.uint32)) | (hit.deleted_before or BitMap())
        if hit.file.deletes is not None:
            replaced[hit.file.path] = hit.file.deletes  # safety: deletes-of-before-are-replaced
        parts[hit.file.path] = hit.file.part
    return deleted, replaced, parts


def _by_part(
    definition: LiveTable, bucket: int, files: Sequence[DataFile], rows: pa.Table
) -> Iterator[tuple[FileBucket, Sequence[DataFile], pa.Table]]:
    """The buckets that new files are in, each with the files that may join the rows for it, and these.

    Files from before there were so many are in several of them: they are left to maintenance.
    """
    of = definition.buckets_written
    if of == definition.buckets:
        yield FileBucket(bucket, of), files, rows
        return
    numbers = buckets(definition, rows.column(definition.bucket_column.name), of)
    for number in range(bucket, of, definition.buckets):
        # safety: merged-within-a-bucket
        its_files = [file for file in files if file.part.within(of) == number]
        its_rows = rows.filter(pa.array(numbers == number))  # safety: rows-go-to-their-bucket
        yield FileBucket(number, of), its_files, its_rows


class _Merging:
    """Merges files into those that a batch writes.

    ``deleted`` are all deleted positions of the files in which the batch deletes some; those of merged files
    are taken out. What deletes are still remembered follows from the batch's ``records``.
    """

    def __init__(
        self, io: FileIO, definition: LiveTable, deleted: dict[str, BitMap], records: pa.Table
    ) -> None:
        self._io, self._definition, self._deleted = io, definition, deleted
        self._before_ms = 0
        if definition.merging.remembers_deletes:
            self._before_ms = forgotten_before_ms(definition, records, SystemClock().now_ms())

    def merged(self, files: Sequence[DataFile], rows: pa.Table) -> tuple[pa.Table, tuple[DataFile, ...]]:
        """The rows with those of the files that are merged, sorted by key, and these files."""
        moved = {file.path: self._moved_count(file) for file in files}
        names = rows_schema(self._definition).names
        kept, removed = [rows.select([*names, TOMBSTONE])], []
        for file in files_to_merge(files, moved, rows.num_rows):
            if moved[file.path]:
                room_bytes = MERGED_MEMORY_BYTES - sum(table.nbytes for table in kept)
                found = _within(self._moved_rows(file), room_bytes)
                if found is None:
                    continue
                kept += found
            self._deleted.pop(file.path, None)
            removed.append(file)
        if len(kept) == 1:
            return rows, tuple(removed)
        # The batch's rows have no lineage yet: it is null in them.
        return pa.concat_tables(kept, promote_options="default").sort_by(KEY), tuple(removed)

    def _moved_count(self, file: DataFile) -> int:
        """The rows of a file that would go to the one that it is merged into."""
        tombstones = self._tombstones(file)
        return _live_count(file, self._deleted.get(file.path)) + len(tombstones.positions)

    def _moved_rows(self, file: DataFile) -> Iterator[pa.Table]:
        deleted = self._deleted.get(file.path) or deleted_positions(self._io, file)
        tombstones = self._tombstones(file)
        if deleted is not None and tombstones.positions:  # safety: sequence-merge-carries
            before_ms = self._before_ms
            yield from moved_with_tombstones(self._io, self._definition, file, deleted, tombstones, before_ms)
            return
        for _, rows in moved_rows(self._io, self._definition, file, deleted):  # safety: merged-rows-are-live
            yield rows.append_column(TOMBSTONE, pa.array(np.zeros(rows.num_rows, dtype=bool)))

    def _tombstones(self, file: DataFile) -> Tombstones:
        """The deletes of a file of which some are to be remembered."""
        if not self._definition.merging.remembers_deletes:
            return NO_TOMBSTONES
        found = tombstones_of(self._io, file)
        return found if found.newest_ms >= self._before_ms else NO_TOMBSTONES


def _within(pieces: Iterator[pa.Table], room_bytes: int) -> list[pa.Table] | None:
    """All rows of a file; None where they take more memory than that."""
    found: list[pa.Table] = []
    for rows in pieces:
        found.append(rows)
        room_bytes -= rows.nbytes
        if room_bytes < 0:
            return None
    return found


def _live_count(file: DataFile, deleted: BitMap | None) -> int:
    if deleted is not None:
        return file.rows - len(deleted)
    return file.rows - (file.deletes.cardinality if file.deletes is not None else 0)
