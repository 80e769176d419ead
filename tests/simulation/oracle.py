"""What the table must hold: a replay, into dicts, of what was produced, whatever the log still has of it.

It shares no code with ``decode``, ``fold``, ``keys`` and ``seam``. A snapshot's rows are those of its parent
and the records between both seams; so a record that the seam passes and the rows do not show is a lost one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.simulation.columns import Columns, SeenTable, decoded, shown
from tests.simulation.faults import Violation
from tests.simulation.records import KEPT, NULL, Fields, Key, More, Row
from thermocline.rules.bad_digest import digest_of, merged

if TYPE_CHECKING:
    from tests.simulation.catalog import FakeSnapshot
    from tests.simulation.partitions import Transaction

Place = tuple[str, int]
Offsets = Mapping[Place, int]
Rows = dict[Key, Row]
Maybe = Row | None
# Who goes on after one of these, also with another log, accepts what its tombstones would have deleted.
_FORGIVES = {"tombstones-gone", "log-replaced"}


@dataclass(slots=True, eq=False)
class Produced:
    """A record that the cluster acknowledged; ``key`` is None for a bad one, ``v`` for a tombstone.

    ``v`` is `KEPT` for one that leaves its row's value as it is.

    ``raw_key`` is the key whatever the value is like: compaction goes by it. ``fields`` is what else it has,
    ``more`` what that is by the table's columns (`under`).

    ``is_superseded``: compaction took it, as a later one of its key is there; ``is_dropped``: it was a
    tombstone, and compaction took it for its age.
    """

    raw_key: Key
    key: Key | None
    v: int | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    transaction: Transaction | None
    appended_ms: int = 0
    is_superseded: bool = False
    is_dropped: bool = False
    is_forgiven: bool = False
    fields: Fields = field(default_factory=dict)
    more: More = ()

    def under(self, columns: Columns) -> Produced:
        """The record as a table with these columns takes it: bad, maybe."""
        if not columns or not self.fields:
            return self
        more = decoded(self.fields, columns)
        return replace(self, key=None) if more is None else replace(self, more=more)

    @property
    def is_visible(self) -> bool:
        """Whether a committed reader sees it."""
        one = self.transaction
        return one is None or not (one.is_open or one.is_aborted)

    @property
    def may_be_missing(self) -> bool:
        """Whether a reader may rightly not have seen it."""
        return self.is_superseded or (self.is_dropped and self.is_forgiven)


@dataclass(slots=True)
class State:
    """What a snapshot of ours says of itself."""

    seam: dict[Place, int]
    topic_ids: dict[str, str]
    epoch: int
    batch_id: str
    accepted: dict[str, object] | None
    totals: dict[str, int]
    bad_digest: int
    times: dict[Place, int] = field(default_factory=dict)
    drained_ms: int = 0
    columns: Columns = ()


@dataclass(slots=True)
class Log:
    """All records that one partition of one topic (by id) ever took, the lost end of a log apart."""

    records: list[Produced] = field(default_factory=list)
    start: int = 0

    def between(self, first: int, end: int) -> Iterator[Produced]:
        """What a committed reader may see of these offsets."""
        return (one for one in self.records if first <= one.offset < end and one.is_visible)


class Oracle:
    """The records, and by snapshot the rows and what it says. ``log_generation`` counts logs that changed.

    ``takes`` is the topic whose records are the table's; empty for all.
    """

    def __init__(self, takes: str = "") -> None:
        self._takes = takes
        self.logs: dict[tuple[str, int], Log] = {}
        self.log_generation = 0
        self._left: dict[tuple[str, int], int] = {}  # where the table was in topics that left, by their ids
        self.skew_ms = 0  # as much may clocks be wrong
        self.has_accepted = False  # whether any snapshot says that a loss was accepted
        self.states: dict[int, State] = {}
        self.table = SeenTable()
        self.epoch = 0
        self._rows: dict[int, Rows] = {}
        self._foreign_parents: dict[int, int] = {}
        self._newest = 0
        self._batches: set[str] = set()
        self._owner_of_epoch: dict[int, str] = {}

    # What happens to the log.

    def log(self, topic_id: str, partition: int) -> Log:
        """The log of a partition."""
        return self.logs.setdefault((topic_id, partition), Log())

    def lost_end(self, topic_id: str, partition: int, to: int) -> None:
        """The cluster no longer has what it acknowledged from this offset on."""
        log = self.log(topic_id, partition)
        log.records = [one for one in log.records if one.offset < to]
        self.log_generation += 1

    def forgive_tombstones(self) -> None:
        """Somebody accepted that tombstones written by now were not seen, or may go before they are."""
        for log in self.logs.values():
            for one in log.records:
                one.is_forgiven = True

    # What the table must be.

    def is_ours(self, one: Produced) -> bool:
        """Whether a record is the table's; it is filtered otherwise, and counts for nothing but the time."""
        return not self._takes or one.topic == self._takes

    def rows(self, snapshot_id: int, ends: Offsets | None = None) -> Rows:
        """What a read of a snapshot gives, with the log laid over it up to ``ends``."""
        columns = self.columns(snapshot_id)
        rows = self._expected(snapshot_id, ends)[0]
        return {key: shown(row, columns) for key, row in rows.items()} if columns else rows

    def columns(self, snapshot_id: int) -> Columns:
        """The columns that the table had with a snapshot, beside the plain ones."""
        state = self.states.get(snapshot_id)
        return () if state is None else state.columns

    def check(
        self, what: str, rows: Mapping[Key, Row], snapshot_id: int, ends: Offsets | None = None
    ) -> None:
        """Raises `Violation` where a read gave other rows than it must."""
        _compare(what, rows, *self._expected(snapshot_id, ends), self.columns(snapshot_id))

    def landed_foreign(self, snapshot: FakeSnapshot, rows: Rows) -> None:
        """A snapshot that somebody else made, who may write what they want, or the table's first one."""
        self._rows[snapshot.snapshot_id] = rows
        state = state_of(snapshot)
        if state is None and snapshot.parent_snapshot_id is not None:
            self._foreign_parents[snapshot.snapshot_id] = snapshot.parent_snapshot_id
        if state is not None:
            state.columns = self.table.columns
            self.states[snapshot.snapshot_id] = state
            self._newest = snapshot.snapshot_id

    def landed(self, snapshot: FakeSnapshot, rows: Rows, by: str) -> list[Produced]:
        """A snapshot of ours with these rows became part of the table, by a process; what it took in.

        Raises `Violation`.
        """
        state = state_of(snapshot)
        parent = snapshot.parent_snapshot_id
        assert state is not None
        assert parent is not None
        state.columns = self.table.columns
        what = f"snapshot {snapshot.snapshot_id}"
        parent = self._below_rewrites(what, parent)
        before = self.states[parent]
        if parent != self._newest and state.accepted is None:
            raise Violation("rollback-undone", f"{what} follows {parent}, and {self._newest} was the newest")
        self._newest = snapshot.snapshot_id
        self._check_owner(what, state, by)
        read = self._between(what, before, state)
        _check_accounts(what, snapshot, before, state, read, self.is_ours)
        if state.accepted is None:
            _check_times(what, before, state, read)
        expected = self._applied(self._rows[parent], read, before.times, state)
        _compare(what, rows, *expected, state.columns)
        self.states[snapshot.snapshot_id] = state
        self._rows[snapshot.snapshot_id] = rows
        return read

    def _below_rewrites(self, what: str, parent: int) -> int:
        """The snapshot of ours that a new one goes on from, below those of others that kept its rows."""
        theirs, below = parent, parent
        while below not in self.states:
            below = self._foreign_parents[below]
        columns = self.states[below].columns
        found, wanted = (_shown(self._rows[one], columns) for one in (theirs, below))
        if found != wanted:
            raise Violation("commit-onto-foreign", f"{what} follows {theirs}, whose rows are others")
        return below

    def replay(self, topic_ids: Mapping[str, str]) -> Rows:
        """The rows after all records of these topics, each key's in the order of its one partition."""
        rows: Rows = {}
        for (topic_id, _), log in self.logs.items():
            if topic_id in topic_ids.values():
                for one in log.records:
                    if one.key is not None and one.is_visible and self.is_ours(one):
                        row = _row_after(rows.get(one.key), one)
                        rows.pop(one.key, None) if row is None else rows.update({one.key: row})
        return rows

    def _check_owner(self, what: str, state: State, by: str) -> None:
        if state.epoch < self.epoch:
            raise Violation("stale-owner", f"{what} of epoch {state.epoch} landed after {self.epoch}")
        self.epoch = state.epoch
        owner = self._owner_of_epoch.setdefault(state.epoch, by)
        if owner != by:
            raise Violation("two-owners", f"{what}: epoch {state.epoch} is that of {owner} and of {by}")
        if state.batch_id in self._batches:
            raise Violation("repeated-batch", f"{what}: {state.batch_id}")
        self._batches.add(state.batch_id)

    def _between(self, what: str, before: State, after: State) -> list[Produced]:
        """The records that a snapshot took in: what its seam passed."""
        if after.accepted is not None:
            self.has_accepted = True
            self._check_accepted(what, before, after)
            return []
        self._check_left(what, before, after)
        read: list[Produced] = []
        for place, end in after.seam.items():
            topic_id = after.topic_ids[place[0]]
            if before.topic_ids.get(place[0], topic_id) != topic_id:
                raise Violation("other-log", f"{what} goes on with {place[0]} as {topic_id}")
            first = before.seam.get(place, self._left.get((topic_id, place[1]), 0))
            if end < first:
                raise Violation("seam-back", f"{what}: {place} from {first} to {end}")
            taken = self.log(topic_id, place[1]).between(first, end)
            read += (one.under(after.columns) for one in taken)
        return read

    def _check_left(self, what: str, before: State, after: State) -> None:
        """A topic leaves a table that has all of it, or all that was there when it last had all."""
        for (topic, partition), end in before.seam.items():
            if topic in after.topic_ids:
                continue
            self._left[before.topic_ids[topic], partition] = end
            unread = self.log(before.topic_ids[topic], partition).between(end, 1 << 62)
            lost = [one.offset for one in unread if one.appended_ms < before.drained_ms - self.skew_ms]
            if lost:
                raise Violation("left-unread", f"{what}: {topic}/{partition} from {end}: {lost}")

    def _check_accepted(self, what: str, before: State, after: State) -> None:
        """A gap may only be what the log lost; what is read again belongs to a log that changed."""
        code = str((after.accepted or {}).get("code"))
        if code in _FORGIVES:
            self.forgive_tombstones()
        if code not in {"offsets-gone", "tombstones-gone"}:
            return
        for place, end in after.seam.items():
            first, log = before.seam.get(place, 0), self.log(after.topic_ids[place[0]], place[1])
            if end < first or (end > first and end > log.start):
                raise Violation(
                    "gap-too-wide", f"{what}: {place} from {first} to {end}, {log.start} is there"
                )

    def _expected(self, snapshot_id: int, ends: Offsets | None) -> tuple[Rows, dict[Key, set[Maybe]]]:
        rows = self._rows[snapshot_id]
        if ends is None:
            return rows, {}
        state = self.states[snapshot_id]
        hot = [
            one.under(state.columns)
            for place, end in ends.items()
            for one in self.log(state.topic_ids[place[0]], place[1]).between(state.seam.get(place, 0), end)
        ]
        return self._applied(rows, hot, state.times, state)

    def _applied(
        self, rows: Rows, records: list[Produced], before: Mapping[Place, int], state: State
    ) -> tuple[Rows, dict[Key, set[Maybe]]]:
        return _applied(rows, records, before, self._compacted(state), self.is_ours)

    def _compacted(self, state: State) -> set[Place]:
        """The partitions of which compaction took records: these may have been seen, and their times."""
        return {
            (topic, partition)
            for topic, topic_id in state.topic_ids.items()
            for (of, partition), log in self.logs.items()
            if of == topic_id and any(one.is_superseded or one.is_dropped for one in log.records)
        }


