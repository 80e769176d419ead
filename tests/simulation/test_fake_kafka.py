"""The fake cluster answers as a broker does: each test runs on both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.clusters import Cluster, Fake, Real
from thermocline.dev.broker import LocalKafka
from thermocline.errors import OffsetsGone, RangeIncomplete, TopicMissing
from thermocline.kafka.facts import OffsetRange, OpenTransaction
from thermocline.rules.seam import Seam

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 30.0


@pytest.fixture(
    scope="module", params=["fake", pytest.param("real", marks=[pytest.mark.jvm, pytest.mark.full])]
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if request.param == "fake":
        yield Fake()
        return
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield Real(kafka)


def values(cluster: Cluster, topic: str, first: int, end: int) -> list[tuple[int, bytes]]:
    """What a range of partition 0 has."""
    return [
        (offset, value)
        for chunk in cluster.read([OffsetRange(topic, 0, first, end)])
        for offset, value in zip(chunk.offsets, chunk.values, strict=True)
        if value is not None
    ]


def drained(tail: Any, end: Seam) -> list[tuple[int, bytes]]:
    """Polls until the tail knows that it has read up to there."""
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while tail.positions() != end or len(tail.reached_end_at()) < len(end):
        assert time.monotonic() < deadline, tail.positions()
        for chunk in tail.poll(POLL_SECONDS):
            found += zip(chunk.offsets, chunk.values, strict=True)
    return found


def test_an_open_transaction_holds_the_end_back_and_its_marker_takes_an_offset(cluster: Cluster) -> None:
    cluster.create_topic("committed", 1)
    cluster.produce("committed", 0, b"before", 1)
    transaction = cluster.transaction()
    transaction.produce("committed", 0, b"in it", 2)
    cluster.produce("committed", 0, b"after", 3)
    log = cluster.log()
    assert log.ends(["committed"]) == Seam({("committed", 0): 1})
    assert log.open_transactions(["committed"]) == (OpenTransaction("committed", 0, 1, 2),)
    transaction.commit()
    assert log.bounds(["committed"]) == (Seam({("committed", 0): 0}), Seam({("committed", 0): 4}))
    assert log.open_transactions(["committed"]) == ()
    assert values(cluster, "committed", 0, 4) == [(0, b"before"), (1, b"in it"), (2, b"after")]
    assert values(cluster, "committed", 3, 4) == []


def test_aborted_records_are_never_read_and_take_offsets(cluster: Cluster) -> None:
    cluster.create_topic("aborted", 1)
    transaction = cluster.transaction()
    transaction.produce("aborted", 0, b"never", 1)
    transaction.abort()
    cluster.produce("aborted", 0, b"seen", 2)
    assert cluster.log().ends(["aborted"]) == Seam({("aborted", 0): 3})
    assert values(cluster, "aborted", 0, 3) == [(2, b"seen")]


def test_what_retention_took_is_named_by_both_ways_of_reading(cluster: Cluster) -> None:
    cluster.create_topic("trimmed", 1)
    for number in range(5):
        cluster.produce("trimmed", 0, b"%d" % number, number)
    cluster.trim("trimmed", 0, 3)
    assert cluster.log().starts(["trimmed"]) == Seam({("trimmed", 0): 3})
    assert values(cluster, "trimmed", 3, 5) == [(3, b"3"), (4, b"4")]
    with pytest.raises(OffsetsGone) as read:
        values(cluster, "trimmed", 1, 5)
    assert read.value.gaps == ("trimmed/0@1-3",)
    with pytest.raises(OffsetsGone) as tailed:
        drained(cluster.tail(Seam({("trimmed", 0): 2})), Seam({("trimmed", 0): 5}))
    assert tailed.value.gaps == ("trimmed/0@2-3",)


def test_a_place_beyond_the_end_of_the_log_is_refused(cluster: Cluster) -> None:
    cluster.create_topic("short", 1)
    cluster.produce("short", 0, b"0", 0)
    with pytest.raises(OffsetsGone) as read:
        values(cluster, "short", 2, 4)
    assert read.value.gaps == ("short/0@2-?",)
    with pytest.raises(OffsetsGone) as tailed:
        drained(cluster.tail(Seam({("short", 0): 3})), Seam({("short", 0): 4}))
    assert tailed.value.gaps == ("short/0@3-?",)


def test_a_range_whose_end_is_held_back_is_incomplete(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.kafka.log.READ_STALL_SECONDS", 2.0)
    cluster.create_topic("held", 1)
    cluster.produce("held", 0, b"0", 0)
    transaction = cluster.transaction()
    transaction.produce("held", 0, b"1", 0)
    with pytest.raises(RangeIncomplete) as error:
        values(cluster, "held", 0, 2)
    assert (error.value.first, error.value.end, error.value.reached) == (0, 2, 1)
    transaction.abort()


def test_times_are_looked_up_among_all_that_committed_readers_reach(cluster: Cluster) -> None:
    cluster.create_topic("timed", 2)
    for at_ms in (10_000, 30_000, 20_000):
        cluster.produce("timed", 0, b"v", at_ms)
    ask = cluster.log().offsets_at
    assert ask(["timed"], 5_000) == Seam({("timed", 0): 0, ("timed", 1): 0})
    assert ask(["timed"], 15_000) == Seam({("timed", 0): 1, ("timed", 1): 0})
    assert ask(["timed"], 30_001) == Seam({("timed", 0): 3, ("timed", 1): 0})


def test_a_recreated_topic_has_another_id_and_a_grown_one_the_same(cluster: Cluster) -> None:
    log = cluster.log()
    cluster.create_topic("facts", 1)
    first = log.describe(["facts"])["facts"]
    cluster.add_partitions("facts", 3)
    grown = log.describe(["facts"])["facts"]
    assert (grown.topic_id, grown.partitions) == (first.topic_id, 3)
    cluster.produce("facts", 0, b"v", 1)
    cluster.delete_topic("facts")
    with pytest.raises(TopicMissing):
        log.describe(["facts"])
    cluster.create_topic("facts", 1)
    assert log.describe(["facts"])["facts"].topic_id != first.topic_id
    assert log.ends(["facts"]) == Seam({("facts", 0): 0})


def test_a_tail_passes_markers_and_says_how_far_it_has_read(cluster: Cluster) -> None:
    cluster.create_topic("tailed", 2)
    transaction = cluster.transaction()
    transaction.produce("tailed", 0, b"0", 1)
    transaction.commit()
    cluster.produce("tailed", 1, b"other", 1)
    tail = cluster.tail(Seam({("tailed", 0): 0, ("tailed", 1): 0}))
    end = Seam({("tailed", 0): 2, ("tailed", 1): 1})
    assert sorted(drained(tail, end)) == [(0, b"0"), (0, b"other")]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not tail.facts():
        assert time.monotonic() < deadline
        tail.poll(POLL_SECONDS)
    assert tail.facts() == cluster.log().describe(["tailed"])
    cluster.produce("tailed", 0, b"2", 1)
    assert drained(tail, Seam({("tailed", 0): 3, ("tailed", 1): 1})) == [(2, b"2")]
    tail.close()
