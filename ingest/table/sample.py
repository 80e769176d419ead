"""A look at a topic's newest records before anything is ingested: what would be bad, and what is not read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.errors import ThermoclineError
from thermocline.ingest.commit.rotation import with_topics
from thermocline.kafka.facts import OffsetRange
from thermocline.kafka.log import Log, read_ranges
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.unread import OTHER, Sampled, UnreadFields
from thermocline.text.unread import each_field

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["Sample", "warnings_of"]

PARTITIONS_MAX: Final = 8
RECORDS_MAX: Final = 10
"""Of a partition: enough to see what producers write, and read in a moment."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a few records came to: why some are bad, with an example each, and unread fields."""

    records: int
    bad: int
    reasons: tuple[str, ...]
    unread: Sampled

    def warnings(self) -> Iterator[str]:
        """A sentence for each thing that a person should look at before ingest runs."""
        if self.bad:
            yield f"{self.bad} of the {self.records} newest records that were looked at would be bad:"
            yield from (f"  {reason}" for reason in self.reasons)
        if self.unread.names:
            names = {name: count for name, count in self.unread.names.items() if name != OTHER}
            others = self.unread.names.get(OTHER, 0)
            shown = each_field(names, others, self.unread.values)
            yield f"no column is read from: {', '.join(shown)}"


def warnings_of(settings: Settings, definition: LiveTable) -> list[str]:
    """What a sample warns of; that it can't be had is a warning, too: the table is there already."""
    try:
        return [*_sample(settings, definition).warnings()]
    except ThermoclineError as error:
        return [f"the newest records could not be looked at: {error.what}"]


def _sample(settings: Settings, definition: LiveTable) -> Sample:
    """Decodes the newest records of the table's topics, and of those that its patterns find."""
    log = Log(settings.kafka)
    if definition.topic_patterns:
        definition = with_topics(definition, log.names())  # safety: sample-of-found-topics
    starts, ends = log.bounds(definition.topics)
    ranges = [
        OffsetRange(topic, partition, max(starts.get((topic, partition)), end - RECORDS_MAX), end)
        for topic, partition, end in ends.items()
        if end > starts.get((topic, partition))
    ][:PARTITIONS_MAX]
    registry = settings.registry.client()
    decoder, fields = decoder_for(definition, registry), UnreadFields(definition, registry)
    records = bad = 0
    examples: dict[str, str] = {}
    unread = Sampled()
    for chunk in read_ranges(settings.kafka.client_config(), ranges, definition.name):
        decoded = decoder.decode(chunk.keys, chunk.values, chunk.headers_of, chunk.topic)
        records += len(chunk.offsets)
        bad += len(decoded.bad)
        for one in decoded.bad:
            examples.setdefault(one.reason, f"{chunk.topic}/{chunk.partition}@{chunk.offsets[one.index]}")
        unread += fields.of(chunk.values, RECORDS_MAX, chunk.headers_of, decoded.others)
    reasons = tuple(f"{place}: {reason}" for reason, place in list(examples.items())[:3])
    return Sample(records, bad, reasons, unread)