def state_of(snapshot: FakeSnapshot) -> State | None:
    """What a snapshot says of itself; None where it is not one of ours."""
    summary = snapshot.summary.additional_properties
    if "thermocline.seam" not in summary:
        return None
    accepted = summary.get("thermocline.accepted")
    prefix = "thermocline.total-records-"
    return State(
        _by_place(summary["thermocline.seam"]),
        json.loads(summary["thermocline.topic-ids"]),
        int(summary["thermocline.epoch"]),
        summary["thermocline.batch-id"],
        None if accepted is None else json.loads(accepted),
        {name.removeprefix(prefix): int(n) for name, n in summary.items() if name.startswith(prefix)},
        int(summary["thermocline.total-bad-digest"]),
        _by_place(summary["thermocline.partition-times-ms"]),
        int(summary["thermocline.drained-ms"]),
    )


def _by_place(text: str) -> dict[Place, int]:
    parts = json.loads(text).items()
    return {(topic, int(p)): number for topic, of_topic in parts for p, number in of_topic.items()}


def _check_times(what: str, before: State, after: State, read: list[Produced]) -> None:
    """How far each partition came in time, which later records are ordered by."""
    for place in after.seam:
        own = [one for one in read if (one.topic, one.partition) == place]
        sure = [one.timestamp_ms for one in own if not (one.is_superseded or one.is_dropped)]
        start = before.times.get(place, -1)
        least, most = max([start, *sure]), max([start, *(one.timestamp_ms for one in own)])
        if not least <= after.times.get(place, -1) <= most:
            raise Violation("time-wrong", f"{what}: {place} at {after.times.get(place)}, not {least}")


