"""The verdict on a record from the quarantine: may it still be applied? Pure.

A replayed record is old. It may go into the table only where it would be there, had it been good when it was
read. That is decided as ingest decides: a later batch's record wins over an earlier one's, and within a batch
the fold does. Another record that was bad when it was read decides nothing unless it was replayed since: the
table does not have it. So all is asked of what the table read from the record's own batch on, and whoever
cannot answer for all of that (a snapshot is expired, the log is cut, compaction may have dropped a tombstone)
makes it a refusal: an old record must neither overwrite newer data nor bring back a row that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from thermocline.rules.fold import order_of
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.iceberg.reading import Place, Reading
    from thermocline.kafka.facts import TopicConfig
    from thermocline.rules.merging import Merging


Times = Mapping[tuple["Place", int], int]
"""By partition and offset, the time by which its batch decided between records of one key."""


class Outcome(StrEnum):
    """What becomes of a record; the first three settle it, and it leaves the quarantine."""

    APPLIED = "applied"
    SUPERSEDED = "superseded"
    ALREADY_APPLIED = "already applied"
    STILL_BAD = "still bad"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a record, and why."""

    outcome: Outcome
    why: str

    @property
    def settles(self) -> bool:
        """Whether the record leaves the quarantine."""
        return self.outcome in (Outcome.APPLIED, Outcome.SUPERSEDED, Outcome.ALREADY_APPLIED)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the log a record or a row comes from. ``timestamp_ms`` is as the record carries it.

    ``topic_id`` is empty for a row: the table does not say of which incarnation of a topic it is.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    topic_id: str = ""

    @property
    def place(self) -> Place:
        """Its partition."""
        return (self.topic, self.partition)

    def is_at(self, other: Origin) -> bool:
        """Whether both stand at one place in the log."""
        return (self.place, self.offset) == (other.place, other.offset)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record of the quarantine that can be read by now; ``key`` is encoded.

    ``is_partial``: it leaves columns of its row as they are.
    """

    origin: Origin
    key: bytes
    is_tombstone: bool = False
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A record that the log shows, and that the table took in; it may be ``is_partial``, as a candidate."""

    origin: Origin
    is_tombstone: bool
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class TableContext:
    """What holds for all candidates: the table's seam, what it read in which batch, and its topics.

    ``reading`` is of snapshots without a gap, which all read one log. ``drained_ms``, by our clock: what the
    log held by then is in that snapshot; None where it says nothing of that.
    ``starts`` are the log's when it was read. ``young_from``: for partitions with the broker's times, from
    which offset on all records are younger than the time for which compaction keeps tombstones.
    """

    merging: Merging
    is_keyed_by_value: bool
    seam: Seam
    reading: Reading
    drained_ms: Sequence[int | None]
    topic_ids: Mapping[str, str]
    configs: Mapping[str, TopicConfig]
    starts: Seam
    now_ms: int
    young_from: Mapping[Place, int] = field(default_factory=dict)

    @property
    def compacted(self) -> list[str]:
        """The topics that are compacted."""
        return [topic for topic, config in self.configs.items() if config.is_compacted]

    def appended_after_ms(self, index: int, place: Place) -> int | None:
        """When nothing that a partition gave after a snapshot was there yet; None where that is unknown."""
        partition = self.reading.incarnations.get(place)
        known = range(index, partition.first - 1, -1) if partition is not None else ()
        return next((ms for one in known if (ms := self.drained_ms[one]) is not None), None)


@dataclass(frozen=True, slots=True)
class CandidateEvidence:
    """What the log says of a candidate and its key.

    ``last`` has the last record of the key that the table took in from each partition, the candidate among
    them, as if it had been good. ``is_there``: the record stands in the log as it does in quarantine (None:
    the log shows no record there).
    ``hiding``: a record of the key, bad or beyond the seam, for which compaction may have dropped another.
    ``waiting`` has the last record of the key in each partition that is in quarantine itself, and could be
    read by now: whether the table took it in is not known. ``times_ms`` are those by which their batches
    decided between partitions.
    """

    last: Sequence[Found]
    is_there: bool | None
    hiding: Origin | None
    waiting: Sequence[Origin] = ()
    times_ms: Times = field(default_factory=dict)


def newest_first(candidates: Sequence[Candidate], reading: Reading, times_ms: Times) -> list[Candidate]:
    """In the order in which they can be judged, each by what the ones before it are found to be.

    As ingest would have it: later batches win, and within one, among the last records of the partitions, the
    fold decides.
    """
    last: dict[tuple[bytes, Place, int], int] = {}
    for one in candidates:
        among = (one.key, one.origin.place, _batch(one.origin, reading))
        last[among] = max(last.get(among, 0), one.origin.offset)

    def rank(one: Candidate) -> tuple[int, bool, tuple[bytes, int, str, int]]:
        origin, batch = one.origin, _batch(one.origin, reading)
        is_last = last[one.key, origin.place, batch] == origin.offset
        return (batch, is_last, _order(origin, times_ms))

    return sorted(candidates, key=rank, reverse=True)


