"""The read task: a part of a source → decoded records, packed into one Arrow stream per table and bucket.

A part is read once, for all tables that share the scan, and decoded for each. Packing before the shuffle
spares the JVM every single record. Knows nothing of Spark.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from thermocline.errors import (
    EngineFailed,
    OffsetsGone,
    RangeIncomplete,
    StorageFailed,
    ThermoclineError,
    first_line,
)
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import delete_files
from thermocline.ingest import activity
from thermocline.ingest.batch.first_schemas import FirstSchemas
from thermocline.ingest.batch.met_schemas import Met, SchemaMeter
from thermocline.ingest.batch.source import Together
from thermocline.ingest.quarantine import bad_records, write_quarantine_file
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import read_ranges
from thermocline.rules.bad_digest import digest_of, merged
from thermocline.rules.contract.refusing import REFUSED
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.decode.directory import DirectoryDecoder
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import PARTITION_TIME
from thermocline.rules.fold import OFFSET
from thermocline.rules.keys import buckets
from thermocline.rules.partition_time import PartitionTimes, RunningTimes
from thermocline.rules.routes.directory import Admission
from thermocline.rules.routes.own_columns import FirstSchema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.ingest.batch.source import Source, SourceReader
    from thermocline.rules.decode import Bad, Decoded
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry

# Records held before they are packed, those of all tables: about 40 MB of columns.
PACK_RECORDS_MAX = 200_000
# The same bound for large records.
PACK_BYTES_MAX = 64 << 20
# Bad records held before they are written: with records of 1 MB, Kafka's default limit, still below 1 GB.
QUARANTINE_RECORDS_MAX = 1_000
# Of a bug in a task: where it came from.
_TRACE_FRAMES, _TRACE_CHARACTERS = 3, 2_000
# The bucket under which a task's report travels with the packed records.
REPORT_BUCKET = -1

PACKED_SCHEMA = pa.schema([("share", pa.int32()), ("bucket", pa.int32()), ("stream", pa.binary())])
"""``share`` is the place of a table's share in its scan."""


class FirstBad(msgspec.Struct, frozen=True, order=True):
    """The first bad record of a stage, for the error that stops on it; ordered by its place in the log."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str


class ReadReport(msgspec.Struct):
    """What a read task covered and found for a table; or, of a task of either kind, the error that ended it.

    ``filtered`` counts the records that are not the table's, but for ``unmatched``, which delete a row;
    ``bad`` counts the bad ones by stage, ``refused`` those of them that the table's contract refuses;
    ``first_bad`` has the first of each stage, and ``bad_digest`` is of all of them (`rules.bad_digest`);
    ``parts`` are those of a source other than Kafka that were read;
    ``packed_bytes`` is what the records take until their buckets are written; ``last_timestamps_ms`` and
    ``greatest_timestamps_ms`` are by "topic/partition"; ``met`` is what the table's contract is judged by;
    ``error`` is a pickled error of ours. Of a route's directory, ``new_values`` are those that came,
    ``first_schemas`` what the first record of a value names where its table is to have its own columns, and
    ``outcomes`` counts what became of records with a value.
    """

    covered: list[tuple[str, int, int, int]]
    error: bytes | None = None
    records: int = 0
    read_bytes: int = 0
    packed_bytes: int = 0
    filtered: int = 0
    unmatched: int = 0
    bad: dict[str, int] = msgspec.field(default_factory=dict)
    refused: int = 0
    bad_digest: int = 0
    first_bad: dict[str, FirstBad] = msgspec.field(default_factory=dict)
    quarantine_files: list[str] = msgspec.field(default_factory=list)
    parts: list[int] = msgspec.field(default_factory=list)
    sampled_values: int = 0
    unread_fields: dict[str, int] = msgspec.field(default_factory=dict)
    last_timestamps_ms: dict[str, int] = msgspec.field(default_factory=dict)
    greatest_timestamps_ms: dict[str, int] = msgspec.field(default_factory=dict)
    new_values: list[str] = msgspec.field(default_factory=list)
    first_schemas: dict[str, FirstSchema] = msgspec.field(default_factory=dict)
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)
    met: Met = msgspec.field(default_factory=Met)

    def took(self, chunk: RecordChunk) -> None:
        """Note the times of a partition's next records."""
        place = f"{chunk.topic}/{chunk.partition}"
        self.last_timestamps_ms[place] = chunk.timestamps_ms[-1]
        greatest_ms = chunk.greatest_timestamp_ms
        before_ms = self.greatest_timestamps_ms.get(place, greatest_ms)
        self.greatest_timestamps_ms[place] = max(before_ms, greatest_ms)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything that the tasks of a batch need, picklable; ``topic_ids`` is by topic.

    A catalog may grant access to each table by itself, so the quarantine has its own ``quarantine_io``.
    With the ``partition_times`` at the seam, the records say the partition time at each of them. The ranges
    then begin at the seam. Without, keys in several partitions are found, but not decided. ``admission`` is
    for a route's directory alone. ``within`` are the table's ranges of a scan that reads more of the log;
    empty for all.
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
    within: tuple[OffsetRange, ...] = ()


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

    def pieces(self, task: ReadTask, part: int) -> Generator[RecordChunk, None, None]:
        """See `Source`: chunks of the log. Raises where a range can't be read whole."""
        for chunk in read_ranges(task.client_config, self.splits[part], task.definition.name):
            failpoint("read-task.chunk")
            yield chunk
            activity.advance(len(chunk.offsets))

    def reader(self, task: ReadTask, part: int, together: Together) -> RangesReader:
        """See `Source`."""
        return RangesReader(task, self.splits[part], together)

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


