"""Groups of a topic's partitions that one Kafka scan reads together.

Trino gives the Kafka connector one range of offsets for all partitions of a scan, from the least on, and
drops what lies before a partition's own offset after it was read. So partitions whose offsets lie far apart
belong into different scans; but each scan costs a consumer and several requests before it reads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

__all__ = ["GROUPS_MAX", "SCAN_COST_RECORDS", "grouped"]

GROUPS_MAX: Final = 8
"""Scans of one topic; a view of the log reads each twice, and each opens a consumer on the coordinator."""

SCAN_COST_RECORDS: Final = 20_000
"""How many records may be read in vain rather than open one more scan: what a core reads in the 40 ms or so
that the coordinator takes to ask for a topic's partitions and offsets."""


def grouped(first: Mapping[int, int], groups_max: int = GROUPS_MAX) -> list[list[int]]:
    """Partitions in groups, given the first offset that each is read from.

    The split has the least cost there is: the records that are read in vain, and ``SCAN_COST_RECORDS`` a
    group. Partitions ascend within each group, and the groups ascend by their least offset.
    """
    if not first:
        return []
    partitions = sorted(first, key=lambda partition: (first[partition], partition))
    offsets = [first[partition] for partition in partitions]
    stops = _cheapest_split(offsets, min(groups_max, len(offsets)))  # safety: groups-max
    starts = [0, *stops[:-1]]
    return [sorted(partitions[start:stop]) for start, stop in zip(starts, stops, strict=True)]


def _cheapest_split(offsets: list[int], groups_max: int) -> list[int]:
    """Where each group of the ascending offsets ends, for the cheapest of all splits into neighbours.

    Neighbours suffice: to swap two partitions between groups so that each group's offsets lie together never
    makes it read more. ``costs[i]`` is the least cost of the first i offsets in the groups made so far.
    """
    count = len(offsets)
    above_least = (
        np.asarray(offsets, np.int64) - offsets[0]
    )  # their sums stay small, so that doubles are exact
    sums = np.concatenate([[0], np.cumsum(above_least)]).astype(np.float64)
    starts = np.arange(count)
    costs = np.full(count + 1, np.inf)
    costs[0] = 0
    cheapest, choices, chosen = np.inf, [], 0
    for groups in range(1, groups_max + 1):
        following, begins = np.full(count + 1, np.inf), np.zeros(count + 1, np.int64)
        for stop in range(groups, count + 1):
            begin = starts[:stop]
            in_vain = sums[stop] - sums[begin] - above_least[begin] * (stop - begin)
            totals = costs[begin] + in_vain + SCAN_COST_RECORDS
            begins[stop] = np.argmin(totals)
            following[stop] = totals[begins[stop]]
        costs = following
        choices.append(begins)
        if costs[count] < cheapest:
            cheapest, chosen = costs[count], groups
    return _stops(choices[:chosen], count)


def _stops(choices: list[np.ndarray[tuple[int], np.dtype[np.int64]]], count: int) -> list[int]:
    stops = [count]
    for begins in reversed(choices[1:]):
        stops.append(int(begins[stops[-1]]))
    return stops[::-1]
