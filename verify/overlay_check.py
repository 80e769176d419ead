"""An extract and the hot tier against the table's rows with the log laid over them: all keys, all columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.decode import unpack_arrays
from thermocline.rules.definition import ABSENT, KEY, PARTITION_TIME, PROVENANCE, SEQUENCE, TOMBSTONE
from thermocline.rules.fold import absent_columns, filled
from thermocline.rules.keys import decode_arrays
from thermocline.verify.finding import Finding, key_of
from thermocline.verify.log_decode import SEGMENT
from thermocline.verify.staging import (
    EXTRACT,
    HOT,
    LAST,
    REMEMBERED,
    STORED,
    Staging,
    absent_names,
    row_names,
    value_names,
)

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.rules.seam import Seam
    from thermocline.verify.unconfirmed import Origin

__all__ = ["Difference", "extract_findings", "hot_findings", "unpacked"]

PIECE_BYTES: Final = 64 << 20
"""Of the hot tier's winners, unpacked at a time."""
_PAYLOAD: Final = "payload"
_TOPIC, _PARTITION, _OFFSET, _ = PROVENANCE
_WINNERS: Final = "winners"


def _winners_query(first: str) -> str:
    """What `thermocline.rules.fold` says: the last record of a partition, and of these the greatest.

    ``first`` is what comes before that in either order.
    """
    return f"""
        CREATE OR REPLACE TEMP TABLE {_WINNERS} AS
        WITH newest AS (
            SELECT {LAST}.* FROM {LAST} JOIN ends USING ({_TOPIC}, {_PARTITION})
            WHERE {SEGMENT} > 0 AND {_OFFSET} < ends.offset_end
            QUALIFY row_number() OVER (
                PARTITION BY {KEY}, {_TOPIC}, {_PARTITION} ORDER BY {first} {_OFFSET} DESC
            ) = 1
        )
        FROM newest QUALIFY row_number() OVER (
            PARTITION BY {KEY} ORDER BY {first} {PARTITION_TIME} DESC, {_TOPIC} DESC, {_PARTITION} DESC
        ) = 1
    """


@dataclass(frozen=True, slots=True)
class Difference:
    """A finding, the key that it is about, and the origin of the row that was shown; None where none was."""

    finding: Finding
    key: bytes
    origin: Origin | None


def extract_findings(staging: Staging, point: ReadPoint) -> Iterator[Difference]:
    """What an extract shows, against the table's rows with the log's winners laid over them.

    Keys that are live twice in the table are another finding's.
    """
    _find_winners(staging, point.end)
    if staging.definition.merging.is_ordered:
        _leave_out_late(staging)
    names = ", ".join(row_names(staging.definition))
    twice = f"SELECT {KEY} FROM {STORED} GROUP BY {KEY} HAVING count(*) > 1"
    cold = (
        f"SELECT {names} FROM {STORED} ANTI JOIN {_WINNERS} USING ({KEY}) ANTI JOIN ({twice}) USING ({KEY})"
    )
    hot = _live_winners(staging.definition)
    found = f"{EXTRACT} ANTI JOIN (FROM ({twice}) ANTI JOIN {_WINNERS} USING ({KEY})) USING ({KEY})"
    told = _differences(staging, f"{cold} UNION ALL {hot}", f"SELECT {names} FROM {found}", ())
    for words, key, origin in told:
        what = f"the extract {words} at {point.to_header()}"
        yield Difference(Finding("extract-differs", what, key_of(staging.definition, key)), key, origin)


def hot_findings(staging: Staging, end: Seam) -> Iterator[Difference]:
    """What a scan of the hot tier shows, against the log's winners up to the tier's end."""
    _find_winners(staging, end)
    ordered = (SEQUENCE,) if staging.definition.merging.is_ordered else ()
    added = (TOMBSTONE, *absent_names(staging.definition), *ordered)
    for words, key, origin in _differences(staging, f"FROM {_WINNERS}", f"FROM {HOT}", added):
        finding = Finding("hot-differs", f"the hot tier {words}", key_of(staging.definition, key))
        yield Difference(finding, key, origin)


