"""Go on after a stop: accept what is lost, or say from where to read; both stay on record in the table.

Ingest stops where going on by itself would lose or repeat records in silence, and prints a command that
repeats the facts. The command runs the same checks again, and acts only when it finds exactly these facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import (
    ForeignSnapshot,
    LogReplaced,
    OffsetsGone,
    TopicDeleted,
)
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import (
    ACCEPTED_PROPERTY,
    DELETED_PROPERTY,
    HELD_PROPERTY,
    SUMMARY_ACCEPTED,
    TOMBSTONES_PROPERTY,
    SnapshotState,
    current_state,
    definition_of,
    open_table,
    state_of,
)
from thermocline.iceberg.files import plan_files, store_named
from thermocline.iceberg.lineage import link_of
from thermocline.iceberg.rewrite import resume_state
from thermocline.ingest.claim.ownership import Owned, own_table
from thermocline.ingest.commit.change import NewTopics, Onto, TableChange
from thermocline.ingest.commit.commit import landed
from thermocline.ingest.commit.rotation import (
    change_of,
    check_what_is_there,
    deleted_ends,
    given_up_ends,
)
from thermocline.ingest.table.accepted import (
    GAPS,
    Accepted,
    Gap,
    check_facts,
    differ,
    topics_in_question,
    with_entry,
)
from thermocline.ingest.table.progress import new_topics
from thermocline.kafka.log import Log
from thermocline.process.clock import iso_time
from thermocline.rules.bucket_change import fitting
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.rotation import only_there
from thermocline.rules.seam import Seam
from thermocline.rules.topic_patterns import found_by_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table

    from thermocline.ingest.claim.lease import Say
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings


_NO_ID: Final = ""
"""Of a topic that no snapshot has the id of; no topic has it."""


def accept_gap(
    settings: Settings, name: str, facts: Sequence[str], clock: Clock, say: Say | None = None
) -> Accepted | None:
    """Go on behind records or tombstones that are lost; None where nothing is.

    Raises:
        NotConfirmed: these facts are not what is found.
        TableHeld: an owner lives.
        ThermoclineError: the table cannot be continued, a source is unavailable, or the commit failed.
    """

    def move(owned: Owned, stop: Gap | LogReplaced, now_ms: int) -> TableChange:
        state, as_before = owned.state, TableChange.carrying_on(owned.state)
        if isinstance(stop, OffsetsGone):
            return replace(as_before, seam=state.seam.advanced(stop.ends()))
        if isinstance(stop, TopicDeleted):
            return change_of(state, owned.definition, owned.table.properties, {}, stop.topics)
        topics = topics_in_question(stop, owned.definition.topics)
        return replace(as_before, properties=_tombstones_since_now(state, topics, now_ms))

    return _resume(settings, name, facts, GAPS, move, "", clock, say)


def rebase(
    settings: Settings, name: str, facts: Sequence[str], to: str, clock: Clock, say: Say | None = None
) -> Accepted | None:
    """Go on with another cluster or topic, or a log that was cut; None where it still fits the table.

    Args:
        to: "earliest", "latest" or an ISO 8601 time with a zone: from where the topics in question are read.
            Of topics that are not in question, nothing changes.

    Raises what `accept_gap` raises, and `LogReplaced` where offsets are what rows are known by.
    """

    def move(owned: Owned, stop: Gap | LogReplaced, now_ms: int) -> TableChange:
        # Whether a deleted topic that a pattern found may leave is found out after this.
        there = only_there(owned.definition, owned.log)
        state, topics = owned.state, topics_in_question(stop, there.topics)
        change = replace(
            TableChange.carrying_on(state),
            seam=state.seam.without(topics),
            cluster_id=owned.log.cluster_id(),
            watermark_ms=-1,  # what is read next may be older than anything before
            partition_times=(state.partition_times or PartitionTimes()).without(topics),
            properties={
                **_tombstones_since_now(state, topics, now_ms),
                **_without_ends(owned, topics),
            },
        )
        return change.reading(new_topics(owned.log, topics, to))

    return _resume(settings, name, facts, (LogReplaced,), move, to, clock, say)


def rebase_onto(
    settings: Settings,
    name: str,
    snapshot_id: int,
    facts: Sequence[str],
    clock: Clock,
    say: Say | None = None,
) -> Accepted | None:
    """Go on from the newest snapshot that carries a seam, giving up what others wrote after it.

    One commit does it and keeps a note of it; what somebody writes meanwhile makes it fail. Topics that the
    table has had since that snapshot are read again from where they were added. None where the
    table can be continued as it is. Raises what `accept_gap` raises.
    """
    given = (*facts, f"onto={snapshot_id}")
    foreign = _foreign(settings, name, given, clock)
    if foreign is None:
        return None
    found = (*foreign.tokens, f"onto={foreign.onto}")
    if sorted(given) != sorted(found):
        raise differ(name, foreign, given, found)
    table = open_table(settings, name)
    new = _new_since(settings, table, snapshot_id, name)
    accepted = Accepted(
        code=foreign.code,
        facts=found,
        at=iso_time(clock.now_ms()),
        seam_before={},
        seam_after=new.starts.to_dict(),
        given_up=foreign.given_up,
    )
    entry, entries = accepted.entry(), table.properties.get(ACCEPTED_PROPERTY, "[]")
    onto = Onto(
        snapshot_id,
        over=foreign.snapshot_id,
        summary={SUMMARY_ACCEPTED: entry},
        properties={
            ACCEPTED_PROPERTY: with_entry(entries, entry),
            TOMBSTONES_PROPERTY: "{}",  # what it says is of a seam that lay further on
            **_ends_known(table, snapshot_id, name),
        },
        new=new,
        definition=_definition_for(table, snapshot_id, name),  # safety: rebase-fits-unit
    )
    try:
        with own_table(settings, name, clock, onto, say):
            return accepted
    except ForeignSnapshot:
        newer = _foreign(settings, name, given, clock)
        if newer is None or newer.tokens == foreign.tokens:
            raise
        raise differ(name, newer, given, (*newer.tokens, f"onto={newer.onto}")) from None


def _new_since(settings: Settings, table: Table, snapshot_id: int, name: str) -> NewTopics:
    """The table's topics that a snapshot knows nothing of: they were added after it.

    They are read from where they were then, which the oldest snapshot that knows them says; where it is gone,
    from ``start`` on. Topics that a pattern found keep the id that the table knew last, so that one that was
    deleted meanwhile, or made again, is told from it.
    """
    known = _known(table, snapshot_id, name)
    definition, log = definition_of(table, name), Log(settings.kafka)
    added = [topic for topic in definition.topics if topic not in known]
    there = [topic for topic in only_there(definition, log).topics if topic in added]
    new = new_topics(log, there, settings.table(name).start) if there else NewTopics()
    found = frozenset(found_by_pattern(definition)).intersection(added)
    starts = Seam({(topic, p): 0 if topic in found else at for topic, p, at in new.starts.items()})
    joined, last = _seams_joined(table)
    # safety: rebase-ids-of-topics
    ids = {
        **dict.fromkeys(found, _NO_ID),
        **new.topic_ids,
        **{one: last[one] for one in found if one in last},
    }
    for topic, topic_id in ids.items():
        seam = joined.get((topic, topic_id))
        if seam is not None:
            starts = starts.without([topic]).merged_max(seam.without(set(seam.topics) - {topic}))
    return NewTopics(ids, starts)


def _ends_known(table: Table, snapshot_id: int, name: str) -> dict[str, str]:
    """The properties that say how far topics went that a table knew before it goes back to a snapshot.

    Of no topic it is known by the time alone that the snapshot had all of it.
    """
    if not definition_of(table, name).topic_patterns:
        return {}
    known = _known(table, snapshot_id, name)
    ends = given_up_ends(table.properties, known)
    all_of_them = sorted({*known, *definition_of(table, name).topics})
    # safety: rebase-held
    return {DELETED_PROPERTY: ends.to_json(), HELD_PROPERTY: json.dumps(all_of_them)}


def _without_ends(owned: Owned, topics: Sequence[str]) -> dict[str, str]:
    """The same, without topics that are read again."""
    if not owned.definition.topic_patterns:
        return {}
    return {DELETED_PROPERTY: deleted_ends(owned.table.properties).without(topics).to_json()}


def _known(table: Table, snapshot_id: int, name: str) -> Mapping[str, str]:
    """The ids of the topics that a snapshot was fed from."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None, "it was found a moment ago"
    return state_of(snapshot, name).topic_ids


