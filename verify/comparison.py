"""One verification, from the read point to the last bucket.

    read point     an extract fixes it; its rows wait in a file
    log            all that it still holds, decoded, by bucket into files
    buckets        table rows ↔ log before the seam; extract ↔ table overlaid with the log; hot tier ↔ log

In memory are a part of one bucket, what waits to be written, and the sample. `verify.lookups` follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from thermocline.errors import ReadPointGone, StorageFailed, first_line
from thermocline.iceberg.catalog import current_state, definition_of, open_table, state_of
from thermocline.iceberg.files import plan_files
from thermocline.kafka.log import Log
from thermocline.process.masking import mask_password
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.identity import check_identity
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from verify.bucket_parts import Part, parts_of
from verify.door_check import extract_findings, hot_entities, hot_findings, hot_records
from verify.doubts import Doubts, second_look
from verify.log_pass import LogPass, numbers_of, sampled
from verify.reading import Reading
from verify.sample import entities_of
from verify.spill import CountingFile, Spill
from verify.table_check import TableCheck
from verify.table_rows import RowsUnreadable, bucket_rows, least_offsets, with_keys

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.files import DataFile
    from thermocline.kafka.log import TopicConfig
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from verify.doors import Doors
    from verify.log_pass import Progress, ReadLog
    from verify.report import Report
    from verify.sample import Chosen

__all__ = ["Scope", "Verification", "Verified", "failed"]

EXTRACT: Final = "extract, MB"
MEMORY_BYTES: Final = 512 << 20
"""About what a verification takes, beside what Python and its libraries do."""
# Held before it is written, of each of two spills; and the records or rows of one part of a bucket, of which
# comparing them makes copies.
_HELD_SHARE: Final = 8
_PART_SHARE: Final = 16
# Buckets that are named where they could not be read: a table whose store is away has hundreds.
_NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Scope:
    """What is compared: all entities, or, where ``is_part``, the chosen ones alone."""

    chosen: Chosen
    is_part: bool
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Verified:
    """What lookups go on from."""

    definition: LiveTable
    reading: Reading
    log: ReadLog
    point: ReadPoint
    doubts: Doubts


@dataclass(slots=True)
class Verification:
    """Compares a table with its log and its doors; see the module. ``folder`` takes what memory does not.

    Without doors (None), the current snapshot's rows are compared with the log alone.
    """

    settings: Settings
    name: str
    doors: Doors | None
    scope: Scope
    folder: Path
    clock: Clock
    progress: Progress
    report: Report
    _extracted: Spill = field(init=False)
    _unread: dict[int, StorageFailed] = field(default_factory=dict)

    def run(self) -> Verified:
        """Everything but lookups.

        Raises:
            ReadPointGone: what the extract shows is not there any more, or the table was altered meanwhile.
            StorageFailed: a file of the table can't be read, or the temporary folder is full.
            ThermoclineError: a source is away, or the log does not fit the table.
        """
        try:
            return self._run()
        except (OSError, pa.ArrowException) as error:
            raise failed(self.settings, self.name, self.report.read_point, error) from error

    def _run(self) -> Verified:
        self._extracted = Spill(self.folder / "extract", self._held_bytes_max)
        path = self.folder / "extract.arrows"
        point = self._extract(path)
        table = open_table(self.settings, self.name)
        definition = definition_of(table, self.name)
        point = point or _as_it_is(table, definition)
        self.report.read_point = point
        reading = Reading.of(table, point.snapshot_id, definition)
        files = plan_files(table, point.snapshot_id, self.name)
        if reading.lacks_beginning:
            reading = reading.with_evidence(least_offsets(table.io, files))
        log = self._checked_log(table, definition, point)
        if self.doors is not None:
            self._take_extract(definition, path)
        began = self.clock.monotonic()
        read = self._read_log(log, reading, point)
        elapsed_ms = (self.clock.monotonic() - began) * 1000
        self.report.records, self.report.bad_records = read.read, read.bad
        check = _table_check(reading, read, log.configs(definition.topics), elapsed_ms, self.report)
        by_bucket = {bucket: list(some) for bucket, some in groupby(files, key=lambda file: file.bucket)}
        for bucket in range(definition.buckets):
            try:
                self._compare(table, by_bucket.get(bucket, ()), bucket, check, read, point)
            except RowsUnreadable as error:
                self._leave_out(bucket, read, error.__cause__ or error)
            self.progress("buckets", bucket + 1, definition.buckets)
        self._say_unread(by_bucket)
        check.finish()
        check.doubts.settle(
            second_look(log, self.settings.kafka.client_config(), definition, Seam(read.firsts), self.clock)
        )
        return Verified(definition, reading, read, point, check.doubts)

    @property
    def _held_bytes_max(self) -> int:
        return self.scope.memory_bytes // _HELD_SHARE

    def _extract(self, path: Path) -> ReadPoint | None:
        if self.doors is None:
            return None
        definition = definition_of(open_table(self.settings, self.name), self.name)
        columns = [*(column.name for column in definition.columns), *PROVENANCE]
        with CountingFile(path, lambda done: self.progress(EXTRACT, done >> 20, 0)) as sink:
            return self.doors.extract(columns, sink)

    def _checked_log(self, table: Table, definition: LiveTable, point: ReadPoint) -> Log:
        """The log, which must be the one that fed the snapshot."""
        snapshot = table.snapshot_by_id(point.snapshot_id)
        if snapshot is None:
            raise ReadPointGone(table=self.name, detail=f"snapshot {point.snapshot_id} is gone")
        log = Log(self.settings.kafka)
        if self.doors is not None:
            state = state_of(snapshot, self.name)
            if state.definition_version != definition.version:
                raise ReadPointGone(table=self.name, detail="the table's definition was altered meanwhile")
            check_identity(self.name, state.cluster_id, state.topic_ids, log, definition.topics)
        return log

    def _read_log(self, log: Log, reading: Reading, point: ReadPoint) -> ReadLog:
        cuts = [point.end]
        if self.doors is not None and self.doors.hot is not None:
            cuts.append(self.doors.hot.end)
        one = LogPass(
            log,
            self.settings.kafka.client_config(),
            reading,
            cuts,
            self.scope.chosen,
            self.scope.is_part,
            self.clock,
            self.progress,
        )
        return one.read(self.folder, self._held_bytes_max)

    def _take_extract(self, definition: LiveTable, path: Path) -> None:
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                rows = with_keys(definition, pa.Table.from_batches([batch]))
                self.scope.chosen.offer(entities_of(definition, rows))
                kept = self._kept(definition, rows)
                self._extracted.add(numbers_of(definition, kept), kept)
        self._extracted.flush()
        path.unlink()

    def _kept(self, definition: LiveTable, rows: pa.Table) -> pa.Table:
        return sampled(definition, rows, self.scope.chosen) if self.scope.is_part else rows

    def _compare(
        self,
        table: Table,
        files: Sequence[DataFile],
        bucket: int,
        check: TableCheck,
        read: ReadLog,
        point: ReadPoint,
    ) -> None:
        """One bucket: the table with the log, the extract with both, the hot tier with the log."""
        definition, hot = check.reading.definition, self.doors.hot if self.doors is not None else None
        parts = self._parts(table, definition, files, bucket, read, check)
        for (records, repeated), stored, shown, scanned in parts:
            read.entities.take_rows(sampled(definition, stored, self.scope.chosen))
            check.check(records, stored, repeated)
            if self.doors is not None:
                self.report.extracted += shown.num_rows
                beyond = hot_records(records, point.end)
                for one in extract_findings(definition, stored, beyond, shown, point):
                    check.doubts.take(one.finding, one.key, one.origin, point.end)
            if hot is not None and scanned is not None:
                self.report.hot += scanned.num_rows
                for one in hot_findings(definition, hot_records(records, hot.end), scanned):
                    check.doubts.take(one.finding, one.key, one.origin, hot.end)
        read.records.drop(bucket)
        self._extracted.drop(bucket)

    def _leave_out(self, bucket: int, read: ReadLog, error: BaseException) -> None:
        """Goes on without a bucket whose files can't be read: nothing of it was compared yet."""
        why = failed(self.settings, self.name, self.report.read_point, error)
        if isinstance(why, ReadPointGone):
            raise why from error
        self._unread[bucket] = why
        read.entities.leave_out(bucket)
        read.records.drop(bucket)
        self._extracted.drop(bucket)

    def _say_unread(self, with_files: Mapping[int, object]) -> None:
        """Names the buckets that were not compared; where that is all that have files, nothing was."""
        if not self._unread:
            return
        first = next(iter(self._unread.values()))
        if len(self._unread) == len(with_files):
            raise first
        names = ", ".join(str(bucket) for bucket in islice(self._unread, _NAMED_MAX))
        more = len(self._unread) - _NAMED_MAX
        names += f" and {more} more" if more > 0 else ""
        self.report.unchecked.append(f"rows of the buckets {names}: {first.what}")

    def _parts(
        self,
        table: Table,
        definition: LiveTable,
        files: Sequence[DataFile],
        bucket: int,
        read: ReadLog,
        check: TableCheck,
    ) -> Iterator[Part]:
        """A bucket by parts of its keys, one where it is small."""
        hot = self._scanned(definition, bucket, check.reading)
        stored = bucket_rows(table.io, definition, files)
        first = list(islice(stored, 1))
        whole = (read.records.read(bucket), chain(first, stored), self._extracted.read(bucket))
        # Entities that were chosen at first may have made room for others.
        sides = [(self._kept(definition, piece) for piece in side) for side in whole]
        size = max(read.records.bytes_of(bucket), self._extracted.bytes_of(bucket))
        if not self.scope.is_part:
            size = max(size, _bytes_about(first, files))
        count = 1 + size * _PART_SHARE // self.scope.memory_bytes
        yield from parts_of(definition, sides, hot, count, self.folder, self._held_bytes_max)

    def _scanned(self, definition: LiveTable, bucket: int, reading: Reading) -> pa.Table | None:
        if self.doors is None or self.doors.hot is None:
            return None
        scanned = self.doors.hot.scan(bucket, reading.seam)
        if not self.scope.is_part:
            return scanned
        return scanned.filter(
            pa.array(self.scope.chosen.holds(hot_entities(definition, scanned)), pa.bool_())
        )


