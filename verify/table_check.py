"""The rows of a table against the log: most of them by one join, and the rest key by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from thermocline.rules.definition import KEY, PARTITION_TIME, PROVENANCE, SEQUENCE, TOMBSTONE
from thermocline.verify.finding import Finding, key_of
from thermocline.verify.log_decode import BATCH, CERTAIN, MAYBE, SEGMENT, STATE
from thermocline.verify.row_judge import JudgeContext, KeyVerdict, LastRecord, Reason, Stored, judge
from thermocline.verify.staging import LAST, REMEMBERED, STORED, WHOLE, Staging, absent_names, row_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from thermocline.iceberg.reading import Place, Reading
    from thermocline.rules.definition import LiveTable
    from thermocline.verify.report import Report
    from thermocline.verify.unconfirmed import UnconfirmedFindings

__all__ = ["TableCheck"]

# So many records that came to where their key had been before, and none that came elsewhere: keys stay in
# their partitions.
_REPEATED_MIN: Final = 100
# Findings that hang on whether keys stay; of those beyond it only their number is told.
_IF_KEYS_STAY_MAX: Final = 10_000

_TOPIC, _PARTITION, _OFFSET, _TIME = PROVENANCE
_HOUR: Final = 3_600_000_000  # in microseconds
_FACTS: Final = (BATCH, STATE, TOMBSTONE, PARTITION_TIME)
_AGREES, _DELETED, _OLDER = "agrees", "deleted", "older"


@dataclass(slots=True)
class TableCheck:
    """Judges all keys; what it finds goes into the report.

    ``firsts``, ``compacted`` and ``fleeting`` are as in `verify.row_judge.JudgeContext`.
    """

    reading: Reading
    firsts: Mapping[Place, int]
    compacted: Collection[str]
    fleeting: Collection[str]
    report: Report
    unconfirmed: UnconfirmedFindings
    _if_keys_stay: list[tuple[Finding, bytes]] = field(default_factory=list)
    _keys_that_stay: Counter[str] = field(default_factory=Counter)

    def check(self, staging: Staging) -> None:
        """Compares the records before the seam with the rows of the table."""
        repeated = staging.reduce_log()
        self.report.rows += staging.count(STORED)
        self._settle(staging)
        self._judge_others(staging)
        if self._definition.merging.is_ordered:
            self._check_deletes(staging)
        self._finish(repeated)

    @property
    def _definition(self) -> LiveTable:
        return self.reading.definition

    def _settle(self, staging: Staging) -> None:
        """The keys about which there is no doubt, in a table of their own; counted by verdict.

        A row and one certain record that are equal agree, where no other of either has the key. A key is
        deleted where a tombstone is its one certain record, and there is no row. A row is older than the log
        where it comes from before what the log holds, which holds nothing of its key.
        """
        staging.execute(f"CREATE TEMP VIEW below AS FROM {LAST} WHERE {SEGMENT} = 0")
        staging.register("gone", self._gone())
        equal = " AND ".join(
            f"row.{name} IS NOT DISTINCT FROM record.{name}" for name in row_names(self._definition)
        )
        equal += "".join(f" AND NOT record.{name}" for name in absent_names(self._definition))
        staging.execute(f"""
            CREATE TABLE settled AS
            WITH one_record AS (
                FROM below
                SEMI JOIN (SELECT {KEY} FROM below GROUP BY {KEY} HAVING count(*) = 1) USING ({KEY})
                WHERE {STATE} = {CERTAIN}
            ), one_row AS (
                FROM {STORED}
                SEMI JOIN (SELECT {KEY} FROM {STORED} GROUP BY {KEY} HAVING count(*) = 1) USING ({KEY})
            )
            SELECT row.{KEY}, '{_AGREES}' AS verdict
            FROM one_row AS row JOIN one_record AS record ON {equal} WHERE NOT {TOMBSTONE}
            UNION ALL
            SELECT {KEY}, '{_DELETED}' FROM one_record ANTI JOIN {STORED} USING ({KEY}) WHERE {TOMBSTONE}
            UNION ALL
            SELECT {KEY}, '{_OLDER}' FROM one_row ANTI JOIN below USING ({KEY})
            JOIN gone USING ({_TOPIC}, {_PARTITION})
            WHERE {_OFFSET} >= gone.offset_start AND {_OFFSET} < gone.offset_end
        """)
        counts = dict(staging.rows("SELECT verdict, count(*) FROM settled GROUP BY verdict"))
        self.report.agreed += counts.get(_AGREES, 0)
        self.report.deleted += counts.get(_DELETED, 0)
        if older := counts.get(_OLDER, 0):
            self.report.unjudged[Reason.OLDER] += older

    def _gone(self) -> pa.Table:
        """The offsets that the table has read and the log no longer holds."""
        rows = []
        for place, partition in self.reading.incarnations.items():
            least = (partition.begins or 0) if self.reading.is_whole else 0
            if place[0] not in self.reading.replaced:
                rows.append((*place, least, self.firsts.get(place, 0)))
        schema = pa.schema(
            [
                (_TOPIC, pa.string()),
                (_PARTITION, pa.int32()),
                ("offset_start", pa.int64()),
                ("offset_end", pa.int64()),
            ]
        )
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)

    def _judge_others(self, staging: Staging) -> None:
        names = ", ".join(row_names(self._definition))
        absent = absent_names(self._definition)
        facts = (*_FACTS, *((WHOLE, *absent) if absent else ()))
        ordered = (SEQUENCE,) if self._definition.merging.is_ordered else ()
        nulls = ", ".join([*(f"NULL AS {name}" for name in facts), *ordered])
        facts = (*facts, *ordered)
        staging.execute(f"""
            CREATE TABLE others AS
            SELECT DISTINCT {KEY} FROM (SELECT {KEY} FROM below UNION ALL SELECT {KEY} FROM {STORED})
            ANTI JOIN settled USING ({KEY})
        """)
        query = f"""
            FROM (
                SELECT {names}, {", ".join(facts)}, FALSE AS is_row FROM below SEMI JOIN others USING ({KEY})
                UNION ALL
                SELECT {names}, {nulls}, TRUE FROM {STORED} SEMI JOIN others USING ({KEY})
            ) ORDER BY {KEY}
        """
        columns = [column.name for column in self._definition.value_columns]
        context = JudgeContext(
            self.reading,
            self.firsts,
            self.compacted,
            self.fleeting,
            [name in self.reading.later_columns for name in columns],
            self._forgotten_before(staging),
            [name in self.reading.other_columns for name in columns],
        )
        for key, found in groupby(staging.rows(query), key=lambda one: one[0]):
            last_records, rows = _told_apart(found, len(facts), bool(ordered))
            self.report.contested += len({one.place for one in last_records}) > 1
            self._note(key, judge(last_records, rows, context), bool(rows))

    def _forgotten_before(self, staging: Staging) -> int:
        """Deletes that were appended before may be forgotten, by the newest record; in microseconds."""
        (found,) = staging.rows(f"SELECT max({_TIME}) FROM below")
        retention = self._definition.tombstone_retention_hours * _HOUR
        return -1 if found[0] is None else int(found[0]) - retention

    def _check_deletes(self, staging: Staging) -> None:
        """Deletes that are the last word on their key, and that the table does not remember."""
        query = f"""
            SELECT {KEY}, {_TOPIC}, {_PARTITION}, {_OFFSET} FROM below
            WHERE {TOMBSTONE} AND {STATE} != {MAYBE} AND {_TIME} >= {self._forgotten_before(staging)}
            AND NOT EXISTS (
                SELECT 1 FROM (
                    SELECT {KEY}, {SEQUENCE} FROM {STORED}
                    UNION ALL SELECT {KEY}, {SEQUENCE} FROM {REMEMBERED}
                ) AS known
                WHERE known.{KEY} = below.{KEY} AND known.{SEQUENCE} >= below.{SEQUENCE}
            )
        """
        for key, topic, partition, offset in list(staging.rows(query)):
            what = f"{topic}/{partition}@{offset} deletes it, and a late record would bring it back"
            # safety: verify-remembered
            self.report.add(Finding("delete-not-remembered", what, key_of(self._definition, key)))

    def _finish(self, repeated: int) -> None:
        """Says what hung on whether keys stay in their partitions.

        ``repeated`` counts the records that were followed by another one of their key in their partition.
        """
        stay = repeated >= _REPEATED_MIN and not (self.reading.has_grown or self.report.contested)
        if self._keys_that_stay and not stay:
            self.report.unjudged[Reason.MOVED] += self._keys_that_stay.total()
        elif self._keys_that_stay:
            for finding, key in self._if_keys_stay:
                self._found(finding, key)
            kept = Counter(finding.code for finding, _ in self._if_keys_stay)
            self.report.counts += self._keys_that_stay - kept

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
            if len(self._if_keys_stay) < _IF_KEYS_STAY_MAX:
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
            self.unconfirmed.take(finding, key, None, self.reading.seam)
        else:
            self.report.add(finding)


def _told_apart(
    found: Iterable[tuple[Any, ...]], facts: int, is_ordered: bool
) -> tuple[list[LastRecord], list[Stored]]:
    """The records of a key, and its rows; ``facts`` is how many columns say something of a record.

    ``is_ordered``: the last of these is the sequence, which a row has, too.
    """
    last_records: list[LastRecord] = []
    rows: list[Stored] = []
    for _key, topic, partition, offset, time, *rest, is_row in found:
        values, (batch, state, is_tombstone, deciding_ms, *partial) = rest[:-facts], rest[-facts:]
        sequence = partial.pop() if is_ordered else b""
        if not is_row:
            place, (is_whole, *absent) = (topic, partition), partial or (True,)
            last = LastRecord(place, offset, time, batch, state, is_tombstone, tuple(values), deciding_ms)
            last_records.append(replace(last, is_whole=is_whole, absent=tuple(absent), sequence=sequence))
        elif None in (topic, partition, offset):
            rows.append(Stored(None, -1, -1, tuple(values), sequence))
        else:
            since = -1 if time is None else time
            rows.append(Stored((topic, partition), offset, since, tuple(values), sequence))
    return last_records, rows