def batch_before(origin: Origin, reading: Reading) -> int | None:
    """The index of the last snapshot from before a record was read; None where none of them is."""
    return _batch(origin, reading) - 1 if _batch(origin, reading) > 0 else None


def judge_by_place(origin: Origin, context: TableContext) -> Judgement | None:
    """Whether the record belongs to this log and lies before the seam; None where it does."""
    if context.topic_ids.get(origin.topic) != origin.topic_id:  # safety: replay-topic-id
        return _refused(f"the topic {origin.topic} was replaced since, or is none of the table's any more")
    if not context.seam.covers(origin.topic, origin.partition, origin.offset):  # safety: replay-before-seam
        return _refused("the table has not passed it yet: ingest will meet it again")
    if origin.place not in context.starts:
        return _refused(f"the partition {origin.topic}/{origin.partition} does not exist any more")
    if context.merging.is_ordered:  # safety: replay-ordered
        return _refused(
            "columns order the table's records, and a later delete of its key may be forgotten: send it again"
        )
    return None


def judge_by_table(candidate: Candidate, row: Origin | None, context: TableContext) -> Judgement | None:
    """What the row that has the key now says; None where the log must be asked."""
    origin = candidate.origin
    if row is None:
        return None if context.merging.is_keyed else Judgement(Outcome.APPLIED, "the table has no row of it")
    if not row.topic:  # safety: replay-taken-in
        return _refused("the row was taken in from another source, and nothing says which of them is newer")
    if row.is_at(origin):
        if row.timestamp_ms == origin.timestamp_ms:  # safety: replay-applied-once
            return Judgement(Outcome.ALREADY_APPLIED, "the row comes from this very record")
        return _refused(f"the row comes from another record that stood at {row}")
    # A row of an earlier incarnation of the topic may have a higher offset, but is older by its time.
    is_append_time = context.configs[origin.topic].is_log_append_time
    is_behind = row.place == origin.place and row.offset > origin.offset
    if context.merging.is_partial:  # the newer record may have left columns as they are, which this one sets
        return None
    # safety: replay-row-of-an-earlier-incarnation
    if is_behind and is_append_time and row.timestamp_ms >= origin.timestamp_ms:
        return Judgement(Outcome.SUPERSEDED, f"the row comes from a newer record, {row}")
    return None


def judge_by_log(
    candidate: Candidate, row: Origin | None, evidence: CandidateEvidence, context: TableContext
) -> Judgement:
    """What the log says, where the table alone could not decide."""
    origin, reading = candidate.origin, context.reading
    before = batch_before(origin, reading)
    if before is None:  # safety: replay-no-history
        return _refused(
            "nothing says what was read after it: the snapshots from before it are expired, "
            "or the table went on behind a gap or with another log since"
        )
    if evidence.is_there is False:  # safety: replay-same-record
        return _refused("the log holds another record at its place")
    later = next((one for one in evidence.last if _is_read_later(one.origin, origin, reading)), None)
    if later is not None:  # safety: replay-newer-in-log
        return _superseded_by(later)
    reason = next(_unknown(candidate, before, evidence, context), None)
    if reason is not None:
        return _refused(reason)
    if row is not None and _is_unexplained(row, origin, evidence, reading):  # safety: replay-row-unexplained
        return _refused(f"the row comes from {row}, which should be newer, and the log does not show it")
    return _judge_by_batch(origin, row, evidence, reading)


def _judge_by_batch(
    origin: Origin, row: Origin | None, evidence: CandidateEvidence, reading: Reading
) -> Judgement:
    """What the fold says of the record among those of its key that were read in the same batch."""
    rivals = [one for one in evidence.last if _batch(one.origin, reading) == _batch(origin, reading)]
    winner = max(rivals, key=lambda one: _order(one.origin, evidence.times_ms))
    if winner.origin.is_at(origin):  # safety: replay-folded
        return Judgement(Outcome.APPLIED, "it is the newest record of its key")
    if winner.is_tombstone if row is None else row.is_at(winner.origin):  # safety: replay-rival-that-lost
        return Judgement(Outcome.SUPERSEDED, f"its batch has a newer record of its key: {winner.origin}")
    return _refused(
        f"its batch has a newer record of its key, {winner.origin}, and the table doesn't show that one"
    )


def _order(origin: Origin, times_ms: Times) -> tuple[bytes, int, str, int]:
    """What decides between the last records of a key in the partitions of a batch."""
    return order_of(times_ms.get((origin.place, origin.offset), origin.timestamp_ms), *origin.place)


def _superseded_by(later: Found) -> Judgement:
    """A newer record takes a record's place, unless it leaves columns as they are, which that one may set."""
    if later.is_partial:  # safety: replay-newer-partial
        return _refused(f"a newer record of its key, {later.origin}, sets only some of the columns")
    return Judgement(Outcome.SUPERSEDED, f"a newer record of its key is in the log: {later.origin}")


def _batch(origin: Origin, reading: Reading) -> int:
    return reading.batch(origin.place, origin.offset)


