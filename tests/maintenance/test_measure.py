"""Measures of a table against its files, and from what changed alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from tests.ingest.small_ingest import Ingest, settings_of
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import DataFile, ListedFile, listed_files
from thermocline.maintenance import measure as measure_module
from thermocline.maintenance.measure import Measurer, TableMeasure

pytestmark = pytest.mark.jvm


def test_what_the_metadata_says_is_what_the_files_are(
    tmp_path: Path, jvm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests: Counter[str] = Counter()

    def counted(io: FileIO, one: ManifestFile) -> Iterator[ListedFile]:
        manifests[one.manifest_path] += 1
        return listed_files(io, one)

    monkeypatch.setattr(measure_module, "listed_files", counted)
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed=4)
    measurer = Measurer(ingest.definition)
    for _ in range(8):
        change, _ = ingest.batch()
        ingest.owned.committer.commit(*ingest.planned, change)
        ingest.refresh()
        measured = _measured(measurer, ingest, after_seconds=1)
        expected = {
            (file.bucket, file.path, file.rows, file.bytes, _dead_rows(ingest, file))
            for file in ingest.files()
        }
        found = {
            (number, file.path, file.rows, file.bytes, file.dead_rows)
            for number, bucket in measured.buckets.items()
            for file in bucket.files
        }
        assert found == expected
    assert set(manifests.values()) == {1}, "a manifest is read once"
    lately = _measured(measurer, ingest, after_seconds=3_600).rows_per_hour
    assert 0 < _measured(measurer, ingest, after_seconds=360_000).rows_per_hour < lately / 90
    ingest.owned.release()


def _measured(measurer: Measurer, ingest: Ingest, after_seconds: int) -> TableMeasure:
    table = ingest.owned.table
    return measurer.measure(table, table.metadata.snapshots[-1].timestamp_ms + 1_000 * after_seconds)


def _dead_rows(ingest: Ingest, file: DataFile) -> int:
    return 0 if file.deletes is None else len(read_deletes(ingest.owned.table.io, file.deletes))
