"""Partitions are grouped so that the least is read in vain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.views.groups import GROUPS_MAX, SCAN_COST_RECORDS, grouped

FAR = 10 * SCAN_COST_RECORDS
offsets = st.one_of(
    st.integers(0, 5 * SCAN_COST_RECORDS), st.integers(0, 2**50), st.sampled_from([0, FAR, FAR + 1])
)


def over_read(first: Mapping[int, int], group: list[int]) -> int:
    """How many records of a group's partitions are read in vain, at most: those before their own offset."""
    least = min(first[partition] for partition in group)
    return sum(first[partition] - least for partition in group)


def cost(first: dict[int, int], groups: list[list[int]]) -> int:
    return sum(over_read(first, group) + SCAN_COST_RECORDS for group in groups)


def all_splits(partitions: list[int]) -> Iterator[list[list[int]]]:
    """Every way to put partitions into groups, neighbours or not."""
    if not partitions:
        yield []
        return
    head, *rest = partitions
    for split in all_splits(rest):
        yield [[head], *split]
        for place in range(len(split)):
            yield [*split[:place], [head, *split[place]], *split[place + 1 :]]


@given(st.dictionaries(st.integers(0, 200), offsets, max_size=40))
def test_each_partition_stands_in_one_of_at_most_eight_groups(first: dict[int, int]) -> None:
    groups = grouped(first)
    assert sorted(partition for group in groups for partition in group) == sorted(first)
    assert len(groups) <= GROUPS_MAX
    assert all(group and group == sorted(group) for group in groups)
    leasts = [min(first[partition] for partition in group) for group in groups]
    assert leasts == sorted(leasts)


@given(st.dictionaries(st.integers(0, 9), offsets, max_size=6), st.integers(1, 4))
def test_no_split_at_all_is_cheaper(first: dict[int, int], groups_max: int) -> None:
    groups = grouped(first, groups_max)
    cheapest = min(cost(first, split) for split in all_splits(list(first)) if len(split) <= groups_max)
    assert len(groups) <= groups_max
    assert cost(first, groups) == cheapest


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({}, []),
        ({3: 7}, [[3]]),
        ({0: 5, 1: 5, 2: 5}, [[0, 1, 2]]),
        ({0: FAR, 1: 0, 2: FAR + 9, 3: 4}, [[1, 3], [0, 2]]),
        ({0: 0, 1: FAR, 2: 2 * FAR}, [[0], [1], [2]]),
    ],
)
def test_partitions_with_close_offsets_share_a_group(
    first: dict[int, int], expected: list[list[int]]
) -> None:
    assert grouped(first) == expected


def test_a_thousand_partitions_are_grouped() -> None:
    groups = grouped({partition: partition * FAR for partition in range(1000)})
    assert len(groups) == GROUPS_MAX
    assert {len(group) for group in groups} == {1000 // GROUPS_MAX}
