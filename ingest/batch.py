"""Run one batch on Spark: read tasks, a shuffle of packed buckets, bucket tasks; what came of it, checked."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ingest.bucket_task import BucketResult, run_bucket_task
from ingest.change import written_paths
from ingest.java import JAVA_ERRORS
from ingest.read_task import REPORT_BUCKET, ReadReport, ReadTask, run_read_task
from thermocline.errors import EngineFailed, RangeIncomplete, ThermoclineError
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import DataFile, delete_files
from thermocline.kafka.log import OffsetRange

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyspark.sql import SparkSession

_PACKED_COLUMNS = "bucket int, stream binary"
_RESULT_COLUMNS = "bucket int, result binary"
# Twice as many groups of buckets as cores evens out buckets of different sizes.
_GROUPS_PER_CORE = 2
# Enough of a failed job's words to hold its innermost cause.
_DETAIL_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the tasks of a batch gave: one report per read task, one result per bucket that had records."""

    reports: tuple[ReadReport, ...]
    buckets: tuple[BucketResult, ...]


def run_batch(
    spark: SparkSession,
    task: ReadTask,
    data_location: str,
    tasks: Sequence[Sequence[OffsetRange]],
    files: Mapping[int, Sequence[DataFile]],
) -> BatchResult:
    """Read the ranges, fold and probe every bucket, write its files. Nothing is committed.

    Args:
        tasks: the planned ranges, one list per read task (``ingest.plan.split_for_tasks``).
        files: the live data files of the snapshot that the batch was planned on, by bucket.

    Raises:
        RangeIncomplete: what the tasks say they covered is not what was planned.
        EngineFailed: the Spark job failed. An error of ours in a read task is raised as itself.
    """
    with _engine_errors():
        packed = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_reader(task, tasks), _PACKED_COLUMNS)
        groups = packed.repartition(_GROUPS_PER_CORE * parallelism(spark), "bucket").groupBy("bucket")
        rows = groups.applyInArrow(_writer(task, data_location, _packed(files)), _RESULT_COLUMNS).collect()
    failpoint("batch.gathered")
    results = ((row.bucket, row.result) for row in rows)
    return gather(results, [planned for ranges in tasks for planned in ranges], task.io)


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once. Raises `EngineFailed`."""
    with _engine_errors():
        return spark.sparkContext.defaultParallelism


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except JAVA_ERRORS as error:
        raise EngineFailed(engine="Spark", detail=str(error)[:_DETAIL_CHARACTERS]) from error


def gather(results: Iterable[tuple[int, bytes]], planned: Sequence[OffsetRange], io: FileIO) -> BatchResult:
    """The batch's result from its tasks' results, (bucket, encoded); reports have a bucket of their own.

    When this raises, the files that the tasks wrote are deleted: no commit will name them.

    Raises:
        RangeIncomplete: what the reports say was covered is not what was planned.
        ThermoclineError: what ended a read task.
    """
    reports: list[ReadReport] = []
    buckets: list[BucketResult] = []
    for bucket, result in results:
        if bucket == REPORT_BUCKET:
            reports += msgspec.msgpack.decode(result, type=list[ReadReport])
        else:
            buckets.append(msgspec.msgpack.decode(result, type=BucketResult))
    try:
        _check(reports, planned)
    except ThermoclineError:
        kept = [path for report in reports for path in report.quarantine_files]
        delete_files(io, [*written_paths(buckets), *kept])
        raise
    return BatchResult(tuple(reports), tuple(buckets))


_Reader = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _reader(task: ReadTask, tasks: Sequence[Sequence[OffsetRange]]) -> _Reader:
    def read(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for index in batch.column("id").to_pylist():
                yield from run_read_task(task, tasks[index])

    return read


def _packed(files: Mapping[int, Sequence[DataFile]]) -> dict[int, bytes]:
    """Each bucket's files as bytes: a task gets all of them, but takes apart only those of its buckets."""
    return {bucket: msgspec.msgpack.encode(some) for bucket, some in files.items()}


def _writer(
    task: ReadTask, data_location: str, files: Mapping[int, bytes]
) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    def write(group: tuple[Any, ...], packed: pa.Table) -> pa.Table:
        bucket = group[0].as_py()
        streams = packed.column("stream")
        if bucket == REPORT_BUCKET:
            reports = [msgspec.msgpack.decode(stream.as_py(), type=ReadReport) for stream in streams]
            return _result(bucket, msgspec.msgpack.encode(reports))
        records = pa.concat_tables(pa.ipc.open_stream(stream.as_buffer()).read_all() for stream in streams)
        some = msgspec.msgpack.decode(files[bucket], type=list[DataFile]) if bucket in files else []
        done = run_bucket_task(task.io, task.definition, data_location, bucket, some, records)
        return _result(bucket, msgspec.msgpack.encode(done))

    return write


def _result(bucket: int, result: bytes) -> pa.Table:
    return pa.table({"bucket": pa.array([bucket], pa.int32()), "result": pa.array([result], pa.binary())})


def _check(reports: Sequence[ReadReport], planned: Sequence[OffsetRange]) -> None:
    for report in reports:
        if report.error is not None:
            raise pickle.loads(report.error)  # noqa: S301  made by a worker of ours a moment ago
    _check_coverage(reports, planned)


def _check_coverage(reports: Sequence[ReadReport], planned: Sequence[OffsetRange]) -> None:
    """The driver's own look: every planned range was reported as covered, whole."""
    covered = {OffsetRange(*one) for report in reports for one in report.covered}
    for wanted in planned:
        if wanted not in covered:
            raise RangeIncomplete(
                topic=wanted.topic,
                partition=wanted.partition,
                first=wanted.first,
                end=wanted.end,
                reached=wanted.first,
            )
