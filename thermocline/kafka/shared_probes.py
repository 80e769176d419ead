"""Questions for ends and facts that tails of the same partitions ask together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from thermocline.kafka.facts import TopicFacts
    from thermocline.kafka.tail import Asked, End, Place, Probes

__all__ = ["SharedProbes"]


class SharedProbes:
    """The questions of a process; those for the same partitions are one."""

    def __init__(self, make: Callable[[Sequence[Place]], Probes]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._asked: WeakValueDictionary[tuple[Place, ...], _Together] = WeakValueDictionary()

    def of(self, places: Sequence[Place]) -> Asked:
        """The questions for these partitions, as one of their tails asks them."""
        key = tuple(sorted(places))
        with self._lock:
            together = self._asked.get(key)
            if together is None:
                together = self._asked[key] = _Together(self._make(key))
        return _ForOne(together)


class _Together:
    """Questions, and their last answers, each with a number by which a tail knows what is new to it."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self._lock = threading.Lock()
        self._ends: tuple[int, list[End]] = (0, [])
        self._facts: tuple[int, dict[str, TopicFacts]] = (0, {})

    def ends(self) -> tuple[int, list[End]]:
        """The newest answer."""
        with self._lock:
            if found := self._probes.ends():
                self._ends = (self._ends[0] + 1, found)
            return self._ends

    def facts(self) -> tuple[int, dict[str, TopicFacts]]:
        """The newest answer."""
        with self._lock:
            if found := self._probes.facts():
                self._facts = (self._facts[0] + 1, found)
            return self._facts


class _ForOne:
    """What one tail hears; not what was answered before it began: that may be of another topic."""

    def __init__(self, together: _Together) -> None:
        self._together = together
        self._ends_seen = together.ends()[0]
        self._facts_seen = together.facts()[0]

    def ends(self) -> list[End]:
        """As `Probes.ends`."""
        number, found = self._together.ends()
        if number == self._ends_seen:
            return []
        self._ends_seen = number
        return found

    def facts(self) -> dict[str, TopicFacts]:
        """As `Probes.facts`."""
        number, found = self._together.facts()
        if number == self._facts_seen:
            return {}
        self._facts_seen = number
        return found
