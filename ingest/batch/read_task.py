"""The read task: a part of a source → decoded records, packed into one Arrow stream per bucket.

Packing before the shuffle spares the JVM every single record. Knows nothing of Spark.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from thermocline.errors import EngineFailed, RangeIncomplete, StorageFailed, ThermoclineError, first_line
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import delete_files
from thermocline.ingest import activity
from thermocline.ingest.quarantine import bad_records, write_quarantine_file
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import read_ranges
from thermocline.rules.bad_digest import digest_of, merged
from thermocline.rules.decode import Decoder, decoder_for, records_table
from thermocline.rules.decode.directory import DirectoryDecoder
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import PARTITION_TIME
from thermocline.rules.fold import OFFSET
from thermocline.rules.keys import buckets
from thermocline.rules.partition_time import PartitionTimes, RunningTimes
from thermocline.rules.routes.directory import Admission

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.ingest.batch.source import Source
    from thermocline.rules.decode import Bad
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry

# Records held before they are packed: about 40 MB of columns.
PACK_RECORDS_MAX = 200_000
# The same bound for large records.
PACK_BYTES_MAX = 64 << 20
# Bad records held before they are written: with records of 1 MB, Kafka's default limit, still below 1 GB.
QUARANTINE_RECORDS_MAX = 1_000
# Of a bug in a task: where it came from.
_TRACE_FRAMES, _TRACE_CHARACTERS = 3, 2_000
# The bucket under which a task's report travels with the packed records.
REPORT_BUCKET = -1

PACKED_SCHEMA = pa.schema([("bucket", pa.int32()), ("stream", pa.binary())])


class FirstBad(msgspec.Struct, frozen=True, order=True):
    """The first bad record of a stage, for the error that stops on it; ordered by its place in the log."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str