def _seams_joined(table: Table) -> tuple[dict[tuple[str, str], Seam], dict[str, str]]:
    """The seam of the oldest snapshot that knows a topic, by the topic and its id; and the newest ids."""
    joined: dict[tuple[str, str], Seam] = {}
    last: dict[str, str] = {}
    for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0):
        state = link_of(snapshot).state
        if state is not None:
            joined = dict.fromkeys(state.topic_ids.items(), state.seam) | joined
            last |= state.topic_ids
    return joined, last


def _definition_for(table: Table, snapshot_id: int, name: str) -> LiveTable | None:
    """The definition with what a snapshot has: topics that have left since, and buckets; None: as it is.

    Of a table whose number of buckets was raised since, with the number of then.
    """
    definition = definition_of(table, name)
    left = [topic for topic in _known(table, snapshot_id, name) if topic not in definition.topics]
    before = definition
    if left:  # safety: rebase-topics-left
        topics = (*definition.topics, *left)
        definition = replace(definition, topics=topics, version=definition.version + 1)
    if definition.file_buckets is not None:
        with store_named(name):
            files = plan_files(table, snapshot_id, name, buckets=1)
        definition = fitting(definition, (file.part.of for file in files))
    return None if definition is before else definition


def _foreign(settings: Settings, name: str, given: Sequence[str], clock: Clock) -> ForeignSnapshot | None:
    """Why the table cannot be continued, and from where it can; None where it can be as it is.

    Raises `NotConfirmed` where the log stops it, and `ForeignSnapshot` where nothing can be continued.
    """
    now_ms = clock.now_ms()
    try:
        table = open_table(settings, name)
        state = current_state(table, name)
        stop = _Finder(settings, name).stop(state, Log(settings.kafka), table, now_ms)
    except ForeignSnapshot as error:
        if error.onto < 0:
            raise
        return error
    if stop is not None:
        raise differ(name, stop, given)
    return None


