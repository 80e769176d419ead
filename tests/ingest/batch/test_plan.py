from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from thermocline.ingest.batch.plan import (
    FIRST_RECORDS_MAX,
    Batch,
    Bound,
    DrainGoal,
    drained_ms,
    plan_batch,
    records_max_of,
    records_max_together,
    split_for_tasks,
    with_new_partitions,
)
from thermocline.kafka.facts import OffsetRange
from thermocline.rules.seam import Seam

offsets = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 100), st.integers(0, 5_000)),
    min_size=1,
)


def test_a_batch_that_fits_takes_everything_and_leaves_out_idle_partitions() -> None:
    seam = Seam.of({"t": {0: 10, 1: 5, 2: 7}})
    ends = Seam.of({"t": {0: 20, 1: 5, 2: 8}})
    batch = plan_batch(seam, ends, 100, unasked)
    assert batch.ranges == (OffsetRange("t", 0, 10, 20), OffsetRange("t", 2, 7, 8))
    assert batch.end == ends


def test_nothing_new_is_an_empty_batch() -> None:
    seam = Seam.of({"t": {0: 10}})
    assert plan_batch(seam, seam, 100, unasked).ranges == ()


def unasked(_: int) -> Seam:
    raise AssertionError("nothing is cut in time where one partition has all that is new, or it fits")


Times = dict[tuple[str, int], list[int]]
times = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.lists(st.integers(-1, 12), max_size=12),
    min_size=1,
)


def batches(log: Times, records_max: int) -> list[Batch]:
    """All batches from the start of a log to its end; of the log are the times of its records."""
    ends = Seam({place: len(own) for place, own in log.items()})

    def offsets_at(at_ms: int) -> Seam:
        return Seam(
            {
                place: next((offset for offset, ms in enumerate(own) if ms >= at_ms), len(own))
                for place, own in log.items()
            }
        )

    planned: list[Batch] = []
    seam = Seam(dict.fromkeys(log, 0))
    while seam != ends:
        planned.append(plan_batch(seam, ends, records_max, offsets_at))
        seam = planned[-1].end
    return planned


@given(times, st.integers(1, 30))
def test_ranges_start_at_the_seam_stay_in_the_log_and_keep_to_the_bound(log: Times, records_max: int) -> None:
    seam = Seam(dict.fromkeys(log, 0))
    for batch in batches(log, records_max):
        assert 0 < sum(one.end - one.first for one in batch.ranges) <= records_max
        for one in batch.ranges:
            assert one.first == seam[one.topic, one.partition] < one.end <= len(log[one.topic, one.partition])
        assert batch.end == seam.advanced(batch.ranges)
        seam = batch.end


@given(times, st.integers(1, 30))
def test_no_batch_has_a_record_that_comes_before_one_of_an_earlier_batch(
    log: Times, records_max: int
) -> None:
    """The order: the greatest time of the partition so far, then topic and partition, then the offset."""
    orders = [
        [
            (max(log[one.topic, one.partition][: offset + 1]), one.topic, one.partition, offset)
            for one in batch.ranges
            for offset in range(one.first, one.end)
        ]
        for batch in batches(log, records_max)
    ]
    for earlier, later in pairwise(orders):
        assert max(earlier) < min(later)


@given(offsets, st.integers(1, 16))
def test_tasks_cover_every_offset_once_and_never_a_partition_twice(
    places: dict[tuple[str, int], tuple[int, int]], tasks: int
) -> None:
    ranges = [OffsetRange(*place, start, start + lag) for place, (start, lag) in places.items() if lag]
    split = split_for_tasks(ranges, tasks)
    assert all(split)
    assert all(len({(r.topic, r.partition) for r in one}) == len(one) for one in split)
    wanted = sorted((r.topic, r.partition, offset) for r in ranges for offset in range(r.first, r.end))
    given_out = [
        (r.topic, r.partition, offset) for one in split for r in one for offset in range(r.first, r.end)
    ]
    assert sorted(given_out) == wanted


def test_tasks_get_whole_partitions_where_none_may_be_cut() -> None:
    ranges = [OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 5, 7)]
    assert split_for_tasks(ranges, 8, may_cut=False) == [[ranges[0]], [ranges[1]]]