def _check_accounts(
    what: str,
    snapshot: FakeSnapshot,
    before: State,
    after: State,
    read: list[Produced],
    is_ours: Callable[[Produced], bool],
) -> None:
    summary, prefix = snapshot.summary.additional_properties, "thermocline.records-"
    counts = {name.removeprefix(prefix): int(n) for name, n in summary.items() if name.startswith(prefix)}
    if 2 * counts["read"] != sum(counts.values()):
        raise Violation("accounting-open", f"{what}: {counts}")
    if any(after.totals[name] != before.totals.get(name, 0) + n for name, n in counts.items()):
        raise Violation("accounting-open", f"{what}: {before.totals} and {counts} are not {after.totals}")
    least = sum(1 for one in read if not (one.is_superseded or one.is_dropped))
    if not least <= counts["read"] <= len(read):
        raise Violation("accounting-open", f"{what} read {counts['read']}, not {len(read)}")
    others = sum(1 for one in read if not is_ours(one))
    if counts["filtered"] > others or counts["filtered"] < others - (len(read) - least):
        raise Violation("accounting-open", f"{what}: {counts['filtered']} of {others} that are not its own")
    read = [one for one in read if is_ours(one)]
    least = sum(1 for one in read if not (one.is_superseded or one.is_dropped))
    bad = sum(1 for one in read if one.key is None)
    if counts["quarantined"] > bad or counts["quarantined"] < bad - (len(read) - least):
        raise Violation("accounting-open", f"{what}: {counts['quarantined']} of {bad} bad ones")
    digests = [digest_of(one.topic, one.partition, [one.offset]) for one in read if one.key is None]
    if least == len(read) and after.bad_digest != merged(before.bad_digest, *digests):
        raise Violation("accounting-open", f"{what}: the digest of its {bad} bad ones is of others")


