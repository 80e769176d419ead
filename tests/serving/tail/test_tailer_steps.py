"""The tailer's loop taken turn by turn, with the log changing between two of its questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.manual_clock import ManualClock
from tests.serving.hot_log import DEFINITION, PLACES, START
from tests.serving.tail.test_tailer import ALTERED, SOURCE, FakeTail, Kafka, snapshot
from thermocline.iceberg.catalog import SnapshotState
from thermocline.kafka.facts import RecordChunk, TopicFacts
from thermocline.rules.identity import check_tombstones
from thermocline.rules.seam import Seam
from thermocline.serving.store.layout import TAILER_STATUS
from thermocline.serving.tail import tailer
from thermocline.serving.tail.follower import PublishedSnapshot
from thermocline.serving.tail.tailer import RECHECK_SECONDS, Tailer

P0 = PLACES[0]
DAY_MS = 86_400_000
RECORDS_OF_AN_HOUR = 100  # read one by one, a tenth of the time between two checks apart


class Stepped:
    """A tailer whose turns the test takes; time passes where it would wait."""

    def __init__(self, folder: Path) -> None:
        self.kafka = Kafka()
        self.clock = ManualClock()
        self.follower: Any = SimpleNamespace(newest=None, problem=None, has_looked=True)
        self._folder = folder
        self.commit(snapshot(1, START))
        self.tailer = self._started()

    def commit(self, state: SnapshotState) -> None:
        """A snapshot that holds all that the log held was published."""
        state = replace(state, drained_ms=self.clock.now_ms())
        self.follower.newest = PublishedSnapshot(DEFINITION, state, SOURCE)

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
    monkeypatch.setattr(FakeTail, "reached_end_at", lambda tail: tail.at_its_end(made.clock))
    yield made
    made.tailer.close()


def test_records_of_a_topic_that_was_made_again_are_not_taken_once_it_is_known(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what the poll brings that learns of another topic of the name does not come into the hot tier.

    Method: the topic is made again with the tailer's position as its end, and grows before each poll. What
    came before the cluster was asked again can't be told from records of the topic before.
    """
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert stepped.turn(3)["positions"]["profiles"]["0"] == 101
    stepped.kafka.topic_id = "another"
    stepped.turn(1)
    poll = FakeTail.poll

    def grown(tail: FakeTail, timeout_seconds: float) -> list[RecordChunk]:
        stepped.kafka.log.add(P0, (1, "b", "k"), "of another topic", 0)
        return poll(tail, timeout_seconds)

    monkeypatch.setattr(FakeTail, "poll", grown)
    status = stepped.turn(4)
    assert status["problem"]["code"] == "log-replaced"
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
    assert status["problem"]["code"] == "log-replaced"
    assert status["hot_records"] == 0


