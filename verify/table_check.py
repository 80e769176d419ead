"""The rows of a table against the log: most of them by columns, and the rest key by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.definition import KEY, PROVENANCE, TOMBSTONE
from verify.compare import Mask, compared_columns, rows_equal, rows_equal_or_null
from verify.finding import Finding, key_of
from verify.log_fold import BATCH, CERTAIN, MAYBE, SEGMENT, STATE
from verify.row_judge import JudgeContext, KeyVerdict, LastRecord, Reason, Stored, judge

if TYPE_CHECKING:
    from collections.abc import Collection

    from thermocline.rules.definition import LiveTable
    from verify.doubts import Doubts
    from verify.reading import Place, Reading
    from verify.report import Report

__all__ = ["TableCheck"]

# So many records that came to where their key had been before, and none that came elsewhere: keys stay in
# their partitions.
_REPEATED_MIN: Final = 100

# Keys whose records and rows are Python objects at a time.
_KEYS_AT_ONCE: Final = 10_000


@dataclass(slots=True)
class TableCheck:
    """Judges shard by shard; what it finds goes into the report.

    ``firsts``, ``compacted`` and ``fleeting`` are as in `verify.row_judge.JudgeContext`.
    """

    reading: Reading
    firsts: Mapping[Place, int]
    compacted: Collection[str]
    fleeting: Collection[str]
    report: Report
    doubts: Doubts
    _if_keys_stay: list[tuple[Finding, bytes]] = field(default_factory=list)
    _keys_that_stay: Counter[str] = field(default_factory=Counter)
    _repeated: int = 0

    def check(self, records: pa.Table, rows: pa.Table, repeated: int) -> None:
        """Compares the reduced records of some keys with all live rows of these keys and of no others.

        ``repeated`` counts the records that were followed by another one of their key in their partition.
        """
        self._repeated += repeated
        below = records.filter(pc.equal(records.column(SEGMENT), 0)).combine_chunks()
        self.report.rows += rows.num_rows
        single, at = self._matched(below, rows)
        is_settled = self._agreeing(below, rows, at) | self._older(below, rows)
        left = rows.filter(pa.array(~is_settled))
        keys_left = self._absent_or_contested(below, single, rows, left)
        self._judge_each(below, rows, keys_left)

    def finish(self) -> None:
        """Says what hung on whether keys stay in their partitions."""
        stay = self._repeated >= _REPEATED_MIN and not (self.reading.has_grown or self.report.contested)
        if self._keys_that_stay and not stay:
            self.report.unjudged[Reason.MOVED] += self._keys_that_stay.total()
        elif self._keys_that_stay:
            for finding, key in self._if_keys_stay:
                self._found(finding, key)
            kept = Counter(finding.code for finding, _ in self._if_keys_stay)
            self.report.counts += self._keys_that_stay - kept

    @property
    def _definition(self) -> LiveTable:
        return self.reading.definition

    def _matched(self, below: pa.Table, rows: pa.Table) -> tuple[Mask, pa.Array]:
        """Which records are their key's only one and certain; and for each row, where that record is."""
        keys = below.column(KEY).combine_chunks().dictionary_encode()
        counts = np.bincount(keys.indices.to_numpy(), minlength=len(keys.dictionary))
        is_single: Mask = counts[keys.indices.to_numpy()] == 1
        is_single &= below.column(STATE).to_numpy() == CERTAIN
        indexes = np.flatnonzero(is_single)
        of_singles = below.column(KEY).combine_chunks().take(pa.array(indexes))
        at = pc.index_in(rows.column(KEY).combine_chunks(), value_set=of_singles)
        return is_single, pc.take(pa.array(indexes), at)

    def _agreeing(self, below: pa.Table, rows: pa.Table, at: pa.Array) -> Mask:
        """The rows that are their key's only record; a key that is live twice is left to be judged."""
        has_record = at.is_valid().to_numpy(zero_copy_only=False)
        agrees: Mask = np.zeros(rows.num_rows, bool)
        if has_record.any():
            paired = below.take(at.drop_null())
            same = rows_equal(paired, rows.filter(pa.array(has_record)), compared_columns(self._definition))
            same &= pc.invert(paired.column(TOMBSTONE)).to_numpy(zero_copy_only=False)
            agrees[has_record] = same
        agrees &= ~self._is_twice(rows)
        self.report.agreed += int(agrees.sum())
        return agrees

    def _older(self, below: pa.Table, rows: pa.Table) -> Mask:
        """The rows that come from before what the log holds, and of whose keys it holds nothing."""
        is_unheard = pc.invert(
            pc.is_in(rows.column(KEY).combine_chunks(), below.column(KEY).combine_chunks())
        )
        older: Mask = np.zeros(rows.num_rows, bool)
        topics, partitions, offsets = (rows.column(name) for name in PROVENANCE[:3])
        for place, life in self.reading.lives.items():
            first, begins = self.firsts.get(place, 0), life.begins or 0
            least = begins if self.reading.is_whole else 0
            if first <= least or place[0] in self.reading.replaced:
                continue
            is_there = pc.and_(pc.equal(topics, place[0]), pc.equal(partitions, place[1]))
            is_older = pc.and_(pc.less(offsets, first), pc.greater_equal(offsets, least))
            older |= pc.fill_null(pc.and_(is_there, is_older), False).to_numpy()
        older &= is_unheard.to_numpy(zero_copy_only=False) & ~self._is_twice(rows)
        if older.any():
            self.report.unjudged[Reason.OLDER] += int(older.sum())
        return older

    def _is_twice(self, rows: pa.Table) -> Mask:
        keys = rows.column(KEY).combine_chunks().dictionary_encode()
        if len(keys.dictionary) == rows.num_rows:
            return np.zeros(rows.num_rows, bool)
        counts = np.bincount(keys.indices.to_numpy(), minlength=len(keys.dictionary))
        is_twice: Mask = counts[keys.indices.to_numpy()] > 1
        return is_twice

    def _absent_or_contested(
        self, below: pa.Table, is_single: Mask, rows: pa.Table, left: pa.Table
    ) -> pa.Array:
        """The keys that are to be judged one by one: of rows that are left, and of records without a row."""
        keys = below.column(KEY).combine_chunks()
        is_absent = pc.invert(pc.is_in(keys, value_set=rows.column(KEY).combine_chunks())).to_numpy(
            zero_copy_only=False
        )
        is_deleted = is_single & is_absent & below.column(TOMBSTONE).to_numpy()
        self.report.deleted += int(is_deleted.sum())
        wanted = keys.filter(pa.array(is_absent & ~is_deleted))
        return pa.concat_arrays([wanted, left.column(KEY).combine_chunks()]).unique()

    def _judge_each(self, below: pa.Table, rows: pa.Table, keys: pa.Array) -> None:
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys.slice(start, _KEYS_AT_ONCE)
            records = below.filter(pc.is_in(below.column(KEY), value_set=some)).combine_chunks()
            stored = rows.filter(pc.is_in(rows.column(KEY), value_set=some)).combine_chunks()
            ground = JudgeContext(
                self.reading, self.firsts, self.compacted, self.fleeting, self._same(records, stored)
            )
            heard, lying = self._heard(records), _stored(stored)
            for key in some.to_pylist():
                self._note(key, judge(heard.get(key, ()), lying.get(key, ()), ground), key in lying)

    def _note(self, key: bytes, verdict: KeyVerdict, has_row: bool) -> None:
        report = self.report
        if verdict.reason is not None:
            report.unjudged[verdict.reason] += 1
        elif verdict.code:
            finding = Finding(verdict.code, verdict.what, key_of(self._definition, key))
            if not verdict.if_keys_stay:
                self._found(finding, key)
                return
            self._keys_that_stay[finding.code] += 1
            if len(self._if_keys_stay) < _KEYS_AT_ONCE:
                self._if_keys_stay.append((finding, key))
        elif verdict.is_suppressed:
            report.suppressed += 1
        elif has_row:
            report.agreed += 1
        else:
            report.deleted += 1

    def _found(self, finding: Finding, key: bytes) -> None:
        """Reports a finding; that a row is missing may be in doubt."""
        if finding.code == "row-missing":
            self.doubts.take(finding, key, None, self.reading.seam)
        else:
            self.report.add(finding)

    def _same(self, records: pa.Table, rows: pa.Table) -> Any:
        columns = [column.name for column in self._definition.value_columns]
        states = records.column(STATE).to_numpy()
        later = [name for name in columns if name in self.reading.later_columns]
        always = [name for name in columns if name not in self.reading.later_columns]

        def same(record: int, row: int) -> bool:
            one, other = records.slice(record, 1), rows.slice(row, 1)
            if states[record] == CERTAIN:
                return bool(rows_equal(one, other, columns).all())
            return bool(rows_equal(one, other, always).all() and rows_equal_or_null(one, other, later).all())

        return same

    def _heard(self, records: pa.Table) -> dict[bytes, list[LastRecord]]:
        found: dict[bytes, list[LastRecord]] = {}
        for index, (key, place, offset, time) in enumerate(_origins(records)):
            assert place is not None
            found.setdefault(key, []).append(
                LastRecord(
                    place=place,
                    offset=offset,
                    timestamp=time,
                    batch=records.column(BATCH)[index].as_py(),
                    is_maybe=records.column(STATE)[index].as_py() == MAYBE,
                    is_tombstone=records.column(TOMBSTONE)[index].as_py(),
                    index=index,
                )
            )
        for heard in found.values():
            self.report.contested += len({one.place for one in heard}) > 1
        return found


def _stored(rows: pa.Table) -> dict[bytes, list[Stored]]:
    found: dict[bytes, list[Stored]] = {}
    for index, (key, place, offset, time) in enumerate(_origins(rows)):
        found.setdefault(key, []).append(Stored(place, offset, time, index))
    return found


def _origins(rows: pa.Table) -> Iterator[tuple[bytes, Place | None, int, int]]:
    """Key, partition, offset and time in microseconds; no partition where any of it is null."""
    columns: Sequence[list[Any]] = [
        rows.column(KEY).to_pylist(),
        *(rows.column(name).to_pylist() for name in PROVENANCE[:3]),
        rows.column(PROVENANCE[3]).cast(pa.int64()).to_pylist(),
    ]
    for key, topic, partition, offset, time in zip(*columns, strict=True):
        if None in (topic, partition, offset):
            yield key, None, -1, -1
        else:
            yield key, (topic, partition), offset, -1 if time is None else time
