"""The verdict on a key's row by the records that can decide. Pure.

The log is believed for what it holds and the table has read. Where something that is gone from the log, or
that a person did, may explain what the table shows, the key is not judged, and the verdict says why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from thermocline.rules.fold import order_of
from thermocline.rules.topic_patterns import finds
from thermocline.verify.log_decode import CERTAIN, MAYBE

if TYPE_CHECKING:
    from thermocline.iceberg.reading import Place, Reading

__all__ = ["JudgeContext", "KeyVerdict", "LastRecord", "Reason", "Stored", "judge"]


class Reason(StrEnum):
    """Why the log can't judge a key."""

    OLDER = "older than what the log still holds"
    COMPACTED = "its record was compacted away"
    REPLACED = "its topic's log was replaced since"
    LEFT = "its topic was deleted, and has left the table since"
    REPLAYED = "a record of it that was bad may have been replayed since"
    PARTIAL = "a record of it sets only some columns, and the log does not show the others for certain"
    CUT = "a delete of a higher sequence may be older than what the log still holds"
    FORGOTTEN = "its delete may have been forgotten before the row came"
    TAKEN_IN = "it was taken in from another source than the log"
    MOVED = "its last record may have been in another partition, where the log is cut or compacted"


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record of a key in a partition that the table has read. ``timestamp`` is in microseconds.

    ``deciding_ms`` is the time by which its batch decided between partitions.

    ``values`` are its value columns, in declared order, in a form that is equal exactly where they are. With
    partial updates they are what the records up to it came to in its partition, ``absent`` says which of them
    none of these set, and ``is_whole`` whether it sets all of them itself. Where columns order the records it
    is the one of the highest ``sequence``.
    """

    place: Place
    offset: int
    timestamp: int
    batch: int
    state: int
    is_tombstone: bool
    values: tuple[object, ...]
    deciding_ms: int
    is_whole: bool = True
    absent: tuple[bool, ...] = ()
    sequence: bytes = b""

    @property
    def is_maybe(self) -> bool:
        """Whether it was bad when it was read, and is good by now."""
        return self.state == MAYBE

    def __str__(self) -> str:
        return f"{self.place[0]}/{self.place[1]}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A live row. ``place`` is None where it says not where it comes from."""

    place: Place | None
    offset: int
    timestamp: int
    values: tuple[object, ...]
    sequence: bytes = b""

    def __str__(self) -> str:
        return "nowhere" if self.place is None else f"{self.place[0]}/{self.place[1]}@{self.offset}"


@dataclass(frozen=True, slots=True)
class KeyVerdict:
    """What is said of a key: ``code`` of a finding and ``what`` it is, or a ``reason``, or that it agrees.

    ``if_keys_stay``: a finding only where no key is met in several partitions. ``is_suppressed``: it agrees,
    though the row comes from an older record with equal values.
    """

    code: str = ""
    what: str = ""
    reason: Reason | None = None
    if_keys_stay: bool = False
    is_suppressed: bool = False


AGREES = KeyVerdict()


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What holds for all keys.

    ``firsts``: from where on, by partition, the log holds all that the table has read. ``compacted`` are
    topics; ``fleeting`` those of which tombstones may have gone while the log was read. ``later`` says of
    each value column whether it was added later, so that older rows may have it as null, and ``other``
    whether they may have it otherwise, since what is nested in it, or where it is read, was altered. Deletes
    from before ``forgotten_before``, in microseconds, may be forgotten where columns order the records.
    """

    reading: Reading
    firsts: Mapping[Place, int]
    compacted: Collection[str]
    fleeting: Collection[str]
    later: Sequence[bool]
    forgotten_before: int = 0
    other: Sequence[bool] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether columns order the records."""
        return self.reading.definition.merging.is_ordered

    @property
    def may_have_left(self) -> bool:
        """Whether topics may have left the table, which the log shows nothing of any more."""
        return bool(self.reading.definition.topic_patterns)

    def same(self, record: LastRecord, row: Stored) -> bool:
        """Whether a row has the values of a record; absent ones may be any, where the log may lack them."""
        if record.state == CERTAIN and not any(record.absent):
            return record.values == row.values
        is_known = self.holds_all_of(record.place)
        none = (False,) * len(record.values)
        absent, other = record.absent or none, self.other or none
        return all(
            ours == theirs
            or (is_later and theirs is None and record.state != CERTAIN)
            or (is_other and record.state != CERTAIN)
            or (is_absent and not is_known)
            for ours, theirs, is_later, is_absent, is_other in zip(
                record.values, row.values, self.later, absent, other, strict=True
            )
        )

    def knows_order(self, batch: int, records: Collection[LastRecord]) -> bool:
        """Whether it is known in which order a batch had records of several partitions.

        Their partition times follow from all records of the batch before them.
        """
        if not self.reading.is_timed(batch):
            return self.reading.is_known(batch)
        # safety: verify-partition-times
        return self.reading.is_known(batch) and all(
            one.place[0] not in self.compacted
            and self.firsts.get(one.place, 0) <= self.reading.reached(batch, one.place)
            for one in records
        )

    def holds_all_of(self, place: Place) -> bool:
        """Whether the log holds all records that the table has ever read of a partition."""
        reading, begins = self.reading, self.reading.incarnations[place].begins
        is_kept = place[0] not in self.compacted and place[0] not in reading.replaced
        return is_kept and reading.is_whole and begins is not None and self.firsts.get(place, 0) <= begins


