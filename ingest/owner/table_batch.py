"""One table's batch, from its plan to its commit; what it reads may be read together with others' batches.

It is a generator: it gives what it wants read, and goes on once that was read. So each table keeps a course
of its own, in which its checks, its commit and its errors are, and `scans` reads once for many.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from thermocline.errors import InternalError, OffsetsGone, ThermoclineError
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import TOMBSTONES_PROPERTY
from thermocline.iceberg.files import data_location, delete_files
from thermocline.ingest import activity
from thermocline.ingest.batch.accounting import Accounting, account, greatest_times, watermark_ms
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.open_transactions import warn
from thermocline.ingest.batch.plan import (
    Batch,
    DrainGoal,
    drained_ms,
    lag_of,
    plan_batch,
    with_new_partitions,
)
from thermocline.ingest.batch.scan import Share
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Outcome, Rejected, Unknown, landed
from thermocline.ingest.owner import measures
from thermocline.ingest.owner.asked_once import asked_once
from thermocline.ingest.owner.contested import contested, warn_of_contested_keys
from thermocline.ingest.owner.passed import PassedOver, is_due
from thermocline.ingest.table.progress import is_note_due
from thermocline.process.logs import fields
from thermocline.rules.bad_digest import merged
from thermocline.rules.identity import check_identity, check_log, check_not_compacted, check_tombstones
from thermocline.rules.seam import check_against_log
from thermocline.text.shown import json_text
from thermocline.upsert.bucket_task import written_paths
from thermocline.upsert.files_by_bucket import with_held

if TYPE_CHECKING:
    from thermocline.ingest.owner.owner import Owner
    from thermocline.kafka.facts import OffsetRange
    from thermocline.kafka.log import Log
    from thermocline.rules.seam import Seam

__all__ = ["Look", "Read", "TableBatch", "Wanted", "batch_of", "read_for"]

_logger = logging.getLogger(__name__)


class Look:
    """What the log says to the tables of a scan: each thing is asked for once.

    Batches are planned by ``planned``, which was asked at ``at_ms``, or later. ``now`` is asked again after
    the log was read.
    """

    def __init__(self, log: Log, at_ms: int) -> None:
        self._log, self.at_ms = log, at_ms
        self.planned, self.now = asked_once(log), asked_once(log)

    def again(self) -> None:
        """From now on, ``now`` is asked again."""
        self.now = asked_once(self._log)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a batch wants read: these ranges, each in one piece or not, for its table's share."""

    ranges: tuple[OffsetRange, ...]
    may_cut: bool
    share: Share


@dataclass(frozen=True, slots=True)
class Read:
    """What came of it, when (monotonic seconds), and for how many tables it was read."""

    result: BatchResult
    at: float
    tables: int


TableBatch = Generator[Wanted, Read, bool]
"""Ends with whether the log held more than the batch."""


def batch_of(owner: Owner, look: Look, records_max: int) -> TableBatch:
    """Plan a batch from where the owner is, have it read, commit it. No batch, no commit.

    Raises what the log, the engine and the commit raise, in the owner's terms.
    """
    name, topics = owner.definition.name, owner.definition.topics
    starts, ends = check_log(name, owner.at, look.planned, owner.definition, look.at_ms)
    owner.topics.saw(ends)
    if not owner.position.has_read:
        # The table has no row yet that could have missed its tombstone.
        # safety: beh-first-read
        owner.position = replace(owner.position, tombstones_since_ms=dict.fromkeys(topics, look.at_ms))
    seam = with_new_partitions(owner.at.seam, starts)
    if len(seam) > 1 and owner.definition.merging.is_keyed:
        ends = look.planned.ends_together(topics)
    planned = DrainGoal(look.at_ms, ends)
    owner.drain_goal = owner.drain_goal or planned
    measures.looked(name, seam, ends)
    batch = plan_batch(seam, ends, records_max, partial(look.planned.offsets_at, topics))
    if batch.ranges:
        with owner.observers.batch(batch):
            yield from _run(owner, batch, planned, look)
    elif owner.position.has_read and _is_commit_due(owner, batch.end, look):
        look.again()
        _note_drained(owner, batch, planned, look)  # safety: beh-idle-note
    held = look.now.open_transactions(topics)
    owner.topics.stepped(held)
    warn(name, owner.standstill.long_open(held, owner.at.seam, owner.clock.monotonic()))
    measures.stepped(name, batch.end, ends, owner.clock.now_ms())
    owner.lag_records = lag_of(batch.end, ends)
    activity.doing("waiting for records")
    return batch.end != ends


