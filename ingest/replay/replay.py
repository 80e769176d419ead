"""Replay: records of the quarantine that can be read by now go into the table, where nothing newer is known.

Round by round: decode with the table's definition, judge by table and log (``judgement``, ``evidence``),
apply what is the newest of its key in one commit that leaves the seam where it is, and only then take what is
settled out of the quarantine. A crash in between makes the next replay find it already applied.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from thermocline.errors import ExitCode, OffsetsGone
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import (
    SUMMARY_REPLAYED,
    SnapshotState,
    current_state,
    definition_of,
    open_catalog,
    open_table,
)
from thermocline.iceberg.files import data_location, delete_files, store_named
from thermocline.iceberg.reading import Reading, definition_at, reading_of
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.claim.ownership import Owned, own_table
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.ingest.quarantine import (
    SeenRecords,
    all_places,
    headers_of,
    open_quarantine,
    read_rows,
    remove,
)
from thermocline.ingest.replay.evidence import (
    Kept,
    LogEvidence,
    Progress,
    are_partial,
    drained,
    live_rows,
    origins,
    read_log,
    unbroken,
)
from thermocline.ingest.replay.judgement import (
    Candidate,
    Judgement,
    Origin,
    Outcome,
    TableContext,
    judge_by_log,
    judge_by_place,
    judge_by_table,
    newest_first,
)
from thermocline.ingest.replay.quarantined import Place, Row, check_quarantined, place_of, places_filter
from thermocline.kafka.log import Log
from thermocline.rules.decode import Decoder, decoder_for, records_table
from thermocline.rules.definition import KEY, TOMBSTONE
from thermocline.rules.identity import check_source
from thermocline.rules.keys import buckets
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task
from thermocline.upsert.files_by_bucket import FilesByBucket, after_commit, live_files

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.claim.lease import Say
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.settings import Settings

# Records judged together, in one scan of the log and one commit; with their bytes, below a gigabyte.
ROUND_RECORDS_MAX = 100_000
ROUND_BYTES_MAX = 256 << 20
# The log may be cut while it is read; a log that is cut this often is not for reading.
SCANS_MAX = 3
# Records that a report and a snapshot's summary name one by one.
REPORTED_MAX = 1_000
SUMMARY_RECORDS_MAX = 20

_COLUMNS = ("timestamp", "key", "value", "headers")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Replayed:
    """What became of the records: ``counts`` by outcome, and the first of them one by one."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    records: list[tuple[Origin, Judgement]] = field(default_factory=list)
    snapshot_ids: list[int] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """Done where all of them are settled, partly done where some stay, else nothing to do."""
        stay = self.counts[Outcome.REFUSED] + self.counts[Outcome.STILL_BAD]
        if self.counts[Outcome.REFUSED] or 0 < stay < self.counts.total():
            return ExitCode.PARTLY_DONE
        return ExitCode.NOTHING_TO_DO if stay == self.counts.total() else ExitCode.DONE

    def note(self, verdicts: Mapping[Origin, Judgement]) -> None:
        """Count verdicts."""
        self.counts.update(verdict.outcome for verdict in verdicts.values())
        self.records += list(verdicts.items())[: REPORTED_MAX - len(self.records)]