class ReadReport(msgspec.Struct):
    """What a read task covered and found; or, of a task of either kind, the error that ended it.

    ``filtered`` counts the records that are not the table's, ``bad`` the bad ones by stage; ``first_bad`` has
    the first of each, and ``bad_digest`` is of all of them (`rules.bad_digest`); ``parts`` are those of a
    source other than Kafka that were read; ``last_timestamps_ms`` and ``greatest_timestamps_ms`` are by
    "topic/partition"; ``error`` is a pickled error of ours. Of a route's directory, ``new_values`` are those
    that came, and ``outcomes`` counts what became of records with a value.
    """

    covered: list[tuple[str, int, int, int]]
    error: bytes | None = None
    records: int = 0
    read_bytes: int = 0
    filtered: int = 0
    bad: dict[str, int] = msgspec.field(default_factory=dict)
    bad_digest: int = 0
    first_bad: dict[str, FirstBad] = msgspec.field(default_factory=dict)
    quarantine_files: list[str] = msgspec.field(default_factory=list)
    parts: list[int] = msgspec.field(default_factory=list)
    sampled_values: int = 0
    unread_fields: dict[str, int] = msgspec.field(default_factory=dict)
    last_timestamps_ms: dict[str, int] = msgspec.field(default_factory=dict)
    greatest_timestamps_ms: dict[str, int] = msgspec.field(default_factory=dict)
    new_values: list[str] = msgspec.field(default_factory=list)
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)

    def took(self, topic: str, partition: int, timestamps_ms: Sequence[int]) -> None:
        """Note the times of a partition's next records."""
        place = f"{topic}/{partition}"
        self.last_timestamps_ms[place] = timestamps_ms[-1]
        greatest_ms = max(timestamps_ms)
        before_ms = self.greatest_timestamps_ms.get(place, greatest_ms)
        self.greatest_timestamps_ms[place] = max(before_ms, greatest_ms)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything that the tasks of a batch need, picklable; ``topic_ids`` is by topic.

    A catalog may grant access to each table by itself, so the quarantine has its own ``quarantine_io``.
    With the ``partition_times`` at the seam, the records say the partition time at each of them. The ranges
    then begin at the seam. Without, keys in several partitions are found, but not decided. ``admission`` is
    for a route's directory alone.
    """

    definition: LiveTable
    client_config: Mapping[str, Any]
    io: FileIO
    quarantine_io: FileIO
    quarantine_location: str
    topic_ids: Mapping[str, str]
    registry: SchemaRegistry | None = None
    partition_times: PartitionTimes | None = None
    admission: Admission = field(default_factory=Admission)


@dataclass(frozen=True, slots=True)
class KafkaRanges:
    """Planned ranges of the log, those of different partitions in a part; see `Source`."""

    splits: Sequence[Sequence[OffsetRange]]

    @property
    def parts(self) -> int:
        """See `Source`."""
        return len(self.splits)

    @property
    def records(self) -> int:
        """See `Source`."""
        return sum(one.end - one.first for some in self.splits for one in some)

    def read(self, task: ReadTask, part: int, report: ReadReport) -> Iterator[pa.Table]:
        """See `Source`. Bad records are written as quarantine files where the definition wants them kept.

        Raises where a range can't be read whole.
        """
        ranges = self.splits[part]
        decoder, unread = decoder_for(task.definition, task.registry), UnreadFields(task.definition)
        if isinstance(decoder, DirectoryDecoder):
            decoder.admission = task.admission
        running = None if task.partition_times is None else RunningTimes(task.partition_times)
        held_bad: list[pa.Table] = []
        for chunk in read_ranges(task.client_config, ranges, task.definition.name):
            failpoint("read-task.chunk")
            good, bad = _decode(task, decoder, unread, chunk, report)
            activity.advance(len(chunk.offsets))
            held_bad.append(bad)
            yield good if running is None else _timed(good, chunk, running)
            is_large = sum(table.nbytes for table in held_bad) >= PACK_BYTES_MAX
            if _rows(held_bad) >= QUARANTINE_RECORDS_MAX or is_large:
                _quarantine(task, held_bad, report)
        if _rows(held_bad):
            _quarantine(task, held_bad, report)
        if isinstance(decoder, DirectoryDecoder):
            report.new_values, report.outcomes = (
                sorted(decoder.came),
                {str(name): count for name, count in decoder.outcomes.items()},
            )
        report.covered = [(r.topic, r.partition, r.first, r.end) for r in ranges]

    def check(self, reports: Sequence[ReadReport]) -> None:
        """See `Source`: every planned range was reported as covered, whole."""
        covered = {OffsetRange(*one) for report in reports for one in report.covered}
        for wanted in (one for some in self.splits for one in some):
            if wanted not in covered:  # safety: a-batch-covers-what-was-planned
                raise RangeIncomplete(
                    topic=wanted.topic,
                    partition=wanted.partition,
                    first=wanted.first,
                    end=wanted.end,
                    reached=wanted.first,
                )


def run_read_task(task: ReadTask, source: Source, part: int) -> Iterator[pa.RecordBatch]:
    """Read a part of a source and give ``PACKED_SCHEMA`` batches, the report last.

    A part that can't be read whole ends the task with a report that covers nothing and carries the error.
    """
    report = ReadReport([])
    try:
        held: list[pa.Table] = []
        for good in source.read(task, part, report):
            held.append(good)
            if _rows(held) >= PACK_RECORDS_MAX or sum(table.nbytes for table in held) >= PACK_BYTES_MAX:
                yield _packed(task.definition, held)
        if _rows(held):
            yield _packed(task.definition, held)
    except BaseException as error:
        delete_files(task.quarantine_io, report.quarantine_files)  # no batch will know them
        if not isinstance(error, Exception):
            raise
        report.error = reported(task, error)
        report.covered, report.parts, report.quarantine_files = [], [], []
    yield _batch([REPORT_BUCKET], [msgspec.msgpack.encode(report)])


def reported(task: ReadTask, error: Exception) -> bytes:
    """What a task's report says of an error that ended it: what other tasks wrote is deleted then.

    A disk or a store that fails is waited out. That a file is missing does not pass.
    """
    # safety: tasks-wait-for-stores
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        error = StorageFailed(table=task.definition.name, detail=first_line(error))
    elif not isinstance(error, ThermoclineError):
        trace = "".join(traceback.format_exception(error, limit=-_TRACE_FRAMES)).strip()
        error = EngineFailed(engine="the engine", detail=trace[-_TRACE_CHARACTERS:])
    return pickle.dumps(error)


def _decode(
    task: ReadTask, decoder: Decoder, unread: UnreadFields, chunk: RecordChunk, report: ReadReport
) -> tuple[pa.Table, pa.Table]:
    decoded = decoder.decode(chunk.keys, chunk.values, chunk.headers_of, chunk.topic)
    report.records += len(chunk.offsets)
    report.read_bytes += sum(
        len(some) for part in (chunk.keys, chunk.values) for some in part if some is not None
    )
    count_bad(report, chunk, decoded.bad)
    report.filtered += len(decoded.filtered)
    sampled = unread.of(decoded.not_filtered(chunk.values))
    report.sampled_values += sampled.values
    for name, count in sampled.names.items():
        report.unread_fields[name] = report.unread_fields.get(name, 0) + count
    report.took(chunk.topic, chunk.partition, chunk.timestamps_ms)
    good = records_table(
        task.definition, decoded, chunk.topic, chunk.partition, chunk.offsets, chunk.timestamps_ms
    )
    kept = [bad for bad in decoded.bad if task.definition.on_error.of(bad.stage) == "quarantine"]
    return good, bad_records(chunk, task.topic_ids, kept)


def _timed(good: pa.Table, chunk: RecordChunk, running: RunningTimes) -> pa.Table:
    """The good records of a chunk with the partition time at each of them; bad ones count for it, too."""
    times_ms = running.take((chunk.topic, chunk.partition), chunk.timestamps_ms)
    of_good = np.searchsorted(chunk.offsets, good.column(OFFSET).to_numpy())
    return good.append_column(PARTITION_TIME, pa.array(times_ms[of_good]))


def count_bad(report: ReadReport, chunk: RecordChunk, bad: Sequence[Bad]) -> None:
    """Take up the bad records of a chunk."""
    digest = digest_of(chunk.topic, chunk.partition, (chunk.offsets[record.index] for record in bad))
    report.bad_digest = merged(report.bad_digest, digest)
    for record in bad:
        stage = record.stage.value
        report.bad[stage] = report.bad.get(stage, 0) + 1
        first = FirstBad(chunk.topic, chunk.partition, chunk.offsets[record.index], stage, record.reason)
        report.first_bad[stage] = min(first, report.first_bad.get(stage, first))


def _packed(definition: LiveTable, held: list[pa.Table]) -> pa.RecordBatch:
    """The held records as one row per bucket; empties the list."""
    records = pa.concat_tables(held).combine_chunks()
    held.clear()
    of_bucket = buckets(definition, records.column(definition.bucket_column.name).chunk(0))
    order = np.argsort(of_bucket, kind="stable")
    records = records.take(pa.array(order))
    edges = np.searchsorted(of_bucket[order], np.arange(definition.buckets + 1))
    filled = [bucket for bucket in range(definition.buckets) if edges[bucket] < edges[bucket + 1]]
    return _batch(filled, [_stream(records.slice(edges[b], edges[b + 1] - edges[b])) for b in filled])


def _stream(records: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(records)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _quarantine(task: ReadTask, held_bad: list[pa.Table], report: ReadReport) -> None:
    report.quarantine_files.append(
        write_quarantine_file(task.quarantine_io, task.quarantine_location, held_bad)
    )
    held_bad.clear()


def _batch(of_bucket: list[int], streams: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(of_bucket, pa.int32()), pa.array(streams, pa.binary())], schema=PACKED_SCHEMA
    )


def _rows(tables: list[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)