def _applied(
    rows: Rows,
    records: list[Produced],
    before: Mapping[Place, int],
    compacted: set[Place],
    is_ours: Callable[[Produced], bool],
) -> tuple[Rows, dict[Key, set[Maybe]]]:
    """The rows after these records, and what else a key may show: where compaction took the winner."""
    by_key: dict[Key, list[Produced]] = {}
    greatest = dict(before)
    times: dict[int, int] = {}
    for one in sorted(records, key=lambda one: one.offset):
        place = (one.topic, one.partition)
        times[id(one)] = greatest[place] = max(one.timestamp_ms, greatest.get(place, -1))
    for one in records:
        if one.key is not None and is_ours(one):
            by_key.setdefault(one.key, []).append(one)
    after = dict(rows)
    also: dict[Key, set[Maybe]] = {}
    for key, some in by_key.items():
        won = _won(rows.get(key), some, times)
        if won is None:
            after.pop(key, None)
        else:
            after[key] = won
        # What compaction took, it took before or after it was read. A tombstone that is gone matters to rows
        # that were read, of its partition; those of others, which a key should not have, it may spare.
        is_contested = len({(one.topic, one.partition) for one in some}) > 1
        is_spared = is_contested and any((one.topic, one.partition) in compacted for one in some)
        winner = _winner(some, times)
        if is_spared or winner.may_be_missing or _is_of_another(rows.get(key), winner):
            also[key] = {rows.get(key), *map(_row, some)}
    return after, also