def judge(last_records: Sequence[LastRecord], rows: Sequence[Stored], context: JudgeContext) -> KeyVerdict:
    """The verdict on a key, from the records of it before the seam and its live rows."""
    if len(rows) > 1:
        return KeyVerdict("key-live-twice", f"rows of {' and '.join(map(str, rows))} are live")
    if context.is_ordered:  # such a table takes no replay: what was bad is not in it
        last_records = [one for one in last_records if not one.is_maybe]
    possible = _possible_winners([one for one in last_records if not one.is_maybe], context)
    if not rows:
        return _judge_absent(possible, context)
    return _Case(rows[0], last_records, possible, context).verdict()


def _possible_winners(last_records: Sequence[LastRecord], context: JudgeContext) -> list[LastRecord]:
    """The record that was read last; several where nobody knows in which order they were read."""
    if not last_records:
        return []
    highest = max(one.sequence for one in last_records)
    last_records = [one for one in last_records if one.sequence == highest]  # safety: verify-sequence
    batch = max(one.batch for one in last_records)
    last = sorted((one for one in last_records if one.batch == batch), key=_rank, reverse=True)
    return last[:1] if len(last) == 1 or context.knows_order(batch, last) else last


def _rank(one: LastRecord) -> tuple[int, bytes, int, str, int]:
    return (one.batch, *order_of(one.deciding_ms, *one.place))


def _judge_absent(possible: Sequence[LastRecord], context: JudgeContext) -> KeyVerdict:
    if not possible or any(one.is_tombstone for one in possible):  # safety: verify-missing
        return AGREES
    winner = possible[0]
    if winner.place[0] in context.fleeting:
        return KeyVerdict(reason=Reason.COMPACTED)
    holds_all = all(map(context.holds_all_of, context.reading.incarnations))
    if context.is_ordered and (context.may_have_left or not holds_all):
        return KeyVerdict(reason=Reason.CUT)
    what = f"{winner} is the last record of it, and the table has no row"
    return KeyVerdict("row-missing", what, if_keys_stay=_may_hide(winner, context))  # safety: verify-moved