def _is_read_later(one: Origin, origin: Origin, reading: Reading) -> bool:
    """Whether a record took the place of another one whatever else there was."""
    if one.place == origin.place:
        return one.offset > origin.offset
    return _batch(one, reading) > _batch(origin, reading)


def _may_win(one: Origin, origin: Origin, reading: Reading) -> bool:
    """Whether a record may take the place of another one: it was read later, or in the same batch."""
    if one.place == origin.place:
        return one.offset > origin.offset
    return _batch(one, reading) >= _batch(origin, reading)


def _is_unexplained(row: Origin, origin: Origin, evidence: CandidateEvidence, reading: Reading) -> bool:
    """Whether the row says that it was read with the record or later, and the log does not show it so."""
    if row.place == origin.place:
        return row.offset > origin.offset
    shown = any(
        row.is_at(one.origin) and row.timestamp_ms == one.origin.timestamp_ms for one in evidence.last
    )
    return _batch(row, reading) >= _batch(origin, reading) and not shown


def _unknown(
    candidate: Candidate, before: int, evidence: CandidateEvidence, context: TableContext
) -> Iterator[str]:
    """The reasons why something of the key, read with the record or later, may be there unseen."""
    origin, batch = candidate.origin, _batch(candidate.origin, context.reading)
    waiting = next((one for one in evidence.waiting if _may_win(one, origin, context.reading)), None)
    if waiting is not None:  # safety: replay-quarantined-too
        yield f"{waiting}, which may be newer and has its key, is in quarantine too: replay that one first"
    yield from _unknown_rivals(candidate, batch, evidence, context)
    yield from _unknown_later(origin, before, context)
    # On a compacted topic, too: what took the record's place there may have been dropped in its turn.
    is_gone = evidence.is_there is None and context.starts[origin.place] <= origin.offset
    if is_gone:  # safety: replay-record-gone
        yield "the log holds no record at its place any more"
    if context.compacted and context.is_keyed_by_value:  # safety: replay-compacted-by-another-key
        yield "compaction goes by the record's key, and the table does not: any record may have been dropped"
    if evidence.hiding is not None:  # safety: replay-hidden-tombstone
        yield f"compaction may have dropped a tombstone of its key before the record {evidence.hiding}"


def _unknown_rivals(
    candidate: Candidate, batch: int, evidence: CandidateEvidence, context: TableContext
) -> Iterator[str]:
    """The reasons why a record of the key in another partition of the batch may decide."""
    origin = candidate.origin
    others = (one.origin for one in evidence.last if one.origin.place != origin.place)
    rivals = [one for one in others if _batch(one, context.reading) == batch]
    if candidate.is_partial and rivals:
        yield "it sets only some columns, and its batch has a record of its key in another partition"
    # safety: replay-compacted-times
    if rivals and any(_may_be_later(one, evidence.times_ms, context) for one in (origin, *rivals)):
        yield (
            f"its batch has a record of its key in another partition, {rivals[0]}, and compaction may have "
            "dropped records whose times decided between them"
        )


def _unknown_later(origin: Origin, before: int, context: TableContext) -> Iterator[str]:
    """The reasons why the log may have lost a later record of the key."""
    for topic, partition, start in context.starts.items():
        place = (topic, partition)
        is_own = place == origin.place
        # safety: replay-other-partition-cut
        first = origin.offset + 1 if is_own else context.reading.reached(before + 1, place)
        if start > first:  # safety: replay-log-cut
            yield f"the log of {topic}/{partition} is cut: it begins at {start}, and {first} is asked for"
        # safety: replay-tombstone-age
        if context.configs[topic].is_compacted and not _is_young(place, first, before, context):
            kept_seconds = context.configs[topic].delete_retention_ms / 1000
            yield (
                f"{topic} is compacted, and what came after the record may be older than {kept_seconds:g} s: "
                "a tombstone of its key may be gone"
            )


def _may_be_later(origin: Origin, times_ms: Times, context: TableContext) -> bool:
    """Whether its partition may have been farther in time than the log shows, since records were dropped."""
    config, reading = context.configs[origin.topic], context.reading
    if not config.is_compacted or config.is_log_append_time:
        return False
    after_ms = reading.partition_time_before(_batch(origin, reading) + 1, origin.place)
    return times_ms.get((origin.place, origin.offset), origin.timestamp_ms) < after_ms


def _is_young(place: Place, first: int, before: int, context: TableContext) -> bool:
    """Whether all that was appended to the partition from an offset on is too young for a tombstone to go."""
    if place in context.young_from and context.young_from[place] <= first:
        return True
    since_ms = context.appended_after_ms(before, place)
    return since_ms is not None and context.now_ms - since_ms < context.configs[place[0]].delete_retention_ms


def _refused(why: str) -> Judgement:
    return Judgement(Outcome.REFUSED, why)


__all__ = [
    "Candidate",
    "CandidateEvidence",
    "Found",
    "Judgement",
    "Origin",
    "Outcome",
    "TableContext",
    "batch_before",
    "judge_by_log",
    "judge_by_place",
    "judge_by_table",
    "newest_first",
]
