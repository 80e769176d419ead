"""Words for places of a log: TOPIC/PARTITION@OFFSET and TOPIC/PARTITION@FIRST-END, the end excluded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

# Of a long list, as many as a person takes in; the command that an error prints repeats them all.
LISTED_MAX: Final = 8


def command(words: str, table: str, tokens: Sequence[str], ending: str = "") -> str:
    """``thermocline ingest WORDS TABLE --fact TOKEN ... ENDING``."""
    facts = " ".join(f"--fact {token}" for token in tokens)
    return f"thermocline ingest {words} {table} {facts} {ending}".rstrip()


def some(values: Sequence[str], worded: Callable[[str], str] = str) -> str:
    """The first of them, and how many more there are."""
    listed = ", ".join(worded(value) for value in values[:LISTED_MAX])
    more = len(values) - LISTED_MAX
    return f"{listed} and {more:,} more" if more > 0 else listed


def grant_configs(topics: Sequence[str]) -> str:
    """What lets us see whether topics are compacted."""
    return f"grant the user of [kafka.client] DESCRIBE_CONFIGS on {some(topics)}"


def ends(spans: Sequence[str]) -> dict[tuple[str, int], int]:
    """The ends of ranges, by (topic, partition)."""
    found = {}
    for one in spans:
        if (span := _span(one)) is not None:
            topic, _, partition = span[0].rpartition("/")
            found[topic, int(partition)] = span[2]
    return found


def read_up_to(place: str) -> str:
    """A partition and how far it was read."""
    name, _, offset = place.rpartition("@")
    return f"{name} (read up to {int(offset):,})" if offset.isdigit() else place


def gap(place: str) -> str:
    """A range that is gone; its end is "?" where the broker did not say it."""
    if (span := _span(place)) is None:
        return place.replace("-?", " (the broker refuses to read it)")
    name, first, end = span
    return f"{name} [{first:,}, {end:,}), {end - first:,} offsets"


def end_and_seam(place: str) -> str:
    """A range that was read, and that the log does not reach."""
    if (span := _span(place)) is None:
        return place
    name, end, seam = span
    return f"{name} ends at {end:,} and was read up to {seam:,}"


def read_place(place: str) -> str:
    """Of a range that was read, and that the log does not reach: how far it was read."""
    span = _span(place)
    return place if span is None else f"{span[0]}@{span[2]}"


def topics(spans: Sequence[str]) -> tuple[str, ...]:
    """The topics of places, each once."""
    return tuple(dict.fromkeys(place.rpartition("@")[0].rpartition("/")[0] for place in spans))


def held_back(place: str) -> str:
    """A range that waits for a transaction to end."""
    if (span := _span(place)) is None:
        return place
    name, first, end = span
    return f"{name} from offset {first:,} on, {end - first:,} offsets"


def _span(place: str) -> tuple[str, int, int] | None:
    name, _, span = place.rpartition("@")
    first, _, end = span.partition("-")
    return (name, int(first), int(end)) if first.isdigit() and end.isdigit() else None
