"""What a table has read of the log that is there now, from its snapshots and what somebody accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.verify.story import definition_of
from thermocline.iceberg.catalog import SUMMARY_ACCEPTED, SnapshotState
from thermocline.iceberg.lineage import Link
from thermocline.iceberg.reading import Reading, reading_of
from thermocline.rules.seam import Seam

DEFINITION = definition_of()


def state(number: int, seam: Mapping[str, Mapping[int, int]], **facts: Any) -> SnapshotState:
    ids = {topic: f"{topic}-1" for topic in seam}
    known = SnapshotState(
        number, Seam.of(seam), 1, str(number), "cluster", ids, 2, 0, 0, totals={"read": number}
    )
    return replace(known, **facts)


def reading(
    *states: SnapshotState, is_first: bool = True, notes: Sequence[Mapping[str, Any]] = ()
) -> Reading:
    """``notes`` are of the last snapshot, as its summary and the table keep them."""
    links = []
    for index, one in enumerate(states):
        summary = {SUMMARY_ACCEPTED: json.dumps(notes[-1])} if notes and index == len(states) - 1 else {}
        snapshot: Any = SimpleNamespace(parent_snapshot_id=None if is_first and not index else index)
        links.append(Link(snapshot, summary, one))
    return reading_of(links, [DEFINITION] * len(states), [DEFINITION], notes, DEFINITION)


def test_records_belong_to_the_snapshot_that_first_lies_beyond_them() -> None:
    read = reading(
        state(0, {"t": {0: 5}}), state(1, {"t": {0: 8}}), state(2, {"t": {0: 8}}), state(3, {"t": {0: 9}})
    )
    assert [read.batch(("t", 0), offset) for offset in (5, 7, 8, 9)] == [1, 1, 3, 4]
    assert read.first_of(("t", 0), 0) == 5, "the table began there, whatever the log holds before"
    assert read.first_of(("t", 0), 7) == 7
    assert read.is_whole


def test_where_the_first_snapshots_are_expired_rows_say_from_where_the_table_has_read() -> None:
    read = reading(state(4, {"t": {0: 50, 1: 60}}), state(5, {"t": {0: 80, 1: 80}}), is_first=False)
    assert read.lacks_beginning
    assert not read.is_known(0)
    assert read.first_of(("t", 0), 0) is None
    read = read.with_evidence({("t", 0): 7})
    assert (read.first_of(("t", 0), 0), read.first_of(("t", 1), 0)) == (7, 60)


def test_new_partitions_are_read_from_their_first_offset_and_new_topics_from_their_seam() -> None:
    read = reading(
        state(0, {"t": {0: 0}}),
        state(1, {"t": {0: 5, 1: 9}}),
        state(2, {"t": {0: 5, 1: 9}, "late": {0: 100}}, topic_ids={"t": "t-1", "late": "late-1"}),
    )
    assert (read.incarnations["t", 1].begins, read.incarnations["late", 0].begins) == (0, 100)
    assert read.batch(("t", 1), 3) == 1
    assert read.has_grown


@pytest.mark.parametrize(
    "last",
    [
        state(2, {"t": {0: 3}, "other": {0: 30}}, topic_ids={"t": "t-2", "other": "other-1"}),
        state(2, {"t": {0: 3}, "other": {0: 30}}, cluster_id="another"),
        state(2, {"t": {0: 3}, "other": {0: 30}}),
    ],
    ids=["a topic recreated", "another cluster", "a log that lost its end"],
)
def test_another_log_begins_a_life_of_its_own(last: SnapshotState) -> None:
    read = reading(state(0, {"t": {0: 0}, "other": {0: 0}}), state(1, {"t": {0: 90}, "other": {0: 20}}), last)
    assert (read.incarnations["t", 0].begins, read.incarnations["t", 0].first) == (3, 2)
    assert "t" in read.replaced
    assert ("other" in read.replaced) == (last.cluster_id == "another")


@pytest.mark.parametrize("code", ["log-replaced", "seam-beyond-log"], ids=["now", "of an earlier release"])
def test_a_topic_that_was_read_again_from_further_on_is_another_log(code: str) -> None:
    """Its seam moves forward, and only what was accepted says that it is not the same log."""
    note = {"code": code, "seam_before": {"t": {"0": 50}}, "seam_after": {"t": {"0": 90}}}
    states = (state(0, {"t": {0: 0}}), state(1, {"t": {0: 50}}), state(2, {"t": {0: 90}}))
    read = reading(*states, notes=[note])
    assert (read.incarnations["t", 0].begins, read.replaced) == (90, frozenset({"t"}))
    gap = reading(*states, notes=[{**note, "code": "offsets-gone"}])
    assert (gap.incarnations["t", 0].begins, gap.replaced) == (0, frozenset())


def test_what_was_accepted_before_the_snapshots_that_are_left_still_counts() -> None:
    note = {"code": "topic-replaced", "seam_before": {"t": {"0": 50}}, "seam_after": {"t": {"0": 4}}}
    states = (state(5, {"t": {0: 70}}), state(6, {"t": {0: 90}}))
    links = [Link(SimpleNamespace(parent_snapshot_id=4), {}, one) for one in states]  # type: ignore[arg-type]
    read = reading_of(links, [DEFINITION] * 2, [DEFINITION], [note], DEFINITION)
    assert (read.incarnations["t", 0].begins, read.replaced) == (4, frozenset({"t"}))
    assert read.with_evidence({("t", 0): 0}).incarnations["t", 0].begins == 4


def test_a_topic_that_left_and_came_again_begins_a_life_of_its_own() -> None:
    read = reading(
        state(0, {"t": {0: 0}, "daily": {0: 0}}),
        state(1, {"t": {0: 5}, "daily": {0: 70}}),
        state(2, {"t": {0: 6}}),
        state(3, {"t": {0: 7}, "daily": {0: 0}}, topic_ids={"t": "t-1", "daily": "daily-2"}),
        state(4, {"t": {0: 8}, "daily": {0: 4}}, topic_ids={"t": "t-1", "daily": "daily-2"}),
    )
    assert (read.incarnations["daily", 0].begins, read.incarnations["daily", 0].first) == (0, 3)
    assert read.replaced == frozenset({"daily"})
    assert read.batch(("daily", 0), 3) == 4
