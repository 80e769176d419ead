"""Counts of fields that no column is read from: of the values that ingest sampled in the last days."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from thermocline.rules.decode.unread import NAMES_MAX, OTHER, bounded

if TYPE_CHECKING:
    from thermocline.rules.decode.unread import Sampled

__all__ = ["PERIOD_MS", "Period", "UnreadCounts"]

PERIOD_MS: Final = 86_400_000
"""A field that comes no more is forgotten after two periods at most."""


@dataclass(frozen=True, slots=True)
class Period:
    """What was sampled since then: see `Sampled`."""

    since_ms: int = 0
    values: int = 0
    names: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_document(cls, document: Any) -> Self:
        """Of what `to_document` gave."""
        names = {str(name): int(count) for name, count in document["names"].items()}
        return cls(int(document["since_ms"]), int(document["values"]), names)

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {"since_ms": self.since_ms, "values": self.values, "names": dict(self.names)}


@dataclass(frozen=True, slots=True)
class UnreadCounts:
    """The counts of a period and of the one before, of one version of a table's definition.

    So what is shown reaches back for one to two periods, once there is that much.
    """

    version: int = 0
    newest: Period = Period()
    before: Period = Period()

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Of what `to_json` gave; nothing counted, of any other text, since nothing rests on the counts."""
        try:
            stored = json.loads(text)
            periods = (Period.of_document(stored[name]) for name in ("newest", "before"))
            return cls(int(stored["version"]), *periods)
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def to_json(self) -> str:
        """As the table's properties have it."""
        newest, before = self.newest.to_document(), self.before.to_document()
        return json.dumps({"version": self.version, "newest": newest, "before": before})

    def to_document(self) -> dict[str, Any]:
        """As status documents have it."""
        return {
            "since_ms": self.since_ms,
            "values": self.values,
            "fields": self.names,
            "others": self.others,
        }

    @property
    def since_ms(self) -> int | None:
        """Since when; None before anything was sampled."""
        return (self.before.since_ms or self.newest.since_ms) or None

    @property
    def values(self) -> int:
        """How many values were looked at."""
        return self.newest.values + self.before.values

    @property
    def names(self) -> dict[str, int]:
        """By name, in how many of them: the most frequent first, at most `NAMES_MAX`, without `OTHER`."""
        return dict(self._by_count()[:NAMES_MAX])

    @property
    def others(self) -> int:
        """How often fields of further names were met, of which no more than this is kept."""
        unnamed = self.newest.names.get(OTHER, 0) + self.before.names.get(OTHER, 0)
        return unnamed + sum(count for _, count in self._by_count()[NAMES_MAX:])

    def _by_count(self) -> list[tuple[str, int]]:
        found = Counter(self.newest.names)
        found.update(self.before.names)
        del found[OTHER]
        return sorted(found.items(), key=lambda one: (-one[1], one[0]))

    def with_sampled(
        self, sampled: Sampled, version: int, now_ms: int, is_read: Callable[[str], bool]
    ) -> UnreadCounts:
        """The counts with what a batch sampled.

        Under a new version of the definition, fields count on but for those that a column is read from
        (``is_read``).
        """
        newest, before = self.newest, self.before
        if self.version != version:
            newest, before = (_without(period, is_read) for period in (newest, before))
        if now_ms - newest.since_ms >= PERIOD_MS:  # safety: unread-counts-fade
            before = newest if now_ms - newest.since_ms < 2 * PERIOD_MS else Period()
            newest = Period(now_ms)
        found = Counter(newest.names)
        found.update(sampled.names)
        known = [name for name in {**newest.names, **before.names} if name != OTHER]
        names = bounded(found, known)  # safety: unread-counts-bounded
        return UnreadCounts(version, Period(newest.since_ms, newest.values + sampled.values, names), before)


def _without(period: Period, is_read: Callable[[str], bool]) -> Period:
    names = {name: count for name, count in period.names.items() if not is_read(name)}
    return Period(period.since_ms, period.values, names)
