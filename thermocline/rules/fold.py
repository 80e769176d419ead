"""The last one wins: records folded to one per key, and cold rows overlaid with the winners.

Within a partition the highest offset wins, or, where columns order the records, the highest sequence and of
equal ones the highest offset. One key in several partitions is a producer's error, or a topic that grew; then
the sequence decides, if there is one, then the partition time at each one's winner (``partition_time``), then
the topic, then the partition. That is one order with two implementations: ``order_of`` for a few records,
``fold`` for millions. They are held together by
``tests/thermocline/test_fold.py::test_order_of_and_fold_say_the_same``.

With partial updates, what wins is the last record of a partition together with those before it there: it has
each column from the last one that set it. A whole record and a tombstone set every column, and so end that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.definition import ABSENT, KEY, PARTITION_TIME, PROVENANCE, SEQUENCE

__all__ = [
    "Folded",
    "absent_columns",
    "absent_names",
    "filled",
    "fold",
    "loses",
    "order_of",
    "overlay",
    "winners",
]

TOPIC, PARTITION, OFFSET, TIMESTAMP = PROVENANCE
Indexes = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Folded:
    """Records reduced to one per key.

    ``winners`` has the columns of the records, one row per key, sorted by key, tombstones included. With
    partial updates, the columns of a winner are those that its partition's records came to, and absent the
    ones that none of them set.
    ``superseded`` counts the other records; ``conflicts`` counts the keys that were met in more than one
    partition, ``conflict_example`` being one of them, met in ``conflict_places``, sorted.
    """

    winners: pa.Table
    superseded: int
    conflicts: int
    conflict_example: bytes | None
    conflict_places: tuple[tuple[str, int], ...] = ()


def order_of(
    partition_time_ms: int, topic: str, partition: int, sequence: bytes = b""
) -> tuple[bytes, int, str, int]:
    """What decides between the last records of one key in several partitions: the greatest wins."""
    return (sequence, partition_time_ms, topic, partition)


def loses(sequence: bytes, below: bytes | None) -> bool:
    """Whether a record of that sequence loses against the state of its key, which has the one ``below``.

    None: the table has no row of the key, and remembers no delete of it. Of equal ones the later record wins.
    """
    return below is not None and sequence < below  # safety: sequence-late-loses


def fold(records: pa.Table) -> Folded:
    """Folds decoded records, in whatever order they arrive, to the winner of each key.

    They have a column `PARTITION_TIME` where a key of theirs may be in several partitions; the winners don't.
    Without it, a record's own time stands for it, which is right where none goes back within a partition.
    """
    if records.num_rows == 0:
        return Folded(_untimed(records), 0, 0, None)
    keys, winner_of, contested = _decide(records)
    records = _untimed(records)
    by_key = pc.array_sort_indices(keys).to_numpy()
    winners = records.take(pa.array(winner_of[by_key]))
    if ABSENT in records.column_names and winners.num_rows < records.num_rows:
        winners = _completed(records, winner_of[by_key], winners)
    superseded = records.num_rows - winners.num_rows
    if not len(contested):
        return Folded(winners, superseded, 0, None)
    example = keys[int(contested[0])]
    return Folded(winners, superseded, len(contested), example.as_py(), _places_of(records, example))


def winners(records: pa.Table) -> pa.Table:
    """The winners that ``fold`` finds, in no order, for half of its time."""
    if records.num_rows == 0:
        return _untimed(records)
    _, winner_of, _ = _decide(records)
    records = _untimed(records)
    return records if len(winner_of) == records.num_rows else records.take(pa.array(winner_of))


def overlay(cold: Mapping[bytes, R], winners: Mapping[bytes, R | None]) -> dict[bytes, R]:
    """Cold rows, less every key among the winners, plus the winners that are not tombstones (None).

    Sorted by key.
    """
    rows = {key: row for key, row in cold.items() if key not in winners}  # safety: overlay-hides
    rows.update((key, row) for key, row in winners.items() if row is not None)  # safety: overlay-tombstones
    return dict(sorted(rows.items()))


def absent_columns(records: pa.Table) -> dict[str, Flags]:
    """The columns that any of the records leaves as they are: by name, which of the records do."""
    lists = _one_chunk(records.column(ABSENT))
    names = lists.flatten().dictionary_encode()
    rows = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy(zero_copy_only=False))
    found: dict[str, Flags] = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        flags = found[name] = np.zeros(len(lists), np.bool_)
        flags[rows[names.indices.to_numpy() == code]] = True
    return found


def absent_names(absent: Mapping[str, Flags], rows: int) -> pa.Array:
    """What ``absent_columns`` reads, as the column of that many records."""
    flags = np.array(list(absent.values()), np.bool_).reshape(len(absent), rows)
    of_row, columns = np.nonzero(flags.T)
    ends = np.searchsorted(of_row, np.arange(rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends), pa.array(list(absent), pa.string()).take(pa.array(columns))
    )


def filled(rows: pa.Table, absent: Mapping[str, Flags], places: Indexes, cold: pa.Table) -> pa.Table:
    """Winners' rows with the absent columns of the rows below; null where there is none.

    Args:
        absent: By column, which of the rows lack it; a column that the rows do not have does not matter.
        places: For each of the cold rows, the index of the row that it lies below.
        cold: These columns, of the same types.
    """
    for name in absent.keys() & set(rows.column_names):
        source = np.where(absent[name], -1, np.arange(rows.num_rows))
        wanted = np.flatnonzero(absent[name][places])
        source[places[wanted]] = rows.num_rows + wanted
        column = pa.chunked_array([*rows.column(name).chunks, *cold.column(name).chunks])
        rows = _replaced(rows, name, column.take(pa.array(source, mask=source < 0)))
    return rows


def _completed(records: pa.Table, winner_of: Indexes, winners: pa.Table) -> pa.Table:
    """The winners with each column from the last record of their partition that set it."""
    absent = absent_columns(records)
    if not any(flags[winner_of].any() for flags in absent.values()):
        return winners
    rows, starts = _chains(records, winner_of)
    left: dict[str, Flags] = {}
    for name, flags in absent.items():
        setting = np.where(flags[rows], -1, np.arange(len(rows)))
        last = np.maximum.reduceat(setting, starts)  # safety: fold-absent-keeps
        left[name] = last < 0
        values = records.column(name).take(pa.array(rows[last], mask=left[name]))
        winners = _replaced(winners, name, values)
    return _replaced(winners, ABSENT, absent_names(left, winners.num_rows))


def _replaced(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values)


def _chains(records: pa.Table, winner_of: Indexes) -> tuple[Indexes, Indexes]:
    """The records of each winner's key in its partition, in their order; and where each winner's begin."""
    keys = _one_chunk(records.column(KEY)).dictionary_encode().indices.to_numpy()
    places, offsets = _places(records), records.column(OFFSET).to_numpy()
    rank = np.zeros(len(winner_of), np.int64)
    rank[keys[winner_of]] = np.arange(len(winner_of))
    rank_of = rank[keys]
    rows = np.flatnonzero(places == places[winner_of[rank_of]])
    rows = rows[np.lexsort((offsets[rows], rank_of[rows]))]
    return rows, np.flatnonzero(np.diff(rank_of[rows], prepend=-1))


def _decide(records: pa.Table) -> tuple[pa.Array, Indexes, Indexes]:
    """The keys, the index of each one's winner, and which of the keys were met in more than one partition."""
    keys = _one_chunk(records.column(KEY)).dictionary_encode()
    if len(keys.dictionary) == records.num_rows:  # each key has one record, and is numbered as it came
        return keys.dictionary, np.arange(records.num_rows), np.empty(0, np.int64)
    key_of = keys.indices.to_numpy()
    places = _places(records)
    winner_of = _highest_offsets(records, key_of, len(keys.dictionary))
    contested = _contested(key_of, places, len(keys.dictionary))
    if len(contested):  # safety: fold-partitions
        winner_of[contested] = _decided(records, key_of, places, contested)
    return keys.dictionary, winner_of, contested


