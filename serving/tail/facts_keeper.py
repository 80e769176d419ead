"""Keeps the facts about a table that its metadata tells: commits of the last day, owner, leases.

What is in the metadata is taken over whenever it changed, which the follower has read anyway. What takes
requests to the store (owner and standby; views, leases, notes of expiry and orphans) is asked for only while
somebody looks, once for all who do, and in a thread of its own: following does not wait for it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from thermocline.iceberg.alterations import alterations_of, last_by_contract
from thermocline.iceberg.catalog import (
    ACCEPTED_PROPERTY,
    SUMMARY_BEGAN,
    UNREAD_COUNTS_PROPERTY,
    UNREAD_PROPERTY,
    ancestors,
)
from thermocline.iceberg.expired import last_expiry_ms, waiting_bytes, waiting_notes
from thermocline.iceberg.holder import holder_of, standby_of
from thermocline.iceberg.leases import held_leases
from thermocline.iceberg.lineage import Link, link_of
from thermocline.iceberg.orphan_note import read_sightings
from thermocline.iceberg.view_notes import read_view_notes
from thermocline.process.logs import fields
from thermocline.rules.unread_counts import UnreadCounts
from thermocline.serving.store.layout import TABLE_FACTS, WANTED, WANTED_CLOSELY
from thermocline.serving.tail.beside import Beside, Run, in_thread, is_wanted
from thermocline.serving.tail.table_facts import (
    BAR_MS,
    BARS_MAX,
    Bar,
    CommitFact,
    LeaseFact,
    OwnerFact,
    RefFact,
    RewriteFact,
    SchemaCauseFact,
    SchemaChangeFact,
    StandbyFact,
    TableFacts,
    UnreadFact,
    VersionFact,
    ViewFact,
    read_facts,
)
from thermocline.serving.tail.tailer_status import replace_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyiceberg.table import Table

    from thermocline.iceberg.view_notes import ViewNote
    from thermocline.process.clock import Clock

__all__ = ["FactsKeeper"]

OWNER_MS: Final = 30_000
STANDBY_MS: Final = 60_000
CLOSELY_MS: Final = 30_000
"""How old an answer of the store gets before it is asked again."""
RECENT_MAX: Final = 20
VERSIONS_MAX: Final = 20
LEASES_MAX: Final = 50
"""Of a table that many read at once, more say nothing to a person."""
ACCEPTED_MAX: Final = 10
REWRITES_MAX: Final = 20
"""The newest, whose rate the next one is expected to have."""
_OWNER_FIELDS: Final = tuple(name for name in OwnerFact.__struct_fields__ if name != "is_gone")
_DELETED_ROWS: Final = "added-position-deletes"
_REMOVED_BYTES: Final = "removed-files-size"
"""In the summary that Iceberg itself writes."""

log = logging.getLogger(__name__)


class FactsKeeper:
    """Those of one table, for the thread that follows it."""

    def __init__(self, folder: Path, interval_seconds: float, clock: Clock, run: Run = in_thread) -> None:
        """``interval_seconds`` are those between two commits, as configured; ``run`` does what takes long."""
        self._folder = folder
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._beside = Beside(run)
        self._writing = threading.Lock()
        self._facts: TableFacts | None = None
        self._metadata = ""  # where the metadata is that the facts were taken from
        self._failing: set[str] = set()

    def look(self, table: Table) -> None:
        """Takes over what is new, and has the store asked. Raises nothing: following goes on without it."""
        self._try("metadata", lambda: self._take_over(table))
        due = self._due()
        if due:
            self._beside.begin(lambda: self._try("store", lambda: self._ask(table, due)))

    def _try(self, of: str, work: Callable[[], None]) -> None:
        """Does what may fail, which is logged at a lower level from the second time in a row on."""
        try:
            work()
        except Exception as error:  # noqa: BLE001  a store raises what it likes
            level = logging.DEBUG if of in self._failing else logging.WARNING
            log.log(level, "facts for the status not kept", extra=fields(of=of, detail=str(error)))
            self._failing.add(of)
        else:
            self._failing.discard(of)

    def _take_over(self, table: Table) -> None:
        """What the metadata says, which is at hand."""
        with self._writing:
            facts = self._begun(table)
            if table.metadata_location != self._metadata:
                self._keep(taken_over(facts, table))
                self._metadata = table.metadata_location

    def _due(self) -> list[_Ask]:
        """What the store is to be asked for."""
        now_ms, facts = self._clock.now_ms(), self._facts
        if facts is None:
            return []
        return [
            ask
            for ask in _ASKS
            if not _is_young(getattr(facts, ask.at), ask.every_ms, now_ms)
            and is_wanted(self._folder / ask.mark, now_ms)
        ]

    def _ask(self, table: Table, due: Iterable[_Ask]) -> None:
        """Asks, one after the other; each answer is kept as it comes."""
        for ask in due:
            now_ms, facts = self._clock.now_ms(), self._facts
            if facts is None or facts.table_uuid != str(table.metadata.table_uuid):
                return
            answer = ask.of(table, facts, now_ms)
            with self._writing:
                # Meanwhile, the follower may have met another table of that name.
                if self._facts is not None and self._facts.table_uuid == facts.table_uuid:
                    self._keep(msgspec.structs.replace(self._facts, **answer, **{ask.at: now_ms}))

    def _keep(self, facts: TableFacts) -> None:
        now_ms = self._clock.now_ms()
        kept = msgspec.structs.replace(facts, updated_ms=now_ms, interval_seconds=self._interval_seconds)
        replace_json(self._folder / TABLE_FACTS, kept)
        self._facts = kept

    def _begun(self, table: Table) -> TableFacts:
        """What is known of this table: another one of its name may have been made meanwhile."""
        uuid = str(table.metadata.table_uuid)
        known = self._facts or read_facts(self._folder)
        if known is not None and known.table_uuid == uuid:
            return known
        self._metadata = ""
        return TableFacts(uuid, self._clock.now_ms(), self._interval_seconds)


def _is_young(asked_ms: int | None, every_ms: int, now_ms: int) -> bool:
    return asked_ms is not None and 0 <= now_ms - asked_ms < every_ms


def taken_over(facts: TableFacts, table: Table) -> TableFacts:
    """The facts with what the metadata says by now."""
    snapshots = list(ancestors(table))
    count = sum(1 for _ in takewhile(lambda one: (one.sequence_number or 0) > facts.counted_to, snapshots))
    links = [link_of(one) for one in snapshots[: max(count, RECENT_MAX)]]
    new = links[:count][::-1]
    last = next((link for link in links if not (link.is_rewrite or link.is_foreign)), None)
    stated = next((link.state for link in links if link.state is not None), None)
    rewrites = [link.snapshot.timestamp_ms for link in new if link.is_rewrite]
    return msgspec.structs.replace(
        facts,
        counted_to=(snapshots[0].sequence_number or 0) if snapshots else facts.counted_to,
        format_version=table.metadata.format_version,
        snapshots=len(table.metadata.snapshots),
        refs=tuple(
            RefFact(name, str(ref.snapshot_ref_type), str(ref.snapshot_id))
            for name, ref in sorted(table.metadata.refs.items())
        ),
        bars=with_commits(facts.bars, new),
        recent=tuple(map(_commit_of, links[:RECENT_MAX])),
        last_commit_ms=last.snapshot.timestamp_ms if last else facts.last_commit_ms,
        last_commit_seconds=_seconds_of(last) if last else facts.last_commit_seconds,
        drained_ms=stated.drained_ms if stated else None,
        rewritten_ms=max(rewrites, default=facts.rewritten_ms),
        rewrites=(*facts.rewrites, *filter(None, map(_rewrite_of, new)))[-REWRITES_MAX:],
        totals=dict(stated.totals) if stated else {},
        versions=with_changes(with_versions(facts.versions, new), table.properties),
        schema_change=_schema_change_of(table.properties),
        accepted=tuple(json.loads(table.properties.get(ACCEPTED_PROPERTY, "[]"))[-ACCEPTED_MAX:]),
        unread_fields=tuple(json.loads(table.properties.get(UNREAD_PROPERTY, "[]"))),
        unread=_unread_of(table),
    )


def looked_closely(table: Table, now_ms: int) -> dict[str, Any]:
    """What is beside the table by now, as facts. Raises `OSError`."""
    waiting = list(waiting_notes(table))
    sightings = read_sightings(table)
    noted = read_view_notes(table.io, table.location())
    return {
        "leases": tuple(
            LeaseFact(one.kind, one.holder, {str(id_): until for id_, until in one.snapshots.items()})
            for one in held_leases(table.io, table.location(), now_ms, LEASES_MAX)
        ),
        "views": tuple(map(_view_of, noted.views)) if noted is not None else (),
        "views_at_ms": noted.at_ms if noted is not None else None,
        "expired_ms": last_expiry_ms(table),
        "waiting_snapshots": sum(len(note.snapshots) for note in waiting),
        "waiting_bytes": waiting_bytes(table, waiting),
        "orphans": len(sightings),
        "orphan_bytes": sum(size for _, size in sightings.values()),
    }


def with_commits(bars: Sequence[Bar], new: Iterable[Link]) -> tuple[Bar, ...]:
    """The bars with these snapshots in them, oldest first; those of the last day."""
    by_begin = {bar.begins_ms: bar for bar in bars}
    for link in new:
        begins_ms = link.snapshot.timestamp_ms // BAR_MS * BAR_MS
        by_begin[begins_ms] = _with_commit(by_begin.get(begins_ms) or Bar(begins_ms), link)
    newest = max(by_begin, default=0)
    return tuple(by_begin[at] for at in sorted(by_begin) if at > newest - BARS_MAX * BAR_MS)


def with_versions(known: Sequence[VersionFact], new: Iterable[Link]) -> tuple[VersionFact, ...]:
    """The versions of the definition with those of these snapshots, oldest first."""
    versions = list(known)
    for link in new:
        state = link.state
        if state is not None and (not versions or versions[-1].version != state.definition_version):
            since_ms, snapshot_id = link.snapshot.timestamp_ms, str(link.snapshot_id)
            versions.append(VersionFact(state.definition_version, since_ms, snapshot_id))
    return tuple(versions[-VERSIONS_MAX:])


def with_changes(versions: Sequence[VersionFact], properties: Mapping[str, str]) -> tuple[VersionFact, ...]:
    """The versions with what each changed, as the table notes it; and those from before any snapshot here."""
    noted = {one.version: one for one in alterations_of(properties)}
    oldest = min((one.version for one in versions), default=None)
    earlier = (
        VersionFact(one.version, one.at_ms) for one in noted.values() if oldest and one.version < oldest
    )
    return tuple(
        msgspec.structs.replace(one, changes=noted[one.version].sentences) if one.version in noted else one
        for one in (*earlier, *versions)
    )[-VERSIONS_MAX:]


def _with_commit(bar: Bar, link: Link) -> Bar:
    commit = _commit_of(link)
    if link.is_rewrite:
        return msgspec.structs.replace(bar, rewrites=bar.rewrites + 1)
    return msgspec.structs.replace(
        bar,
        commits=bar.commits + 1,
        records=bar.records + commit.records,
        deleted_rows=bar.deleted_rows + commit.deleted_rows,
        quarantined=bar.quarantined + commit.quarantined,
        seconds_max=max(bar.seconds_max, commit.seconds or 0.0),
    )


def _commit_of(link: Link) -> CommitFact:
    counts = link.state.counts if link.state is not None else {}
    return CommitFact(
        snapshot_id=str(link.snapshot_id),
        at_ms=link.snapshot.timestamp_ms,
        kind=_kind_of(link),
        records=counts.get("read", 0),
        deleted_rows=_number(link, _DELETED_ROWS) or 0,
        quarantined=counts.get("quarantined", 0),
        seconds=_seconds_of(link),
    )


def _kind_of(link: Link) -> str:
    kinds = {
        "rewrite": link.is_rewrite,
        "by another program": link.is_foreign,
        "accepted loss": link.is_accepted,
        "replay": link.is_replay,
    }
    return next((kind for kind, is_so in kinds.items() if is_so), "commit")


def _seconds_of(link: Link) -> float | None:
    began_ms = _number(link, SUMMARY_BEGAN)
    return None if began_ms is None else max(link.snapshot.timestamp_ms - began_ms, 0) / 1000


def _number(link: Link, name: str) -> int | None:
    text = link.summary.get(name, "")
    return int(text) if text.isdecimal() else None


def _unread_of(table: Table) -> UnreadFact | None:
    counts = UnreadCounts.of_json(table.properties.get(UNREAD_COUNTS_PROPERTY, ""))
    return UnreadFact(**counts.to_document()) if counts.values else None


def _schema_change_of(properties: Mapping[str, str]) -> SchemaChangeFact | None:
    noted = last_by_contract(properties)
    if noted is None:
        return None
    causes = tuple(SchemaCauseFact(**asdict(one)) for one in noted.causes)
    return SchemaChangeFact(noted.version, noted.at_ms, noted.changes, causes)


def _owner_of(table: Table, now_ms: int) -> OwnerFact | None:
    holder = holder_of(table.io, table.location())
    if holder is None:
        return None
    said = {name: getattr(holder, name) for name in _OWNER_FIELDS}
    return OwnerFact(**said, is_gone=holder.is_gone(now_ms))


def _standby_of(table: Table, owner: OwnerFact | None, now_ms: int) -> StandbyFact | None:
    """None also of one that is gone, or has just become the owner."""
    standby = standby_of(table.io, table.location())
    if standby is None or standby.is_gone(now_ms):
        return None
    if owner is not None and not owner.ended and (owner.host, owner.pid) == (standby.host, standby.pid):
        return None
    return StandbyFact(standby.host, standby.pid, standby.since, standby.renewed)


def _rewrite_of(link: Link) -> RewriteFact | None:
    size, seconds = _number(link, _REMOVED_BYTES), _seconds_of(link)
    return RewriteFact(size, seconds) if link.is_rewrite and size and seconds else None


def _view_of(note: ViewNote) -> ViewFact:
    snapshot_id = None if note.snapshot_id is None else str(note.snapshot_id)
    return ViewFact(note.view, note.mode, snapshot_id, note.ends_ms, note.definition_version, note.withdrawn)


class _Ask(NamedTuple):
    """What the store is asked for: while the file ``mark`` is touched, when that was, and how often."""

    mark: str
    at: str
    every_ms: int
    of: Callable[[Table, TableFacts, int], dict[str, Any]]


_ASKS: Final = (
    _Ask(WANTED, "owner_at_ms", OWNER_MS, lambda table, _, now_ms: {"owner": _owner_of(table, now_ms)}),
    _Ask(
        WANTED,
        "standby_at_ms",
        STANDBY_MS,
        lambda table, facts, now_ms: {"standby": _standby_of(table, facts.owner, now_ms)},
    ),
    _Ask(WANTED_CLOSELY, "closely_at_ms", CLOSELY_MS, lambda table, _, now_ms: looked_closely(table, now_ms)),
)
"""In this order: who owns the table is no standby."""