class RangesReader:
    """Decodes chunks of the log for one table, and keeps its bad records; see `SourceReader`.

    Bad records are written as quarantine files where the definition wants them kept.
    """

    def __init__(self, task: ReadTask, ranges: Sequence[OffsetRange], together: Together) -> None:
        self._task, self._ranges = task, ranges
        self._decoder = decoder_for(task.definition, task.registry, together.texts)
        if isinstance(self._decoder, DirectoryDecoder):
            self._decoder.admission = task.admission
        self._first_schemas = FirstSchemas(task.definition, task.registry)
        self._unread = UnreadFields(task.definition, task.registry)
        self._meter = SchemaMeter(task.definition, task.registry)
        self._running = None if task.partition_times is None else RunningTimes(task.partition_times)
        self._held_bad: list[pa.Table] = []
        self._held_bytes_max = PACK_BYTES_MAX // together.tables
        self._nothing = task.definition.records_schema.empty_table()

    def take(self, piece: RecordChunk, report: ReadReport) -> pa.Table:
        """See `SourceReader`."""
        own = piece.within(self._task.within) if self._task.within else piece
        return self._nothing if own is None else self._taken(own, report)

    def _taken(self, piece: RecordChunk, report: ReadReport) -> pa.Table:
        decoded = self._decoder.decode(piece.keys, piece.values, piece.headers_of, piece.topic)
        if isinstance(self._decoder, DirectoryDecoder):
            self._first_schemas.take(piece, self._decoder.places, report.first_schemas)
        report.records += len(piece.offsets)
        report.read_bytes += piece.content_bytes
        report.filtered += len(decoded.filtered)
        report.unmatched += len(decoded.unmatched)
        report.took(piece)
        good = self._nothing
        if len(decoded.filtered) < len(piece.offsets):
            good = self._good(piece, decoded, report)
        return good if self._running is None else _timed(good, piece, self._running)

    def _good(self, piece: RecordChunk, decoded: Decoded, report: ReadReport) -> pa.Table:
        """The good records; the bad ones are kept, and what else the table's records say is noted."""
        count_bad(report, piece, decoded.bad)
        self._meter.take(piece, decoded.ours_of(len(piece.values)), report.met)
        sampled = self._unread.of(piece.values, headers_of=piece.headers_of, others=decoded.others)
        report.sampled_values += sampled.values
        for name, count in sampled.names.items():
            report.unread_fields[name] = report.unread_fields.get(name, 0) + count
        on_error = self._task.definition.on_error
        kept = [bad for bad in decoded.bad if on_error.of(bad.stage) == "quarantine"]
        bad = bad_records(piece, self._task.topic_ids, kept)
        if bad.num_rows:
            self._held_bad.append(bad)
            is_large = _size(self._held_bad) >= self._held_bytes_max
            if is_large or _rows(self._held_bad) >= QUARANTINE_RECORDS_MAX:
                _quarantine(self._task, self._held_bad, report)
        return records_table(
            self._task.definition, decoded, piece.topic, piece.partition, piece.offsets, piece.timestamps_ms
        )

    def end(self, report: ReadReport) -> None:
        """See `SourceReader`."""
        if self._held_bad:
            _quarantine(self._task, self._held_bad, report)
        if isinstance(self._decoder, DirectoryDecoder):
            report.new_values = sorted(self._decoder.came)
            report.outcomes = {str(name): count for name, count in self._decoder.outcomes.items()}
        report.covered = [(one.topic, one.partition, one.first, one.end) for one in self._ranges]


def run_read_task(tasks: Sequence[ReadTask], source: Source, part: int) -> Iterator[pa.RecordBatch]:
    """Read a part of a source once, for the tables of these tasks, and give ``PACKED_SCHEMA`` batches.

    The reports come last, one for each table. Where the part can't be read whole for a table, its report
    covers nothing and carries the error. What fails for one table alone ends none of the others.
    """
    shares = [_ReadShare(number, task) for number, task in enumerate(tasks)]
    try:
        yield from _packed_of_all(shares, source, part, tasks[0])
    except BaseException as error:
        for share in shares:
            share.fail(error)
        if not isinstance(error, Exception):
            raise
    for share in shares:
        yield _batch(share.number, [REPORT_BUCKET], [msgspec.msgpack.encode(share.report)])


