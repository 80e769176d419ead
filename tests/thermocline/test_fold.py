from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.newest import newest
from thermocline.rules.definition import LiveTable
from thermocline.rules.fold import Folded, fold, order_of, overlay, winners

TABLE = LiveTable.build(
    name="t", identifier="a.t", topics=["a", "b"], key=["k"], columns={"k": "string", "v": "long"}
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record as the tests draw it; ``value`` None is a tombstone."""

    key: bytes
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: int | None

    @property
    def partition_time_ms(self) -> int:
        """Its own time: in most of these tests none goes back within a partition, as far as is known."""
        return self.timestamp_ms


def arrow(records: list[Record]) -> pa.Table:
    columns = {
        "k": [record.key.decode() for record in records],
        "v": [record.value for record in records],
        "_kafka_topic": [record.topic for record in records],
        "_kafka_partition": [record.partition for record in records],
        "_kafka_offset": [record.offset for record in records],
        "_kafka_timestamp": [record.timestamp_ms * 1000 for record in records],
        "_tombstone": [record.value is None for record in records],
        "_key": [record.key for record in records],
    }
    return pa.table(columns, schema=TABLE.records_schema)


def replayed(records: list[Record]) -> dict[bytes, Record]:
    """The winners by the rule, read as plainly as it is written."""
    last: dict[tuple[bytes, str, int], Record] = {}
    for record in sorted(records, key=lambda record: record.offset):
        last[record.key, record.topic, record.partition] = record
    winners: dict[bytes, Record] = {}
    for record in sorted(last.values(), key=lambda r: (r.timestamp_ms, r.topic, r.partition)):
        winners[record.key] = record
    return winners


def offsets_of(folded: Folded) -> list[tuple[bytes, str, int, int]]:
    names = ("_key", "_kafka_topic", "_kafka_partition", "_kafka_offset")
    return list(zip(*(folded.winners[name].to_pylist() for name in names), strict=True))


RECORDS = st.lists(
    st.builds(
        Record,
        key=st.sampled_from([b"a", b"aa", b"b", b"c", b""]),
        topic=st.sampled_from(["a", "b", "a0"]),
        partition=st.integers(0, 2),
        offset=st.integers(0, 2**40),
        timestamp_ms=st.integers(-1, 3),
        value=st.none() | st.integers(0, 9),
    ),
    max_size=30,
    unique_by=lambda record: (record.topic, record.partition, record.offset),
)


@given(RECORDS, st.integers(0, 30))
def test_fold_keeps_the_winners_of_a_plain_replay(records: list[Record], cut: int) -> None:
    """In any order of arrival, over any chunks: winners, counts and order are those of the replay."""
    winners = replayed(records)
    folded = fold(pa.concat_tables([arrow(records[:cut]), arrow(records[cut:])]))
    assert offsets_of(folded) == [(k, w.topic, w.partition, w.offset) for k, w in sorted(winners.items())]
    assert folded.winners["v"].to_pylist() == [winner.value for _, winner in sorted(winners.items())]
    assert folded.winners["_tombstone"].to_pylist() == [w.value is None for _, w in sorted(winners.items())]
    assert folded.winners.schema == TABLE.records_schema
    assert folded.superseded == len(records) - len(winners)
    contested = {k for k in winners if len({(r.topic, r.partition) for r in records if r.key == k}) > 1}
    assert folded.conflicts == len(contested)
    assert folded.conflict_example in contested if contested else folded.conflict_example is None


@given(RECORDS, st.integers(0, 30))
def test_winners_alone_are_those_of_fold(records: list[Record], cut: int) -> None:
    table = pa.concat_tables([arrow(records[:cut]), arrow(records[cut:])])
    place = table.schema.get_field_index("_kafka_topic")
    coded = table.set_column(place, "_kafka_topic", table["_kafka_topic"].dictionary_encode())
    assert winners(coded).sort_by("_key").cast(TABLE.records_schema) == fold(table).winners


@given(RECORDS.filter(bool))
def test_order_of_and_fold_say_the_same(records: list[Record]) -> None:
    """One order, two implementations: for the few records of a lookup, and for the millions of a batch."""
    last: dict[tuple[bytes, str, int], Record] = {}
    for record in sorted(records, key=lambda record: record.offset):
        last[record.key, record.topic, record.partition] = record
    folded = {key: place for key, *place in offsets_of(fold(arrow(records)))}
    for key, place in folded.items():
        of_key = [record for record in last.values() if record.key == key]
        best = max(of_key, key=lambda one: order_of(one.timestamp_ms, one.topic, one.partition))
        assert place == [best.topic, best.partition, best.offset]
        assert newest(record for record in records if record.key == key) == best


@given(RECORDS, st.integers(0, 30))
def test_folding_in_two_steps_is_folding_at_once(records: list[Record], cut: int) -> None:
    """Within one partition a fold of folds is the fold: that lets tasks fold before they pack."""
    alone = [record for record in records if (record.topic, record.partition) == ("a", 0)]
    halves = [fold(arrow(half)).winners for half in (alone[:cut], alone[cut:])]
    assert offsets_of(fold(pa.concat_tables(halves))) == offsets_of(fold(arrow(alone)))


def test_within_a_partition_the_offset_decides_whatever_the_time() -> None:
    early, late = Record(b"k", "a", 0, 5, 900, 1), Record(b"k", "a", 0, 6, 100, 2)
    assert offsets_of(fold(arrow([late, early]))) == [(b"k", "a", 0, 6)]
    assert newest([late, early]) is late


def test_over_partitions_the_time_decides_then_topic_then_partition() -> None:
    records = [Record(b"k", "b", 0, 9, 5, 1), Record(b"k", "a", 2, 9, 6, 2), Record(b"k", "a", 1, 99, 6, 3)]
    folded = fold(arrow(records))
    assert offsets_of(folded) == [(b"k", "a", 2, 9)]
    assert (folded.conflicts, folded.conflict_example) == (1, b"k")


def test_no_records_fold_to_none() -> None:
    folded = fold(TABLE.records_schema.empty_table())
    assert (folded.winners.num_rows, folded.superseded, folded.conflicts) == (0, 0, 0)
    assert folded.winners.schema == TABLE.records_schema


KEYS = st.binary(max_size=1)


@given(st.dictionaries(KEYS, st.integers()), st.lists(st.tuples(KEYS, st.none() | st.integers())))
def test_an_overlay_is_what_a_dict_holds_after_the_changes(
    cold: dict[bytes, int], changes: list[tuple[bytes, int | None]]
) -> None:
    expected = dict(cold)
    for key, value in changes:
        expected.pop(key, None)
        if value is not None:
            expected[key] = value
    found = overlay(cold, dict(changes))
    assert found == expected
    assert list(found) == sorted(expected)


PARTIAL = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["a", "b"],
    key=["k"],
    columns={"k": "string", "v": "long", "w": "long"},
    partial_updates=True,
)
SET = st.none() | st.integers(0, 9)


@dataclass(frozen=True, slots=True)
class Change:
    """A record that sets some columns, to None too; ``sets`` None is a tombstone."""

    key: bytes
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    sets: dict[str, int | None] | None

    @property
    def absent(self) -> list[str]:
        return [] if self.sets is None else [name for name in ("v", "w") if name not in self.sets]


CHANGES = st.lists(
    st.builds(
        Change,
        key=st.sampled_from([b"a", b"b", b"c"]),
        topic=st.sampled_from(["a", "b"]),
        partition=st.integers(0, 1),
        offset=st.integers(0, 30),
        timestamp_ms=st.integers(0, 3),
        sets=st.none() | st.dictionaries(st.sampled_from(["v", "w"]), SET),
    ),
    max_size=30,
    unique_by=lambda record: (record.topic, record.partition, record.offset),
)


def partial_arrow(changes: list[Change]) -> pa.Table:
    rows = [
        {
            "k": one.key.decode(),
            **(one.sets or {}),
            "_kafka_topic": one.topic,
            "_kafka_partition": one.partition,
            "_kafka_offset": one.offset,
            "_kafka_timestamp": one.timestamp_ms * 1000,
            "_tombstone": one.sets is None,
            "_key": one.key,
            "_absent": one.absent,
        }
        for one in changes
    ]
    return pa.Table.from_pylist(rows, PARTIAL.records_schema)


@given(CHANGES, st.integers(0, 30))
def test_a_winner_has_each_column_from_the_last_record_of_its_partition_that_set_it(
    changes: list[Change], cut: int
) -> None:
    """Against dicts: a tombstone leaves all columns null, and what was never set stays absent."""
    states: dict[tuple[bytes, str, int], dict[str, int | None]] = {}
    for one in sorted(changes, key=lambda one: one.offset):
        place = (one.key, one.topic, one.partition)
        nulls: dict[str, int | None] = {"v": None, "w": None}
        states[place] = nulls if one.sets is None else states.get(place, {}) | one.sets
    table = pa.concat_tables([partial_arrow(changes[:cut]), partial_arrow(changes[cut:])])
    folded = fold(table)
    assert folded.superseded == len(changes) - folded.winners.num_rows
    assert folded.winners.schema == PARTIAL.records_schema
    assert sorted(row["_key"] for row in folded.winners.to_pylist()) == sorted({one.key for one in changes})
    for row in folded.winners.to_pylist():
        state = states[row["_key"], row["_kafka_topic"], row["_kafka_partition"]]
        assert {name: row[name] for name in ("v", "w") if name not in row["_absent"]} == state
        assert [row[name] for name in row["_absent"]] == [None] * len(row["_absent"])
    plain = [replace(one, sets={"v": 0, "w": 0}) for one in changes]
    assert offsets_of(folded) == offsets_of(fold(partial_arrow(plain)))
