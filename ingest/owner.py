"""The owner's loop: plan from the seam, run a batch, commit, wait; until it is told to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.accounting import Accounting, account, watermark_ms
from ingest.batch import BatchResult, run_batch
from ingest.commit import Change, Committer, Landed
from ingest.files_by_bucket import FilesByBucket, after_commit, by_bucket
from ingest.java import JavaCatalog
from ingest.plan import (
    Batch,
    next_batch,
    plan_batch,
    records_max_of,
    split_for_tasks,
    with_new_partitions,
)
from ingest.quarantine import keep_files, open_quarantine
from ingest.read_task import ReadReport, ReadTask
from ingest.spark import java_view, start_spark
from thermocline.catalog import SnapshotState, current_state, definition_of, load_table, open_catalog
from thermocline.clock import Clock, SystemClock
from thermocline.errors import (
    BadRecord,
    CommitRejected,
    CommitUnknown,
    DefinitionDiffers,
    ExitCode,
    InternalError,
    ThermoclineError,
)
from thermocline.files import plan_files
from thermocline.identity import check_identity
from thermocline.log import Log
from thermocline.logs import fields
from thermocline.seam import Seam, check_against_log

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from thermocline.definition import LiveTable
    from thermocline.settings import Settings, TableSettings

# A broker that restarts is back in some five seconds; asking sooner only fills the log.
RETRY_SECONDS = 5.0
# A commit that Iceberg refuses again and again, on a table read anew each time, will be refused for ever.
REJECTIONS_MAX = 5

_logger = logging.getLogger(__name__)


def run(settings: Settings, name: str, once: bool, stop: threading.Event, clock: Clock | None = None) -> int:
    """Own the table and ingest into it until ``stop`` is set; the exit code.

    With ``once``, only up to the ends that the log has at the start; `ExitCode.NOTHING_TO_DO` where the table
    is already there. Without it, errors that pass by themselves (a broker away, a catalog locked) are waited
    out. Raises every other error, after which the table is as its last commit left it.
    """
    if once and not next_batch(settings, name).ranges:
        return ExitCode.NOTHING_TO_DO  # known without Spark, and without taking the table from its owner
    owner = Owner.open(settings, name, clock or SystemClock())
    try:
        return owner.catch_up(stop) if once else owner.follow(stop)
    finally:
        owner.close()


@dataclass(slots=True)
class _Position:
    """Where the table stands: what the next batch is planned on."""

    snapshot_id: int
    seam: Seam
    watermark_ms: int
    files: FilesByBucket


@dataclass(slots=True)
class Owner:
    """One process that commits to one table; ``open`` makes one."""

    settings: TableSettings
    definition: LiveTable
    log: Log
    table: Table
    quarantine: Table
    spark: SparkSession
    committer: Committer
    task: ReadTask
    cluster_id: str
    position: _Position
    clock: Clock
    bytes_per_record: float = 0.0

    @classmethod
    def open(cls, settings: Settings, name: str, clock: Clock) -> Owner:
        """Check definition and topics, start Spark, take ownership.

        Raises:
            DefinitionDiffers: the file does not say what the table's definition says.
            ClusterReplaced: the cluster is not the one that the table was fed from.
            TopicReplaced: a topic was deleted and made again.
            OwnerLost: another owner took the table at the same moment.
        """
        catalog = open_catalog(settings.catalog)
        table = load_table(catalog, name, settings.table(name).identifier)
        definition = definition_of(table, name)
        differences = definition.differences(settings.table(name).definition(name))
        if differences:
            raise DefinitionDiffers(table=name, differences=differences)
        state = current_state(table, name)
        log = Log(settings.kafka)
        check_identity(name, state.cluster_id, state.topic_ids, log, definition.topics)
        quarantine = open_quarantine(catalog, name, definition.identifier)
        spark = start_spark(settings, name)
        try:
            jvm = java_view(spark)
            java_table = JavaCatalog(jvm, settings.catalog).load(definition.identifier)
            committer = Committer(jvm, java_table, name, definition.version)
            landed = committer.take_ownership()
            _logger.info(
                "ownership taken",
                extra=fields(
                    table=name,
                    epoch=committer.epoch,
                    snapshot_id=landed.snapshot_id,
                    last_batch_id=state.batch_id,
                    seam=landed.seam.to_dict(),
                ),
            )
            table.refresh()
            return cls(
                settings=settings.table(name),
                definition=definition,
                log=log,
                table=table,
                quarantine=quarantine,
                spark=spark,
                committer=committer,
                task=_read_task(settings, definition, table.io, quarantine, state),
                cluster_id=state.cluster_id,
                position=_position_of(table, name),
                clock=clock,
            )
        except BaseException:
            spark.stop()
            raise

    def close(self) -> None:
        """End the Spark session; the table stays as its last commit left it."""
        self.spark.stop()

    def catch_up(self, stop: threading.Event) -> int:
        """Batches until the table holds what the log holds now."""
        goal = self.log.ends(self.definition.topics)
        self.step()
        while not stop.is_set() and not self.position.seam.at_least(goal):
            self.step()
        return ExitCode.DONE if self.position.seam.at_least(goal) else ExitCode.PARTLY_DONE

    def follow(self, stop: threading.Event) -> int:
        """A batch every commit interval, at once while behind, until told to stop."""
        rejections = 0
        while not stop.is_set():
            started_at = self.clock.monotonic()
            try:
                is_behind = self.step()
                rejections = 0
            except ThermoclineError as error:
                rejections += isinstance(error, CommitRejected)
                if not error.retryable or rejections == REJECTIONS_MAX:
                    raise
                _logger.warning(
                    "will try again", extra=fields(table=self._name, code=error.code, detail=str(error))
                )
                stop.wait(RETRY_SECONDS)
                self._reload()
                continue
            if not is_behind:
                due_at = started_at + self.settings.commit_interval_seconds
                stop.wait(max(due_at - self.clock.monotonic(), 0))
        return ExitCode.DONE

    def step(self) -> bool:
        """Plan, run and commit one batch; whether the log held more than the batch. No batch, no commit."""
        topics = self.definition.topics
        self._check_identity()
        starts, ends = self.log.starts(topics), self.log.ends(topics)
        check_against_log(self._name, self.position.seam, starts, ends)
        records_max = records_max_of(
            self.settings.batch_records_max, self.settings.batch_bytes_max, self.bytes_per_record
        )
        batch = plan_batch(with_new_partitions(self.position.seam, starts), ends, records_max)
        if batch.ranges:
            self._run(batch)
        return batch.end != ends

    def _run(self, batch: Batch) -> None:
        started_at = self.clock.monotonic()
        planned_at_ms = self.clock.now_ms()
        tasks = split_for_tasks(batch.ranges, self.spark.sparkContext.defaultParallelism)
        result = run_batch(self.spark, self.task, _data_location(self.table), tasks, self.position.files)
        ran_at = self.clock.monotonic()
        accounting = account(result, self.definition.on_error)
        try:
            landed = self._commit(batch, result, accounting, planned_at_ms)
        except CommitUnknown:
            raise  # its files may be part of the table: they are kept
        except ThermoclineError:
            _discard(self.table.io, result)
            raise
        self._learn(result)
        _logger.info(
            "committed",
            extra=fields(
                table=self._name,
                snapshot_id=landed.snapshot_id,
                seam=batch.end.to_dict(),
                **accounting.counts(),
                run_seconds=round(ran_at - started_at, 3),
                commit_seconds=round(self.clock.monotonic() - ran_at, 3),
            ),
        )

    def _commit(
        self, batch: Batch, result: BatchResult, accounting: Accounting, planned_at_ms: int
    ) -> Landed:
        # Retention may have cut the log while it was being read, or the topic made anew: then records could
        # be missing, or be others.
        self._check_identity()
        check_against_log(self._name, self.position.seam, self.log.starts(batch.end.topics), batch.log_ends)
        if not accounting.is_closed():
            raise InternalError(detail=f"the records of a batch do not add up: {accounting}", where="ingest")
        self._deal_with_bad(result.reports)
        change = Change(
            seam=batch.end,
            cluster_id=self.cluster_id,
            topic_ids=self.task.topic_ids,
            watermark_ms=watermark_ms(batch, result.reports, planned_at_ms, self.position.watermark_ms),
            accounting=accounting,
            files=result.buckets,
            ranges=", ".join(str(planned) for planned in batch.ranges),
        )
        landed = self.committer.commit(self.position.snapshot_id, self.position.seam, change)
        files = after_commit(self.position.files, result.buckets)
        self.position = _Position(landed.snapshot_id, batch.end, change.watermark_ms, files)
        return landed

    def _deal_with_bad(self, reports: Sequence[ReadReport]) -> None:
        """Before the batch commits: keep bad records durably, or stop on the first one."""
        first = next((report.first_bad for report in reports if report.first_bad is not None), None)
        if first is None:
            return
        if self.definition.on_error == "fail":
            raise BadRecord(
                table=self._name,
                topic=first.topic,
                partition=first.partition,
                offset=first.offset,
                stage=first.stage,
                reason=first.reason,
            )
        paths = [path for report in reports for path in report.quarantine_files]
        if paths:
            keep_files(self.quarantine, paths)

    def _learn(self, result: BatchResult) -> None:
        """How large records are, for the bound of the next batch; and of keys that change partition."""
        read = sum(report.records for report in result.reports)
        if read:
            self.bytes_per_record = sum(report.value_bytes for report in result.reports) / read
        conflicts = [done for done in result.buckets if done.keys_in_several_partitions]
        if conflicts:
            _logger.warning(
                "keys in several partitions",
                extra=fields(
                    table=self._name,
                    keys=sum(done.keys_in_several_partitions for done in conflicts),
                    example=repr(conflicts[0].conflict_example),
                ),
            )

    def _check_identity(self) -> None:
        check_identity(self._name, self.cluster_id, self.task.topic_ids, self.log, self.definition.topics)

    def _reload(self) -> None:
        with suppress(ThermoclineError):  # what is still away now is met again by the next step
            self.table = load_table(self.table.catalog, self._name, self.definition.identifier)
            self.position = _position_of(self.table, self._name)

    @property
    def _name(self) -> str:
        return self.definition.name


def _position_of(table: Table, name: str) -> _Position:
    state = current_state(table, name)
    files = by_bucket(plan_files(table, state.snapshot_id))
    return _Position(state.snapshot_id, state.seam, state.watermark_ms, files)


def _read_task(
    settings: Settings, definition: LiveTable, io: FileIO, quarantine: Table, state: SnapshotState
) -> ReadTask:
    client_config = settings.kafka.client_config()
    return ReadTask(definition, client_config, io, quarantine.location(), dict(state.topic_ids))


def _data_location(table: Table) -> str:
    return table.properties.get("write.data.path", f"{table.location()}/data")


def _discard(io: FileIO, result: BatchResult) -> None:
    """Delete what a batch wrote that is certain not to be in the table; what stays is a harmless orphan."""
    paths = [done.added.path for done in result.buckets if done.added is not None]
    paths += [vector.path for done in result.buckets for vector in done.vectors.values()]
    for path in dict.fromkeys(paths):
        with suppress(OSError):
            io.delete(path)
