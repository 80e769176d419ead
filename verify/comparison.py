"""One verification, from the read point to the last key.

    read point     an extract fixes it; its rows wait in a file
    staging        rows of the extract, the log's records, rows of the table, winners of the hot tier
    comparison     table rows ↔ log before the seam; extract ↔ table overlaid with the log; hot tier ↔ log

In memory are DuckDB's share and the sample. `verify.lookups` follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from thermocline.errors import ReadPointGone, StorageFailed, first_line
from thermocline.iceberg.catalog import current_state, definition_of, open_table, state_of
from thermocline.iceberg.files import plan_files
from thermocline.iceberg.reading import Reading
from thermocline.kafka.log import Log
from thermocline.process.masking import mask_password
from thermocline.rules.identity import check_identity
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.verify.extract_file import extracted_rows, write_extract
from thermocline.verify.log_pass import LogPass, sampled
from thermocline.verify.overlay_check import extract_findings, hot_findings, unpacked
from thermocline.verify.sample import entities_of
from thermocline.verify.staging import EXTRACT, HOT, REMEMBERED, STORAGE_ERRORS, STORED, Staging
from thermocline.verify.table_check import TableCheck
from thermocline.verify.table_rows import RowsUnreadable, bucket_rows, least_offsets, remembered_deletes
from thermocline.verify.unconfirmed import UnconfirmedFindings, second_look

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.files import DataFile
    from thermocline.kafka.facts import TopicConfig
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from thermocline.verify.log_pass import Progress, ReadLog
    from thermocline.verify.read_paths import ReadPaths
    from thermocline.verify.report import Report
    from thermocline.verify.sample import Chosen

__all__ = ["Scope", "Verification", "Verified", "failed"]

EXTRACTING: Final = "extract, MB"
ROWS: Final = "rows, buckets"
COMPARING: Final = "comparing"
MEMORY_BYTES: Final = 512 << 20
"""The memory of the comparison, beside what Python and its libraries take."""
# Buckets that are named where they could not be read: a table whose store is unavailable has hundreds.
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
    unconfirmed: UnconfirmedFindings


@dataclass(slots=True)
class Verification:
    """Compares a table with its log and its read paths. ``folder`` takes what memory does not.

    Without read paths (None), the current snapshot's rows are compared with the log alone.
    """

    settings: Settings
    name: str
    read_paths: ReadPaths | None
    scope: Scope
    folder: Path
    clock: Clock
    progress: Progress
    report: Report
    _unread: dict[int, StorageFailed] = field(default_factory=dict)

    def run(self) -> Verified:
        """Everything but lookups.

        Raises:
            ReadPointGone: what the extract shows is not there any more, or the table was altered meanwhile.
            StorageFailed: a file of the table can't be read, or the temporary folder is full.
            ThermoclineError: a source is unavailable, or the log does not fit the table.
        """
        try:
            return self._run()
        except (OSError, pa.ArrowException, *STORAGE_ERRORS) as error:
            raise failed(self.settings, self.name, self.report.read_point, error) from error

    def _run(self) -> Verified:
        path = self.folder / "extract.arrows"
        point = self._extract(path)
        table = open_table(self.settings, self.name)
        definition = definition_of(table, self.name)
        point = point or _as_it_is(table, definition)
        self.report.read_point = point
        reading = Reading.of(table, point.snapshot_id, definition)
        log = self._checked_log(table, definition, point)  # before the files: they are of its definition
        files = plan_files(table, point.snapshot_id, self.name)
        if reading.lacks_beginning:
            reading = reading.with_evidence(least_offsets(table.io, definition, files))
        with closing(Staging(self.folder, definition, self.scope.memory_bytes)) as staging:
            if self.read_paths is not None:
                self._take_extract(staging, path)
            began = self.clock.monotonic()
            read = self._read_log(log, reading, point, staging)
            elapsed_ms = (self.clock.monotonic() - began) * 1000
            self.report.records, self.report.bad_records = read.read, read.bad
            self.report.filtered = read.filtered
            by_bucket = {bucket: list(some) for bucket, some in groupby(files, key=lambda file: file.bucket)}
            self._take_rows(table, reading, by_bucket, staging, read)
            if self.scope.is_part:  # entities that were chosen at first may have made room for others
                staging.keep(self.scope.chosen)
            check = _table_check(reading, read, log.configs(definition.topics), elapsed_ms, self.report)
            self._compare(staging, check, point)
        check.unconfirmed.settle(
            second_look(
                log,
                self.settings.kafka.client_config(),
                definition,
                Seam(read.firsts),
                self.clock,
                self.settings.registry.client(),
            )
        )
        return Verified(definition, reading, read, point, check.unconfirmed)

    def _extract(self, path: Path) -> ReadPoint | None:
        if self.read_paths is None:
            return None
        definition = definition_of(open_table(self.settings, self.name), self.name)
        return write_extract(
            self.read_paths, definition, path, lambda done: self.progress(EXTRACTING, done >> 20, 0)
        )

    def _checked_log(self, table: Table, definition: LiveTable, point: ReadPoint) -> Log:
        """The log, which must be the one that fed the snapshot."""
        snapshot = table.snapshot_by_id(point.snapshot_id)
        if snapshot is None:
            raise ReadPointGone(table=self.name, detail=f"snapshot {point.snapshot_id} is gone")
        log = Log(self.settings.kafka)
        if self.read_paths is not None:
            state = state_of(snapshot, self.name)
            if state.definition_version != definition.version:
                raise ReadPointGone(table=self.name, detail="the table's definition was altered meanwhile")
            check_identity(self.name, state.cluster_id, state.topic_ids, log, definition.topics)
        return log

    def _read_log(self, log: Log, reading: Reading, point: ReadPoint, staging: Staging) -> ReadLog:
        cuts = [point.end]
        if self.read_paths is not None and self.read_paths.hot is not None:
            cuts.append(self.read_paths.hot.end)
        one = LogPass(
            log,
            self.settings.kafka.client_config(),
            reading,
            cuts,
            self.scope.chosen,
            self.scope.is_part,
            self.clock,
            self.progress,
            self.settings.registry.client(),
        )
        return one.read(staging)

    def _take_extract(self, staging: Staging, path: Path) -> None:
        for rows in extracted_rows(staging.definition, path):
            self.scope.chosen.offer(entities_of(staging.definition, rows))
            staging.add(EXTRACT, self._kept(staging.definition, rows))
        path.unlink()

    def _take_rows(
        self,
        table: Table,
        reading: Reading,
        by_bucket: Mapping[int, list[DataFile]],
        staging: Staging,
        read: ReadLog,
    ) -> None:
        """The live rows and remembered deletes of all buckets that can be read; the hot tier's winners."""
        definition, hot = staging.definition, self.read_paths.hot if self.read_paths is not None else None
        for bucket in range(definition.buckets):
            try:
                for rows in bucket_rows(table.io, definition, by_bucket.get(bucket, ())):
                    read.entities.take_rows(sampled(definition, rows, self.scope.chosen))
                    staging.add(STORED, self._kept(definition, rows))
                if definition.merging.remembers_deletes:
                    for rows in remembered_deletes(table.io, definition, by_bucket.get(bucket, ())):
                        read.entities.take_deletes(sampled(definition, rows, self.scope.chosen))
                        staging.add(REMEMBERED, self._kept(definition, rows))
            except RowsUnreadable as error:
                self._leave_out(bucket, read, error.__cause__ or error)
            if hot is not None:
                for rows in unpacked(definition, hot.scan(bucket, reading.seam)):
                    staging.add(HOT, self._kept(definition, rows))
            self.progress(ROWS, bucket + 1, definition.buckets)
        if self._unread:
            staging.leave_out(self._unread)
            self._say_unread(by_bucket)

    def _kept(self, definition: LiveTable, rows: pa.Table) -> pa.Table:
        return sampled(definition, rows, self.scope.chosen) if self.scope.is_part else rows

    def _compare(self, staging: Staging, check: TableCheck, point: ReadPoint) -> None:
        """The table with the log, the extract with both, the hot tier with the log."""
        hot = self.read_paths.hot if self.read_paths is not None else None
        self.progress(COMPARING, 0, 3)
        check.check(staging)
        self.progress(COMPARING, 1, 3)
        if self.read_paths is not None:
            self.report.extracted += staging.count(EXTRACT)
            for one in extract_findings(staging, point):
                check.unconfirmed.take(one.finding, one.key, one.origin, point.end)
        self.progress(COMPARING, 2, 3)
        if hot is not None:
            self.report.hot += staging.count(HOT)
            for one in hot_findings(staging, hot.end):
                check.unconfirmed.take(one.finding, one.key, one.origin, hot.end)
        self.progress(COMPARING, 3, 3)

    def _leave_out(self, bucket: int, read: ReadLog, error: BaseException) -> None:
        """Goes on without a bucket whose files can't be read."""
        why = failed(self.settings, self.name, self.report.read_point, error)
        if isinstance(why, ReadPointGone):
            raise why from error
        self._unread[bucket] = why
        read.entities.leave_out(bucket)

    def _say_unread(self, with_files: Mapping[int, object]) -> None:
        """Names the buckets that were not compared; where that is all that have files, nothing was."""
        first = next(iter(self._unread.values()))
        if len(self._unread) == len(with_files):
            raise first
        names = ", ".join(str(bucket) for bucket in islice(self._unread, _NAMED_MAX))
        more = len(self._unread) - _NAMED_MAX
        names += f" and {more} more" if more > 0 else ""
        self.report.unchecked.append(f"rows of the buckets {names}: {first.what}")


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
    unconfirmed = UnconfirmedFindings(compacted, reading.definition.key_from == "value", report)
    return TableCheck(reading, read.firsts, compacted, fleeting, report, unconfirmed)


def _as_it_is(table: Table, definition: LiveTable) -> ReadPoint:
    """The current snapshot with the newest seam of its history, whoever made it."""
    current = table.current_snapshot()
    if current is None:
        current_state(table, definition.name)  # raises what there is to say
    assert current is not None
    seam = Reading.of(table, current.snapshot_id, definition).seam
    return ReadPoint(current.snapshot_id, seam, seam)
