"""Lookups against the table's rows with the log's records laid over them, each at its own read point.

What an entity's rows were at one read point is known from the table, and every later record of it is kept. So
the rows at any later read point follow, whichever snapshot the answer was given from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.column_types import Kind
from thermocline.rules.decode import json_row, natural_values
from thermocline.rules.definition import (
    ABSENT,
    KEY,
    PARTITION_TIME,
    PROVENANCE,
    SEQUENCE,
    TOMBSTONE,
    Column,
)
from thermocline.rules.fold import loses, order_of
from thermocline.rules.keys import bucket_of, decode_one, parse_value
from thermocline.rules.partition_time import NO_TIME
from thermocline.verify.finding import Finding, Key
from thermocline.verify.log_decode import MAYBE, STATE
from thermocline.verify.sample import by_entity, entities_of

if TYPE_CHECKING:
    from thermocline.iceberg.reading import Place, Reading
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.rules.seam import Seam

__all__ = ["ENTITY_ROWS_MAX", "Entities", "entity_key", "parameters_of"]

Row = dict[str, Any]
_PARTIAL: Final = "a key in several partitions, of which a record sets only some columns"
_FORGOTTEN: Final = "its delete may have been forgotten before a late record of it came"
_HOUR: Final = 3_600_000_000  # in microseconds
_CONTESTED: Final = "a key in several partitions, of which nobody knows the order in which it was committed"

ENTITY_ROWS_MAX: Final = 10_000
"""Rows of one entity that are kept: some 10 MB, and more than people look up. A larger one is not judged."""
_LARGE: Final = f"it has more than {ENTITY_ROWS_MAX:,} rows"
_UNREAD: Final = "its bucket could not be read"

ReadingAt = Callable[[int], "Reading | None"]
"""What the table has read as of a snapshot; None where that is not known."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A record of a key, or the row that the table has (``row``), and where it comes from.

    ``absent`` are the columns that a record leaves as they are. Where columns order the records, ``sequence``
    says where it stands, and the table may also remember a delete. ``deciding_ms`` is the time by which the
    record's batch decides between partitions.
    """

    place: Place | None
    offset: int
    timestamp: int
    row: Row | None
    absent: tuple[str, ...] = ()
    sequence: bytes = b""
    deciding_ms: int = NO_TIME

    def over(self, older: _Known | None) -> _Known:
        """The record laid over the row, or the records, before it; what was never set is null."""
        below = older.row if older is not None else None
        if self.row is None or below is None:
            return replace(self, absent=())
        return replace(self, row=self.row | {name: below[name] for name in self.absent}, absent=())


@dataclass(slots=True)
class Entities:
    """Some entities: the rows that the table has of them at its seam, and the records from there on."""

    definition: LiveTable
    base: Reading
    _cold: dict[bytes, dict[bytes, _Known]] = field(default_factory=dict)
    _records: dict[bytes, dict[bytes, list[_Known]]] = field(default_factory=dict)
    _large: set[bytes] = field(default_factory=set)
    _unread: set[int] = field(default_factory=set)
    _newest: int = -1
    records: int = 0

    def take_rows(self, rows: pa.Table) -> None:
        """Takes up live rows of the table, of the entities and of others."""
        for entity, key, known in self._known(self._bounded(rows)):
            self._cold.setdefault(entity, {})[key] = known

    def take_deletes(self, rows: pa.Table) -> None:
        """Takes up deletes that the table remembers, as rows without values."""
        for entity, key, known in self._known(self._bounded(rows)):
            held = self._cold.setdefault(entity, {}).get(key)
            if held is None or held.sequence < known.sequence:
                self._cold[entity][key] = replace(known, row=None)

    def leave_out(self, bucket: int) -> None:
        """Nothing is said of the entities of a bucket whose rows could not be read."""
        self._unread.add(bucket)

    def is_large(self, entity: bytes) -> bool:
        """Whether an entity had too many rows, of which none is kept."""
        return entity in self._large

    def take_records(self, records: pa.Table) -> None:
        """Takes up records from the seam on, with the columns of ``records_schema``."""
        is_deleted = records.column(TOMBSTONE).to_pylist()
        is_maybe = records.column(STATE).to_pylist()
        for deleted, maybe, (entity, key, known) in zip(
            is_deleted, is_maybe, self._known(records), strict=True
        ):
            if maybe == MAYBE or entity in self._large:
                continue  # bad by the definition that answers, or not judged
            one = replace(known, row=None, absent=()) if deleted else known
            self._records.setdefault(entity, {}).setdefault(key, []).append(one)
            self.records += 1
            if len(self._cold.get(entity, ())) + len(self._records[entity]) > ENTITY_ROWS_MAX:
                self._drop(entity)

    def judge(
        self, entity: bytes, rows: Sequence[Mapping[str, Any]], point: ReadPoint, reading_at: ReadingAt
    ) -> Finding | str | None:
        """A difference of an answer, or why it can not be judged; None where it agrees."""
        expected = self.rows_at(entity, point, reading_at)
        if isinstance(expected, str):
            return expected
        wanted = [msgspec.json.decode(json_row(self._spelled(row))) for row in expected]
        found = list(rows)
        if found == wanted:  # safety: verify-lookup
            return None
        words, key = _difference(self.definition, wanted, found)
        what = f"{words} at {point.to_header()}"
        return Finding("lookup-differs", what, key or entity_key(self.definition, entity))

    def _spelled(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as JSON is to have it."""
        spells = {column.name: column.type.spelled for column in self.definition.columns}
        return {
            name: value if value is None or (spell := spells.get(name)) is None else spell(value)
            for name, value in row.items()
        }

    def stored(self, entity: bytes) -> list[Row]:
        """The rows that were taken up of an entity, sorted by key."""
        cold = self._cold.get(entity, {})
        return [row for key in sorted(cold) if (row := cold[key].row) is not None]

    def forget(self, before: Seam) -> None:
        """Drops what no read point from there on needs: of a key in one partition all but the last."""
        for entity, by_key in self._records.items():
            for key, known in by_key.items():
                by_key[key] = self._still_needed(known, self._cold.get(entity, {}).get(key), before)
                self.records -= len(known) - len(by_key[key])

    def _still_needed(self, known: list[_Known], row: _Known | None, before: Seam) -> list[_Known]:
        """Of a key's records, those from there on, and one for all the others."""
        if len({one.place for one in (*known, row) if one is not None}) > 1:
            return known  # which of them was committed last is asked again
        in_order = sorted(known, key=lambda one: one.offset)
        passed = _before(before, in_order)
        if not passed:
            return known
        if not self.definition.merging.is_ordered:
            return [_in_order(passed, row), *in_order[len(passed) :]]
        highest = max(passed, key=lambda one: (one.sequence, one.offset))
        if highest.row is None:  # it may be forgotten, and then those count that lost
            return known
        return [highest, *in_order[len(passed) :]]

    def rows_at(self, entity: bytes, point: ReadPoint, reading_at: ReadingAt) -> list[Row] | str:
        """The rows of an entity as natural values, sorted by key; or why that is not known."""
        if entity in self._large:
            return _LARGE
        if self._unread and self._bucket_of(entity) in self._unread:  # safety: verify-unread
            return _UNREAD
        cold, records = self._cold.get(entity, {}), self._records.get(entity, {})
        rows = []
        for key in sorted(cold.keys() | records.keys()):
            winner = self._winner(cold.get(key), _before(point.end, records.get(key, ())), point, reading_at)
            if isinstance(winner, str):
                return winner
            if winner is not None and winner.row is not None:
                rows.append(winner.row)
        return rows

    def _bounded(self, rows: pa.Table) -> pa.Table:
        """Rows without those of entities that have too many, counted before they are made objects."""
        entities = entities_of(self.definition, rows)
        for counted in entities.value_counts().to_pylist():
            entity = counted["values"]
            held = len(self._cold.get(entity, ())) + len(self._records.get(entity, ()))
            if held + counted["counts"] > ENTITY_ROWS_MAX:
                self._drop(entity)
        if not self._large:
            return rows
        large = pa.array(sorted(self._large), pa.binary())
        return rows.filter(pc.invert(pc.is_in(entities, value_set=large)))

    def _drop(self, entity: bytes) -> None:
        self._large.add(entity)
        self._cold.pop(entity, None)
        self.records -= sum(len(known) for known in self._records.pop(entity, {}).values())

    def _bucket_of(self, entity: bytes) -> int:
        definition = self.definition
        return bucket_of(definition, entity_key(definition, entity)[definition.bucket_column.name])

    def _winner(
        self, row: _Known | None, read: Sequence[_Known], point: ReadPoint, reading_at: ReadingAt
    ) -> _Known | str | None:
        if self.definition.merging.is_ordered:
            return self._highest(row, read)
        last = {one.place: one for one in sorted(read, key=lambda one: one.offset)}
        if not last:
            return row
        places = {*last, row.place} if row is not None else {*last}
        if len(places) == 1:
            return _in_order(read, row)
        if any(one.absent for one in read):
            return _PARTIAL
        if not point.seam.at_least(self.base.seam):
            return _CONTESTED
        return self._decided(last.values(), point, reading_at(point.snapshot_id))

    def _highest(self, row: _Known | None, read: Sequence[_Known]) -> _Known | str | None:
        """The winner by sequence, where a delete in the table may have been forgotten meanwhile."""
        if not read:
            return row
        highest = max(read, key=lambda one: (one.sequence, one.offset))
        if any(one.sequence == highest.sequence and one.place != highest.place for one in read):
            return _CONTESTED
        winner = row if row is not None and loses(highest.sequence, row.sequence) else highest
        retention = self.definition.tombstone_retention_hours * _HOUR
        is_late = any(one.sequence < winner.sequence for one in read)
        if winner.row is None and is_late and winner.timestamp + retention < self._newest:
            return _FORGOTTEN
        return winner

    def _decided(self, last: Iterable[_Known], point: ReadPoint, reading: Reading | None) -> _Known | str:
        """The winner of records in several partitions; those that a snapshot holds go by its commits."""
        ranks = []
        for one in last:
            place = one.place
            assert place is not None
            is_hot = one.offset >= point.seam.get(place)
            if not is_hot and (reading is None or place not in reading.incarnations):
                return _CONTESTED
            batch = float("inf") if is_hot or reading is None else reading.batch(place, one.offset)
            ranks.append(((batch, *order_of(one.deciding_ms, *place)), one))
        return max(ranks, key=lambda pair: pair[0])[1]

    def _known(self, rows: pa.Table) -> Iterator[tuple[bytes, bytes, _Known]]:
        columns = self.definition.columns
        natural = [natural_values(column.type, rows.column(column.name)) for column in columns]
        names = [column.name for column in columns]
        values = (dict(zip(names, row, strict=True)) for row in zip(*natural, strict=True))
        places = (rows.column(name).to_pylist() for name in PROVENANCE[:3])
        times = rows.column(PROVENANCE[3]).cast(pa.int64()).to_pylist()
        self._newest = max([self._newest, *(time for time in times if time is not None)])
        known = zip(
            entities_of(self.definition, rows).to_pylist(),
            rows.column(KEY).to_pylist(),
            values,
            zip(*places, times, strict=True),
            _column(rows, ABSENT, ()),
            zip(self._sequences(rows), _column(rows, PARTITION_TIME, NO_TIME), strict=True),
            strict=True,
        )
        for entity, key, row, (topic, partition, offset, time), kept, order in known:
            place = None if topic is None or partition is None else (topic, partition)
            yield entity, key, _Known(place, offset or 0, time or 0, row, tuple(kept), *order)

    def _sequences(self, rows: pa.Table) -> Sequence[bytes]:
        if not self.definition.merging.is_ordered:
            return [b""] * rows.num_rows
        known = rows.column(SEQUENCE) if SEQUENCE in rows.column_names else None
        found: list[bytes] = (known or self.definition.merging.sequences(rows)).to_pylist()
        return found


