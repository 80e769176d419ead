"""The hot records of a table laid over the files of a snapshot, as files and deletes.

It is what ingest would write if it took in all that is hot now, and what it would write next for what came
since: the same bucket task, on what the hot tier holds instead of the log. So each outcome goes on from the
one before, at the cost of what changed. Files of the snapshot below are never merged into ours, and ours are
merged among themselves as ingest merges small files (`upsert.tiers`), so that they stay few.

A key that was written in several partitions is told apart by all its hot records, as a lookup does, and not
only by those that came since: what decides between partitions may be older.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from thermocline.iceberg.files import deleted_on_error, threads_for
from thermocline.iceberg.snapshot_writer import LaidOver
from thermocline.rules.definition import KEY
from thermocline.rules.definition.options import TOMBSTONE_RETENTION_HOURS_MAX
from thermocline.serving.live.records import records_of
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task, written_paths
from thermocline.upsert.files_by_bucket import after_commit, by_bucket

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO

    from thermocline.iceberg.data_file import WrittenFile
    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.hot.view import HotView
    from thermocline.upsert.files_by_bucket import FilesByBucket

__all__ = ["NewRecords", "Overlay"]

_BUCKETS_AT_ONCE: Final = 8
"""On an object store each waits for a few answers, one after the other; in memory are the rows of so many."""


class NewRecords(NamedTuple):
    """What came since an overlay, as far as ``end``: of each bucket that changed, the winners of its keys.

    True: these are all its hot records, and to be laid over the snapshot's own files.
    """

    end: Seam
    buckets: Sequence[tuple[int, pa.Table, bool]]


@dataclass(frozen=True, slots=True)
class Overlay:
    """The files that hold a snapshot's rows with all hot records before ``end`` laid over them.

    ``below`` are the snapshot's own files, by path, ``files`` those that hold the outcome, by bucket, with
    the deletes that are in force. ``written`` are ours among them, by path.
    """

    definition: LiveTable
    seam: Seam
    end: Seam
    below: Mapping[str, DataFile]
    files: FilesByBucket
    written: Mapping[str, WrittenFile] = field(default_factory=dict)

    @classmethod
    def of(cls, index: ColdIndex, format_version: int | None = None) -> Overlay:
        """The snapshot with nothing laid over it.

        ``format_version`` is the table's, which may have been raised since the snapshot; by default that of
        the snapshot's definition.
        """
        # Held files are never merged: a snapshot's own are large, or ingest is about to merge them itself.
        files = [replace(file.data, is_held=True) for file in index.files]
        # A row that says the same again has another place in the log, which lookups give; and they know of
        # every delete that is hot, however old it is.
        # safety: live-unchanged-rows, live-remembers, live-format-version
        definition = replace(
            index.definition,
            suppress_unchanged=False,
            format_version=format_version or index.definition.format_version,
            tombstone_retention_hours=TOMBSTONE_RETENTION_HOURS_MAX,
        )
        below = {file.path: file for file in files}
        return cls(definition, index.seam, index.seam, below, by_bucket(files))

    def new_records(self, view: HotView) -> NewRecords:
        """What the view holds beyond it. Raises what the hot tier raises.

        All of it is in memory then, so that no view is held while the store is waited for.
        """
        end = view.end.merged_max(self.seam)
        return NewRecords(end, () if end == self.end else tuple(self._changed(view)))

    def advanced(self, new: NewRecords, io: FileIO, folder: str) -> tuple[Overlay, dict[str, int]]:
        """The same with these records; and the bytes of the files that were written for it, by path.

        New files are below the ``folder``, a URI. Raises `OSError`; then no file is left.
        """
        if new.end == self.end:
            return self, {}
        files, tasks = dict(self.files), []
        threads = threads_for(folder, _BUCKETS_AT_ONCE)
        with deleted_on_error(io) as begun, ThreadPoolExecutor(threads, "live bucket") as pool:
            for bucket, winners, is_contested in new.buckets:
                if is_contested:
                    files[bucket] = self._below(bucket)
                below = files.get(bucket, ())
                tasks.append(pool.submit(self._bucket_task, io, folder, bucket, below, winners))
            wait(tasks)
            for task in tasks:
                if task.exception() is None:
                    begun.extend(written_paths([task.result()]))  # safety: live-all-or-none
            results = [task.result() for task in tasks]
        written = {file.path: file.file_bytes for done in results for file in done.added}
        written |= {one.path: one.file_bytes for done in results for one in done.deletes.values()}
        return self._after(new.end, files, results), written

    def laid_over(self) -> LaidOver:
        """What is to be listed beside the snapshot's own manifests."""
        live = [file for files in self.files.values() for file in files]
        return LaidOver(
            added=[self.written[file.path] for file in live if file.path in self.written],
            deletes={
                file.path: (file.part, file.deletes)
                for file in live
                if file.deletes is not None and file.deletes != self._deletes_below(file.path)
            },
        )

    def paths(self) -> list[str]:
        """The files of ours that it is made of."""
        over = self.laid_over()
        paths = [file.path for file in over.added] + [deletes.path for _, deletes in over.deletes.values()]
        return list(dict.fromkeys(paths))

    def _bucket_task(
        self, io: FileIO, folder: str, bucket: int, below: Sequence[DataFile], winners: pa.Table
    ) -> BucketResult:
        records = records_of(self.definition, winners)
        return run_bucket_task(io, self.definition, folder, bucket, below, records)

    def _deletes_below(self, path: str) -> object:
        file = self.below.get(path)
        return file.deletes if file is not None else None

    def _below(self, bucket: int) -> list[DataFile]:
        return [file for file in self.below.values() if file.bucket == bucket]

    def _changed(self, view: HotView) -> Iterator[tuple[int, pa.Table, bool]]:
        """The buckets with records that are not laid over yet."""
        may_meet = self.end != self.seam and len(view.end) > 1
        for bucket in range(self.definition.buckets):
            winners = view.scan(bucket, self.end)
            if not winners.num_rows:
                continue
            keys = winners.column(KEY).to_pylist() if may_meet else ()
            # safety: live-several-partitions
            is_contested = view.is_in_several_partitions(bucket, keys, self.seam)
            if is_contested:
                winners = view.scan(bucket, self.seam)
            yield bucket, winners, is_contested

    def _after(self, end: Seam, before: FilesByBucket, results: Sequence[BucketResult]) -> Overlay:
        files = after_commit(before, results)
        live = {file.path for some in files.values() for file in some}
        written = {**self.written, **{file.path: file for done in results for file in done.added}}
        kept = {path: file for path, file in written.items() if path in live}
        return replace(self, end=end, files=files, written=kept)