def _winner(records: list[Produced], times: Mapping[int, int]) -> Produced:
    """Of one key: the last of each partition, and of these the one whose partition is farthest in time."""
    last: dict[Place, Produced] = {}
    for one in records:
        place = (one.topic, one.partition)
        if place not in last or last[place].offset < one.offset:
            last[place] = one
    return max(last.values(), key=lambda one: (times[id(one)], one.topic, one.partition))


def _won(row: Maybe, records: list[Produced], times: Mapping[int, int]) -> Maybe:
    """The row after the records of its key: those of the winner's partition, one after another."""
    winner = _winner(records, times)
    of_place = [one for one in records if (one.topic, one.partition) == (winner.topic, winner.partition)]
    for one in sorted(of_place, key=lambda one: one.offset):
        row = _row_after(row, one)
    return row


def _row_after(row: Maybe, one: Produced) -> Maybe:
    if one.v != KEPT:
        return _row(one)
    return Row(NULL if row is None else row.v, one.topic, one.partition, one.offset)


def _is_of_another(row: Maybe, tombstone: Produced) -> bool:
    """Whether a row was maybe read, from its partition, only after another one had lost its tombstone."""
    if row is None or not tombstone.is_dropped:
        return False
    return (row.topic, row.partition) != (tombstone.topic, tombstone.partition)


def _row(one: Produced) -> Maybe:
    return None if one.v is None else Row(one.v, one.topic, one.partition, one.offset, one.more)


def _shown(rows: Mapping[Key, Row], columns: Columns) -> dict[Key, Row]:
    return {key: shown(row, columns) for key, row in rows.items()}


def _compare(
    what: str,
    rows: Mapping[Key, Row],
    expected: Mapping[Key, Row],
    also: Mapping[Key, set[Maybe]],
    columns: Columns = (),
) -> None:
    """Raises where rows differ, as a table with these columns shows them."""
    if rows == expected:
        return
    rows, expected = _shown(rows, columns), _shown(expected, columns)
    also = {key: {row and shown(row, columns) for row in some} for key, some in also.items()}
    for key in sorted({*rows, *expected}):
        row, wanted = rows.get(key), expected.get(key)
        if row == wanted or row in also.get(key, ()):
            continue
        if row is None:
            raise Violation("row-missing", f"{what}: {key} is {wanted}")
        if wanted is None:
            raise Violation("row-extra", f"{what}: {key} shows {row}, and was deleted or never written")
        raise Violation("row-stale", f"{what}: {key} shows {row}, not {wanted}")