def _column(rows: pa.Table, name: str, otherwise: object) -> list[Any]:
    return rows.column(name).to_pylist() if name in rows.column_names else [otherwise] * rows.num_rows


def _before(end: Seam, records: Sequence[_Known]) -> list[_Known]:
    return [one for one in records if one.place and one.offset < end.get(one.place)]


def _in_order(records: Sequence[_Known], row: _Known | None) -> _Known:
    """Records of one partition, each laid over those before it and the table's row."""
    records = sorted(records, key=lambda one: one.offset)
    last = records[0].over(row)
    for one in records[1:]:
        last = one.over(last)
    return last


def entity_key(definition: LiveTable, entity: bytes) -> Key:
    """The columns of an entity, by name; without a key, what identifies the row."""
    names = definition.entity if definition.has_key else definition.identity
    return dict(zip(names, _values(definition, entity), strict=True))


def parameters_of(definition: LiveTable, entity: bytes) -> dict[str, str]:
    """The columns of an entity as a lookup takes them: text by name."""
    columns = definition.key_columns[: len(definition.entity)]
    values = _values(definition, entity)
    return {column.name: _text(column, value) for column, value in zip(columns, values, strict=True)}


def _values(definition: LiveTable, entity: bytes) -> tuple[object, ...]:
    return decode_one(by_entity(definition), entity)


