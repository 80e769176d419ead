"""A table gets another number of buckets between batches, on a real catalog, against a plain dict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.alter import _commit
from ingest.commit import Landed
from ingest.files_by_bucket import by_bucket
from ingest.java import small_jvm
from maintenance.measure import Measurer
from maintenance.plan import Costs, Reads, plan_of
from maintenance.run import OwnedTable
from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.maintenance.kept import Inline, Kept, upkeep_of
from tests.manual_clock import ManualClock
from thermocline.errors import AlterationRefused
from thermocline.iceberg.catalog import definition_of
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.bucket_change import FACTOR_MAX
from verify.structure import structure_findings

pytestmark = pytest.mark.jvm

STEPS_MAX = 60


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = settings_of(tmp_path_factory.mktemp("jvm"), "sqlite:///catalog.db")
    with small_jvm(settings.catalog) as view:
        yield view


@pytest.fixture
def kept(tmp_path: Path, jvm: Any, request: pytest.FixtureRequest) -> Iterator[Kept]:
    format_version = getattr(request, "param", 3)
    settings = settings_of(tmp_path, "sqlite:///catalog.db")
    table = settings.tables[NAME].model_copy(update={"format_version": format_version})
    settings = settings.model_copy(update={"tables": {NAME: table}})
    ingest = Ingest(settings, jvm, seed=format_version)
    clock = ManualClock(int(1000 * time.time()))
    upkeep = upkeep_of(clock)
    yield Kept(ingest, upkeep, OwnedTable.of(ingest.owned, Inline(jvm)), clock)
    upkeep.close()
    ingest.owned.release()


def alter(kept: Kept, buckets: int) -> None:
    """As ``table alter`` does, once it owns the table."""
    ingest, current = kept.ingest, kept.site.definition
    files = dict(Counter(file.part.of for file in ingest.files()))
    wanted = replace(current, buckets=buckets, file_buckets=None)
    planned = plan_alteration(current, wanted, ingest.owned.table.metadata.last_column_id, files)
    _commit(ingest.owned, planned, "earliest")
    ingest.refresh()
    ingest.definition = ingest.owned.definition = definition_of(ingest.owned.table, NAME)
    assert ingest.definition == planned.definition
    kept.site = OwnedTable.of(ingest.owned, Inline(ingest.jvm))


def step(kept: Kept) -> None:
    """A batch and a turn; after each, rows, files and where they are must be as they should."""
    kept.clock.advance(31)
    for act in (kept.batch, kept.turn):
        act()
        kept.ingest.definition = kept.site.definition
        assert kept.ingest.rows() == kept.ingest.expected
        carried = {bucket: files for bucket, files in kept.site.position.files.items() if files}
        assert {
            bucket: sorted(files, key=lambda file: file.path) for bucket, files in carried.items()
        } == by_bucket(kept.ingest.files())
    table, definition = kept.ingest.owned.table, kept.site.definition
    assert definition == definition_of(table, NAME)
    assert list(structure_findings(table, definition, lambda *_: None)) == []


def numbers(kept: Kept) -> set[int]:
    return {file.part.of for file in kept.ingest.files()}


@pytest.mark.parametrize("kept", [2, 3], indirect=True)
def test_a_table_gets_more_and_fewer_buckets_between_batches_and_says_the_same_all_the_while(
    kept: Kept,
) -> None:
    """Goal: no row is lost, doubled or brought back, in no state in between; and the change ends by itself.

    Method: batches change and delete rows of files of both numbers, also of files that a rewrite reads.
    """
    old_deletes = steps = 0
    for buckets in (4, 16, 2, 6, 3):
        before = kept.site.definition
        for _ in range(3):
            step(kept)
        alter(kept, buckets)
        is_raised = buckets > before.buckets
        assert kept.site.definition.buckets == (before.buckets if is_raised else buckets)
        assert kept.site.definition.buckets_written == buckets
        with pytest.raises(AlterationRefused, match="under way"):
            alter(kept, 1)
        while numbers(kept) != {buckets} or kept.site.definition.buckets != buckets:
            step(kept)
            old_deletes += sum(
                file.deletes is not None and file.part.of != buckets for file in kept.ingest.files()
            )
            steps += 1
            assert steps < STEPS_MAX
    assert steps > 10
    assert old_deletes, "a batch deleted rows of a file of before"
    specs = kept.ingest.owned.table.specs()
    assert [str(spec.fields[0].transform) for spec in specs.values()] == [
        f"bucket[{count}]" for count in (2, 4, 16, 6, 3)
    ]
    assert kept.upkeep.done.dropped == kept.upkeep.done.failures == 0


def test_while_buckets_change_every_file_of_before_is_wanted_and_counted(kept: Kept) -> None:
    kept.batches(6)
    files = len(kept.ingest.files())
    alter(kept, 4)
    measured = Measurer(kept.site.definition).measure(kept.ingest.owned.table, kept.clock.now_ms())
    assert measured.older_files == files
    plan = plan_of(measured, 1 << 20, Reads(scans_per_hour=0, lookups_per_hour=0), Costs())
    assert sum(len(task.files) for task in plan.wanted) == files
    assert all(task.is_forced and "from 2 to 4 buckets" in task.reason for task in plan.wanted)
    assert plan.debt_seconds == 0 < plan.bucket_change_seconds


def test_an_empty_table_changes_at_once(kept: Kept) -> None:
    alter(kept, 8)
    assert (kept.site.definition.buckets, kept.site.definition.file_buckets) == (8, 8)
    for _ in range(3):
        step(kept)
    assert numbers(kept) == {8}


def test_other_numbers_are_refused_with_the_nearest_that_are_not(kept: Kept) -> None:
    for wanted, nearest in ((3, "1 and 4"), (2 * FACTOR_MAX + 1, f"{2 * FACTOR_MAX}")):
        with pytest.raises(AlterationRefused, match=f"the nearest: {nearest}"):
            alter(kept, wanted)
    assert isinstance(kept.site.land(kept.ingest.batch()[0]), Landed)
