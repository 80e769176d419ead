"""A table's number of buckets changes: units, files and keys, as values alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from thermocline.iceberg.file_buckets import FileBucket
from thermocline.rules.bucket_change import finished, fitting, problems_of_buckets, with_buckets
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of, buckets

NUMBERS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 48, 4_000)


def table_of(buckets: int, **more: Any) -> LiveTable:
    return LiveTable.build(
        name="orders",
        identifier="app.orders",
        topics=["orders"],
        key=["id"],
        buckets=buckets,
        **{"columns": {"id": "long"}, **more},
    )


@dataclass
class Table:
    """Keys in files of buckets, as batches and rewrites leave them, and a plain dict of what was written."""

    definition: LiveTable
    random: random.Random
    files: list[tuple[FileBucket, dict[int, float]]] = field(default_factory=list)
    expected: dict[int, float] = field(default_factory=dict)

    def numbers(self) -> Counter[int]:
        return Counter(part.of for part, _ in self.files)

    def of_unit(self, unit: int) -> Iterator[dict[int, float]]:
        """As every reader and writer sorts files."""
        for part, rows in self.files:
            bucket = part.within(self.definition.buckets)
            assert bucket is not None
            if bucket == unit:
                yield rows

    def lookup(self, key: int) -> list[float]:
        return [rows[key] for rows in self.of_unit(bucket_of(self.definition, key)) if key in rows]

    def batch(self) -> None:
        """New rows take the place of the old ones, which only the files of their unit may have."""
        of = self.definition.buckets_written
        written: dict[int, dict[int, float]] = {}
        for _ in range(self.random.randrange(1, 30)):
            key = self.random.randrange(60)
            for rows in self.of_unit(bucket_of(self.definition, key)):
                rows.pop(key, None)
            value = self.random.random()
            written.setdefault(bucket_of(self.definition, key, of), {})[key] = value
            self.expected[key] = value
        self.files += [(FileBucket(number, of), rows) for number, rows in written.items()]

    def rewrite(self) -> None:
        """One file of before goes into files of the new number, or its bucket's."""
        of = self.definition.buckets_written
        older = [at for at, (part, _) in enumerate(self.files) if part.of != of]
        if older:
            _, rows = self.files.pop(self.random.choice(older))
            for number in {bucket_of(self.definition, key, of) for key in rows}:
                mine = {
                    key: value for key, value in rows.items() if bucket_of(self.definition, key, of) == number
                }
                self.files.append((FileBucket(number, of), mine))

    def change(self) -> bool:
        wanted = self.random.choice(NUMBERS)
        if list(problems_of_buckets(self.definition, wanted, self.numbers())):
            return False
        before = self.definition.buckets_written
        self.definition = with_buckets(self.definition, wanted, self.numbers())
        return wanted != before


@pytest.mark.parametrize("seed", range(10))
def test_through_any_changes_each_key_is_found_once_in_its_unit(seed: int) -> None:
    table, changes, ends = Table(table_of(4), random.Random(seed)), 0, 0
    for _ in range(400):
        act = table.random.choice(["batch", *["rewrite"] * 5, "change", "finish"])
        if act == "batch":
            table.batch()
        elif act == "rewrite":
            table.rewrite()
        elif act == "change":
            changes += table.change()
        elif (raised := finished(table.definition, table.numbers())) is not None:
            table.definition, ends = raised, ends + 1
        for key in range(60):
            assert table.lookup(key) == ([table.expected[key]] if key in table.expected else [])
    assert changes + ends > 2


def test_no_second_change_begins_before_the_first_has_ended() -> None:
    table = with_buckets(table_of(8), 16, {8: 3})
    assert (table.buckets, table.buckets_written) == (8, 16)
    (problem,) = problems_of_buckets(table, 32, {8: 2, 16: 9})
    assert "under way: 2 files are left" in problem
    assert list(problems_of_buckets(table, 32, {16: 9})), "the unit is still to be raised"
    ended = finished(table, [16] * 9)
    assert ended is not None
    assert list(problems_of_buckets(ended, 32, {16: 9})) == []
    shrunk = with_buckets(ended, 4, {16: 9})
    assert (shrunk.buckets, shrunk.buckets_written) == (4, 4)
    assert list(problems_of_buckets(shrunk, 2, {16: 1, 4: 3}))
    ordered = {"columns": {"id": "int", "version": "long"}, "sequence_by": ["version"]}
    remembers = table_of(8, **ordered)  # its files are never rewritten for it
    assert list(problems_of_buckets(remembers, 4, {16: 1, 8: 3})) == []
    assert list(problems_of_buckets(remembers, 16, {16: 1, 8: 3}))


def test_the_unit_is_raised_only_when_no_file_is_in_the_way() -> None:
    table = with_buckets(table_of(8), 16, {8: 3})
    assert finished(table, [16, 8]) is None
    assert finished(table, [16, 48]) == replace(table, buckets=16, version=2)
    assert finished(table_of(8), [8, 16]) is None


def test_a_snapshot_of_before_is_gone_back_to_with_the_unit_of_its_files() -> None:
    table = table_of(12, file_buckets=12)
    assert fitting(table, [8, 12]) == replace(table, buckets=4, version=2)
    assert fitting(table, [24]) is table


def test_a_table_whose_number_was_changed_says_so_to_programs_that_do_not_know_it() -> None:
    """A program of before takes a file's bucket for the table's, and the first spec for the file's."""
    before = table_of(8)
    for after in (with_buckets(before, 4, {8: 1}), with_buckets(before, 16, {8: 1})):
        assert "file_buckets" in after.to_json()
        assert LiveTable.from_json(after.to_json(), "orders") == after
        assert after.differences(table_of(after.buckets_written)) == ()
        assert after.differences(before) == (f"buckets is {after.buckets_written}, not 8",)
    assert "file_buckets" not in before.to_json()


def test_buckets_of_a_column_are_those_of_each_value() -> None:
    table = table_of(4)
    numbers = buckets(table, pa.array(range(1_000), pa.int64()), 48)
    assert numbers.tolist() == [bucket_of(table, key, 48) for key in range(1_000)]
    assert (numbers % 4).tolist() == buckets(table, pa.array(range(1_000), pa.int64())).tolist()
