"""The tailer's loop taken turn by turn, with the log changing between two of its questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from serving.follower import Published
from serving.layout import TAILER_STATUS
from serving.tailer import Tailer
from tests.serving.hot_log import DEFINITION, PLACES, START
from tests.serving.test_tailer import SOURCE, FakeTail, Kafka, snapshot
from thermocline.catalog import SnapshotState
from thermocline.clock import ManualClock
from thermocline.log import RecordChunk, TopicFacts
from thermocline.seam import Seam

P0 = PLACES[0]


class Stepped:
    """A tailer whose turns the test takes; time passes where it would wait."""

    def __init__(self, folder: Path) -> None:
        self.kafka = Kafka()
        self.clock = ManualClock()
        self.follower: Any = SimpleNamespace(newest=None, problem=None)
        self._folder = folder
        self.commit(snapshot(1, START))
        self.tailer = self._started()

    def commit(self, state: SnapshotState) -> None:
        """A snapshot that holds all that the log held was published."""
        state = replace(state, drained_ms=self.clock.now_ms())
        self.follower.newest = Published(DEFINITION, state, SOURCE)

    def restart(self) -> None:
        """Another process goes on with what the folder holds."""
        self.tailer.close()
        self.tailer = self._started()

    def _started(self) -> Tailer:
        settings: Any = SimpleNamespace(hot_bytes_max=1 << 30)
        source: Any = SimpleNamespace(log=self.kafka.log_now, tail=self.kafka.tail)
        clock = self.clock
        return Tailer(settings, "profiles", self._folder, self.follower, source, clock, clock.advance)

    def turn(self, times: int) -> dict[str, Any]:
        """Takes turns; what the tailer says then."""
        for _ in range(times):
            self.clock.advance(1.0)
            self.tailer.step()
        status: dict[str, Any] = msgspec.json.decode((self._folder / TAILER_STATUS).read_bytes())
        return status


@pytest.fixture
def stepped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stepped]:
    made = Stepped(tmp_path)
    monkeypatch.setattr(
        FakeTail, "reached_end_at", lambda tail: dict.fromkeys(tail.at, made.clock.monotonic())
    )
    yield made
    made.tailer.close()


def test_records_of_a_topic_that_was_made_again_are_not_taken_with_those_before(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what one poll brings of another topic of the name does not come into the hot tier.

    Method: the topic is made again just before a poll, and has grown beyond the tailer's position.
    """
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert stepped.turn(3)["positions"]["profiles"]["0"] == 101
    poll = FakeTail.poll

    def made_again(tail: FakeTail, timeout_seconds: float) -> list[RecordChunk]:
        if stepped.kafka.topic_id == "t":
            stepped.kafka.topic_id = "another"
            stepped.kafka.log.add(P0, (1, "b", "k"), "of another topic", 0)
        return poll(tail, timeout_seconds)

    monkeypatch.setattr(FakeTail, "poll", made_again)
    status = stepped.turn(4)
    assert status["problem"]["code"] == "topic-replaced"
    assert (status["positions"]["profiles"]["0"], status["hot_records"]) == (101, 1)


def test_a_topic_that_is_made_again_between_two_questions_is_noticed(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Kafka.facts

    def made_again(kafka: Kafka) -> dict[str, TopicFacts]:
        found = facts(kafka)
        kafka.topic_id = "another"
        return found

    monkeypatch.setattr(Kafka, "facts", made_again)
    stepped.turn(1)
    monkeypatch.undo()
    stepped.kafka.log.add(P0, (1, "b", "k"), "of another topic", 0)
    status = stepped.turn(4)
    assert status["problem"]["code"] == "topic-replaced"
    assert status["hot_records"] == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_tailer_that_was_behind_for_longer_than_tombstones_are_kept_does_not_read_on(
    stepped: Stepped, restarts: bool
) -> None:
    """Goal: a row whose deletion was compacted away meanwhile is not shown as of a later offset.

    Method: the process is frozen for longer than ``delete.retention.ms``; only a snapshot of ingest, which
    was not behind, lets it go on.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert stepped.turn(3)["positions"]["profiles"]["0"] == 101
    stepped.clock.advance(3_700.0)
    stepped.kafka.log.ends[P0] = 102  # the tombstone, which is no longer there
    stepped.kafka.log.add(P0, (1, "b", "k"), "v", 0)
    if restarts:
        stepped.restart()
    status = stepped.turn(4)
    assert status["problem"]["code"] == "tombstones-gone"
    assert status["positions"]["profiles"]["0"] == 101
    seam = Seam({**dict.fromkeys(PLACES, 100), P0: 102})
    stepped.commit(snapshot(2, seam))
    status = stepped.turn(4)
    assert status["problem"] is None
    assert (status["start"]["profiles"]["0"], status["positions"]["profiles"]["0"]) == (102, 103)


def test_a_tailer_that_was_behind_reads_on_where_nothing_waits(stepped: Stepped) -> None:
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    stepped.turn(3)
    stepped.clock.advance(3_700.0)
    assert stepped.turn(3)["problem"] is None
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert stepped.turn(2)["positions"]["profiles"]["0"] == 101
