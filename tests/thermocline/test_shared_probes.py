"""Questions that the tails of a process ask together, counted by a client that answers at once, or never."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient

from tests.manual_clock import ManualClock
from thermocline.kafka.facts import TopicFacts
from thermocline.kafka.shared_probes import SharedProbes
from thermocline.kafka.tail import END_PROBE_SECONDS, Asked, Place

TOPICS = [f"t{number}" for number in range(4)]
PARTITIONS = 3
ROUNDS = 40
END = 7


class CountingAdmin:
    """A client that notes what it is asked. Of two brokers, each leads every other partition."""

    def __init__(self) -> None:
        self.ends_asked: list[list[Place]] = []
        self.topics_asked: list[list[str]] = []
        self.topic_id = "one"
        self.broken = -1
        self.late: list[tuple[Future[Any], Any]] = []

    def list_offsets(self, asked: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
        """Every end is the same; nothing comes of the broker that is broken."""
        places = [(one.topic, one.partition) for one in asked]
        self.ends_asked.append(places)
        is_late = any(leader_of(place) == self.broken for place in places)
        return {one: self._answer(SimpleNamespace(offset=END), is_late) for one in asked}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        self.topics_asked.append(topics.topic_names)
        return {topic: self._answer(self._described(topic), is_late=False) for topic in topics.topic_names}

    def _described(self, topic: str) -> Any:
        led = [(number, leader_of((topic, number))) for number in range(PARTITIONS)]
        parts = [SimpleNamespace(id=number, leader=SimpleNamespace(id=leader)) for number, leader in led]
        return SimpleNamespace(topic_id=self.topic_id, partitions=parts)

    def _answer(self, answer: Any, is_late: bool) -> Future[Any]:
        future = Future[Any]()
        if is_late:
            self.late.append((future, answer))
        else:
            future.set_result(answer)
        return future


def leader_of(place: Place) -> int:
    return 1 + place[1] % 2


def places_of(*topics: str) -> list[Place]:
    return [(topic, partition) for topic in topics for partition in range(PARTITIONS)]


def probes_of(admin: CountingAdmin, clock: ManualClock) -> SharedProbes:
    return SharedProbes(cast(AdminClient, admin), clock)


def turn(tails: Sequence[Asked]) -> None:
    """Each of them looks once."""
    for tail in tails:
        tail.facts()
        tail.ends()


@pytest.mark.parametrize("tables", [8, 1_000])
def test_ends_are_as_young_and_cost_as_many_questions_whatever_the_number_of_tables(tables: int) -> None:
    """Method: all tables look every quarter of a second; each tenth is fed from two topics, others from one.

    The ages that a table sees, and the questions, are counted by the clock that the test moves.
    """
    admin, clock = CountingAdmin(), ManualClock()
    together = probes_of(admin, clock)
    fed = [(TOPICS[n % 4],) if n % 10 else (TOPICS[n % 4], TOPICS[(n + 1) % 4]) for n in range(tables)]
    tails = [together.of(places_of(*topics)) for topics in fed]
    turn(tails)
    clock.advance(END_PROBE_SECONDS)
    turn(tails)
    before = len(admin.ends_asked)
    ages: set[float] = set()
    for _ in range(ROUNDS):
        clock.advance(END_PROBE_SECONDS)
        for topics, tail in zip(fed, tails, strict=True):
            tail.facts()
            found = {place: (end, clock.monotonic() - asked_at) for place, end, asked_at in tail.ends()}
            assert found.keys() == set(places_of(*topics))
            assert {end for end, _ in found.values()} == {END}
            ages |= {age for _, age in found.values()}
    assert max(ages) <= END_PROBE_SECONDS
    asked = admin.ends_asked[before:]
    assert len(asked) == 2 * ROUNDS  # one of each broker
    assert [place for question in asked for place in sorted(question)] == ROUNDS * [
        place for broker in (1, 2) for place in places_of(*TOPICS) if leader_of(place) == broker
    ]
    assert all(topics == TOPICS for topics in admin.topics_asked[1:])
    assert len(admin.topics_asked) <= 2 + ROUNDS * END_PROBE_SECONDS / 2.0


def test_more_partitions_than_a_client_can_ask_for_are_asked_for_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("thermocline.kafka.shared_probes.END_PROBES_PER_SECOND", 3)
    admin, clock = CountingAdmin(), ManualClock()
    tails = [probes_of(admin, clock).of(places_of("t0"))]
    turn(tails)
    clock.advance(0.5)
    turn(tails)
    turn(tails)
    before = len(admin.ends_asked)
    for _ in range(8):
        clock.advance(0.5)
        turn(tails)
        turn(tails)
    assert len(admin.ends_asked) - before == 2 * 4  # of each broker, one a second


def test_a_broker_that_does_not_answer_holds_up_its_own_partitions_alone() -> None:
    admin, clock = CountingAdmin(), ManualClock()
    together = probes_of(admin, clock)
    first, other = together.of([("t0", 0)]), together.of([("t0", 1)])
    turn([first, other])
    turn([first, other])
    admin.broken = leader_of(("t0", 1))
    for _ in range(3):
        clock.advance(END_PROBE_SECONDS)
        first.facts()
        assert first.ends() == [(("t0", 0), END, clock.monotonic())]
    other.ends()
    assert other.ends() == []
    asked_at = clock.monotonic() - 2 * END_PROBE_SECONDS
    for future, answer in admin.late:
        future.set_result(answer)
    assert other.ends() == [(("t0", 1), END, asked_at)]


def test_a_tail_hears_every_answer_once_and_none_to_what_was_asked_before_it_began() -> None:
    """The topic may have been made again in between: an answer may be of the one before."""
    admin, clock = CountingAdmin(), ManualClock()
    together = probes_of(admin, clock)
    one, other = together.of(places_of("t0")), together.of(places_of("t0"))
    facts = {"t0": TopicFacts("one", PARTITIONS)}
    assert (one.facts(), one.facts(), one.facts(), other.facts()) == ({}, facts, {}, facts)
    heard = [(place, END, 0.0) for place in places_of("t0")]
    assert (one.ends(), one.ends(), other.ends(), other.ends()) == (heard, [], heard, [])

    clock.advance(2.0)
    assert one.facts() == {}  # it is asked
    admin.topic_id = "two"
    clock.advance(0.1)
    late = together.of(places_of("t0"))
    assert (late.facts(), late.ends(), one.facts()) == ({}, [], facts)
    clock.advance(2.0)
    assert (late.facts(), late.facts()) == ({}, {"t0": TopicFacts("two", PARTITIONS)})
    assert late.ends() == [(place, END, clock.monotonic()) for place in places_of("t0")]


def test_what_only_tails_had_that_ended_is_asked_for_no_more() -> None:
    admin, clock = CountingAdmin(), ManualClock()
    together = probes_of(admin, clock)
    stays, ends = together.of(places_of("t0")), together.of(places_of("t1"))
    turn([stays, ends, stays])
    assert admin.topics_asked == [["t0", "t1"]]
    del ends
    clock.advance(2.0)
    turn([stays])
    assert admin.topics_asked[-1] == ["t0"]
    assert {topic for question in admin.ends_asked[-2:] for topic, _ in question} == {"t0"}


def test_nothing_is_asked_of_no_topic() -> None:
    admin, clock = CountingAdmin(), ManualClock()
    turn([probes_of(admin, clock).of([])])
    assert (admin.ends_asked, admin.topics_asked) == ([], [])