def test_a_first_batch_is_small_since_nobody_knows_how_large_its_records_are() -> None:
    assert records_max_of(2_000_000, 500_000_000, bytes_per_record=None) == FIRST_RECORDS_MAX


def test_large_records_make_smaller_batches() -> None:
    assert records_max_of(50, 500_000_000, bytes_per_record=None) == 50
    assert records_max_of(2_000_000, 500_000_000, bytes_per_record=0) == 2_000_000
    assert records_max_of(2_000_000, 500_000_000, bytes_per_record=100) == 2_000_000
    assert records_max_of(2_000_000, 500_000_000, bytes_per_record=1_000_000) == 500
    assert records_max_of(2_000_000, 10, bytes_per_record=1_000) == 1


def test_tables_that_read_together_hold_no_more_than_one_may_alone() -> None:
    small = Bound(2_000_000, 512_000_000, bytes_per_record=100, packed_bytes_per_record=40)
    assert records_max_together([small]) == 2_000_000
    assert records_max_together([small] * 5) == 2_000_000  # 200 bytes a record
    assert records_max_together([small] * 100) == 128_000  # 4,000 bytes a record
    few = Bound(50, 512_000_000, bytes_per_record=100, packed_bytes_per_record=40)
    assert records_max_together([small, few]) == 50
    tight = Bound(2_000_000, 8_000, bytes_per_record=100, packed_bytes_per_record=60)
    assert records_max_together([small, tight]) == 80  # by what it reads; 100 bytes packed in both
    assert records_max_together([small] * 5_000 + [tight]) == 1


def test_tables_that_hold_little_of_what_they_read_take_large_batches_together() -> None:
    few_of_them = Bound(2_000_000, 512_000_000, bytes_per_record=100, packed_bytes_per_record=0.2)
    assert records_max_together([few_of_them] * 1_000) == 2_000_000


def test_a_first_batch_is_small_for_all_tables_together() -> None:
    known = Bound(2_000_000, 512_000_000, bytes_per_record=100, packed_bytes_per_record=40)
    new = Bound(2_000_000, 512_000_000, bytes_per_record=None, packed_bytes_per_record=None)
    assert records_max_together([new]) == 5_000
    assert records_max_together([new, known, known, known]) == 1_250
    assert records_max_together([new] * 10_000) == 1


def test_a_partition_whose_end_is_not_known_is_left_for_the_next_batch() -> None:
    """One broker may know a new partition before another does; the seam must not pass what was not read."""
    seam = with_new_partitions(Seam.of({"t": {0: 10}}), Seam.of({"t": {0: 0, 1: 0}}))
    batch = plan_batch(seam, Seam.of({"t": {0: 12}}), 100, unasked)
    assert batch.ranges == (OffsetRange("t", 0, 10, 12),)
    assert batch.end == Seam.of({"t": {0: 12, 1: 0}})


def test_a_table_has_drained_the_log_when_it_passes_the_ends_of_a_plan() -> None:
    """Also of an earlier plan: a table that is always a little behind has still read all of an hour ago."""
    seam, ends = Seam.of({"t": {0: 0, 1: 0}}), Seam.of({"t": {0: 100, 1: 100}})
    whole = plan_batch(seam, ends, 200, unasked)
    part = plan_batch(seam, ends, 100, lambda _: Seam.of({"t": {0: 50, 1: 50}}))
    earlier = DrainGoal(5, Seam.of({"t": {0: 50, 1: 50}}))
    planned = DrainGoal(9, ends)
    assert drained_ms(whole, planned, earlier, before_ms=1) == 9
    assert drained_ms(part, planned, earlier, before_ms=1) == 5
    assert drained_ms(part, planned, planned, before_ms=1) == 1
    assert drained_ms(part, planned, earlier, before_ms=7) == 7


def test_what_a_fast_clock_said_is_forgotten_with_the_next_batch() -> None:
    seam, ends = Seam.of({"t": {0: 0}}), Seam.of({"t": {0: 100}})
    planned = DrainGoal(9, ends)
    assert drained_ms(plan_batch(seam, ends, 100, unasked), planned, planned, before_ms=4_000) == 9
    assert drained_ms(plan_batch(seam, ends, 50, unasked), planned, planned, before_ms=4_000) == 9
