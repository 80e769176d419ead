"""Tails that share a consumer, in histories of chance: none misses or repeats a record, or waits for another.

The lanes and shares are the product's; the consumer and the cluster are fakes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from tests.manual_clock import ManualClock
from tests.simulation.consumer import CONFIG, FakeReading
from tests.simulation.kafka import FakeCluster
from tests.simulation.partitions import Place, Record
from thermocline.errors import OffsetsGone, TopicForbidden
from thermocline.kafka import lanes, shared_tail
from thermocline.kafka.shared_tail import Share
from thermocline.kafka.tail import Tail
from thermocline.rules.seam import Seam

TOPICS: Final = {"orders": 2, "users": 1}
PLACES: Final = [(topic, number) for topic, partitions in TOPICS.items() for number in range(partitions)]
TAILS: Final = 3
HISTORIES: Final = 150
STEPS: Final = 120
START: Final = Seam({("orders", 0): 0})
SETTLE_ROUNDS: Final = 500


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "JOIN_OFFSETS_MAX", 4)
    monkeypatch.setattr(shared_tail, "JOIN_OFFSETS_MAX", 4)
    monkeypatch.setattr(shared_tail, "WAITING_RECORDS_MAX", 10)
    monkeypatch.setattr(shared_tail, "LEFT_AT", 2)


class Tailed:
    """One of the tails, and what it must give: each record that can be seen, once, and in order."""

    def __init__(self, shared: Shared, number: int) -> None:
        self._shared, self._name = shared, f"table {number}"
        self.tail = self.begun({place: 0 for place in PLACES if number or place[0] == "orders"})

    def begun(self, start: dict[Place, int]) -> Tail:
        facts = self._shared.cluster.log().describe(sorted({topic for topic, _ in start}))
        return self._shared.reading.tail(Seam(start), facts, self._name)

    def again(self, random: Random) -> None:
        """It is closed, and begins again where it was, or before that."""
        before = {(topic, number): at for topic, number, at in self.tail.positions().items()}
        self.tail.close()
        logs = {place: self._shared.cluster.partition(*place) for place in before}
        back = random.choice([0, 0, 2, 30])
        self.tail = self.begun({at: max(before[at] - back, log.start) for at, log in logs.items()})

    def poll(self, random: Random, records_max: int) -> None:
        before = self.tail.positions()
        try:
            chunks = self.tail.poll(0, records_max)
        except OffsetsGone:
            logs = {(topic, number): at for topic, number, at in before.items()}
            lost = [place for place, at in logs.items() if self._shared.cluster.partition(*place).start > at]
            assert lost, "nothing is gone"
            self.again(random)
            return
        after, got = self.tail.positions(), dict[Place, list[int]]()
        for chunk in chunks:
            got.setdefault((chunk.topic, chunk.partition), []).extend(chunk.offsets)
        for topic, number, at in after.items():
            place = (topic, number)
            seen = [record for record in self._shared.all[place] if before[place] <= record.offset < at]
            assert got.get(place, []) == [record.offset for record in seen if not record.is_hidden]

    def is_at_its_end(self) -> bool:
        ends = {place: self._shared.cluster.partition(*place).stable_end for place in self._places()}
        return self.tail.positions() == Seam(ends)

    def _places(self) -> list[Place]:
        return [(topic, number) for topic, number, _ in self.tail.positions().items()]


class Shared:
    """A cluster, and tails that share a consumer of it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = FakeCluster()
        self.all: dict[Place, list[Record]] = {place: [] for place in PLACES}
        for topic, partitions in TOPICS.items():
            self.cluster.create_topic(topic, partitions)
        self._transactions: list[Any] = []
        self.reading = FakeReading(self.cluster, ManualClock(), records_a_fetch=5)
        self.tails = [Tailed(self, number) for number in range(TAILS)]

    def produce(self, records: int = 0) -> None:
        for _ in range(records or self.random.choice([1, 2, 30])):
            place = self.random.choice(PLACES)
            if self._transactions and self.random.random() < 0.5:
                self._transactions[-1].produce(*place, b"k", b"v")
            else:
                self.cluster.produce(*place, b"k", b"v")
        self.note()

    def transact(self) -> None:
        """A transaction is begun, or ends."""
        if self._transactions:
            self.random.choice([self._transactions[-1].commit, self._transactions[-1].abort])()
            self._transactions.pop()
            self.note()
        else:
            self._transactions.append(self.cluster.transaction())

    def trim(self) -> None:
        place = self.random.choice(PLACES)
        log = self.cluster.partition(*place)
        self.cluster.trim(*place, self.random.randint(log.start, log.stable_end))

    def note(self) -> None:
        for place, known in self.all.items():
            last = known[-1].offset if known else -1
            known += [one for one in self.cluster.partition(*place).records if one.offset > last]

    def settle(self) -> None:
        while self._transactions:
            self.transact()
        for _ in range(SETTLE_ROUNDS):
            self.reading.step()
            for tailed in self.tails:
                tailed.poll(self.random, 10_000)
            if self.reading.open == 1 and all(tailed.is_at_its_end() for tailed in self.tails):
                return