def _run(owner: Owner, batch: Batch, planned: DrainGoal, look: Look) -> Generator[Wanted, Read, None]:
    name, began_at = owner.definition.name, owner.clock.monotonic()
    try:
        read = yield from read_for(owner, batch)
    except OffsetsGone:
        # One partition said so, from where it was read: what is lost is counted in all, from the seam on.
        # The log may have lost its end instead.
        # safety: beh-ends-again
        check_against_log(name, owner.at.seam, *owner.log.bounds(batch.end.topics))
        raise
    result, run_seconds = read.result, read.at - began_at
    committing_at = owner.clock.monotonic()
    accounting = account(result, owner.definition.on_error)
    if _passes_over(owner, batch, accounting, look):
        _pass_over(owner, batch, result, accounting, planned, look.now)
        _learn(owner, result)
        return
    activity.step("commit")
    accounting = _with_passed(owner, accounting)
    outcome = _commit(owner, batch, result, accounting, planned, look.now)
    commit_seconds = owner.clock.monotonic() - committing_at
    match measures.counted(name, outcome, owner.clock.now_ms()):
        case Rejected(error):
            delete_files(owner.table.io, written_paths(result.buckets))
            raise error
        case Unknown(error):
            # safety: unknown-keeps-files
            raise error  # its files may be part of the table, now or in a moment: they are kept
        case Landed(snapshot_id, seam):
            _logger.info(
                "committed",
                extra=fields(
                    table=name,
                    snapshot_id=snapshot_id,
                    seam=seam.to_dict(),
                    **accounting.counts(),
                    merged_files=sum(len(part.removed) for part in result.buckets),
                    carried_rows=sum(part.carried for part in result.buckets),
                    read_for_tables=read.tables,
                    run_seconds=round(run_seconds, 3),
                    commit_seconds=round(commit_seconds, 3),
                ),
            )
            files = owner.position.files
            measures.landed(name, accounting, result.buckets, files, run_seconds, commit_seconds)
    _learn(owner, result)


def read_for(owner: Owner, batch: Batch) -> Generator[Wanted, Read, Read]:
    """What comes of a batch: again where keys in several partitions have to be decided, or a route is full.

    And before that, where the table takes up changes of its writers' schemas.

    To decide takes the partition time at each record, and reading each partition in one piece. While
    no key is met in several partitions, neither is paid for.
    """
    read = yield _wanted(owner, batch, is_timed=owner.is_contested)
    if owner.schemas.takes_up(owner, read.result):  # safety: contract-read-again
        read = yield _wanted(owner, batch, is_timed=owner.is_contested)
        owner.schemas.took_up(owner, read.result)
    if contested(read.result) and not owner.is_contested:  # safety: contested-keys-are-decided
        owner.leave(read.result)
        read = yield _wanted(owner, batch, is_timed=True)
    owner.is_contested = contested(read.result)
    if not _has_room(owner, read.result):
        owner.leave(read.result)
        read = yield _wanted(owner, batch, is_timed=False)
    return read


def _has_room(owner: Owner, result: BatchResult) -> bool:
    if owner.routing is None:
        return True
    with owner.leaving(result):
        return owner.routing.has_room(result)


def _wanted(owner: Owner, batch: Batch, is_timed: bool) -> Wanted:
    times = owner.at.partition_times
    task = replace(owner.task, partition_times=times) if is_timed else owner.task
    task = task if owner.routing is None else owner.routing.reading(task)
    files = with_held(owner.position.files, owner.upkeep.held())
    return Wanted(batch.ranges, not is_timed, Share(task, files, data_location(owner.table)))


def _commit(
    owner: Owner,
    batch: Batch,
    result: BatchResult,
    accounting: Accounting,
    planned: DrainGoal,
    log: Log,
) -> Outcome:
    at = owner.position
    try:
        _check_before_commit(owner, batch, accounting, log)
        routed = {} if owner.routing is None else owner.routing.to_commit(owner, result)
    except ThermoclineError as error:
        owner.bad_records.discard(result.reports)
        return Rejected(error)
    try:
        owner.bad_records.settle(result.reports)  # safety: quarantine-before-commit
    except ThermoclineError as error:
        return Rejected(error)
    change = replace(
        _moved(owner, batch, result, accounting, planned),
        began_ms=planned.at_ms,
        bad_digest=merged(*(report.bad_digest for report in result.reports)),  # safety: bad-digest-of-a-batch
        properties={
            TOMBSTONES_PROPERTY: json.dumps(dict(at.tombstones_since_ms)),
            **owner.unread.met(result.reports, planned.at_ms),
            **owner.schemas.to_commit(owner),
            **owner.topics.to_commit(owner, batch.end.at_least(planned.ends)),
            **routed,
        },
        files=result.buckets,
        ranges=", ".join(str(planned) for planned in batch.ranges),
    )
    outcome = owner.committer.commit(at.snapshot_id, at.seam, change)
    if isinstance(outcome, Landed):
        failpoint("owner.landed")
        owner.position, owner.passed = at.after(outcome, change), None
        owner.unread.landed()
        if owner.routing is not None:
            owner.routing.landed()
        owner.schemas.landed()
        owner.on_commit()
        owner.observers.landed(outcome, change)
        _note_goal(owner, batch, planned)
    return outcome


