"""What one partition of a fake cluster holds: records and the ends of transactions, with holes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.kafka import FakeCluster

Place = tuple[str, int]
Headers = list[tuple[str, bytes]]

_offset = attrgetter("offset")


@dataclass(slots=True, eq=False)
class Transaction:
    """Records of any partitions that a committed reader sees together, once `commit` was called, or never.

    Its end takes an offset, which never arrives as a record, in each partition that it wrote to.
    """

    cluster: FakeCluster
    begins_at: dict[Place, int] = field(default_factory=dict)
    is_open: bool = True
    is_aborted: bool = False

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
    ) -> int:
        """The offset that the record took."""
        assert self.is_open
        log = self.cluster.partition(topic, partition)
        self.begins_at.setdefault((topic, partition), log.end)
        if self not in log.open:
            log.open.append(self)
        return self.cluster.produce(topic, partition, key, value, timestamp_ms, transaction=self)

    def commit(self) -> None:
        """Show its records."""
        self._end(is_aborted=False)

    def abort(self) -> None:
        """Hide its records for good."""
        self._end(is_aborted=True)

    def _end(self, is_aborted: bool) -> None:
        assert self.is_open
        self.is_open, self.is_aborted = False, is_aborted
        for topic, partition in self.begins_at:
            log = self.cluster.partition_or_none(topic, partition)
            if log is not None and self in log.open:
                log.open.remove(self)
                log.append(None, None, self.cluster.now_ms(), self.cluster.now_ms(), None, is_marker=True)


@dataclass(slots=True, eq=False)
class Record:
    """What a partition holds at one offset; a marker is the end of a transaction."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    appended_ms: int
    transaction: Transaction | None
    is_marker: bool
    header_list: Headers | None = None
    cleaned_ms: int | None = None

    def headers(self) -> Headers | None:
        """As a consumed message gives them."""
        return self.header_list

    @property
    def is_hidden(self) -> bool:
        """Whether a committed reader never sees it."""
        return self.is_marker or (self.transaction is not None and self.transaction.is_aborted)


@dataclass(slots=True, eq=False)
class Partition:
    """The log of one partition: records by offset, with holes where compaction took some."""

    start: int = 0
    end: int = 0
    records: list[Record] = field(default_factory=list)
    open: list[Transaction] = field(default_factory=list)
    place: Place = ("", 0)

    @property
    def stable_end(self) -> int:
        """The last stable offset: where the oldest open transaction begins, or the end."""
        return min((one.begins_at[self.place] for one in self.open), default=self.end)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        appended_ms: int,
        transaction: Transaction | None,
        is_marker: bool = False,
        headers: Headers | None = None,
    ) -> int:
        """The offset that the record took."""
        record = Record(self.end, key, value, timestamp_ms, appended_ms, transaction, is_marker, headers)
        self.records.append(record)
        self.end += 1
        return record.offset

    def between(self, first: int, end: int) -> list[Record]:
        """What a committed reader gets of these offsets."""
        records = self.records
        low = bisect_left(records, first, key=_offset)
        high = bisect_left(records, min(end, self.stable_end), key=_offset)
        return [record for record in records[low:high] if not record.is_hidden]

    def trim(self, to: int) -> None:
        """Retention: the log begins at this offset now."""
        assert self.start <= to <= self.end
        self.start = to
        del self.records[: bisect_left(self.records, to, key=_offset)]

    def lose_end(self, to: int) -> None:
        """An unclean election: the log ends at this offset now, and the next record takes it."""
        assert self.start <= to <= self.end
        self.end = to
        del self.records[bisect_left(self.records, to, key=_offset) :]
        self.open = [one for one in self.open if one.begins_at[self.place] < to]

    def compact(self, before: int, now_ms: int, tombstones_before_ms: int | None) -> None:
        """Drop the records below an offset whose keys have later ones, and old tombstones.

        A tombstone's age counts from when the cleaner first came by, and with that took what it deletes
        (KIP-534): who has read a row of a key has that long to come to its tombstone.
        """
        before = min(before, self.stable_end)
        last: dict[bytes | None, int] = {}
        for record in self.records:
            if record.offset < before and not record.is_hidden:
                last[record.key] = record.offset

        def stays(record: Record) -> bool:
            if record.offset >= before:
                return True
            if record.is_hidden or last[record.key] != record.offset:
                return False
            if record.value is not None:
                return True
            if record.cleaned_ms is None:
                record.cleaned_ms = now_ms
            return tombstones_before_ms is None or record.cleaned_ms >= tombstones_before_ms

        self.records = [record for record in self.records if stays(record)]
