"""What is worth a rewrite: by cost, under a budget, and by rules over that."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ingest.one_bucket import DEFINITION as PROFILES
from thermocline.cli.maintain import _advice
from thermocline.iceberg.read_counts import ReadRates
from thermocline.maintenance.measure import BucketMeasure, FileMeasure, TableMeasure, depth_of
from thermocline.maintenance.plan import (
    FORCED_DEAD_RATIO,
    TASK_BYTES_MAX,
    Budget,
    Costs,
    Plan,
    Reads,
    plan_of,
)
from thermocline.settings import MaintenanceSettings

MB = 1_000_000
TARGET = 128 * MB


def file(
    name: str, rows: int, dead: int = 0, keys: tuple[int, int] | None = (0, 100), rewrite: str = ""
) -> FileMeasure:
    low, high = (None, None) if keys is None else ((keys[0],), (keys[1],))
    return FileMeasure(name, rows, 100 * rows, dead, low, high, rewrite)


def plan(
    *buckets: list[FileMeasure],
    rows_per_hour: float = 0.0,
    budget: Budget | None = None,
    reads: Reads | None = None,
    waiting: dict[int, float] | None = None,
) -> Plan:
    measured = TableMeasure(
        1,
        {number: BucketMeasure(number, tuple(files)) for number, files in enumerate(buckets)},
        rows_per_hour,
    )
    return plan_of(measured, TARGET, reads or Reads(), Costs(), budget, waiting)


def small(count: int, rows: int = 10_000) -> list[FileMeasure]:
    return [file(f"{number}", rows) for number in range(count)]


def test_a_lookup_looks_where_the_key_may_be() -> None:
    disjoint = [file("a", 10, keys=(0, 9)), file("b", 10, keys=(10, 19)), file("c", 10, keys=(20, 29))]
    assert depth_of(disjoint) == 1
    assert depth_of([*disjoint, file("d", 10, keys=(0, 29))]) == 2
    assert depth_of([*disjoint, file("d", 10, keys=None)]) == (3 * 2 + 4) / 4
    assert depth_of([]) == 0
    # Of one rewrite, a key is in one file, even where the manifest says no more than the leading column.
    assert depth_of([file("a", 10, rewrite="x"), file("b", 10, rewrite="x")]) == 1
    assert depth_of([file("a", 10, rewrite="x"), file("b", 10, rewrite="y")]) == 2


def test_files_of_nearly_the_same_keys_are_all_looked_into() -> None:
    """Goal: batches of random keys leave such files; at their very ends few of them overlap."""
    spread = [file(f"{number}", 10, keys=(number, 10_000 - number)) for number in range(8)]
    assert depth_of(spread) == pytest.approx(8, abs=0.1)
    low, high = [(7, f"user-{number:06}") for number in (0, 500_000)]
    named = [FileMeasure(f"{one}", 10, 1_000, 0, (*low, "x" * one), (*high, "y" * one)) for one in range(4)]
    assert depth_of(named) == pytest.approx(4, abs=0.1)


def test_of_keys_that_overlap_in_part_a_part_is_looked_for_in_both() -> None:
    halves = [file("a", 10, keys=(0, 99)), file("b", 10, keys=(50, 149))]
    assert depth_of(halves) == pytest.approx(1.5)
    texts = [
        FileMeasure("a", 10, 1_000, 0, ("key-a",), ("key-e",)),
        FileMeasure("b", 10, 1_000, 0, ("key-c",), ("key-g",)),
    ]
    assert depth_of(texts) == pytest.approx(1.5, abs=0.01)
    point = [file("a", 10, keys=(0, 99)), file("b", 10, keys=(50, 50)), file("c", 10, keys=(200, 200))]
    assert depth_of(point) == pytest.approx((1.01 + 2 + 1) / 3)


def test_keys_of_every_type_are_told_apart() -> None:
    """Method: two files with disjoint keys, and one that holds all of them."""
    for low, middle, high in (
        (20_000, 20_100, 20_300),  # integers, and dates as bounds have them
        (b"", b"\x80", b"\xff" * 20),
        ("", "m", "z"),
    ):
        files = [
            FileMeasure("a", 10, 1_000, 0, (low,), (middle,)),
            FileMeasure("b", 10, 1_000, 0, (high,), (high,)),
            FileMeasure("c", 10, 1_000, 0, (low,), (high,)),
        ]
        assert 1.7 < depth_of(files) < 2


def test_the_small_files_are_taken_and_a_large_one_is_left_unless_its_dead_rows_are_worth_it() -> None:
    large, dead = file("large", 1_000_000), file("dead", 1_000_000, dead=300_000)
    (task,) = plan([large, *small(6)]).wanted
    assert "large" not in task.paths
    assert len(task.files) == 6
    (task,) = plan([large, dead], reads=Reads(scans_per_hour=1_000, lookups_per_hour=0)).wanted
    assert task.paths == {"dead"}


def test_with_so_many_bytes_to_spend_those_come_first_that_save_most_for_each() -> None:
    buckets = [small(8, rows=100_000), small(3, rows=2_000)]
    assert [task.bucket for task in plan(*buckets).wanted] == [0, 1]
    assert [task.bucket for task in plan(*buckets, budget=Budget(bytes=10**12)).wanted] == [1, 0]


def test_the_dead_rows_of_a_large_file_count_for_a_day_and_small_files_until_ingest_merges_them() -> None:
    dead, alone = file("dead", 1_000_000, dead=300_000), small(3, rows=10_000)
    often = Reads(scans_per_hour=1_000, lookups_per_hour=100_000)
    lasts = [
        next(iter(plan(bucket, rows_per_hour=10_000, reads=often).wanted)).lasts_hours
        for bucket in ([dead], alone, [dead, *alone])
    ]
    assert lasts[0] == 24
    assert lasts[1] == 2
    assert lasts[1] < lasts[2] < lasts[0]


def test_a_table_that_remembers_deletes_is_not_rewritten() -> None:
    measured = TableMeasure(1, {0: BucketMeasure(0, tuple(small(8)))})
    assert plan_of(measured, TARGET, Reads(), Costs()).wanted
    assert not plan_of(replace(measured, remembers_deletes=True), TARGET, Reads(), Costs()).wanted


def test_many_small_files_are_merged_and_a_bucket_that_is_well_kept_is_left_alone() -> None:
    found = plan(small(40), [file("large", 1_200_000)])
    (task,) = found.tasks
    assert (task.bucket, len(task.files)) == (0, 40)
    assert task.score > 1
    assert found.debt_seconds == task.cost_ms / 1000


def test_what_ingest_will_soon_merge_by_itself_is_left_to_it() -> None:
    young = small(3, rows=100)
    assert plan(young).tasks
    assert not plan(young, rows_per_hour=10**6).tasks
    # A file of many rows would lie there for long.
    assert plan([file("a", 200_000), file("b", 200_000)], rows_per_hour=10**4).tasks


def test_too_many_dead_rows_force_a_rewrite_that_readers_would_not_pay_for() -> None:
    nobody = Reads(scans_per_hour=0, lookups_per_hour=0)
    rows = 1_000_000
    assert not plan([file("a", rows, dead=int(FORCED_DEAD_RATIO * rows))], reads=nobody).wanted
    (task,) = plan([file("a", rows, dead=400_000), file("b", 10)], reads=nobody).wanted
    assert task.is_forced
    assert "a" in task.paths


def test_of_many_large_files_with_dead_rows_a_part_is_rewritten_at_a_time() -> None:
    rows = 20_000_000  # 2 GB
    files = [file(f"{number}", rows, dead=int(0.4 * rows)) for number in range(10)]
    (task,) = plan(files, reads=Reads(scans_per_hour=0, lookups_per_hour=0)).wanted
    assert task.is_forced
    assert task.bytes <= TASK_BYTES_MAX


def test_dead_rows_that_ingest_will_soon_have_merged_force_nothing() -> None:
    files = [file(f"{number}", 100, dead=60) for number in range(3)]
    nobody = Reads(scans_per_hour=0, lookups_per_hour=0)
    assert not plan(files, rows_per_hour=10**6, reads=nobody).wanted


def test_the_best_come_first_the_forced_before_them_and_the_budget_bounds_them() -> None:
    buckets = [small(10), small(60), [file("dead", 10_000, dead=9_000), file("x", 10)], small(30)]
    found = plan(*buckets)
    assert [task.bucket for task in found.wanted] == [2, 1, 3, 0]
    of_bytes = plan(*buckets, budget=Budget(bytes=sum(task.bytes for task in found.wanted[:2])))
    assert [task.bucket for task in of_bytes.tasks] == [2, 1]
    assert len(of_bytes.wanted) == 4
    assert plan(*buckets, budget=Budget(seconds=0)).tasks == ()


def test_a_budget_that_is_smaller_than_the_best_rewrite_goes_to_a_smaller_one() -> None:
    files = [*small(40), file("large", 1_000_000, dead=300_000)]
    often = Reads(scans_per_hour=10_000, lookups_per_hour=36_000)
    (best,) = plan(files, reads=often).tasks
    for budget in (Budget(bytes=best.bytes // 8), Budget(seconds=best.cost_ms / 2_000)):
        assert not budget.allows(best)
        (task,) = plan(files, reads=often, budget=budget).tasks
        assert budget.allows(task)
        assert len(task.files) > 1
    beyond = plan(files, reads=often, budget=Budget(bytes=0))
    assert (len(beyond.tasks), len(beyond.wanted)) == (0, 1), "what is left is seen"


def test_a_change_of_buckets_goes_on_with_a_budget_that_is_smaller_than_a_bucket() -> None:
    older = [file(f"{number}", 100_000 * (1 + number)) for number in range(8)]
    for budget in (Budget(bytes=85 * MB), Budget(seconds=2), Budget(bytes=85 * MB, seconds=2)):
        left, runs = list(older), 0
        while left:
            measured = TableMeasure(1, {0: BucketMeasure(0, tuple(left))}, buckets_written=16)
            (task,) = plan_of(measured, TARGET, Reads(), Costs(), budget).tasks
            assert task.is_bucket_change
            assert budget.allows(task)
            left = [one for one in left if one.path not in task.paths]
            runs += 1
        assert 1 < runs <= len(older)
    measured = TableMeasure(1, {0: BucketMeasure(0, tuple(older))}, buckets_written=16)
    beyond = plan_of(measured, TARGET, Reads(), Costs(), Budget(bytes=0))
    assert (len(beyond.tasks), len(beyond.wanted)) == (0, 1), "what is left is seen"


def test_a_bucket_that_waits_gains_weight() -> None:
    buckets = [small(20), small(30)]
    assert [task.bucket for task in plan(*buckets).wanted] == [1, 0]
    assert [task.bucket for task in plan(*buckets, waiting={0: 100.0}).wanted] == [0, 1]


def test_reads_by_bucket_weigh() -> None:
    reads = Reads(by_bucket={0: 10**6, 1: 10.0})
    assert plan(small(10), small(40), reads=reads).wanted[0].bucket == 0


def test_a_rewrite_is_not_worth_another_one() -> None:
    """Goal: no rewrite without end, whatever the bounds in the manifests say."""
    done = [file(f"{number}", 1_200_000, rewrite="x") for number in range(4)]
    assert plan(done, reads=Reads(10**3, 10**9)).wanted == ()


def test_what_servers_counted_takes_the_place_of_what_the_settings_say() -> None:
    settings = MaintenanceSettings(lookups_per_second=100, scans_per_hour=2)
    counted = ReadRates({3: 60.0}, 4.0)
    by_settings, by_counts = Reads.of(settings, PROFILES), Reads.of(settings, PROFILES, counted)
    assert (by_settings.scans_per_hour, by_counts.scans_per_hour) == (2, 6)
    assert [by_settings.lookups_of(bucket, 10) for bucket in (3, 4)] == [36_000, 36_000]
    assert [by_counts.lookups_of(bucket, 10) for bucket in (3, 4)] == [60, 0]
    appended = replace(PROFILES, key=(), entity=(), key_from="value")
    assert Reads.of(settings, appended, counted).lookups_of(3, 10) == 0


def advice(files: list[FileMeasure], rows_per_hour: float, remembers_deletes: bool = False) -> str:
    """What `maintain explain` says of a bucket that few read."""
    bucket = BucketMeasure(0, tuple(files))
    measured = TableMeasure(1, {0: bucket}, rows_per_hour, remembers_deletes=remembers_deletes)
    planned = plan_of(measured, TARGET, Reads(0.0, 0.0), Costs())
    found: Any = SimpleNamespace(measured=measured, plan=planned)
    return _advice(found, bucket, next(iter(planned.wanted), None))


@pytest.mark.parametrize(
    ("dead", "rows_per_hour", "remembers_deletes", "says"),
    [
        (35_000, 0.0, False, "Not worth rewriting: it would cost more than readers save"),
        (36_000, 0.0, False, "To be rewritten in any case, since more than 35% of its rows are dead: "),
        (36_000, 1e9, False, "Not to be rewritten, though more than 35% of its rows are dead: ingest will"),
        (36_000, 0.0, True, "Not rewritten: maintenance rewrites no table with order by a column"),
    ],
)
def test_what_is_explained_of_a_bucket_agrees_with_the_rule_of_dead_rows(
    dead: int, rows_per_hour: float, remembers_deletes: bool, says: str
) -> None:
    files = [file("a", 100_000, dead=dead)]
    assert advice(files, rows_per_hour, remembers_deletes).startswith(says)
    assert advice([], rows_per_hour) == "Nothing to rewrite: the table has no row in this bucket."