def test_a_tailer_that_sleeps_while_it_checks_the_log_checks_again(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: tombstones that go while an answer of the log is waited for are missed by nobody.

    Method: it is behind for a while, looks, and is frozen for an hour before it hears that all is well.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert stepped.turn(3)["positions"]["profiles"]["0"] == 101
    stepped.clock.advance(1_800.0)
    stepped.kafka.log.add(P0, (1, "b", "k"), "v", 0)

    def slept(*arguments: Any) -> None:
        check_tombstones(*arguments)
        monkeypatch.undo()
        monkeypatch.setattr(FakeTail, "reached_end_at", lambda tail: tail.at_its_end(stepped.clock))
        stepped.clock.advance(3_600.0)

    monkeypatch.setattr(tailer, "check_tombstones", slept)
    status = stepped.turn(6)
    assert status["problem"]["code"] == "tombstones-gone"
    assert status["positions"]["profiles"]["0"] == 101


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


def test_a_tailer_that_catches_up_for_long_is_not_begun_again(stepped: Stepped) -> None:
    """Goal: it gets to the end of a compacted topic, however often it is asked whether it may read on.

    Method: a snapshot that held all of the log, and then records for an hour of reading, of which ingest
    has none.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True, delete_retention_ms=DAY_MS)
    stepped.kafka.records_a_poll = 1
    for number in range(RECORDS_OF_AN_HOUR):
        stepped.kafka.log.add(P0, (1, f"u{number}", "k"), "v", 0)
    status = stepped.turn(2)
    while status["positions"]["profiles"]["0"] < 100 + RECORDS_OF_AN_HOUR:
        before = status["positions"]["profiles"]["0"]
        stepped.clock.advance(RECHECK_SECONDS / 10)
        status = stepped.turn(2)
        assert status["problem"] is None
        assert status["positions"]["profiles"]["0"] >= before, "it was begun again"
    assert status["hot_records"] == RECORDS_OF_AN_HOUR


def test_a_tailer_that_catches_up_for_longer_than_tombstones_are_kept_stands_still(stepped: Stepped) -> None:
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    stepped.kafka.records_a_poll = 1
    for number in range(10):
        stepped.kafka.log.add(P0, (1, f"u{number}", "k"), "v", 0)
    held = stepped.turn(4)["positions"]["profiles"]["0"]
    stepped.clock.advance(3_700.0)
    status = stepped.turn(4)
    assert status["problem"]["code"] == "tombstones-gone"
    assert 100 < status["positions"]["profiles"]["0"] == held


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_tier_read_before_tombstones_were_given_up_is_not_read_on_from(
    stepped: Stepped, restarts: bool
) -> None:
    """Goal: that the table reads on past lost tombstones says nothing of rows that only the tier has.

    Method: while the tailer catches up, tombstones are given up, as of now, for good.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    stepped.kafka.records_a_poll = 1
    for number in range(10):
        stepped.kafka.log.add(P0, (1, f"u{number}", "k"), "v", 0)
    before = stepped.turn(4)["hot_records"]
    stepped.clock.advance(3_700.0)
    given_up = replace(snapshot(2, START), tombstones_since_ms={"profiles": stepped.clock.now_ms()})
    stepped.follower.newest = PublishedSnapshot(DEFINITION, given_up, SOURCE)
    if restarts:
        stepped.restart()
    status = stepped.turn(4)
    assert status["problem"] is None
    assert 0 < status["hot_records"] <= before, "it has to begin again at the seam"
    stepped.clock.advance(RECHECK_SECONDS + 1)
    assert stepped.turn(4)["hot_records"] > before, "and only once"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_tier_that_was_never_at_its_end_begins_again_where_the_table_went_past_it(
    stepped: Stepped, restarts: bool
) -> None:
    """Goal: rows of an older snapshot are not shown whose deletion was compacted away before it was read.

    Method: the tier is opened and nothing read. A snapshot passes it by; what it passed over may have lacked
    its tombstones since. The records beyond it are young.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    stepped.turn(1)
    stepped.clock.advance(3_700.0)
    for number in range(6):
        stepped.kafka.log.add(P0, (1, f"u{number}", "k"), "v", 0)
    stepped.commit(snapshot(2, START.merged_max(Seam({P0: START[P0] + 5}))))
    if restarts:
        stepped.restart()
    status = stepped.turn(4)
    assert status["problem"] is None
    assert status["start"]["profiles"]["0"] == START[P0] + 5
    assert status["hot_records"] == 1


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_tier_begun_below_an_empty_table_is_laid_over_its_rows_only_if_no_delete_can_be_missing(
    stepped: Stepped, restarts: bool, is_late: bool
) -> None:
    """Goal: rows whose deletion was compacted away before the tailer read the log are not shown.

    Method: the tailer begins below a snapshot without rows, where lost tombstones do not matter. The next one
    that it hears of holds rows since longer ago than tombstones are kept, or since just before.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    empty = replace(snapshot(1, START), totals={"read": 0})
    stepped.follower.newest = PublishedSnapshot(DEFINITION, empty, SOURCE)
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert stepped.turn(3)["hot_records"] == 1
    since_ms = stepped.clock.now_ms() - (3_700_000 if is_late else 10_000)
    filled = replace(snapshot(2, START), drained_ms=since_ms)
    stepped.follower.newest = PublishedSnapshot(DEFINITION, filled, SOURCE)
    if restarts:
        stepped.restart()
    problem = stepped.turn(4)["problem"]
    assert (problem and problem["code"]) == ("tombstones-gone" if is_late else None)


def test_a_topic_that_grows_does_not_stop_a_tailer_that_is_up_to_date(stepped: Stepped) -> None:
    """Goal: with ingest away for longer than tombstones are kept, what was never behind reads on."""
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    _stay_up_to_date(stepped, 7_200)
    new = ("profiles", 2)
    stepped.kafka.log.partitions[new], stepped.kafka.log.ends[new], stepped.kafka.starts[new] = [], 0, 0
    stepped.kafka.log.add(new, (1, "n", "k"), "v", 0)
    stepped.kafka.log.add(P0, (1, "b", "k"), "v", 0)
    status = stepped.turn(6)
    assert status["problem"] is None
    assert status["positions"]["profiles"] == {"0": 102, "1": 100, "2": 1}


def test_a_tailer_that_was_behind_when_a_topic_grew_does_not_read_on(stepped: Stepped) -> None:
    """Goal: a row whose deletion went to a new partition, and was compacted away there, is not shown.

    Method: the process is frozen for longer than ``delete.retention.ms``; only the new partition has more.
    """
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    _stay_up_to_date(stepped, 600)
    stepped.clock.advance(3_700.0)
    new = ("profiles", 2)
    stepped.kafka.log.partitions[new], stepped.kafka.log.ends[new], stepped.kafka.starts[new] = [], 1, 0
    status = stepped.turn(6)
    assert status["problem"]["code"] == "tombstones-gone"
    assert status["positions"]["profiles"] == {"0": 101, "1": 100}


def test_a_new_partition_whose_start_is_gone_leaves_the_tier_as_it_was(stepped: Stepped) -> None:
    _stay_up_to_date(stepped, 600)
    new = ("profiles", 2)
    stepped.kafka.log.partitions[new], stepped.kafka.log.ends[new], stepped.kafka.starts[new] = [], 5, 5
    status = stepped.turn(6)
    assert status["problem"]["code"] == "offsets-gone"
    assert status["positions"]["profiles"] == {"0": 101, "1": 100}


def test_a_definition_altered_while_ingest_is_late_leaves_the_tier_until_another_can_be_filled(
    stepped: Stepped,
) -> None:
    stepped.kafka.config = replace(stepped.kafka.config, is_compacted=True)
    drained_ms = stepped.clock.now_ms()
    _stay_up_to_date(stepped, 7_200)
    stepped.follower.newest = PublishedSnapshot(
        ALTERED, replace(snapshot(2, START), drained_ms=drained_ms), SOURCE
    )
    status = stepped.turn(6)
    assert status["problem"]["code"] == "tombstones-gone"
    assert (status["definition_version"], status["hot_records"]) == (1, 1)
    caught_up = replace(snapshot(3, Seam(stepped.kafka.log.ends)), drained_ms=stepped.clock.now_ms())
    stepped.follower.newest = PublishedSnapshot(ALTERED, caught_up, SOURCE)
    status = stepped.turn(6)
    assert (status["problem"], status["definition_version"]) == (None, 2)


WITHOUT_MORE = replace(DEFINITION, version=2, topics=("profiles",))


def without_more(stepped: Stepped, snapshot_id: int) -> None:
    """The other topic was deleted, and left the table, which has all of it."""
    for known in (stepped.kafka.starts, stepped.kafka.log.partitions, stepped.kafka.log.ends):
        known.pop(("more", 0))
    state = snapshot(snapshot_id, START.only(["profiles"]))
    stepped.follower.newest = PublishedSnapshot(WITHOUT_MORE, state, SOURCE)


def test_a_tier_is_ready_without_a_topic_that_left_before_it_was_read(stepped: Stepped) -> None:
    stepped.kafka.log.add(("more", 0), (1, "b", "k"), "v", 0)
    stepped.turn(1)
    without_more(stepped, 2)
    status = stepped.turn(4)
    assert (status["caught_up_to_start_ends"], status["offsets_to_ready"]) == (True, 0)


def test_a_tier_goes_on_where_a_topic_left_and_came(stepped: Stepped) -> None:
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    stepped.turn(3)
    without_more(stepped, 2)
    status = stepped.turn(4)
    assert (status["definition_version"], status["hot_records"]) == (2, 1)
    assert status["positions"] == {"profiles": {"0": 101, "1": 100}}
    assert status["lag_seconds"] < 2
    place = ("more", 0)
    stepped.kafka.log.partitions[place], stepped.kafka.log.ends[place], stepped.kafka.starts[place] = [], 0, 0
    stepped.kafka.log.add(place, (1, "b", "k"), "v", 0)
    state = snapshot(3, Seam({**dict.fromkeys(PLACES[:2], 100), place: 0}))
    stepped.follower.newest = PublishedSnapshot(replace(DEFINITION, version=3), state, SOURCE)
    status = stepped.turn(6)
    assert (status["definition_version"], status["caught_up_to_start_ends"]) == (3, True)
    assert status["positions"]["more"] == {"0": 1}


def test_while_the_log_is_away_nothing_is_asked_of_it(stepped: Stepped) -> None:
    """Goal: pins get their seals all through an outage: a question to the log would wait for its timeout."""
    _stay_up_to_date(stepped, 600)
    stepped.kafka.is_away = True
    assert _with_frozen_ends(stepped, 2 * RECHECK_SECONDS)["problem"] is None
    stepped.kafka.is_away = False
    stepped.kafka.log.add(P0, (1, "b", "k"), "v", 0)
    assert stepped.turn(4)["positions"]["profiles"]["0"] == 102


def _stay_up_to_date(stepped: Stepped, seconds: float) -> None:
    stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    stepped.turn(3)
    for _ in range(int(seconds / (RECHECK_SECONDS / 2))):
        stepped.clock.advance(RECHECK_SECONDS / 2)
        assert stepped.turn(1)["problem"] is None


def _with_frozen_ends(stepped: Stepped, seconds: float) -> dict[str, Any]:
    """So much time without an answer of the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeTail, "reached_end_at", lambda _: {})
        stepped.clock.advance(seconds)
        return stepped.turn(3)
