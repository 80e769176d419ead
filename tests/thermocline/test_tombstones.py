"""Deletes that a data file remembers: where they are noted, and who must not lose them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.ingest.one_bucket import IO, OneBucketTable, merge_by_row_groups
from tests.upsert.test_sequence import DEFINITION, records_of
from thermocline.iceberg.rewrite import NotARewrite, check_deletes_kept
from thermocline.iceberg.tombstones import load_tombstones


def test_a_file_says_which_of_its_deleted_rows_are_remembered_deletes(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path, DEFINITION)
    events = [(key, 1, None if key % 3 else "row") for key in range(2_000)]
    table.run(records_of(DEFINITION, events, 0, time_ms=77))
    (file,) = table.files[0]
    found = load_tombstones(IO, file.path)
    assert list(found.positions) == [key for key in range(2_000) if key % 3]
    assert found.newest_ms == 77
    assert file.deletes is not None
    assert file.deletes.cardinality == len(found.positions)


def test_a_file_that_another_writer_merged_does_not_remember_what_the_first_one_did(tmp_path: Path) -> None:
    """Its positions need not be those of the first file, nor are they of rows that anybody deleted of it."""
    table = OneBucketTable(tmp_path, DEFINITION, merges=False)
    table.run(records_of(DEFINITION, [(1, 1, "row"), (2, 1, None)], 0))
    table.run(records_of(DEFINITION, [(3, 1, "row")], 1))
    first, second = (file.path for file in sorted(table.files[0], key=lambda file: file.deletes is None))
    merge_by_row_groups(tmp_path / "merged.parquet", [first, second])
    assert load_tombstones(IO, first).positions
    assert not load_tombstones(IO, (tmp_path / "merged.parquet").as_uri()).positions


def test_a_rewrite_without_a_file_that_remembers_deletes_is_none(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path, DEFINITION, merges=False)
    table.run(records_of(DEFINITION, [(1, 1, "row")], 0))
    table.run(records_of(DEFINITION, [(2, 1, "row"), (3, 1, None)], 1))
    before = Counter(table.files[0])
    plain, remembering = sorted(table.files[0], key=lambda file: file.deletes is not None)
    check_deletes_kept(IO, DEFINITION, before, Counter([replace(remembering, deletes=None)]))
    with pytest.raises(NotARewrite, match="is gone, with deletes that late records must lose against"):
        check_deletes_kept(IO, DEFINITION, before, Counter([plain]))
