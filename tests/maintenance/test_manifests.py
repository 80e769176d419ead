"""When manifests are worth a rewrite."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thermocline.maintenance.manifests import (
    FILES_MAX,
    GROUPS_MAX,
    MANIFEST_BYTES,
    MANIFESTS_ADDED,
    buckets_together,
)
from thermocline.maintenance.measure import BucketMeasure, FileMeasure, ManifestMeasure, TableMeasure

MERGED_BY_ICEBERG = 100
"""Iceberg's ``commit.manifest.min-count-to-merge``."""


def _table(manifests: int, size: int, files: int = 1_000) -> TableMeasure:
    return TableMeasure(1, {}, listed={"deletes": ManifestMeasure(manifests, size, files)})


@pytest.mark.parametrize(
    ("size", "groups"),
    [(1 << 20, 16), (2 << 20, GROUPS_MAX), (MANIFEST_BYTES + 1, 2), (5 * MANIFEST_BYTES, 5)],
)
def test_they_are_rewritten_once_many_were_added_and_before_iceberg_merges_them(
    size: int, groups: int
) -> None:
    assert groups + MANIFESTS_ADDED < MERGED_BY_ICEBERG
    assert buckets_together(_table(groups + MANIFESTS_ADDED - 1, size), 256) == {}
    together = buckets_together(_table(groups + MANIFESTS_ADDED, size), 256)
    assert -(-256 // together["deletes"]) in (groups, groups - 1)


def test_each_kind_is_rewritten_where_it_is_worth_it() -> None:
    many, few = ManifestMeasure(99, 2 << 20, 1_000), ManifestMeasure(9, 2 << 20, 1_000)
    assert buckets_together(TableMeasure(1, {}, listed={"data": many, "deletes": few}), 256) == {"data": 8}
    assert buckets_together(TableMeasure(1, {}, listed={"data": many, "deletes": many}), 256) == {
        "data": 8,
        "deletes": 8,
    }


def test_small_tables_and_those_that_would_hold_batches_up_are_left_to_iceberg() -> None:
    assert not buckets_together(_table(99, 100_000), 256)
    assert not buckets_together(_table(99, 2 << 20), 1)
    assert buckets_together(_table(99, 2 << 20, FILES_MAX), 256)
    assert not buckets_together(_table(99, 2 << 20, FILES_MAX + 1), 256)


def test_while_the_number_of_buckets_changes_each_spec_has_manifests_of_its_own() -> None:
    older = {0: BucketMeasure(0, (FileMeasure("a", 1, 1),))}
    assert not buckets_together(replace(_table(99, 2 << 20), buckets=older, buckets_written=256), 256)