def _places_of(records: pa.Table, key: pa.Scalar) -> tuple[tuple[str, int], ...]:
    """The partitions that a key was met in."""
    found = records.select([TOPIC, PARTITION]).filter(pc.equal(records.column(KEY), key))
    topics, partitions = (found.column(name).to_pylist() for name in (TOPIC, PARTITION))
    return tuple(sorted(set(zip(topics, partitions, strict=True))))


def _untimed(records: pa.Table) -> pa.Table:
    """Without what only the fold has to know."""
    return records.drop_columns([PARTITION_TIME]) if PARTITION_TIME in records.column_names else records


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _places(records: pa.Table) -> Indexes:
    """A number for each record's (topic, partition), which orders as they do."""
    topics = _one_chunk(records.column(TOPIC)).dictionary_encode()
    rank_of = pc.rank(topics.dictionary).to_numpy().astype(np.int64)
    partitions = records.column(PARTITION).to_numpy().astype(np.int64)
    places: Indexes = rank_of[topics.indices.to_numpy()] * (int(partitions.max()) + 1) + partitions
    return places


def _highest_offsets(records: pa.Table, key_of: Indexes, keys: int) -> Indexes:
    """The index of each key's record with the highest offset: its winner, if one partition has them all."""
    offsets = records.column(OFFSET).to_numpy()
    if SEQUENCE in records.column_names:
        by_offset = np.lexsort((offsets, _ranks(records)))  # safety: fold-sequence
    else:
        by_offset = np.argsort(offsets, kind="stable")  # safety: fold-offset
    winner_of = np.zeros(keys, np.int64)
    winner_of[key_of[by_offset]] = by_offset  # of repeated indexes the last assignment stays
    return winner_of