def _may_hide(winner: LastRecord, context: JudgeContext) -> bool:
    """Whether another partition may have had a record of the key, read later, that the log lost."""
    return context.may_have_left or any(
        place != winner.place
        and (
            place[0] in context.compacted
            or context.firsts.get(place, 0) > context.reading.reached(winner.batch, place)
        )
        for place in context.reading.incarnations
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """One row against the records of its key."""

    row: Stored
    last_records: Sequence[LastRecord]
    possible: Sequence[LastRecord]
    context: JudgeContext

    def verdict(self) -> KeyVerdict:
        row = self.row
        if row.place is None:
            return self._of_no_record()
        if (verdict := self._beyond(row.place)) is not None:
            return verdict
        if (verdict := self._partial()) is not None:
            return verdict
        own = next(
            (one for one in self.last_records if one.place == row.place and one.offset == row.offset), None
        )
        if own is not None and (own in self.possible or self._is_replayed(own)):
            return self._same(own)
        return self._against_winner(row.place)

    def _against_winner(self, place: Place) -> KeyVerdict:
        """Of a row whose record the log does not show, or shows as one that lost."""
        row, winner = self.row, self.possible[0] if self.possible else None
        if winner is None or row.sequence > winner.sequence:
            return self._unseen(place)
        if row.sequence < winner.sequence:
            is_forgotten = winner.is_tombstone and winner.timestamp < self.context.forgotten_before
            return KeyVerdict(reason=Reason.FORGOTTEN) if is_forgotten else self._late(winner)
        if self._is_suppressed():
            return KeyVerdict(is_suppressed=True)
        return self._late(winner) if self._is_before(winner, place) else self._unseen(place)

    def _of_no_record(self) -> KeyVerdict:
        if self.context.reading.took_in:  # safety: verify-taken-in
            return KeyVerdict(reason=Reason.TAKEN_IN)
        return KeyVerdict("row-extra", "the row does not say from which record it comes")

    def _beyond(self, place: Place) -> KeyVerdict | None:
        seam = self.context.reading.seam
        if place in seam and self.row.offset < seam[place]:
            return None
        has_left = place[0] not in seam.topics or place[0] in self.context.reading.replaced
        patterns = self.context.reading.definition.topic_patterns
        if has_left and finds(patterns, place[0]):  # safety: verify-left
            return KeyVerdict(reason=Reason.LEFT)
        if self.context.reading.replaced and not self.possible:
            return KeyVerdict(reason=Reason.REPLACED)
        return KeyVerdict("row-beyond-seam", f"the row comes from {self.row}, and the seam is {seam}")

    def _same(self, own: LastRecord) -> KeyVerdict:
        if own.is_tombstone:
            return KeyVerdict("row-extra", f"the row comes from {self.row}, which deletes it")
        # safety: verify-columns
        if own.timestamp != self.row.timestamp or not self.context.same(own, self.row):
            what = f"the row's columns are not those of {own}, where it comes from"
            return KeyVerdict(
                "row-differs", what, if_keys_stay=not own.is_whole and _may_hide(own, self.context)
            )
        if any(own.absent) and not self.context.holds_all_of(own.place):
            return KeyVerdict(reason=Reason.PARTIAL)
        return AGREES

    def _partial(self) -> KeyVerdict | None:
        """Where a record sets only some columns, the others follow from one partition's records alone."""
        if all(one.is_whole for one in self.possible):
            return None
        if any(one.is_maybe for one in self.last_records):
            return KeyVerdict(reason=Reason.REPLAYED)
        is_contested = len({one.place for one in self.last_records} | {self.row.place}) > 1
        return KeyVerdict(reason=Reason.PARTIAL) if is_contested else None

    def _is_replayed(self, own: LastRecord) -> bool:
        """Whether a replay may have applied it: only where it is the newest of its key."""
        return own.is_maybe and all(_rank(own) > _rank(one) for one in self.possible)

    def _is_suppressed(self) -> bool:
        """Whether the row is older than its record, and says the same."""
        last = [*self.possible, *(one for one in self.last_records if self._is_replayed(one))]
        return self.context.reading.suppressed and any(
            not one.is_tombstone and self.context.same(one, self.row) for one in last
        )

    def _is_before(self, winner: LastRecord, place: Place) -> bool:
        """Whether the row was certainly read before the winner."""
        row, reading = self.row, self.context.reading
        if place == winner.place:
            return row.offset < winner.offset
        if self._is_followed(place, by_maybe=False):
            return True
        is_earlier_log = place[0] in reading.replaced and row.offset < (
            reading.incarnations[place].begins or 0
        )
        if is_earlier_log:  # safety: verify-replaced
            return False
        batch = reading.batch(place, row.offset)
        if batch != winner.batch:
            return batch < winner.batch
        # Its own time is all that is known of it: partition times may have been later.
        is_decided = reading.is_known(batch) and not reading.is_timed(batch)
        return is_decided and order_of(row.timestamp // 1000, *place) < _rank(winner)[1:]

    def _is_followed(self, place: Place, by_maybe: bool) -> bool:
        """Whether the log has a record of the key at the row's offset or beyond it."""
        return any(
            one.is_maybe is by_maybe and one.place == place and one.offset >= self.row.offset
            for one in self.last_records
        )

    def _late(self, winner: LastRecord) -> KeyVerdict:
        """A finding; but where rows are suppressed, a record with the row's values may be hidden."""
        hangs = self.context.reading.suppressed and _may_hide(winner, self.context)
        if winner.is_tombstone:
            what = f"{winner} deletes it, and the table has its row of {self.row}"
            return KeyVerdict("row-extra", what, if_keys_stay=hangs)
        what = f"the row comes from {self.row}, and the last record is {winner}"
        return KeyVerdict("row-stale", what, if_keys_stay=hangs)

    def _unseen(self, place: Place) -> KeyVerdict:
        """The log shows no record that the row could come from, or that came after it."""
        topic, first = place[0], self.context.firsts.get(place, 0)
        begins = self.context.reading.incarnations[place].begins
        if topic in self.context.reading.replaced:
            return KeyVerdict(reason=Reason.REPLACED)
        if self.context.reading.is_whole and begins is not None and self.row.offset < begins:
            what = (
                f"the row comes from {self.row}, and the table has read {topic}/{place[1]} from {begins} on"
            )
            return KeyVerdict("row-extra", what)
        if self.row.offset < first:  # safety: verify-older
            return KeyVerdict(reason=Reason.OLDER)
        if self._is_followed(place, by_maybe=True):
            return KeyVerdict(reason=Reason.REPLAYED)
        if topic in self.context.compacted:
            return KeyVerdict(reason=Reason.COMPACTED)
        return KeyVerdict(
            "row-extra", f"the row comes from {self.row}, where the log has no record of its key"
        )
