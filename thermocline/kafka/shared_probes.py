"""Questions for ends and facts that all tails of a process ask together.

Each partition's end is asked for once, whatever number of tables it feeds, and each broker is asked by itself
for the partitions that it leads: one that is down holds up those alone. So how old an answer is does not
depend on the number of tables.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from thermocline.kafka.tail import (
    END_PROBE_SECONDS,
    FACTS_PROBE_SECONDS,
    Question,
    ask_ends,
    ask_facts,
    ends_in,
    facts_in,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

    from thermocline.kafka.facts import TopicFacts
    from thermocline.kafka.tail import Answers, Asked, End, Place
    from thermocline.process.clock import Clock

__all__ = ["SharedProbes"]

# Of all tails of a process: with more partitions than a quarter of that, each is asked for less often.
END_PROBES_PER_SECOND: Final = 10_000
# In place of the broker that leads a partition: where none does, and where that is not known yet.
NO_LEADER: Final = -1
UNKNOWN_LEADER: Final = -2

_K = TypeVar("_K")
_V = TypeVar("_V")


class SharedProbes:
    """The questions of a process. For any thread."""

    def __init__(self, admin: AdminClient, clock: Clock) -> None:
        """``admin`` is kept alive by its owner."""
        self._admin = admin
        self._clock = clock
        self._lock = threading.Lock()
        self._tails: WeakSet[_ForOne] = WeakSet()
        self._leaders: dict[Place, int] = {}
        self._led: dict[int, list[Place]] = {}  # by leader
        self._is_arranged = False
        self._of_ends: dict[int, Question] = {}  # by leader
        self._of_topics = Question(self._ask_facts, FACTS_PROBE_SECONDS, clock)
        self._ends: _Heard[Place, int] = _Heard()
        self._facts: _Heard[str, TopicFacts] = _Heard()

    def of(self, places: Sequence[Place]) -> Asked:
        """The questions for these partitions, as one of the tails asks them."""
        with self._lock:
            tail = _ForOne(self, places, self._clock.monotonic())
            self._tails.add(tail)
            self._is_arranged = False
        return tail

    def ends(self, tail: _ForOne) -> list[End]:
        """What a tail has not heard yet of its ends; asks again where it is time."""
        with self._lock:
            self._look()
            found = self._ends.after(tail.ends_heard, tail.places, tail.began_at)
            tail.ends_heard = self._ends.number
        return found

    def facts(self, tail: _ForOne) -> dict[str, TopicFacts]:
        """The same of the facts of its topics."""
        with self._lock:
            self._look()
            found = self._facts.after(tail.facts_heard, tail.topics, tail.began_at)
            tail.facts_heard = self._facts.number
        return {topic: facts for topic, facts, _ in found}

    def _look(self) -> None:
        asked_at, answers = self._of_topics.answers()
        if answers:
            self._facts.take(asked_at, facts_in(answers))
            self._note_leaders(answers)
        if not self._is_arranged:
            self._arrange()
        for question in self._of_ends.values():
            asked_at, answers = question.answers()
            self._ends.take(asked_at, dict(ends_in(answers)))

    def _note_leaders(self, answers: Answers) -> None:
        leaders = {
            (topic, part.id): NO_LEADER if part.leader is None else part.leader.id
            for topic, answer in answers
            if not answer.exception()
            for part in answer.result().partitions
        }
        if leaders.items() - self._leaders.items():
            self._leaders |= leaders
            self._is_arranged = False

    def _arrange(self) -> None:
        """Finds out what is to be asked of whom; forgets what nobody wants to know any more."""
        wanted = {place for tail in self._tails for place in tail.places}
        led: dict[int, list[Place]] = {}
        for place in sorted(wanted):
            led.setdefault(self._leaders.get(place, UNKNOWN_LEADER), []).append(place)
        seconds = max(END_PROBE_SECONDS, len(wanted) / END_PROBES_PER_SECOND)
        self._of_ends = {leader: self._of_ends.get(leader) or self._question(leader) for leader in led}
        for question in self._of_ends.values():
            question.seconds = seconds
        self._led, self._is_arranged = led, True
        self._leaders = {place: self._leaders[place] for place in wanted if place in self._leaders}
        self._ends.keep(wanted)
        self._facts.keep({topic for topic, _ in wanted})

    def _question(self, leader: int) -> Question:
        return Question(lambda: ask_ends(self._admin, self._led[leader]), END_PROBE_SECONDS, self._clock)

    def _ask_facts(self) -> dict[Any, Future[Any]]:
        self._is_arranged = False  # tails may have ended
        return ask_facts(self._admin, sorted({topic for tail in self._tails for topic in tail.topics}))


class _Heard(Generic[_K, _V]):
    """What was answered last of each thing, with a number by which a tail knows what is new to it."""

    def __init__(self) -> None:
        self.number = 0
        self._last: dict[_K, tuple[int, float, _V]] = {}

    def take(self, asked_at: float, found: Mapping[_K, _V]) -> None:
        """Takes up answers to a question of that time."""
        if found:
            self.number += 1
            self._last |= {of: (self.number, asked_at, said) for of, said in found.items()}

    def after(self, number: int, wanted: Iterable[_K], began_at: float) -> list[tuple[_K, _V, float]]:
        """What came after that number, with when it was asked for.

        Not what was asked for before a tail began: that may be of another topic.
        """
        if number == self.number:
            return []
        last = [(of, *self._last[of]) for of in wanted if of in self._last]
        return [
            (of, said, asked_at)
            for of, since, asked_at, said in last
            if since > number and asked_at >= began_at  # safety: probes-of-this-topic
        ]

    def keep(self, wanted: Iterable[_K]) -> None:
        """Forgets all else."""
        self._last = {of: self._last[of] for of in wanted if of in self._last}


class _ForOne:
    """What one tail hears."""

    def __init__(self, together: SharedProbes, places: Sequence[Place], began_at: float) -> None:
        self.places = tuple(places)
        self.topics = tuple(sorted({topic for topic, _ in places}))
        self.began_at = began_at
        self.ends_heard = self.facts_heard = 0
        self._together = together

    def ends(self) -> list[End]:
        """As `Probes.ends`."""
        return self._together.ends(self)

    def facts(self) -> dict[str, TopicFacts]:
        """As `Probes.facts`."""
        return self._together.facts(self)
