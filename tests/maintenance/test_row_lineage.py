"""Rows that only move keep their id and the number of the commit that last changed them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.ingest.one_bucket import DEFINITION, IO, Key, OneBucketTable
from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import local_path
from thermocline.iceberg.row_lineage import LINEAGE
from thermocline.maintenance import merge
from thermocline.maintenance.compact import CompactionTask
from thermocline.maintenance.landing import landing

Lineage = tuple[int, int]


def _lineage(table: OneBucketTable) -> dict[Key, Lineage]:
    """Row id and sequence number of each live row, as the specification has a reader find them."""
    found: dict[Key, Lineage] = {}
    for file in table.files.get(0, ()):
        deleted = read_deletes(IO, file.deletes) if file.deletes else ()
        first, sequence_number = file.origin.first_row_id, file.origin.sequence_number
        assert first is not None
        assert sequence_number is not None
        for position, row in enumerate(pq.read_table(local_path(file.path), partitioning=None).to_pylist()):
            if position not in deleted:
                own_id, own_number = (row.get(name) for name in LINEAGE.names)
                found[row["app_id"], row["user_id"], row["key"]] = (
                    first + position if own_id is None else own_id,
                    sequence_number if own_number is None else own_number,
                )
    return found


@pytest.mark.parametrize("seed", range(3))
def test_merges_and_rewrites_keep_the_lineage_of_every_row_that_no_record_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Method: batches merge files and delete rows while others are rewritten; a dict says what stays."""
    monkeypatch.setattr(merge, "ROWS_IN_MEMORY", 4 * ROW_GROUP_ROWS)
    rng = random.Random(seed)
    table = OneBucketTable(tmp_path)
    expected: dict[Key, Lineage] = {}
    merged = rewritten = offset = 0
    for number in range(16):
        running = None
        if number % 4 == 3:
            some = rng.sample(list(table.files[0]), rng.randint(1, len(table.files[0])))
            task = CompactionTask(
                IO, DEFINITION, table.location, f"{table.location}/moves", 0, tuple(some), 20_000
            )
            running = task.run()
            table.held = frozenset(file.path for file in some)
        keys = {
            (1, f"u{rng.randrange(40)}", f"k{rng.randrange(100)}") for _ in range(rng.choice([10, 2_000]))
        }
        batch = [(offset + at, key, rng.choice(["v", "w", None])) for at, key in enumerate(sorted(keys))]
        offset += len(batch)
        done = table.upsert(batch)
        merged += done.carried
        if running is not None:
            part = landing(IO, DEFINITION, table.location, running, table.files[0])
            assert part is not None
            table.commit(part)
            rewritten += sum(file.rows for file in running.added)
            table.held = frozenset()
        for _, key, _ in batch:
            expected.pop(key, None)
        now = _lineage(table)
        new = {key: now[key] for _, key, value in batch if value is not None}
        assert all(updated == table.commits - (running is not None) for _, updated in new.values())
        expected |= new
        assert now == expected
        assert len({row_id for row_id, _ in now.values()}) == len(now)
    assert merged
    assert rewritten


def test_only_files_of_moved_rows_store_lineage_and_none_in_format_version_2(tmp_path: Path) -> None:
    for version, stored in ((2, [False] * 5), (3, [False, False, False, True, False])):
        table = OneBucketTable(tmp_path / str(version), replace(DEFINITION, format_version=version))
        (tmp_path / str(version) / "bucket=0").mkdir(parents=True)
        done = [table.upsert([(one, (1, "ada", f"k{one}"), "v")]) for one in range(5)]
        names = [pq.read_schema(local_path(one.added[0].path)).names for one in done]
        assert [LINEAGE.names[0] in some for some in names] == stored
