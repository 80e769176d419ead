"""The size of a snapshot's summary where a table has many topics, by made-up numbers."""

from __future__ import annotations

import base64
import random

import pytest

from thermocline.iceberg.catalog import state_from
from thermocline.ingest.commit.change import TableChange, summary_fields
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam

STARTED_MS = 1_700_000_000_000


def change_of(topics: int, partitions: int) -> TableChange:
    """Daily topics, each with an id as Kafka has them, and with offsets and times as they come about."""
    choose = random.Random(7)
    names = [f"log.{20200101 + day}" for day in range(topics)]
    places = [(name, partition) for name in names for partition in range(partitions)]
    ids = {name: base64.urlsafe_b64encode(choose.randbytes(16)).decode().rstrip("=") for name in names}
    times = {place: STARTED_MS + choose.randrange(86_400_000) for place in places}
    return TableChange(
        Seam({place: choose.randrange(10_000_000) for place in places}),
        "cluster",
        ids,
        watermark_ms=STARTED_MS,
        drained_ms=STARTED_MS,
        partition_times=PartitionTimes(times),
    )


@pytest.mark.parametrize(
    ("topics", "partitions", "bytes_max"),
    [(1, 6, 1_500), (365, 1, 20_000), (1_000, 1, 50_000), (1_000, 6, 150_000)],
)
def test_a_summary_of_many_topics_is_small_and_read_back_as_it_was(
    topics: int, partitions: int, bytes_max: int
) -> None:
    change = change_of(topics, partitions)
    summary = summary_fields(change, 1, 1, {})
    assert sum(len(name) + len(value) for name, value in summary.items()) < bytes_max
    state = state_from(summary, 1, STARTED_MS, "t")
    assert (state.seam, state.topic_ids) == (change.seam, change.topic_ids)
    assert state.partition_times == change.partition_times


def test_the_summary_after_a_year_of_topics_that_came_and_went_is_that_of_the_topics_left() -> None:
    """What leaves takes its part of seam, ids and times along, so a summary holds what feeds the table."""
    change = change_of(365, 2)
    gone = [topic for topic in change.topic_ids if topic < "log.20200463"]
    kept = {topic: of for topic, of in change.topic_ids.items() if topic not in gone}
    assert len(kept) == 3
    after = TableChange(
        change.seam.without(gone), "cluster", kept, 1, 1, change.partition_times.without(gone)
    )
    size = sum(len(value) for value in summary_fields(after, 1, 1, {}).values())
    assert size < 1_500