def _packed_of_all(
    shares: Sequence[_ReadShare], source: Source, part: int, task: ReadTask
) -> Iterator[pa.RecordBatch]:
    together = Together(len(shares))
    for share in shares:
        share.begin(source, part, together)
    with closing(source.pieces(task, part)) as pieces:
        for piece in pieces:
            for share in shares:
                share.take(piece)
            if _is_much(shares):
                yield from _all_packed(shares)
            if all(share.has_failed for share in shares):
                return
    yield from _all_packed(shares)
    for share in shares:
        share.end()


class _ReadShare:
    """What a read task does for one table; once it has failed, nothing more."""

    def __init__(self, number: int, task: ReadTask) -> None:
        self.number, self._task, self.report = number, task, ReadReport([])
        self._reader: SourceReader | None = None
        self._held: list[pa.Table] = []
        self.rows, self.bytes = 0, 0

    def begin(self, source: Source, part: int, together: Together) -> None:
        with self._failing_alone():
            self._reader = source.reader(self._task, part, together)

    def take(self, piece: Any) -> None:
        if self._reader is None:
            return
        with self._failing_alone():
            good = self._reader.take(piece, self.report)
            if good.num_rows:
                self._held.append(good)
                self.rows, self.bytes = self.rows + good.num_rows, self.bytes + good.nbytes

    def packed(self) -> pa.RecordBatch | None:
        """What is held, which is let go of."""
        if not self._held:
            return None
        with self._failing_alone():
            batch = _packed(self.number, self._task.definition, self._held)
            self.rows, self.bytes = 0, 0
            self.report.packed_bytes += batch.nbytes
            return batch
        return None

    def end(self) -> None:
        if self._reader is not None:
            with self._failing_alone():
                self._reader.end(self.report)

    @property
    def has_failed(self) -> bool:
        return self.report.error is not None

    def fail(self, error: BaseException) -> None:
        """The report covers nothing, and no file stays that no batch will know."""
        if self.has_failed:
            return
        delete_files(self._task.quarantine_io, self.report.quarantine_files)
        self.report.error = reported(self._task, error) if isinstance(error, Exception) else b""
        self.report.covered, self.report.parts, self.report.quarantine_files = [], [], []
        self._reader, self.rows, self.bytes = None, 0, 0
        self._held.clear()

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever it is, it is this table's
            self.fail(error)  # safety: a-share-fails-alone


def _is_much(shares: Sequence[_ReadShare]) -> bool:
    records, held_bytes = sum(share.rows for share in shares), sum(share.bytes for share in shares)
    return records >= PACK_RECORDS_MAX or held_bytes >= PACK_BYTES_MAX  # safety: all-shares-are-bounded


def _all_packed(shares: Sequence[_ReadShare]) -> Iterator[pa.RecordBatch]:
    for share in shares:
        if (batch := share.packed()) is not None:
            yield batch


def reported(task: ReadTask, error: Exception) -> bytes:
    """What a task's report says of an error that ended it: what other tasks wrote is deleted then.

    A disk or a store that fails is waited out. That a file is missing does not pass.
    """
    if isinstance(error, OffsetsGone):  # of a scan that several tables share, it names any of them
        error = OffsetsGone(table=task.definition.name, gaps=error.gaps)
    # safety: tasks-wait-for-stores
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        error = StorageFailed(table=task.definition.name, detail=first_line(error))
    elif not isinstance(error, ThermoclineError):
        trace = "".join(traceback.format_exception(error, limit=-_TRACE_FRAMES)).strip()
        error = EngineFailed(engine="the engine", detail=trace[-_TRACE_CHARACTERS:])
    return pickle.dumps(error)


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
        report.refused += record.reason.startswith(REFUSED)
        first = FirstBad(chunk.topic, chunk.partition, chunk.offsets[record.index], stage, record.reason)
        report.first_bad[stage] = min(first, report.first_bad.get(stage, first))


def _packed(share: int, definition: LiveTable, held: list[pa.Table]) -> pa.RecordBatch:
    """The held records as one row per bucket; empties the list."""
    records = pa.concat_tables(held).combine_chunks()
    held.clear()
    of_bucket = buckets(definition, records.column(definition.bucket_column.name).chunk(0))
    order = np.argsort(of_bucket, kind="stable")
    records = records.take(pa.array(order))
    edges = np.searchsorted(of_bucket[order], np.arange(definition.buckets + 1))
    filled = [bucket for bucket in range(definition.buckets) if edges[bucket] < edges[bucket + 1]]
    return _batch(share, filled, [_stream(records.slice(edges[b], edges[b + 1] - edges[b])) for b in filled])


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


def _batch(share: int, of_bucket: list[int], streams: list[bytes]) -> pa.RecordBatch:
    shares = [share] * len(of_bucket)
    return pa.record_batch(
        [pa.array(shares, pa.int32()), pa.array(of_bucket, pa.int32()), pa.array(streams, pa.binary())],
        schema=PACKED_SCHEMA,
    )


def _rows(tables: list[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def _size(tables: list[pa.Table]) -> int:
    return sum(table.nbytes for table in tables)