def _tombstones_since_now(state: SnapshotState, topics: Sequence[str], now_ms: int) -> dict[str, str]:
    """The property that says from when on tombstones matter: of these topics, from now on."""
    return {TOMBSTONES_PROPERTY: json.dumps({**state.tombstones_since_ms, **dict.fromkeys(topics, now_ms)})}


def _resume(
    settings: Settings,
    name: str,
    facts: Sequence[str],
    kinds: tuple[type[Gap | LogReplaced], ...],
    move: Callable[[Owned, Gap | LogReplaced, int], TableChange],
    to: str,
    clock: Clock,
    say: Say | None,
) -> Accepted | None:
    now_ms, table = clock.now_ms(), open_table(settings, name)
    definition = definition_of(table, name)
    state, _ = resume_state(table, definition, name)
    find = _Finder(settings, name)
    stop = find.stop(state, Log(settings.kafka), table, now_ms)
    if stop is None:
        return None
    check_facts(name, stop, kinds, facts, to)  # before the table is taken, or waited for
    if isinstance(stop, LogReplaced) and not definition.has_key:
        raise replace(stop, has_key=False)
    with own_table(settings, name, clock, say=say) as owned:
        now_ms = clock.now_ms()  # before the log is asked: what it gains from now on is newer
        stop = find.stop(owned.state, owned.log, owned.table, now_ms)
        if stop is None:
            return None
        check_facts(name, stop, kinds, facts, to)
        moved = move(owned, stop, now_ms)
        at = iso_time(now_ms)
        accepted = Accepted.of_move(stop.code, stop.tokens, at, owned.state.seam, moved.seam, to)
        _commit(owned, moved, accepted)
    return accepted


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds what keeps ingest from going on: what its checks find before a batch."""

    settings: Settings
    name: str

    def stop(self, state: SnapshotState, log: Log, table: Table, now_ms: int) -> Gap | LogReplaced | None:
        """The first thing that the checks find; None where ingest can go on."""
        name, definition = self.name, definition_of(table, self.name)
        try:
            seconds = self.settings.table(name).deleted_topic_seconds
            check_what_is_there(definition, state, log, table.properties, now_ms, seconds)
        except (*GAPS, LogReplaced) as stop:
            return stop
        return None


def _commit(owned: Owned, moved: TableChange, accepted: Accepted) -> None:
    entry = accepted.entry()
    entries = with_entry(owned.table.properties.get(ACCEPTED_PROPERTY, "[]"), entry)
    change = replace(
        moved,
        summary={**moved.summary, SUMMARY_ACCEPTED: entry},
        properties={**moved.properties, ACCEPTED_PROPERTY: entries},
    )
    failpoint("resume.commit")
    landed(owned.committer.commit(owned.state.snapshot_id, owned.state.seam, change))