def _bytes_about(first: Sequence[pa.Table], files: Sequence[DataFile]) -> int:
    """About what all rows of some files take in memory, by the first ones."""
    rows = sum(file.rows for file in files)
    return sum(-(-piece.nbytes // piece.num_rows) * rows for piece in first)


def failed(
    settings: Settings, name: str, point: ReadPoint | None, error: BaseException
) -> ReadPointGone | StorageFailed:
    """Why a file could not be read or written: its snapshot was expired meanwhile, or storage failed."""
    if point is not None and open_table(settings, name).snapshot_by_id(point.snapshot_id) is None:
        detail = f"snapshot {point.snapshot_id} was expired while it was compared"
        return ReadPointGone(table=name, detail=detail)
    return StorageFailed(table=name, detail=mask_password(first_line(error)))


def _table_check(
    reading: Reading,
    read: ReadLog,
    configs: Mapping[str, TopicConfig],
    elapsed_ms: float,
    report: Report,
) -> TableCheck:
    compacted = {topic for topic, config in configs.items() if config.is_compacted}
    fleeting = {topic for topic in compacted if configs[topic].delete_retention_ms < elapsed_ms}
    doubts = Doubts(compacted, reading.definition.key_from == "value", report)
    return TableCheck(reading, read.firsts, compacted, fleeting, report, doubts)


def _as_it_is(table: Table, definition: LiveTable) -> ReadPoint:
    """The current snapshot with the newest seam of its history, whoever made it."""
    current = table.current_snapshot()
    if current is None:
        current_state(table, definition.name)  # raises what there is to say
    assert current is not None
    seam = Reading.of(table, current.snapshot_id, definition).seam
    return ReadPoint(current.snapshot_id, seam, seam)
