"""A scan on any engine: the two sides of its shuffle of packed buckets, and each table's result, checked."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from thermocline.errors import InternalError, ThermoclineError
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import DataFile, delete_files
from thermocline.ingest.batch.read_task import REPORT_BUCKET, ReadReport, ReadTask, reported, run_read_task
from thermocline.process.logs import fields
from thermocline.process.memory import return_freed_memory
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task, written_paths

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.ingest.batch.scan import Scan
    from thermocline.ingest.batch.source import Source

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What the tasks of a batch gave: one report per read task, one result per bucket that had records."""

    reports: tuple[ReadReport, ...]
    buckets: tuple[BucketResult, ...]


def gather_all(
    results: Iterable[tuple[int, int, bytes]], scan: Scan
) -> tuple[BatchResult | ThermoclineError, ...]:
    """What a scan came to for each of its shares, from the results of its tasks, (share, bucket, encoded).

    An error is what `gather` raises of that share alone, or stands for a bug of ours there.
    """
    of_share: list[list[tuple[int, bytes]]] = [[] for _ in scan.shares]
    for number, bucket, result in results:
        of_share[number].append((bucket, result))
    found: list[BatchResult | ThermoclineError] = []
    for share, some in zip(scan.shares, of_share, strict=True):
        try:
            found.append(gather(some, scan.source, share.task.io, share.task.quarantine_io))
        except ThermoclineError as error:
            found.append(error)
        except Exception as bug:  # the files of the others are known here alone
            table = share.task.definition.name
            _logger.exception("a batch could not be put together", extra=fields(table=table))
            found.append(InternalError.of(bug, f"a batch of {table}"))  # safety: gathered-one-by-one
    return tuple(found)


def gather(
    results: Iterable[tuple[int, bytes]], source: Source, io: FileIO, quarantine_io: FileIO
) -> BatchResult:
    """The batch's result from its tasks' results, (bucket, encoded); reports have a bucket of their own.

    When this raises, whatever it is, the files that the tasks wrote are deleted: no commit will name them.

    Raises:
        RangeIncomplete: what the reports say was covered is not all of the source.
        ThermoclineError: what ended a task.
    """
    reports: list[ReadReport] = []
    buckets: list[BucketResult] = []
    try:
        for bucket, result in results:
            if bucket == REPORT_BUCKET:
                reports += msgspec.msgpack.decode(result, type=list[ReadReport])
            else:
                buckets.append(msgspec.msgpack.decode(result, type=BucketResult))
        failpoint("batch.gathered")
        _check(reports, source)
    except BaseException:  # safety: gather-leaves-no-file
        delete_files(io, written_paths(buckets))
        delete_files(quarantine_io, [path for report in reports for path in report.quarantine_files])
        raise
    return BatchResult(tuple(reports), tuple(buckets))


Reader = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Writer = Callable[[tuple[Any, ...], pa.Table], pa.Table]


class WriteShare(NamedTuple):
    """A share as `writer` needs it; ``files`` are what `encoded_files` made."""

    task: ReadTask
    data_location: str
    files: Mapping[int, bytes]


def reader(tasks: Callable[[], Sequence[ReadTask]], source: Source) -> Reader:
    """From batches with the numbers of parts (``id``) to packed buckets (``share``, ``bucket``, ``stream``).

    ``tasks`` gives those of the shares, in their order.
    """

    def read(ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        of_shares = tasks()
        for batch in ids:
            for index in batch.column("id").to_pylist():
                yield from run_read_task(of_shares, source, index)
                return_freed_memory()

    return read


def encoded_files(files: Mapping[int, Sequence[DataFile]]) -> dict[int, bytes]:
    """By bucket, for `writer`: a task gets those of all buckets, but takes apart only those of its own."""
    return {bucket: msgspec.msgpack.encode(some) for bucket, some in files.items()}


def writer(share_of: Callable[[int], WriteShare]) -> Writer:
    """From the numbers of a share and a bucket, with its packed records, to what came of it, encoded.

    That is a row of ``share``, ``bucket`` and ``result``.
    """

    def write(group: tuple[Any, ...], packed: pa.Table) -> pa.Table:
        number, bucket = (one.as_py() for one in group)
        streams = packed.column("stream")
        if bucket == REPORT_BUCKET:
            reports = [msgspec.msgpack.decode(stream.as_py(), type=ReadReport) for stream in streams]
            return _result(number, bucket, msgspec.msgpack.encode(reports))
        task, data_location, files = share_of(number)
        records = pa.concat_tables(pa.ipc.open_stream(stream.as_buffer()).read_all() for stream in streams)
        encoded = files.get(bucket)
        some = [] if encoded is None else msgspec.msgpack.decode(encoded, type=list[DataFile])
        try:
            done = run_bucket_task(task.io, task.definition, data_location, bucket, some, records)
        except Exception as error:  # noqa: BLE001  whatever it is, the files of other buckets are to go
            report = ReadReport([], reported(task, error))
            return _result(number, REPORT_BUCKET, msgspec.msgpack.encode([report]))
        return_freed_memory()
        return _result(number, bucket, msgspec.msgpack.encode(done))

    return write


def _result(share: int, bucket: int, result: bytes) -> pa.Table:
    return pa.table(
        {
            "share": pa.array([share], pa.int32()),
            "bucket": pa.array([bucket], pa.int32()),
            "result": pa.array([result], pa.binary()),
        }
    )


def _check(reports: Sequence[ReadReport], source: Source) -> None:
    for report in reports:
        if report.error is not None:
            # safety: a-read-task's-error-ends-the-batch
            raise pickle.loads(report.error)  # noqa: S301  made by a worker of ours a moment ago
    source.check(reports)  # safety: beh-coverage, coverage-is-looked-at
