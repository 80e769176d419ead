"""Keys that are live twice in a bucket, however large it is. On real files, without Kafka and Java."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import verify.bucket_scan
from tests.ingest.one_bucket import DEFINITION, IO, OneBucketTable, Record, live_rows, records_of
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, write_data_file
from thermocline.iceberg.files import DataFile, ListedFile
from thermocline.rules.definition import KEY
from thermocline.rules.keys import bucket_of
from verify.bucket_scan import NAMED_KEYS_MAX, bucket_findings
from verify.current_files import StoredFile
from verify.finding import Finding
from verify.origins import OffsetWindow, Origins

ANYWHERE = Origins({}, OffsetWindow(None, None))
# Users of bucket 0, so that rows are where they belong.
USERS = [user for number in range(40) if bucket_of(DEFINITION, user := f"u{number}") == 0]


def stored(file: DataFile) -> StoredFile:
    listed = ListedFile(file.path, "data", file.bucket, file.rows, file.bytes, 1)
    if file.deletes is None:
        return StoredFile(listed)
    one = file.deletes
    deletes = ListedFile(
        one.path, "position-deletes", file.bucket, one.cardinality, one.file_bytes, 1, file.path, one
    )
    return StoredFile(listed, (deletes,))


def findings(table: OneBucketTable, rows_at_once: int) -> list[Finding]:
    files = [stored(file) for file in table.files.get(0, ())]
    read: list[int] = []
    found = list(bucket_findings(IO, DEFINITION, files, ANYWHERE, read.append, rows_at_once))
    assert sum(read) == sum(file.listed.rows for file in files)
    return found


def put(table: OneBucketTable, rows: pa.Table) -> None:
    """Rows in a file of their own, whatever else there is."""
    rows = rows.sort_by(KEY)
    path = f"{table.location}/{random.randrange(2**60)}.parquet"
    written = write_data_file(IO, path, DEFINITION, rows)
    file = DataFile(path, 0, written.rows, written.file_bytes)
    table.files = {0: (*table.files.get(0, ()), file)}


def batch(chance: random.Random, first: int) -> list[Record]:
    return [
        (
            first + number,
            (7, chance.choice(USERS), f"k{chance.randrange(300)}"),
            None if chance.random() < 0.2 else f"v{number}",
        )
        for number in range(400)
    ]


@pytest.mark.parametrize("rows_at_once", [10**6, 700, 50])
def test_no_key_is_said_to_be_live_twice_that_is_not(tmp_path: Path, rows_at_once: int) -> None:
    chance = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    table = OneBucketTable(tmp_path)
    for number in range(6):
        table.upsert(batch(chance, 400 * number))
    assert findings(table, rows_at_once) == []
    (one,) = chance.sample(sorted(live_rows_of(table)), 1)
    put(table, records_of([(10**6, one, "again")]))
    (twice,) = findings(table, rows_at_once)
    assert (twice.code, twice.key) == ("key-live-twice", dict(zip(DEFINITION.key, one, strict=True)))
    assert "profiles/0@1000000" in twice.what


def test_a_file_that_is_there_twice_is_told_by_some_of_its_keys(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path)
    keys = [(7, user, f"k{number:05}") for number in range(200) for user in USERS]
    rows = records_of([(number, key, "v") for number, key in enumerate(keys)])
    assert rows.num_rows > 2 * ROW_GROUP_ROWS
    put(table, rows)
    put(table, rows)
    found = findings(table, 10**6)
    assert {one.code for one in found} == {"key-live-twice"}
    assert len(found) == NAMED_KEYS_MAX
    assert f"{len(keys) - NAMED_KEYS_MAX} more keys" in found[0].what


def test_keys_whose_hashes_meet_are_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify.bucket_scan, "hash", lambda _key: 7, raising=False)
    table = OneBucketTable(tmp_path)
    table.upsert([(0, (7, USERS[0], "a"), "1"), (1, (7, USERS[1], "b"), "2")])
    table.upsert([(2, (7, USERS[0], "a"), "3")])
    assert findings(table, 10**6) == []


def live_rows_of(table: OneBucketTable) -> set[tuple[int, str, str]]:
    return {key for key, _ in live_rows(table.files)}