def replay(
    settings: Settings,
    name: str,
    wanted: Sequence[Place] | None,
    clock: Clock,
    *,
    is_dry_run: bool = False,
    say: Say | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Replayed:
    """Apply records of the quarantine, the wanted ones or all of them, where that is known to be right.

    A dry run judges them and changes nothing; it does not take the table from its owner. ``say`` gets a line
    when an owner has to be waited for.

    Raises:
        NotFound: one of the wanted records is not in quarantine; nothing was done.
        TableHeld: an owner lives.
        CommitUnknown: a round may or may not have landed; its records are still in quarantine.
        LogReplaced: the log is not the table's.
    """
    identifier = settings.table(name).identifier
    quarantine = open_quarantine(open_catalog(settings.catalog), name, identifier)
    if wanted is not None:
        check_quarantined(quarantine, name, wanted)
    report = Replayed()
    if is_dry_run:
        table = open_table(settings, name)
        replaying = Replay.of(settings, name, table, quarantine, clock, progress)
        for rows in _rounds(quarantine, wanted):
            report.note(replaying.judge(rows).verdicts)
        return report
    with own_table(settings, name, clock, say=say) as owned:
        quarantine.refresh()
        replaying = Replay.of(settings, name, owned.table, quarantine, clock, progress)
        for rows in _rounds(quarantine, wanted):
            judged = replaying.judge(rows)
            if judged.applied.num_rows:  # safety: replay-removed-after-commit
                report.snapshot_ids.append(replaying.apply(owned, judged))
            remove(quarantine, judged.settled())
            replaying.quarantined.discard(judged.settled())
            report.note(judged.verdicts)
    return report


@dataclass(slots=True)
class Judged:
    """A round: the verdict on each record, and the records that are applied."""

    verdicts: dict[Origin, Judgement]
    applied: pa.Table

    def settled(self) -> SeenRecords:
        """The records that leave the quarantine."""
        seen = SeenRecords()
        for origin, verdict in self.verdicts.items():
            if verdict.settles:
                seen.add(origin.topic_id, origin.partition, origin.offset)
        return seen


@dataclass(slots=True)
class Replay:
    """A table, its log and which records are in quarantine, for as long as one replay takes."""

    definition: LiveTable
    table: Table
    state: SnapshotState
    log: Log
    client_config: Mapping[str, Any]
    registry: SchemaRegistry | None
    reading: Reading
    drained_ms: Sequence[int | None]
    files: FilesByBucket
    decoder: Decoder
    quarantined: SeenRecords
    clock: Clock
    progress: Progress

    @classmethod
    def of(
        cls,
        settings: Settings,
        name: str,
        table: Table,
        quarantine: Table,
        clock: Clock,
        progress: Progress,
    ) -> Replay:
        """Reads what the table, its history and its quarantine say. Raises as `replay`."""
        definition = definition_of(table, name)
        state = current_state(table, name)
        with store_named(name):
            links = unbroken(table)
        registry = settings.registry.client()
        definitions = [definition_at(table, link, definition) for link in links]
        return cls(
            definition=definition,
            table=table,
            state=state,
            log=Log(settings.kafka),
            client_config=settings.kafka.client_config(),
            registry=registry,
            reading=reading_of(links, definitions, [], [], definition),
            drained_ms=drained(links),
            files=live_files(table, state.snapshot_id, name),
            decoder=decoder_for(definition, registry),
            quarantined=all_places(quarantine),
            clock=clock,
            progress=progress,
        )

    def judge(self, rows: Sequence[Row]) -> Judged:
        """The verdict on each record of a round. Changes nothing."""
        for scan in range(1, SCANS_MAX + 1):
            try:
                return self._judge(rows)
            except OffsetsGone:  # retention cut the log while it was read: what is left is judged again
                if scan == SCANS_MAX:
                    raise
        raise AssertionError("unreachable")

    def apply(self, owned: Owned, judged: Judged) -> int:
        """Commit the records that are to be applied, the seam unchanged; the new snapshot's id."""
        with store_named(self.definition.name):
            results = self._write(judged.applied)
        change = self._change(judged, results)
        owned.lease.check()
        failpoint("replay.commit")
        match owned.committer.commit(self.state.snapshot_id, self.state.seam, change):
            case Landed(snapshot_id, _):
                self.files = after_commit(self.files, results)
                self.state = replace(self.state, snapshot_id=snapshot_id)
                return snapshot_id
            case Rejected(error):
                delete_files(self.table.io, change.paths())
                raise error
            case Unknown(error):
                raise error  # its files may be part of the table: they are kept, and the quarantine as it is

    def _judge(self, rows: Sequence[Row]) -> Judged:
        context = self.context()
        verdicts = _given((origin, judge_by_place(origin, context)) for origin in map(_origin, rows))
        readable = [row for row in rows if _origin(row) not in verdicts]
        records = self._decode(readable, verdicts)
        with store_named(self.definition.name):
            found = live_rows(self.table.io, self.definition, self.files, records)
        candidates = _candidates(records, context)
        verdicts |= _given(
            (one.origin, judge_by_table(one, found.get(one.key), context)) for one in candidates
        )
        open_questions = [one for one in candidates if one.origin not in verdicts]
        if open_questions:
            evidence = self._read_log(open_questions, readable, found, context)
            for one in candidates:
                evidence.note(one, verdicts.get(one.origin))
            # By now the topic may have been recreated, and tombstones have grown old.
            context = replace(self.context(), starts=context.starts)
            verdicts |= _judged_by_log(open_questions, found, evidence, context)
        is_applied = [verdicts[one.origin].outcome is Outcome.APPLIED for one in candidates]
        return Judged(verdicts, records.filter(pa.array(is_applied, pa.bool_())))

    def context(self) -> TableContext:
        """What each record of a round is judged by, as table and cluster are now."""
        topics = self.definition.topics
        name, state = self.definition.name, self.state
        starts, _ = check_source(name, state, self.log, topics)
        configs, now_ms = self.log.configs(topics), self.clock.now_ms()
        young = {
            (topic, partition): offset
            for one, config in configs.items()
            if config.is_compacted and config.is_log_append_time  # safety: replay-producers-times
            for topic, partition, offset in self.log.offsets_at(
                [one], max(now_ms - config.delete_retention_ms, 0)
            ).items()
        }
        return TableContext(
            merging=self.definition.merging,
            is_keyed_by_value=self.definition.key_from == "value",
            seam=state.seam,
            reading=self.reading,
            drained_ms=self.drained_ms,
            topic_ids={topic: facts.topic_id for topic, facts in self.log.describe(topics).items()},
            configs=configs,
            starts=starts,
            now_ms=now_ms,
            young_from=young,
        )

    def _decode(self, rows: Sequence[Row], verdicts: dict[Origin, Judgement]) -> pa.Table:
        """The records that can be read by now; the others stay bad."""
        tables = [self.definition.records_schema.empty_table()]
        by_place: dict[tuple[str, int], list[Row]] = {}
        for row in sorted(rows, key=lambda row: int(row["offset"])):
            by_place.setdefault((row["topic"], row["partition"]), []).append(row)
        for (topic, partition), some in by_place.items():
            decoded = self.decoder.decode(
                [row["key"] for row in some],
                [row["value"] for row in some],
                lambda index, some=some: headers_of(some[index]),  # type: ignore[misc]
                topic,
            )
            for bad in decoded.bad:
                why = f"{bad.stage.value}: {bad.reason}"
                verdicts[_origin(some[bad.index])] = Judgement(Outcome.STILL_BAD, why)
            for index in decoded.filtered:
                verdicts[_origin(some[index])] = Judgement(
                    Outcome.STILL_BAD, "it is not the table's, by where"
                )
            offsets, times = [row["offset"] for row in some], [_timestamp_ms(row) for row in some]
            tables.append(records_table(self.definition, decoded, topic, partition, offsets, times))
        return pa.concat_tables(tables)

    def _read_log(
        self,
        candidates: Sequence[Candidate],
        rows: Sequence[Row],
        live: Mapping[bytes, Origin],
        context: TableContext,
    ) -> LogEvidence:
        kept = {place_of(row): Kept(row["key"], row["value"], _timestamp_ms(row)) for row in rows}
        return read_log(
            self.log,
            self.client_config,
            self.registry,
            self.definition,
            candidates,
            kept,
            self.quarantined,
            live,
            context,
            self.progress,
        )

    def _write(self, records: pa.Table) -> list[BucketResult]:
        """Write the buckets' files, as a batch does; nothing is committed."""
        of_bucket = buckets(self.definition, records.column(self.definition.bucket_column.name))
        return [
            run_bucket_task(
                self.table.io,
                self.definition,
                data_location(self.table),
                bucket,
                self.files.get(bucket, ()),
                records.filter(pa.array(of_bucket == bucket)),
                is_replay=True,
            )
            for bucket in np.unique(of_bucket).tolist()
        ]

    def _change(self, judged: Judged, results: Sequence[BucketResult]) -> TableChange:
        superseded = sum(one.outcome is Outcome.SUPERSEDED for one in judged.verdicts.values())
        superseded += sum(done.superseded for done in results)
        applied = sum(done.applied for done in results)
        unchanged = sum(done.unchanged for done in results)
        places = [str(origin) for origin in origins(judged.applied.slice(0, SUMMARY_RECORDS_MAX))]
        replayed = {"applied": judged.applied.num_rows, "superseded": superseded, "first": places}
        return replace(
            TableChange.carrying_on(self.state),
            accounting=Accounting(
                read=applied + superseded + unchanged,
                applied=applied,
                superseded=superseded,
                unchanged=unchanged,
            ),
            files=results,
            ranges=f"{judged.applied.num_rows} records of the quarantine: {', '.join(places)}",
            summary={SUMMARY_REPLAYED: json.dumps(replayed)},
        )


def _rounds(quarantine: Table, wanted: Sequence[Place] | None) -> Iterator[list[Row]]:
    """The records, as many at a time as are judged together, of the quarantine as it is when this begins."""
    rows: list[Row] = []
    held_bytes = 0
    for row in _rows(quarantine, wanted):
        rows.append(row)
        held_bytes += len(row["key"] or b"") + len(row["value"] or b"")
        if len(rows) >= ROUND_RECORDS_MAX or held_bytes >= ROUND_BYTES_MAX:
            yield rows
            rows, held_bytes = [], 0
    if rows:
        yield rows


def _rows(quarantine: Table, wanted: Sequence[Place] | None) -> Iterator[Row]:
    if wanted is None:
        return read_rows(quarantine, _COLUMNS)
    chosen = set(wanted)
    rows = read_rows(quarantine, _COLUMNS, places_filter(wanted))
    return (row for row in rows if place_of(row) in chosen)


def _given(verdicts: Iterable[tuple[Origin, Judgement | None]]) -> dict[Origin, Judgement]:
    """Those of the verdicts that there are."""
    return {origin: verdict for origin, verdict in verdicts if verdict is not None}


def _judged_by_log(
    candidates: Sequence[Candidate],
    found: Mapping[bytes, Origin],
    evidence: LogEvidence,
    context: TableContext,
) -> dict[Origin, Judgement]:
    """The verdicts on candidates, each by what the newer ones of its key are found to be."""
    live: dict[bytes, Origin | None] = {**found}
    verdicts: dict[Origin, Judgement] = {}
    # safety: replay-newest-first
    in_order = newest_first(candidates, context.reading, evidence.times_ms)
    for candidate in in_order:
        verdict = _verdict(candidate, live, evidence, context)
        verdicts[candidate.origin] = verdict
        evidence.note(candidate, verdict)
        if verdict.outcome is Outcome.APPLIED:
            live[candidate.key] = None if candidate.is_tombstone else candidate.origin
    return verdicts


def _verdict(
    candidate: Candidate, live: Mapping[bytes, Origin | None], evidence: LogEvidence, context: TableContext
) -> Judgement:
    """The verdict on a candidate once the log was read, and the newer ones of its key were judged."""
    row = live.get(candidate.key)
    return (
        judge_by_place(candidate.origin, context)
        or judge_by_table(candidate, row, context)
        or judge_by_log(candidate, row, evidence.of(candidate), context)
    )


def _candidates(records: pa.Table, context: TableContext) -> list[Candidate]:
    columns = (records.column(KEY).to_pylist(), records.column(TOMBSTONE).to_pylist(), are_partial(records))
    return [
        Candidate(origin, *facts)
        for origin, *facts in zip(origins(records, context.topic_ids), *columns, strict=True)
    ]


def _origin(row: Row) -> Origin:
    return Origin(*place_of(row), _timestamp_ms(row), row["topic_id"])


def _timestamp_ms(row: Row) -> int:
    at: datetime = row["timestamp"]
    return (at - _EPOCH) // timedelta(milliseconds=1)
