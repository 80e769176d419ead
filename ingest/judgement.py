"""Whether a record from the quarantine may still be applied. Pure: evidence in, a verdict out.

A replayed record is old. It may go into the table only where it would be there, had it been good when it was
read: where it is the newest of its key in the log, and nothing newer is in the table. What cannot be known is
refused: an old record must neither overwrite newer data nor bring back a row that was deleted.

Two witnesses are heard. The *table* knows the record that its row came from. The *log* knows what came
after, deletions too, as far as it still reaches: retention cuts its beginning, and compaction drops
tombstones (after ``delete.retention.ms``, or at once where a later record of their key took their place).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from thermocline.fold import order_of
from thermocline.seam import Seam

if TYPE_CHECKING:
    from thermocline.log import TopicConfig

# What a partition is known to hold all records of, however old; and since when one does that holds none.
COMPLETE = -(2**62)
NEVER = 2**62


class Outcome(StrEnum):
    """What becomes of a record; the first three settle it, and it leaves the quarantine."""

    APPLIED = "applied"
    SUPERSEDED = "superseded"
    ALREADY_APPLIED = "already applied"
    STILL_BAD = "still bad"
    REFUSED = "refused"


SETTLED = frozenset({Outcome.APPLIED, Outcome.SUPERSEDED, Outcome.ALREADY_APPLIED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a record, and why."""

    outcome: Outcome
    why: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in the log a record or a row comes from. ``timestamp_ms`` is as the record carries it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def place(self) -> tuple[str, int]:
        """Its partition."""
        return (self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record of the quarantine that can be read by now; ``key`` is encoded."""

    origin: Origin
    key: bytes


@dataclass(frozen=True, slots=True)
class History:
    """The table's snapshots, oldest first: how far each was, and when it held all that the log held.

    No seam in it lies before an earlier one. ``drained_ms`` is by our clock, and None for a snapshot whose
    batch left something in the log.
    """

    seams: Sequence[Seam]
    drained_ms: Sequence[int | None]

    def before(self, origin: Origin) -> int | None:
        """The index of the last snapshot that had not passed the record; None where none of them had not."""
        index = self.batch(origin)
        return index - 1 if index > 0 else None

    def after(self, origin: Origin) -> Seam:
        """The seam of the first snapshot that had passed the record: what follows it was read after that."""
        index = self.batch(origin)
        return self.seams[index] if index < len(self.seams) else Seam()

    def appended_after_ms(self, origin: Origin) -> int | None:
        """A time at which the record was not in the log yet; None where the snapshots know none."""
        before = self.before(origin)
        if before is None:
            return None
        drained = zip(self.seams[before::-1], self.drained_ms[before::-1], strict=True)
        return next((ms for seam, ms in drained if ms is not None and origin.place in seam), None)

    def batch(self, origin: Origin) -> int:
        """A number for the batch that read the record: higher for a later one."""
        return bisect_right(self.seams, origin.offset, key=lambda seam: seam.get(origin.place, -1))


@dataclass(frozen=True, slots=True)
class Ground:
    """What holds for all candidates: the table's seam and history, and the topics as they are.

    ``starts`` are the log's when it was read. ``complete_since_ms``: for each partition, all its records
    below the seam with a later timestamp were read, too (``COMPLETE``: all that matter).
    """

    has_key: bool
    seam: Seam
    history: History
    topic_ids: Mapping[str, str]
    configs: Mapping[str, TopicConfig]
    starts: Seam
    now_ms: int
    complete_since_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def compacted(self) -> list[str]:
        """The topics that are compacted."""
        return [topic for topic, config in self.configs.items() if config.is_compacted]


@dataclass(frozen=True, slots=True)
class Heard:
    """What the log says of a candidate and its key.

    ``last`` has the last record found of the key in each partition, the candidate among them. ``is_there``:
    the record stands in the log as it does in quarantine (None: the log shows no record there).
    ``bad_after``: a later record of the key that is bad.
    """

    last: Sequence[Origin]
    is_there: bool | None
    bad_after: Origin | None


def judge_by_place(origin: Origin, topic_id: str, ground: Ground) -> Verdict | None:
    """Whether the record belongs to this log and lies before the seam; None where it does."""
    if ground.topic_ids.get(origin.topic) != topic_id:
        return _refused(f"the topic {origin.topic} was replaced since, or is none of the table's any more")
    if not ground.seam.covers(origin.topic, origin.partition, origin.offset):
        return _refused("the table has not passed it yet: ingest will meet it again")
    if origin.place not in ground.starts:
        return _refused(f"the partition {origin.topic}/{origin.partition} does not exist any more")
    return None


def judge_by_table(candidate: Candidate, row: Origin | None, ground: Ground) -> Verdict | None:
    """What the row that has the key now says; None where the log must be asked."""
    origin = candidate.origin
    if row is None:
        return None if ground.has_key else Verdict(Outcome.APPLIED, "the table has no row of it")
    if (row.place, row.offset) == (origin.place, origin.offset):
        if row.timestamp_ms == origin.timestamp_ms:
            return Verdict(Outcome.ALREADY_APPLIED, "the row comes from this very record")
        return _refused(f"the row comes from another record that stood at {row}")
    if _is_newer(row, origin, ground.history) and row.timestamp_ms >= origin.timestamp_ms:
        return Verdict(Outcome.SUPERSEDED, f"the row comes from a newer record, {row}")
    return None


def judge_by_log(candidate: Candidate, row: Origin | None, heard: Heard, ground: Ground) -> Verdict:
    """What the log says, where the table alone could not decide."""
    origin = candidate.origin
    start = ground.starts[origin.place]
    if start > origin.offset + 1:
        return _refused(f"the log of {origin.topic}/{origin.partition} is cut past it: it begins at {start}")
    if heard.is_there is False:
        return _refused("the log holds another record at its place")
    if heard.is_there is None and start <= origin.offset and not ground.configs[origin.topic].is_compacted:
        return _refused("the log holds no record at its place any more")
    newer = next((rival for rival in heard.last if _is_newer(rival, origin, ground.history)), None)
    if newer is not None:
        return Verdict(Outcome.SUPERSEDED, f"a newer record of its key is in the log: {newer}")
    if row is not None and _is_newer(row, origin, ground.history):
        return _refused(f"the row comes from {row}, which should be newer, and the log does not show it")
    rivals = [*heard.last, *([] if row is None else [row])]
    unclear = next((rival for rival in rivals if _is_newer(rival, origin, ground.history) is None), None)
    if unclear is not None:
        return _refused(f"by time it is older than {unclear} and by its batch newer, or the other way round")
    if not _is_vouched_for(candidate, row, heard, ground):
        reason = next(_unknown(candidate, heard, ground), None)
        if reason is not None:
            return _refused(reason)
    return Verdict(Outcome.APPLIED, "it is the newest record of its key")


def _is_vouched_for(candidate: Candidate, row: Origin | None, heard: Heard, ground: Ground) -> bool:
    """Whether the row alone proves that nothing newer of the key was ever applied.

    It does when it comes from an older record of the same partition: whatever followed the candidate there
    would have replaced or deleted that row, and what came from other partitions is older than the row, or
    would have done the same. Both must be of one log: either the candidate still stands there, or the
    broker's times go on from the one to the other.
    """
    origin = candidate.origin
    if row is None or row.place != origin.place or row.offset >= origin.offset:
        return False
    is_later = ground.configs[origin.topic].is_log_append_time and row.timestamp_ms <= origin.timestamp_ms
    return heard.is_there is True or is_later


def _unknown(candidate: Candidate, heard: Heard, ground: Ground) -> Iterator[str]:
    """The reasons why something newer of the key may have been there unseen."""
    origin = candidate.origin
    before, after = ground.history.before(origin), ground.history.after(origin)
    for topic, partition, start in ground.starts.items():
        place = (topic, partition)
        if place == origin.place or start == 0 or ground.seam.get(place) == 0:
            continue
        if before is not None and start <= ground.history.seams[before].get(place):
            continue  # what is gone was in the table before the candidate was read
        if ground.configs[topic].is_log_append_time:
            is_cut_later = place in after and start > after[place]
            if is_cut_later or ground.complete_since_ms.get(place, NEVER) >= origin.timestamp_ms:
                yield f"the log of {topic}/{partition} is cut past its time, and its key may have been there"
        else:
            yield f"the log of {topic}/{partition} is cut, and its key may have been there"
    for topic in ground.compacted:
        kept_ms = ground.configs[topic].delete_retention_ms
        since_ms = _appended_after_ms(candidate, ground)
        if since_ms is None:
            yield f"{topic} is compacted, and nothing says how long the record has been there"
        elif ground.now_ms - since_ms >= kept_ms:
            yield (
                f"{topic} is compacted, and the record is older than {kept_ms / 1000:g} s: "
                "a tombstone of its key may be gone"
            )
    if heard.bad_after is not None and ground.compacted:
        yield f"compaction may have dropped a tombstone of its key before the bad record {heard.bad_after}"


def _appended_after_ms(candidate: Candidate, ground: Ground) -> int | None:
    origin = candidate.origin
    if ground.configs[origin.topic].is_log_append_time:
        return origin.timestamp_ms
    return ground.history.appended_after_ms(origin)


def _is_newer(one: Origin, other: Origin, history: History) -> bool | None:
    """Whether one record comes after another of its key; None where the two rules of merging disagree.

    Within a partition the offset decides. Otherwise a later batch's record wins, and within a batch the
    fold's order; what is older by its time though read later, or the reverse, is not for a replay to decide.
    """
    if one.place == other.place:
        return one.offset > other.offset
    is_younger = order_of(one.timestamp_ms, *one.place) > order_of(other.timestamp_ms, *other.place)
    batches = (history.batch(one), history.batch(other))
    is_read_later = batches[0] > batches[1] if batches[0] != batches[1] else is_younger
    return is_younger if is_younger == is_read_later else None


def _refused(why: str) -> Verdict:
    return Verdict(Outcome.REFUSED, why)


__all__ = [
    "COMPLETE",
    "NEVER",
    "SETTLED",
    "Candidate",
    "Ground",
    "Heard",
    "History",
    "Origin",
    "Outcome",
    "Verdict",
    "judge_by_log",
    "judge_by_place",
    "judge_by_table",
]