@pytest.mark.parametrize("seed", range(10))
def test_tails_that_share_a_consumer_read_each_record_once_whatever_the_others_do(seed: int) -> None:
    """Goal: also while others stand still, are behind, begin again, or lose what retention took.

    In the end all are at the log's end, no consumer is left but the shared one, and it fetches each record
    once.
    """
    for history in range(HISTORIES // 10):
        random = Random(f"{seed} {history}")
        shared = Shared(random)
        standing: set[int] = set()

        def poll(shared: Shared = shared, random: Random = random, standing: set[int] = standing) -> None:
            number = random.randrange(TAILS)
            if number not in standing:
                shared.tails[number].poll(random, random.choice([1, 3, 10_000]))

        def stand(random: Random = random, standing: set[int] = standing) -> None:
            standing ^= {random.randrange(TAILS)}

        def again(shared: Shared = shared, random: Random = random) -> None:
            random.choice(shared.tails).again(random)

        doings: list[tuple[int, Callable[[], None]]] = [
            (30, poll),
            (20, shared.reading.step),
            (15, shared.produce),
            (4, shared.transact),
            (3, stand),
            (2, again),
            (1, shared.trim),
        ]
        weights = [weight for weight, _ in doings]
        for _ in range(STEPS):
            random.choices([do for _, do in doings], weights)[0]()
        shared.settle()
        assert all(tailed.is_at_its_end() for tailed in shared.tails)
        assert shared.reading.open == 1, "who was behind has come back"
        before = shared.reading.fetched
        shared.produce(4)
        shared.settle()
        assert all(tailed.is_at_its_end() for tailed in shared.tails)
        assert (shared.reading.open, shared.reading.fetched - before) == (1, 4), "each is fetched once"


class Two:
    """Two tails of one partition, which share a consumer."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.create_topic("orders", 1)
        self.reading = FakeReading(self.cluster, ManualClock())

    def share(self) -> Share:
        return self.reading.share(START, self.cluster.log().describe(["orders"]))

    def tail(self) -> Tail:
        return Tail(CONFIG, START, reader=self.share())

    def send(self, *values: bytes) -> None:
        for value in values:
            self.cluster.produce("orders", 0, b"k", value)

    def turns(self, *tails: Tail) -> list[list[bytes | None]]:
        """What each of them gives in some turns."""
        read: list[list[bytes | None]] = [[] for _ in tails]
        for _ in range(10):
            self.reading.step()
            for tail, found in zip(tails, read, strict=True):
                found += [value for chunk in tail.poll(0) for value in chunk.values]
        return read


def test_a_tail_of_a_topic_that_was_made_again_is_handed_nothing_of_the_one_before() -> None:
    """Method: the consumer has fetched records of the topic before, for a tail that does not know yet."""
    two = Two()
    two.send(b"of the topic before")
    late = two.tail()
    two.reading.step()
    two.cluster.replace_topic("orders")
    two.send(b"1", b"2")
    assert two.turns(two.tail()) == [[b"1", b"2"]]
    late.close()


def test_what_waits_for_a_tail_that_takes_nothing_is_bounded_and_the_other_reads_on() -> None:
    two = Two()
    waiting = two.share()
    still, other = Tail(CONFIG, START, reader=waiting), two.tail()
    assert two.turns(still, other) == [[], []]
    values = [b"%d" % number for number in range(100)]
    for value in values:
        two.send(value)
        assert two.turns(other) == [[value]]
        assert not waiting.is_left, "it is handed no more, and keeps nothing"
    assert two.turns(still, other) == [values, []]
    assert two.reading.open == 1


def test_a_topic_that_may_not_be_read_is_asked_for_again_by_each_tail_that_begins_again() -> None:
    """Goal: who begins again hears of it, though another one, which takes nothing, was told before."""
    two = Two()
    two.send(b"1")
    two.reading.forbidden.add("orders")
    still, first = two.tail(), two.tail()
    with pytest.raises(TopicForbidden):
        two.turns(first)
    first.close()
    with pytest.raises(TopicForbidden):
        two.turns(two.tail())
    two.reading.forbidden.clear()
    assert two.turns(two.tail()) == [[b"1"]]
    with pytest.raises(TopicForbidden):
        two.turns(still)