def _ranks(records: pa.Table) -> Indexes:
    """A number for each record that orders as their sequences do."""
    sequences = _one_chunk(records.column(SEQUENCE)).dictionary_encode()
    rank_of = pc.rank(sequences.dictionary).to_numpy().astype(np.int64)
    return rank_of[sequences.indices.to_numpy()]  # type: ignore[no-any-return]


def _contested(key_of: Indexes, places: Indexes, keys: int) -> Indexes:
    """The keys that were met in more than one partition, ascending."""
    place_of_key = np.zeros(keys, np.int64)
    place_of_key[key_of] = places
    return np.unique(key_of[place_of_key[key_of] != places])


def _decided(records: pa.Table, key_of: Indexes, places: Indexes, contested: Indexes) -> Indexes:
    """The index of the winner of each contested key, by ``order_of`` among the partitions' last records."""
    rows = np.flatnonzero(np.isin(key_of, contested))
    offsets = records.column(OFFSET).to_numpy()
    has_sequence = SEQUENCE in records.column_names
    ranks = _ranks(records) if has_sequence else np.zeros(records.num_rows, np.int64)
    rows = rows[np.lexsort((offsets[rows], ranks[rows], places[rows], key_of[rows]))]
    last = (np.diff(places[rows], append=-1) != 0) | (np.diff(key_of[rows], append=-1) != 0)
    rows = rows[last]
    has_times = PARTITION_TIME in records.column_names  # safety: fold-partition-time
    times = records.column(PARTITION_TIME if has_times else TIMESTAMP).cast(pa.int64()).to_numpy()
    rows = rows[np.lexsort((places[rows], times[rows], ranks[rows], key_of[rows]))]
    winners: Indexes = rows[np.diff(key_of[rows], append=-1) != 0]
    return winners
