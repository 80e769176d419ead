"""Gathers the status of tables from what the process and the tailers know. Asks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from thermocline import __version__
from thermocline.errors import ThermoclineError
from thermocline.serving.hot.file_version import file_version
from thermocline.serving.status.bad_records import KeptBadFacts, bad_records_of
from thermocline.serving.status.debt import buckets_in, debt_of
from thermocline.serving.status.document import (
    BucketStatus,
    ColumnStatus,
    CommitBar,
    CommitStatus,
    DefinitionStatus,
    Details,
    Disk,
    Freshness,
    IngestStatus,
    LeaseStatus,
    OwnerStatus,
    PartitionStatus,
    RecordsStatus,
    RefStatus,
    SchemaCauseStatus,
    SchemaChangeStatus,
    ServerStatus,
    SnapshotStatus,
    StandbyStatus,
    TableStatus,
    UnreadStatus,
    UpkeepStatus,
    VersionStatus,
)
from thermocline.serving.status.findings import findings_of, verdict_of
from thermocline.serving.status.view_states import view_states
from thermocline.serving.store.layout import TABLE_FACTS, WANTED, WANTED_CLOSELY
from thermocline.serving.tail.table_facts import BAR_MS, BARS_MAX, TableFacts, read_facts

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.hot.refused import Refused
    from thermocline.serving.read.tables import ServedTable
    from thermocline.serving.status.document import BadRecordsStatus

__all__ = ["StatusRoom"]

TOUCH_SECONDS: Final = 20.0
"""How often it is left where the tailer finds it that somebody looks; it asks for a minute then."""
REFUSED_MAX: Final = 100
"""Of refused records, so many are counted and shown."""
_LEASES: Final = {"views": "view", "leases": "reader"}


class StatusRoom:
    """Makes the status of tables. For one event loop."""

    def __init__(self, stale_after_seconds: float, clock: Clock) -> None:
        self._stale_after_seconds = stale_after_seconds
        self._clock = clock
        self._facts: dict[str, tuple[object, TableFacts | None]] = {}
        self._buckets: dict[str, tuple[ColdIndex, tuple[BucketStatus, ...]]] = {}
        self._bad_facts = KeptBadFacts()
        self._touched: dict[tuple[str, str], float] = {}

    async def of(
        self,
        tables: Iterable[ServedTable],
        disk: Mapping[str, object] | None = None,
        problems: Iterable[str] = (),
        is_detailed: bool = False,
    ) -> ServerStatus:
        """Of these tables; requests of others are answered in between."""
        found = {}
        for table in tables:
            found[table.name] = self.table(table, is_detailed)
            await asyncio.sleep(0)
        return ServerStatus(
            tables=found,
            disk=Disk.model_validate(disk or {}),
            problems=tuple(problems),
            as_of_ms=self._clock.now_ms(),
            version=__version__,
        )

    def table(self, table: ServedTable, is_detailed: bool = False) -> TableStatus:
        """Of one table."""
        self._want(table, is_detailed)
        facts, said = self._facts_of(table), table.status()
        index = _index_of(table)
        tailer, ready = said["tailer"], said["ready"]
        buckets = self._buckets_of(table.name, index)
        ages = tailer.get("recent_ages") or {}
        freshness = Freshness(
            age_seconds=said.get("age_seconds"),
            stale=said.get("stale", True),
            stale_after_seconds=self._stale_after_seconds,
            minutes=tuple(ages.get("seconds", ())),
            minutes_end_ms=ages.get("ends_ms"),
        )
        partitions = _partitions_of(said.get("read_point"), tailer)
        ingest = self._ingest_of(tailer, facts, partitions if ready else None)
        owner = _owner_of(facts)
        refused, has_more = _refused_of(table, tailer, is_detailed)
        records = self._records_of(facts, len(refused), has_more)
        debt = debt_of(buckets, facts.rewrites if facts is not None else ()) if index is not None else None
        findings = findings_of(
            table.name, said.get("problem", ""), tailer, freshness, ingest, owner, records, debt
        )
        more: dict[str, Any] = {}
        if is_detailed:
            kept = self._bad_facts.of(table.name, table.folder)
            bad = bad_records_of(kept, refused, has_more, table.definition)
            now_ms = self._clock.now_ms()
            more["details"] = _details_of(table.definition, facts, partitions, buckets, bad, now_ms)
        if "snapshot" in said:
            more["snapshot"] = SnapshotStatus.model_validate(said.pop("snapshot"))
        return TableStatus(
            **said,
            **more,
            verdict=verdict_of(findings),
            findings=findings,
            freshness=freshness,
            ingest=ingest,
            owner=owner,
            records=records,
            debt=debt,
        )

    def _want(self, table: ServedTable, is_detailed: bool) -> None:
        """Leaves for the tailer that somebody looks."""
        now = self._clock.monotonic()
        for mark in (WANTED, WANTED_CLOSELY) if is_detailed else (WANTED,):
            key = table.name, mark
            if now - self._touched.get(key, float("-inf")) < TOUCH_SECONDS:
                continue
            self._touched[key] = now
            with suppress(OSError):  # there is no folder yet, or the disk fails, which others tell
                (table.folder / mark).touch()

    def _facts_of(self, table: ServedTable) -> TableFacts | None:
        version: object = None
        with suppress(OSError):
            version = file_version(table.folder / TABLE_FACTS)
        known = self._facts.get(table.name)
        if known is None or known[0] != version:
            known = self._facts[table.name] = version, read_facts(table.folder)
        return known[1]

    def _buckets_of(self, name: str, index: ColdIndex | None) -> tuple[BucketStatus, ...]:
        if index is None:
            return ()
        known = self._buckets.get(name)
        if known is None or known[0] is not index:
            known = self._buckets[name] = index, tuple(buckets_in(index))
        return known[1]

    def _ingest_of(
        self,
        tailer: Mapping[str, Any],
        facts: TableFacts | None,
        partitions: tuple[PartitionStatus, ...] | None,
    ) -> IngestStatus:
        """Of what ingest left, and of what the tailer says of the log, which is nothing before it looked."""
        if facts is None:
            return IngestStatus()
        lag = None if partitions is None else sum(one.lag_records for one in partitions)
        waits_seconds = tailer.get("ingest_lag_seconds")
        if waits_seconds is None and lag == 0:
            waits_seconds = 0.0
        next_ms = None
        if lag and facts.last_commit_ms is not None:
            next_ms = facts.last_commit_ms + round(1000 * facts.interval_seconds)
        return IngestStatus(
            lag_records=lag,
            lag_seconds=waits_seconds,
            headroom_seconds=tailer.get("headroom_seconds"),
            interval_seconds=facts.interval_seconds,
            last_commit_ms=facts.last_commit_ms,
            last_commit_seconds=facts.last_commit_seconds,
            next_commit_ms=next_ms,
        )

    def _records_of(self, facts: TableFacts | None, refused: int, has_more: bool) -> RecordsStatus:
        day_ms = self._clock.now_ms() - BARS_MAX * BAR_MS
        bars = [bar for bar in facts.bars if bar.begins_ms > day_ms] if facts is not None else []
        return RecordsStatus(
            quarantined=facts.totals.get("quarantined") if facts is not None else None,
            quarantined_of_day=sum(bar.quarantined for bar in bars),
            read_of_day=sum(bar.records for bar in bars),
            refused=refused,
            refused_more=has_more,
        )


def _refused_of(
    table: ServedTable, tailer: Mapping[str, Any], is_detailed: bool
) -> tuple[Sequence[Refused], bool]:
    """The refused records since the seam, up to a bound, and whether there are more."""
    if is_detailed or any(tailer.get("bad", {}).values()):
        with suppress(ThermoclineError):
            found, has_more = table.reader.refused_since(table.reader.look(()).read_point, REFUSED_MAX)
            return found.listed, has_more
    return (), False


def _index_of(table: ServedTable) -> ColdIndex | None:
    with suppress(ThermoclineError):
        return table.reader.cold.index
    return None


def _partitions_of(read_point: Any, tailer: Mapping[str, Any]) -> tuple[PartitionStatus, ...]:
    if not read_point:
        return ()
    starts, reached = tailer.get("log_start") or {}, tailer.get("reached") or {}
    return tuple(
        PartitionStatus(
            topic=topic,
            partition=int(partition),
            log_start=starts.get(topic, {}).get(partition),
            seam=(seam := read_point["seam"].get(topic, {}).get(partition, 0)),
            end=end,
            lag_records=max(end - max(seam, reached.get(topic, {}).get(partition, 0)), 0),
        )
        for topic, ends in read_point["end"].items()
        for partition, end in ends.items()
    )


def _owner_of(facts: TableFacts | None) -> OwnerStatus | None:
    if facts is None or facts.owner is None:
        return None
    said = {name: getattr(facts.owner, name) for name in facts.owner.__struct_fields__}
    return OwnerStatus(**said, standby=_as(StandbyStatus, facts.standby) if facts.standby else None)


def _details_of(
    definition: LiveTable,
    facts: TableFacts | None,
    partitions: tuple[PartitionStatus, ...],
    buckets: tuple[BucketStatus, ...],
    bad_records: BadRecordsStatus,
    now_ms: int,
) -> Details:
    upkeep = UpkeepStatus()
    more: dict[str, Any] = {}
    if facts is not None:
        upkeep = UpkeepStatus(
            rewritten_ms=facts.rewritten_ms,
            expired_ms=facts.expired_ms,
            waiting_snapshots=facts.waiting_snapshots,
            waiting_bytes=facts.waiting_bytes,
            orphans=facts.orphans,
            orphan_bytes=facts.orphan_bytes,
            as_of_ms=facts.closely_at_ms,
        )
        more = {
            "bars": tuple(_as(CommitBar, one) for one in facts.bars),
            "commits": tuple(_as(CommitStatus, one) for one in facts.recent),
            "views": view_states(facts, now_ms),
            "views_at_ms": facts.views_at_ms,
            "leases": tuple(
                LeaseStatus(kind=_LEASES[one.kind], holder=one.holder, snapshots=one.snapshots)  # type: ignore[arg-type]
                for one in facts.leases
            ),
            "refs": tuple(_as(RefStatus, one) for one in facts.refs),
            "snapshots": facts.snapshots,
        }
    return Details(
        **more,
        partitions=partitions,
        buckets=buckets,
        upkeep=upkeep,
        bad_records=bad_records,
        definition=_definition_of(definition, facts),
    )


def _as(kind: Any, fact: Any) -> Any:
    return kind(**{name: getattr(fact, name) for name in fact.__struct_fields__})


def _schema_change_of(facts: TableFacts) -> SchemaChangeStatus | None:
    change = facts.schema_change
    if change is None:
        return None
    causes = tuple(
        SchemaCauseStatus(
            columns=one.columns, record=one.record, part=one.part, schema_id=one.schema, named=one.named
        )
        for one in change.causes
    )
    return SchemaChangeStatus(
        version=change.version, at_ms=change.at_ms, changes=change.changes, causes=causes
    )


def _definition_of(definition: LiveTable, facts: TableFacts | None) -> DefinitionStatus:
    def role(name: str) -> str:
        if name in definition.entity:
            return "entity"
        return "key" if name in definition.key else "none"

    more: dict[str, Any] = {}
    if facts is not None:
        more = {
            "format_version": facts.format_version,
            "versions": tuple(_as(VersionStatus, one) for one in facts.versions),
            "schema_change": _schema_change_of(facts),
            "accepted": facts.accepted,
            "unread_fields": facts.unread_fields,
            "unread": None if facts.unread is None else _as(UnreadStatus, facts.unread),
        }
    return DefinitionStatus(
        **more,
        identifier=definition.identifier,
        topics=tuple(definition.topics),
        version=definition.version,
        buckets=definition.buckets,
        columns=tuple(
            ColumnStatus(name=one.name, type=str(one.type), role=role(one.name))  # type: ignore[arg-type]
            for one in definition.columns
        ),
    )
