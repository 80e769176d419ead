"""One batch on any engine: the two sides of its shuffle of packed buckets, and its result, checked."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from thermocline.errors import ThermoclineError
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import DataFile, delete_files
from thermocline.ingest.batch.read_task import REPORT_BUCKET, ReadReport, ReadTask, reported, run_read_task
from thermocline.process.memory import return_freed_memory
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task, written_paths

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.ingest.batch.source import Source


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the tasks of a batch gave: one report per read task, one result per bucket that had records."""

    reports: tuple[ReadReport, ...]
    buckets: tuple[BucketResult, ...]


def gather(
    results: Iterable[tuple[int, bytes]], source: Source, io: FileIO, quarantine_io: FileIO
) -> BatchResult:
    """The batch's result from its tasks' results, (bucket, encoded); reports have a bucket of their own.

    When this raises, the files that the tasks wrote are deleted: no commit will name them.

    Raises:
        RangeIncomplete: what the reports say was covered is not all of the source.
        ThermoclineError: what ended a task.
    """
    failpoint("batch.gathered")
    reports: list[ReadReport] = []
    buckets: list[BucketResult] = []
    for bucket, result in results:
        if bucket == REPORT_BUCKET:
            reports += msgspec.msgpack.decode(result, type=list[ReadReport])
        else:
            buckets.append(msgspec.msgpack.decode(result, type=BucketResult))
    try:
        _check(reports, source)
    except ThermoclineError:
        delete_files(io, written_paths(buckets))
        delete_files(quarantine_io, [path for report in reports for path in report.quarantine_files])
        raise
    return BatchResult(tuple(reports), tuple(buckets))


Reader = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Writer = Callable[[tuple[Any, ...], pa.Table], pa.Table]


def reader(task: ReadTask, source: Source) -> Reader:
    """From batches with the numbers of read tasks (``id``) to packed buckets (``bucket``, ``stream``)."""

    def read(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for index in batch.column("id").to_pylist():
                yield from run_read_task(task, source, index)
                return_freed_memory()

    return read


def encoded_files(files: Mapping[int, Sequence[DataFile]]) -> dict[int, bytes]:
    """By bucket, for `writer`: a task gets those of all buckets, but takes apart only those of its own."""
    return {bucket: msgspec.msgpack.encode(some) for bucket, some in files.items()}


def writer(task: ReadTask, data_location: str, files: Callable[[], Mapping[int, bytes]]) -> Writer:
    """From a bucket's number and its packed records to what came of it, encoded (``bucket``, ``result``).

    ``files`` gives what `encoded_files` made.
    """

    def write(group: tuple[Any, ...], packed: pa.Table) -> pa.Table:
        bucket = group[0].as_py()
        streams = packed.column("stream")
        if bucket == REPORT_BUCKET:
            reports = [msgspec.msgpack.decode(stream.as_py(), type=ReadReport) for stream in streams]
            return _result(bucket, msgspec.msgpack.encode(reports))
        records = pa.concat_tables(pa.ipc.open_stream(stream.as_buffer()).read_all() for stream in streams)
        encoded = files().get(bucket)
        some = [] if encoded is None else msgspec.msgpack.decode(encoded, type=list[DataFile])
        try:
            done = run_bucket_task(task.io, task.definition, data_location, bucket, some, records)
        except Exception as error:  # noqa: BLE001  whatever it is, the files of other buckets are to go
            report = ReadReport([], reported(task, error))
            return _result(REPORT_BUCKET, msgspec.msgpack.encode([report]))
        return_freed_memory()
        return _result(bucket, msgspec.msgpack.encode(done))

    return write


def _result(bucket: int, result: bytes) -> pa.Table:
    return pa.table({"bucket": pa.array([bucket], pa.int32()), "result": pa.array([result], pa.binary())})


def _check(reports: Sequence[ReadReport], source: Source) -> None:
    for report in reports:
        if report.error is not None:
            # safety: a-read-task's-error-ends-the-batch
            raise pickle.loads(report.error)  # noqa: S301  made by a worker of ours a moment ago
    source.check(reports)  # safety: beh-coverage, coverage-is-looked-at