def _text(column: Column, value: object) -> str:
    if column.type.kind is not Kind.BINARY:
        return str(value)
    text: str = msgspec.json.decode(msgspec.json.encode(value))
    return text


def _difference(
    definition: LiveTable, wanted: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]
) -> tuple[str, Key | None]:
    """The first difference, in words, and the key of its row; values of other columns are left out."""
    ours = {_spelled(definition, row): row for row in wanted}
    theirs = {_spelled(definition, row): row for row in found}
    if len(theirs) < len(found):
        return "the answer has a row twice", None
    for name in sorted(ours.keys() | theirs.keys()):
        key = _parsed(definition, ours.get(name) or theirs[name])
        if name not in theirs:
            return "the answer lacks the row", key
        if name not in ours:
            return "the answer has the row, and it should not be there", key
        columns = [column for column in ours[name] if ours[name][column] != theirs[name].get(column)]
        if columns:
            return f"the answer has other values of the row: {', '.join(columns)}", key
    return "the answer's rows are in another order, or have other columns", None


def _spelled(definition: LiveTable, row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in definition.key)


def _parsed(definition: LiveTable, row: Mapping[str, Any]) -> Key:
    """The key of an answer's row as natural values; as it is spelled where it is none."""
    key: Key = {}
    for column in definition.key_columns:
        try:
            key[column.name] = parse_value(column, str(row[column.name]))
        except (KeyError, ValueError):
            key[column.name] = row.get(column.name)
    return key
