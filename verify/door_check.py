"""An extract and the hot tier against the table and the log: bucket by bucket, all columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.decode import unpack_arrays
from thermocline.rules.definition import KEY, PROVENANCE, TOMBSTONE
from thermocline.rules.fold import winners
from thermocline.rules.keys import decode_arrays
from verify.compare import EXTRA, MISSING, TWICE, compared_columns, differences, first_twice
from verify.finding import Finding, key_of
from verify.log_fold import SEGMENT
from verify.sample import entities_of
from verify.table_rows import rows_schema

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.rules.seam import Seam
    from verify.doubts import Origin

__all__ = ["Difference", "HotRecords", "extract_findings", "hot_entities", "hot_findings", "hot_records"]

_PAYLOAD: Final = "payload"
_WORDS: Final = {
    MISSING: "{door} lacks it",
    EXTRA: "{door} has it, and it should not be there",
    TWICE: "{door} has it more than once",
}


@dataclass(frozen=True, slots=True)
class HotRecords:
    """The last records of keys in a stretch of the log: ``rows`` and ``deleted`` keys (with provenance)."""

    winners: pa.Table

    @property
    def keys(self) -> pa.Array:
        """All keys that are mentioned."""
        return self.winners.column(KEY).combine_chunks()

    @property
    def rows(self) -> pa.Table:
        """Those that are not deleted."""
        return self.winners.filter(pc.invert(self.winners.column(TOMBSTONE)))


def hot_records(records: pa.Table, end: Seam) -> HotRecords:
    """The winners at or beyond the seam and before the end, of records as `verify.log_fold` has them."""
    beyond = records.filter(pc.greater(records.column(SEGMENT), 0))
    return HotRecords(winners(_before(beyond, end)).combine_chunks())


@dataclass(frozen=True, slots=True)
class Difference:
    """A finding, the key that it is about, and where the door's row comes from; None where it has none."""

    finding: Finding
    key: bytes
    origin: Origin | None


def extract_findings(
    definition: LiveTable, rows: pa.Table, hot: HotRecords, extracted: pa.Table, point: ReadPoint
) -> Iterator[Difference]:
    """What an extract shows, against the table's rows with the log's winners laid over them.

    Keys that are live twice in the table are another finding's.
    """
    twice = first_twice(rows)
    cold = rows.filter(pc.invert(pc.is_in(rows.column(KEY), value_set=pa.concat_arrays([hot.keys, twice]))))
    names = rows_schema(definition).names
    expected = pa.concat_tables([cold.select(names), hot.rows.select(names)]).combine_chunks()
    only_twice = twice.filter(pc.invert(pc.is_in(twice, value_set=hot.keys)))
    is_once = pc.invert(pc.is_in(extracted.column(KEY), value_set=only_twice))
    found = extracted.filter(is_once).combine_chunks()
    told = differences(expected, found, compared_columns(definition))
    for kind, key, origin in _with_origins(found, told):
        what = f"{_worded(kind, 'the extract')} at {point.to_header()}"
        yield Difference(Finding("door-differs", what, key_of(definition, key)), key, origin)


def hot_findings(definition: LiveTable, hot: HotRecords, scanned: pa.Table) -> Iterator[Difference]:
    """What a scan of the hot tier shows, against the log's winners up to the tier's end."""
    found = _unpacked(definition, scanned)
    columns = [*compared_columns(definition), TOMBSTONE]
    for kind, key, origin in _with_origins(found, differences(hot.winners, found, columns)):
        finding = Finding("hot-differs", _worded(kind, "the hot tier"), key_of(definition, key))
        yield Difference(finding, key, origin)


def hot_entities(definition: LiveTable, scanned: pa.Table) -> pa.Array:
    """The entity of each winner that a scan gave."""
    keys = scanned.column(KEY).combine_chunks().cast(pa.binary())
    return entities_of(definition, pa.table(decode_arrays(definition, keys), names=list(definition.identity)))


def _with_origins(
    found: pa.Table, told: Iterator[tuple[str, bytes]]
) -> Iterator[tuple[str, bytes, Origin | None]]:
    """The kinds and keys of differences with the partitions and offsets of the door's rows."""
    origins: dict[bytes, Origin] | None = None
    for kind, key in told:
        if origins is None:
            columns = (found.column(name).to_pylist() for name in (KEY, *PROVENANCE[:3]))
            origins = {name: ((topic, p), offset) for name, topic, p, offset in zip(*columns, strict=True)}
        yield kind, key, origins.get(key)


def _before(records: pa.Table, end: Seam) -> pa.Table:
    """Records before an end."""
    topics, partitions = records.column(PROVENANCE[0]), records.column(PROVENANCE[1])
    is_before = np.zeros(records.num_rows, bool)
    for topic, partition, offset in end.items():
        is_there = pc.and_(pc.equal(topics, topic), pc.equal(partitions, partition))
        is_before |= pc.and_(is_there, pc.less(records.column(PROVENANCE[2]), offset)).to_numpy()
    return records.filter(pa.array(is_before))


def _unpacked(definition: LiveTable, scanned: pa.Table) -> pa.Table:
    """Winners of the hot tier with their values as columns; a tombstone's are null."""
    keys = scanned.column(KEY).combine_chunks().cast(pa.binary())
    is_live = pc.invert(scanned.column(TOMBSTONE)).combine_chunks()
    names = [column.name for column in definition.value_columns]
    payloads = scanned.column(_PAYLOAD).combine_chunks().filter(is_live)
    values = unpack_arrays(definition, payloads, names)
    live_at = pa.array(np.flatnonzero(is_live.to_numpy(zero_copy_only=False)))
    at = pc.index_in(pa.array(np.arange(scanned.num_rows)), value_set=live_at)
    columns = dict(zip(definition.identity, decode_arrays(definition, keys), strict=True))
    columns |= {name: values[name].take(at) for name in names}
    columns |= {name: scanned.column(name).combine_chunks() for name in (*PROVENANCE, TOMBSTONE)}
    schema = definition.records_schema
    arrays = [keys if field.name == KEY else _cast(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return values if values.type == wanted else values.cast(wanted)


def _worded(kind: str, door: str) -> str:
    return _WORDS.get(kind, "{door} has other columns of it").format(door=door)
