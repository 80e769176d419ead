"""Compares the facts that a user accepts with those that are found, and keeps a note of them in the table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from thermocline.errors import (
    ForeignSnapshot,
    LogReplaced,
    NotConfirmed,
    OffsetsGone,
    TombstonesGone,
    TopicDeleted,
    places,
)
from thermocline.iceberg.catalog import ACCEPTED_BYTES_MAX, ACCEPTED_ENTRIES_MAX
from thermocline.rules.seam import Seam

Gap = OffsetsGone | TombstonesGone | TopicDeleted
GAPS = (OffsetsGone, TombstonesGone, TopicDeleted)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was accepted: the code of the error, its facts, and where the seam was and is. ``at`` is ISO 8601.

    The seams hold the partitions that moved, new or gone ones included. ``to`` is what a rebase was told.
    """

    code: str
    facts: tuple[str, ...]
    at: str
    seam_before: Mapping[str, Mapping[str, int]]
    seam_after: Mapping[str, Mapping[str, int]]
    to: str = ""
    given_up: tuple[str, ...] = ()

    @classmethod
    def of_move(
        cls, code: str, facts: Sequence[str], at: str, before: Seam, after: Seam, to: str = ""
    ) -> Self:
        """What is noted where the seam moves; of it, the partitions that did."""
        places = {(topic, partition) for seam in (before, after) for topic, partition, _ in seam.items()}
        moved = {
            place
            for place in places
            if (place in before, before.get(place)) != (place in after, after.get(place))
        }

        def part(seam: Seam) -> dict[str, dict[str, int]]:
            return Seam({place: seam[place] for place in moved if place in seam}).to_dict()

        return cls(code, tuple(facts), at, part(before), part(after), to)

    def to_dict(self) -> dict[str, Any]:
        """As the table keeps it, for JSON."""
        return {
            "code": self.code,
            "facts": list(self.facts),
            "at": self.at,
            "to": self.to,
            "given_up": list(self.given_up),
            "seam_before": self.seam_before,
            "seam_after": self.seam_after,
        }

    def entry(self) -> str:
        """The same as a text."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


def check_facts(
    name: str,
    stop: Gap | LogReplaced,
    kinds: tuple[type[Gap | LogReplaced], ...],
    facts: Sequence[str],
    to: str = "",
) -> None:
    """Raises `NotConfirmed` unless what is found is of these kinds, and has these facts in any order."""
    if not isinstance(stop, kinds) or sorted(facts) != sorted(stop.tokens):  # safety: facts, command-of-facts
        raise differ(name, stop, facts, stop.tokens, to)


def topics_in_question(stop: Gap | LogReplaced, topics: Sequence[str]) -> tuple[str, ...]:
    """The topics that a rebase reads from another place; those of the table where its cluster is another."""
    # All of a topic's partitions: a log that lost its end may have other records further on, too.
    return (() if isinstance(stop, OffsetsGone) else stop.topics) or tuple(topics)


def differ(
    name: str,
    stop: Gap | LogReplaced | ForeignSnapshot,
    given: Sequence[str],
    found: Sequence[str] | None = None,
    to: str = "",
) -> NotConfirmed:
    """The error of other facts, with the command that would resume from where the user said."""
    command = stop.resume.replace("--to earliest", f"--to {shlex.quote(to)}") if to else stop.resume
    now = places.some(stop.tokens if found is None else found) or "none"
    problem = f"the facts of table {name} are now {now}, not {places.some(given) or 'none'}"
    return NotConfirmed(problem=problem, command=command, detail=stop.what)


def with_entry(entries: str, entry: str) -> str:
    """The table's list of what was accepted with one more at its end, and old ones dropped beyond a bound."""
    kept = [*json.loads(entries), json.loads(entry)][-ACCEPTED_ENTRIES_MAX:]
    while len(kept) > 1 and len(json.dumps(kept, separators=(",", ":"))) > ACCEPTED_BYTES_MAX:
        del kept[0]
    return json.dumps(kept, separators=(",", ":"))
