"""Keeps the facts about a table that its metadata tells: commits of the last day, owner, leases.

What is in the metadata is taken over whenever it changed, which the follower has read anyway. What takes
requests to the store (owner and standby; views, leases, notes of expiry and orphans) is asked for only while
somebody looks, and once for all who do.
"""

from __future__ import annotations

import json
import logging
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.iceberg.alterations import alterations_of
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
from thermocline.serving.tail.table_facts import (
    BAR_MS,
    BARS_MAX,
    Bar,
    CommitFact,
    LeaseFact,
    OwnerFact,
    RefFact,
    RewriteFact,
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

WANTED_MS: Final = 60_000
"""So long after somebody looked last, it is still asked for. A page that is open looks every five seconds."""
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

    def __init__(self, folder: Path, interval_seconds: float, clock: Clock) -> None:
        """``interval_seconds`` are those between two commits, as configured."""
        self._folder = folder
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._facts: TableFacts | None = None
        self._metadata = ""  # where the metadata is that the facts were taken from
        self._has_failed = False

    def look(self, table: Table) -> None:
        """Takes over what is new. Raises nothing: following goes on without it."""
        try:
            self._look(table)
        except Exception as error:  # noqa: BLE001  a store raises what it likes
            level = logging.DEBUG if self._has_failed else logging.WARNING
            log.log(level, "facts for the status not kept", extra=fields(detail=str(error)))
            self._has_failed = True
        else:
            self._has_failed = False

    def _look(self, table: Table) -> None:
        now_ms = self._clock.now_ms()
        before = facts = self._begun(table)
        if table.metadata_location != self._metadata:
            facts = taken_over(facts, table)
        if self._is_due(WANTED, facts.owner_at_ms, OWNER_MS, now_ms):
            owner = _owner_of(table, now_ms)
            facts = msgspec.structs.replace(facts, owner=owner, owner_at_ms=now_ms)
        if self._is_due(WANTED, facts.standby_at_ms, STANDBY_MS, now_ms):
            standby = _standby_of(table, facts.owner, now_ms)
            facts = msgspec.structs.replace(facts, standby=standby, standby_at_ms=now_ms)
        if self._is_due(WANTED_CLOSELY, facts.closely_at_ms, CLOSELY_MS, now_ms):
            facts = looked_closely(facts, table, now_ms)
        if facts is not before:
            facts = msgspec.structs.replace(facts, updated_ms=now_ms, interval_seconds=self._interval_seconds)
            replace_json(self._folder / TABLE_FACTS, facts)
        self._facts, self._metadata = facts, table.metadata_location

    def _begun(self, table: Table) -> TableFacts:
        """What is known of this table: another one of its name may have been made meanwhile."""
        uuid = str(table.metadata.table_uuid)
        known = self._facts or read_facts(self._folder)
        if known is not None and known.table_uuid == uuid:
            return known
        self._metadata = ""
        return TableFacts(uuid, self._clock.now_ms(), self._interval_seconds)

    def _is_due(self, mark: str, asked_ms: int | None, every_ms: int, now_ms: int) -> bool:
        if asked_ms is not None and 0 <= now_ms - asked_ms < every_ms:
            return False
        try:
            wanted_ms = (self._folder / mark).stat().st_mtime * 1000
        except OSError:
            return False
        return now_ms - wanted_ms < WANTED_MS  # safety: status-asked-while-wanted


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
        accepted=tuple(json.loads(table.properties.get(ACCEPTED_PROPERTY, "[]"))[-ACCEPTED_MAX:]),
        unread_fields=tuple(json.loads(table.properties.get(UNREAD_PROPERTY, "[]"))),
        unread=_unread_of(table),
    )


def looked_closely(facts: TableFacts, table: Table, now_ms: int) -> TableFacts:
    """The facts with what is beside the table by now. Raises `OSError`."""
    waiting = list(waiting_notes(table))
    sightings = read_sightings(table)
    noted = read_view_notes(table.io, table.location())
    return msgspec.structs.replace(
        facts,
        leases=tuple(
            LeaseFact(one.kind, one.holder, {str(id_): until for id_, until in one.snapshots.items()})
            for one in held_leases(table.io, table.location(), now_ms, LEASES_MAX)
        ),
        views=tuple(map(_view_of, noted.views)) if noted is not None else (),
        views_at_ms=noted.at_ms if noted is not None else None,
        expired_ms=last_expiry_ms(table),
        waiting_snapshots=sum(len(note.snapshots) for note in waiting),
        waiting_bytes=waiting_bytes(table, waiting),
        orphans=len(sightings),
        orphan_bytes=sum(size for _, size in sightings.values()),
        closely_at_ms=now_ms,
    )


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
        msgspec.structs.replace(one, changes=noted[one.version].changes) if one.version in noted else one
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