def unpacked(definition: LiveTable, scanned: pa.Table) -> Iterator[pa.Table]:
    """Winners of the hot tier with their values as columns; a tombstone's are null, and absent ones.

    In pieces of a bounded size.
    """
    rows = max(1, PIECE_BYTES * scanned.num_rows // max(scanned.nbytes, 1))
    for first in range(0, max(scanned.num_rows, 1), rows):
        yield _unpacked(definition, scanned.slice(first, rows))


def _unpacked(definition: LiveTable, scanned: pa.Table) -> pa.Table:
    keys = scanned.column(KEY).combine_chunks().cast(pa.binary())
    is_live = pc.invert(scanned.column(TOMBSTONE)).combine_chunks()
    names = [column.name for column in definition.value_columns]
    payloads = scanned.column(_PAYLOAD).combine_chunks().filter(is_live)
    values = unpack_arrays(definition, payloads, names)
    live_at = pa.array(np.flatnonzero(is_live.to_numpy(zero_copy_only=False)))
    at = pc.index_in(pa.array(np.arange(scanned.num_rows)), value_set=live_at)
    columns = dict(zip(definition.identity, decode_arrays(definition, keys), strict=True))
    columns |= {name: values[name].take(at) for name in names}
    beside = (ABSENT, definition.merging.is_partial), (SEQUENCE, definition.merging.is_ordered)
    said = (*PROVENANCE, TOMBSTONE, *(name for name, is_there in beside if is_there))
    columns |= {name: scanned.column(name).combine_chunks() for name in said}
    schema = definition.records_schema
    arrays = [keys if field.name == KEY else _cast(columns[field.name], field.type) for field in schema]
    table = pa.Table.from_arrays(arrays, schema=schema)
    if not definition.merging.is_partial:
        return table
    return filled(table, absent_columns(table), np.empty(0, np.int64), schema.empty_table())


def _live_winners(definition: LiveTable) -> str:
    """The rows of the winners that are not tombstones; what one leaves as it is, is as the table has it."""
    names = row_names(definition)
    if not definition.merging.is_partial:
        return f"SELECT {', '.join(names)} FROM {_WINNERS} WHERE NOT {TOMBSTONE}"
    absent = dict(zip(value_names(definition), absent_names(definition), strict=True))
    columns = ", ".join(
        f"CASE WHEN w.{absent[name]} THEN below.{name} ELSE w.{name} END AS {name}"
        if name in absent
        else f"w.{name}"
        for name in names
    )
    below = f"FROM {STORED} QUALIFY row_number() OVER (PARTITION BY {KEY}) = 1"
    return (
        f"SELECT {columns} FROM {_WINNERS} w LEFT JOIN ({below}) below USING ({KEY}) WHERE NOT w.{TOMBSTONE}"
    )


def _find_winners(staging: Staging, end: Seam) -> None:
    """Makes the table of the winners at or beyond the seam and before an end."""
    columns = list(zip(*end.items(), strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int32(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    staging.register("ends", pa.table(arrays, names=[_TOPIC, _PARTITION, "offset_end"]))
    staging.execute(_winners_query(f"{SEQUENCE} DESC," if staging.definition.merging.is_ordered else ""))


def _leave_out_late(staging: Staging) -> None:
    """Drops winners that lose against the table's row of their key, or a delete that it remembers."""
    # safety: verify-late
    staging.execute(f"""
        DELETE FROM {_WINNERS} WHERE EXISTS (
            SELECT 1 FROM (
                SELECT {KEY}, {SEQUENCE} FROM {STORED} UNION ALL SELECT {KEY}, {SEQUENCE} FROM {REMEMBERED}
            ) AS below
            WHERE below.{KEY} = {_WINNERS}.{KEY} AND below.{SEQUENCE} > {_WINNERS}.{SEQUENCE}
        )
    """)


def _differences(
    staging: Staging, expected: str, found: str, added: Sequence[str]
) -> Iterator[tuple[str, bytes, Origin | None]]:
    """What is different in words, the key, and the origin of the row that was found."""
    origin = f"{_TOPIC}, {_PARTITION}, {_OFFSET}"
    twice = f"SELECT {KEY}, {origin} FROM ({found}) QUALIFY row_number() OVER (PARTITION BY {KEY}) = 2"
    for key, *place in staging.rows(twice):
        yield "has it more than once", key, _origin(place)
    columns = [*row_names(staging.definition), *added]
    # safety: verify-extract
    differs = " OR ".join(f"expected.{name} IS DISTINCT FROM found.{name}" for name in columns)
    query = f"""
        SELECT coalesce(expected.{KEY}, found.{KEY}), expected.{KEY} IS NULL, found.{KEY} IS NULL,
            {", ".join(f"found.{name}" for name in PROVENANCE[:3])}
        FROM ({expected}) AS expected FULL JOIN ({found}) AS found ON expected.{KEY} = found.{KEY}
        WHERE {differs}
    """
    for key, is_extra, is_missing, *place in staging.rows(query):
        words = "lacks it" if is_missing else "has other columns of it"
        yield "has it, and it should not be there" if is_extra else words, key, _origin(place)


def _origin(place: Sequence[Any]) -> Origin | None:
    topic, partition, offset = place
    return None if offset is None else ((topic, partition), offset)


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return values if values.type == wanted else values.cast(wanted)
