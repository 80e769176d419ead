from __future__ import annotations

import numpy as np

from thermocline.iceberg.reading import DecidingTimes, Incarnation, Reading
from thermocline.rules.definition import LiveTable
from thermocline.rules.partition_time import NO_TIME, PartitionTimes, RunningTimes
from thermocline.rules.seam import Seam

A, B = ("a", 0), ("b", 12)
DEFINITION = LiveTable.build(
    name="t", identifier="a.t", topics=["a", "b"], key=["k"], columns={"k": "int", "v": "int"}
)


def test_what_a_snapshot_says_is_read_back_also_of_many_partitions() -> None:
    for times in (
        PartitionTimes(),
        PartitionTimes({A: 5, B: 0}),
        PartitionTimes({("a", p): p for p in range(99)}),
    ):
        assert PartitionTimes.from_json(times.to_json()) == times
    assert PartitionTimes({A: 5}).to_json() == '{"a":{"0":5}}'
    assert PartitionTimes({A: NO_TIME}) == PartitionTimes()


def test_a_partition_never_goes_back_in_time() -> None:
    times = PartitionTimes({A: 5, B: 7}).advanced({A: 3, B: 9})
    assert (times.get(A), times.get(B), times.get(("a", 1))) == (5, 9, NO_TIME)
    assert times.without(["a"]) == PartitionTimes({B: 9})
    running = RunningTimes(times)
    assert running.take(A, [4, 6, -1]).tolist() == [5, 6, 6]
    assert running.take(A, [2]).tolist() == [6]
    assert running.take(("a", 1), [-1, 3]).tolist() == [-1, 3]
    assert running.now() == PartitionTimes({A: 6, B: 9, ("a", 1): 3})


def test_commits_of_older_releases_decided_by_each_records_own_time() -> None:
    """Method: the first two snapshots say no partition times; the third begins with none, the next with 4."""
    incarnations = {A: Incarnation(0, 0, (0, 2, 4, 6))}
    said = [None, None, PartitionTimes({A: 4}), PartitionTimes({A: 8})]
    reading = Reading(
        Seam({A: 6}), incarnations, [DEFINITION] * 4, [DEFINITION], is_whole=True, partition_times=said
    )
    times = DecidingTimes(reading).take(A, [9, 1, 4, 2, 3, 8, 7], np.arange(7))
    assert times.tolist() == [9, 1, 4, 4, 4, 8, 8]