def _moved(
    owner: Owner, batch: Batch, result: BatchResult, accounting: Accounting, planned: DrainGoal
) -> TableChange:
    """Nothing but that the table is behind a batch, and whatever was passed over before it, in the log."""
    at = owner.at
    return replace(
        TableChange.carrying_on(at),
        seam=batch.end,
        watermark_ms=watermark_ms(batch, result.reports, planned.at_ms, at.watermark_ms),
        drained_ms=drained_ms(batch, planned, owner.drain_goal or planned, at.drained_ms),
        partition_times=at.partition_times.advanced(greatest_times(batch, result.reports)),
        accounting=accounting,
    )


def _note_goal(owner: Owner, batch: Batch, planned: DrainGoal) -> None:
    if owner.drain_goal is not None and batch.end.at_least(owner.drain_goal.ends):
        owner.drain_goal = planned


def _with_passed(owner: Owner, accounting: Accounting) -> Accounting:
    """What a commit says that was read: also what was passed over before its batch."""
    # safety: passed-over-is-accounted-for
    return accounting if owner.passed is None else owner.passed.accounting.plus(accounting)


def _passes_over(owner: Owner, batch: Batch, accounting: Accounting, look: Look) -> bool:
    """Whether a batch says nothing that has to be committed now: none of its records is the table's.

    A table's first batch is committed in any case: from then on it is known when it first read.
    """
    if not (owner.may_pass_over and owner.definition.route and owner.position.has_read):
        return False
    # safety: passed-over-has-nothing
    return accounting.filtered == accounting.read and not _is_commit_due(owner, batch.end, look)


def _pass_over(
    owner: Owner, batch: Batch, result: BatchResult, accounting: Accounting, planned: DrainGoal, log: Log
) -> None:
    """Go on behind a batch that no commit tells for now."""
    _check_before_commit(owner, batch, accounting, log)
    since = owner.clock.monotonic() if owner.passed is None else owner.passed.since
    change = _moved(owner, batch, result, _with_passed(owner, accounting), planned)
    owner.passed = PassedOver.of(change, since)
    _note_goal(owner, batch, planned)
    owner.observers.passed_over()
    extra = fields(table=owner.definition.name, reached=batch.end.to_dict(), records=accounting.read)
    _logger.debug("nothing of the batch is the table's; its seam is committed later", extra=extra)


def _is_commit_due(owner: Owner, reached: Seam, look: Look) -> bool:
    """Whether a table that has no row to commit has to say all the same where it is."""
    at, definition = owner.position, owner.definition
    seconds = 0.0 if owner.passed is None else owner.clock.monotonic() - owner.passed.since
    starts, _ = look.planned.bounds(definition.topics)
    if is_due(definition.name, at.seam, reached, starts, seconds):  # safety: passed-over-is-bounded
        return True
    deleted_topic_seconds = owner.settings.deleted_topic_seconds
    return is_note_due(at.drained_ms, look.planned, definition, look.at_ms, deleted_topic_seconds)


def _note_drained(owner: Owner, batch: Batch, planned: DrainGoal, look: Look) -> None:
    """Commit where the table is: where it holds all of the log, what is appended later can't be missed."""
    name, accounting = owner.definition.name, _with_passed(owner, Accounting())
    outcome = _commit(owner, batch, BatchResult((), ()), accounting, planned, look.now)
    done = landed(measures.counted(name, outcome, owner.clock.now_ms()))
    measures.accounted(name, accounting)
    _logger.info("drained", extra=fields(table=name, snapshot_id=done.snapshot_id))


def _check_before_commit(owner: Owner, batch: Batch, accounting: Accounting, log: Log) -> None:
    owner.lease.check()
    failpoint("owner.check")
    # The topic may have been recreated while it was being read: then the records could be others. What
    # retention took meanwhile was read: from where it had not been, no task would have got on.
    at, topics = owner.at, batch.end.topics
    # safety: beh-identity-after-reading
    check_identity(owner.definition.name, at.cluster_id, at.topic_ids, log, topics)
    check_not_compacted(owner.definition, log)
    if owner.definition.has_key:
        # safety: beh-tombstones-after-reading
        check_tombstones(owner.definition, at, batch.end, log, owner.clock.now_ms())
    if not accounting.is_closed():
        raise InternalError(
            detail=f"the records of a batch do not add up: {json_text(accounting.counts())}",
            where="ingest",
        )


def _learn(owner: Owner, result: BatchResult) -> None:
    """How large records are, for the bound of the next batch; and of keys that change partition."""
    read = sum(report.records for report in result.reports)
    if read:
        owner.bytes_per_record = sum(report.read_bytes for report in result.reports) / read
        owner.packed_bytes_per_record = sum(report.packed_bytes for report in result.reports) / read
    warn_of_contested_keys(owner.definition, result)
