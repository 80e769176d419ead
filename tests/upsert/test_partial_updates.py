"""Records that set only some columns, in bucket tasks: the others have the live row's values."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.ingest.one_bucket import IO, OneBucketTable
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.rows import live_rows
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.definition import LiveTable

Row = dict[str, Any]
Change = tuple[int, Row | None]


def definition_of(columns: dict[str, str], **more: Any) -> LiveTable:
    return LiveTable.build(
        name="t",
        identifier="a.t",
        topics=["t"],
        key=["id"],
        columns={"id": "long", **columns},
        buckets=1,
        partial_updates=True,
        **more,
    )


BEFORE = {"text": "string", "whole": "int", "token": "uuid"}
# Widened, and with a column that the files from before do not have.
AFTER = {"text": "string", "added": "double", "whole": "long", "token": "uuid"}
TOKENS = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]
VALUES: dict[str, Sequence[Any]] = {
    "text": ["", "a", None],
    "whole": [0, 7, None],
    "token": [*TOKENS, None],
    "added": [0.5, -0.5, None],
}


def records_of(definition: LiveTable, changes: Sequence[Change], first_offset: int) -> pa.Table:
    keys = [json.dumps({"id": key}).encode() for key, _ in changes]
    values = [None if row is None else json.dumps(row).encode() for _, row in changes]
    offsets = range(first_offset, first_offset + len(changes))
    decoded = decoder_for(definition).decode(keys, values)
    return records_table(definition, decoded, "t", 0, offsets, [0] * len(changes))


def rows_of(table: OneBucketTable) -> dict[int, Row]:
    rows = []
    for file in table.files.get(0, ()):
        deleted = read_deletes(IO, file.deletes) if file.deletes else None
        for piece in live_rows(IO, table.definition, file.path, deleted):
            rows += piece.to_pylist()
    found = {row["id"]: {name: row.get(name) for name in definition_names(table)} for row in rows}
    assert len(found) == len(rows), "a key is live twice"
    return found


def definition_names(table: OneBucketTable) -> list[str]:
    return [column.name for column in table.definition.value_columns]


@pytest.mark.parametrize("seed", range(4))
def test_a_column_that_a_record_leaves_out_keeps_the_live_rows_value(tmp_path: Path, seed: int) -> None:
    """Goal: rows, counts and what is suppressed are those of a dict to which each record is applied.

    Method: random batches over few keys and values; half way the table is altered, and its files are not.
    """
    draw = random.Random(seed)
    suppresses = seed % 2 == 1
    table = OneBucketTable(tmp_path, definition_of(BEFORE, suppress_unchanged=suppresses), merges=seed < 2)
    expected: dict[int, Row] = {}
    offset = suppressed = 0
    for number in range(40):
        if number == 20:
            ids = {column.name: column.field_id for column in table.definition.columns}
            altered = definition_of(
                AFTER, suppress_unchanged=suppresses, field_ids={**ids, "added": 99}, provenance_id=5
            )
            table.definition = replace(altered, version=2)
            expected = {key: {**row, "added": None} for key, row in expected.items()}
        names = definition_names(table)
        changes: list[Change] = []
        for _ in range(draw.choice([1, 3, 8])):
            some = {name: draw.choice(VALUES[name]) for name in draw.sample(names, draw.randrange(3))}
            changes.append((draw.randrange(6), draw.choice([some, some, some, some, None])))
        before = {key: dict(row) for key, row in expected.items()}
        for key, change in changes:
            if change is None:
                expected.pop(key, None)
            else:
                expected[key] = {**expected.get(key, dict.fromkeys(names)), **change}
        done = table.run(records_of(table.definition, changes, offset))
        offset += len(changes)
        keys = {key for key, _ in changes}
        same = {key for key in keys if before.get(key) == expected.get(key)}
        gone = {key for key in same if key not in expected}
        assert done.unchanged == len(same if suppresses else gone)
        assert done.applied + done.superseded + done.unchanged == len(changes)
        suppressed += done.unchanged
        assert {key: _plain(row) for key, row in rows_of(table).items()} == expected
    assert suppressed


def _plain(row: Row) -> Row:
    token = row["token"]
    return row if token is None else {**row, "token": str(UUID(bytes=token))}
